//! Changes of the tags and comments of snapshots.

use varve_store::{NotPermitted, Permission};

use super::Archive;
use crate::archive::home::SnapshotHome;
use crate::catalog::catalog_root::SaveCatalogError;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::snapshot_id::SnapshotId;
use crate::catalog::tags::{TagChanges, TagError};

/// Why the tags of snapshots were not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The role of the key does not permit it.
    #[error("this key may not change tags: that needs a key that may remove snapshots")]
    NotPermitted(#[from] NotPermitted),
    /// The changes are invalid.
    #[error("{0}")]
    Tags(#[from] TagError),
    /// The catalog could not be written.
    #[error("{0}")]
    Catalog(#[from] SaveCatalogError),
}

/// The selected snapshots that the changes alter, with the changes applied.
fn changed(
    snapshots: &[Snapshot],
    ids: &[SnapshotId],
    changes: &TagChanges,
) -> Result<Vec<Snapshot>, TagError> {
    let mut changed = Vec::new();
    for snapshot in snapshots.iter().filter(|snapshot| ids.contains(&snapshot.id)) {
        let tags = changes.tags(&snapshot.tags)?;
        let comment = changes.comment.clone().unwrap_or_else(|| snapshot.comment.clone());
        let next = Snapshot { tags, comment, ..snapshot.clone() };
        if next != *snapshot {
            changed.push(next);
        }
    }
    Ok(changed)
}

impl<H: SnapshotHome + ?Sized> Archive<H> {
    /// Changes the tags and comments of these snapshots, and returns the ones that have changed.
    /// The change is durable on return. The previous catalogs stay in the log.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing is changed then.
    pub fn change(&mut self, ids: &[SnapshotId], changes: &TagChanges) -> Result<Vec<Snapshot>, ChangeError> {
        // A policy of retention may depend on tags.
        self.home.role().require(Permission::Destroy)?;
        let changed = changed(self.snapshots(), ids, changes)?;
        if !changed.is_empty() {
            self.write_catalog(self.catalog.with(|known| known.change(&changed)))?;
        }
        Ok(changed)
    }
}
