//! A retention policy: rules, a time zone, and the properties by which snapshots form groups.

use std::fmt;
use std::str::FromStr;

use varve_store::Origin;

use crate::retention::dated::{ContentKind, Dated};
use crate::retention::rules::RetentionRule;
use crate::retention::zone::RetentionZone;

/// Rules that decide which snapshots are kept. Without rules, all are kept.
///
/// The text form is a policy file in TOML: `retention/policy_file.rs` has an example.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// At most one rule for each key, except for tags. Sorted: coarser rules follow finer ones.
    rules: Vec<RetentionRule>,
    /// The zone of hours, days, weeks, months and years.
    pub zone: RetentionZone,
    pub group_by: RetentionGroupBy,
    pub count_like: CountLike,
}

impl RetentionPolicy {
    /// Returns a policy without rules whose days are those of this zone.
    #[must_use]
    pub fn in_zone(zone: RetentionZone) -> Self {
        Self { zone, ..Self::default() }
    }

    /// Adds a rule. It replaces a rule with the same key. Rules for tags are all kept: a snapshot
    /// is kept if any of them matches.
    #[must_use]
    pub fn with_rule(mut self, rule: RetentionRule) -> Self {
        let is_replaced = |old: &RetentionRule| match rule {
            RetentionRule::Tags(_) => *old == rule,
            _ => old.key() == rule.key(),
        };
        self.rules.retain(|old| !is_replaced(old));
        self.rules.push(rule);
        self.rules.sort();
        self
    }

    /// Reports whether a rule keeps the snapshots of a time span. One snapshot with a wrong date
    /// moves that span.
    #[must_use]
    pub fn has_spans(&self) -> bool {
        let is_span = |rule: &RetentionRule| {
            matches!(rule, RetentionRule::Within(_) | RetentionRule::PeriodsWithin(..))
        };
        self.rules.iter().any(is_span)
    }

    /// The rules, sorted by their keys and numbers.
    #[must_use]
    pub fn rules(&self) -> &[RetentionRule] {
        &self.rules
    }
}

/// How rules count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CountLike {
    /// Each rule counts all snapshots, and a snapshot is kept if any rule keeps it. This is how
    /// restic counts, too.
    #[default]
    Union,
    /// As borg 1 does: shorter periods first, and a rule does not count the snapshots that an
    /// earlier rule keeps. Spans are measured from now, with months of 31 days. Protected snapshots
    /// are not counted.
    Borg,
    /// As Proxmox Backup Server does: shorter periods first, and a rule sees only snapshots that
    /// are older than those that earlier rules cover. Protected snapshots are not counted. The
    /// rules `keep_within*`, which Proxmox does not have, are counted as by [`CountLike::Union`].
    Pbs,
}

/// `count_like` has an unknown value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write union, borg or pbs")]
pub struct ParseCountLikeError;

impl CountLike {
    const ALL: [Self; 3] = [Self::Union, Self::Borg, Self::Pbs];
}

impl FromStr for CountLike {
    type Err = ParseCountLikeError;

    fn from_str(text: &str) -> Result<Self, ParseCountLikeError> {
        Self::ALL.into_iter().find(|one| one.to_string() == text).ok_or(ParseCountLikeError)
    }
}

impl fmt::Display for CountLike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Union => "union",
            Self::Borg => "borg",
            Self::Pbs => "pbs",
        })
    }
}

/// The properties that the snapshots of a group have in common. All three by default. The text form
/// is `host,name,kind`; an empty text puts all snapshots into one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionGroupBy {
    pub host: bool,
    pub name: bool,
    pub kind: bool,
}

/// A snapshot's group: its properties by which groups are formed.
///
/// Each key that is not full has groups of its own, and its backdated snapshots have others,
/// whatever the policy says. So they displace nothing that another key has added, or that had its
/// place in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotGroup<'a> {
    pub host: Option<&'a str>,
    pub name: Option<&'a str>,
    pub kind: Option<ContentKind>,
    pub lesser_key: Option<&'a Origin>,
    pub is_backdated: bool,
}

/// Why a text is not a [`RetentionGroupBy`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is not a property of groups: write host, name, kind, or several of them")]
pub struct ParseGroupByError {
    pub word: String,
}

impl RetentionGroupBy {
    /// The group of a snapshot.
    #[must_use]
    pub fn group_of(self, snapshot: &Dated) -> SnapshotGroup<'_> {
        SnapshotGroup {
            host: self.host.then_some(snapshot.host.as_str()),
            name: self.name.then_some(snapshot.name.as_str()),
            kind: self.kind.then_some(snapshot.kind),
            lesser_key: snapshot.lesser_key.as_ref(),
            is_backdated: snapshot.is_backdated,
        }
    }

    /// The properties as words, in a fixed order.
    pub(super) fn words(self) -> impl Iterator<Item = &'static str> {
        let all = [(self.host, "host"), (self.name, "name"), (self.kind, "kind")];
        all.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word)
    }

    pub(super) fn of_words<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, ParseGroupByError> {
        let mut found = Self { host: false, name: false, kind: false };
        for word in words {
            match word {
                "host" => found.host = true,
                "name" => found.name = true,
                "kind" => found.kind = true,
                _ => return Err(ParseGroupByError { word: word.to_owned() }),
            }
        }
        Ok(found)
    }
}

impl Default for RetentionGroupBy {
    fn default() -> Self {
        Self { host: true, name: true, kind: true }
    }
}

impl FromStr for RetentionGroupBy {
    type Err = ParseGroupByError;

    fn from_str(text: &str) -> Result<Self, ParseGroupByError> {
        let words = text.split(',').map(str::trim);
        Self::of_words(words.filter(|_| !text.trim().is_empty()))
    }
}

impl fmt::Display for RetentionGroupBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().collect::<Vec<_>>().join(","))
    }
}
