//! Snapshots in any block store, without a log in which the newest catalog could be found. The
//! caller keeps the score of the catalog's root, and passes it the next time.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use varve_block::{BlockName, BlockStore, BlockType, Score};
use varve_content::Progress;
use varve_content::folder::{FolderOptions, StreamOwner, Watch, archive_folder, archive_stream};
use varve_content::image::{ImageSource, archive_image};
use varve_tree::Cutting;
use varve_world::{Timestamp, World};

use crate::archive::change::{ChangeError, changed};
use crate::catalog::catalog_root::Catalog;
use crate::catalog::root_record::LoadCatalogError;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::snapshot_id::SnapshotId;
use crate::catalog::snapshot_request::SnapshotRequest;
use crate::catalog::source_names::{NameTaken, check_name};
use crate::catalog::tags::TagChanges;
use crate::checking::verify::{Harm, VerifyError, verify_blocks};
use crate::taking::archived::ArchivedSource;
use crate::taking::take::{TakeError, TakenSnapshot};

/// Cuts files into blocks that every Venti server accepts: 16, 32 and 56 KiB.
const VENTI_CUTTING: Cutting = Cutting::new(16 << 10, 32 << 10, 56 << 10).expect("even and ascending");

/// A block store and its catalog.
pub struct RemoteArchive {
    blocks: Arc<dyn BlockStore>,
    world: World,
    catalog: Catalog,
    root: Option<Score>,
}

impl RemoteArchive {
    /// Reads the catalog that a root leads to. Without a root, the catalog is empty. Uses only the
    /// clock, the random bytes and the workers of the world.
    ///
    /// # Errors
    /// [`LoadCatalogError`]
    pub fn open(
        blocks: Arc<dyn BlockStore>,
        world: World,
        root: Option<Score>,
    ) -> Result<Self, LoadCatalogError> {
        let name = root.map(|score| BlockName { score, block_type: BlockType::CATALOG });
        let catalog = Catalog::load(&*blocks, name)?;
        Ok(Self { blocks, world, catalog, root })
    }

    /// All snapshots, in the order in which they were finished.
    #[must_use]
    pub fn snapshots(&self) -> &[Snapshot] {
        self.catalog.snapshots()
    }

    /// Reads the catalog again if the root has changed. Returns whether it has.
    ///
    /// # Errors
    /// [`LoadCatalogError`]; the catalog is then unchanged.
    pub fn follow(&mut self, root: Option<Score>) -> Result<bool, LoadCatalogError> {
        if root == self.root {
            return Ok(false);
        }
        let name = root.map(|score| BlockName { score, block_type: BlockType::CATALOG });
        self.catalog = Catalog::load(&*self.blocks, name)?;
        self.root = root;
        Ok(true)
    }

    /// Checks that all blocks that the snapshots need exist. With `reads`, reads every block, which
    /// compares it with its score. Missing and unreadable blocks are returned as harm.
    ///
    /// # Errors
    /// [`VerifyError`] if the block store does not answer.
    pub fn verify(&self, reads: bool, progress: &Progress) -> Result<Vec<Harm>, VerifyError> {
        verify_blocks(&*self.blocks, self.snapshots(), reads, progress)
    }

    /// The score of the newest root, which the caller keeps after each snapshot.
    #[must_use]
    pub fn root(&self) -> Option<Score> {
        self.root
    }

    /// Takes a snapshot of a disk image. All of it is durable on return, except the score of the
    /// root, which the caller must keep.
    ///
    /// # Errors
    /// [`TakeError`]
    pub fn take_image(
        &mut self,
        source: &ImageSource,
        block_bytes: u32,
        request: SnapshotRequest,
        progress: &Progress,
    ) -> Result<TakenSnapshot, TakeError> {
        let at = self.world.clock.now();
        let image =
            archive_image(&*self.blocks, self.world.workers.as_ref(), source, block_bytes, None, progress)?;
        self.finish(at, image.into(), request)
    }

    /// Takes a snapshot of a folder. Files that are unchanged since the last snapshot with the same
    /// name are not read again, unless `options.reread` is set. All of it is durable on return,
    /// except the score of the root, which the caller must keep.
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
        let at = self.world.clock.now();
        let previous = self.catalog.newest_folder(&request, |_| true).cloned();
        let options = FolderOptions { began_at: at, cutting: VENTI_CUTTING, ..options };
        let workers = self.world.workers.as_ref();
        let folder = archive_folder(&*self.blocks, workers, source, previous.as_ref(), &options, watch)?;
        self.finish(at, folder.into(), request)
    }

    /// Takes a snapshot of a whole stream, as a file. If the stream fails, there is no snapshot.
    ///
    /// # Errors
    /// [`TakeError`]
    pub fn take_stream(
        &mut self,
        stream: &mut dyn Read,
        owner: StreamOwner,
        request: SnapshotRequest,
        progress: &Progress,
    ) -> Result<TakenSnapshot, TakeError> {
        let at = self.world.clock.now();
        let folder = archive_stream(&*self.blocks, stream, &request.name, owner, VENTI_CUTTING, progress)?;
        self.finish(at, folder.into(), request)
    }

    /// Checks that the name of a request is free for it, like
    /// [`Archive::check_name`](crate::Archive::check_name).
    ///
    /// # Errors
    /// [`NameTaken`]
    pub fn check_name(&self, request: &SnapshotRequest) -> Result<(), NameTaken> {
        check_name(self.snapshots().iter(), request)
    }

    /// Changes the tags and comments of these snapshots, and returns the ones that have changed.
    /// The caller must keep the score of the new root.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing is changed then.
    pub fn change(&mut self, ids: &[SnapshotId], changes: &TagChanges) -> Result<Vec<Snapshot>, ChangeError> {
        let changed = changed(self.snapshots(), ids, changes)?;
        if !changed.is_empty() {
            self.root = Some(self.catalog.change(&*self.blocks, &changed)?.score);
        }
        Ok(changed)
    }

    /// Adds the snapshot to the catalog, which first makes all of it durable. The block store does
    /// not report which blocks were new.
    fn finish(
        &mut self,
        began_at: Timestamp,
        archived: ArchivedSource,
        request: SnapshotRequest,
    ) -> Result<TakenSnapshot, TakeError> {
        let (changed_meanwhile, vac, counts) = (archived.changed_meanwhile, archived.vac, archived.counts);
        let left_out = archived.left_out.clone();
        let snapshot =
            archived.into_snapshot(request, began_at, &*self.world.random).map_err(TakeError::Random)?;
        let elapsed = self.world.clock.now().0.saturating_sub(began_at.0);
        let snapshot = Snapshot { elapsed: u64::try_from(elapsed).unwrap_or(0), ..snapshot };
        self.root = Some(self.catalog.add(&*self.blocks, snapshot.clone())?.score);
        Ok(TakenSnapshot { snapshot, changed_meanwhile, vac, left_out, counts })
    }
}
