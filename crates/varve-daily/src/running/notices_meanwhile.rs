//! Notices while a job works. A job may work for days, and a promise may break meanwhile.
//!
//! A process of its own judges: a store that hangs then delays no signal and no time limit.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use varve_world::{Clock, ProgramGroup, RealClock, Timestamp};

use super::job_process::command_of;
use super::order::{JobOrder, OrderedWork};
use super::run_notices::is_time_beside_a_job;
use crate::state::StateFolder;

/// The time between two looks whether it is time to judge.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Replicas and channels are awaited for ten seconds each.
const LIMIT: Duration = Duration::from_secs(300);

/// The judging of promises beside one job.
pub(super) struct NoticesMeanwhile<'a> {
    state: &'a StateFolder,
    /// The file with the configuration; `None` if nobody is to be notified.
    config: Option<PathBuf>,
    begun: Timestamp,
    last_look: Instant,
    judging: Option<JudgingProcess>,
}

/// A process that judges. It is ended if it is dropped: the end of the run judges once more.
struct JudgingProcess {
    program: ProgramGroup,
    since: Instant,
}

impl<'a> NoticesMeanwhile<'a> {
    /// Begins with a job. `config` is the configuration, if it has channels.
    #[expect(clippy::disallowed_methods, reason = "jobs are waited for in real time")]
    pub fn new(state: &'a StateFolder, config: Option<PathBuf>) -> Self {
        let (begun, last_look) = (RealClock.now(), Instant::now());
        Self { state, config, begun, last_look, judging: None }
    }

    /// Judges if it is time. It is called once a second, and returns at once.
    #[expect(clippy::disallowed_methods, reason = "jobs are waited for in real time")]
    pub fn look(&mut self) {
        if let Some(JudgingProcess { program, since }) = &self.judging {
            if !program.has_ended() {
                if since.elapsed() >= LIMIT {
                    // The next one may do better.
                    program.signal(Signal::KILL);
                }
                return;
            }
            self.judging = None;
        }
        let Some(config) = &self.config else { return };
        if self.last_look.elapsed() < LOOK_EVERY {
            return;
        }
        self.last_look = Instant::now();
        if is_time_beside_a_job(self.state, self.begun) {
            self.judging = judge(config);
        }
    }
}

/// Starts to judge, in a process of its own. Its failures are in the run log.
#[expect(clippy::disallowed_methods, reason = "the process has a time limit in real time")]
fn judge(config: &Path) -> Option<JudgingProcess> {
    let order = JobOrder { wait: Duration::ZERO, work: OrderedWork::Notify { config: config.to_owned() } };
    let (mut command, _order) = command_of(&order).ok()?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Some(JudgingProcess { program: ProgramGroup::spawn(&mut command).ok()?, since: Instant::now() })
}
