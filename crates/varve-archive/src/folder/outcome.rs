//! What comes of archiving a folder.

use std::io;
use std::path::PathBuf;

use varve_block::PutError;

use super::sequence::FolderCounts;
use crate::node::Node;
use crate::vac::ArchivedVac;

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
    #[error("interrupted")]
    Cancelled,
}
