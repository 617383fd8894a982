//! Taking a snapshot: the content is archived first, and then the snapshot is added to the catalog.
//!
//! Everything that a snapshot leads to is durable before the catalog's new root is written, and the
//! root is written last. A crash therefore leaves the old catalog or the new one.

use std::borrow::Cow;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use varve_block::{BlockName, BlockStore, with_causes};
use varve_log::{AppendError, OpenLogError};
use varve_store::{CloseError, NotPermitted, OpenStoreError, Permission, Store};
use varve_world::Timestamp;

use crate::catalog::catalog_root::{Catalog, LiveEntries, SaveCatalogError};
use crate::catalog::losses::Losses;
use crate::catalog::removed::TrashedSnapshot;
use crate::catalog::root_record::LoadCatalogError;
use crate::catalog::snapshot::{Growth, Snapshot};
use crate::catalog::snapshot_id::SnapshotId;
use crate::catalog::snapshot_request::SnapshotRequest;
use crate::catalog::source_names::{NameTaken, check_name};
use crate::catalog::tags::{TagChanges, TagError};
use crate::folder::{
    ArchiveFolderError, DescribedTree, EarlierSnapshots, FolderCounts, FolderOptions, LeftOutOfFolder,
    StreamOwner, Watch, archive_described, archive_folder_after, archive_stream,
};
use crate::image::{ArchiveImageError, ImageSource, archive_image};
use crate::progress::Progress;
use crate::taking::archived::ArchivedSource;
use crate::taking::last_snapshot_record::LastSnapshotRecord;
use crate::vac::ArchivedVac;

/// A store with its catalog.
pub struct Archive {
    store: Arc<Store>,
    /// A block store before this one, which gets the contents of snapshots.
    front: Option<Arc<dyn BlockStore>>,
    catalog: Catalog,
    /// The roots from which the catalog was read.
    roots: Vec<BlockName>,
    /// True if the store shows a trace of a write-only key, once that was asked.
    knows_write_only_keys: OnceLock<bool>,
}

/// A snapshot that was taken, and is durable.
#[derive(Debug, Clone)]
pub struct TakenSnapshot {
    pub snapshot: Snapshot,
    /// True if an image changed while it was read.
    pub changed_meanwhile: bool,
    /// The archive of a folder for vac's tools, if it was requested.
    pub vac: Option<ArchivedVac>,
    /// The parts of a folder that were left out.
    pub left_out: LeftOutOfFolder,
    /// The size of a folder, and the new part of it.
    pub counts: Option<FolderCounts>,
}

/// Why a snapshot was not taken. Earlier snapshots are unchanged.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    #[error("{0}")]
    Image(#[from] ArchiveImageError),
    #[error("{0}")]
    Folder(#[from] ArchiveFolderError),
    /// The log did not accept the last of the data.
    #[error("the snapshot could not be stored")]
    WriteOut(#[source] AppendError),
    /// The catalog could not be written.
    #[error("{0}")]
    Catalog(#[from] SaveCatalogError),
    /// The size of the store could not be determined.
    #[error("{0}")]
    Stats(#[from] OpenLogError),
    /// There were no random bytes for an id.
    #[error("the system provides no random bytes")]
    Random(#[source] std::io::Error),
}

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
pub(crate) fn changed(
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

/// The most looks at a log that other processes change all the time.
const LOOKS_MAX: usize = 16;

/// Why the additions of another process are unknown.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    #[error("new data in the log cannot be read")]
    Log(#[from] OpenStoreError),
    #[error("{0}")]
    Catalog(#[from] LoadCatalogError),
}

/// The state of the store before a snapshot was begun.
pub(crate) struct StoreBefore {
    at: Timestamp,
    log_bytes: u64,
    new_bytes: u64,
}

impl Archive {
    /// Reads the catalog of a store. If the store is open for writing, an incomplete catalog is an
    /// error. With a write-only key the catalog can only be extended, and shows the snapshots of
    /// this session.
    ///
    /// # Errors
    /// [`LoadCatalogError`].
    pub fn open(store: Store) -> Result<Self, LoadCatalogError> {
        let catalog = if store.role().allows(Permission::Read) {
            let catalog = Catalog::load_of(&store, &store)?;
            if store.is_open_to_write() { catalog.require_all()? } else { catalog }
        } else {
            Catalog::unread(&store.newest_catalogs())
        };
        Ok(Self::with_catalog(Arc::new(store), catalog))
    }

    /// Opens the same archive once more for reading, with nothing of what this one has read: for a
    /// second look before damage is reported.
    ///
    /// # Errors
    /// [`FollowError`]
    pub fn open_anew(&self) -> Result<Self, FollowError> {
        Ok(Self::open(self.store.open_anew()?)?)
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
        for _ in 1..if self.store.is_open_to_write() { 0 } else { LOOKS_MAX } {
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
        Self { store, front: None, catalog, roots, knows_write_only_keys: OnceLock::new() }
    }

    /// Puts the contents of later snapshots through `front`, a block store before this one, such as
    /// a recorder. The catalog is written without it.
    pub fn set_front(&mut self, front: Arc<dyn BlockStore>) {
        self.front = Some(front);
    }

    /// The block store that gets the contents of snapshots.
    fn contents(&self) -> &dyn BlockStore {
        self.front.as_deref().unwrap_or(&*self.store)
    }

    /// The store of the archive.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The store, as a shared block store for a reader that must own it, such as the reader of an
    /// image.
    #[must_use]
    pub fn blocks(&self) -> Arc<Store> {
        Arc::clone(&self.store)
    }

    /// Closes the store. A store that a reader still shares is only synced, and the next opening
    /// takes longer.
    ///
    /// # Errors
    /// [`CloseError`].
    pub fn close(self) -> Result<(), CloseError> {
        drop(self.front);
        match Arc::try_unwrap(self.store) {
            Ok(store) => store.close(),
            Err(shared) => Ok(shared.sync()?),
        }
    }

    /// All snapshots, in the order in which they were finished.
    #[must_use]
    pub fn snapshots(&self) -> &[Snapshot] {
        self.catalog.snapshots()
    }

    /// The recorded losses; none for a key that may not read.
    #[must_use]
    pub fn losses(&self) -> Losses {
        self.catalog.losses(&*self.store)
    }

    /// Reads the additions of another process. Returns whether the list of snapshots has changed. A
    /// store that is open for writing has no other writer, so nothing is read then.
    ///
    /// # Errors
    /// [`FollowError`]; the catalog is then unchanged, and the next call tries again.
    pub fn follow(&mut self) -> Result<bool, FollowError> {
        self.store.follow()?;
        let roots = self.store.catalogs();
        if !self.store.role().allows(Permission::Read) || roots == self.roots {
            return Ok(false);
        }
        let catalog = Catalog::load_of(&self.store, &*self.store)?;
        self.roots = roots;
        let is_new = catalog != self.catalog;
        self.catalog = catalog;
        Ok(is_new)
    }

    /// Takes a snapshot of a disk image, in blocks of `block_bytes`. It is durable on return.
    ///
    /// # Errors
    /// [`TakeError`].
    pub fn take_image(
        &mut self,
        source: &ImageSource,
        block_bytes: u32,
        request: SnapshotRequest,
        progress: &Progress,
    ) -> Result<TakenSnapshot, TakeError> {
        let begun = self.begin()?;
        let workers = self.store.world().workers.clone();
        self.store.expect_reads_in_pieces(request.read_in_pieces);
        let newest = self.catalog.newest_image_like(&request).copied();
        let replaced = newest.as_ref().filter(|_| self.store.config().deltas);
        let image =
            archive_image(self.contents(), workers.as_ref(), source, block_bytes, replaced, progress)?;
        self.finish(begun, image.into(), request)
    }

    /// Takes a snapshot of a folder. Files that are unchanged since the last snapshot of the same
    /// series and source are not read again, unless `options.reread` is set, or that snapshot is
    /// not [believed](Self::believes). It is durable on return.
    ///
    /// # Errors
    /// [`TakeError`]. Unreadable files are reported and counted, and are no error.
    pub fn take_folder(
        &mut self,
        source: &Path,
        options: FolderOptions,
        request: SnapshotRequest,
        watch: Watch<'_>,
    ) -> Result<TakenSnapshot, TakeError> {
        let begun = self.begin()?;
        let previous = self.catalog.newest_folder(&request, |snapshot| self.believes(snapshot)).cloned();
        let remembered = [b"last night\0", request.name.as_bytes(), b"\0", &request.source].concat();
        let last_record = if self.store.role().allows(Permission::Read) {
            None
        } else {
            Some(
                LastSnapshotRecord::load(&self.store, &remembered, !options.reread)
                    .map_err(TakeError::Random)?,
            )
        };
        let options = FolderOptions {
            began_at: begun.at,
            lost: self.store.lost_blocks(),
            disk_block_bytes: self.store.config().block_bytes,
            disk_reads: request.expected_reads(),
            makes_deltas: self.store.config().deltas,
            ..options
        };
        let before = EarlierSnapshots { root: previous.as_ref(), last_record: last_record.clone() };
        let workers = self.store.world().workers.clone();
        self.store.expect_reads_in_pieces(false);
        let folder =
            archive_folder_after(self.contents(), workers.as_ref(), source, &before, &options, watch)?;
        let taken = self.finish(begun, folder.into(), request)?;
        // The record is saved last, because everything that it leads to must exist.
        if let Some(Err(error)) = last_record.map(|record| record.save(&self.store, &remembered)) {
            tracing::warn!(%error, "the list of files could not be saved; the next snapshot reads every file again");
        }
        Ok(taken)
    }

    /// Takes a snapshot of a tree of files that is described step by step, such as a snapshot of
    /// another program. It is durable on return.
    ///
    /// # Errors
    /// [`TakeError`]. Unreadable files are reported and counted, and are no error.
    pub fn take_described(
        &mut self,
        tree: &mut (dyn DescribedTree + Send),
        request: SnapshotRequest,
        watch: Watch<'_>,
    ) -> Result<TakenSnapshot, TakeError> {
        let begun = self.begin()?;
        self.store.expect_reads_in_pieces(false);
        let workers = self.store.world().workers.clone();
        let folder = archive_described(&*self.store, workers.as_ref(), tree, watch)?;
        self.finish(begun, folder.into(), request)
    }

    /// Takes a snapshot of a whole stream, as a file. If the stream fails, there is no snapshot. It
    /// is durable on return.
    ///
    /// # Errors
    /// [`TakeError`].
    pub fn take_stream(
        &mut self,
        stream: &mut dyn Read,
        owner: StreamOwner,
        request: SnapshotRequest,
        progress: &Progress,
    ) -> Result<TakenSnapshot, TakeError> {
        let begun = self.begin()?;
        self.store.expect_reads_in_pieces(false);
        let cutting = FolderOptions::default().cutting;
        let folder = archive_stream(self.contents(), stream, &request.name, owner, cutting, progress)?;
        self.finish(begun, folder.into(), request)
    }

    /// Returns whether a new snapshot may take over the contents of this one without reading them.
    ///
    /// It may if this key added it, or a key that can read: such a key could have changed every
    /// earlier snapshot as well. If an earlier version of this program added it, the key is not
    /// known. Then it may if the store shows no trace of a write-only key.
    #[must_use]
    pub fn believes(&self, snapshot: &Snapshot) -> bool {
        match snapshot.added_with() {
            Some(_) => !self.is_of_lesser_key(snapshot),
            None => {
                let vault = self.store.vault();
                !*self.knows_write_only_keys.get_or_init(|| vault.knows_write_only_keys())
            }
        }
    }

    /// Returns whether the snapshot was added with another key, which cannot read. Such a key
    /// claims any host and name.
    #[must_use]
    pub fn is_of_lesser_key(&self, snapshot: &Snapshot) -> bool {
        let own = self.store.vault().own_origin();
        snapshot.added_with().is_some_and(|origin| !origin.can_read() && own.as_ref() != Some(origin))
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

    /// Changes the tags and comments of these snapshots, and returns the ones that have changed.
    /// The change is durable on return. The previous catalogs stay in the log.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing is changed then.
    pub fn change(&mut self, ids: &[SnapshotId], changes: &TagChanges) -> Result<Vec<Snapshot>, ChangeError> {
        // A policy of retention may depend on tags.
        self.store.role().require(Permission::Destroy)?;
        let changed = changed(self.snapshots(), ids, changes)?;
        if !changed.is_empty() {
            self.write_catalog(self.catalog.with(|known| known.change(&changed)))?;
        }
        Ok(changed)
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
        self.catalog.write_next(&self.store, next)
    }

    /// Draws an id for a future snapshot.
    ///
    /// # Errors
    /// [`TakeError::Random`].
    pub fn draw_id(&self) -> Result<SnapshotId, TakeError> {
        SnapshotId::draw(&*self.store.world().random).map_err(TakeError::Random)
    }

    pub(crate) fn begin(&self) -> Result<StoreBefore, TakeError> {
        let log_bytes = self.store.stats()?.log_bytes;
        let (_, new_bytes) = self.store.session_growth();
        Ok(StoreBefore { at: self.store.world().clock.now(), log_bytes, new_bytes })
    }

    /// Adds the snapshot to the catalog, which first makes everything durable.
    fn finish(
        &mut self,
        begun: StoreBefore,
        archived: ArchivedSource,
        request: SnapshotRequest,
    ) -> Result<TakenSnapshot, TakeError> {
        let (changed_meanwhile, vac, counts) = (archived.changed_meanwhile, archived.vac, archived.counts);
        let left_out = archived.left_out.clone();
        let snapshot = archived
            .into_snapshot(request, begun.at, &*self.store.world().random)
            .map_err(TakeError::Random)?;
        Ok(TakenSnapshot { snapshot: self.enter(begun, snapshot)?, changed_meanwhile, vac, left_out, counts })
    }

    /// Adds a snapshot to the catalog, with the number of bytes that it added to the store.
    pub(crate) fn enter(&mut self, begun: StoreBefore, snapshot: Snapshot) -> Result<Snapshot, TakeError> {
        self.store.write_out().map_err(TakeError::WriteOut)?;
        let elapsed = self.store.world().clock.now().0.saturating_sub(begun.at.0);
        let snapshot = Snapshot {
            growth: Some(Growth {
                new_bytes: self.store.session_growth().1 - begun.new_bytes,
                stored_bytes: self.store.stats()?.log_bytes.saturating_sub(begun.log_bytes),
            }),
            elapsed: u64::try_from(elapsed).unwrap_or(0),
            ..snapshot
        };
        let snapshot = self.catalog.with_own_origin(&self.store, snapshot);
        self.write_catalog(self.catalog.bring_back(snapshot.clone()))?;
        Ok(snapshot)
    }
}
