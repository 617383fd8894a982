//! What can be asked for when a folder is archived.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use varve_block::BlockName;
use varve_tree::Cutting;
use varve_world::Timestamp;

use super::excludes::Excludes;
use super::listed_paths::ListedPaths;
use super::news::NoteNews;
use crate::records::node::Node;
use crate::vac::VacOptions;

/// What is archived, and what is not.
#[derive(Debug, Clone)]
pub struct FolderOptions {
    /// What is left out by its name.
    pub excludes: Excludes,
    /// Files of more bytes are left out.
    pub larger_than: Option<u64>,
    /// A folder that holds something of one of these names is archived with that alone.
    pub if_present: Vec<Vec<u8>>,
    /// Only these paths go in, if given.
    pub listed: Option<Arc<ListedPaths>>,
    /// Whether of a folder that holds a `CACHEDIR.TAG` only that tag is archived.
    pub exclude_caches: bool,
    /// Whether folders in which other file systems are mounted are archived as empty ones.
    pub one_file_system: bool,
    /// Whether file systems that hold no data, such as proc, are archived where they are mounted in the source. Otherwise they are left
    /// empty, but for one that is the source itself.
    pub virtual_file_systems: bool,
    /// A folder to leave out wherever it is met: the store's own.
    pub store_folder: Option<PathBuf>,
    /// Only this file of the folder is archived. The folder itself need not be readable; what it is called and to whom it
    /// belongs comes along.
    pub only: Option<Vec<u8>>,
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
    /// Whether every file is read, whatever is known of it.
    pub reread: bool,
    /// Takes what is new and what has changed since the snapshot before, and what has not.
    pub note: NoteNews,
    /// What is written besides for vac's tools. Files are then cut as those do: at multiples of a block.
    pub vac: Option<VacOptions>,
}

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
            adjust: |_| {},
            reread: false,
            note: |_, _| {},
            vac: None,
        }
    }
}
