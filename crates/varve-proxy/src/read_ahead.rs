//! Read-ahead: when a block that references others is read, these are prefetched. It pays off on
//! links with high latency.
//!
//! ```text
//! get ─▶ memory ─▶ being fetched? wait for it ─▶ source
//!           ▲            ▲                        │
//!           └── step ◀── queue ◀── references in the block
//! ```
//!
//! Read-ahead covers one level: the blocks that a prefetched pointer block references are queued
//! only when that block is read.
//!
//! Invariants:
//! - Prefetched blocks are kept in memory only, within the given limit. Each has the score under
//!   which it is kept.
//! - The queue is bounded. The entry that has waited longest is dropped first, which only costs the
//!   time that it would have saved.
//! - A block that was requested is not fetched twice at the same time.
//!
//! It starts no thread: [`ReadAheadStore::step`] fetches some of the queued blocks, and is called
//! by the caller's threads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use varve_block::{BlockKind, BlockName, BlockStore, BlockType, GetError, to_usize};
use varve_venti::WireType;

use crate::checked::is_right;
use crate::recent_blocks::RecentBlocks;

/// Lists the blocks that a block references, as far as its type and bytes tell.
pub type ListReferences = fn(&BlockName, &[u8]) -> Vec<BlockName>;

/// The number of blocks fetched in a step.
const STEP_BLOCKS: usize = 64;
/// The limit of the queue.
const QUEUE_MAX: usize = 8192;
/// The assumed length of a block before it is fetched.
const EXPECTED_BYTES: u64 = 8 << 10;
/// A reader that waits for a block being fetched looks again at least this often.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Counters of a read-ahead, in blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadAheadCounts {
    /// Prefetched blocks.
    pub ahead: u64,
    /// Reads that were answered from memory.
    pub hits: u64,
    /// Reads that had to be fetched.
    pub misses: u64,
}

/// The blocks to prefetch.
#[derive(Default)]
struct PrefetchQueue {
    /// In the order in which they are fetched.
    waiting: BTreeMap<u64, BlockName>,
    places: BTreeMap<BlockName, u64>,
    next_place: u64,
    on_the_way: BTreeSet<BlockName>,
    is_over: bool,
}

impl PrefetchQueue {
    fn push(&mut self, name: BlockName, most: usize) {
        let key = as_on_the_wire(&name);
        if self.places.contains_key(&key) || self.on_the_way.contains(&key) {
            return;
        }
        self.places.insert(key, self.next_place);
        self.waiting.insert(self.next_place, name);
        self.next_place += 1;
        if self.waiting.len() > most
            && let Some((_, oldest)) = self.waiting.pop_first()
        {
            self.places.remove(&as_on_the_wire(&oldest));
        }
    }

    fn take(&mut self, key: &BlockName) {
        if let Some(place) = self.places.remove(key) {
            self.waiting.remove(&place);
        }
    }
}

/// A store with read-ahead.
pub struct ReadAheadStore {
    source: Arc<dyn BlockStore>,
    leads: ListReferences,
    memory: RecentBlocks,
    queue_max: usize,
    queue: Mutex<PrefetchQueue>,
    /// Signalled when blocks were queued, or have arrived.
    changed: Condvar,
    ahead: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Normalises the type of a block: on the wire, pointers to data and pointers to directories have
/// the same type.
fn as_on_the_wire(name: &BlockName) -> BlockName {
    let block_type = WireType::of(name.block_type).and_then(|wire| wire.block_types().next());
    BlockName { score: name.score, block_type: block_type.unwrap_or(name.block_type) }
}

fn leads_on(name: &BlockName) -> bool {
    name.block_type.depth() > 0 || name.block_type.kind() != BlockKind::Data
}

/// The other type under which a pointer block may be stored: the wire type of a pointer does not
/// tell the kind of its leaves.
fn other_kind(name: &BlockName) -> Option<BlockName> {
    let kind = match name.block_type.kind() {
        BlockKind::Data => BlockKind::Directory,
        BlockKind::Directory => BlockKind::Data,
        BlockKind::Root | BlockKind::Catalog | BlockKind::Note => return None,
    };
    let block_type = BlockType::at_depth(kind, name.block_type.depth())?;
    Some(BlockName { score: name.score, block_type })
}

impl ReadAheadStore {
    /// Adds read-ahead to `source`, and keeps `memory_bytes` of blocks. `leads` lists the blocks
    /// that a block references.
    #[must_use]
    pub fn new(source: Arc<dyn BlockStore>, leads: ListReferences, memory_bytes: u64) -> Self {
        // The queue is limited so that new blocks do not evict blocks that were prefetched a moment
        // ago.
        let queue_max = to_usize(memory_bytes / 2 / EXPECTED_BYTES);
        Self {
            source,
            leads,
            memory: RecentBlocks::new(memory_bytes),
            queue_max: queue_max.clamp(1, QUEUE_MAX),
            queue: Mutex::default(),
            changed: Condvar::new(),
            ahead: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// The counters since the start.
    #[must_use]
    pub fn counts(&self) -> ReadAheadCounts {
        ReadAheadCounts {
            ahead: self.ahead.load(Ordering::Relaxed),
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
        }
    }

    /// Prefetches some of the queued blocks. Returns false if the queue was empty.
    pub fn step(&self) -> bool {
        let names: Vec<BlockName> = {
            let mut queue = self.queue.lock();
            let mut names = Vec::new();
            while names.len() < STEP_BLOCKS
                && let Some((_, name)) = queue.waiting.pop_first()
            {
                queue.places.remove(&as_on_the_wire(&name));
                queue.on_the_way.insert(as_on_the_wire(&name));
                names.push(name);
            }
            names
        };
        if names.is_empty() {
            return false;
        }
        let _arrival = PrefetchGuard { ahead: self, names: &names };
        let mut others = Vec::new();
        for (name, found) in names.iter().zip(self.source.get_batch(&names)) {
            match found {
                Ok(block) => self.note_ahead(name, &block),
                Err(GetError::NotFound { .. }) => others.extend(other_kind(name)),
                // A later request for the block gets the error.
                Err(_) => {}
            }
        }
        if !others.is_empty() {
            for (name, found) in others.iter().zip(self.source.get_batch(&others)) {
                if let Ok(block) = found {
                    self.note_ahead(name, &block);
                }
            }
        }
        true
    }

    /// Waits until there is something to fetch. Returns `false` after [`end`](Self::end).
    pub fn wait(&self) -> bool {
        let mut queue = self.queue.lock();
        self.changed.wait_while(&mut queue, |queue| queue.waiting.is_empty() && !queue.is_over);
        !queue.is_over
    }

    /// Ends the read-ahead.
    pub fn end(&self) {
        let mut queue = self.queue.lock();
        queue.is_over = true;
        queue.waiting.clear();
        queue.places.clear();
        drop(queue);
        self.changed.notify_all();
    }

    fn note_ahead(&self, name: &BlockName, block: &Bytes) {
        if is_right(name, block) {
            self.memory.insert(as_on_the_wire(name), block);
            self.ahead.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Queues the blocks that a block which was just read references.
    fn look_ahead(&self, name: &BlockName, block: &Bytes) {
        if !leads_on(name) {
            return;
        }
        let empty = self.source.empty_score();
        let mut is_any = false;
        let mut queue = self.queue.lock();
        if queue.is_over {
            return;
        }
        for child in (self.leads)(name, block) {
            let key = as_on_the_wire(&child);
            if child.score != empty && !self.memory.has(&key) {
                queue.push(child, self.queue_max);
                is_any = true;
            }
        }
        drop(queue);
        if is_any {
            self.changed.notify_all();
        }
    }

    /// A block that is in memory, or arrives while this call waits.
    fn near(&self, name: &BlockName) -> Option<Bytes> {
        let key = as_on_the_wire(name);
        if let Some(block) = self.memory.get(&key) {
            return Some(block);
        }
        let mut queue = self.queue.lock();
        queue.take(&key);
        while queue.on_the_way.contains(&key) {
            self.changed.wait_for(&mut queue, LOOK_AGAIN);
        }
        drop(queue);
        self.memory.get(&key)
    }
}

/// Ends the fetching of these blocks when it is dropped, whether they arrived or not.
struct PrefetchGuard<'a> {
    ahead: &'a ReadAheadStore,
    names: &'a [BlockName],
}

impl Drop for PrefetchGuard<'_> {
    fn drop(&mut self) {
        let mut queue = self.ahead.queue.lock();
        for name in self.names {
            queue.on_the_way.remove(&as_on_the_wire(name));
        }
        drop(queue);
        self.ahead.changed.notify_all();
    }
}

impl BlockStore for ReadAheadStore {
    varve_block::forward_block_store!(source: score_bytes, empty_score, put, sync, put_batch, has_batch);

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        self.get_batch(std::slice::from_ref(name)).pop().unwrap_or(Err(GetError::NotFound { name: *name }))
    }

    fn get_batch(&self, names: &[BlockName]) -> Vec<Result<Bytes, GetError>> {
        let near: Vec<Option<Bytes>> = names.iter().map(|name| self.near(name)).collect();
        let far: Vec<BlockName> =
            names.iter().zip(&near).filter(|(_, near)| near.is_none()).map(|(name, _)| *name).collect();
        let mut fetched = if far.is_empty() { Vec::new() } else { self.source.get_batch(&far) }.into_iter();
        let hits = (names.len() - far.len()) as u64;
        self.hits.fetch_add(hits, Ordering::Relaxed);
        let mut found = Vec::with_capacity(names.len());
        for (name, near) in names.iter().zip(near) {
            let is_far = near.is_none();
            let answer = match near {
                Some(block) => Ok(block),
                None => fetched.next().unwrap_or(Err(GetError::NotFound { name: *name })),
            };
            if let Ok(block) = &answer {
                // Pointer blocks are few, and are read repeatedly, so they are kept.
                if is_far && leads_on(name) && is_right(name, block) {
                    self.memory.insert(as_on_the_wire(name), block);
                }
                self.look_ahead(name, block);
            }
            found.push(answer);
        }
        self.misses.fetch_add(far.len() as u64, Ordering::Relaxed);
        found
    }
}

impl fmt::Debug for ReadAheadStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadAheadStore").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
