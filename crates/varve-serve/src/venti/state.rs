//! What all connections of a server share: the blocks, whether they can still be written, and what has been done so far.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::read_pace::ReadPace;
use super::recent::RecentBlocks;
use varve_block::BlockStore;

/// What a server has done since it was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VentiCounts {
    /// Clients that are there now.
    pub clients: u64,
    /// Clients that were taken in.
    pub clients_taken: u64,
    /// Clients that were sent away, as there were too many.
    pub clients_refused: u64,
    /// Blocks that were read.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Reads of blocks that are not there.
    pub misses: u64,
    /// Blocks that were written.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Requests that were answered with an error, misses left aside.
    pub errors: u64,
    /// Blocks that were refused as their score is taken by other bytes.
    pub collisions: u64,
    /// Whether a fault has made the server read-only.
    pub is_degraded: bool,
}

/// One number for everybody to add to.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn subtract(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// See [`VentiCounts`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) clients: Counter,
    pub(super) clients_taken: Counter,
    pub(super) clients_refused: Counter,
    pub(super) reads: Counter,
    pub(super) read_bytes: Counter,
    pub(super) misses: Counter,
    pub(super) writes: Counter,
    pub(super) written_bytes: Counter,
    pub(super) syncs: Counter,
    pub(super) errors: Counter,
    pub(super) collisions: Counter,
}

pub(super) struct State {
    pub(super) blocks: Arc<dyn BlockStore>,
    /// What was read, and may soon be wanted again.
    pub(super) recent: RecentBlocks,
    pub(super) counters: Counters,
    pub(super) read_pace: ReadPace,
    /// Why nothing is written any more.
    fault: OnceLock<String>,
    /// Whether what fails may work again later.
    failures_pass: bool,
    /// Who is told when nothing is written any more.
    on_read_only: fn(&str),
}

impl State {
    pub(super) fn new(
        blocks: Arc<dyn BlockStore>,
        recent_bytes: u64,
        failures_pass: bool,
        on_read_only: fn(&str),
    ) -> Self {
        let recent = RecentBlocks::new(recent_bytes);
        let (counters, fault) = (Counters::default(), OnceLock::new());
        Self { blocks, recent, counters, read_pace: ReadPace::default(), fault, failures_pass, on_read_only }
    }

    pub(super) fn count_read(&self, bytes: usize) {
        self.counters.reads.add(1);
        self.counters.read_bytes.add(bytes as u64);
    }

    /// Why nothing can be written any more, if that is so.
    pub(super) fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }

    /// From here on nothing is written, unless the failure is one that may pass.
    pub(super) fn turn_read_only(&self, reason: String) {
        if self.failures_pass {
            tracing::warn!(
                reason,
                "something could not be written: whoever wrote it is told, and may try again"
            );
            return;
        }
        if self.fault.set(reason.clone()).is_ok() {
            tracing::error!(
                reason = &*reason,
                "the store could not write: the server is read-only from now on, until it is started again; reads go on"
            );
            (self.on_read_only)(&reason);
        }
    }

    pub(super) fn counts(&self) -> VentiCounts {
        let counters = &self.counters;
        VentiCounts {
            clients: counters.clients.get(),
            clients_taken: counters.clients_taken.get(),
            clients_refused: counters.clients_refused.get(),
            reads: counters.reads.get(),
            read_bytes: counters.read_bytes.get(),
            misses: counters.misses.get(),
            writes: counters.writes.get(),
            written_bytes: counters.written_bytes.get(),
            syncs: counters.syncs.get(),
            errors: counters.errors.get(),
            collisions: counters.collisions.get(),
            is_degraded: self.fault().is_some(),
        }
    }
}
