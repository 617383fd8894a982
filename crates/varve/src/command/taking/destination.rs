//! The destination of snapshots: a store that is open for writing, or a Venti server.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_archive::{
    Archive, ChangeError, NameTaken, RemoteArchive, Snapshot, SnapshotId, SnapshotRequest, TagChanges,
    TakeError, TakenSnapshot,
};
use varve_content::Progress;
use varve_content::folder::{FolderOptions, StreamOwner, Watch};
use varve_content::image::ImageSource;
use varve_proxy::RecordingStore;
use varve_session::{LockedRootsFile, StoreLocation, UsageError};

use super::trace_file;
use crate::invocation::Invocation;
use crate::say;

/// The block size of disks at a Venti server: the usual one there.
const VENTI_BLOCK_BYTES: u32 = 8 << 10;

pub(super) enum SnapshotDestination {
    Store(Box<Archive>),
    /// A Venti server, with the locked file in which the catalog's root is noted.
    Elsewhere(Box<RemoteArchive>, LockedRootsFile),
}

impl SnapshotDestination {
    pub(super) fn open(invocation: &Invocation) -> Result<Self> {
        let StoreLocation::Venti(address) = invocation.session.home()? else {
            return Ok(Self::Store(Box::new(invocation.session.write()?)));
        };
        let lock = || invocation.session.roots(&address)?.lock();
        let roots = invocation.session.until_free(|| true, lock)?;
        let blocks = invocation.session.venti(&address)?;
        let elsewhere = roots.open(blocks)?;
        Ok(Self::Elsewhere(Box::new(elsewhere), roots))
    }

    /// Records the work of later snapshots as a trace, in a new file. The recording shares the
    /// store, so it must end before this is closed.
    pub(super) fn record(&mut self, file: &Path) -> Result<Arc<RecordingStore>> {
        let Self::Store(archive) = self else {
            let text = "--trace records the work of a store on this machine: at a Venti server, record in a proxy before it (docs/guide/venti.md)";
            bail!(UsageError(text.into()));
        };
        let output = trace_file::create(file).with_context(|| format!("cannot make {}", file.display()))?;
        let blocks = archive.blocks();
        let clock = Arc::clone(&blocks.world().clock);
        let random = Arc::clone(&blocks.world().random);
        let maker = trace_file::maker();
        let recording = Arc::new(RecordingStore::new(blocks, output, &maker, None, &*random, clock)?);
        archive.set_front(Arc::clone(&recording) as _);
        Ok(recording)
    }

    pub(super) fn snapshots(&self) -> &[Snapshot] {
        match self {
            Self::Store(archive) => archive.snapshots(),
            Self::Elsewhere(elsewhere, _) => elsewhere.snapshots(),
        }
    }

    /// The earlier snapshots of the series of a request, without those that a lesser key added in
    /// its name.
    pub(super) fn earlier(&self, request: &SnapshotRequest) -> Vec<&Snapshot> {
        let is_own = |snapshot: &&Snapshot| match self {
            Self::Store(archive) => !archive.is_of_lesser_key(snapshot),
            Self::Elsewhere(..) => true,
        };
        let of_series = |snapshot: &&Snapshot| snapshot.is_of_series(&request.host, &request.name);
        self.snapshots().iter().filter(of_series).filter(is_own).collect()
    }

    pub(super) fn check_name(&self, request: &SnapshotRequest) -> Result<(), NameTaken> {
        match self {
            Self::Store(archive) => archive.check_name(request),
            Self::Elsewhere(elsewhere, _) => elsewhere.check_name(request),
        }
    }

    pub(super) fn take_folder(
        &mut self,
        folder: &Path,
        options: FolderOptions,
        request: SnapshotRequest,
        watch: Watch<'_>,
    ) -> Result<TakenSnapshot, TakeError> {
        match self {
            Self::Store(archive) => archive.take_folder(folder, options, request, watch),
            Self::Elsewhere(elsewhere, _) => {
                let options = FolderOptions { disk_block_bytes: VENTI_BLOCK_BYTES, ..options };
                elsewhere.take_folder(folder, options, request, watch)
            }
        }
    }

    pub(super) fn take_stream(
        &mut self,
        stream: &mut dyn Read,
        owner: StreamOwner,
        request: SnapshotRequest,
        progress: &Progress,
    ) -> Result<TakenSnapshot, TakeError> {
        match self {
            Self::Store(archive) => archive.take_stream(stream, owner, request, progress),
            Self::Elsewhere(elsewhere, _) => elsewhere.take_stream(stream, owner, request, progress),
        }
    }

    pub(super) fn take_image(
        &mut self,
        image: &ImageSource,
        request: SnapshotRequest,
        progress: &Progress,
    ) -> Result<TakenSnapshot, TakeError> {
        match self {
            Self::Store(archive) => {
                let block_bytes = archive.store().config().block_bytes;
                archive.take_image(image, block_bytes, request, progress)
            }
            Self::Elsewhere(elsewhere, _) => {
                elsewhere.take_image(image, VENTI_BLOCK_BYTES, request, progress)
            }
        }
    }

    pub(super) fn change(
        &mut self,
        ids: &[SnapshotId],
        changes: &TagChanges,
    ) -> Result<Vec<Snapshot>, ChangeError> {
        match self {
            Self::Store(archive) => archive.change(ids, changes),
            Self::Elsewhere(elsewhere, _) => elsewhere.change(ids, changes),
        }
    }

    /// Notes the root of the catalog at a Venti server. A store's log records it by itself.
    pub(super) fn note_root(&mut self, invocation: &Invocation) -> Result<()> {
        if let Self::Elsewhere(elsewhere, roots) = self
            && let Some(root) = elsewhere.root()
        {
            roots.add(root)?;
            if invocation.json {
                say::record("catalog_root", json!({ "root": format!("catalog:{root}") }));
            } else if !invocation.quiet {
                say!("catalog:{root}");
            }
        }
        Ok(())
    }

    pub(super) fn close(self) -> Result<()> {
        match self {
            Self::Store(archive) => Ok(archive.close()?),
            Self::Elsewhere(..) => Ok(()),
        }
    }
}
