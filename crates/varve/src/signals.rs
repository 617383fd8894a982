//! Handles the signals that end the program: SIGINT, SIGTERM and SIGHUP.

use std::io;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use varve_content::Progress;
use varve_daily::is_job_process;
use varve_world::{StopSignal, signal_program_groups};

use crate::exit_status::INTERRUPTED;

/// Signals concern the whole process, so this is a static.
static STOP: LazyLock<StopSignal> = LazyLock::new(StopSignal::default);
/// True once signals are caught. Before that, a signal ends the program.
static IS_WATCHED: Mutex<bool> = Mutex::new(false);

/// The times that a job has to take notice of a first and of a second signal.
const JOB_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];

/// Makes the progress of an operation. The first signal cancels it, so that the operation ends
/// cleanly. A second signal ends the program at once.
///
/// # Errors
/// When signals cannot be caught.
pub fn cancellable_progress() -> io::Result<Arc<Progress>> {
    watch()?;
    Ok(Arc::new(Progress::until(stop_signal())))
}

/// Starts to catch signals. The first signal only sets [`stop_signal`]; a second one ends the
/// program at once.
///
/// # Errors
/// When signals cannot be caught.
#[expect(clippy::disallowed_methods, reason = "signals come from the edge")]
pub fn watch() -> io::Result<()> {
    let mut is_watched = IS_WATCHED.lock();
    if *is_watched {
        return Ok(());
    }
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    *is_watched = true;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            if STOP.is_set() {
                end_programs();
                std::process::exit(i32::from(INTERRUPTED));
            }
            STOP.set();
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

/// Returns the request to end, which the first caught signal sets.
pub fn stop_signal() -> StopSignal {
    STOP.clone()
}

/// Reports whether a signal to end was caught.
pub fn was_signalled() -> bool {
    STOP.is_set()
}
