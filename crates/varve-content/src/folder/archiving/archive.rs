//! Archives a folder: starts the walk, and the workers that read its files.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, OFlags};
use varve_block::BlockStore;
use varve_tree::VENTI_SCORE_BYTES;
use varve_world::Workers;

use super::options::FolderOptions;
use super::outcome::{ArchiveFolderError, ArchivedFolder};
use super::pipeline;
use super::read::FileReader;
use super::remembered::RememberedFiles;
use super::walk::{DoneWalkJob, FolderWalker, WalkJob, WalkSetting};
use crate::folder::source::selection::Selection;
use crate::folder::source::status::{NodeSettings, Status};
use crate::folder::watch::Watch;
use crate::image::image_shape;
use crate::records::node::{Node, NodeKind};

/// Archives the folder `source`. Only the returned root leads to the result: nothing else in the
/// store names it.
///
/// `previous` is the root of an earlier snapshot of the same folder. A file with the same path,
/// size, times and inode as there is not opened, and keeps its content. Unreadable parts of the
/// earlier snapshot count as absent.
///
/// A file that is unreadable, changes or vanishes is reported, and its node records the problem.
/// The rest is archived. Blocks are put roughly in the order of the walk: depth first, names in the
/// order of their bytes. Memory holds a bounded number of files whatever their size, but all names
/// of one folder, and a node for each file with several names.
///
/// # Errors
/// [`ArchiveFolderError`]. Blocks that were stored before the error speed up the next attempt.
pub fn archive_folder(
    blocks: &dyn BlockStore,
    workers: &dyn Workers,
    source: &Path,
    previous: Option<&Node>,
    options: &FolderOptions,
    watch: Watch<'_>,
) -> Result<ArchivedFolder, ArchiveFolderError> {
    archive_folder_after(
        blocks,
        workers,
        source,
        &EarlierSnapshots { root: previous, remembered: None },
        options,
        watch,
    )
}

/// Earlier snapshots with which the folder is compared.
pub struct EarlierSnapshots<'a> {
    /// The root of an earlier snapshot.
    pub root: Option<&'a Node>,
    /// The files of the last snapshot, if this process cannot read snapshots.
    pub remembered: Option<&'a dyn RememberedFiles>,
}

/// Archives like [`archive_folder`], also for a process that cannot read the previous snapshot.
///
/// # Errors
/// [`ArchiveFolderError`].
pub fn archive_folder_after(
    blocks: &dyn BlockStore,
    workers: &dyn Workers,
    source: &Path,
    before: &EarlierSnapshots<'_>,
    options: &FolderOptions,
    watch: Watch<'_>,
) -> Result<ArchivedFolder, ArchiveFolderError> {
    if options.vac.is_some() && blocks.score_bytes() != VENTI_SCORE_BYTES {
        return Err(ArchiveFolderError::NotForVac);
    }
    let unreadable =
        |error: io::Error| ArchiveFolderError::Source { path: source.to_path_buf(), source: error };
    // If only one file of a folder is archived, the names in the folder need not be readable.
    let access = if options.only.is_some() { OFlags::PATH } else { OFlags::RDONLY };
    let (descriptor, status) = open_source(source, access).map_err(unreadable)?;
    let description = NodeSettings { began_at: options.began_at, adjust: options.adjust };
    let mut root = Node::new(Vec::new(), NodeKind::Folder);
    status.describe(&mut root, description);
    let store_folder = options.store_folder.as_ref().and_then(|path| open_source(path, OFlags::RDONLY).ok());
    let store_folder = store_folder.map(|(_, status)| status.id);
    if store_folder == Some(status.id) {
        return Err(ArchiveFolderError::OwnStore { path: source.to_path_buf() });
    }
    let vac = options.vac.as_ref().map(|vac| vac.shape);
    let reader = FileReader {
        blocks,
        watch,
        description,
        cutting: options.cutting,
        disk_shape: image_shape(options.disk_block_bytes),
        disk_reads: options.disk_reads,
        makes_deltas: options.makes_deltas,
        vac,
        note: options.note,
        workers,
        segmented: Mutex::new(()),
    };
    let work = |job| match job {
        WalkJob::List(folder) => DoneWalkJob::Listed(folder.list()),
        WalkJob::Read(files) => DoneWalkJob::Read(reader.read(files)),
    };
    let archived = pipeline::run_reading(workers, &work, |pipeline| {
        let selection = Selection::new(options, status.id, store_folder);
        let device = status.id.file_system;
        let setting = WalkSetting { blocks, pipeline, options, watch, description, selection, device };
        let walker = FolderWalker::new(setting).remembering(before.remembered);
        walker.walk(root, descriptor, before.root)
    })?;
    match &options.only {
        // The reason was reported already.
        Some(name) if archived.counts.read_count + archived.counts.unchanged_count == 0 => {
            let path = source.join(OsStr::from_bytes(name));
            Err(ArchiveFolderError::File { path, source: io::Error::other("it was not read") })
        }
        _ => Ok(archived),
    }
}

/// Opens a folder by a path from the user, following symbolic links.
pub(super) fn open_source(path: &Path, access: OFlags) -> io::Result<(OwnedFd, Status)> {
    let flags = access | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let descriptor = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let status = Status::of_open(&descriptor)?;
    Ok((descriptor, status))
}
