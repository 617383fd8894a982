//! Taking a snapshot: the content is archived first, and then the snapshot is added to the catalog.
//!
//! Everything that a snapshot leads to is durable before the catalog's new root is written, and the
//! root is written last. A crash therefore leaves the old catalog or the new one.

use std::io::Read;
use std::path::Path;

use varve_content::Progress;
use varve_content::folder::{
    ArchiveFolderError, DescribedTree, EarlierSnapshots, FolderCounts, FolderOptions, LeftOutOfFolder,
    StreamOwner, Watch, archive_described, archive_folder_after, archive_stream,
};
use varve_content::image::{ArchiveImageError, ImageCut, ImageSource, archive_image, archive_image_by_files};
use varve_content::vac::ArchivedVac;
use varve_world::Timestamp;

use crate::archive::Archive;
use crate::archive::home::{HomeError, SnapshotHome};
use crate::catalog::catalog_root::SaveCatalogError;
use crate::catalog::snapshot::{Growth, Snapshot};
use crate::catalog::snapshot_id::SnapshotId;
use crate::catalog::snapshot_request::SnapshotRequest;
use crate::taking::archived::ArchivedSource;

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
    /// The home did not accept the last of the data.
    #[error("the snapshot could not be stored")]
    WriteOut(#[source] HomeError),
    /// The catalog could not be written.
    #[error("{0}")]
    Catalog(#[from] SaveCatalogError),
    /// The size of the store could not be determined.
    #[error("{0}")]
    Stats(#[source] HomeError),
    /// There were no random bytes for an id.
    #[error("the system provides no random bytes")]
    Random(#[source] std::io::Error),
}

/// The state of the home before a snapshot was begun.
pub(crate) struct HomeBefore {
    at: Timestamp,
    growth: Option<Growth>,
}

impl<H: SnapshotHome + ?Sized> Archive<H> {
    /// Takes a snapshot of a disk image. It is durable on return.
    ///
    /// # Errors
    /// [`TakeError`].
    pub fn take_image<'a>(
        &mut self,
        source: &ImageSource,
        cut: impl Into<ImageCut<'a>>,
        request: SnapshotRequest,
        progress: &Progress,
    ) -> Result<TakenSnapshot, TakeError> {
        let begun = self.begin()?;
        self.home().expect_reads_in_pieces(request.read_in_pieces);
        let form = self.home().content_form();
        let (blocks, workers) = (&*self.contents(), self.home().world().workers.as_ref());
        let image = match cut.into() {
            ImageCut::Fixed(block_bytes) => {
                let replaced = self.catalog().newest_image_like(&request).filter(|_| form.makes_deltas);
                archive_image(blocks, workers, source, block_bytes, replaced, progress)?
            }
            ImageCut::AtFiles(places) => {
                let sizes = (form.cutting, form.disk_block_bytes);
                archive_image_by_files(blocks, workers, source, places, sizes, progress)?
            }
        };
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
        let previous = self.catalog().newest_folder(&request, |snapshot| self.believes(snapshot)).cloned();
        let remembered = [b"last night\0", request.name.as_bytes(), b"\0", &request.source].concat();
        let record = self.home().last_record(&remembered, !options.reread).map_err(TakeError::Random)?;
        let form = self.home().content_form();
        let options = FolderOptions {
            began_at: begun.at,
            lost: self.home().lost_blocks(),
            cutting: form.cutting,
            disk_block_bytes: form.disk_block_bytes,
            disk_reads: request.expected_reads(),
            makes_deltas: form.makes_deltas,
            ..options
        };
        let before = EarlierSnapshots {
            root: previous.as_ref(),
            remembered: record.as_ref().map(|record| record as _),
        };
        self.home().expect_reads_in_pieces(false);
        let workers = self.home().world().workers.as_ref();
        let folder = archive_folder_after(&*self.contents(), workers, source, &before, &options, watch)?;
        let taken = self.finish(begun, folder.into(), request)?;
        // The record is saved last, because everything that it leads to must exist.
        if let Some(Err(error)) = record.map(|record| record.save()) {
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
        self.home().expect_reads_in_pieces(false);
        let workers = self.home().world().workers.as_ref();
        let folder = archive_described(&*self.contents(), workers, tree, watch)?;
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
        self.home().expect_reads_in_pieces(false);
        let cutting = self.home().content_form().cutting;
        let folder = archive_stream(&*self.contents(), stream, &request.name, owner, cutting, progress)?;
        self.finish(begun, folder.into(), request)
    }

    /// Draws an id for a future snapshot.
    ///
    /// # Errors
    /// [`TakeError::Random`].
    pub fn draw_id(&self) -> Result<SnapshotId, TakeError> {
        SnapshotId::draw(&*self.home().world().random).map_err(TakeError::Random)
    }

    pub(crate) fn begin(&self) -> Result<HomeBefore, TakeError> {
        let growth = self.home().growth().map_err(TakeError::Stats)?;
        Ok(HomeBefore { at: self.home().world().clock.now(), growth })
    }

    /// Adds the snapshot to the catalog, which first makes everything durable.
    fn finish(
        &mut self,
        begun: HomeBefore,
        archived: ArchivedSource,
        request: SnapshotRequest,
    ) -> Result<TakenSnapshot, TakeError> {
        let (changed_meanwhile, vac, counts) = (archived.changed_meanwhile, archived.vac, archived.counts);
        let left_out = archived.left_out.clone();
        let snapshot = archived
            .into_snapshot(request, begun.at, &*self.home().world().random)
            .map_err(TakeError::Random)?;
        Ok(TakenSnapshot { snapshot: self.enter(begun, snapshot)?, changed_meanwhile, vac, left_out, counts })
    }

    /// Adds a snapshot to the catalog, with the number of bytes that it added to the home.
    pub(crate) fn enter(&mut self, begun: HomeBefore, snapshot: Snapshot) -> Result<Snapshot, TakeError> {
        self.home().write_out().map_err(TakeError::WriteOut)?;
        let elapsed = self.home().world().clock.now().since(begun.at);
        let now = self.home().growth().map_err(TakeError::Stats)?;
        let growth = begun.growth.zip(now).map(|(before, now)| Growth {
            new_bytes: now.new_bytes.saturating_sub(before.new_bytes),
            stored_bytes: now.stored_bytes.saturating_sub(before.stored_bytes),
        });
        let snapshot =
            Snapshot { growth, elapsed: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX), ..snapshot };
        let snapshot = self.home().with_own_origin(self.catalog(), snapshot);
        self.write_catalog(self.catalog().bring_back(snapshot.clone()))?;
        Ok(snapshot)
    }
}
