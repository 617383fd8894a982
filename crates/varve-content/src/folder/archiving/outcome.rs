//! The result of archiving a folder.

use std::io;
use std::path::PathBuf;

use varve_block::PutError;

use super::left_out::LeftOutOfFolder;
use super::sequence::FolderCounts;
use crate::records::node::Node;
use crate::records::node_list_writer::WriteNodeError;
use crate::vac::ArchivedVac;

/// A folder that was archived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedFolder {
    /// The root node, which leads to everything and has no name.
    pub root: Node,
    pub counts: FolderCounts,
    /// The parts of the source that were left out.
    pub left_out: LeftOutOfFolder,
    /// The archive for vac's tools, if it was requested.
    pub vac: Option<ArchivedVac>,
    /// The name of the file, if a single file was archived. The folder holds nothing else.
    pub only: Option<Vec<u8>>,
}

impl From<WriteNodeError> for ArchiveFolderError {
    fn from(error: WriteNodeError) -> Self {
        match error {
            WriteNodeError::Put(source) => Self::Store { source },
            source => Self::List { source },
        }
    }
}

/// Why a folder was not archived.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveFolderError {
    /// The source itself is unreadable.
    #[error("the folder {} cannot be read", path.display())]
    Source { path: PathBuf, source: io::Error },
    /// A file that was to be archived by itself is unreadable.
    #[error("the file {} cannot be read", path.display())]
    File { path: PathBuf, source: io::Error },
    /// A stream that was to become a file failed.
    #[error("the stream cannot be read to its end")]
    Stream { source: io::Error },
    /// A tree that another program describes is unreadable.
    #[error("the tree of files cannot be read to its end")]
    Described { source: Box<dyn std::error::Error + Send + Sync> },
    /// The source is the store that would receive the snapshot.
    #[error("{} is the store itself, which would grow while it is read: replicate it instead", path.display())]
    OwnStore { path: PathBuf },
    /// vac's tools cannot read from this store.
    #[error("the store does not have SHA-1 scores, which vac needs: make a store with `init --score sha1`")]
    NotForVac,
    /// The store accepts no more data.
    #[error("the data could not be stored")]
    Store {
        #[from]
        source: PutError,
    },
    /// A record is one that no reader would take.
    #[error("a folder's list could not be written")]
    List {
        #[source]
        source: WriteNodeError,
    },
    /// [`Progress::cancel`](crate::Progress::cancel) was called.
    #[error("interrupted")]
    Cancelled,
}
