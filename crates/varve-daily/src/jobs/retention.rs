//! The rules of `keep` of the sources, and what they would forget.

use std::collections::BTreeMap;

use varve_archive::retention::{Dated, RetentionPolicy, RetentionZone, judge};
use varve_world::Timestamp;

use crate::config::ConfiguredSource;
use crate::judging::{StoreFacts, is_of_source};
use crate::loaded_config::LoadedConfig;

/// Returns the policy of a source.
fn policy(loaded: &LoadedConfig, source: &ConfiguredSource) -> RetentionPolicy {
    let policy = RetentionPolicy::in_zone(RetentionZone::from(loaded.zone.clone()));
    source.keep.iter().cloned().fold(policy, RetentionPolicy::with_rule)
}

/// Returns how many snapshots of a source its rules would forget now, and how many it has.
#[must_use]
pub fn would_forget(
    loaded: &LoadedConfig,
    name: &str,
    source: &ConfiguredSource,
    found: &StoreFacts,
    now: Timestamp,
) -> (usize, usize) {
    let policy = policy(loaded, source);
    let own = found
        .snapshots
        .iter()
        .filter(|snapshot| is_of_source(&loaded.config, &loaded.host, (name, source), snapshot));
    let dated: Vec<Dated> = own.map(|snapshot| snapshot.dated.clone()).collect();
    let verdicts = judge(&dated, &policy, now);
    (verdicts.iter().filter(|verdict| !verdict.is_kept()).count(), dated.len())
}

/// Returns for each source of a store how many snapshots it has that its rules dropped already at
/// the time `then`. Snapshots that were taken since do not count.
#[must_use]
pub fn overdue(
    loaded: &LoadedConfig,
    store_name: &str,
    found: &StoreFacts,
    then: Timestamp,
) -> BTreeMap<String, usize> {
    let known = found.snapshots.iter().filter(|snapshot| snapshot.time <= then).cloned().collect();
    let found = StoreFacts { snapshots: known, ..StoreFacts::default() };
    let sources = loaded.config.sources.iter().filter(|(_, source)| source.store == store_name);
    let count = |(name, source): (&String, &ConfiguredSource)| {
        let (count, _) = would_forget(loaded, name, source, &found, then);
        (count > 0).then(|| (name.clone(), count))
    };
    sources.filter_map(count).collect()
}
