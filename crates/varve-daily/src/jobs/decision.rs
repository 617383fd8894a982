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

#[cfg(test)]
mod tests {
    use std::fs;

    use jiff::tz::TimeZone;

    use super::*;
    use crate::config::{ConfigText, DailyConfig};
    use crate::jobs::JobKind;
    use crate::timing::Timetable;

    const HOUR: i64 = 3_600_000_000_000;
    const NOON: Timestamp = Timestamp(12 * HOUR);

    /// A machine on battery, and a configuration that wants mains, with a replica in a folder.
    struct Machine {
        root: tempfile::TempDir,
        config: DailyConfig,
    }

    impl Machine {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let usb = root.path().join("usb");
            let text = format!(
                "[store.main]\nat = \"/store\"\n\
                 [source.home]\nstore = \"main\"\nfolder = \"/home\"\nevery = \"day\"\n\
                 only-when = {{ power = \"mains\" }}\nat-the-latest = \"3d\"\n\
                 [replica.usb]\nof = \"main\"\nat = {usb:?}\nwhen = \"present\"\n"
            );
            let text = ConfigText { name: "varve.toml".into(), text };
            let config = DailyConfig::read(&[text], root.path()).unwrap();
            Self { root, config }
        }

        fn power(&self, kind: &str) {
            let supply = self.root.path().join("sys/class/power_supply/one");
            fs::create_dir_all(&supply).unwrap();
            fs::write(supply.join("type"), kind).unwrap();
            fs::write(supply.join("status"), "Discharging").unwrap();
        }

        fn snapshot(&self) -> DailyJob<'_> {
            let source = &self.config.sources["home"];
            DailyJob {
                kind: JobKind::Snapshot,
                subject: "home",
                store_name: "main",
                store: &self.config.stores["main"],
                source: Some(source),
                replica: None,
                timetable: Some(Timetable::new(
                    source.every.clone(),
                    TimeZone::UTC,
                    std::time::Duration::ZERO,
                )),
                conditions: source.conditions,
                timeout: source.timeout,
            }
        }

        fn replica(&self) -> DailyJob<'_> {
            let replica = &self.config.replicas["usb"];
            DailyJob {
                kind: JobKind::Replicate,
                subject: "usb",
                source: None,
                replica: Some(replica),
                timetable: None,
                conditions: replica.conditions,
                ..self.snapshot()
            }
        }

        fn decide(&self, job: &DailyJob<'_>, histories: &Histories, now: Timestamp) -> JobDecision {
            decide(job, histories, self.root.path(), now)
        }
    }

    #[test]
    fn a_due_job_runs_once_in_its_period() {
        let machine = Machine::new();
        let (job, mut histories) = (machine.snapshot(), Histories::default());
        let first = machine.decide(&job, &histories, NOON);
        assert!(first.runs && first.reason.contains("it has not succeeded yet"), "{}", first.reason);
        histories.note(&job, NOON, NOON, true);
        let served = machine.decide(&job, &histories, Timestamp(13 * HOUR));
        assert!(!served.runs && !served.is_postponed && served.reason.starts_with("done at "));
        assert_eq!(served.next, Some(Timestamp(24 * HOUR)));
        let next = machine.decide(&job, &histories, Timestamp(25 * HOUR));
        assert!(next.runs && next.reason.contains("it last succeeded 13h ago"), "{}", next.reason);
        histories.note(&job, Timestamp(25 * HOUR), Timestamp(25 * HOUR), false);
        let failed = machine.decide(&job, &histories, Timestamp(25 * HOUR));
        assert_eq!(failed.reason, "it has failed once since it was due");
        assert!(!failed.runs && failed.next.is_some());
    }

    #[test]
    fn a_condition_postpones_a_job_until_it_is_too_old() {
        let machine = Machine::new();
        machine.power("Battery");
        let (job, mut histories) = (machine.snapshot(), Histories::default());
        histories.note(&job, NOON, NOON, true);
        let on_day = |day: i64| machine.decide(&job, &histories, Timestamp(NOON.0 + day * 24 * HOUR));
        let postponed = on_day(1);
        assert!(!postponed.runs && postponed.is_postponed, "{}", postponed.reason);
        assert_eq!(postponed.period_start, Some(Timestamp(24 * HOUR)));
        assert!(on_day(4).runs, "it runs after three days in any case: {}", on_day(4).reason);
    }

    #[test]
    fn a_replica_is_updated_whenever_its_folder_has_one() {
        let machine = Machine::new();
        let (job, mut histories) = (machine.replica(), Histories::default());
        fs::create_dir(machine.root.path().join("usb")).unwrap();
        let absent = machine.decide(&job, &histories, NOON);
        assert!(!absent.runs && absent.reason.contains("holds no replica yet"), "{}", absent.reason);
        fs::write(machine.root.path().join("usb/replica.toml"), "").unwrap();
        assert!(machine.decide(&job, &histories, NOON).runs);
        histories.note(&job, NOON, NOON, false);
        let failed = machine.decide(&job, &histories, Timestamp(NOON.0 + HOUR / 60));
        assert!(!failed.runs && failed.reason.starts_with("it has failed once"), "{}", failed.reason);
        assert!(machine.decide(&job, &histories, Timestamp(NOON.0 + HOUR)).runs, "after a pause");
    }

    #[test]
    fn an_obstacle_postpones_what_would_run() {
        let decision = JobDecision::named_by_hand().unless(None);
        assert!(decision.runs && !decision.is_postponed);
        let decision = decision.unless(Some("the store is in use".into()));
        assert!(!decision.runs && decision.is_postponed);
        assert_eq!(decision.reason, "named by hand; postponed: the store is in use");
    }
}
