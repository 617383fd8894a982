//! What a check finds, and what it may fail at.

use std::io;

use varve_block::BlockName;
use varve_log::{ArenaId, ParityHeaderError, ReadLogError};

/// Something in the log is not as it was written.
#[derive(Debug)]
pub struct Damage {
    /// Which arena.
    pub arena: ArenaId,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What was found.
    pub kind: DamageKind,
    /// The blocks that are lost with it, as far as their names are known.
    pub blocks: Vec<BlockName>,
}

/// What can be wrong with a part of the log.
#[derive(Debug, thiserror::Error)]
pub enum DamageKind {
    /// It does not read as what it should be.
    #[error(transparent)]
    Unreadable(#[from] ReadLogError),
    /// The arena was sealed, and its seal is gone or was taken back.
    #[error("the arena was sealed, and is not any more: it was cut, or put back as it was before")]
    SealLost,
    /// The seals of the arenas are not those that the newest page's ledger covers.
    #[error("the seals of the arenas up to this one are not those that its last page has seen")]
    Ledger,
    /// The log ends before the page with which a writer last closed the store.
    #[error("the end of the log is gone: the newest snapshots may be missing, and cannot be named")]
    EndLost,
    /// An arena's file is not there.
    #[error("the arena's file is missing")]
    Missing,
    /// The disk does not give a place where there may be a directory page.
    #[error(
        "the disk does not give what is there, and that may be a directory page: what it names is not known"
    )]
    Withheld,
    /// Records of the open arena are damaged, and good ones follow them.
    #[error("a record is damaged; those after it can still be read")]
    Gap,
    /// After the last good page of the open arena there is something that was changed since it was written.
    #[error("what follows the last directory page is damaged: it may be that page's successor")]
    TornEnd,
    /// A clump is whole, but it is not the one that its directory page names.
    #[error("the clump is not the one that the directory names")]
    OtherClump,
    /// The arena's parity is missing or damaged. The arena itself is not, and its parity can be made again.
    #[error(transparent)]
    Parity(#[from] ParityDamage),
    /// A block's bytes are not those of its name.
    #[error("a block hashes to {actual}, but is recorded as {recorded}")]
    OtherBlock {
        /// What is there.
        actual: BlockName,
        /// What should be.
        recorded: BlockName,
    },
}

impl DamageKind {
    /// Whether a newer program wrote it: it may be good, and is not for this one to touch.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::Unreadable(error) if error.is_newer())
    }

    /// Whether it is only that the disk does not give something: what is there may be good, and may come back.
    #[must_use]
    pub fn is_withheld(&self) -> bool {
        match self {
            Self::Withheld | Self::Parity(ParityDamage::Withheld { .. }) => true,
            Self::Unreadable(error) => error.is_unreadable(),
            _ => false,
        }
    }
}

/// What is wrong with an arena's parity. `Intake::write_parity` makes it anew.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParityDamage {
    /// A sealed arena has none, though the store is to have parity.
    #[error("its parity is missing")]
    Missing,
    /// Neither of its headers is good.
    #[error("its parity cannot be read")]
    Unreadable(#[source] ParityHeaderError),
    /// The disk gives neither of its headers.
    #[error("the disk does not give its parity: {reason}")]
    Withheld {
        /// What the disk says.
        reason: String,
    },
    /// It is of what was in the arena's place before.
    #[error("its parity is of another arena")]
    OtherArena,
    /// Parts of it are bad. The others can still mend the arena.
    #[error(
        "its parity is damaged: {bad_shards} of {shards} recovery shards, {bad_blocks} blocks of tables and {bad_headers} headers"
    )]
    Damaged {
        /// Recovery shards that are bad.
        bad_shards: u64,
        /// All recovery shards.
        shards: u64,
        /// Blocks of its tables that are bad, of both copies.
        bad_blocks: u64,
        /// Headers that are bad: one of two.
        bad_headers: u64,
    },
}

/// Why an arena's parity could not be checked, which says nothing of the parity.
#[derive(Debug, thiserror::Error)]
#[error("the parity of arena {arena} cannot be read")]
pub struct CheckParityError {
    /// Which arena.
    pub arena: ArenaId,
    /// What went wrong below.
    pub source: io::Error,
}

/// Why an arena could not be checked, which says nothing of the arena.
#[derive(Debug, thiserror::Error)]
pub enum CheckArenaError {
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] ReadLogError),
    /// Its parity could not be read.
    #[error(transparent)]
    Parity(#[from] CheckParityError),
}

/// What one arena was found to hold.
#[derive(Debug, Default)]
pub struct ArenaCheck {
    /// Bytes that were read and checked.
    pub checked_bytes: u64,
    /// Blocks that it names.
    pub block_count: u64,
    /// What is wrong with it.
    pub damage: Vec<Damage>,
    /// What a crash, or a writer at work, has left unfinished after its last page. That is no damage: nothing in it was
    /// acknowledged, and the next writer cuts it off.
    pub unfinished: Option<Unfinished>,
}

/// The end of an arena that no writer has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unfinished {
    /// Which arena.
    pub arena: ArenaId,
    /// Where it begins, in bytes.
    pub offset: u64,
}

impl ArenaCheck {
    /// Adds what was found behind what this one is of.
    pub fn add(&mut self, behind: Self) {
        self.checked_bytes += behind.checked_bytes;
        self.block_count += behind.block_count;
        self.damage.extend(behind.damage);
        self.unfinished = self.unfinished.take().or(behind.unfinished);
    }

    pub(crate) fn report(&mut self, arena: ArenaId, offset: u64, kind: DamageKind, blocks: Vec<BlockName>) {
        self.damage.push(Damage { arena, offset, kind, blocks });
    }
}

/// Whether a failed read is something to report and go on. A disk that does not give a sector is; a key that may not read is not, nor is
/// a process that may open no more files.
pub(crate) fn is_finding(error: &ReadLogError) -> bool {
    !error.is_passing() && !matches!(error, ReadLogError::NoReadKey { .. })
}
