//! Filters snapshots before one of them is selected or all of them are listed. Pure.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use varve_world::Timestamp;

use crate::catalog::snapshot::Snapshot;

/// The tag that holds the score of an archive for vac's tools. Nothing else leads to that archive.
pub(crate) const VAC_KEY: &str = "vac";

/// Conditions on a snapshot. Every snapshot meets the default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotFilter {
    /// The allowed names; any name if empty.
    pub names: Vec<String>,
    /// The allowed hosts; any host if empty.
    pub hosts: Vec<String>,
    /// The allowed paths; any path if empty.
    pub paths: Vec<PathBuf>,
    /// Required tags, all of them: `KEY=VALUE`, or `KEY` for any value.
    pub tags: Vec<String>,
    /// The earliest allowed time.
    pub since: Option<Timestamp>,
    /// The latest allowed time.
    pub until: Option<Timestamp>,
    /// The number of snapshots of each series that pass, newest first. A series is the snapshots of
    /// one host with one name. The other conditions are applied first.
    pub latest: Option<usize>,
}

impl SnapshotFilter {
    /// Returns whether every snapshot meets the filter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The snapshots that meet all conditions, in the original order.
    #[must_use]
    pub fn apply<'a>(&self, snapshots: impl IntoIterator<Item = &'a Snapshot>) -> Vec<&'a Snapshot> {
        let mut passed: Vec<_> = snapshots.into_iter().filter(|snapshot| self.matches(snapshot)).collect();
        let Some(latest) = self.latest else { return passed };
        // If two snapshots have the same time, the one that was finished later counts as newer.
        let mut newest_first: Vec<_> = passed.iter().copied().enumerate().collect();
        newest_first.sort_by_key(|(place, snapshot)| std::cmp::Reverse((snapshot.time, *place)));
        let mut counts = BTreeMap::new();
        let mut stays = vec![false; passed.len()];
        for (place, snapshot) in newest_first {
            let count = counts.entry((&snapshot.host, &snapshot.name)).or_insert(0_usize);
            if let Some(stays) = stays.get_mut(place) {
                *stays = *count < latest;
            }
            *count = count.saturating_add(1);
        }
        let mut stays = stays.into_iter();
        passed.retain(|_| stays.next().unwrap_or(false));
        passed
    }

    /// Returns whether a snapshot meets the conditions that concern it alone.
    fn matches(&self, snapshot: &Snapshot) -> bool {
        let has = |tag: &String| {
            snapshot
                .tags
                .iter()
                .any(|own| own == tag || own.split_once('=').is_some_and(|(key, _)| key == tag))
        };
        (self.names.is_empty() || self.names.contains(&snapshot.name))
            && (self.hosts.is_empty() || self.hosts.contains(&snapshot.host))
            && (self.paths.is_empty() || self.paths.iter().any(|path| path == source_path(snapshot)))
            && self.tags.iter().all(has)
            && self.since.is_none_or(|since| since <= snapshot.time)
            && self.until.is_none_or(|until| snapshot.time <= until)
    }
}

/// The path of a snapshot's source, as a path: a trailing `/` makes no difference to comparisons.
pub(crate) fn source_path(snapshot: &Snapshot) -> &Path {
    Path::new(OsStr::from_bytes(&snapshot.source))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::catalog::snapshot::tests::snapshot;

    fn snapshots() -> impl Strategy<Value = Vec<Snapshot>> {
        let one = (0u8..3, 0u8..3, 0u8..3, -4i64..4, proptest::collection::vec(0u8..3, 0..3));
        proptest::collection::vec(one, 0..24).prop_map(|all| {
            let made = all.into_iter().zip(1..).map(|((host, name, path, time, tags), number)| Snapshot {
                host: format!("h{host}"),
                source: format!("/p{path}").into_bytes(),
                tags: tags.iter().map(|tag| format!("k{tag}={tag}")).collect(),
                ..snapshot(number, &format!("n{name}"), time)
            });
            made.collect()
        })
    }

    fn filters() -> impl Strategy<Value = SnapshotFilter> {
        let few = || proptest::collection::vec(0u8..3, 0..3);
        let when = || proptest::option::of((-5i64..5).prop_map(Timestamp));
        (few(), few(), few(), few(), (when(), when()), proptest::option::of(0usize..4)).prop_map(
            |(names, hosts, paths, tags, (since, until), latest)| SnapshotFilter {
                names: names.iter().map(|name| format!("n{name}")).collect(),
                hosts: hosts.iter().map(|host| format!("h{host}")).collect(),
                paths: paths.iter().map(|path| format!("/p{path}/").into()).collect(),
                tags: tags
                    .iter()
                    .map(|tag| if *tag == 0 { "k0".into() } else { format!("k{tag}={tag}") })
                    .collect(),
                since,
                until,
                latest,
            },
        )
    }

    proptest! {
        /// A snapshot that passes meets every condition. A snapshot that does not pass fails one,
        /// or its series has enough newer snapshots that pass.
        #[test]
        fn the_conditions_are_met(all in snapshots(), filter in filters()) {
            let passed = filter.apply(&all);
            let places: Vec<_> = passed.iter().map(|one| all.iter().position(|other| other.id == one.id).unwrap()).collect();
            prop_assert!(places.is_sorted(), "in the order of the catalog");
            let meets = |one: &Snapshot| {
                (filter.names.is_empty() || filter.names.contains(&one.name))
                    && (filter.hosts.is_empty() || filter.hosts.contains(&one.host))
                    && (filter.paths.is_empty() || filter.paths.contains(&Path::new(std::str::from_utf8(&one.source).unwrap()).join("")))
                    && filter.tags.iter().all(|tag| one.tags.iter().any(|own| own.starts_with(tag.as_str())))
                    && filter.since.is_none_or(|since| one.time >= since)
                    && filter.until.is_none_or(|until| one.time <= until)
            };
            for (place, one) in all.iter().enumerate() {
                let newer = all.iter().enumerate().filter(|(other_place, other)| {
                    meets(other) && other.host == one.host && other.name == one.name
                        && (other.time, *other_place) > (one.time, place)
                });
                let is_among = filter.latest.is_none_or(|latest| newer.count() < latest);
                prop_assert_eq!(places.contains(&place), meets(one) && is_among);
            }
            prop_assert!(!filter.is_empty() || passed.len() == all.len());
        }
    }
}
