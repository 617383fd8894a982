//! The rules of `keep`: as options of `varve forget`, and as a policy.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use varve_archive::retention::{Dated, RetentionPolicy, RetentionRule, RetentionZone, judge};
use varve_block::with_causes;
use varve_daily::{StoreFacts, is_of_source};
use varve_session::UsageError;
use varve_watch::ConfiguredSource;
use varve_world::Timestamp;

use super::config_file::LoadedConfig;

/// Checks the rules of retention, whose spans the crate of the archive reads.
///
/// # Errors
/// [`UsageError`] with the place of the first wrong rule.
pub fn check_rules(loaded: &LoadedConfig) -> Result<()> {
    loaded.config.sources.values().try_for_each(|source| policy(loaded, source).map(|_| ()))
}

/// Returns the options of `varve forget` for the rules of a source.
pub fn options(loaded: &LoadedConfig, source: &ConfiguredSource) -> Vec<String> {
    let rules = source.keep.iter().map(|(rule, value)| format!("--{rule}={value}"));
    // Without a zone in the configuration, the command uses that of the machine, as everything
    // does.
    let zone = loaded.config.zone.as_ref().and_then(|zone| zone.iana_name());
    rules.chain(zone.map(|zone| format!("--zone={zone}"))).collect()
}

/// Returns the policy that these options stand for.
fn policy(loaded: &LoadedConfig, source: &ConfiguredSource) -> Result<RetentionPolicy> {
    let zone = RetentionZone::from(loaded.zone.clone());
    let mut policy = RetentionPolicy::in_zone(zone);
    for (rule, value) in &source.keep {
        match RetentionRule::parse(&rule.replace('-', "_"), value) {
            Ok(rule) => policy = policy.with_rule(rule),
            Err(error) => bail!(UsageError(format!("{}: keep: {}", source.place, with_causes(&error)))),
        }
    }
    Ok(policy)
}

/// Returns how many snapshots of a source its rules would forget now, and how many it has.
///
/// # Errors
/// [`UsageError`] when a rule is wrong.
pub fn would_forget(
    loaded: &LoadedConfig,
    name: &str,
    source: &ConfiguredSource,
    found: &StoreFacts,
    now: Timestamp,
) -> Result<(usize, usize)> {
    let policy = policy(loaded, source)?;
    let own = found
        .snapshots
        .iter()
        .filter(|snapshot| is_of_source(&loaded.config, &loaded.host, (name, source), snapshot));
    let dated: Vec<Dated> = own.map(|snapshot| snapshot.dated.clone()).collect();
    let verdicts = judge(&dated, &policy, now);
    Ok((verdicts.iter().filter(|verdict| !verdict.is_kept()).count(), dated.len()))
}

/// Returns for each source of a store how many snapshots it has that its rules dropped already at
/// the time `then`. Snapshots that were taken since do not count.
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
        // A wrong rule is an error of the configuration, which each run reports.
        let (count, _) = would_forget(loaded, name, source, &found, then).ok()?;
        (count > 0).then(|| (name.clone(), count))
    };
    sources.filter_map(count).collect()
}
