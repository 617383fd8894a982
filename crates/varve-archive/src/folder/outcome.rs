//! What comes of archiving a folder.

use std::io;
use std::path::PathBuf;

use varve_block::PutError;

use super::left_out::LeftOutOfFolder;
use super::sequence::FolderCounts;
use crate::records::node::Node;
use crate::vac::ArchivedVac;

/// A folder that was archived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedFolder {
    /// Leads to everything. Has no name.
    pub root: Node,
    /// How much it was.
    pub counts: FolderCounts,
    /// What of the source is not in it.
    pub left_out: LeftOutOfFolder,
    /// What was written for vac's tools, if it was asked for.
    pub vac: Option<ArchivedVac>,
    /// The name of the file, if the folder was archived for the sake of one, and holds nothing else.
    pub only: Option<Vec<u8>>,
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
    /// A file that was to be archived by itself cannot be read.
    #[error("the file {} cannot be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A stream that was to become a file failed.
    #[error("the stream cannot be read to its end")]
    Stream {
        /// Why.
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
    #[error("interrupted")]
    Cancelled,
}
