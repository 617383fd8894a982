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
use varve_content::image::{ArchiveImageError, ImageSource, archive_image};
use varve_content::vac::ArchivedVac;
use varve_log::{AppendError, OpenLogError};
use varve_store::Permission;
use varve_world::Timestamp;

use crate::archive::Archive;
use crate::catalog::catalog_root::SaveCatalogError;
use crate::catalog::snapshot::{Growth, Snapshot};
use crate::catalog::snapshot_id::SnapshotId;
use crate::catalog::snapshot_request::SnapshotRequest;
use crate::taking::archived::ArchivedSource;
use crate::taking::last_snapshot_record::LastSnapshotRecord;

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

/// The state of the store before a snapshot was begun.
pub(crate) struct StoreBefore {
    at: Timestamp,
    log_bytes: u64,
    new_bytes: u64,
}

impl Archive {
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
        let workers = self.store().world().workers.clone();
        self.store().expect_reads_in_pieces(request.read_in_pieces);
        let newest = self.catalog().newest_image_like(&request).copied();
        let replaced = newest.as_ref().filter(|_| self.store().config().deltas);
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
        let previous = self.catalog().newest_folder(&request, |snapshot| self.believes(snapshot)).cloned();
        let remembered = [b"last night\0", request.name.as_bytes(), b"\0", &request.source].concat();
        let last_record = if self.store().role().allows(Permission::Read) {
            None
        } else {
            Some(
                LastSnapshotRecord::load(self.store(), &remembered, !options.reread)
                    .map_err(TakeError::Random)?,
            )
        };
        let options = FolderOptions {
            began_at: begun.at,
            lost: self.store().lost_blocks(),
            disk_block_bytes: self.store().config().block_bytes,
            disk_reads: request.expected_reads(),
            makes_deltas: self.store().config().deltas,
            ..options
        };
        let before = EarlierSnapshots {
            root: previous.as_ref(),
            remembered: last_record.as_ref().map(|record| record as _),
        };
        let workers = self.store().world().workers.clone();
        self.store().expect_reads_in_pieces(false);
        let folder =
            archive_folder_after(self.contents(), workers.as_ref(), source, &before, &options, watch)?;
        let taken = self.finish(begun, folder.into(), request)?;
        // The record is saved last, because everything that it leads to must exist.
        if let Some(Err(error)) = last_record.map(|record| record.save(self.store(), &remembered)) {
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
        self.store().expect_reads_in_pieces(false);
        let workers = self.store().world().workers.clone();
        let folder = archive_described(self.store(), workers.as_ref(), tree, watch)?;
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
        self.store().expect_reads_in_pieces(false);
        let cutting = FolderOptions::default().cutting;
        let folder = archive_stream(self.contents(), stream, &request.name, owner, cutting, progress)?;
        self.finish(begun, folder.into(), request)
    }

    /// Draws an id for a future snapshot.
    ///
    /// # Errors
    /// [`TakeError::Random`].
    pub fn draw_id(&self) -> Result<SnapshotId, TakeError> {
        SnapshotId::draw(&*self.store().world().random).map_err(TakeError::Random)
    }

    pub(crate) fn begin(&self) -> Result<StoreBefore, TakeError> {
        let log_bytes = self.store().stats()?.log_bytes;
        let (_, new_bytes) = self.store().session_growth();
        Ok(StoreBefore { at: self.store().world().clock.now(), log_bytes, new_bytes })
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
            .into_snapshot(request, begun.at, &*self.store().world().random)
            .map_err(TakeError::Random)?;
        Ok(TakenSnapshot { snapshot: self.enter(begun, snapshot)?, changed_meanwhile, vac, left_out, counts })
    }

    /// Adds a snapshot to the catalog, with the number of bytes that it added to the store.
    pub(crate) fn enter(&mut self, begun: StoreBefore, snapshot: Snapshot) -> Result<Snapshot, TakeError> {
        self.store().write_out().map_err(TakeError::WriteOut)?;
        let elapsed = self.store().world().clock.now().0.saturating_sub(begun.at.0);
        let snapshot = Snapshot {
            growth: Some(Growth {
                new_bytes: self.store().session_growth().1 - begun.new_bytes,
                stored_bytes: self.store().stats()?.log_bytes.saturating_sub(begun.log_bytes),
            }),
            elapsed: u64::try_from(elapsed).unwrap_or(0),
            ..snapshot
        };
        let snapshot = self.catalog().with_own_origin(self.store(), snapshot);
        self.write_catalog(self.catalog().bring_back(snapshot.clone()))?;
        Ok(snapshot)
    }
}
