//! Verdicts: all reasons to keep a snapshot, or the one reason to drop it.

use std::fmt;

use varve_world::Timestamp;

use crate::catalog::snapshot_id::SnapshotId;
use crate::retention::calendar::instant;
use crate::retention::rules::RetentionRule;

/// The verdict on one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All reasons; at least one.
    Keep(Vec<KeptBy>),
    Drop(DropReason),
}

/// A reason to keep a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptBy {
    Rule(RetentionRule),
    /// The snapshot is the oldest of its group, and the rule has found less than it may keep.
    Oldest(RetentionRule),
    /// The label of a hold.
    Hold(String),
    /// It is kept until this time.
    Until(Timestamp),
    /// The newest snapshot of each group is kept, whatever the rules are.
    Newest,
    /// The newest snapshot without gaps of each group is kept as well.
    NewestWhole,
    /// The rules keep the snapshot with this id for the period, and it has gaps.
    WholeInstead(SnapshotId),
    /// The snapshot is dated after now. It counts for nothing.
    AfterNow,
    /// The policy has no rules.
    NoRules,
}

/// The reason to drop a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DropReason {
    /// Of the rules that reach the snapshot, the one with the longest period keeps another snapshot
    /// of the same period. It is newer, except where rules count as Proxmox Backup Server does:
    /// there it may be an older one that a rule for shorter periods keeps.
    Represented { rule: RetentionRule, by: SnapshotId },
    /// No rule reaches the snapshot.
    OutOfReach,
}

impl Verdict {
    /// Returns whether the snapshot is kept.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        matches!(self, Self::Keep(_))
    }

    /// The reasons to keep the snapshot; empty if it is dropped.
    #[must_use]
    pub fn kept_by(&self) -> &[KeptBy] {
        match self {
            Self::Keep(kept_by) => kept_by,
            Self::Drop(_) => &[],
        }
    }
}

impl fmt::Display for KeptBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => rule.fmt(f),
            Self::Oldest(rule) => write!(f, "oldest, and room left in {rule}"),
            Self::Hold(label) => write!(f, "hold {label}"),
            Self::Until(time) => write!(f, "keep until {}", instant(*time)),
            Self::Newest => f.write_str("newest"),
            Self::NewestWhole => f.write_str("newest without gaps"),
            Self::WholeInstead(id) => write!(f, "without gaps, as {id} of the same period is not"),
            Self::AfterNow => f.write_str("dated after now"),
            Self::NoRules => f.write_str("no rules"),
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Represented { rule, by } => write!(f, "{rule} keeps {by} of the same period"),
            Self::OutOfReach => f.write_str("no rule reaches it"),
        }
    }
}
