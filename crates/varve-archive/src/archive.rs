//! The archive: a home of snapshots with their catalog.
//!
//! Other folders of this crate add to it: taking snapshots, forgetting them, and changing their
//! tags. They write the next catalog with `write_catalog`, after everything that it leads to.

pub mod change;
pub mod home;
pub mod last_snapshot_record;
pub mod local_home;
mod record_layers;

use std::borrow::Cow;
use std::sync::Arc;

use varve_block::{BlockName, BlockStore, with_causes};
use varve_store::{CloseError, Permission, Store};

use crate::archive::home::{FollowError, SnapshotHome};
use crate::archive::local_home::LocalHome;
use crate::catalog::catalog_root::{Catalog, LiveEntries, SaveCatalogError};
use crate::catalog::losses::Losses;
use crate::catalog::removed::TrashedSnapshot;
use crate::catalog::root_record::LoadCatalogError;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::snapshot_request::SnapshotRequest;
use crate::catalog::source_names::{NameTaken, check_name};

/// The most looks at a log that other processes change all the time.
const LOOKS_MAX: usize = 16;

/// Snapshots at their home, with the catalog. `Archive` alone is one in a store on this machine;
/// for an `Archive<dyn SnapshotHome>` the kind of home is known only when the program runs.
pub struct Archive<H: SnapshotHome + ?Sized = LocalHome> {
    /// A block store before that of the home, which gets the contents of snapshots.
    front: Option<Arc<dyn BlockStore>>,
    catalog: Catalog,
    /// The roots from which the catalog was read.
    roots: Vec<BlockName>,
    home: Box<H>,
}

/// An archive in a store on this machine.
impl Archive {
    /// Reads the catalog of a store. If the store is open for writing, an incomplete catalog is an
    /// error. With a write-only key the catalog can only be extended, and shows the snapshots of
    /// this session.
    ///
    /// # Errors
    /// [`LoadCatalogError`].
    pub fn open(store: Store) -> Result<Self, LoadCatalogError> {
        let store = Arc::new(store);
        let archive = Self::open_through(Arc::clone(&store), store as _)?;
        if !archive.store().is_open_to_write() {
            return Ok(archive);
        }
        Ok(Self { catalog: archive.catalog.require_all()?, ..archive })
    }

    /// Reads the catalog of a store through `blocks`, a block store before it.
    ///
    /// # Errors
    /// [`LoadCatalogError`].
    pub fn open_through(store: Arc<Store>, blocks: Arc<dyn BlockStore>) -> Result<Self, LoadCatalogError> {
        let roots = store.catalogs();
        Self::load(LocalHome::new(store, blocks), roots)
    }

    /// Opens the same archive once more for reading, with nothing of what this one has read: for a
    /// second look before damage is reported.
    ///
    /// # Errors
    /// [`FollowError`]
    pub fn open_anew(&self) -> Result<Self, FollowError> {
        Ok(Self::open(self.store().open_anew()?)?)
    }

    /// Calls `work` with this archive. If it fails with a doubt about the log, calls it again with
    /// a fresh opening each time, until it fails twice in a row in the same way: other processes
    /// may write, forget and collect meanwhile.
    pub(crate) fn with_second_look<T, E: std::error::Error + 'static>(
        &self,
        is_doubt: impl Fn(&E) -> bool,
        mut work: impl FnMut(&Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut done = work(self);
        // Nobody else changes a store that is open for writing.
        for _ in 1..if self.store().is_open_to_write() { 0 } else { LOOKS_MAX } {
            let Err(before) = &done else { break };
            if !is_doubt(before) {
                break;
            }
            let reason = with_causes(before);
            let Ok(anew) = self.open_anew() else { break };
            done = work(&anew);
            if done.as_ref().is_err_and(|error| with_causes(error) == reason) {
                break;
            }
        }
        done
    }

    /// Joins a store with a catalog that was read in another way, for example from a replica if it
    /// is lost here.
    #[must_use]
    pub fn with_catalog(store: Arc<Store>, catalog: Catalog) -> Self {
        let roots = store.catalogs();
        let home = Box::new(LocalHome::new(Arc::clone(&store), store as _));
        Self { front: None, catalog, roots, home }
    }

    /// The store of the archive.
    #[must_use]
    pub fn store(&self) -> &Store {
        self.home.store()
    }

    /// The store, as a shared block store for a reader that must own it, such as the reader of an
    /// image.
    #[must_use]
    pub fn blocks(&self) -> Arc<Store> {
        Arc::clone(self.home.store())
    }

    /// The recorded losses; none for a key that may not read.
    #[must_use]
    pub fn losses(&self) -> Losses {
        self.catalog.losses(self.store())
    }
}

impl<H: SnapshotHome> Archive<H> {
    /// Reads the catalog that these roots lead to. Without a root, the catalog is empty.
    ///
    /// # Errors
    /// [`LoadCatalogError`].
    pub fn load(home: H, roots: Vec<BlockName>) -> Result<Self, LoadCatalogError> {
        let catalog = home.load_catalog(&roots)?;
        Ok(Self { front: None, catalog, roots, home: Box::new(home) })
    }

    /// The same archive, with a kind of home that is known only when the program runs.
    #[must_use]
    pub fn of_any_kind(self) -> Archive<dyn SnapshotHome>
    where
        H: 'static,
    {
        let Self { front, catalog, roots, home } = self;
        Archive { front, catalog, roots, home }
    }
}

/// An archive at any home.
impl<H: SnapshotHome + ?Sized> Archive<H> {
    /// The home of the snapshots.
    #[must_use]
    pub fn home(&self) -> &H {
        &self.home
    }

    /// Puts the contents of later snapshots through `front`, a block store before this one, such as
    /// a recorder. The catalog is written without it.
    pub fn set_front(&mut self, front: Arc<dyn BlockStore>) {
        self.front = Some(front);
    }

    /// The block store that gets the contents of snapshots.
    pub(crate) fn contents(&self) -> Arc<dyn BlockStore> {
        self.front.clone().unwrap_or_else(|| self.home.blocks())
    }

    /// Ends the work at the home.
    ///
    /// # Errors
    /// [`CloseError`].
    pub fn close(self) -> Result<(), CloseError> {
        drop(self.front);
        self.home.close()
    }

    /// All snapshots, in the order in which they were finished.
    #[must_use]
    pub fn snapshots(&self) -> &[Snapshot] {
        self.catalog.snapshots()
    }

    /// Reads the additions of another process. Returns whether the list of snapshots has changed. A
    /// store that is open for writing has no other writer, so nothing is read then.
    ///
    /// # Errors
    /// [`FollowError`]; the catalog is then unchanged, and the next call tries again.
    pub fn follow(&mut self) -> Result<bool, FollowError> {
        let roots = self.home.newest_roots()?;
        if !self.home.role().allows(Permission::Read) || roots == self.roots {
            return Ok(false);
        }
        let catalog = self.home.load_catalog(&roots)?;
        self.roots = roots;
        let is_new = catalog != self.catalog;
        self.catalog = catalog;
        Ok(is_new)
    }

    /// Returns whether a new snapshot may take over the contents of this one without reading them:
    /// it was added with this key, or with a key that can read.
    #[must_use]
    pub fn believes(&self, snapshot: &Snapshot) -> bool {
        self.home.believes(snapshot)
    }

    /// Returns whether the snapshot was added with another key, which cannot read. Such a key
    /// claims any host and name.
    #[must_use]
    pub fn is_of_lesser_key(&self, snapshot: &Snapshot) -> bool {
        self.home.is_of_lesser_key(snapshot)
    }

    /// The earlier snapshots of the series of a request, without those that a lesser key added in
    /// its name.
    #[must_use]
    pub fn earlier(&self, request: &SnapshotRequest) -> Vec<&Snapshot> {
        let of_series = |snapshot: &&Snapshot| snapshot.is_of_series(&request.host, &request.name);
        let of_series = self.snapshots().iter().filter(of_series);
        of_series.filter(|snapshot| !self.is_of_lesser_key(snapshot)).collect()
    }

    /// Checks that the name of a request is free for it: it is unused on its host, or its newest
    /// snapshot there is of the same source, or the user chose it. Snapshots of lesser keys do not
    /// count. A key that may not read knows only the snapshots of this session.
    ///
    /// # Errors
    /// [`NameTaken`].
    pub fn check_name(&self, request: &SnapshotRequest) -> Result<(), NameTaken> {
        check_name(self.snapshots().iter().filter(|snapshot| !self.is_of_lesser_key(snapshot)), request)
    }

    /// The forgotten snapshots that can come back, in the order in which they were forgotten.
    #[must_use]
    pub fn trash(&self) -> &[TrashedSnapshot] {
        self.catalog.trash()
    }

    /// The number of snapshots that were forgotten and cannot come back.
    #[must_use]
    pub fn gone_count(&self) -> usize {
        self.catalog.gone().len()
    }

    /// Everything that the collector of garbage must keep.
    #[must_use]
    pub fn live_entries(&self) -> LiveEntries<'_> {
        self.catalog.live_entries()
    }

    /// The listed snapshots, and behind them those in the trash.
    #[must_use]
    pub fn kept_snapshots(&self) -> Cow<'_, [Snapshot]> {
        self.catalog.kept_snapshots()
    }

    /// The catalog, as it was read and changed.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Writes the unchanged catalog at the end of the log, as one final root if the key may read.
    /// It is durable on return.
    ///
    /// # Errors
    /// [`SaveCatalogError`]; the catalog is then unchanged.
    pub fn write_root(&mut self) -> Result<BlockName, SaveCatalogError> {
        self.write_catalog(self.catalog.clone())
    }

    /// Writes the next catalog: all roots that write-only keys have added are part of it. It is
    /// durable on return.
    pub(crate) fn write_catalog(&mut self, next: Catalog) -> Result<BlockName, SaveCatalogError> {
        self.home.write_catalog(&mut self.catalog, next)
    }
}
