//! Counts of the events on a disk.

use std::collections::BTreeMap;

use crate::fault::Fault;
use crate::rot::Rot;

/// An effect of a power cut or of a failed sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leftover {
    /// A file lost unsynced bytes.
    BytesLost,
    /// A file kept unsynced bytes.
    BytesKept,
    /// A sector was lost, and a later one was kept.
    Reordered,
    /// An append was kept up to the border of a sector inside it.
    Torn,
    CutUndone,
    CreationUndone,
    RenameUndone,
    RemovalUndone,
    /// A folder was lost with its contents.
    FolderLost,
    /// A change of names was undone, and a later one was kept.
    NamesReordered,
    /// A failed sync marked a pending sector clean without writing it.
    DroppedClean,
}

impl Leftover {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::BytesLost,
        Self::BytesKept,
        Self::Reordered,
        Self::Torn,
        Self::CutUndone,
        Self::CreationUndone,
        Self::RenameUndone,
        Self::RemovalUndone,
        Self::FolderLost,
        Self::NamesReordered,
        Self::DroppedClean,
    ];

    /// The name of the effect in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BytesLost => "unsynced bytes lost",
            Self::BytesKept => "unsynced bytes kept",
            Self::Reordered => "a sector lost, a later one kept",
            Self::Torn => "an append torn at a sector's border",
            Self::CutUndone => "a truncation undone",
            Self::CreationUndone => "a creation undone",
            Self::RenameUndone => "a rename undone",
            Self::RemovalUndone => "a removal undone",
            Self::FolderLost => "a new folder lost, with all in it",
            Self::NamesReordered => "a change of names undone, a later one kept",
            Self::DroppedClean => "a failed sync's sectors marked clean, unwritten",
        }
    }
}

/// The number of times that each event occurred on a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// All calls.
    pub operations: u64,
    /// Faults that occurred.
    pub struck: BTreeMap<Fault, u64>,
    /// Damage to durable data.
    pub rotted: BTreeMap<Rot, u64>,
    /// Files that were restored from copies.
    pub put_back: u64,
    /// The number of power cuts and failed syncs that had each effect.
    pub left: BTreeMap<Leftover, u64>,
    /// A hash over all calls and their results. Equal runs have equal hashes.
    pub trace: u64,
}

impl Tally {
    /// Adds the counts of another tally.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        for (fault, count) in &other.struck {
            *self.struck.entry(*fault).or_default() += count;
        }
        for (rot, count) in &other.rotted {
            *self.rotted.entry(*rot).or_default() += count;
        }
        self.put_back += other.put_back;
        for (leftover, count) in &other.left {
            *self.left.entry(*leftover).or_default() += count;
        }
        self.note(other.trace);
    }

    /// Adds a word to the trace (FNV-1a, one word at a time).
    pub(crate) fn note(&mut self, word: u64) {
        self.trace = (self.trace ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }

    pub(crate) fn note_bytes(&mut self, bytes: &[u8]) {
        self.note(bytes.len() as u64);
        for piece in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.note(u64::from_le_bytes(word));
        }
    }
}
