//! A store on this machine as a home of snapshots.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, OnceLock};

use varve_block::{BlockName, BlockStore};
use varve_content::folder::FolderOptions;
use varve_store::{CloseError, Permission, Role, Store};
use varve_world::World;

use crate::archive::home::{ContentForm, FollowError, HomeError, SnapshotHome};
use crate::archive::last_snapshot_record::LastSnapshotRecord;
use crate::catalog::catalog_root::{Catalog, SaveCatalogError};
use crate::catalog::root_record::LoadCatalogError;
use crate::catalog::snapshot::{Growth, Snapshot};

/// A store, open for reading or for writing.
pub struct LocalHome {
    store: Arc<Store>,
    /// The store itself, or one before it that replaces lost blocks of the catalog.
    catalog_blocks: Arc<dyn BlockStore>,
    /// True if the store shows a trace of a write-only key, once that was asked.
    knows_write_only_keys: OnceLock<bool>,
}

impl LocalHome {
    pub(super) fn new(store: Arc<Store>, catalog_blocks: Arc<dyn BlockStore>) -> Self {
        Self { store, catalog_blocks, knows_write_only_keys: OnceLock::new() }
    }

    pub(super) fn store(&self) -> &Arc<Store> {
        &self.store
    }
}

impl SnapshotHome for LocalHome {
    fn blocks(&self) -> Arc<dyn BlockStore> {
        Arc::clone(&self.store) as _
    }

    fn world(&self) -> &World {
        self.store.world()
    }

    fn content_form(&self) -> ContentForm {
        let config = self.store.config();
        ContentForm {
            disk_block_bytes: config.block_bytes,
            cutting: FolderOptions::default().cutting,
            makes_deltas: config.deltas,
        }
    }

    fn newest_roots(&self) -> Result<Vec<BlockName>, FollowError> {
        // A store that is open for writing has no other writer, so nothing is read then.
        self.store.follow()?;
        Ok(self.store.catalogs())
    }

    fn write_catalog(&mut self, catalog: &mut Catalog, next: Catalog) -> Result<BlockName, SaveCatalogError> {
        catalog.write_next(&self.store, next)
    }

    fn load_catalog(&self, _roots: &[BlockName]) -> Result<Catalog, LoadCatalogError> {
        if !self.role().allows(Permission::Read) {
            return Ok(Catalog::unread(&self.store.newest_catalogs()));
        }
        Catalog::load_of(&self.store, &*self.catalog_blocks)
    }

    fn role(&self) -> Role {
        self.store.role()
    }

    fn lost_blocks(&self) -> BTreeSet<BlockName> {
        self.store.lost_blocks()
    }

    fn expect_reads_in_pieces(&self, expected: bool) {
        self.store.expect_reads_in_pieces(expected);
    }

    fn write_out(&self) -> Result<(), HomeError> {
        Ok(self.store.write_out()?)
    }

    fn growth(&self) -> Result<Option<Growth>, HomeError> {
        let (_, new_bytes) = self.store.session_growth();
        Ok(Some(Growth { new_bytes, stored_bytes: self.store.stats()?.log_bytes }))
    }

    /// It may if this key added it, or a key that can read: such a key could have changed every
    /// earlier snapshot as well. If an earlier version of this program added it, the key is not
    /// known. Then it may if the store shows no trace of a write-only key.
    fn believes(&self, snapshot: &Snapshot) -> bool {
        if snapshot.added_with().is_some() {
            return !self.is_of_lesser_key(snapshot);
        }
        !*self.knows_write_only_keys.get_or_init(|| self.store.vault().knows_write_only_keys())
    }

    fn is_of_lesser_key(&self, snapshot: &Snapshot) -> bool {
        let own = self.store.vault().own_origin();
        snapshot.added_with().is_some_and(|origin| !origin.can_read() && own.as_ref() != Some(origin))
    }

    fn with_own_origin(&self, catalog: &Catalog, snapshot: Snapshot) -> Snapshot {
        catalog.with_own_origin(&self.store, snapshot)
    }

    fn last_record(&self, about: &[u8], is_used: bool) -> io::Result<Option<LastSnapshotRecord>> {
        if self.role().allows(Permission::Read) {
            return Ok(None);
        }
        LastSnapshotRecord::load(&self.store, about, is_used).map(Some)
    }

    /// Closes the store. A store that a reader still shares is only synced, and the next opening
    /// takes longer.
    fn close(self: Box<Self>) -> Result<(), CloseError> {
        let Self { store, catalog_blocks, .. } = *self;
        drop(catalog_blocks);
        match Arc::try_unwrap(store) {
            Ok(store) => store.close(),
            Err(shared) => Ok(shared.sync()?),
        }
    }
}
