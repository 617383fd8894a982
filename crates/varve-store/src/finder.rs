//! The finder: the index, the catalogs that pages name, and everything else that proposes places
//! for a block.
//!
//! It owns the index, the knowledge from look-ups (read-ahead, moved clumps), the catalog roots and
//! notes in sight, and the seals of the arenas that the index was made from. It depends on the
//! vault.
//!
//! Always true:
//! - The finder only proposes. A proposal is confirmed by the full name in a directory page, or by
//!   the block's own bytes.
//! - Every page that this session has read or written is in the index, unless the store works
//!   without one.
//! - The roots in sight are the newest catalog root of a writer that could read its predecessor,
//!   and all roots after it.

mod candidate_counts;
mod catalogs;
mod changed_arenas;
mod log_notes;
mod look_up;
mod read_ahead;
mod saving;
mod take_in;

pub use candidate_counts::CandidateCounts;
pub use saving::SaveCheckpointError;
pub(crate) use saving::warn_not_saved;
pub(crate) use take_in::FollowedArena;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;
use varve_block::{ClumpName, LogAddress};
use varve_index::{DiskIndex, DiskIndexStats, IndexStats, ScoreIndex};
use varve_log::{ArenaId, Seals};

use crate::saved_index::{Coverage, RootsInSight};
use crate::vault::Vault;
use candidate_counts::CandidateCounters;
use catalogs::Catalogs;
use changed_arenas::ChangedArenas;
use log_notes::LogNotes;
use read_ahead::LookupReadAhead;

/// The index, and everything else that proposes places for a block.
pub(crate) struct Finder {
    vault: Arc<Vault>,
    index: ScoreIndex,
    /// True if the store works without an index. Reading a by-value store needs none, so none is
    /// made for it.
    has_no_index: bool,
    /// The number of blocks in the index that no checkpoint holds.
    unsaved_blocks: AtomicU64,
    /// True if the saved index was removed because arenas were replaced.
    is_saved_index_gone: AtomicBool,
    read_ahead: LookupReadAhead,
    candidate_counters: CandidateCounters,
    /// True if a failure of the index was already reported.
    is_trouble_reported: AtomicBool,
    /// In a store without an index: the clumps that are not where their names say, once they were
    /// looked for.
    moved: Mutex<Option<BTreeMap<ClumpName, Vec<LogAddress>>>>,
    catalogs: Catalogs,
    notes: LogNotes,
    /// The sealed arenas as the saved index knows them. An arena that was checked since is removed.
    believed: Mutex<Seals>,
    /// The uids of the arenas whose pages were read since.
    taken: Mutex<BTreeMap<ArenaId, [u8; 16]>>,
    changed: Mutex<ChangedArenas>,
}

impl Finder {
    /// Makes a finder from a saved index that covers `coverage`.
    pub(crate) fn new(vault: Arc<Vault>, index: ScoreIndex, has_no_index: bool, coverage: &Coverage) -> Self {
        let RootsInSight { catalogs, notes } = coverage.in_sight();
        Self {
            vault,
            index,
            has_no_index,
            unsaved_blocks: AtomicU64::new(0),
            is_saved_index_gone: AtomicBool::new(false),
            read_ahead: LookupReadAhead::default(),
            candidate_counters: CandidateCounters::default(),
            is_trouble_reported: AtomicBool::new(false),
            moved: Mutex::default(),
            catalogs: Catalogs::new(catalogs),
            notes: LogNotes::new(notes),
            believed: Mutex::new(coverage.seals().clone()),
            taken: Mutex::default(),
            changed: Mutex::default(),
        }
    }

    pub(crate) fn has_no_index(&self) -> bool {
        self.has_no_index
    }

    pub(crate) fn candidates_per_lookup(&self) -> CandidateCounts {
        self.candidate_counters.counts()
    }

    /// Returns the number of blocks that can be found.
    pub(crate) fn block_count(&self) -> u64 {
        if self.has_no_index { self.vault.directory().block_count() } else { self.index.len() }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.index.memory_bytes()
    }

    pub(crate) fn memory_index_stats(&self) -> Option<IndexStats> {
        self.index.memory().map(|index| index.stats())
    }

    pub(crate) fn disk_index_stats(&self) -> Option<DiskIndexStats> {
        self.index.disk().map(DiskIndex::stats)
    }
}
