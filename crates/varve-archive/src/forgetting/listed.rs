//! Finds the snapshots that the user has named. Pure.

use std::collections::BTreeSet;

use varve_block::has_kind;

use crate::catalog::snapshot_id::SnapshotId;

/// Some of the ids are not those of the expected snapshots.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no snapshot in {place} has the id {}", joined(ids))]
pub struct UnknownSnapshots {
    /// The list that was searched.
    pub place: &'static str,
    pub ids: Vec<SnapshotId>,
}

has_kind!(UnknownSnapshots: _ => Usage);

fn joined(ids: &[SnapshotId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The values with these ids, in the order of the list.
///
/// # Errors
/// [`UnknownSnapshots`] if some are not in the list.
pub(super) fn find_all<'a, T>(
    place: &'static str,
    list: &'a [T],
    id_of: impl Fn(&T) -> SnapshotId,
    ids: &[SnapshotId],
) -> Result<Vec<&'a T>, UnknownSnapshots> {
    let mut left: BTreeSet<_> = ids.iter().copied().collect();
    let found: Vec<_> = list.iter().filter(|value| left.remove(&id_of(value))).collect();
    if left.is_empty() { Ok(found) } else { Err(UnknownSnapshots { place, ids: left.into_iter().collect() }) }
}
