//! Notices while a job works. A job may work for days, and a promise may break meanwhile.
//!
//! A process of its own judges: a store that hangs then delays no signal and no time limit.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::getpid;
use varve_world::{Clock, RealClock, Timestamp};

use super::notify;
use super::state_folder::StateFolder;
use crate::job_process::RUN_VARIABLE;

/// The time between two looks whether it is time to judge.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Replicas and channels are awaited for ten seconds each.
const LIMIT: Duration = Duration::from_secs(300);

/// The judging of promises beside one job.
pub struct NoticesMeanwhile<'a> {
    state: &'a StateFolder,
    /// The file with the configuration; `None` if nobody is to be notified.
    config: Option<PathBuf>,
    begun: Timestamp,
    last_look: Instant,
    judging: Option<(Child, Instant)>,
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
        if let Some((child, since)) = &mut self.judging {
            if matches!(child.try_wait(), Ok(None)) {
                if since.elapsed() >= LIMIT {
                    // The next one may do better.
                    drop(child.kill());
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
        if notify::is_time_beside_a_job(self.state, self.begun) {
            self.judging = judge(config).map(|child| (child, Instant::now()));
        }
    }
}

/// Starts `varve notify`. Its failures are in the run log.
fn judge(config: &PathBuf) -> Option<Child> {
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.args(["--quiet", "notify", "--config"]).arg(config);
    command.env(RUN_VARIABLE, getpid().as_raw_nonzero().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
}

impl Drop for NoticesMeanwhile<'_> {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.judging {
            // The end of the run judges once more.
            drop(child.kill());
            drop(child.wait());
        }
    }
}
