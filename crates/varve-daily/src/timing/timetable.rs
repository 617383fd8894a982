//! Periods of time, each served by one success of a job.
//!
//! A boundary is a civil time in a time zone. If the clocks skip it, it is the first moment after
//! the gap; if they show it twice, it is the first of the two. A fixed offset may follow, so that
//! many machines do not begin at the same moment.

use std::time::Duration;

use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Span, Timestamp as Moment};
use varve_world::Timestamp;

use super::every::{Every, MonthDay};

/// The boundaries of a job.
#[derive(Debug, Clone)]
pub struct Timetable {
    every: Every,
    zone: TimeZone,
    offset: Duration,
}

/// The time from one boundary to the next. Its end is not a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    pub start: Timestamp,
    pub end: Timestamp,
}

impl Period {
    /// Reports whether a time is in the period.
    #[must_use]
    pub fn contains(&self, time: Timestamp) -> bool {
        self.start <= time && time < self.end
    }
}

impl Timetable {
    /// Makes a timetable. Each boundary is moved by `offset`.
    #[must_use]
    pub fn new(every: Every, zone: TimeZone, offset: Duration) -> Self {
        Self { every, zone, offset }
    }

    /// Returns the period that contains a time.
    #[must_use]
    pub fn period(&self, now: Timestamp) -> Period {
        let unmoved = self.unmoved_period(now.minus(self.offset));
        Period { start: unmoved.start.plus(self.offset), end: unmoved.end.plus(self.offset) }
    }

    /// Returns the next boundaries after a time.
    #[must_use]
    pub fn next_boundaries(&self, now: Timestamp, count: usize) -> Vec<Timestamp> {
        std::iter::successors(Some(self.period(now).end), |last| Some(self.period(*last).end))
            .take(count)
            .collect()
    }

    /// Returns how often the job is to run.
    #[must_use]
    pub fn every(&self) -> &Every {
        &self.every
    }

    fn unmoved_period(&self, now: Timestamp) -> Period {
        let (days, times) = match &self.every {
            Every::Interval(distance) => {
                let distance = i64::try_from(distance.as_nanos()).unwrap_or(i64::MAX).max(1);
                let start = now.0.div_euclid(distance).saturating_mul(distance);
                return Period { start: Timestamp(start), end: Timestamp(start.saturating_add(distance)) };
            }
            Every::Days(times) => (self.days_around(now, 2), times),
            Every::Weeks(weekdays, times) => {
                let mut days = self.days_around(now, 9);
                days.retain(|day| weekdays.contains(&day.weekday()));
                (days, times)
            }
            Every::Months(on, times) => (self.month_days_around(now, *on), times),
        };
        let mut start = Timestamp(i64::MIN);
        let mut end = Timestamp(i64::MAX);
        for day in days {
            for boundary in times.iter().filter_map(|time| first_moment(&self.zone, day.to_datetime(*time))) {
                if boundary <= now {
                    start = start.max(boundary);
                } else {
                    end = end.min(boundary);
                }
            }
        }
        Period { start, end }
    }

    fn today(&self, now: Timestamp) -> Date {
        let moment = Moment::from_nanosecond(i128::from(now.0)).unwrap_or(Moment::UNIX_EPOCH);
        self.zone.to_datetime(moment).date()
    }

    fn days_around(&self, now: Timestamp, count: i64) -> Vec<Date> {
        let today = self.today(now);
        (-count..=count).filter_map(|days| today.checked_add(Span::new().days(days)).ok()).collect()
    }

    fn month_days_around(&self, now: Timestamp, on: MonthDay) -> Vec<Date> {
        let first = self.today(now).first_of_month();
        let months = (-2..=2).filter_map(|months| first.checked_add(Span::new().months(months)).ok());
        let day = |month: Date| match on {
            MonthDay::Last => Some(month.last_of_month()),
            MonthDay::Number(day) => Date::new(month.year(), month.month(), day).ok(),
        };
        months.filter_map(day).collect()
    }
}

/// Returns the first moment at which the clocks of a zone show this time or a later one.
fn first_moment(zone: &TimeZone, civil: DateTime) -> Option<Timestamp> {
    let moment = match zone.to_ambiguous_timestamp(civil).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(civil).ok()?,
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(civil).ok()?,
        AmbiguousOffset::Gap { before, .. } => {
            let skipped = before.to_timestamp(civil).ok()?;
            let just_after = skipped.checked_add(Span::new().seconds(1)).ok()?;
            zone.preceding(just_after).next().map_or(skipped, |transition| transition.timestamp())
        }
    };
    i64::try_from(moment.as_nanosecond()).ok().map(Timestamp)
}

/// Returns the fixed offset of a job on a machine: less than `spread`, in whole seconds.
#[must_use]
pub fn spread_offset(machine: &str, job: &str, spread: Duration) -> Duration {
    let hash = xxhash_rust::xxh3::xxh3_64(format!("{machine}\n{job}").as_bytes());
    Duration::from_secs(hash.checked_rem(spread.as_secs()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(every: &str, zone: &str) -> Timetable {
        Timetable::new(every.parse().unwrap(), TimeZone::get(zone).unwrap(), Duration::ZERO)
    }

    fn at(text: &str) -> Timestamp {
        let moment: Moment = text.parse().unwrap();
        Timestamp(i64::try_from(moment.as_nanosecond()).unwrap())
    }

    #[test]
    fn a_skipped_time_is_the_first_moment_after_the_gap_and_a_double_one_the_first() {
        let day = table("day at 02:30", "Europe/Berlin");
        let boundaries = day.next_boundaries(at("2026-03-28T12:00:00Z"), 2);
        assert_eq!(boundaries, [at("2026-03-29T01:00:00Z"), at("2026-03-30T00:30:00Z")]);
        let boundaries = day.next_boundaries(at("2026-10-24T12:00:00Z"), 2);
        assert_eq!(boundaries, [at("2026-10-25T00:30:00Z"), at("2026-10-26T01:30:00Z")]);
    }

    #[test]
    fn a_skipped_day_has_no_boundary_of_its_own() {
        // Samoa had no 30 December 2011.
        let boundaries = table("day", "Pacific/Apia").next_boundaries(at("2011-12-29T12:00:00Z"), 2);
        assert_eq!(boundaries, [at("2011-12-30T10:00:00Z"), at("2011-12-31T10:00:00Z")]);
    }

    #[test]
    fn months_end_on_their_last_day() {
        let boundaries =
            table("month on last at 03:00", "UTC").next_boundaries(at("2028-01-31T03:00:00Z"), 2);
        assert_eq!(boundaries, [at("2028-02-29T03:00:00Z"), at("2028-03-31T03:00:00Z")]);
    }

    #[test]
    fn an_offset_is_fixed_and_less_than_the_spread() {
        let spread = Duration::from_secs(2_700);
        let offset = spread_offset("web1", "home", spread);
        assert!(offset < spread);
        assert_eq!(offset, spread_offset("web1", "home", spread));
        assert_ne!(offset, spread_offset("web2", "home", spread));
        assert_eq!(spread_offset("web1", "home", Duration::ZERO), Duration::ZERO);
        let moved = Timetable::new("day".parse().unwrap(), TimeZone::UTC, Duration::from_secs(60));
        assert_eq!(moved.period(at("2026-05-02T00:00:30Z")).start, at("2026-05-01T00:01:00Z"));
    }
}
