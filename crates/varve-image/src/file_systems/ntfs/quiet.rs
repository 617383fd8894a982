//! Panics that are expected, and that nobody is to see: what the crate `ntfs` panics at is told as damage.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::cell::Cell;
use std::panic::{set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// From now on panics are shown as they were, but for those of quiet threads.
fn install() {
    let show = take_hook();
    set_hook(Box::new(move |panic| {
        if !IS_QUIET.try_with(Cell::get).unwrap_or(false) {
            show(panic);
        }
    }));
}

/// While it lives, panics of this thread are shown or not; then again as before.
pub(super) struct Quiet {
    before: bool,
}

impl Quiet {
    fn set(is_quiet: bool) -> Self {
        static INSTALLED: Once = Once::new();
        // Whoever panics already cannot change what panics call.
        if !std::thread::panicking() {
            INSTALLED.call_once(install);
        }
        Self { before: IS_QUIET.replace(is_quiet) }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        IS_QUIET.set(self.before);
    }
}

/// Does something whose panics are not shown.
pub(super) fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let _quiet = Quiet::set(true);
    work()
}

/// Does something in the midst of that whose panics are mistakes of ours.
pub(super) fn aloud<T>(work: impl FnOnce() -> T) -> T {
    let _shown = Quiet::set(false);
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
        // Other tests may do this at any moment: so it is done before.
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
