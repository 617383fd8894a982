//! Nights of work: the days on which snapshots were taken. A clock that is set forward once adds at
//! most one of them, however far it was set.

use std::time::Duration;

use varve_world::Timestamp;

use crate::catalog::catalog_root::Catalog;
use crate::catalog::removed::TrashedSnapshot;

const DAY: Duration = Duration::from_hours(24);
/// Two nights begin at least this far apart. It is less than a day, since a night may begin a
/// little earlier than the one before.
const NIGHT: Duration = Duration::from_hours(23);
/// An undo of more days than this needs no more nights.
const UNDO_NIGHTS_MAX: usize = 7;
/// A shorter time without snapshots is a usual one.
const LEAP_MIN: Duration = Duration::from_hours(30 * 24);
/// A clock that is behind the newest snapshots by at most this is noticed when snapshots are
/// forgotten.
const BEHIND_MAX: Duration = Duration::from_hours(30 * 24);

/// The nights of work in an archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkDays {
    /// The time of the first snapshot of each night, in ascending order.
    starts: Vec<Timestamp>,
}

/// A time without any snapshot that is much longer than every other one. Either no work was done,
/// or the clock was set forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLeap {
    /// The last night before it.
    pub from: Timestamp,
    /// The first night after it.
    pub to: Timestamp,
}

impl WorkDays {
    /// Finds the nights of the listed and the forgotten snapshots.
    #[must_use]
    pub fn of(catalog: &Catalog) -> Self {
        let listed = catalog.snapshots().iter().map(|snapshot| snapshot.time);
        Self::new(listed.chain(catalog.trash().iter().map(|trashed| trashed.snapshot.time)))
    }

    /// Finds the nights in which snapshots of these times were taken.
    #[must_use]
    pub fn new(times: impl IntoIterator<Item = Timestamp>) -> Self {
        let mut times: Vec<_> = times.into_iter().collect();
        times.sort_unstable();
        let mut starts: Vec<Timestamp> = Vec::new();
        for time in times {
            if starts.last().is_none_or(|last| time.since(*last) >= NIGHT) {
                starts.push(time);
            }
        }
        Self { starts }
    }

    /// Returns the number of nights.
    #[must_use]
    pub fn count(&self) -> usize {
        self.starts.len()
    }

    /// Returns the time at which the undo of a forgotten snapshot ends: its days must be over, and
    /// as many nights of work. The night of that time itself does not count, since its snapshots
    /// have the time of the same clock. `None` if nights are missing.
    #[must_use]
    pub fn end_of_undo(&self, forgotten: &TrashedSnapshot) -> Option<Timestamp> {
        let undo = forgotten.undo_until.since(forgotten.forgotten);
        if undo.is_zero() || forgotten.undo_until.0 <= 0 {
            return Some(forgotten.undo_until);
        }
        let days = undo.as_secs_f64() / DAY.as_secs_f64();
        let needed = (1..UNDO_NIGHTS_MAX).find(|nights| days <= *nights as f64).unwrap_or(UNDO_NIGHTS_MAX);
        let known = self.starts.partition_point(|start| *start <= forgotten.forgotten);
        let last = self.starts.get(known + needed - 1)?;
        Some(forgotten.undo_until.max(last.plus(NIGHT)))
    }

    /// Returns the longest time without snapshots before `now`, if the clock may have been set
    /// forward in it: it is longer than 30 days and than twice any other, and too few nights of
    /// work have passed since.
    #[must_use]
    pub fn leap(&self, now: Timestamp) -> Option<TimeLeap> {
        let past = &self.starts[..self.starts.partition_point(|start| *start <= now)];
        let gaps = past.windows(2).map(|pair| (pair[1].since(pair[0]), pair[0], pair[1]));
        let mut gaps: Vec<_> = gaps.chain(past.last().map(|last| (now.since(*last), *last, now))).collect();
        gaps.sort_unstable();
        let (length, from, to) = gaps.pop()?;
        let other = gaps.last().map_or(Duration::ZERO, |(length, ..)| *length);
        let is_confirmed = past
            .iter()
            .filter(|start| **start >= to && now.since(**start) >= NIGHT)
            .nth(UNDO_NIGHTS_MAX - 1)
            .is_some();
        let is_leap = length > LEAP_MIN && length > other.saturating_mul(2) && !is_confirmed;
        is_leap.then_some(TimeLeap { from, to })
    }

    /// Reports whether most nights are later than `now`, so that the clock must be behind.
    #[must_use]
    pub fn are_mostly_after(&self, now: Timestamp) -> bool {
        let past_count = self.starts.partition_point(|start| *start <= now.plus(DAY));
        past_count < self.starts.len() - past_count
    }
}

/// Returns the time from which an undo counts: `now`, or the newest of these times of snapshots if
/// the clock is up to 30 days behind it.
pub(super) fn undo_start(times: impl Iterator<Item = Timestamp>, now: Timestamp) -> Timestamp {
    let limit = now.plus(BEHIND_MAX);
    times.filter(|time| *time <= limit).max().map_or(now, |newest| newest.max(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::removed::tests::trashed;

    fn at(day: i64, hour: i64) -> Timestamp {
        Timestamp((24 * day + hour) * 3_600_000_000_000)
    }

    fn nightly(days: impl Iterator<Item = i64>) -> WorkDays {
        WorkDays::new(days.map(|day| at(day, 2)))
    }

    fn forgotten(undo_days: i64) -> TrashedSnapshot {
        TrashedSnapshot { forgotten: at(100, 3), undo_until: at(100 + undo_days, 3), ..trashed(1, 0) }
    }

    #[test]
    fn an_undo_needs_days_and_nights() {
        let end = |nights: WorkDays, undo_days| nights.end_of_undo(&forgotten(undo_days));
        assert_eq!(end(nightly(90..=106), 7), None, "six nights have passed");
        assert_eq!(end(nightly(90..=107), 7), Some(at(107, 25)));
        assert_eq!(end(nightly(90..=107), 30), Some(at(130, 3)), "more than seven nights are not needed");
        assert_eq!(end(nightly(90..=101), 1), Some(at(101, 25)));
        let weekly = nightly((0..30).map(|week| week * 7 + 3));
        assert_eq!(end(weekly, 7), Some(at(143, 25)));
        // Hourly snapshots make about one night a day.
        let hourly = |last: i64| WorkDays::new((90 * 24..=last).map(|hour| at(0, hour)));
        assert_eq!(end(hourly(101 * 24), 7), None);
        assert!(end(hourly(108 * 24), 7) >= Some(at(107, 3)));
        // Without an undo, no night is awaited.
        let at_once = TrashedSnapshot { undo_until: Timestamp(0), ..forgotten(7) };
        assert_eq!(WorkDays::default().end_of_undo(&at_once), Some(Timestamp(0)));
    }

    #[test]
    fn a_clock_that_is_ahead_adds_one_night_however_far_it_is() {
        for ahead in [8, 400, 9_000] {
            let wrong_now = at(101 + ahead, 3);
            let nights = nightly((90..=100).chain([101 + ahead]));
            assert!(nights.end_of_undo(&forgotten(7)).is_none_or(|end| end > wrong_now), "{ahead}");
            // If the clock stays ahead, seven real nights pass before the undo ends.
            let later = |count: i64| nightly((90..=100).chain((101..101 + count).map(|day| day + ahead)));
            let now = |count: i64| at(100 + count + ahead, 3);
            let is_over =
                |count| later(count).end_of_undo(&forgotten(7)).is_some_and(|end| end <= now(count));
            assert!(!is_over(7) && is_over(8), "{ahead}");
        }
    }

    #[test]
    fn a_leap_is_longer_than_every_other_pause_and_is_confirmed_by_nights() {
        let leap = |nights: &WorkDays, now| nights.leap(now).map(|leap| (leap.from, leap.to));
        assert_eq!(leap(&nightly(90..=100), at(100, 3)), None);
        assert_eq!(leap(&nightly(90..=100), at(129, 3)), None, "30 days may pass");
        assert_eq!(leap(&nightly(90..=100), at(131, 3)), Some((at(100, 2), at(131, 3))));
        let after = |count: i64| nightly((90..=100).chain(500..500 + count));
        assert_eq!(leap(&after(1), at(500, 3)), Some((at(100, 2), at(500, 2))));
        assert_eq!(leap(&after(7), at(506, 3)), Some((at(100, 2), at(500, 2))));
        assert_eq!(leap(&after(8), at(507, 3)), None);
        // A snapshot from the future says nothing, neither do pauses as long as earlier ones.
        assert_eq!(leap(&after(1), at(101, 3)), None);
        let quarterly = nightly((0..5).map(|quarter| quarter * 91));
        assert_eq!(leap(&quarterly, at(4 * 91, 3)), None);
        assert_eq!(leap(&WorkDays::default(), at(1, 0)), None);
    }

    #[test]
    fn a_clock_that_is_behind_is_known_from_most_nights() {
        assert!(nightly(90..=100).are_mostly_after(at(0, 0)));
        assert!(!nightly(90..=100).are_mostly_after(at(98, 0)));
        assert!(!nightly((90..=100).chain([500])).are_mostly_after(at(100, 3)));
        assert!(!WorkDays::default().are_mostly_after(at(0, 0)));
        let times = |days: &[i64]| days.iter().map(|day| at(*day, 2)).collect::<Vec<_>>().into_iter();
        assert_eq!(undo_start(times(&[97, 100]), at(95, 3)), at(100, 2));
        assert_eq!(undo_start(times(&[97, 500]), at(98, 3)), at(98, 3), "one from the future is ignored");
        assert_eq!(undo_start(times(&[]), at(98, 3)), at(98, 3));
    }
}
