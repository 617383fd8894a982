//! The store itself: what it is made of, and how it is a block store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use varve_block::{Block, BlockName, BlockStore, GetError, LogAddress, PutError, Score, SyncError};
use varve_index::{IndexStats, ScoreIndex};
use varve_log::{
    AppendError, Appender, ArenaMap, ClumpBytes, ClumpDraft, Framing, LockedMemory, Log, Seals, SyncLogError,
    WriteFailure,
};
use varve_world::{FileLock, World};

use crate::candidate_counts::{CandidateCounters, CandidateCounts};
use crate::checkpoint::SaveCheckpointError;
use crate::config::{CompareMode, StoreConfig};
use crate::directory::Directory;
use crate::follow::Followed;
use crate::frames::FrameCache;
use crate::lookup::Lookups;
use crate::lost::LostBlocks;
use crate::naming::Namer;
use crate::parity::ParityDue;
use crate::placement::{Home, Placement};
use crate::role::Role;
use crate::withheld::Withheld;

/// A local store, open to be read, or to be written as well.
///
/// Callable from many threads at once. Locks are taken in this order, and none is held while blocks are named, packed or
/// read: `sync_gate`, `appender`, `admission`, `index`.
pub struct Store {
    pub(crate) world: World,
    pub(crate) config: StoreConfig,
    pub(crate) log: Arc<Log>,
    pub(crate) namer: Namer,
    pub(crate) directory: Directory,
    pub(crate) frames: FrameCache,
    pub(crate) lost: LostBlocks,
    pub(crate) index: ScoreIndex,
    /// Whether it goes without an index: to read a by-value store takes none, so none is made for it.
    pub(crate) has_no_index: bool,
    pub(crate) lookups: Lookups,
    pub(crate) candidate_counters: CandidateCounters,
    pub(crate) admission: Mutex<Admission>,
    /// Whether what is put is expected to be read in small pieces.
    pub(crate) read_in_pieces: AtomicBool,
    /// Told whenever a draft has become a clump, or never will.
    pub(crate) drained: Condvar,
    pub(crate) writer: Option<Writer>,
    /// Blocks in the index that no checkpoint holds.
    pub(crate) unsaved_blocks: AtomicU64,
    /// What the key that opened it is for.
    pub(crate) role: Role,
    /// For what only the holder of that one key is to read.
    pub(crate) own: LockedMemory<[u8; 32]>,
    /// Sealed arenas as the saved index knows them, as far as nobody has had reason to look at them since.
    pub(crate) believed: Mutex<Seals>,
    /// How far a reader has come that follows a writer.
    pub(crate) followed: Mutex<Followed>,
    /// Catalog roots in pages that may have outlived their clumps: whoever cannot read cannot tell.
    pub(crate) uncertain_catalogs: Vec<(LogAddress, BlockName)>,
    /// Whether the page that was noted last was not there when it was opened.
    pub(crate) is_end_lost: AtomicBool,
    /// What the disk did not give when it was opened.
    pub(crate) withheld: Withheld,
}

/// What only the one writer of a store has.
pub(crate) struct Writer {
    pub(crate) appender: Mutex<Appender>,
    /// Held by the one caller who makes things durable for all that wait.
    pub(crate) sync_gate: Mutex<Durable>,
    pub(crate) parity: ParityDue,
    /// While arenas are written anew: what is known of the log is then of one that is not any more, or not yet, and the index is not saved.
    pub(crate) is_replacing: AtomicBool,
    pub(crate) _lock: Box<dyn FileLock>,
}

/// How far the log is known to be durable, counted in clumps of this session.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    pub(crate) clump_count: u64,
}

/// What has been put and is not in the index yet.
pub(crate) struct Admission {
    pub(crate) pending: BTreeMap<BlockName, Pending>,
    /// Where the next new block goes: data, and what leads to data, each with its own kind. Who looks into a
    /// snapshot reads what leads to data, and need not unpack the data for it.
    pub(crate) drafts: [OpenDraft; 2],
    pub(crate) next_draft_number: u64,
    /// Full drafts that somebody is packing.
    pub(crate) in_flight: BTreeMap<u64, FullDraft>,
    /// Where drafts will be, if that is what blocks are called by.
    pub(crate) placement: Option<Placement>,
    /// How many clumps have been appended in this session.
    pub(crate) clump_count: u64,
    /// How many pages have been taken into the index; a look-up that began before the last one must look again.
    pub(crate) page_count: u64,
    pub(crate) new_block_count: u64,
    pub(crate) new_block_bytes: u64,
    /// The newest catalog root of somebody who could read the one before, and all that come after it.
    pub(crate) catalogs: BTreeMap<LogAddress, BlockName>,
    pub(crate) failed: Option<WriteFailure>,
}

impl Admission {
    pub(crate) fn new(clump_bytes: ClumpBytes, catalogs: BTreeMap<LogAddress, BlockName>) -> Self {
        Self {
            pending: BTreeMap::new(),
            drafts: [
                OpenDraft { number: 0, home: None, draft: ClumpDraft::new(clump_bytes) },
                OpenDraft {
                    number: 1,
                    home: None,
                    draft: ClumpDraft::new(clump_bytes.min(structure_clump_bytes())),
                },
            ],
            next_draft_number: 2,
            in_flight: BTreeMap::new(),
            placement: None,
            clump_count: 0,
            page_count: 0,
            new_block_count: 0,
            new_block_bytes: 0,
            catalogs,
            failed: None,
        }
    }
}

/// A draft that still takes blocks.
pub(crate) struct OpenDraft {
    pub(crate) number: u64,
    /// Where it will be, once it has a block and if blocks are called by that.
    pub(crate) home: Option<Home>,
    pub(crate) draft: ClumpDraft,
}

/// A draft that is full: whoever filled it packs it.
#[derive(Clone)]
pub(crate) struct FullDraft {
    pub(crate) number: u64,
    pub(crate) home: Option<Home>,
    pub(crate) draft: Arc<ClumpDraft>,
}

/// How large the clumps of a store become. Where arenas are given out beforehand, some have to fit into one.
pub(crate) fn goal_of_clumps(config: &StoreConfig) -> ClumpBytes {
    let part_of = |map: ArenaMap| u32::try_from(map.arena_bytes() / CLUMPS_PER_ARENA_MIN).ok();
    match config.compare {
        CompareMode::Hash => config.clump_bytes,
        CompareMode::Value => part_of(config.arena_map)
            .and_then(ClumpBytes::new)
            .map_or(config.clump_bytes, |part| part.min(config.clump_bytes)),
    }
}

/// So many clumps at the least should fit into an arena of a by-value store.
const CLUMPS_PER_ARENA_MIN: u64 = 8;

/// Folders' lists and pointer blocks are read here and there: their clumps are kept small.
fn structure_clump_bytes() -> ClumpBytes {
    ClumpBytes::new(128 << 10).expect("between the bounds")
}

/// Where a block is that no page names yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pending {
    pub(crate) place: PendingPlace,
    pub(crate) digest: Option<varve_log::Digest>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum PendingPlace {
    Draft { number: u64, ordinal: usize },
    Clump(LogAddress),
}

/// Why a store was not closed well. Nothing that was synced is lost.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    /// The last sync failed.
    #[error("the store could not be closed")]
    Sync(#[from] SyncError),
    /// The last seals could not be made durable.
    #[error("the store could not be closed")]
    Seals(#[from] SyncLogError),
    /// The mark of durability could not be left.
    #[error("the store could not be closed")]
    Mark(#[from] AppendError),
    /// The index's checkpoint could not be written; the next opening takes longer.
    #[error("the index could not be saved; the next opening reads it from the log")]
    Checkpoint(#[from] SaveCheckpointError),
}

impl Store {
    /// What was chosen when the store was made.
    #[must_use]
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// How this store names blocks.
    #[must_use]
    pub fn namer(&self) -> &Namer {
        &self.namer
    }

    /// The world that it lives in.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Whether it was opened to be written.
    #[must_use]
    pub fn is_open_to_write(&self) -> bool {
        self.writer.is_some()
    }

    /// The newest catalog root in the log, as far as pages name it: after a sync, the last one that was put.
    #[must_use]
    pub fn last_catalog(&self) -> Option<BlockName> {
        self.admission().catalogs.values().next_back().copied()
    }

    /// The newest catalog root first, and, as far as this store's key cannot tell whether that is whole, those that come
    /// before it.
    #[must_use]
    pub fn newest_catalogs(&self) -> Vec<BlockName> {
        let last = self.admission().catalogs.iter().next_back().map(|(address, name)| (*address, *name));
        let is_newer = |address: &LogAddress| last.is_none_or(|(known, _)| *address > known);
        let mut roots: Vec<_> =
            self.uncertain_catalogs.iter().copied().filter(|(address, _)| is_newer(address)).collect();
        roots.extend(last);
        roots.sort_by_key(|(address, _)| std::cmp::Reverse(*address));
        roots.into_iter().map(|(_, name)| name).collect()
    }

    /// The newest catalog root of somebody who could read the one before it, and all that others have added since: the oldest first.
    /// Those others may have left out what was there, so each has to be looked at.
    #[must_use]
    pub fn catalogs(&self) -> Vec<BlockName> {
        self.admission().catalogs.values().copied().collect()
    }

    /// What the key that opened it is for; everything, if the store is not encrypted.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// How many candidates the index has proposed, look-up by look-up, since the store was opened.
    #[must_use]
    pub fn candidates_per_lookup(&self) -> CandidateCounts {
        self.candidate_counters.counts()
    }

    /// How an index in memory is filled. Walks all blocks.
    #[must_use]
    pub fn memory_index_stats(&self) -> Option<IndexStats> {
        self.index.memory().map(|index| index.stats())
    }

    /// Syncs, saves the index if that is worth it, and leaves a mark that spares the next opening some work.
    ///
    /// # Errors
    /// [`CloseError`].
    pub fn close(self) -> Result<(), CloseError> {
        let Some(writer) = &self.writer else { return Ok(()) };
        self.sync()?;
        self.make_seals_durable(writer)?;
        self.catch_up_parity();
        self.note_newest();
        self.save_lost();
        // Before the mark, which no sync makes durable: a checkpoint covers only what a crash cannot take back.
        let saved = self.save_checkpoint_if_due();
        if let Some(index) = self.index.disk() {
            index.abandon();
        }
        saved?;
        if self.log.keys().can_read() {
            writer.appender().mark_durable()?;
        } else {
            // Nobody who holds this key can go on with the arena, nor tell later whether it is whole.
            writer.appender().seal_open()?;
        }
        Ok(())
    }

    /// Says how what is put from now on is expected to be read: in small pieces, here and there, as a disk image is; or many blocks
    /// together. The first costs some bytes, the second much time for each small piece. It is no more than advice.
    pub fn expect_reads_in_pieces(&self, expected: bool) {
        self.read_in_pieces.store(expected, Ordering::Relaxed);
    }

    pub(crate) fn framing(&self) -> Framing {
        if self.read_in_pieces.load(Ordering::Relaxed) { Framing::Pieces } else { Framing::Whole }
    }

    pub(crate) fn admission(&self) -> MutexGuard<'_, Admission> {
        self.admission.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    pub(crate) fn appender(&self) -> MutexGuard<'_, Appender> {
        self.appender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockStore for Store {
    fn score_bytes(&self) -> usize {
        self.config.score_bytes()
    }

    fn empty_score(&self) -> Score {
        self.namer.empty_score()
    }

    fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
        let scores = self.put_batch(&[block])?;
        Ok(scores[0])
    }

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        self.get_blocks(std::slice::from_ref(name)).pop().unwrap_or(Err(GetError::NotFound { name: *name }))
    }

    fn sync(&self) -> Result<(), SyncError> {
        self.make_durable().map_err(|error| SyncError { source: error.into() })
    }

    fn put_batch(&self, blocks: &[Block<'_>]) -> Result<Vec<Score>, PutError> {
        self.put_blocks(blocks)
    }

    fn get_batch(&self, names: &[BlockName]) -> Vec<Result<Bytes, GetError>> {
        self.get_blocks(names)
    }

    fn expect(&self, names: &[BlockName]) {
        self.expect_blocks(names);
    }

    fn has_batch(&self, names: &[BlockName]) -> Result<Vec<bool>, GetError> {
        names.iter().map(|name| self.has(name)).collect()
    }
}
