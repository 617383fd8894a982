//! Retention: which snapshots a policy keeps. A pure function of times: it asks no clock, and the
//! time zone is part of the policy, so that every machine judges alike.
//!
//! ```text
//! snapshots ─▶ groups ─▶ newest first ─▶ rules ─▶ verdicts
//!              (host, name, kind,        (counting.rs)
//!               lesser key, backdated)
//! ```
//!
//! Invariants:
//! - The newest snapshot of each group is kept, whatever the rules are. If it has gaps, so is the
//!   newest one without.
//! - A snapshot with gaps stands for no other one: the newest whole snapshot of its period is kept,
//!   too.
//! - A snapshot of a lesser key changes no verdict on a snapshot of another key, and a backdated
//!   one changes none on one that is not.
//! - A snapshot dated after `now` is kept and counts for nothing.
//! - The order of the snapshots makes no difference. If two have the same time, the greater id
//!   counts as newer.
//! - With [`CountLike::Union`], a policy with a further rule, or with a greater number in a rule,
//!   keeps all that the policy kept. The one exception is the policy without rules, which keeps
//!   everything.
//! - With [`CountLike::Union`] and without `keep_within*`, a policy that is applied again and again
//!   while snapshots are added, in the order of their times, leaves the same snapshots as a policy
//!   that is applied once at the end. The same holds with a `keep_within` in hours. A
//!   `keep_within_hourly…yearly` in hours may leave more if it is applied again and again: the
//!   oldest remaining snapshot is also kept. Nothing holds for years, months and days: the limit of
//!   `1m` is 3 March on 31 March, and 1 March on 1 April.
//!
//! Read first: `retention/policy.rs` (the rules), then `retention/counting.rs`.

mod amounts;
mod calendar;
mod counting;
mod dated;
mod meeting_keys;
mod policy;
mod policy_file;
mod rules;
mod verdict;
mod zone;

use std::collections::{BTreeMap, BTreeSet};

use varve_world::Timestamp;

pub use amounts::{KeepCount, KeepSpan, ParseCountError, ParseSpanError};
pub use calendar::RetentionPeriod;
pub use dated::{ContentKind, Dated};
pub use meeting_keys::{MeetingKeys, meeting_keys};
pub use policy::{
    CountLike, ParseCountLikeError, ParseGroupByError, RetentionGroupBy, RetentionPolicy, SnapshotGroup,
};
pub use policy_file::ParsePolicyError;
pub use rules::{EmptyTag, KeepTags, ParseRuleError, RetentionRule};
pub use verdict::{DropReason, KeptBy, Verdict};
pub use zone::{RetentionZone, UnknownZone};

use calendar::instant;
use counting::{CountedSnapshot, RuleFinding, count};

/// Decides which snapshots the policy keeps. The verdicts have the order of the snapshots.
///
/// `now` only decides which snapshots are in the future and which `keep_until` has passed. With
/// [`CountLike::Borg`], spans are measured from it, too.
#[must_use]
pub fn judge(snapshots: &[Dated], policy: &RetentionPolicy, now: Timestamp) -> Vec<Verdict> {
    let mut findings = vec![RuleFinding::default(); snapshots.len()];
    let mut groups: BTreeMap<SnapshotGroup<'_>, Vec<TimedPlace>> = BTreeMap::new();
    for (place, snapshot) in snapshots.iter().enumerate() {
        if snapshot.time > now {
            findings[place].kept_by.push(KeptBy::AfterNow);
        } else {
            let is_counted = !is_left_out(snapshot, policy, now);
            let timed = TimedPlace { time: snapshot.time, place, is_counted };
            groups.entry(policy.group_by.group_of(snapshot)).or_default().push(timed);
        }
    }
    for group in groups.into_values() {
        judge_group(snapshots, group, policy, now, &mut findings);
    }
    let finish = |(snapshot, mut finding): (&Dated, RuleFinding)| {
        if snapshot.time <= now {
            finding.kept_by.extend(protections(snapshot, policy, now));
        }
        finding.verdict(policy, |place| snapshots[place].id)
    };
    snapshots.iter().zip(findings).map(finish).collect()
}

/// A snapshot by its place in the list.
#[derive(Clone, Copy)]
struct TimedPlace {
    time: Timestamp,
    place: usize,
    /// False if the rules do not see the snapshot.
    is_counted: bool,
}

/// Applies the rules to one group. None of its snapshots is dated after now.
fn judge_group(
    snapshots: &[Dated],
    mut group: Vec<TimedPlace>,
    policy: &RetentionPolicy,
    now: Timestamp,
    findings: &mut [RuleFinding],
) {
    let by_id = |a: &TimedPlace, b: &TimedPlace| snapshots[b.place].id.cmp(&snapshots[a.place].id);
    group.sort_unstable_by(|a, b| b.time.cmp(&a.time).then_with(|| by_id(a, b)));
    let Some(newest) = group.first().copied() else { return };
    let whole = group.iter().map(|timed| timed.place).find(|place| !snapshots[*place].has_gaps);
    let start = if policy.count_like == CountLike::Borg { now } else { newest.time };
    let counted: Vec<_> = group
        .into_iter()
        .filter(|timed| timed.is_counted)
        .map(|timed| CountedSnapshot::new(timed.place, timed.time, policy))
        .collect();
    for (snapshot, finding) in counted.iter().zip(count(&counted, policy, instant(start))) {
        findings[snapshot.place] = finding;
    }
    keep_whole_ones(snapshots, &counted, findings);
    findings[newest.place].kept_by.push(KeptBy::Newest);
    let newest_whole = whole.filter(|_| snapshots[newest.place].has_gaps);
    if let Some(whole) = newest_whole {
        findings[whole].kept_by.push(KeptBy::NewestWhole);
    }
}

/// Keeps the newest whole snapshot of each period for which a rule keeps one with gaps.
fn keep_whole_ones(snapshots: &[Dated], counted: &[CountedSnapshot], findings: &mut [RuleFinding]) {
    let mut covered = BTreeSet::new();
    for place in counted.iter().map(|one| one.place).filter(|place| !snapshots[*place].has_gaps) {
        let finding = &mut findings[place];
        let with_gaps = finding.represented_by().filter(|by| snapshots[*by].has_gaps);
        if finding.kept_by.is_empty()
            && let Some(by) = with_gaps
            && covered.insert(by)
        {
            finding.kept_by.push(KeptBy::WholeInstead(snapshots[by].id));
        }
    }
}

/// Returns whether the rules do not see a snapshot: Proxmox Backup Server and borg 2 leave out the
/// protected ones.
fn is_left_out(snapshot: &Dated, policy: &RetentionPolicy, now: Timestamp) -> bool {
    policy.count_like != CountLike::Union && protections(snapshot, policy, now).next().is_some()
}

/// The reasons to keep a snapshot that do not depend on other snapshots.
fn protections(snapshot: &Dated, policy: &RetentionPolicy, now: Timestamp) -> impl Iterator<Item = KeptBy> {
    let tags = policy.rules().iter().filter(|rule| match rule {
        RetentionRule::Tags(tags) => tags.matches(&snapshot.tags),
        _ => false,
    });
    let tags = tags.cloned().map(KeptBy::Rule);
    let until = snapshot.keep_until.filter(|until| now < *until).map(KeptBy::Until);
    let holds = snapshot.holds.iter().cloned().map(KeptBy::Hold);
    let no_rules = policy.rules().is_empty().then_some(KeptBy::NoRules);
    tags.chain(until).chain(holds).chain(no_rules)
}
