//! The reasons why the live blocks are not all known.

use varve_block::{Score, has_kind};
use varve_content::{ReadFolderError, TooDeep};
use varve_log::{OpenLogError, ReadLogError};

use super::block_walk::WalkBlocksError;
use crate::catalog::snapshot_id::SnapshotId;

/// The reason why the live blocks are not all known. Nothing may be freed then.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// A snapshot cannot be walked to its end.
    #[error("the snapshot {name} ({id}) cannot be read to its end{}", in_path(path))]
    Snapshot {
        id: SnapshotId,
        name: String,
        /// The file or folder; empty for an image.
        path: Vec<u8>,
        source: Box<MarkTreeError>,
    },
    /// A list of the catalog cannot be read.
    #[error("a list of the catalog cannot be read to its end")]
    List(#[source] Box<MarkTreeError>),
    /// An archive of another program cannot be walked to its end.
    #[error("the archive {score} cannot be read to its end")]
    Archive { score: Score, source: Box<MarkTreeError> },
    /// The store's scores are not those of Venti.
    #[error("{score} is not a score of this store")]
    OtherScores { score: Score },
    /// The blocks of type root cannot be listed.
    #[error("{0}")]
    ListArenas(#[from] OpenLogError),
    #[error("{0}")]
    ReadArena(#[from] ReadLogError),
    /// The snapshots have more blocks that lead to others than fit in the memory for them.
    #[error("the blocks that lead to others do not fit in {bytes} bytes of memory")]
    Memory { bytes: u64 },
    #[error("interrupted")]
    Cancelled,
}

impl MarkError {
    /// Returns true if something could not be read. Another process may have changed the log
    /// meanwhile.
    pub(crate) fn is_doubt(&self) -> bool {
        !matches!(self, Self::OtherScores { .. } | Self::Memory { .. } | Self::Cancelled)
    }
}

/// The reason why a tree was not walked to its end.
#[derive(Debug, thiserror::Error)]
pub enum MarkTreeError {
    #[error("{0}")]
    Blocks(#[from] WalkBlocksError),
    #[error("{0}")]
    Folder(#[from] ReadFolderError),
    #[error("{0}")]
    TooDeep(#[from] TooDeep),
}

has_kind!(MarkTreeError: Self::TooDeep(_) => Damage);

fn in_path(path: &[u8]) -> String {
    if path.is_empty() { String::new() } else { format!(", at {:?}", String::from_utf8_lossy(path)) }
}

impl MarkTreeError {
    pub(crate) fn into_mark(self, describe: impl FnOnce(Box<Self>) -> MarkError) -> MarkError {
        match self {
            Self::Blocks(WalkBlocksError::Cancelled) => MarkError::Cancelled,
            Self::Blocks(WalkBlocksError::Memory { bytes }) => MarkError::Memory { bytes },
            other => describe(Box::new(other)),
        }
    }
}
