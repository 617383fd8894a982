//! Brings forgotten snapshots back from the trash.

use std::collections::BTreeSet;

use varve_store::{NotPermitted, Permission};

use super::listed::{UnknownSnapshots, find_all};
use crate::archive::Archive;
use crate::catalog::catalog_root::SaveCatalogError;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::snapshot_id::SnapshotId;

/// Why no snapshot came back.
#[derive(Debug, thiserror::Error)]
pub enum UndoForgetError {
    #[error("{0}")]
    NotPermitted(#[from] NotPermitted),
    /// The undo has ended: the data of these snapshots may be removed already.
    #[error("too late to undo: the snapshots {} are gone for ever", joined(ids))]
    Gone { ids: Vec<SnapshotId> },
    #[error("{0}")]
    Unknown(#[from] UnknownSnapshots),
    #[error("{0}")]
    Catalog(#[from] SaveCatalogError),
}

fn joined(ids: &[SnapshotId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Archive {
    /// Finds the forgotten snapshots that [`undo_forget`](Self::undo_forget) would bring back.
    ///
    /// # Errors
    /// [`UndoForgetError::Gone`] and [`UndoForgetError::Unknown`].
    pub fn plan_undo(&self, ids: &[SnapshotId]) -> Result<Vec<Snapshot>, UndoForgetError> {
        let gone: Vec<_> = ids.iter().copied().filter(|id| self.catalog().gone().contains(id)).collect();
        if !gone.is_empty() {
            return Err(UndoForgetError::Gone { ids: gone });
        }
        let found = find_all("the trash", self.trash(), |trashed| trashed.snapshot.id, ids)?;
        Ok(found.into_iter().map(|trashed| trashed.snapshot.clone()).collect())
    }

    /// Lists the forgotten snapshots with these ids again, and returns them. The change is durable
    /// on return.
    ///
    /// # Errors
    /// [`UndoForgetError`]; nothing is changed then.
    pub fn undo_forget(&mut self, ids: &[SnapshotId]) -> Result<Vec<Snapshot>, UndoForgetError> {
        self.store().role().require(Permission::Destroy)?;
        let undone = self.plan_undo(ids)?;
        if !undone.is_empty() {
            let ids: BTreeSet<_> = undone.iter().map(|snapshot| snapshot.id).collect();
            self.write_catalog(self.catalog().with(|known| known.undo_forget(&ids)))?;
        }
        Ok(undone)
    }
}
