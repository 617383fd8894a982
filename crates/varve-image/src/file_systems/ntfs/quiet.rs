//! Suppresses the output of expected panics: a panic in the crate `ntfs` is reported as damage.

use std::cell::Cell;
use std::panic::{set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Installs a panic hook that shows all panics as before, except those of quiet threads.
fn install() {
    let show = take_hook();
    set_hook(Box::new(move |panic| {
        if !IS_QUIET.try_with(Cell::get).unwrap_or(false) {
            show(panic);
        }
    }));
}

/// Sets the visibility of this thread's panics while it lives, and restores the previous state.
pub(super) struct QuietPanics {
    before: bool,
}

impl QuietPanics {
    fn set(is_quiet: bool) -> Self {
        static INSTALLED: Once = Once::new();
        // A thread that is panicking cannot change the panic hook.
        if !std::thread::panicking() {
            INSTALLED.call_once(install);
        }
        Self { before: IS_QUIET.replace(is_quiet) }
    }
}

impl Drop for QuietPanics {
    fn drop(&mut self) {
        IS_QUIET.set(self.before);
    }
}

/// Runs `work` without showing its panics.
pub(super) fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let _quiet = QuietPanics::set(true);
    work()
}

/// Runs `work` within quiet code and shows its panics, because they are bugs of this crate.
pub(super) fn aloud<T>(work: impl FnOnce() -> T) -> T {
    let _shown = QuietPanics::set(false);
    work()
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn only_what_is_expected_is_not_shown() {
        // Other tests may install the hook at any moment, so it is installed first.
        quietly(|| ());
        let (shown, here) = (Arc::new(AtomicUsize::new(0)), thread::current().id());
        let (count, show) = (Arc::clone(&shown), take_hook());
        set_hook(Box::new(move |panic| {
            if thread::current().id() == here {
                count.fetch_add(1, Ordering::Relaxed);
            } else {
                show(panic);
            }
        }));
        install();
        let panics = |work: fn()| {
            catch_unwind(work).unwrap_err();
            shown.swap(0, Ordering::Relaxed)
        };
        assert_eq!(panics(|| quietly(|| panic!("expected"))), 0);
        assert_eq!(panics(|| panic!("what came before has ended")), 1);
        assert_eq!(panics(|| quietly(|| aloud(|| panic!("a mistake of ours")))), 1);
        let expected = || {
            quietly(|| {
                aloud(|| ());
                panic!("expected");
            });
        };
        assert_eq!(panics(expected), 0);
    }
}
