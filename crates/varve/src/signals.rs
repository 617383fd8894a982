//! Handles the signals that end the program: SIGINT, SIGTERM and SIGHUP.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use varve_content::Progress;
use varve_daily::is_job_process;
use varve_world::signal_program_groups;

use crate::exit_status::INTERRUPTED;

/// Signals concern the whole process, so this is a static.
static WAS_SIGNALLED: AtomicBool = AtomicBool::new(false);
/// The operations that the first signal cancels. `None` until signals are caught; before that, a
/// signal ends the program.
static CANCELLED: Mutex<Option<Vec<Arc<Progress>>>> = Mutex::new(None);

/// The times that a job has to take notice of a first and of a second signal.
const JOB_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];

/// Makes the progress of an operation. The first signal cancels it, so that the operation ends
/// cleanly. A second signal ends the program at once.
///
/// # Errors
/// When cannot catch signals.
pub fn cancellable_progress() -> io::Result<Arc<Progress>> {
    watch()?;
    let progress = Arc::new(Progress::new());
    let mut cancelled = CANCELLED.lock();
    cancelled.get_or_insert_default().push(Arc::clone(&progress));
    // A signal may have come already, during the wait for another writer.
    if was_signalled() {
        progress.cancel();
    }
    Ok(progress)
}

/// Starts to catch signals. The first signal is only recorded; a second one ends the program at
/// once.
///
/// # Errors
/// When cannot catch signals.
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
                end_programs();
                std::process::exit(i32::from(INTERRUPTED));
            }
            cancelled.iter().flatten().for_each(|progress| progress.cancel());
        }
    });
    Ok(())
}

/// Ends the programs that this one has started, by force. A job of a run first gets two signals, so
/// that it ends its own programs.
#[expect(clippy::disallowed_methods, reason = "programs end in real time")]
fn end_programs() {
    if !is_job_process() {
        for pause in JOB_PAUSES {
            if !signal_program_groups(Signal::TERM) {
                return;
            }
            std::thread::sleep(pause);
        }
    }
    signal_program_groups(Signal::KILL);
}

/// Reports whether a signal to end was caught.
pub fn was_signalled() -> bool {
    WAS_SIGNALLED.load(Ordering::Relaxed)
}
