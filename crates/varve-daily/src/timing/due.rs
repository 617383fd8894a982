//! Decides whether a job is due: a pure function of its timetable, its history and the time.
//!
//! A job is due when no success lies in the current period. A success later than the period does
//! not count: it comes from a clock that was ahead, and must not stop the job until then. After a
//! failure the job waits for ten minutes, then for twice as long each time, up to four hours. At
//! the next boundary it begins afresh.

use std::time::Duration;

use varve_world::Timestamp;

use super::timetable::{Period, Timetable};

/// The time after the first failure until a job is tried again.
const FIRST_PAUSE: Duration = Duration::from_secs(600);
const PAUSE_MAX: Duration = Duration::from_secs(4 * 3_600);

/// The past of a job, in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobHistory {
    /// The beginnings of attempts that succeeded.
    pub successes: Vec<Timestamp>,
    /// The ends of attempts that failed.
    pub failures: Vec<Timestamp>,
}

impl JobHistory {
    /// Returns the newest success that is not in the future.
    #[must_use]
    pub fn last_success(&self, now: Timestamp) -> Option<Timestamp> {
        self.successes.iter().copied().filter(|success| *success <= now).max()
    }
}

/// The answer whether a job is due, with its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dueness {
    /// No success lies in this period.
    Due(Period),
    /// A success lies in this period; the job is due again at its end.
    Served { period: Period, by: Timestamp },
    /// The job failed in this period, and is tried again at `until`.
    BackingOff { period: Period, failure_count: usize, until: Timestamp },
}

/// Decides whether a job is due.
#[must_use]
pub fn due(timetable: &Timetable, history: &JobHistory, now: Timestamp) -> Dueness {
    let period = timetable.period(now);
    if let Some(by) = history.successes.iter().copied().filter(|success| period.contains(*success)).max() {
        return Dueness::Served { period, by };
    }
    match back_off(history, period.start, now) {
        Some((failure_count, until)) if until.min(period.end) > now => {
            Dueness::BackingOff { period, failure_count, until: until.min(period.end) }
        }
        _ => Dueness::Due(period),
    }
}

/// Returns how often a job has failed from `start` to `now`, and the time at which it is tried
/// again; `None` if it has not failed.
#[must_use]
pub fn back_off(history: &JobHistory, start: Timestamp, now: Timestamp) -> Option<(usize, Timestamp)> {
    let failures = || history.failures.iter().filter(|failure| (start..=now).contains(failure));
    let last = failures().max()?;
    let failure_count = failures().count();
    Some((failure_count, last.plus(pause_after(failure_count))))
}

fn pause_after(failure_count: usize) -> Duration {
    let doublings = u32::try_from(failure_count.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    FIRST_PAUSE.saturating_mul(1 << doublings).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    const MINUTE: i64 = 60_000_000_000;
    const DAY: i64 = 1_440 * MINUTE;

    fn daily() -> Timetable {
        Timetable::new("day".parse().unwrap(), TimeZone::UTC, Duration::ZERO)
    }

    #[test]
    fn a_failure_makes_the_job_wait_longer_each_time_until_the_next_boundary() {
        let mut history = JobHistory::default();
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..7 {
            assert!(matches!(due(&daily(), &history, Timestamp(now)), Dueness::Due(_)));
            history.failures.push(Timestamp(now));
            let Dueness::BackingOff { until, .. } = due(&daily(), &history, Timestamp(now)) else { panic!() };
            pauses.push((until.0 - now) / MINUTE);
            now = until.0;
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 240, 240]);
        history.failures.push(Timestamp(DAY - 1));
        assert!(matches!(due(&daily(), &history, Timestamp(DAY)), Dueness::Due(_)), "afresh");
    }

    #[test]
    fn a_success_from_a_clock_that_was_ahead_stops_nothing() {
        let history = JobHistory { successes: vec![Timestamp(1_000 * DAY)], failures: Vec::new() };
        assert!(matches!(due(&daily(), &history, Timestamp(5 * DAY)), Dueness::Due(_)));
        assert_eq!(history.last_success(Timestamp(5 * DAY)), None);
        // In the same period it counts, so that a clock that is set back causes no second run.
        let history = JobHistory { successes: vec![Timestamp(5 * DAY + MINUTE)], failures: Vec::new() };
        assert!(matches!(due(&daily(), &history, Timestamp(5 * DAY)), Dueness::Served { .. }));
    }
}
