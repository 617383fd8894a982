//! Carries out the order of a job: starts this program as a process of its own, and reads the
//! records that it prints.
//!
//! A job that crashes or is killed then ends alone. The process holds a copy of the run's lock: if
//! the run is killed, the job ends itself, and the next run begins only after that.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::Signal;
use serde::Deserialize;
use serde_json::Value;
use varve_world::ProgramGroup;

use super::job_process::{JOB_GRACE, command_of};
use super::order::JobOrder;
use super::record::JobRecord;
use crate::loaded_config::LoadedConfig;
use crate::state::{RunLock, StateFolder};

const LOOK_MIN: Duration = Duration::from_millis(5);
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The time that a job has to end by force.
const SECOND_GRACE: Duration = Duration::from_secs(2);
const LOOK_MAX: Duration = Duration::from_millis(100);
/// A longer line is no record of this program.
const LINE_BYTES_MAX: usize = 16 << 20;

/// The environment variables that name another store or another secret.
const OTHERS: [&str; 5] = [
    "VARVE_STORE",
    "VARVE_KEY_FILE",
    "VARVE_KEY_FILE_COMMAND",
    "VARVE_PASSPHRASE_FILE",
    "VARVE_PASSPHRASE_COMMAND",
];

/// The surroundings of a job.
pub(super) struct JobSurroundings<'a> {
    pub loaded: &'a LoadedConfig,
    pub state: &'a StateFolder,
    pub lock: &'a RunLock,
}

/// Carries out an order in a process of its own. `environment` replaces what names another store
/// here, and has secrets: all users of the machine can see a command line. Calls `take` with each
/// record as soon as it is printed. Asks `must_end` once a second, and ends the process early if it
/// is so, by force if it does not end in order. Returns its exit status; `None` if a signal ended
/// it.
///
/// # Errors
/// When the program cannot be started, or its output cannot be read.
#[expect(clippy::disallowed_methods, reason = "the process is looked at in real time")]
pub(super) fn carry_out(
    around: &JobSurroundings<'_>,
    order: &JobOrder,
    environment: &[(&str, OsString)],
    mut must_end: impl FnMut() -> bool,
    mut take: impl FnMut(&JobRecord, &Value),
) -> Result<Option<i32>> {
    let (mut command, _order) = command_of(order)?;
    let output = around.state.temporary_file()?;
    let mut lines = BufReader::new(output.reopen()?);
    command.stdin(Stdio::from(around.lock.share()?)).stdout(output.reopen()?);
    for other in OTHERS {
        command.env_remove(other);
    }
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    around.loaded.catch_signals()?;
    let stop = around.loaded.stop_signal();
    let started = ProgramGroup::spawn(&mut command);
    let mut job =
        started.with_context(|| format!("{} cannot be started", command.get_program().display()))?;
    let mut line = Vec::new();
    let mut asked_to_end: Option<Instant> = None;
    let mut pause = LOOK_MIN;
    let mut last_look = Instant::now();
    loop {
        let has_ended = job.has_ended();
        while read_record(&mut lines, &mut line, &mut take)? {
            pause = LOOK_MIN;
        }
        if has_ended {
            return Ok(job.wait()?.code());
        }
        let is_time_to_look = last_look.elapsed() >= ASK_EVERY;
        if is_time_to_look {
            last_look = Instant::now();
        }
        match asked_to_end {
            None if stop.is_set() || (is_time_to_look && must_end()) => {
                asked_to_end = Some(Instant::now());
                // It may be waiting for a program that it has started, which is in its group.
                job.signal(Signal::TERM);
            }
            // The store loses nothing by it. A second signal also ends what the job has started.
            Some(asked) if asked.elapsed() >= JOB_GRACE + SECOND_GRACE => job.signal(Signal::KILL),
            Some(asked) if asked.elapsed() >= JOB_GRACE => job.signal(Signal::TERM),
            _ => {}
        }
        job.wait_for(pause);
        pause = (pause * 2).min(LOOK_MAX);
    }
}

/// Reads the next record, if a whole line is there. `line` holds the beginning of a line that is
/// not complete yet.
fn read_record(
    lines: &mut impl BufRead,
    line: &mut Vec<u8>,
    take: &mut impl FnMut(&JobRecord, &Value),
) -> Result<bool> {
    lines.read_until(b'\n', line)?;
    if line.last() != Some(&b'\n') {
        if line.len() > LINE_BYTES_MAX {
            line.clear();
        }
        return Ok(false);
    }
    if let Ok(value) = serde_json::from_slice::<Value>(line) {
        take(&JobRecord::deserialize(&value).unwrap_or(JobRecord::Other), &value);
    }
    line.clear();
    Ok(true)
}
