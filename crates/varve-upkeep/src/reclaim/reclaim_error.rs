//! The reasons why arenas are not replaced.

use std::io;

use varve_block::causes;
use varve_log::{AppendError, ArenaId, ReadLogError};
use varve_store::{NotPermitted, ReplaceError};

/// An arena was not rewritten, or a batch was not committed. No live block is lost.
#[derive(Debug, thiserror::Error)]
pub enum ReclaimError {
    #[error("the store was opened for reading")]
    ReadOnly,
    #[error("{0}")]
    NotPermitted(#[from] NotPermitted),
    /// The arena has no seal, or another one than when the store was opened.
    #[error("arena {arena} is not the sealed arena that it was when the store was opened")]
    NotSealed { arena: ArenaId },
    #[error("arena {arena} cannot be read")]
    Read { arena: ArenaId, source: ReadLogError },
    #[error("the successor of arena {arena} cannot be written")]
    Write { arena: ArenaId, source: AppendError },
    #[error("the blocks of arena {arena} cannot be copied to the end of the log")]
    Copy { arena: ArenaId, source: AppendError },
    #[error("the successor of arena {arena} has no room for all live blocks")]
    NoRoom { arena: ArenaId },
    /// The disk does not return what was written.
    #[error("the successor of arena {arena} was written, and cannot be read back")]
    NotWhole { arena: ArenaId, source: ReadLogError },
    /// The successor lacks a live block. This is a fault of this program.
    #[error("the successor of arena {arena} lacks a block that a snapshot needs")]
    Incomplete { arena: ArenaId },
    #[error("the parity files cannot be listed")]
    ListParity { source: io::Error },
    /// The successors could not be committed, or not all be put in place.
    #[error("{0}")]
    Replace(#[from] ReplaceError),
}

impl ReclaimError {
    /// Returns true if the disk is full.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        let full = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        };
        causes(self).any(|error| error.downcast_ref::<io::Error>().is_some_and(full))
    }

    /// Returns true if only this arena is concerned, and others can be rewritten.
    #[must_use]
    pub fn is_of_one_arena(&self) -> bool {
        match self {
            Self::NotSealed { .. } | Self::NoRoom { .. } => true,
            Self::Read { source, .. } => source.is_damage(),
            _ => false,
        }
    }
}
