//! Decides whether a job runs now, and says why.

use std::path::Path;

use varve_session::moment;
use varve_world::Timestamp;

use super::daily_job::DailyJob;
use super::histories::Histories;
use super::machine_state::machine_state;
use crate::config::ReplicaTrigger;
use crate::timing::{Dueness, back_off, due, show_time_span};

/// The decision about a job.
pub struct JobDecision {
    pub runs: bool,
    /// True if the job is due and its conditions do not allow it.
    pub is_postponed: bool,
    pub reason: String,
    /// The start of the current period.
    pub period_start: Option<Timestamp>,
    /// The next time at which the job is due, if it is not due now.
    pub next: Option<Timestamp>,
}

impl JobDecision {
    fn waits(reason: String, next: Option<Timestamp>) -> Self {
        Self { runs: false, is_postponed: false, reason, period_start: None, next }
    }

    fn runs(reason: String, period_start: Option<Timestamp>) -> Self {
        Self { runs: true, is_postponed: false, reason, period_start, next: None }
    }

    /// The decision about a job that the user names: it runs in any case.
    #[must_use]
    pub fn named_by_hand() -> Self {
        Self::runs("named by hand".to_owned(), None)
    }

    /// Postpones the job if there is an obstacle.
    #[must_use]
    pub fn unless(self, obstacle: Option<String>) -> Self {
        match obstacle {
            Some(obstacle) => Self {
                runs: false,
                is_postponed: true,
                reason: format!("{}; postponed: {obstacle}", self.reason),
                ..self
            },
            None => self,
        }
    }
}

/// Decides whether a job runs now.
#[must_use]
pub fn decide(job: &DailyJob<'_>, histories: &Histories, system_root: &Path, now: Timestamp) -> JobDecision {
    let history = histories.of(job);
    let last = history.last_success(now);
    let ago = |time: Timestamp| show_time_span(now.since(time));
    let due_since = match &job.timetable {
        Some(timetable) => match due(timetable, &history, now) {
            Dueness::Due(period) => (
                match last {
                    Some(last) => format!(
                        "due since {}: it last succeeded {} ago",
                        moment::show(period.start),
                        ago(last)
                    ),
                    None => format!("due since {}: it has not succeeded yet", moment::show(period.start)),
                },
                period.start,
            ),
            Dueness::Served { period, by } => {
                let text = format!("done at {}", moment::show(by));
                return JobDecision::waits(text, Some(period.end));
            }
            Dueness::BackingOff { failure_count, until, .. } => {
                let text = match failure_count {
                    1 => "it has failed once since it was due".to_owned(),
                    count => format!("it has failed {count} times since it was due"),
                };
                return JobDecision::waits(text, Some(until));
            }
        },
        None => match present(job, histories, now) {
            Ok(reason) => (reason, now),
            Err((reason, next)) => return JobDecision::waits(reason, next),
        },
    };
    let (reason, start) = due_since;
    match job.conditions.reason_to_postpone(machine_state(system_root, job.conditions), last, now) {
        Some(postponed) => JobDecision {
            runs: false,
            is_postponed: true,
            reason: format!("{reason}; postponed: {postponed}"),
            period_start: Some(start),
            next: None,
        },
        None => JobDecision::runs(reason, Some(start)),
    }
}

/// Decides about a replica that is brought up to date whenever its folder is there.
fn present(
    job: &DailyJob<'_>,
    histories: &Histories,
    now: Timestamp,
) -> Result<String, (String, Option<Timestamp>)> {
    let Some(replica) = job.replica else { return Err(("not a replica".to_owned(), None)) };
    debug_assert!(replica.trigger == ReplicaTrigger::Present);
    // An empty mount point is not the replica's disk.
    if !Path::new(&replica.at).join("replica.toml").exists() {
        return Err((format!("{} is not there, or holds no replica yet", replica.at), None));
    }
    let history = histories.of(job);
    let copied = history.last_success(now);
    let since = copied.unwrap_or(Timestamp(i64::MIN));
    if let Some((failure_count, until)) = back_off(&history, since, now).filter(|(_, until)| *until > now) {
        let times = if failure_count == 1 { "once".to_owned() } else { format!("{failure_count} times") };
        return Err((format!("it has failed {times} since it was last brought up to date"), Some(until)));
    }
    match (histories.newest_snapshot(job.store_name), copied) {
        (Some(newest), Some(copied)) if newest <= copied => Err(("it has everything".to_owned(), None)),
        (_, Some(_)) => Ok("the replica is there, and the store has something new".to_owned()),
        (_, None) => Ok("the replica is there".to_owned()),
    }
}
