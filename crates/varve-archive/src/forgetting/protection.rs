//! Protection of snapshots against being forgotten. Pure.

use varve_world::Timestamp;

use crate::catalog::snapshot::Snapshot;
use crate::catalog::snapshot_id::SnapshotId;

/// A reason for which a snapshot cannot be forgotten now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protection {
    /// The labels of its holds.
    Held(Vec<String>),
    /// It is kept until this time, which is in the future.
    KeepUntil(Timestamp),
}

/// A snapshot that cannot be forgotten now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedSnapshot {
    pub id: SnapshotId,
    pub name: String,
    pub time: Timestamp,
    pub protection: Protection,
}

impl Protection {
    /// The protection of a snapshot at this time. A hold comes before a date.
    #[must_use]
    pub fn of(snapshot: &Snapshot, now: Timestamp) -> Option<Self> {
        if !snapshot.holds.is_empty() {
            return Some(Self::Held(snapshot.holds.iter().map(|hold| hold.label.clone()).collect()));
        }
        snapshot.keep_until.filter(|until| *until > now).map(Self::KeepUntil)
    }
}

impl ProtectedSnapshot {
    /// The protected ones among these snapshots.
    pub(super) fn among<'a>(snapshots: impl IntoIterator<Item = &'a Snapshot>, now: Timestamp) -> Vec<Self> {
        let protected = |snapshot: &Snapshot| {
            let (id, name, time) = (snapshot.id, snapshot.name.clone(), snapshot.time);
            Protection::of(snapshot, now).map(|protection| Self { id, name, time, protection })
        };
        snapshots.into_iter().filter_map(protected).collect()
    }
}

impl std::fmt::Display for Protection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Held(labels) => write!(f, "held: {}", labels.join(", ")),
            Self::KeepUntil(_) => f.write_str("kept until a later day"),
        }
    }
}

impl std::fmt::Display for ProtectedSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}) is {}", self.name, self.id, self.protection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::hold::Hold;
    use crate::catalog::snapshot::tests::snapshot;

    #[test]
    fn holds_and_dates_protect() {
        let plain = snapshot(1, "web", 5);
        assert_eq!(Protection::of(&plain, Timestamp(10)), None);
        let kept = Snapshot { keep_until: Some(Timestamp(11)), ..plain.clone() };
        assert_eq!(Protection::of(&kept, Timestamp(10)), Some(Protection::KeepUntil(Timestamp(11))));
        assert_eq!(Protection::of(&kept, Timestamp(11)), None);
        let hold = |label| Hold::new(label, Timestamp(0)).unwrap();
        let held = Snapshot { holds: vec![hold("a"), hold("b")], ..kept.clone() };
        let all = ProtectedSnapshot::among([&plain, &kept, &held], Timestamp(10));
        let text: Vec<_> = all.iter().map(ToString::to_string).collect();
        let id = "01".repeat(16);
        assert_eq!(
            text,
            [format!("web ({id}) is kept until a later day"), format!("web ({id}) is held: a, b")]
        );
    }
}
