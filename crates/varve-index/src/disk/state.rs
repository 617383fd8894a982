//! What the index on disk has in memory, behind one lock; and which run on disk goes with it.

use std::sync::Arc;

use varve_block::LogAddress;

use super::buffer::Buffer;
use super::filter::Filter;
use super::run::Run;
use super::summary::RunIdentity;

pub(super) struct State {
    pub(super) run: Option<NamedRun>,
    /// What the summary names.
    pub(super) saved: Option<RunIdentity>,
    pub(super) frozen: Option<Frozen>,
    pub(super) active: Buffer,
    /// How many entries were written in place of the run.
    pub(super) placed_count: u64,
    pub(super) filter: Filter,
    /// A larger one, if that is full: the pass that is under way fills it, and so does what comes meanwhile.
    pub(super) larger_filter: Option<Filter>,
    pub(super) next_generation: u64,
    /// With so many entries in the active buffer a pass that has failed is tried again.
    pub(super) retry_len: usize,
    pub(super) trouble: Option<String>,
    /// Whether entries were let go, or the run is damaged: what is not found may be there.
    pub(super) is_incomplete: bool,
}

#[derive(Clone)]
pub(super) struct NamedRun {
    pub(super) run: Arc<Run>,
    pub(super) identity: RunIdentity,
    /// What part of the log it covers; `None` if that is not known.
    pub(super) note: Option<Vec<u8>>,
}

#[derive(Clone)]
pub(super) struct Frozen {
    pub(super) buffer: Arc<Buffer>,
    pub(super) note: Option<Vec<u8>>,
}

impl State {
    pub(super) fn buffered(&self) -> u64 {
        self.placed_count
            + (self.active.len() + self.frozen.as_ref().map_or(0, |frozen| frozen.buffer.len())) as u64
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

    /// Whether the filter has more keys than it is made for, once so many more are there, and no larger one is being filled.
    pub(super) fn needs_larger_filter(&self, more: u64) -> bool {
        self.larger_filter.is_none() && self.filter.key_count().saturating_add(more) > self.filter.capacity()
    }

    pub(super) fn is_saved(&self, named: &NamedRun) -> bool {
        self.saved.as_ref() == Some(&named.identity)
    }
}
