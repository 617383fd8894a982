//! Handles the signals that end the program: SIGINT, SIGTERM and SIGHUP.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use varve_content::Progress;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit_status::INTERRUPTED;
use crate::job_process;

/// Signals concern the whole process, so this is a static.
static WAS_SIGNALLED: AtomicBool = AtomicBool::new(false);
/// The operations that the first signal cancels. `None` until signals are caught; before that, a
/// signal ends the program.
static CANCELLED: Mutex<Option<Vec<Arc<Progress>>>> = Mutex::new(None);
/// The process groups of running programs, which a second signal ends by force.
static GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

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
                end_groups();
                std::process::exit(i32::from(INTERRUPTED));
            }
            cancelled.iter().flatten().for_each(|progress| progress.cancel());
        }
    });
    Ok(())
}

/// Ends all groups by force. A job of a run first gets two signals, so that it ends its own groups.
#[expect(clippy::disallowed_methods, reason = "programs end in real time")]
fn end_groups() {
    let groups = GROUPS.lock();
    let signal_all = |signal| {
        for group in groups.iter() {
            // It may have ended by itself.
            let _ = kill_process_group(*group, signal);
        }
    };
    if !job_process::is_job() && !groups.is_empty() {
        for pause in JOB_PAUSES {
            signal_all(Signal::TERM);
            std::thread::sleep(pause);
        }
    }
    signal_all(Signal::KILL);
}

/// Adds a process group that ends with this program when a second signal comes.
pub fn add_group(group: Pid) {
    GROUPS.lock().push(group);
}

/// Removes a process group. It must not have been waited for: then another one may have its id.
pub fn remove_group(group: Pid) {
    GROUPS.lock().retain(|one| *one != group);
}

/// Reports whether a signal to end was caught.
pub fn was_signalled() -> bool {
    WAS_SIGNALLED.load(Ordering::Relaxed)
}
