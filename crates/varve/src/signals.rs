//! The end of the program when a signal asks for it: SIGINT, SIGTERM or SIGHUP.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use varve_archive::Progress;

use crate::exit_status::INTERRUPTED;

/// Signals are the whole program's.
static WAS_SIGNALLED: AtomicBool = AtomicBool::new(false);
/// What the first signal cancels. `None`: signals are not caught yet, and end the program.
static CANCELLED: Mutex<Option<Vec<Arc<Progress>>>> = Mutex::new(None);

/// From now on, the first signal to end cancels `progress`, so that the operation ends cleanly; a second
/// one ends the program at once.
///
/// # Errors
/// When signals cannot be caught.
pub fn cancel_on_signal(progress: &Arc<Progress>) -> io::Result<()> {
    watch()?;
    let mut cancelled = CANCELLED.lock();
    cancelled.get_or_insert_default().push(Arc::clone(progress));
    // One may have come before, while another writer was waited for.
    if was_signalled() {
        progress.cancel();
    }
    Ok(())
}

/// From now on, the first signal to end is only noted; a second one ends the program at once.
///
/// # Errors
/// When signals cannot be caught.
#[expect(clippy::disallowed_methods, reason = "signals come from the edge")]
pub fn watch() -> io::Result<()> {
    let mut cancelled = CANCELLED.lock();
    if cancelled.is_some() {
        return Ok(());
    }
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    *cancelled = Some(Vec::new());
    std::thread::spawn(move || {
        for _ in signals.forever() {
            let cancelled = CANCELLED.lock();
            if WAS_SIGNALLED.swap(true, Ordering::Relaxed) {
                std::process::exit(i32::from(INTERRUPTED));
            }
            cancelled.iter().flatten().for_each(|progress| progress.cancel());
        }
    });
    Ok(())
}

/// Whether a signal to end has come that was caught.
pub fn was_signalled() -> bool {
    WAS_SIGNALLED.load(Ordering::Relaxed)
}
