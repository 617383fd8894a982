//! Taking a snapshot: the content is archived, and then the catalog says so.

use std::path::Path;
use std::sync::Arc;

use varve_block::{BlockName, BlockStore};
use varve_log::{AppendError, OpenLogError};
use varve_store::{CloseError, OpenError, Permission, Store};
use varve_world::Timestamp;

use crate::catalog::{Catalog, LoadCatalogError, SaveCatalogError};
use crate::folder::{ArchiveFolderError, Before, FolderOptions, Watch, archive_folder_after};
use crate::image::{ArchiveImageError, ImageSource, archive_image};
use crate::last_night::LastNight;
use crate::machine::Machine;
use crate::node::Node;
use crate::progress::Progress;
use crate::snapshot::{Growth, Snapshot, SnapshotContent, SnapshotId};
use crate::vac::ArchivedVac;

/// A store with its catalog.
pub struct Archive {
    store: Arc<Store>,
    catalog: Catalog,
    /// The roots that the catalog was read from.
    roots: Vec<BlockName>,
}

/// What a snapshot is to be called.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Its name: the same from night to night.
    pub name: String,
    /// The moment that it shows; the moment at which it was begun, if not given.
    pub time: Option<Timestamp>,
    /// The path that it is made of, as it is to be remembered.
    pub source: Vec<u8>,
    /// The machine that it is made on.
    pub host: String,
    /// `KEY=VALUE`.
    pub tags: Vec<String>,
    /// Its identity, where something had to be named after it before it was there; drawn at random if not given.
    pub id: Option<SnapshotId>,
    /// The machine whose disk it is.
    pub machine: Option<Machine>,
    /// Whether an image is to be packed so that small reads from it are fast, for some more room.
    pub read_in_pieces: bool,
}

/// A snapshot that was taken, and is durable.
#[derive(Debug, Clone)]
pub struct Taken {
    /// What the catalog says of it.
    pub snapshot: Snapshot,
    /// Whether an image changed while it was read.
    pub changed_meanwhile: bool,
    /// What of a folder was written for vac's tools, if it was asked for.
    pub vac: Option<ArchivedVac>,
}

/// Why a snapshot was not taken. Earlier ones are as they were.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// The image could not be archived.
    #[error(transparent)]
    Image(#[from] ArchiveImageError),
    /// The folder could not be archived.
    #[error(transparent)]
    Folder(#[from] ArchiveFolderError),
    /// The log did not take the last of it.
    #[error("the snapshot could not be stored")]
    WriteOut(#[source] AppendError),
    /// The catalog could not be written.
    #[error(transparent)]
    Catalog(#[from] SaveCatalogError),
    /// The store's size could not be told.
    #[error(transparent)]
    Stats(#[from] OpenLogError),
    /// There was no randomness for an id.
    #[error("the system gives no random bytes")]
    Random(#[source] std::io::Error),
}

/// Why it is not known what another process has archived since.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The log could not be read.
    #[error("the log cannot be followed")]
    Log(#[from] OpenError),
    /// The catalog could not be read.
    #[error(transparent)]
    Catalog(#[from] LoadCatalogError),
}

/// How things stood before a snapshot was begun.
pub(crate) struct Begun {
    at: Timestamp,
    log_bytes: u64,
    new_bytes: u64,
}

/// What was archived, before it has a place in the catalog.
struct Content {
    content: SnapshotContent,
    size: u64,
    file_count: u64,
    problem_count: u64,
}

impl Archive {
    /// Reads the catalog of a store. One that is open to be written is not given with less than all of it. With a key that may not read, it can only be added to, and shows nothing but what was
    /// added since.
    ///
    /// # Errors
    /// [`LoadCatalogError`].
    pub fn open(store: Store) -> Result<Self, LoadCatalogError> {
        let catalog = if store.role().allows(Permission::Read) {
            let catalog = Catalog::load_all(&store, &store.catalogs())?;
            if store.is_open_to_write() { catalog.require_all()? } else { catalog }
        } else {
            Catalog::unread(&store.newest_catalogs())
        };
        Ok(Self::with_catalog(Arc::new(store), catalog))
    }

    /// The store with a catalog that was read in another way, as from a replica where it is lost here.
    #[must_use]
    pub fn with_catalog(store: Arc<Store>, catalog: Catalog) -> Self {
        let roots = store.catalogs();
        Self { store, catalog, roots }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The store's blocks, for whoever has to own them: a reader of an image, that lives as long as somebody looks into it.
    #[must_use]
    pub fn blocks(&self) -> Arc<Store> {
        Arc::clone(&self.store)
    }

    /// Closes the store. One whose blocks somebody else still reads is only synced: the next opening takes longer.
    ///
    /// # Errors
    /// [`CloseError`].
    pub fn close(self) -> Result<(), CloseError> {
        match Arc::try_unwrap(self.store) {
            Ok(store) => store.close(),
            Err(shared) => Ok(shared.sync()?),
        }
    }

    /// All snapshots.
    #[must_use]
    pub fn snapshots(&self) -> &[Snapshot] {
        self.catalog.snapshots()
    }

    /// Takes in what another process has archived since, and says whether there are other snapshots now. Of a store that is open
    /// for writing nothing is taken in: nobody else can write to it.
    ///
    /// # Errors
    /// [`FollowError`]; what was known before stays known, and the next call tries again.
    pub fn follow(&mut self) -> Result<bool, FollowError> {
        self.store.follow()?;
        let roots = self.store.catalogs();
        if !self.store.role().allows(Permission::Read) || roots == self.roots {
            return Ok(false);
        }
        let catalog = Catalog::load_all(&*self.store, &roots)?;
        self.roots = roots;
        let is_new = catalog != self.catalog;
        self.catalog = catalog;
        Ok(is_new)
    }

    /// Takes a snapshot of a disk image, in blocks of `block_bytes`. Durable when this returns.
    ///
    /// # Errors
    /// [`TakeError`].
    pub fn take_image(
        &mut self,
        source: &ImageSource,
        block_bytes: u32,
        request: Request,
        progress: &Progress,
    ) -> Result<Taken, TakeError> {
        let begun = self.begin()?;
        let workers = self.store.world().workers.clone();
        self.store.expect_reads_in_pieces(request.read_in_pieces);
        let image = archive_image(&*self.store, workers.as_ref(), source, block_bytes, progress)?;
        let content = Content {
            content: SnapshotContent::Image(image.entry),
            size: image.entry.size(),
            file_count: 0,
            problem_count: u64::from(image.changed_meanwhile),
        };
        let snapshot = self.finish(begun, content, request)?;
        Ok(Taken { snapshot, changed_meanwhile: image.changed_meanwhile, vac: None })
    }

    /// Takes a snapshot of a folder; what has not changed since the last one of the same name is not read again, unless
    /// `reread`. Durable when this returns.
    ///
    /// # Errors
    /// [`TakeError`]. Files that cannot be read are reported, counted, and no error.
    pub fn take_folder(
        &mut self,
        source: &Path,
        options: FolderOptions,
        reread: bool,
        request: Request,
        watch: Watch<'_>,
    ) -> Result<Taken, TakeError> {
        let begun = self.begin()?;
        let previous = if reread { None } else { self.previous_root(&request) };
        let remembered = [b"last night\0", request.name.as_bytes(), b"\0", &request.source].concat();
        let last_night = if self.store.role().allows(Permission::Read) {
            None
        } else {
            Some(LastNight::load(&self.store, &remembered, !reread).map_err(TakeError::Random)?)
        };
        let options = FolderOptions { began_at: begun.at, lost: self.store.lost_blocks(), ..options };
        let before = Before { root: previous.as_ref(), last_night: last_night.clone() };
        let workers = self.store.world().workers.clone();
        self.store.expect_reads_in_pieces(false);
        let folder = archive_folder_after(&*self.store, workers.as_ref(), source, &before, &options, watch)?;
        let vac = folder.vac;
        // Nothing else leads to what vac's tools need besides the files' bytes.
        let tags = request.tags.into_iter().chain(vac.map(|vac| format!("vac={}", vac.score))).collect();
        let request = Request { tags, ..request };
        let content = Content {
            size: folder.counts.bytes,
            file_count: folder.counts.file_count + folder.counts.folder_count,
            problem_count: folder.counts.problem_count,
            content: SnapshotContent::Folder(Box::new(folder.root)),
        };
        let snapshot = self.finish(begun, content, request)?;
        // Only now: what is remembered must be there.
        if let Some(Err(error)) = last_night.map(|night| night.save(&self.store, &remembered)) {
            tracing::warn!(%error, "this night is not remembered; the next one reads every file again");
        }
        Ok(Taken { snapshot, changed_meanwhile: false, vac })
    }

    /// An identity for a snapshot that is yet to be taken.
    ///
    /// # Errors
    /// [`TakeError::Random`].
    pub fn draw_id(&self) -> Result<SnapshotId, TakeError> {
        let mut id = [0; 16];
        self.store.world().random.fill(&mut id).map_err(TakeError::Random)?;
        Ok(SnapshotId(id))
    }

    /// The root of the newest snapshot of the same name and source.
    fn previous_root(&self, request: &Request) -> Option<Node> {
        let same = |snapshot: &&Snapshot| snapshot.name == request.name && snapshot.source == request.source;
        self.catalog.snapshots().iter().rev().filter(same).find_map(|snapshot| match &snapshot.content {
            SnapshotContent::Folder(root) => Some((**root).clone()),
            SnapshotContent::Image(_) => None,
        })
    }

    pub(crate) fn begin(&self) -> Result<Begun, TakeError> {
        let log_bytes = self.store.stats()?.log_bytes;
        let (_, new_bytes) = self.store.session_growth();
        Ok(Begun { at: self.store.world().clock.now(), log_bytes, new_bytes })
    }

    /// Enters it in the catalog, which makes all of it durable first.
    fn finish(&mut self, begun: Begun, content: Content, request: Request) -> Result<Snapshot, TakeError> {
        let id = match request.id {
            Some(id) => id,
            None => self.draw_id()?,
        };
        let snapshot = Snapshot {
            id,
            name: request.name,
            time: request.time.unwrap_or(begun.at),
            content: content.content,
            source: request.source,
            host: request.host,
            tags: request.tags,
            size: content.size,
            file_count: content.file_count,
            problem_count: content.problem_count,
            machine: request.machine,
            growth: None,
            elapsed: 0,
        };
        self.enter(begun, snapshot)
    }

    /// Enters a snapshot in the catalog with what it has cost here.
    pub(crate) fn enter(&mut self, begun: Begun, snapshot: Snapshot) -> Result<Snapshot, TakeError> {
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
        self.catalog.add(&*self.store, snapshot.clone())?;
        Ok(snapshot)
    }
}
