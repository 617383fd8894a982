//! The options for archiving a folder.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use varve_block::{BlockName, ExpectedReads};
use varve_tree::Cutting;
use varve_world::Timestamp;

use super::news::NoteNews;
use crate::folder::source::excludes::Excludes;
use crate::folder::source::listed_paths::ListedPaths;
use crate::records::node::Node;
use crate::vac::VacOptions;

/// Selects the parts of a folder that are archived, and the way they are archived.
#[derive(Debug, Clone)]
pub struct FolderOptions {
    /// Patterns for names that are excluded.
    pub excludes: Excludes,
    /// Files with more bytes are excluded.
    pub larger_than: Option<u64>,
    /// A folder that contains one of these names is archived with that entry alone.
    pub if_present: Vec<Vec<u8>>,
    /// If given, only these paths are archived.
    pub listed: Option<Arc<ListedPaths>>,
    /// True if a folder with a `CACHEDIR.TAG` is archived with that tag alone.
    pub exclude_caches: bool,
    /// True if mount points of other file systems are archived as empty folders.
    pub one_file_system: bool,
    /// True if virtual file systems that hold no data, such as proc, are archived where they are
    /// mounted in the source. Otherwise they are archived as empty folders, unless one is the
    /// source itself.
    pub virtual_file_systems: bool,
    /// The folder of the store, which is left out wherever it is found.
    pub store_folder: Option<PathBuf>,
    /// Only this file of the folder is archived. The folder itself need not be readable. Its name,
    /// owner and mode are archived too.
    pub only: Option<Vec<u8>>,
    /// The time at which the run began. A file that changed since then, or just before, is read
    /// again by the next run, because it may change once more without a visible sign.
    /// [`Timestamp`]`(i64::MAX)` means that no file changes during the run.
    pub began_at: Timestamp,
    /// Blocks that are known to be lost. A file that needs one is read again even if it is
    /// unchanged.
    pub lost: BTreeSet<BlockName>,
    /// The cutting of files. Its smallest leaf is that of [`Cutting::FILE`]: smaller files are one
    /// leaf.
    pub cutting: Cutting,
    /// The bytes of a block of disk files: those of images in the same store, so that a disk that
    /// is archived both ways is stored once. At most 1 MiB.
    pub disk_block_bytes: u32,
    /// The way in which disk files will be read. The default is at random: small reads are fast,
    /// and take some more space.
    pub disk_reads: ExpectedReads,
    /// True if blocks of disk files are put with the blocks that they have replaced.
    pub makes_deltas: bool,
    /// Modifies each node as the system reported it, before it is used. The default changes
    /// nothing. A caller that must archive the same bytes on every machine removes what differs:
    /// inodes, owners and change times.
    pub adjust: fn(&mut Node),
    /// True if every file is read, even if it appears unchanged.
    pub reread: bool,
    /// Receives the state of each entry relative to the previous snapshot.
    pub note: NoteNews,
    /// Set if an archive for vac's tools is written too. Files are then cut as vac does: at
    /// multiples of a block.
    pub vac: Option<VacOptions>,
}

/// The block size of images in a store with the default settings.
const DISK_BLOCK_BYTES: u32 = 16 << 10;

impl Default for FolderOptions {
    fn default() -> Self {
        Self {
            excludes: Excludes::none(),
            larger_than: None,
            if_present: Vec::new(),
            listed: None,
            exclude_caches: false,
            one_file_system: false,
            virtual_file_systems: false,
            store_folder: None,
            only: None,
            began_at: Timestamp(i64::MAX),
            lost: BTreeSet::new(),
            cutting: Cutting::FILE,
            disk_block_bytes: DISK_BLOCK_BYTES,
            disk_reads: ExpectedReads::AtRandom,
            makes_deltas: false,
            adjust: |_| {},
            reread: false,
            note: |_, _| {},
            vac: None,
        }
    }
}
