//! Assigns a path to each snapshot: a pure function of the list of snapshots and of local time.

use std::collections::BTreeMap;

use varve_archive::Snapshot;
use varve_world::Timestamp;

/// Long names are cut to this many bytes. With the suffixes that make a name unique, it stays
/// within the 255 bytes that clients accept.
const LONG_NAME_BYTES: usize = 200;

/// A date and a time of day, in local time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CivilTime {
    pub year: i16,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59.
    pub second: u8,
}

/// The names below one day, each with the position of its snapshot in the list.
type DayNames = BTreeMap<Vec<u8>, usize>;

/// The path of each snapshot.
#[derive(Debug, Default)]
pub struct Calendar {
    snapshots: Vec<Snapshot>,
    years: BTreeMap<i16, BTreeMap<u8, BTreeMap<u8, DayNames>>>,
    latest: DayNames,
    by_id: DayNames,
    /// The path of each snapshot, by its position in `snapshots`.
    paths: Vec<Vec<u8>>,
}

impl Calendar {
    /// Builds the calendar of these snapshots, which are in the order in which they were finished.
    #[must_use]
    pub fn new(snapshots: &[Snapshot], civil: &dyn Fn(Timestamp) -> CivilTime) -> Self {
        let mut calendar = Self {
            snapshots: snapshots.to_vec(),
            paths: vec![Vec::new(); snapshots.len()],
            ..Self::default()
        };
        // If two snapshots have the same time, the one that was finished later counts as newer.
        let mut newest_first: Vec<usize> = (0..snapshots.len()).rev().collect();
        newest_first.sort_by_key(|number| std::cmp::Reverse(snapshots[*number].time));
        for number in newest_first {
            calendar.enter(number, civil(snapshots[number].time));
        }
        calendar
    }

    /// Adds a snapshot that is older than all that were added before.
    fn enter(&mut self, number: usize, civil: CivilTime) {
        let snapshot = &self.snapshots[number];
        let CivilTime { year, month, day, hour, minute, second } = civil;
        let plain = safe_name(&snapshot.name);
        let id = snapshot.id.to_string();
        let timed = format!("{plain}.{hour:02}{minute:02}{second:02}");
        let exact = format!("{timed}.{id}");
        let names = self.years.entry(year).or_default().entry(month).or_default().entry(day).or_default();
        let is_free = |name: &&String| !names.contains_key(name.as_bytes());
        let name = [&plain, &timed].into_iter().find(is_free).unwrap_or(&exact);
        self.paths[number] = format!("{year:04}/{month:02}/{day:02}/{name}").into_bytes();
        names.insert(name.clone().into_bytes(), number);
        self.latest.entry(plain.into_bytes()).or_insert(number);
        self.by_id.insert(id.into_bytes(), number);
    }

    /// All snapshots, in the order in which they were finished.
    #[must_use]
    pub fn snapshots(&self) -> &[Snapshot] {
        &self.snapshots
    }

    /// The years that have snapshots, in ascending order.
    pub fn years(&self) -> impl Iterator<Item = i16> {
        self.years.keys().copied()
    }

    /// The months of a year that have snapshots, in ascending order.
    pub fn months(&self, year: i16) -> impl Iterator<Item = u8> {
        self.years.get(&year).into_iter().flat_map(|months| months.keys().copied())
    }

    /// The days of a month that have snapshots, in ascending order.
    pub fn days(&self, year: i16, month: u8) -> impl Iterator<Item = u8> {
        let days = self.years.get(&year).and_then(|months| months.get(&month));
        days.into_iter().flat_map(|days| days.keys().copied())
    }

    /// The snapshots of a day, by their names on that day.
    pub fn day(&self, year: i16, month: u8, day: u8) -> impl Iterator<Item = (&[u8], &Snapshot)> {
        let names = self.years.get(&year).and_then(|months| months.get(&month)?.get(&day));
        names.into_iter().flat_map(|names| self.named(names))
    }

    /// The newest snapshot of each name.
    pub fn latest(&self) -> impl Iterator<Item = (&[u8], &Snapshot)> {
        self.named(&self.latest)
    }

    /// Every snapshot, by its id.
    pub fn by_id(&self) -> impl Iterator<Item = (&[u8], &Snapshot)> {
        self.named(&self.by_id)
    }

    fn named<'a>(&'a self, names: &'a DayNames) -> impl Iterator<Item = (&'a [u8], &'a Snapshot)> {
        names.iter().map(|(name, number)| (name.as_slice(), &self.snapshots[*number]))
    }

    /// The snapshot with this id.
    #[must_use]
    pub fn snapshot(&self, id: &varve_archive::SnapshotId) -> Option<&Snapshot> {
        self.by_id.get(id.to_string().as_bytes()).map(|number| &self.snapshots[*number])
    }

    /// The path, from the root, of the snapshot with this id.
    #[must_use]
    pub fn path(&self, id: &varve_archive::SnapshotId) -> Option<&[u8]> {
        self.by_id.get(id.to_string().as_bytes()).map(|number| self.paths[*number].as_slice())
    }
}

/// Turns a snapshot's name into a single path component. Names are free text and may contain `/` or
/// be `..`.
fn safe_name(name: &str) -> String {
    let mut safe: String = name.chars().map(|c| if matches!(c, '/' | '\0') { '_' } else { c }).collect();
    if matches!(safe.as_str(), "" | "." | "..") {
        safe = safe.replace('.', "_") + "_";
    }
    // The suffixes that tell apart several snapshots of one day are appended later.
    if safe.len() > LONG_NAME_BYTES {
        let end = (0..=LONG_NAME_BYTES).rfind(|end| safe.is_char_boundary(*end)).unwrap_or(0);
        safe.truncate(end);
    }
    safe
}

#[cfg(test)]
mod tests {
    use varve_archive::{SnapshotContent, SnapshotId};
    use varve_content::{Node, NodeKind};

    use super::*;

    const DAY: i64 = 86_400_000_000_000;
    const HOUR: i64 = DAY / 24;

    fn snapshot(number: u8, name: &str, time: i64) -> Snapshot {
        let root = SnapshotContent::Folder(Box::new(Node::new(Vec::new(), NodeKind::Folder)));
        Snapshot::new(SnapshotId([number; 16]), name.into(), Timestamp(time), root)
    }

    /// A calendar with ten days in each month and ten months in each year.
    fn civil(time: Timestamp) -> CivilTime {
        let (day, second) = (time.0.div_euclid(DAY), time.0.rem_euclid(DAY) / 1_000_000_000);
        let small = |number: i64| u8::try_from(number).unwrap();
        CivilTime {
            year: i16::try_from(day.div_euclid(100)).unwrap(),
            month: small(day.rem_euclid(100) / 10 + 1),
            day: small(day.rem_euclid(10) + 1),
            hour: small(second / 3600),
            minute: small(second / 60 % 60),
            second: small(second % 60),
        }
    }

    fn paths(snapshots: &[Snapshot]) -> Vec<String> {
        let calendar = Calendar::new(snapshots, &civil);
        let text = |snapshot: &Snapshot| String::from_utf8_lossy(calendar.path(&snapshot.id).unwrap()).into();
        snapshots.iter().map(text).collect()
    }

    #[test]
    fn the_newest_of_a_day_has_the_name() {
        let all = [
            snapshot(1, "web", 0),
            snapshot(2, "web", DAY),
            snapshot(3, "web", DAY + HOUR),
            snapshot(4, "home", DAY + HOUR),
            snapshot(5, "web", DAY + 2 * HOUR),
        ];
        let expected = [
            "0000/01/01/web",
            "0000/01/02/web.000000",
            "0000/01/02/web.010000",
            "0000/01/02/home",
            "0000/01/02/web",
        ];
        assert_eq!(paths(&all), expected);
        let calendar = Calendar::new(&all, &civil);
        let latest: Vec<_> = calendar.latest().map(|(name, snapshot)| (name, snapshot.id.0[0])).collect();
        assert_eq!(latest, [(&b"home"[..], 4), (b"web", 5)]);
        assert_eq!(calendar.by_id().count(), 5);
        assert_eq!(calendar.years().collect::<Vec<_>>(), [0]);
        assert_eq!(calendar.days(0, 1).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(calendar.day(0, 1, 2).count(), 4);
    }

    #[test]
    fn no_snapshot_hides_another() {
        // Equal times, names that look like another snapshot's name, and names that no path
        // component can have.
        let all = [
            snapshot(1, "web", 0),
            snapshot(2, "web", 0),
            snapshot(3, "web", 0),
            snapshot(4, "web.000000", 0),
            snapshot(5, "../etc", DAY),
            snapshot(6, "..", DAY),
            snapshot(7, "", DAY),
            snapshot(8, &"ä".repeat(300), DAY),
            snapshot(9, &"ä".repeat(301), DAY),
        ];
        let mut found = paths(&all);
        assert_eq!(found[2], "0000/01/01/web", "the last one that was finished is the newest");
        assert_eq!(found[4], "0000/01/02/.._etc");
        for path in &found {
            let names: Vec<_> = path.split('/').collect();
            assert_eq!(names.len(), 4, "{path}");
            assert!(names[3].len() <= 255 && !matches!(names[3], "" | "." | ".."), "{path}");
        }
        found.sort();
        found.dedup();
        assert_eq!(found.len(), all.len());
        assert_eq!(Calendar::new(&all, &civil).by_id().count(), all.len());
    }
}
