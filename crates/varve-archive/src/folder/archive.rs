//! Archiving a folder: what can be asked for, and what comes of it.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use varve_block::{BlockName, BlockStore, PutError};
use varve_tree::{Cutting, VENTI_SCORE_BYTES};
use varve_world::{Timestamp, Workers};

use super::excludes::Excludes;
use super::pipeline;
use super::read::FileReader;
use super::sequence::FolderCounts;
use super::status::{Description, Status};
use super::walk::{WalkSetting, Walker};
use super::watch::Watch;
use crate::last_night::LastNight;
use crate::node::{Node, NodeKind};
use crate::vac::{ArchivedVac, VacOptions};

/// How coarsely file systems keep time: a file that changed this long before may change again without showing it.
const TIME_STEP_NANOSECONDS: i64 = 50_000_000;

/// What is archived, and what is not.
#[derive(Debug, Clone)]
pub struct FolderOptions {
    /// What is left out by its name.
    pub excludes: Excludes,
    /// Whether of a folder that holds a `CACHEDIR.TAG` only that tag is archived.
    pub exclude_caches: bool,
    /// Whether folders in which other file systems are mounted are archived as empty ones.
    pub one_file_system: bool,
    /// A folder to leave out wherever it is met: the store's own.
    pub store_folder: Option<PathBuf>,
    /// When the run began. A file that changed since then, or right before, is read again by the next one, as it may change
    /// once more without a sign. [`Timestamp`]`(i64::MAX)`: files are known to keep still.
    pub began_at: Timestamp,
    /// Blocks that are known to be lost: a file that needs one is read again though it has not changed.
    pub lost: BTreeSet<BlockName>,
    /// How files are cut. Its smallest leaf is that of [`Cutting::FILE`]: smaller files are one leaf.
    pub cutting: Cutting,
    /// What is changed in what the system says of a file, before anything is made of it. Nothing: [`Node`]s say what the system says.
    /// Whoever has to archive the same bytes on every machine leaves out what differs: inodes, owners, times of change.
    pub adjust: fn(&mut Node),
    /// What is written besides for vac's tools. Files are then cut as those do: at multiples of a block.
    pub vac: Option<VacOptions>,
}

impl Default for FolderOptions {
    fn default() -> Self {
        Self {
            excludes: Excludes::none(),
            exclude_caches: false,
            one_file_system: false,
            store_folder: None,
            began_at: Timestamp(i64::MAX),
            lost: BTreeSet::new(),
            cutting: Cutting::FILE,
            adjust: |_| {},
            vac: None,
        }
    }
}

/// A folder that was archived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedFolder {
    /// Leads to everything. Has no name.
    pub root: Node,
    /// How much it was.
    pub counts: FolderCounts,
    /// What was written for vac's tools, if it was asked for.
    pub vac: Option<ArchivedVac>,
}

/// Why a folder was not archived.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveFolderError {
    /// The source itself cannot be read.
    #[error("the folder {} cannot be read", path.display())]
    Source {
        /// The source.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The source is the store that the snapshot would go to.
    #[error("{} is the store itself, which would grow by what it reads: replicate it instead", path.display())]
    OwnStore {
        /// The source.
        path: PathBuf,
    },
    /// vac's tools cannot read from this store.
    #[error(
        "the scores of this store are no SHA-1 hashes, as those of vac are: make a store with `init --score sha1`"
    )]
    NotForVac,
    /// Nothing more can be stored.
    #[error("what was read could not be stored")]
    Store {
        /// What the store says.
        #[from]
        source: PutError,
    },
    /// [`Progress::cancel`](crate::Progress::cancel) was called.
    #[error("cancelled before the end")]
    Cancelled,
}

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
    let (descriptor, status) = open_source(source).map_err(unreadable)?;
    let trusted_before = Timestamp(options.began_at.0.saturating_sub(TIME_STEP_NANOSECONDS));
    let description = Description { trusted_before, adjust: options.adjust };
    let mut root = Node::new(Vec::new(), NodeKind::Folder);
    status.describe(&mut root, description);
    let store_folder = options.store_folder.as_ref().and_then(|path| open_source(path).ok());
    let store_folder = store_folder.map(|(_, status)| status.id);
    if store_folder == Some(status.id) {
        return Err(ArchiveFolderError::OwnStore { path: source.to_path_buf() });
    }
    let vac = options.vac.as_ref().map(|vac| vac.shape);
    let reader = FileReader { blocks, watch, description, cutting: options.cutting, vac };
    pipeline::run(workers, &|job| reader.read(job), |pipeline| {
        let root_id = status.id;
        let setting = WalkSetting { blocks, pipeline, options, watch, description, root_id, store_folder };
        let walker = Walker::new(setting).remembering(before.last_night.clone());
        walker.walk(root, descriptor, before.root)
    })
}

/// Opens a folder by a path that somebody has given, through symbolic links if need be.
fn open_source(path: &Path) -> io::Result<(OwnedFd, Status)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let descriptor = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let status = Status::of_open(&descriptor)?;
    Ok((descriptor, status))
}
