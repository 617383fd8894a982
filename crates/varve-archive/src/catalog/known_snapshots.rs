//! The snapshots that catalogs know: listed, in the trash, or gone. Pure.
//!
//! Several catalogs may mention one snapshot. The newest *final* root that mentions it decides:
//! its writer could read all earlier ones. A root that a write-only key has added decides nothing.
//! It only lists snapshots that no final root mentions.
//!
//! Invariant: no snapshot is listed and removed, or listed twice.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::cmp::Ordering;
use std::collections::BTreeSet;

use crate::catalog::origin_record::OriginRecord;
use crate::catalog::removed::{RemovedSnapshots, TrashedSnapshot};
use crate::catalog::snapshot::Snapshot;
use crate::catalog::snapshot_id::SnapshotId;

/// All snapshots that a catalog knows.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct KnownSnapshots {
    /// In the order in which they were finished, as far as that is known.
    listed: Vec<Snapshot>,
    /// The number of the first snapshots in `listed` that a final root lists.
    final_count: usize,
    removed: RemovedSnapshots,
}

impl KnownSnapshots {
    /// The contents of a final root.
    pub(crate) fn of_final(listed: Vec<Snapshot>, removed: RemovedSnapshots) -> Self {
        let mut known = Self { removed, ..Self::default() };
        let mut mentioned = known.mentioned();
        known.listed = listed.into_iter().filter(|snapshot| mentioned.insert(snapshot.id)).collect();
        known.final_count = known.listed.len();
        known
    }

    /// The listed snapshots.
    pub(crate) fn listed(&self) -> &[Snapshot] {
        &self.listed
    }

    /// The snapshots in the trash, in the order in which they were forgotten.
    pub(crate) fn trash(&self) -> &[TrashedSnapshot] {
        &self.removed.trash
    }

    /// The snapshots that cannot come back.
    pub(crate) fn gone(&self) -> &BTreeSet<SnapshotId> {
        &self.removed.gone
    }

    /// The lists of forgotten snapshots.
    pub(crate) fn removed(&self) -> &RemovedSnapshots {
        &self.removed
    }

    /// Lists snapshots that write-only keys have added, unless a final root mentions them.
    pub(crate) fn list_added(&mut self, added: Vec<Snapshot>) {
        if added.is_empty() {
            return;
        }
        let mut mentioned = self.mentioned();
        mentioned.extend(self.listed.iter().skip(self.final_count).map(|snapshot| snapshot.id));
        self.listed.extend(added.into_iter().filter(|snapshot| mentioned.insert(snapshot.id)));
    }

    /// All snapshots, in the order in which they arrived as far as that is known: those in the
    /// trash, and then those that are listed.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &Snapshot> {
        self.removed.trash.iter().map(|trashed| &trashed.snapshot).chain(&self.listed)
    }

    /// States the origin of every snapshot, in the order of [`in_order`](Self::in_order).
    /// `origin_of` also learns whether only the root of a write-only key lists the snapshot.
    pub(crate) fn state_origins(
        &mut self,
        mut origin_of: impl FnMut(&Snapshot, bool) -> Option<OriginRecord>,
    ) {
        for TrashedSnapshot { snapshot, .. } in &mut self.removed.trash {
            snapshot.origin = origin_of(snapshot, false);
        }
        for (place, snapshot) in self.listed.iter_mut().enumerate() {
            snapshot.origin = origin_of(snapshot, place >= self.final_count);
        }
    }

    /// Notes that a final root with these contents was written.
    pub(crate) fn settle(&mut self) {
        self.final_count = self.listed.len();
    }

    /// Adds the snapshots of another catalog. `order` compares the other's final root with that of
    /// this catalog: `Less` if the other's is older.
    pub(crate) fn join(&mut self, other: &Self, order: Ordering) {
        match order {
            Ordering::Less => self.join_older(other.clone()),
            // The logs may have parted. A snapshot that is gone in one of them may be incomplete.
            Ordering::Equal => {
                self.remove_gone(other.gone());
                self.join_older(other.clone());
            }
            Ordering::Greater => {
                let older = std::mem::replace(self, other.clone());
                self.join_older(older);
            }
        }
    }

    /// Adds the snapshots of an older catalog that this catalog does not mention.
    fn join_older(&mut self, older: Self) {
        let mut mentioned = self.mentioned();
        let added = self.listed.split_off(self.final_count.min(self.listed.len()));
        let RemovedSnapshots { trash, gone } = older.removed;
        self.removed.trash.extend(trash.into_iter().filter(|trashed| mentioned.insert(trashed.snapshot.id)));
        self.removed.gone.extend(gone.into_iter().filter(|id| mentioned.insert(*id)));
        let (mut listed, final_count) = (older.listed, older.final_count);
        let older_added = listed.split_off(final_count.min(listed.len()));
        self.listed.extend(listed.into_iter().filter(|snapshot| mentioned.insert(snapshot.id)));
        self.settle();
        self.list_added(added);
        self.list_added(older_added);
    }

    /// Removes snapshots for ever.
    fn remove_gone(&mut self, gone: &BTreeSet<SnapshotId>) {
        let final_count = self.final_count;
        let is_gone = |snapshot: &Snapshot| gone.contains(&snapshot.id);
        self.final_count = self.listed.iter().take(final_count).filter(|one| !is_gone(one)).count();
        self.listed.retain(|snapshot| !is_gone(snapshot));
        self.removed.trash.retain(|trashed| !is_gone(&trashed.snapshot));
        self.removed.gone.extend(gone);
    }

    /// The snapshots that the final root mentions.
    fn mentioned(&self) -> BTreeSet<SnapshotId> {
        let listed = self.listed.iter().take(self.final_count).map(|snapshot| snapshot.id);
        let trash = self.removed.trash.iter().map(|trashed| trashed.snapshot.id);
        listed.chain(trash).chain(self.removed.gone.iter().copied()).collect()
    }

    /// Lists a snapshot. If it was forgotten, it comes back by this.
    pub(crate) fn bring_back(&mut self, snapshot: Snapshot) {
        self.removed.gone.remove(&snapshot.id);
        self.removed.trash.retain(|trashed| trashed.snapshot.id != snapshot.id);
        self.listed.retain(|listed| listed.id != snapshot.id);
        self.listed.push(snapshot);
    }

    /// Replaces the listed snapshots that have the same ids as those in `changed`.
    pub(crate) fn change(&mut self, changed: &[Snapshot]) {
        for snapshot in &mut self.listed {
            if let Some(other) = changed.iter().find(|other| other.id == snapshot.id) {
                snapshot.clone_from(other);
            }
        }
    }

    /// Moves snapshots from the list to the trash.
    pub(crate) fn forget(&mut self, trashed: Vec<TrashedSnapshot>) {
        let ids: BTreeSet<_> = trashed.iter().map(|trashed| trashed.snapshot.id).collect();
        self.listed.retain(|snapshot| !ids.contains(&snapshot.id));
        self.removed.trash.retain(|trashed| !ids.contains(&trashed.snapshot.id));
        self.removed.trash.extend(trashed);
    }

    /// Moves snapshots from the trash back to the list: each to its place by time, because the
    /// newest snapshots of a series are looked for at the end.
    pub(crate) fn undo_forget(&mut self, ids: &BTreeSet<SnapshotId>) {
        let is_undone = |trashed: &TrashedSnapshot| ids.contains(&trashed.snapshot.id);
        let (undone, left) = std::mem::take(&mut self.removed.trash).into_iter().partition(is_undone);
        self.removed.trash = left;
        let undone: Vec<TrashedSnapshot> = undone;
        for TrashedSnapshot { snapshot, .. } in undone {
            let place = self.listed.iter().position(|listed| listed.time > snapshot.time);
            self.listed.insert(place.unwrap_or(self.listed.len()), snapshot);
        }
    }

    /// Removes snapshots in the trash for ever.
    pub(crate) fn expire(&mut self, ids: &BTreeSet<SnapshotId>) {
        let is_expired = |trashed: &TrashedSnapshot| ids.contains(&trashed.snapshot.id);
        self.removed.gone.extend(
            self.removed.trash.iter().filter(|trashed| is_expired(trashed)).map(|one| one.snapshot.id),
        );
        self.removed.trash.retain(|trashed| !is_expired(trashed));
    }

    /// Returns whether a reader of this catalog finds all that `other` lists, and nothing that
    /// `other` has removed.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let ids: BTreeSet<_> = self.listed.iter().map(|snapshot| snapshot.id).collect();
        let trash = |known: &Self| known.trash().iter().map(|one| one.snapshot.id).collect::<BTreeSet<_>>();
        other.listed.iter().all(|snapshot| ids.contains(&snapshot.id))
            && trash(self) == trash(other)
            && self.gone() == other.gone()
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use super::*;
    use crate::catalog::removed::tests::trashed;
    use crate::catalog::snapshot::tests::snapshot;

    fn known(listed: &[u8], trash: &[u8], gone: &[u8]) -> KnownSnapshots {
        let listed = listed.iter().map(|number| snapshot(*number, "web", (*number).into())).collect();
        let removed = RemovedSnapshots {
            trash: trash.iter().map(|number| trashed(*number, 100)).collect(),
            gone: gone.iter().map(|number| SnapshotId([*number; 16])).collect(),
        };
        KnownSnapshots::of_final(listed, removed)
    }

    fn added(mut known: KnownSnapshots, added: &[u8]) -> KnownSnapshots {
        known.list_added(added.iter().map(|number| snapshot(*number, "web", (*number).into())).collect());
        known
    }

    fn state(known: &KnownSnapshots) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let listed = known.listed.iter().map(|one| one.id.0[0]).collect();
        let trash = known.trash().iter().map(|one| one.snapshot.id.0[0]).collect();
        (listed, trash, known.gone().iter().map(|id| id.0[0]).collect())
    }

    fn joined(one: &KnownSnapshots, other: &KnownSnapshots, order: Ordering) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let mut all = one.clone();
        all.join(other, order);
        state(&all)
    }

    #[test]
    fn a_removed_snapshot_is_not_listed() {
        assert_eq!(state(&known(&[1, 2, 3, 1], &[2], &[3])), (vec![1], vec![2], vec![3]));
        let all = added(known(&[1], &[2], &[3]), &[1, 2, 3, 4, 4]);
        assert_eq!(state(&all), (vec![1, 4], vec![2], vec![3]), "whoever adds it");
    }

    #[test]
    fn the_newest_final_root_that_mentions_a_snapshot_decides() {
        let newer = known(&[1, 5], &[2], &[3]);
        let older = known(&[2, 3, 4], &[1, 6], &[5, 7]);
        let expected = (vec![1, 5, 4], vec![2, 6], vec![3, 7]);
        assert_eq!(joined(&newer, &older, Ordering::Less), expected);
        assert_eq!(joined(&older, &newer, Ordering::Greater), expected);
        // If none is newer, a snapshot that is gone in one of them is gone.
        let expected = (vec![1, 4], vec![2, 6], vec![3, 5, 7]);
        assert_eq!(joined(&newer, &older, Ordering::Equal), expected);
    }

    #[test]
    fn an_added_root_decides_nothing() {
        let newer = added(known(&[1], &[], &[]), &[2, 3, 4]);
        let older = added(known(&[], &[2], &[3]), &[5, 6]);
        let expected = (vec![1, 4, 5, 6], vec![2], vec![3]);
        for (one, other, order) in [(&newer, &older, Ordering::Less), (&older, &newer, Ordering::Greater)] {
            assert_eq!(joined(one, other, order), expected);
        }
        let gone = known(&[], &[], &[5]);
        assert_eq!(joined(&older, &gone, Ordering::Equal), (vec![6], vec![2], vec![3, 5]));
    }

    #[test]
    fn an_undone_snapshot_returns_to_its_place() {
        let mut all = known(&[1, 5, 9], &[7, 3], &[]);
        all.undo_forget(&[3, 7, 8].map(|number| SnapshotId([number; 16])).into());
        assert_eq!(state(&all), (vec![1, 3, 5, 7, 9], vec![], vec![]));
    }
}
