//! The days of a series: those with a snapshot, and those with only a partial one.

use std::collections::BTreeMap;
use std::fmt::Write;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use varve_archive::Snapshot;

use crate::show;
use crate::site::PageRequest;

/// The names of the months.
pub(crate) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The snapshots of a day.
pub(crate) struct SourceDay<'a> {
    pub(crate) newest: &'a Snapshot,
    pub(crate) count: u64,
    /// True if each of them has files that were unreadable.
    pub(crate) has_gaps: bool,
    /// True if one of them was restored and compared.
    pub(crate) is_proven: bool,
}

/// The days that have snapshots, for some years.
pub(crate) struct SourceDays<'a>(BTreeMap<Date, SourceDay<'a>>);

impl<'a> SourceDays<'a> {
    /// The days of these snapshots, which are in order, the oldest first.
    pub(crate) fn of(snapshots: impl Iterator<Item = &'a Snapshot>, zone: &TimeZone) -> Self {
        Self::with_drills(snapshots, zone, |_| false)
    }

    /// The same, with marks of snapshots that were restored and compared.
    pub(crate) fn with_drills(
        snapshots: impl Iterator<Item = &'a Snapshot>,
        zone: &TimeZone,
        is_proven: impl Fn(&Snapshot) -> bool,
    ) -> Self {
        let mut days: BTreeMap<Date, SourceDay<'a>> = BTreeMap::new();
        for snapshot in snapshots {
            let has_gaps = snapshot.problem_count > 0;
            let day = days.entry(show::day(snapshot.time, zone)).or_insert(SourceDay {
                newest: snapshot,
                count: 0,
                has_gaps,
                is_proven: false,
            });
            day.newest = snapshot;
            day.count += 1;
            day.has_gaps &= has_gaps;
            day.is_proven |= is_proven(snapshot);
        }
        Self(days)
    }

    pub(crate) fn day(&self, date: Date) -> Option<&SourceDay<'a>> {
        self.0.get(&date)
    }

    /// The days of a month that have snapshots.
    fn month(&self, first: Date) -> impl Iterator<Item = (Date, &SourceDay<'a>)> {
        self.0.range(first..=first.last_of_month()).map(|(date, day)| (*date, day))
    }

    /// The number of days of a month with snapshots, and of those with gaps.
    pub(crate) fn counts(&self, first: Date) -> (u64, u64) {
        self.month(first).fold((0, 0), |(all, gaps), (_, day)| (all + 1, gaps + u64::from(day.has_gaps)))
    }

    /// The paths of two drawings of a month, one unit a day: the days with whole snapshots, and
    /// those with gaps. Days in a row are one rectangle.
    pub(crate) fn strips(&self, first: Date, height: u32) -> [String; 2] {
        [false, true].map(|gaps| {
            let mut path = String::new();
            let mut run: Option<(i8, i8)> = None;
            let days = self.month(first).filter(|(_, day)| day.has_gaps == gaps).map(|(date, _)| date.day());
            for day in days.chain([i8::MAX]) {
                run = match run {
                    Some((start, last)) if day == last + 1 => Some((start, day)),
                    Some((start, last)) => {
                        // Writing to a String cannot fail.
                        let _ = write!(path, "M{} 0h{}v{height}H{}z", start - 1, last + 1 - start, start - 1);
                        Some((day, day))
                    }
                    None => Some((day, day)),
                };
            }
            path
        })
    }
}

/// The years of the archive, the first and the last.
fn years(request: &PageRequest) -> (i16, i16) {
    let this = show::day(request.now, request.zone()).year();
    let first = request.view.snapshots().first().map(|oldest| show::day(oldest.time, request.zone()).year());
    let last = request.view.snapshots().last().map(|newest| show::day(newest.time, request.zone()).year());
    (first.unwrap_or(this).min(this), last.unwrap_or(this).max(this))
}

/// The year that a request asks for, within those of the archive, and its neighbours.
pub(crate) fn chosen_year(request: &PageRequest) -> (i16, Option<i16>, Option<i16>) {
    let (first, last) = years(request);
    let this = show::day(request.now, request.zone()).year();
    let asked = request.value("year").and_then(|year| year.parse::<i16>().ok());
    let year = asked.unwrap_or(this).clamp(first, last);
    (year, (year > first).then(|| year - 1), (year < last).then(|| year + 1))
}

#[cfg(test)]
mod tests {
    use varve_archive::{SnapshotContent, SnapshotId};
    use varve_content::{Node, NodeKind};
    use varve_world::Timestamp;

    use super::*;

    fn snapshot(day: i64, problem_count: u64) -> Snapshot {
        let time = Timestamp(day * 86_400_000_000_000 + 5);
        let root = SnapshotContent::Folder(Box::new(Node::new(Vec::new(), NodeKind::Folder)));
        Snapshot { problem_count, ..Snapshot::new(SnapshotId([0; 16]), "home".into(), time, root) }
    }

    #[test]
    fn days_in_a_row_are_one_rectangle() {
        // 1970-01-01, -02, -03 and -05 are whole, one of two on -03 has gaps, and -07 has gaps.
        let all =
            [(0, 0), (1, 0), (2, 1), (2, 0), (4, 0), (6, 3)].map(|(day, problems)| snapshot(day, problems));
        let days = SourceDays::of(all.iter(), &TimeZone::UTC);
        let january = Date::constant(1970, 1, 1);
        assert_eq!(days.counts(january), (5, 1));
        assert_eq!(days.strips(january, 6), ["M0 0h3v6H0zM4 0h1v6H4z".to_owned(), "M6 0h1v6H6z".to_owned()]);
        assert_eq!(days.day(Date::constant(1970, 1, 3)).unwrap().count, 2);
        assert_eq!(days.strips(Date::constant(1970, 2, 1), 6), [String::new(), String::new()]);
    }
}
