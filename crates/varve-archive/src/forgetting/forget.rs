//! Forgets snapshots: moves them from the list to the trash.

use std::time::Duration;

use varve_block::has_kind;
use varve_content::UnknownFields;
use varve_store::{NotPermitted, Permission};
use varve_world::Timestamp;

use super::listed::{UnknownSnapshots, find_all};
use super::protection::ProtectedSnapshot;
use super::work_days::undo_start;
use crate::archive::Archive;
use crate::catalog::catalog_root::SaveCatalogError;
use crate::catalog::removed::TrashedSnapshot;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::snapshot_id::SnapshotId;

/// The snapshots to be forgotten. Nothing is freed before the end of the undo.
#[derive(Debug, Clone, PartialEq)]
pub struct ForgetPlan {
    /// In the order of the catalog.
    pub snapshots: Vec<Snapshot>,
    /// The time by the clock, or that of the newest snapshot if the clock is a little behind.
    pub forgotten: Timestamp,
    /// They can come back until this time, and after it until the trash is emptied.
    pub undo_until: Timestamp,
}

/// Why no snapshot was forgotten.
#[derive(Debug, thiserror::Error)]
pub enum ForgetError {
    #[error("{0}")]
    NotPermitted(#[from] NotPermitted),
    #[error("{0}")]
    Unknown(#[from] UnknownSnapshots),
    /// Holds or dates protect some of the snapshots.
    #[error("protected snapshots cannot be forgotten: {}", joined(snapshots))]
    Protected { snapshots: Vec<ProtectedSnapshot> },
    #[error("{0}")]
    Catalog(#[from] SaveCatalogError),
}

has_kind!(ForgetError: Self::Protected { .. } => Usage);

fn joined(snapshots: &[ProtectedSnapshot]) -> String {
    snapshots.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl ForgetPlan {
    /// Plans to forget the snapshots with these ids. The newest snapshot of a series may be among
    /// them.
    ///
    /// # Errors
    /// [`ForgetError::Unknown`] and [`ForgetError::Protected`].
    pub fn new(
        listed: &[Snapshot],
        ids: &[SnapshotId],
        now: Timestamp,
        undo: Duration,
    ) -> Result<Self, ForgetError> {
        let chosen = find_all("the catalog", listed, |snapshot| snapshot.id, ids)?;
        let protected = ProtectedSnapshot::among(chosen.iter().copied(), now);
        if !protected.is_empty() {
            return Err(ForgetError::Protected { snapshots: protected });
        }
        let forgotten = undo_start(listed.iter().map(|snapshot| snapshot.time), now);
        // Without undo, no clock is asked whether it has ended.
        let undo_until = if undo.is_zero() { Timestamp(0) } else { forgotten.plus(undo) };
        Ok(Self { snapshots: chosen.into_iter().cloned().collect(), forgotten, undo_until })
    }
}

impl Archive {
    /// Forgets the snapshots with these ids: moves them to the trash, from which
    /// [`undo_forget`](Self::undo_forget) brings them back. `undo` is the time for which that must
    /// stay possible, or zero if it need not be; `by` is the id of the key, or empty. The change is
    /// durable on return.
    ///
    /// # Errors
    /// [`ForgetError`]; nothing is changed then.
    pub fn forget(
        &mut self,
        ids: &[SnapshotId],
        now: Timestamp,
        undo: Duration,
        by: &str,
    ) -> Result<ForgetPlan, ForgetError> {
        self.store().role().require(Permission::Destroy)?;
        let plan = ForgetPlan::new(self.snapshots(), ids, now, undo)?;
        let trashed = |snapshot: &Snapshot| TrashedSnapshot {
            snapshot: snapshot.clone(),
            forgotten: plan.forgotten,
            forgotten_by: by.into(),
            undo_until: plan.undo_until,
            unknown: UnknownFields::default(),
        };
        if !plan.snapshots.is_empty() {
            let trashed = plan.snapshots.iter().map(trashed).collect();
            self.write_catalog(self.catalog().with(|known| known.forget(trashed)))?;
        }
        Ok(plan)
    }
}
