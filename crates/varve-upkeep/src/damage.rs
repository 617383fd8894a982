//! The findings of a check, and the errors that can end it.

use std::mem::discriminant;

use varve_block::BlockName;
use varve_log::{ArenaId, ParityHeaderError, ReadLogError};
use varve_store::OpenParityError;

/// A part of the log that is not as it was written.
#[derive(Debug)]
pub struct Damage {
    pub arena: ArenaId,
    /// The place in the arena, in bytes.
    pub offset: u64,
    pub kind: DamageKind,
    /// The blocks that are lost with it, as far as their names are known.
    pub blocks: Vec<BlockName>,
}

/// The kinds of damage.
#[derive(Debug, thiserror::Error)]
pub enum DamageKind {
    /// The bytes are not what they should be.
    #[error("{0}")]
    Unreadable(#[from] ReadLogError),
    /// The arena was sealed, and its seal is gone or was taken off.
    #[error("the arena's seal is gone: the arena was cut, or put back from an older state")]
    SealLost,
    /// The seals of the arenas are not those that the newest page's ledger covers.
    #[error("the seals of the arenas up to this one differ from those that its last page has counted")]
    Ledger,
    /// The log ends before the last page of a writer's last closing.
    #[error("the end of the log is gone: the newest snapshots may be missing, and cannot be named")]
    EndLost,
    #[error("the arena's file is missing")]
    Missing,
    /// The disk does not return a place where a directory page may be.
    #[error(
        "the disk cannot read this place, which may hold a directory page: the blocks that it names are unknown"
    )]
    Withheld,
    /// Records of the open arena are damaged, and good ones follow them.
    #[error("a record is damaged; the records after it can still be read")]
    Gap,
    /// After the last good page of the open arena there is data that was changed since it was
    /// written.
    #[error("the data after the last directory page is damaged: it may be the next page")]
    TornEnd,
    /// A clump is whole, but it is not the one that its directory page names.
    #[error("the clump differs from the one that its directory page names")]
    OtherClump,
    /// The arena's parity is missing or damaged. The arena itself is good, so its parity can be
    /// made again.
    #[error("{0}")]
    Parity(#[from] ParityDamage),
    /// A block's bytes do not have its name.
    #[error("a block hashes to {actual}, but is recorded as {recorded}")]
    OtherBlock { actual: BlockName, recorded: BlockName },
}

impl DamageKind {
    /// Returns true if an arena merely has no parity yet: the store is a fresh clone, or was made
    /// without parity. Nothing is lost, and the next writers make it.
    #[must_use]
    pub fn is_missing_parity(&self) -> bool {
        matches!(self, Self::Parity(ParityDamage::Missing))
    }

    /// Returns true if the only finding is that the disk does not return data. The data may be
    /// good, and may come back.
    #[must_use]
    pub fn is_withheld(&self) -> bool {
        match self {
            Self::Withheld | Self::Parity(ParityDamage::Withheld { .. }) => true,
            Self::Unreadable(error) => error.is_unreadable(),
            _ => false,
        }
    }
}

/// The damage of an arena's parity. `Intake::write_parity` makes the parity anew.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParityDamage {
    /// A sealed arena has none, although the store is to have parity.
    #[error("its parity is missing")]
    Missing,
    /// Neither of its headers is good.
    #[error("its parity cannot be read")]
    Unreadable(#[source] ParityHeaderError),
    /// The disk returns neither of its headers.
    #[error("the disk cannot read its parity: {reason}")]
    Withheld {
        /// The error of the disk.
        reason: String,
    },
    /// It belongs to an earlier arena in the same place.
    #[error("its parity belongs to another arena")]
    OtherArena,
    /// Parts of it are bad. The other parts can still mend the arena.
    #[error(
        "its parity is damaged: {bad_shards} of {shards} recovery shards, {bad_blocks} blocks of tables and {bad_headers} headers"
    )]
    Damaged {
        bad_shards: u64,
        /// All recovery shards.
        shards: u64,
        /// The bad blocks of its tables, in both copies.
        bad_blocks: u64,
        /// The bad headers, at most one of two.
        bad_headers: u64,
    },
}

/// An arena's parity could not be checked. That proves nothing about the parity.
#[derive(Debug, thiserror::Error)]
#[error("the parity of arena {arena} cannot be read")]
pub struct CheckParityError {
    pub arena: ArenaId,
    pub source: OpenParityError,
}

/// An arena could not be checked. That proves nothing about the arena.
#[derive(Debug, thiserror::Error)]
pub enum CheckArenaError {
    #[error("{0}")]
    Read(#[from] ReadLogError),
    #[error("{0}")]
    Parity(#[from] CheckParityError),
}

/// The findings of the check of an arena.
#[derive(Debug, Default)]
pub struct ArenaCheck {
    /// The bytes that were read and checked.
    pub checked_bytes: u64,
    /// The blocks that the arena names.
    pub block_count: u64,
    pub damage: Vec<Damage>,
    /// True if the arena was replaced while it was checked. It has to be checked anew.
    pub is_outdated: bool,
    /// The end that a crash, or a writer at work, has left unfinished after the last page. It is no
    /// damage: nothing in it was acknowledged, and the next writer cuts it off.
    pub unfinished: Option<UnfinishedEnd>,
}

/// The unfinished end of an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnfinishedEnd {
    pub arena: ArenaId,
    /// The start of the end, in bytes.
    pub offset: u64,
}

impl ArenaCheck {
    /// Keeps the damage that another look at the same part has found, too.
    pub(crate) fn keep_found_again(&mut self, again: &Self) {
        let what = |damage: &Damage| (damage.offset, discriminant(&damage.kind));
        self.damage.retain(|damage| again.damage.iter().any(|again| what(again) == what(damage)));
    }

    /// Adds the findings of a later part of the arena.
    pub fn add(&mut self, behind: Self) {
        self.checked_bytes += behind.checked_bytes;
        self.block_count += behind.block_count;
        self.damage.extend(behind.damage);
        self.is_outdated |= behind.is_outdated;
        self.unfinished = self.unfinished.take().or(behind.unfinished);
    }

    pub(crate) fn report(&mut self, arena: ArenaId, offset: u64, kind: DamageKind, blocks: Vec<BlockName>) {
        self.damage.push(Damage { arena, offset, kind, blocks });
    }
}

/// Returns true if a failed read is a finding to report, after which the check continues. A sector
/// that the disk does not return is a finding. Data of a newer program is none, nor is a key
/// without read permission, or a process that can open no more files.
pub(crate) fn is_finding(error: &ReadLogError) -> bool {
    !error.is_passing() && !error.is_newer() && !matches!(error, ReadLogError::NoReadKey { .. })
}
