//! Series that ended, and work that stopped, without anybody saying so.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use varve_archive::WorkDays;
use varve_block::visible;
use varve_world::Timestamp;

use super::facts::{SnapshotFact, StoreFacts};
use super::series::is_series_of;
use crate::config::{ConfiguredSource, ConfiguredStore, DailyConfig};
use crate::timing::show_time_span;

/// A series has ended once its newest snapshot is older than this.
const SILENCE: Duration = Duration::from_secs(7 * 86_400);
/// A series with fewer nights was taken by hand, and ends when it likes.
const SERIES_NIGHTS_MIN: usize = 3;
/// As many hosts are named in a message.
const HOSTS_SHOWN_MAX: usize = 3;

/// A store with its settings, as this machine continues it.
#[derive(Clone, Copy)]
pub struct ContinuedStore<'a> {
    pub config: &'a DailyConfig,
    pub name: &'a str,
    /// The name of this machine in snapshots.
    pub host: &'a str,
    pub now: Timestamp,
}

impl<'a> ContinuedStore<'a> {
    /// Says that nothing is archived into the store, if that is so and is not meant.
    #[must_use]
    pub fn without_sources(self) -> Option<String> {
        let has_sources = self.own_sources().next().is_some();
        let is_meant = self.settings().is_some_and(|store| store.ended.has_all());
        let text =
            format!("no source is archived into {} (ended = \"all\" says that it is meant)", self.name);
        (!has_sources && !is_meant).then_some(text)
    }

    /// Names the series of this machine that no source continues.
    #[must_use]
    pub fn orphans(self, facts: &StoreFacts) -> Vec<String> {
        let is_continued =
            |series: &str| self.own_sources().any(|source| is_series_of(self.config, source, series));
        let mut times: BTreeMap<&str, Vec<Timestamp>> = BTreeMap::new();
        for one in facts.snapshots.iter().filter(|one| one.host == self.host && one.time <= self.now) {
            times.entry(&one.name).or_default().push(one.time);
        }
        let ended = times.into_iter().filter_map(|(series, times)| {
            let silence = self.now.since(times.iter().copied().max()?);
            let is_series = WorkDays::new(times).count() >= SERIES_NIGHTS_MIN;
            let is_orphan = is_series && silence >= SILENCE && !is_continued(series) && !self.is_meant(series);
            let (shown, ago) = (visible(series), show_time_span(silence));
            is_orphan.then(|| {
                format!(
                    "no source continues {shown}: its newest snapshot is {ago} old (ended = [\"{shown}\"] says that it is meant)"
                )
            })
        });
        ended.collect()
    }

    /// Names the sources whose earlier snapshots have other host names, which were given up before
    /// this one was used. A machine that names itself has no such past.
    #[must_use]
    pub fn other_hosts(self, facts: &StoreFacts) -> Vec<String> {
        if self.config.machine.is_some() {
            return Vec::new();
        }
        let of_source = |source: (&str, &ConfiguredSource)| {
            let own: Vec<_> = facts
                .snapshots
                .iter()
                .filter(|one| is_series_of(self.config, source, &one.name) && !self.is_meant(&one.name))
                .collect();
            let left = self.left_hosts(&own);
            if left.is_empty() {
                return None;
            }
            let count = own.iter().filter(|one| left.contains(one.host.as_str())).count();
            let mut names: Vec<_> = left.iter().take(HOSTS_SHOWN_MAX).map(|host| visible(host)).collect();
            if left.len() > names.len() {
                names.push("…".into());
            }
            let snapshots = if count == 1 { "1 snapshot".to_owned() } else { format!("{count} snapshots") };
            Some(format!(
                "{snapshots} of {} are of other hosts ({}), and no rule of keep reaches them: set machine = \"NAME\" if the host name of this machine changes",
                source.0,
                names.join(", ")
            ))
        };
        self.own_sources().filter_map(of_source).collect()
    }

    /// Returns the hosts that had these sources before this one, and are silent since.
    fn left_hosts<'s>(self, own: &[&'s SnapshotFact]) -> BTreeSet<&'s str> {
        let here: Vec<_> = own.iter().filter(|one| one.host == self.host && one.time <= self.now).collect();
        let begun = here.iter().map(|one| one.time).min().unwrap_or(self.now);
        let mut newest: BTreeMap<&str, &SnapshotFact> = BTreeMap::new();
        for one in own.iter().filter(|one| one.host != self.host) {
            let known = newest.entry(&one.host).or_insert(one);
            if one.time > known.time {
                *known = one;
            }
        }
        let is_left = |one: &&SnapshotFact| {
            let is_same_source = here.is_empty() || here.iter().any(|own| own.source == one.source);
            is_same_source && one.time < begun && self.now.since(one.time) >= SILENCE
        };
        newest.into_values().filter(is_left).map(|one| one.host.as_str()).collect()
    }

    fn is_meant(self, series: &str) -> bool {
        self.settings().is_some_and(|store| store.ended.has(series))
    }

    fn settings(self) -> Option<&'a ConfiguredStore> {
        self.config.stores.get(self.name)
    }

    fn own_sources(self) -> impl Iterator<Item = (&'a str, &'a ConfiguredSource)> {
        let sources = self.config.sources.iter().filter(move |(_, source)| source.store == self.name);
        sources.map(|(name, source)| (name.as_str(), source))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use varve_archive::SnapshotId;
    use varve_archive::retention::{ContentKind, Dated};

    use super::*;
    use crate::config::ConfigText;

    const DAY: i64 = 86_400_000_000_000;
    const NOW: Timestamp = Timestamp(20_000 * DAY);

    fn config(head: &str, store: &str, rest: &str) -> DailyConfig {
        let text = format!("{head}\n[store.main]\nat = \"/backup\"\n{store}\n{rest}");
        let file = ConfigText { name: "varve.toml".into(), text };
        DailyConfig::read(&[file], Path::new("/etc")).unwrap()
    }

    const HOME: &str = "[source.home]\nfolder = \"/home\"\nevery = \"day\"\n";

    fn store(config: &DailyConfig) -> ContinuedStore<'_> {
        ContinuedStore { config, name: "main", host: "web1", now: NOW }
    }

    /// Nightly snapshots of a host, from so many days ago to so many.
    fn nights(host: &str, name: &str, source: &str, ago: std::ops::Range<i64>) -> Vec<SnapshotFact> {
        let fact = |days: i64| SnapshotFact {
            id: SnapshotId([0; 16]),
            name: name.into(),
            host: host.into(),
            source: source.as_bytes().to_vec(),
            time: Timestamp(NOW.0 - days * DAY),
            problem_count: 0,
            entry_count: 1,
            stored_bytes: 0,
            dated: Dated {
                id: SnapshotId([0; 16]),
                time: Timestamp(NOW.0 - days * DAY),
                host: host.into(),
                name: name.into(),
                kind: ContentKind::Folder,
                tags: Vec::new(),
                holds: Vec::new(),
                keep_until: None,
                has_gaps: false,
                lesser_key: None,
                is_backdated: false,
            },
        };
        ago.map(fact).collect()
    }

    fn facts(snapshots: &[Vec<SnapshotFact>]) -> StoreFacts {
        StoreFacts { snapshots: snapshots.concat(), ..StoreFacts::default() }
    }

    #[test]
    fn a_series_that_nothing_continues_is_named() {
        let plain = config("", "", HOME);
        let orphans = |config: &DailyConfig, snapshots: &[Vec<SnapshotFact>]| {
            store(config).orphans(&facts(snapshots)).len()
        };
        let old = nights("web1", "db", "/db", 8..20);
        assert_eq!(orphans(&plain, &[nights("web1", "home", "/home", 8..20), old.clone()]), 1);
        assert_eq!(orphans(&plain, &[nights("web1", "db", "/db", 6..20)]), 0, "it may go on yet");
        assert_eq!(orphans(&plain, &[nights("web1", "db", "/db", 8..10)]), 0, "taken by hand");
        assert_eq!(orphans(&plain, &[nights("web2", "db", "/db", 8..20)]), 0, "another machine");
        assert_eq!(orphans(&config("", "ended = [\"db\"]", HOME), std::slice::from_ref(&old)), 0);
        assert_eq!(orphans(&config("", "ended = \"all\"", ""), &[old]), 0);
    }

    #[test]
    fn a_store_without_sources_is_named() {
        assert!(store(&config("", "", HOME)).without_sources().is_none());
        assert!(store(&config("", "", "")).without_sources().is_some());
        assert!(store(&config("", "ended = [\"db\"]", "")).without_sources().is_some());
        assert!(store(&config("", "ended = \"all\"", "")).without_sources().is_none());
    }

    #[test]
    fn host_names_that_were_given_up_are_named() {
        let plain = config("", "", HOME);
        let named = |config: &DailyConfig, snapshots: &[Vec<SnapshotFact>]| {
            store(config).other_hosts(&facts(snapshots))
        };
        let own = nights("web1", "home", "/home", 0..5);
        let earlier = nights("c7", "home", "/home", 8..12);
        let found = named(&plain, &[own.clone(), earlier.clone()]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("4 snapshots of home are of other hosts (c7)"), "{found:?}");
        assert_eq!(
            named(&plain, std::slice::from_ref(&earlier)).len(),
            1,
            "before the first snapshot of this host"
        );
        let none: [Vec<String>; 5] = [
            named(&config("machine = \"web1\"", "", HOME), &[own.clone(), earlier.clone()]),
            named(&config("", "ended = [\"home\"]", HOME), &[own.clone(), earlier]),
            // Another machine that is at work, or was while this one began.
            named(&plain, &[own.clone(), nights("web2", "home", "/home", 1..30)]),
            named(&plain, &[nights("web1", "home", "/home", 0..15), nights("web2", "home", "/home", 9..30)]),
            named(&plain, &[own, nights("web2", "home", "/srv/home", 8..30)]),
        ];
        assert!(none.iter().all(Vec::is_empty), "{none:?}");
    }
}
