//! Holds and dates that protect snapshots against being forgotten.

use varve_store::{NotPermitted, Permission};
use varve_world::Timestamp;

use super::listed::{UnknownSnapshots, find_all};
use crate::archive::Archive;
use crate::catalog::catalog_root::SaveCatalogError;
use crate::catalog::hold::{Hold, HoldLabelError};
use crate::catalog::snapshot::Snapshot;
use crate::catalog::snapshot_id::SnapshotId;

/// Upper bound on the holds of one snapshot.
const HOLD_COUNT_MAX: usize = 100;

/// Why the protection of snapshots was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ProtectError {
    /// Append-only keys may protect more, and only full keys may protect less.
    #[error("{0}")]
    NotPermitted(#[from] NotPermitted),
    #[error("{0}")]
    Label(#[from] HoldLabelError),
    #[error("{0}")]
    Unknown(#[from] UnknownSnapshots),
    #[error("{name} has {HOLD_COUNT_MAX} holds, and no snapshot can have more")]
    TooMany { name: String },
    #[error("{0}")]
    Catalog(#[from] SaveCatalogError),
}

impl Archive {
    /// Adds a hold with this label to the snapshots with these ids, and returns the ones that have
    /// changed. A snapshot that has the hold already keeps it as it is. The change is durable on
    /// return.
    ///
    /// # Errors
    /// [`ProtectError`]; nothing is changed then.
    pub fn hold(
        &mut self,
        ids: &[SnapshotId],
        label: &str,
        now: Timestamp,
    ) -> Result<Vec<Snapshot>, ProtectError> {
        self.store().role().require(Permission::Hold)?;
        let hold = Hold::new(label, now)?;
        self.protect(ids, |snapshot| {
            if snapshot.holds.iter().any(|known| known.label == hold.label) {
                return Ok(());
            }
            if snapshot.holds.len() >= HOLD_COUNT_MAX {
                return Err(ProtectError::TooMany { name: snapshot.name.clone() });
            }
            snapshot.holds.push(hold.clone());
            Ok(())
        })
    }

    /// Removes the hold with this label from the snapshots with these ids, and returns the ones
    /// that had it. The change is durable on return.
    ///
    /// # Errors
    /// [`ProtectError`]; nothing is changed then.
    pub fn release(&mut self, ids: &[SnapshotId], label: &str) -> Result<Vec<Snapshot>, ProtectError> {
        self.store().role().require(Permission::Destroy)?;
        self.protect(ids, |snapshot| {
            snapshot.holds.retain(|hold| hold.label != label);
            Ok(())
        })
    }

    /// Keeps the snapshots with these ids at least until `time`, and returns the ones that have
    /// changed. Only a full key may set an earlier time than before, or remove it with `None`. The
    /// change is durable on return.
    ///
    /// # Errors
    /// [`ProtectError`]; nothing is changed then.
    pub fn keep_until(
        &mut self,
        ids: &[SnapshotId],
        time: Option<Timestamp>,
    ) -> Result<Vec<Snapshot>, ProtectError> {
        let role = self.store().role();
        role.require(Permission::Hold)?;
        self.protect(ids, |snapshot| {
            if snapshot.keep_until > time {
                role.require(Permission::Destroy)?;
            }
            snapshot.keep_until = time;
            Ok(())
        })
    }

    /// Makes the same change to all of these snapshots, in one new catalog.
    fn protect(
        &mut self,
        ids: &[SnapshotId],
        mut change: impl FnMut(&mut Snapshot) -> Result<(), ProtectError>,
    ) -> Result<Vec<Snapshot>, ProtectError> {
        let chosen = find_all("the catalog", self.snapshots(), |snapshot| snapshot.id, ids)?;
        let mut changed = Vec::new();
        for snapshot in chosen {
            let mut next = snapshot.clone();
            change(&mut next)?;
            if next != *snapshot {
                changed.push(next);
            }
        }
        if !changed.is_empty() {
            self.write_catalog(self.catalog().with(|known| known.change(&changed)))?;
        }
        Ok(changed)
    }
}
