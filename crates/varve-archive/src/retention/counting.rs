//! Applies the rules to one group of snapshots. Three ways to count: as restic, as borg, and as
//! Proxmox Backup Server.
//!
//! All three keep the newest snapshot of a period. They differ in snapshots that a rule for shorter
//! periods has kept or dropped:
//!
//! - Union: each rule counts all snapshots.
//! - Borg: a rule does not count a snapshot that is kept already. It keeps no other snapshot of the
//!   same period.
//! - Proxmox Backup Server: as borg. In addition, a rule does not see a snapshot that an earlier
//!   rule has dropped for a newer one. If a week ends on 1 February and its newest snapshot is
//!   kept, borg may keep the snapshot of 31 January for its month, and Proxmox that of 24 January.
//!
//! The oldest snapshot is kept as long as a rule has found less than it may keep (union and borg).

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::DateTime;
use varve_block::to_usize;

use crate::catalog::snapshot_id::SnapshotId;
use crate::retention::amounts::{KeepCount, KeepSpan};
use crate::retention::calendar::{RetentionPeriod, instant};
use crate::retention::policy::{CountLike, RetentionPolicy};
use crate::retention::rules::RetentionRule;
use crate::retention::verdict::{DropReason, KeptBy, Verdict};

/// A snapshot of the group that the rules see.
pub(super) struct CountedSnapshot {
    /// Its place in the list of all snapshots.
    pub place: usize,
    at: Timestamp,
    /// The time that the clock on the wall showed.
    local: DateTime,
}

impl CountedSnapshot {
    pub(super) fn new(place: usize, time: varve_world::Timestamp, policy: &RetentionPolicy) -> Self {
        let at = instant(time);
        Self { place, at, local: policy.zone.rules().to_datetime(at) }
    }
}

/// The rules' result for one snapshot.
#[derive(Clone, Default)]
pub(super) struct RuleFinding {
    pub kept_by: Vec<KeptBy>,
    /// The rule with the longest period that keeps another snapshot of the same period, by its
    /// number in the policy, and the place of that snapshot.
    represented: Option<(usize, usize)>,
}

impl RuleFinding {
    /// The place of the snapshot that a rule keeps in the place of this one.
    pub(super) fn represented_by(&self) -> Option<usize> {
        self.represented.map(|(_, by)| by)
    }

    pub(super) fn verdict(self, policy: &RetentionPolicy, id_at: impl Fn(usize) -> SnapshotId) -> Verdict {
        match self.represented {
            _ if !self.kept_by.is_empty() => Verdict::Keep(self.kept_by),
            Some((number, by)) => {
                let rule = policy.rules()[number].clone();
                Verdict::Drop(DropReason::Represented { rule, by: id_at(by) })
            }
            None => Verdict::Drop(DropReason::OutOfReach),
        }
    }
}

/// The unit of which a rule keeps one snapshot each.
#[derive(Clone, Copy)]
enum KeepUnit {
    Snapshot,
    Second,
    Period(RetentionPeriod),
}

impl KeepUnit {
    /// A number that the snapshots of one unit have in common; `position` counts them from the
    /// newest.
    fn number(self, position: usize, snapshot: &CountedSnapshot) -> i64 {
        match self {
            Self::Snapshot => -i64::try_from(position).unwrap_or(i64::MAX),
            Self::Second => snapshot.at.as_second(),
            Self::Period(period) => period.number(snapshot.local),
        }
    }
}

/// How far back a rule keeps.
#[derive(Clone, Copy)]
enum RuleReach {
    /// At most this number of units.
    Count(usize),
    /// Any number of units.
    Unlimited,
    /// All units after this time; all units at all if `None`.
    After(Option<Timestamp>),
}

impl RuleReach {
    fn of_count(count: KeepCount) -> Self {
        match count {
            KeepCount::AtMost(number) => Self::Count(to_usize(number.get())),
            KeepCount::Unlimited => Self::Unlimited,
        }
    }

    fn is_beyond(self, snapshot: &CountedSnapshot) -> bool {
        matches!(self, Self::After(Some(limit)) if snapshot.at <= limit)
    }

    fn is_full(self, kept_count: usize) -> bool {
        matches!(self, Self::Count(count) if kept_count >= count)
    }
}

/// A rule in the form in which it is counted.
struct CountingRule<'a> {
    /// Its number in the policy.
    number: usize,
    rule: &'a RetentionRule,
    unit: KeepUnit,
    reach: RuleReach,
}

impl<'a> CountingRule<'a> {
    /// `None` for a rule that looks at one snapshot at a time. Spans are measured from `start`.
    fn new(number: usize, policy: &'a RetentionPolicy, start: Timestamp) -> Option<Self> {
        let rule = &policy.rules()[number];
        let last = if policy.count_like == CountLike::Union { KeepUnit::Snapshot } else { KeepUnit::Second };
        let limit = |span: KeepSpan| match policy.count_like {
            CountLike::Borg => span.limit_like_borg(start),
            CountLike::Union | CountLike::Pbs => span.limit(start, policy.zone.rules()),
        };
        let (unit, reach) = match rule {
            RetentionRule::Last(count) => (last, RuleReach::of_count(*count)),
            RetentionRule::Periods(period, count) => (KeepUnit::Period(*period), RuleReach::of_count(*count)),
            RetentionRule::Within(span) => (KeepUnit::Snapshot, RuleReach::After(limit(*span))),
            RetentionRule::PeriodsWithin(period, span) => {
                (KeepUnit::Period(*period), RuleReach::After(limit(*span)))
            }
            RetentionRule::Tags(_) => return None,
        };
        Some(Self { number, rule, unit, reach })
    }

    fn is_within(&self) -> bool {
        matches!(self.reach, RuleReach::After(_))
    }
}

/// The units of one rule that were seen, each with the position of its newest snapshot. Snapshots
/// come newest first, so numbers mostly fall. They rise where a clock went back by more than an
/// hour.
#[derive(Default)]
struct SeenUnits(Vec<(i64, usize)>);

impl SeenUnits {
    /// The position of the newest snapshot of the same unit. If there is none, this one becomes it.
    fn newest_of(&mut self, number: i64, position: usize) -> Option<usize> {
        match self.0.last() {
            Some((last, newest)) if *last == number => return Some(*newest),
            Some((last, _)) if *last < number => {}
            _ => {
                self.0.push((number, position));
                return None;
            }
        }
        match self.0.binary_search_by(|(seen, _)| number.cmp(seen)) {
            Ok(found) => Some(self.0[found].1),
            Err(place) => {
                self.0.insert(place, (number, position));
                None
            }
        }
    }
}

/// Applies the policy's rules to the snapshots of one group, newest first. The findings have the
/// same order.
pub(super) fn count(
    snapshots: &[CountedSnapshot],
    policy: &RetentionPolicy,
    start: Timestamp,
) -> Vec<RuleFinding> {
    let mut findings = vec![RuleFinding::default(); snapshots.len()];
    let numbers = 0..policy.rules().len();
    let rules = numbers.filter_map(|number| CountingRule::new(number, policy, start));
    match policy.count_like {
        CountLike::Union => rules.for_each(|rule| count_all(snapshots, &rule, &mut findings)),
        CountLike::Borg => {
            // `keep_within` comes first.
            let (within, other): (Vec<_>, Vec<_>) =
                rules.partition(|rule| matches!(rule.rule, RetentionRule::Within(_)));
            for rule in within.iter().chain(&other) {
                count_what_is_not_kept(snapshots, rule, &mut findings);
            }
        }
        CountLike::Pbs => {
            let (within, other): (Vec<_>, Vec<_>) = rules.partition(CountingRule::is_within);
            let mut covered = vec![false; snapshots.len()];
            for rule in &other {
                count_what_is_not_covered(snapshots, rule, &mut covered, &mut findings);
            }
            for rule in &within {
                count_all(snapshots, rule, &mut findings);
            }
        }
    }
    findings
}

/// Union: the rule counts every snapshot.
fn count_all(snapshots: &[CountedSnapshot], rule: &CountingRule<'_>, findings: &mut [RuleFinding]) {
    let (mut seen, mut kept_count) = (SeenUnits::default(), 0);
    for (position, snapshot) in snapshots.iter().enumerate() {
        if rule.reach.is_beyond(snapshot) {
            return;
        }
        let finding = &mut findings[position];
        let is_full = rule.reach.is_full(kept_count);
        let is_oldest = position + 1 == snapshots.len();
        match seen.newest_of(rule.unit.number(position, snapshot), position) {
            None if is_full => return,
            None => {
                kept_count += 1;
                finding.kept_by.push(KeptBy::Rule(rule.rule.clone()));
            }
            Some(_) if is_oldest && !is_full => finding.kept_by.push(KeptBy::Oldest(rule.rule.clone())),
            Some(newest) => finding.represented = Some((rule.number, snapshots[newest].place)),
        }
    }
}

/// Borg: the rule does not count the snapshots that an earlier rule keeps, but they do stand for
/// their period.
fn count_what_is_not_kept(
    snapshots: &[CountedSnapshot],
    rule: &CountingRule<'_>,
    findings: &mut [RuleFinding],
) {
    let (mut seen, mut kept_count) = (SeenUnits::default(), 0);
    for (position, snapshot) in snapshots.iter().enumerate() {
        if rule.reach.is_beyond(snapshot) {
            return;
        }
        let finding = &mut findings[position];
        match seen.newest_of(rule.unit.number(position, snapshot), position) {
            None if rule.reach.is_full(kept_count) => return,
            None if finding.kept_by.is_empty() => {
                kept_count += 1;
                finding.kept_by.push(KeptBy::Rule(rule.rule.clone()));
            }
            None => {}
            Some(newest) => finding.represented = Some((rule.number, snapshots[newest].place)),
        }
    }
    // A rule without limit keeps the newest of each period, and never the oldest for its age.
    let has_room = !rule.reach.is_full(kept_count) && !matches!(rule.reach, RuleReach::Unlimited);
    if let Some(oldest) = findings.last_mut().filter(|oldest| has_room && oldest.kept_by.is_empty()) {
        oldest.kept_by.push(KeptBy::Oldest(rule.rule.clone()));
    }
}

/// Proxmox Backup Server: a snapshot is covered if an earlier rule has kept it, or has dropped it
/// for a newer one of its period. The rule looks only at snapshots that are not covered, in periods
/// of which no snapshot is kept.
fn count_what_is_not_covered(
    snapshots: &[CountedSnapshot],
    rule: &CountingRule<'_>,
    covered: &mut [bool],
    findings: &mut [RuleFinding],
) {
    let mut kept_before = BTreeMap::new();
    for (position, snapshot) in snapshots.iter().enumerate() {
        if !findings[position].kept_by.is_empty() {
            kept_before.entry(rule.unit.number(position, snapshot)).or_insert(snapshot.place);
        }
    }
    let (mut seen, mut kept_count) = (SeenUnits::default(), 0);
    for (position, snapshot) in snapshots.iter().enumerate() {
        if covered[position] {
            continue;
        }
        let number = rule.unit.number(position, snapshot);
        let finding = &mut findings[position];
        if let Some(kept) = kept_before.get(&number) {
            finding.represented = Some((rule.number, *kept));
            continue;
        }
        match seen.newest_of(number, position) {
            None if rule.reach.is_full(kept_count) => return,
            None => {
                kept_count += 1;
                finding.kept_by.push(KeptBy::Rule(rule.rule.clone()));
            }
            Some(newest) => finding.represented = Some((rule.number, snapshots[newest].place)),
        }
        covered[position] = true;
    }
}
