//! The process of a job. It ends if the run that has started it is killed: nobody would keep its
//! time limit then, and it would keep the lock of the run.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process};

use super::order::JobOrder;

/// The environment variable with the process id of the run.
const RUN_VARIABLE: &str = "VARVE_JOB_OF";
const LOOK: Duration = Duration::from_secs(1);
/// The time in which a job ends in order. Its run waits for as long.
pub(super) const JOB_GRACE: Duration = Duration::from_secs(60);

static IS_JOB: OnceLock<bool> = OnceLock::new();

/// Returns the command that carries out an order, and the order, which must be kept until the
/// command has started. The order is in memory: the disk of the state folder may be full.
///
/// # Errors
/// When there is no memory for it.
pub(super) fn command_of(order: &JobOrder) -> Result<(Command, File)> {
    let program = std::env::current_exe().context("the program cannot find itself")?;
    // The command inherits it.
    let mut file = File::from(memfd_create("varve-job", MemfdFlags::empty())?);
    file.write_all(&serde_json::to_vec(order).context("the order of a job")?)?;
    let mut command = Command::new(program);
    command.args(["--json", "job"]).arg(format!("/proc/self/fd/{}", file.as_raw_fd()));
    command.env(RUN_VARIABLE, getpid().as_raw_nonzero().to_string());
    Ok((command, file))
}

/// Watches over the run if this process is one of its jobs. A program that a job starts may inherit
/// the variable, and is none. `status` is the exit status of an end by force.
#[expect(clippy::disallowed_methods, reason = "the run is looked at from beside the command")]
pub fn end_with_run(status: u8) {
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
            std::thread::sleep(JOB_GRACE);
        }
        std::process::exit(i32::from(status));
    });
}

/// Reports whether this process is a job of a run.
#[must_use]
pub fn is_job_process() -> bool {
    IS_JOB.get().copied().unwrap_or(false)
}
