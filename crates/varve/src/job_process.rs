//! A command that `varve run` has started as one of its jobs. It ends if the run is killed: nobody
//! would keep its time limit then, and it would keep the lock of the run.

use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, getppid, kill_process};

use crate::exit_status::INTERRUPTED;

/// The environment variable with the process id of the run.
pub const RUN_VARIABLE: &str = "VARVE_JOB_OF";
const LOOK: Duration = Duration::from_secs(1);
/// The time in which a job ends in order. Its run waits for as long.
pub const GRACE: Duration = Duration::from_secs(60);

static IS_JOB: OnceLock<bool> = OnceLock::new();

/// Watches over the run if this process is one of its jobs. A program that a job starts may inherit
/// the variable, and is none.
#[expect(clippy::disallowed_methods, reason = "the run is looked at from beside the command")]
pub fn begin() {
    let named = std::env::var(RUN_VARIABLE).ok().and_then(|run| Pid::from_raw(run.parse().ok()?));
    let Some(run) = named.filter(|run| getppid() == Some(*run)) else { return };
    IS_JOB.get_or_init(|| true);
    std::thread::spawn(move || {
        while getppid() == Some(run) {
            std::thread::sleep(LOOK);
        }
        // The second signal ends it by force, with all programs that it has started.
        for _ in 0..2 {
            let _ = kill_process(getpid(), Signal::TERM);
            std::thread::sleep(GRACE);
        }
        std::process::exit(i32::from(INTERRUPTED));
    });
}

/// Reports whether this process is a job of a run.
pub fn is_job() -> bool {
    IS_JOB.get().copied().unwrap_or(false)
}
