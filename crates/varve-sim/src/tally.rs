//! What has happened, counted.

use std::collections::BTreeMap;

use crate::fault::Fault;
use crate::rot::Rot;

/// What a power cut, or a sync that failed, was seen to leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leftover {
    /// A file lost unsynced bytes.
    BytesLost,
    /// A file kept unsynced bytes.
    BytesKept,
    /// A sector was lost and a later one kept.
    Reordered,
    /// An append was kept to a sector's border inside it.
    Torn,
    /// A truncation was undone.
    CutUndone,
    /// A creation was undone.
    CreationUndone,
    /// A rename was undone.
    RenameUndone,
    /// A removal was undone.
    RemovalUndone,
    /// A folder was lost, with what was in it.
    FolderLost,
    /// A change of names was undone and a later one kept.
    NamesReordered,
    /// A sync failed, and a sector that had waited for it was marked clean without being written.
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

    /// Its name in a report.
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

/// How often what has happened to a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls.
    pub operations: u64,
    /// Faults that struck.
    pub struck: BTreeMap<Fault, u64>,
    /// Damage that was done to what was durable.
    pub rotted: BTreeMap<Rot, u64>,
    /// Files that were put back as they had been.
    pub put_back: u64,
    /// What was left: how many power cuts and failed syncs left it.
    pub left: BTreeMap<Leftover, u64>,
    /// A code over all calls and what came of them: equal if two runs were.
    pub trace: u64,
}

impl Tally {
    /// Counts what happened elsewhere, too.
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

    /// Takes something more into the trace. FNV-1a, a word at a time.
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
