//! Empties the trash: snapshots whose undo has ended are gone for ever.

use std::collections::BTreeSet;

use varve_store::{NotPermitted, Permission};
use varve_world::Timestamp;

use crate::archive::Archive;
use crate::catalog::catalog_root::{Catalog, SaveCatalogError};
use crate::catalog::removed::TrashedSnapshot;
use crate::catalog::snapshot_id::SnapshotId;
use crate::forgetting::work_days::WorkDays;

/// The entries of the trash, by the end of their undo.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpiryPlan {
    /// Those that are gone for ever once the plan is carried out.
    pub expired: Vec<TrashedSnapshot>,
    /// Those that stay in the trash.
    pub left: Vec<TrashedSnapshot>,
    /// The number of those that stay although the days of their undo are over: nights of work are
    /// missing.
    pub lacking_nights: usize,
}

/// Why the trash was not emptied.
#[derive(Debug, thiserror::Error)]
pub enum ExpireTrashError {
    #[error("{0}")]
    NotPermitted(#[from] NotPermitted),
    #[error("{0}")]
    Catalog(#[from] SaveCatalogError),
}

impl ExpiryPlan {
    /// Judges the trash by the clock and by the nights of work since. A clock that is set forward
    /// thus ends no undo. With `trust_clock`, by the clock alone: a store without new snapshots
    /// needs that.
    #[must_use]
    pub fn new(catalog: &Catalog, now: Timestamp, trust_clock: bool) -> Self {
        let nights = WorkDays::of(catalog);
        let is_expired = |trashed: &TrashedSnapshot| match trust_clock {
            true => trashed.undo_until <= now,
            false => nights.end_of_undo(trashed).is_some_and(|end| end <= now),
        };
        let (expired, left): (Vec<_>, Vec<_>) = catalog.trash().iter().cloned().partition(is_expired);
        let lacking_nights = left.iter().filter(|trashed| trashed.undo_until <= now).count();
        Self { expired, left, lacking_nights }
    }
}

impl Archive {
    /// Moves the snapshots whose undo has ended from the trash to those that are gone. After that,
    /// their data may be collected, and no root of the catalog lists them again. The change is
    /// durable on return. Returns the snapshots that moved.
    ///
    /// # Errors
    /// [`ExpireTrashError`]; nothing is changed then.
    pub fn expire_trash(
        &mut self,
        now: Timestamp,
        trust_clock: bool,
    ) -> Result<Vec<SnapshotId>, ExpireTrashError> {
        self.expire_in_trash(now, trust_clock, |_| true)
    }

    /// Like [`expire_trash`](Self::expire_trash), but moves only the snapshots that `is_chosen`
    /// accepts.
    ///
    /// # Errors
    /// As for [`expire_trash`](Self::expire_trash).
    pub(crate) fn expire_in_trash(
        &mut self,
        now: Timestamp,
        trust_clock: bool,
        is_chosen: impl Fn(&SnapshotId) -> bool,
    ) -> Result<Vec<SnapshotId>, ExpireTrashError> {
        self.store().role().require(Permission::Destroy)?;
        let plan = ExpiryPlan::new(self.catalog(), now, trust_clock);
        let ids: Vec<_> = plan.expired.iter().map(|trashed| trashed.snapshot.id).filter(is_chosen).collect();
        if !ids.is_empty() {
            let expired: BTreeSet<_> = ids.iter().copied().collect();
            self.write_catalog(self.catalog().with(|known| known.expire(&expired)))?;
        }
        Ok(ids)
    }
}
