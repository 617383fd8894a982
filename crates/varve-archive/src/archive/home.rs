//! The home of snapshots: the place with their blocks and the roots of their catalog.

use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::sync::Arc;

use varve_block::{BlockName, BlockStore};
use varve_store::{CloseError, OpenStoreError, Role};
use varve_tree::Cutting;
use varve_world::World;

use crate::archive::last_snapshot_record::LastSnapshotRecord;
use crate::catalog::catalog_root::{Catalog, SaveCatalogError};
use crate::catalog::root_record::LoadCatalogError;
use crate::catalog::snapshot::{Growth, Snapshot};

/// An error of one kind of home.
pub type HomeError = Box<dyn Error + Send + Sync>;

/// Why the additions of another process are unknown.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    #[error("new data in the log cannot be read")]
    Log(#[from] OpenStoreError),
    #[error("{0}")]
    Catalog(#[from] LoadCatalogError),
    /// The roots of a home without a log cannot be read.
    #[error("{0}")]
    Roots(#[source] HomeError),
}

/// The form in which a home stores the contents of snapshots.
#[derive(Debug, Clone, Copy)]
pub struct ContentForm {
    /// The block size of disks.
    pub disk_block_bytes: u32,
    pub cutting: Cutting,
    pub makes_deltas: bool,
}

/// A home of snapshots, such as a store on this machine.
///
/// A home that only stores blocks, and has a place for the newest root, needs the methods without a
/// default. It is asked a few times for each snapshot; blocks go directly to its block store.
pub trait SnapshotHome: Send + Sync {
    fn blocks(&self) -> Arc<dyn BlockStore>;

    /// The clock, the random bytes and the workers for the work of snapshots.
    fn world(&self) -> &World;

    fn content_form(&self) -> ContentForm;

    /// Looks for the newest roots of the catalog, oldest first.
    ///
    /// # Errors
    /// [`FollowError`]
    fn newest_roots(&self) -> Result<Vec<BlockName>, FollowError>;

    /// Writes the next catalog in the place of this one. Its root is written last, and is durable
    /// on return.
    ///
    /// # Errors
    /// [`SaveCatalogError`]; the newest root that readers find is then unchanged.
    fn write_catalog(&mut self, catalog: &mut Catalog, next: Catalog) -> Result<BlockName, SaveCatalogError>;

    /// Reads the catalog of these roots. A home may find newer ones by itself.
    ///
    /// # Errors
    /// [`LoadCatalogError`]
    fn load_catalog(&self, roots: &[BlockName]) -> Result<Catalog, LoadCatalogError> {
        Catalog::load(&*self.blocks(), roots.last().copied())
    }

    /// The root that was written last, if a user may want to keep it because the blocks' server
    /// does not.
    fn root_to_keep(&self) -> Option<BlockName> {
        None
    }

    /// The role of the key of this process.
    fn role(&self) -> Role {
        Role::Full
    }

    /// Blocks that are damaged or gone, so contents that need them are read again.
    fn lost_blocks(&self) -> BTreeSet<BlockName> {
        BTreeSet::new()
    }

    /// Advises how contents that are put from now on will be read; see
    /// [`Store::expect_reads_in_pieces`](varve_store::Store::expect_reads_in_pieces).
    fn expect_reads_in_pieces(&self, _expected: bool) {}

    /// Writes out everything put so far, so that [`growth`](Self::growth) counts it.
    ///
    /// # Errors
    /// [`HomeError`]
    fn write_out(&self) -> Result<(), HomeError> {
        Ok(())
    }

    /// The bytes that were new in this session, and all bytes that are stored; `None` if the home
    /// does not count them.
    ///
    /// # Errors
    /// [`HomeError`]
    fn growth(&self) -> Result<Option<Growth>, HomeError> {
        Ok(None)
    }

    /// Returns whether a new snapshot may take over the contents of this one without reading them.
    fn believes(&self, _snapshot: &Snapshot) -> bool {
        true
    }

    /// Returns whether the snapshot was added with another key, which cannot read.
    fn is_of_lesser_key(&self, _snapshot: &Snapshot) -> bool {
        false
    }

    /// A snapshot that is about to be added, with its origin.
    fn with_own_origin(&self, _catalog: &Catalog, snapshot: Snapshot) -> Snapshot {
        snapshot
    }

    /// The record of the files of the last snapshot of the source `about`, for a key that may not
    /// read the snapshot itself. Without `is_used` nothing is taken over from it.
    ///
    /// # Errors
    /// [`io::Error`] if there are no random bytes.
    fn last_record(&self, _about: &[u8], _is_used: bool) -> io::Result<Option<LastSnapshotRecord>> {
        Ok(None)
    }

    /// Ends the work. Everything is durable already.
    ///
    /// # Errors
    /// [`CloseError`]
    fn close(self: Box<Self>) -> Result<(), CloseError> {
        Ok(())
    }
}
