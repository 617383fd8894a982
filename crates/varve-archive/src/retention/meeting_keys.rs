//! Series in which several keys have snapshots in the same period. One of the keys may claim a name
//! that is not its own.

use std::collections::{BTreeMap, BTreeSet};

use varve_store::Origin;
use varve_world::Timestamp;

use crate::retention::calendar::{RetentionPeriod, instant};
use crate::retention::dated::Dated;
use crate::retention::policy::RetentionPolicy;
use crate::retention::rules::RetentionRule;

/// A series in which keys meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeetingKeys {
    pub host: String,
    pub name: String,
    /// The keys that have snapshots in one of these periods. `None` stands for full keys, and for
    /// those that are not known.
    pub keys: BTreeSet<Option<Origin>>,
    /// The shortest period that the rules count; days if they count none.
    pub period: RetentionPeriod,
    /// The number of periods with snapshots of several keys.
    pub period_count: usize,
}

/// Finds the series in which several keys have snapshots in the same period. Backdated snapshots
/// and those dated after `now` are left out: both are marked as such.
#[must_use]
pub fn meeting_keys(snapshots: &[Dated], policy: &RetentionPolicy, now: Timestamp) -> Vec<MeetingKeys> {
    let counted = policy.rules().iter().filter_map(|rule| match rule {
        RetentionRule::Periods(period, _) | RetentionRule::PeriodsWithin(period, _) => Some(*period),
        _ => None,
    });
    let period = counted.min().unwrap_or(RetentionPeriod::Daily);
    let mut series = BTreeMap::<_, BTreeMap<i64, BTreeSet<&Option<Origin>>>>::new();
    for snapshot in snapshots.iter().filter(|one| one.time <= now && !one.is_backdated) {
        let number = period.number(policy.zone.rules().to_datetime(instant(snapshot.time)));
        let periods = series.entry((&snapshot.host, &snapshot.name)).or_default();
        periods.entry(number).or_default().insert(&snapshot.lesser_key);
    }
    let meeting = series.into_iter().filter_map(|((host, name), periods)| {
        let shared: Vec<_> = periods.into_values().filter(|keys| keys.len() > 1).collect();
        (!shared.is_empty()).then(|| MeetingKeys {
            host: host.clone(),
            name: name.clone(),
            period_count: shared.len(),
            keys: shared.into_iter().flatten().cloned().collect(),
            period,
        })
    });
    meeting.collect()
}
