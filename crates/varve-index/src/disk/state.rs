//! The parts of the index on disk that are in memory, behind one lock, and the run that belongs to
//! them.

use std::sync::Arc;

use varve_block::LogAddress;

use super::buffer::EntryBuffer;
use super::filter::Filter;
use super::outdated::OutdatedPlaces;
use super::run::IndexRun;
use super::summary::RunIdentity;

pub(super) struct DiskIndexState {
    pub(super) run: Option<NamedRun>,
    /// The run that the summary names.
    pub(super) saved: Option<RunIdentity>,
    pub(super) frozen: Option<FrozenBuffer>,
    /// The places whose entries in the run are left out of the next one. Entries there that are in
    /// the buffers were inserted since.
    pub(super) outdated: OutdatedPlaces,
    pub(super) active: EntryBuffer,
    pub(super) filter: Filter,
    /// A filter to replace a full one, usually a larger one. The current pass and new insertions
    /// fill it.
    pub(super) larger_filter: Option<Filter>,
    pub(super) next_generation: u64,
    /// A failed pass is retried when the active buffer has this many entries.
    pub(super) retry_len: usize,
    pub(super) trouble: Option<String>,
    /// True if entries were lost or the run is damaged: an entry that is not found may exist.
    pub(super) is_incomplete: bool,
}

#[derive(Clone)]
pub(super) struct NamedRun {
    pub(super) run: Arc<IndexRun>,
    pub(super) identity: RunIdentity,
    /// The part of the log that the run covers; `None` if that is unknown.
    pub(super) note: Option<Vec<u8>>,
}

#[derive(Clone)]
pub(super) struct FrozenBuffer {
    pub(super) buffer: Arc<EntryBuffer>,
    /// The places whose entries the pass of this buffer leaves out of the run.
    pub(super) outdated: OutdatedPlaces,
    pub(super) note: Option<Vec<u8>>,
}

impl DiskIndexState {
    pub(super) fn buffered(&self) -> u64 {
        (self.active.len() + self.frozen.as_ref().map_or(0, |frozen| frozen.buffer.len())) as u64
    }

    pub(super) fn buffered_addresses(&self, key: u64, into: &mut Vec<LogAddress>) {
        if !self.active.is_empty() {
            self.active.addresses_of(key, into);
        }
        if let Some(frozen) = &self.frozen {
            frozen.buffer.addresses_of(key, into);
        }
    }

    pub(super) fn note_key(&mut self, key: u64) {
        self.filter.insert(key);
        if let Some(larger) = &mut self.larger_filter {
            larger.insert(key);
        }
    }

    /// Returns true if the filter with `more` keys exceeds its capacity, and no larger one is being
    /// filled.
    pub(super) fn needs_larger_filter(&self, more: u64) -> bool {
        self.larger_filter.is_none() && self.filter.key_count().saturating_add(more) > self.filter.capacity()
    }

    pub(super) fn is_saved(&self, named: &NamedRun) -> bool {
        self.saved.as_ref() == Some(&named.identity)
    }
}
