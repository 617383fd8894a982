//! Archiving a folder: the walk through it, and the hands that read its files.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use varve_block::BlockStore;
use varve_tree::VENTI_SCORE_BYTES;
use varve_world::Workers;

use super::options::FolderOptions;
use super::outcome::{ArchiveFolderError, ArchivedFolder};
use super::pipeline;
use super::read::FileReader;
use super::selection::Selection;
use super::status::{Description, Status};
use super::walk::{WalkSetting, Walker};
use super::watch::Watch;
use crate::records::node::{Node, NodeKind};
use crate::taking::last_night::LastNight;

/// Archives the folder `source`. What it was is known only by the root that is returned: nothing in the store leads to it.
///
/// `previous` is the root of an earlier snapshot of the same folder: a file of the same path, size, times and inode as there
/// is not opened, and keeps its content. What cannot be read of it is as if it were not there.
///
/// A file that cannot be read, changes or vanishes is reported, and its node says so; the rest is archived. Blocks come to
/// the store about in the order of the walk: depth first, names in the order of their bytes. Holds a bounded number of files
/// whatever their size; but all names of a folder, and a node for each file that has several names.
///
/// # Errors
/// [`ArchiveFolderError`]. What was stored until then speeds up the next attempt.
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
        &Before { root: previous, last_night: None },
        options,
        watch,
    )
}

/// What is known from before.
pub(crate) struct Before<'a> {
    /// The root of an earlier snapshot.
    pub(crate) root: Option<&'a Node>,
    /// What is remembered of the last night, by whoever cannot read that.
    pub(crate) last_night: Option<LastNight>,
}

/// As [`archive_folder`], for whoever may not be able to read the snapshot before.
pub(crate) fn archive_folder_after(
    blocks: &dyn BlockStore,
    workers: &dyn Workers,
    source: &Path,
    before: &Before<'_>,
    options: &FolderOptions,
    watch: Watch<'_>,
) -> Result<ArchivedFolder, ArchiveFolderError> {
    if options.vac.is_some() && blocks.score_bytes() != VENTI_SCORE_BYTES {
        return Err(ArchiveFolderError::NotForVac);
    }
    let unreadable =
        |error: io::Error| ArchiveFolderError::Source { path: source.to_path_buf(), source: error };
    // Of a folder of which only one file is wanted, the names need not be readable.
    let access = if options.only.is_some() { OFlags::PATH } else { OFlags::RDONLY };
    let (descriptor, status) = open_source(source, access).map_err(unreadable)?;
    let description = Description { began_at: options.began_at, adjust: options.adjust };
    let mut root = Node::new(Vec::new(), NodeKind::Folder);
    status.describe(&mut root, description);
    let store_folder = options.store_folder.as_ref().and_then(|path| open_source(path, OFlags::RDONLY).ok());
    let store_folder = store_folder.map(|(_, status)| status.id);
    if store_folder == Some(status.id) {
        return Err(ArchiveFolderError::OwnStore { path: source.to_path_buf() });
    }
    let vac = options.vac.as_ref().map(|vac| vac.shape);
    let reader = FileReader { blocks, watch, description, cutting: options.cutting, vac, note: options.note };
    let archived = pipeline::run(workers, &|job| reader.read(job), |pipeline| {
        let selection = Selection::new(options, status.id, store_folder);
        let device = status.id.file_system;
        let setting = WalkSetting { blocks, pipeline, options, watch, description, selection, device };
        let walker = Walker::new(setting).remembering(before.last_night.clone());
        walker.walk(root, descriptor, before.root)
    })?;
    match &options.only {
        // Why is reported already.
        Some(name) if archived.counts.read_count + archived.counts.unchanged_count == 0 => {
            let path = source.join(OsStr::from_bytes(name));
            Err(ArchiveFolderError::File { path, source: io::Error::other("it was not read") })
        }
        _ => Ok(archived),
    }
}

/// Opens a folder by a path that somebody has given, through symbolic links if need be.
pub(super) fn open_source(path: &Path, access: OFlags) -> io::Result<(OwnedFd, Status)> {
    let flags = access | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let descriptor = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let status = Status::of_open(&descriptor)?;
    Ok((descriptor, status))
}
