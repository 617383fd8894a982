//! Snapshots in blocks that somebody else keeps: any block store, without a log in which the newest catalog could be found. Whoever takes snapshots there
//! remembers the score of the catalog's root, and gives it back the next time.

use std::path::Path;
use std::sync::Arc;

use varve_block::{BlockName, BlockStore, BlockType, Score};
use varve_tree::Cutting;
use varve_world::World;

use crate::catalog::{Catalog, LoadCatalogError};
use crate::folder::{FolderOptions, Watch, archive_folder};
use crate::image::{ImageSource, archive_image};
use crate::progress::Progress;
use crate::snapshot::{Snapshot, SnapshotContent, SnapshotId};
use crate::take::{Request, TakeError, Taken};
use crate::verify::{Harm, VerifyError, verify_blocks};

/// Files in blocks that every Venti takes: 16, 32 and 56 KiB.
const VENTI_CUTTING: Cutting = Cutting::new(16 << 10, 32 << 10, 56 << 10).expect("even and ascending");

/// Blocks elsewhere, with their catalog.
pub struct Elsewhere {
    blocks: Arc<dyn BlockStore>,
    world: World,
    catalog: Catalog,
    root: Option<Score>,
}

impl Elsewhere {
    /// Reads the catalog that a root leads to; without one, there is none yet. Of the world only clock, randomness and workers are used.
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

    /// All snapshots.
    #[must_use]
    pub fn snapshots(&self) -> &[Snapshot] {
        self.catalog.snapshots()
    }

    /// Reads the catalog anew, if another root is the newest now. Returns whether it is.
    ///
    /// # Errors
    /// [`LoadCatalogError`]; what was known before stays known.
    pub fn follow(&mut self, root: Option<Score>) -> Result<bool, LoadCatalogError> {
        if root == self.root {
            return Ok(false);
        }
        let name = root.map(|score| BlockName { score, block_type: BlockType::CATALOG });
        self.catalog = Catalog::load(&*self.blocks, name)?;
        self.root = root;
        Ok(true)
    }

    /// Whether all that the snapshots lead to is there; with `reads`, every block of it is read, which compares it with its score. What is not
    /// there, or cannot be read, harms somebody: that is the answer.
    ///
    /// # Errors
    /// [`VerifyError`], when nobody answers.
    pub fn verify(&self, reads: bool, progress: &Progress) -> Result<Vec<Harm>, VerifyError> {
        verify_blocks(&*self.blocks, self.snapshots(), reads, progress)
    }

    /// The score of the newest root: to be remembered once a snapshot was taken.
    #[must_use]
    pub fn root(&self) -> Option<Score> {
        self.root
    }

    /// Takes a snapshot of a disk image. Durable when this returns, but for the root's score, which is the caller's to remember.
    ///
    /// # Errors
    /// [`TakeError`]
    pub fn take_image(
        &mut self,
        source: &ImageSource,
        block_bytes: u32,
        request: Request,
        progress: &Progress,
    ) -> Result<Taken, TakeError> {
        let at = self.world.clock.now();
        let image = archive_image(&*self.blocks, self.world.workers.as_ref(), source, block_bytes, progress)?;
        let problem_count = u64::from(image.changed_meanwhile);
        let content = (SnapshotContent::Image(image.entry), image.entry.size(), 0, problem_count);
        let snapshot = self.finish(at, content, request)?;
        Ok(Taken { snapshot, changed_meanwhile: image.changed_meanwhile, vac: None })
    }

    /// Takes a snapshot of a folder; what has not changed since the last one of the same name is not read again, unless `reread`. Durable when this
    /// returns, but for the root's score, which is the caller's to remember.
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
        let at = self.world.clock.now();
        let same = |snapshot: &&Snapshot| snapshot.name == request.name && snapshot.source == request.source;
        let roots = self.catalog.snapshots().iter().rev().filter(same);
        let previous = roots.filter(|_| !reread).find_map(|snapshot| match &snapshot.content {
            SnapshotContent::Folder(root) => Some((**root).clone()),
            SnapshotContent::Image(_) => None,
        });
        let options = FolderOptions { began_at: at, cutting: VENTI_CUTTING, ..options };
        let workers = self.world.workers.as_ref();
        let folder = archive_folder(&*self.blocks, workers, source, previous.as_ref(), &options, watch)?;
        let (counts, vac) = (folder.counts, folder.vac);
        let file_count = counts.file_count + counts.folder_count;
        let content = SnapshotContent::Folder(Box::new(folder.root));
        let snapshot = self.finish(at, (content, counts.bytes, file_count, counts.problem_count), request)?;
        Ok(Taken { snapshot, changed_meanwhile: false, vac })
    }

    /// Enters it in the catalog, which makes all of it durable first.
    fn finish(
        &mut self,
        at: varve_world::Timestamp,
        (content, size, file_count, problem_count): (SnapshotContent, u64, u64, u64),
        request: Request,
    ) -> Result<Snapshot, TakeError> {
        let id = match request.id {
            Some(id) => id,
            None => {
                let mut id = [0; 16];
                self.world.random.fill(&mut id).map_err(TakeError::Random)?;
                SnapshotId(id)
            }
        };
        let elapsed = self.world.clock.now().0.saturating_sub(at.0);
        let snapshot = Snapshot {
            id,
            name: request.name,
            time: request.time.unwrap_or(at),
            content,
            source: request.source,
            host: request.host,
            tags: request.tags,
            size,
            file_count,
            problem_count,
            // Whoever keeps the blocks does not say which were new.
            growth: None,
            elapsed: u64::try_from(elapsed).unwrap_or(0),
            machine: request.machine,
        };
        self.root = Some(self.catalog.add(&*self.blocks, snapshot.clone())?.score);
        Ok(snapshot)
    }
}
