//! The state that all connections of a server share: the blocks, the fault if there is one, and the
//! counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::read_pace::ReadPace;
use super::recent_reads::RecentReads;
use super::sessions::ClientSessions;
use super::unsynced::UnsyncedCounts;
use super::venti_settings::VentiSettings;
use varve_block::{BlockName, BlockStore, SyncError, with_causes};

/// Counters since the server was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VentiCounts {
    /// Current clients.
    pub clients: u64,
    /// Clients that were accepted.
    pub clients_taken: u64,
    /// Clients that were refused because there were too many.
    pub clients_refused: u64,
    /// Blocks that were read.
    pub reads: u64,
    pub read_bytes: u64,
    /// Reads that the server's cache answered without the store.
    pub reads_from_memory: u64,
    /// Reads of blocks that do not exist.
    pub misses: u64,
    /// Blocks that were written.
    pub writes: u64,
    pub written_bytes: u64,
    /// Syncs that clients requested.
    pub syncs: u64,
    /// Automatic syncs.
    pub flushes: u64,
    /// Requests that were answered with an error, except for misses.
    pub errors: u64,
    /// Blocks that were refused because their score belongs to other bytes.
    pub collisions: u64,
    /// A fault has made the server read-only.
    pub is_degraded: bool,
}

/// A counter that any thread can change.
#[derive(Debug, Default)]
pub(super) struct SharedCounter(AtomicU64);

impl SharedCounter {
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
pub(super) struct VentiCounters {
    pub(super) clients: SharedCounter,
    pub(super) clients_taken: SharedCounter,
    pub(super) clients_refused: SharedCounter,
    pub(super) reads: SharedCounter,
    pub(super) read_bytes: SharedCounter,
    pub(super) reads_from_memory: SharedCounter,
    pub(super) misses: SharedCounter,
    pub(super) writes: SharedCounter,
    pub(super) written_bytes: SharedCounter,
    pub(super) syncs: SharedCounter,
    pub(super) flushes: SharedCounter,
    pub(super) errors: SharedCounter,
    pub(super) collisions: SharedCounter,
}

pub(super) struct VentiServerState {
    pub(super) blocks: Arc<dyn BlockStore>,
    /// The cache of recently read blocks.
    pub(super) recent: RecentReads,
    pub(super) counters: VentiCounters,
    pub(super) read_pace: ReadPace,
    pub(super) unsynced: UnsyncedCounts,
    pub(super) sessions: Option<Arc<ClientSessions>>,
    /// The reason why nothing is written any more.
    fault: OnceLock<String>,
    /// Failures may be temporary; see [`VentiSettings`].
    failures_pass: bool,
    /// Called once, when the server becomes read-only.
    on_read_only: fn(&str),
}

impl VentiServerState {
    pub(super) fn new(blocks: Arc<dyn BlockStore>, settings: &VentiSettings) -> Self {
        Self {
            blocks,
            recent: RecentReads::new(settings.recent_bytes),
            counters: VentiCounters::default(),
            read_pace: ReadPace::default(),
            unsynced: UnsyncedCounts::default(),
            sessions: settings.sessions.clone(),
            fault: settings.fault.clone().map(OnceLock::from).unwrap_or_default(),
            failures_pass: settings.failures_pass,
            on_read_only: settings.on_read_only,
        }
    }

    /// Reports whether a block is set aside.
    pub(super) fn refuses(&self, name: &BlockName) -> bool {
        self.sessions.as_ref().is_some_and(|sessions| sessions.refuses(name))
    }

    /// Makes everything durable that was acknowledged before.
    pub(super) fn sync(&self) -> Result<(), SyncError> {
        let covered = self.unsynced.acknowledged();
        // The record of who wrote a block becomes durable before the block does.
        let recorded = self.sessions.as_ref().map_or(Ok(()), |sessions| sessions.sync());
        match recorded.and_then(|()| self.blocks.sync()) {
            Ok(()) => {
                self.unsynced.note_durable(covered);
                Ok(())
            }
            Err(error) => {
                self.turn_read_only(with_causes(&error));
                Err(error)
            }
        }
    }

    pub(super) fn count_read(&self, bytes: usize) {
        self.counters.reads.add(1);
        self.counters.read_bytes.add(bytes as u64);
    }

    /// The reason why nothing can be written any more, if there is one.
    pub(super) fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }

    /// Makes the server read-only, unless failures may be temporary.
    pub(super) fn turn_read_only(&self, reason: String) {
        if self.failures_pass {
            tracing::warn!(
                reason,
                "blocks could not be stored or made durable; their writer or the server tries again"
            );
            return;
        }
        if self.fault.set(reason.clone()).is_ok() {
            tracing::error!(
                reason = &*reason,
                "a write to the store failed: the server is read-only until it is restarted"
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
            reads_from_memory: counters.reads_from_memory.get(),
            misses: counters.misses.get(),
            writes: counters.writes.get(),
            written_bytes: counters.written_bytes.get(),
            syncs: counters.syncs.get(),
            flushes: counters.flushes.get(),
            errors: counters.errors.get(),
            collisions: counters.collisions.get(),
            is_degraded: self.fault().is_some(),
        }
    }
}
