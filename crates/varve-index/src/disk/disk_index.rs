//! The index on disk as a whole: look-ups, insertions, and the progress of the pass.

mod saving;

use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use varve_block::{Fingerprint, LogAddress, with_causes};
use varve_world::{FileName, Storage};

use super::IndexEntry;
use super::buffer::EntryBuffer;
use super::filter::Filter;
use super::nearby::NearbyEntries;
use super::outdated::OutdatedPlaces;
use super::pass::{MergePass, PassError};
use super::run::{IndexRun, ReadRunError, RunReader};
use super::spare::{SpareBuffer, SpareFilter, SpareMemory, WorkShare};
use super::state::{DiskIndexState, FrozenBuffer, NamedRun};
use super::stats::{DiskIndexCounters, DiskIndexStats};
use super::summary::{OpenDiskIndexError, RunIdentity, Summary, summary_file};
pub use saving::{ReadyRun, SaveDiskIndexError};

/// The least number of entries that a pass processes in one step.
const STEP_ENTRIES_MIN: u64 = 1 << 12;
/// The largest number of entries that a pass processes at a time. Their keys are kept in memory
/// meanwhile if a larger filter is being filled.
const STEP_ENTRIES_MAX: u64 = 1 << 18;
/// The number of keys that a larger filter takes from a pass at a time. It bounds the wait of
/// look-ups for the lock.
const FILTER_KEYS: usize = 1 << 12;
/// Spare memory is prepared this many times as fast as the active buffer fills: it is ready after a
/// quarter of the capacity has been inserted.
const READY_PARTS: usize = 4;
/// A buffer for fewer entries has so few pages that nothing is prepared for it.
const SPARE_ENTRIES_MIN: usize = 1 << 17;
/// The number of retries of a look-up when its run was replaced during the read.
const TRIES_MAX: usize = 8;

/// The settings of an index on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskIndexSettings {
    /// The memory of the buffers and the cache. The filter, and eight bytes for 400 blocks, come on
    /// top.
    pub memory_bytes: u64,
    /// The number of blocks for which the filter is sized. With more blocks, a larger filter
    /// replaces it.
    pub expected_blocks: u64,
    /// The number of leading bits of fingerprints that are kept, 32 to 64. Of n blocks, one look-up
    /// in 2^bits / n finds a false candidate.
    pub fingerprint_bits: u32,
}

/// The addresses of a fingerprint that are known without a disk read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NearAddresses {
    /// All candidates; often none.
    All(Vec<LogAddress>),
    /// Some candidates; there may be others.
    Some(Vec<LogAddress>),
}

/// The addresses of a fingerprint that are known after a disk read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundAddresses {
    /// The candidates.
    pub addresses: Vec<LogAddress>,
    /// True if there are no other candidates. Otherwise only the log's directories can tell.
    pub is_complete: bool,
    /// True if the disk was read: the neighbours of this block in the log may be requested next.
    pub is_from_disk: bool,
}

/// Maps fingerprints to candidates. Most of it is on disk. May be used from several threads at
/// once.
pub struct DiskIndex {
    storage: Arc<dyn Storage>,
    key: [u8; 32],
    settings: DiskIndexSettings,
    key_bits: u32,
    /// Part of the identity of this writer's runs. A reader has none, and writes nothing.
    session: Option<[u8; 16]>,
    /// The capacity of the active buffer in entries.
    capacity: usize,
    // Locks are taken in this order.
    pass: Mutex<Option<MergePass>>,
    state: RwLock<DiskIndexState>,
    spare: Mutex<SpareMemory>,
    nearby: Mutex<NearbyEntries>,
    counters: DiskIndexCounters,
}

/// The parts that an index is made of.
struct IndexSetup {
    storage: Arc<dyn Storage>,
    key: [u8; 32],
    settings: DiskIndexSettings,
    session: Option<[u8; 16]>,
}

impl DiskIndex {
    /// Makes an empty index. A writer passes a random session, and removes the files of another
    /// index as far as possible.
    #[must_use]
    pub fn new(
        storage: Arc<dyn Storage>,
        key: [u8; 32],
        settings: DiskIndexSettings,
        session: Option<[u8; 16]>,
    ) -> Self {
        // All memory is prepared at once: no insertions are waiting yet.
        let filter = SpareFilter::expecting(settings.expected_blocks, 0).finish();
        let key_bits = settings.fingerprint_bits.clamp(32, u64::BITS);
        let index = Self::with(IndexSetup { storage, key, settings, session }, key_bits, filter, None);
        if session.is_some() {
            index.remove_summary();
            index.remove_leftovers();
        }
        index
    }

    /// Opens the saved index, and returns its note.
    ///
    /// # Errors
    /// [`OpenDiskIndexError`]: the index must be rebuilt from the log.
    pub fn open(
        storage: Arc<dyn Storage>,
        key: [u8; 32],
        settings: DiskIndexSettings,
        session: Option<[u8; 16]>,
    ) -> Result<(Self, Vec<u8>), OpenDiskIndexError> {
        let (summary, filter) = Summary::read(storage.as_ref(), &key)?;
        let identity = summary.identity;
        let run = Arc::new(IndexRun {
            storage: Arc::clone(&storage),
            file: identity.file(),
            codes: identity.codes(&key),
            fences: summary.fences,
            entry_count: summary.entry_count,
        });
        let filter = match filter {
            Some(filter) => filter,
            None => filter_of(&run, settings.expected_blocks)?,
        };
        let key_bits = identity.key_bits;
        let named = NamedRun { run, identity, note: Some(summary.note.clone()) };
        let index = Self::with(IndexSetup { storage, key, settings, session }, key_bits, filter, Some(named));
        if session.is_some() {
            index.remove_leftovers();
        }
        Ok((index, summary.note))
    }

    fn with(setup: IndexSetup, key_bits: u32, filter: Filter, run: Option<NamedRun>) -> Self {
        let IndexSetup { storage, key, settings, session } = setup;
        let saved = run.as_ref().map(|named| named.identity.clone());
        let next_generation = saved.as_ref().map_or(1, |saved| saved.generation.wrapping_add(1));
        // The two buffers take a quarter of the memory each, and the cache three eighths. The last
        // eighth is left for the fences and for the input and output of a pass.
        Self {
            storage,
            key,
            settings,
            key_bits,
            session,
            capacity: EntryBuffer::capacity_in(settings.memory_bytes / 4),
            pass: Mutex::new(None),
            state: RwLock::new(DiskIndexState {
                run,
                saved,
                frozen: None,
                outdated: OutdatedPlaces::default(),
                active: EntryBuffer::new(),
                filter,
                larger_filter: None,
                next_generation,
                retry_len: 0,
                trouble: None,
                is_incomplete: false,
            }),
            spare: Mutex::default(),
            nearby: Mutex::new(NearbyEntries::new(settings.memory_bytes / 8 * 3)),
            counters: DiskIndexCounters::default(),
        }
    }

    /// Returns the settings with which it was made.
    #[must_use]
    pub fn settings(&self) -> DiskIndexSettings {
        self.settings
    }

    /// Returns the number of pairs of fingerprint and address. Pairs that were inserted again after
    /// a crash count twice until the next pass.
    #[must_use]
    pub fn len(&self) -> u64 {
        let state = self.state.read();
        let in_run = state.run.as_ref().map_or(0, |named| named.run.entry_count);
        in_run + state.buffered()
    }

    /// Returns true if it holds no pairs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of pairs that are not in the saved run.
    #[must_use]
    pub fn unsaved(&self) -> u64 {
        let state = self.state.read();
        match &state.run {
            Some(named) if !state.is_saved(named) => named.run.entry_count + state.buffered(),
            _ => state.buffered(),
        }
    }

    /// Returns true if it has written a run that no summary names: a crash would lose that work.
    #[must_use]
    pub fn has_unsaved_run(&self) -> bool {
        let state = self.state.read();
        state.run.as_ref().is_some_and(|named| !state.is_saved(named))
    }

    /// Returns its memory, including the filter.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let stats = self.stats();
        stats.memory_bytes + stats.filter_bytes
    }

    /// Returns its statistics.
    #[must_use]
    pub fn stats(&self) -> DiskIndexStats {
        let nearby_bytes = self.nearby.lock().memory_bytes();
        let spare_bytes = self.spare.lock().memory_bytes();
        let state = self.state.read();
        let run = state.run.as_ref().map(|named| &named.run);
        let frozen_bytes = state.frozen.as_ref().map_or(0, |frozen| frozen.buffer.memory_bytes());
        let buffers = state.active.memory_bytes() + frozen_bytes + spare_bytes;
        DiskIndexStats {
            block_count: run.map_or(0, |run| run.entry_count) + state.buffered(),
            file_bytes: run.map_or(0, |run| run.file_bytes()),
            file_blocks: run.map_or(0, |run| run.entry_count),
            memory_bytes: buffers + nearby_bytes + run.map_or(0, |run| run.memory_bytes()),
            memory_bytes_max: self.settings.memory_bytes,
            filter_bytes: state.filter.memory_bytes(),
            filter_blocks: state.filter.capacity(),
            fingerprint_bits: self.key_bits,
            lookups: self.counters.lookups.get(),
            filtered: self.counters.filtered.get(),
            page_reads: self.counters.page_reads.get(),
            false_reads: self.counters.false_reads.get(),
            remembered: self.counters.remembered.get(),
            passes: self.counters.passes.get(),
            trouble: state.trouble.clone(),
        }
    }

    /// Returns the reason why it cannot be read or written. Until that is solved, it is slower, or
    /// loses unwritten entries when it closes.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.state.read().trouble.clone()
    }

    // ---- look-ups

    /// Returns the candidates of a fingerprint that are known without a disk read.
    #[must_use]
    pub fn near(&self, fingerprint: Fingerprint) -> NearAddresses {
        self.counters.lookups.add(1);
        let key = self.key_of(fingerprint);
        let mut found = Vec::new();
        // The cache comes first because its tables are the smallest, and it answers sequential
        // requests.
        self.nearby.lock().find(fingerprint, &mut found);
        if !found.is_empty() {
            return NearAddresses::Some(found);
        }
        let is_all = {
            let state = self.state.read();
            if !state.filter.may_contain(key) {
                self.counters.filtered.add(1);
                return NearAddresses::All(found);
            }
            state.buffered_addresses(key, &mut found);
            state.run.is_none() && !state.is_incomplete
        };
        if is_all { NearAddresses::All(found) } else { NearAddresses::Some(found) }
    }

    /// Returns the candidates of a fingerprint. Reads one page, seldom two.
    #[must_use]
    pub fn candidates(&self, fingerprint: Fingerprint) -> FoundAddresses {
        let key = self.key_of(fingerprint);
        let mut generation = None;
        for _ in 0..TRIES_MAX {
            let mut addresses = Vec::new();
            let (run, is_incomplete) = {
                let state = self.state.read();
                if !state.filter.may_contain(key) {
                    return FoundAddresses { addresses, is_complete: true, is_from_disk: false };
                }
                state.buffered_addresses(key, &mut addresses);
                (state.run.clone(), state.is_incomplete)
            };
            let Some(run) = run else {
                return FoundAddresses { addresses, is_complete: !is_incomplete, is_from_disk: false };
            };
            let before = addresses.len();
            match run.run.addresses_of(key, &mut addresses) {
                Ok(lookup) => {
                    self.counters.page_reads.add(lookup.pages_read);
                    self.counters.false_reads.add(u64::from(addresses.len() == before));
                    let is_complete = lookup.is_complete && !is_incomplete;
                    return FoundAddresses { addresses, is_complete, is_from_disk: lookup.pages_read > 0 };
                }
                // The run may have been replaced and its file removed: by a pass of this process,
                // or by the writer whose store this process reads.
                Err(error) => {
                    let is_same = generation == Some(run.identity.generation);
                    if is_same || !self.look_again(&run) {
                        self.note_unreadable(&error);
                        return FoundAddresses { addresses, is_complete: false, is_from_disk: false };
                    }
                    generation = Some(run.identity.generation);
                }
            }
        }
        FoundAddresses { addresses: Vec::new(), is_complete: false, is_from_disk: false }
    }

    /// Caches entries that may be requested soon.
    pub fn remember(&self, entries: impl IntoIterator<Item = (Fingerprint, LogAddress)>) {
        let mut nearby = self.nearby.lock();
        let mut count = 0;
        for (fingerprint, address) in entries {
            nearby.insert(fingerprint, address);
            count += 1;
        }
        self.counters.remembered.add(count);
    }

    /// Returns the number of entries that may usefully be cached at a time.
    #[must_use]
    pub fn remember_max(&self) -> u64 {
        self.nearby.lock().capacity() / 4
    }

    /// Returns true if a retry after a failed read makes sense.
    fn look_again(&self, failed: &NamedRun) -> bool {
        if self.session.is_some() {
            // A retry also serves the same run: one failed read is not damage yet.
            return true;
        }
        let Ok(summary) = Summary::read_without_filter(self.storage.as_ref(), &self.key) else { return true };
        let mut state = self.state.write();
        let is_news = summary.identity != failed.identity && summary.identity.key_bits == self.key_bits;
        if is_news {
            // The active buffer already has the entries that the writer added, as far as this
            // reader has followed it. The new run has no other keys than these and those of the old
            // one, so the filter remains sufficient.
            let identity = summary.identity;
            let run = Arc::new(IndexRun {
                storage: Arc::clone(&self.storage),
                file: identity.file(),
                codes: identity.codes(&self.key),
                fences: summary.fences,
                entry_count: summary.entry_count,
            });
            (state.trouble, state.is_incomplete) = (None, false);
            state.saved = Some(identity.clone());
            state.run = Some(NamedRun { run, identity, note: Some(summary.note) });
        }
        true
    }

    fn note_unreadable(&self, error: &ReadRunError) {
        let mut state = self.state.write();
        if state.trouble.is_none() {
            state.trouble = Some(with_causes(error));
        }
        drop(state);
        if matches!(error, ReadRunError::Damaged { .. }) {
            self.let_go_of_saved();
        }
    }

    // ---- insertions

    /// Adds entries. Returns the number of those that were not in the buffer. Does a share of the
    /// current pass.
    pub fn insert_all(&self, entries: &[(Fingerprint, LogAddress)]) -> u64 {
        let full_len = self.capacity * 2 + 8192;
        let must_wait = |state: &DiskIndexState| {
            self.session.is_some() && !state.is_incomplete && state.active.len() + entries.len() > full_len
        };
        if must_wait(&self.state.read()) {
            self.make_room();
        }
        let added = {
            let mut state = self.state.write();
            let is_full = must_wait(&state) || (state.is_incomplete && state.active.len() > full_len);
            let mut added = 0;
            for (fingerprint, address) in entries {
                let entry = IndexEntry { key: self.key_of(*fingerprint), address: *address };
                if is_full {
                    state.note_key(entry.key);
                } else if state.active.insert(entry, self.buffer_capacity()) {
                    state.note_key(entry.key);
                    added += 1;
                }
            }
            state.is_incomplete |= is_full;
            added
        };
        self.make_ready(entries.len());
        self.advance(entries.len() as u64);
        added
    }

    /// Marks all present entries with these addresses (granules) as outdated: what is at these
    /// places now is inserted afterwards. Outdated entries may still be found until the next pass
    /// has left them out, which also follows from the next [`save`](Self::save). A reader keeps
    /// them.
    pub fn outdate(&self, places: &[Range<u64>]) {
        if self.session.is_none() {
            return;
        }
        let mut slot = self.pass.lock();
        // The pass goes on with a buffer that may have such entries. Its failure is recorded as the
        // trouble of the index; entries of that buffer that stay propose places that turn out to
        // be wrong.
        if self.state.read().frozen.is_some() {
            self.begin_in(&mut slot, None);
            let _ = self.step(&mut slot, u64::MAX);
        }
        let outdated = OutdatedPlaces::of(places);
        let mut state = self.state.write();
        if state.active.iter().any(|entry| outdated.contains(entry.address)) {
            let mut kept = EntryBuffer::new();
            for entry in state.active.iter().filter(|entry| !outdated.contains(entry.address)) {
                kept.insert(entry, self.buffer_capacity());
            }
            state.active = kept;
        }
        state.outdated.add(places);
        drop(state);
        self.nearby.lock().clear();
    }

    /// A reader cannot write runs: its buffer holds all entries that are in no run it knows.
    fn buffer_capacity(&self) -> usize {
        if self.session.is_some() { self.capacity } else { usize::MAX / 64 }
    }

    /// Returns true if the active buffer is full and a pass should begin.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let state = self.state.read();
        self.session.is_some()
            && !state.is_incomplete
            && state.active.len() >= self.capacity.max(state.retry_len)
            && (state.frozen.is_none() || state.trouble.is_some())
    }

    /// Prepares a part of the memory that is needed when the active buffer is full.
    fn make_ready(&self, entries: usize) {
        if self.session.is_none() {
            return;
        }
        let (is_soon, larger) = {
            let state = self.state.read();
            // Both tables of a growing buffer and a spare one would exceed the memory.
            let has_room = state.frozen.is_none() && !state.active.is_growing();
            let has_room = has_room && self.capacity >= SPARE_ENTRIES_MIN;
            let is_soon = has_room && state.active.len() >= self.capacity / 2;
            let room = self.capacity.saturating_sub(state.active.len()) as u64;
            let needs_filter = is_soon && state.needs_larger_filter(room);
            (is_soon, needs_filter.then(|| Self::larger_capacity(&state, state.buffered() + room)))
        };
        let mut spare = self.spare.lock();
        if is_soon {
            spare.buffer.get_or_insert_with(|| SpareBuffer::new(self.capacity));
        }
        if let Some(capacity) = larger {
            spare.filter.get_or_insert_with(|| SpareFilter::new(capacity));
        }
        spare.lay(WorkShare { part: entries.saturating_mul(READY_PARTS), whole: self.capacity });
    }

    /// Returns the next active buffer.
    fn next_buffer(&self) -> EntryBuffer {
        let spare = self.spare.lock().buffer.take();
        // If the present buffer is full, the next one will be filled too.
        let is_full = self.state.read().active.len() >= self.capacity;
        let spare = spare.or_else(|| is_full.then(|| SpareBuffer::new(self.capacity)));
        spare.map_or_else(EntryBuffer::new, SpareBuffer::finish)
    }

    /// Returns the capacity of the next filter in keys, with `buffered` entries that are in no run.
    fn larger_capacity(state: &DiskIndexState, buffered: u64) -> u64 {
        // The real count of entries is used, and not the filter's own count of keys: that number
        // comes from the disk.
        let entries = state.run.as_ref().map_or(0, |named| named.run.entry_count) + buffered;
        let capacity = state.filter.capacity();
        // A collector inserts keys again whose entries it has outdated. Keys that were counted
        // twice are no reason for a larger filter.
        let has_room = entries < capacity - capacity / 4;
        if has_room { capacity } else { capacity.max(entries).saturating_mul(2) }
    }

    fn larger_filter(&self, capacity: u64) -> Filter {
        let spare = self.spare.lock().filter.take();
        // The last insertion brought a few more entries than the spare filter was begun for.
        match spare.filter(|spare| spare.is_done() && spare.capacity() >= capacity / 8 * 7) {
            Some(spare) => spare.finish(),
            None => Filter::new(capacity),
        }
    }

    /// Freezes the active buffer, and begins to write the next run. `note` names the part of the
    /// log that the index now covers; without a note the run is used but not saved.
    pub fn begin(&self, note: Option<Vec<u8>>) {
        // Nothing begins while the run is being saved; the caller retries soon.
        if let Some(mut pass) = self.pass.try_lock() {
            self.begin_in(&mut pass, note);
        }
    }

    fn begin_in(&self, slot: &mut Option<MergePass>, note: Option<Vec<u8>>) {
        let Some(session) = self.session.filter(|_| slot.is_none()) else { return };
        if self.state.read().is_incomplete {
            return;
        }
        // The holder of the slot freezes the buffer. Memory is prepared before the state is locked,
        // so that nothing waits for it.
        let next = self.state.read().frozen.is_none().then(|| self.next_buffer());
        let mut state = self.state.write();
        if let Some(next) = next {
            let buffer = Arc::new(std::mem::replace(&mut state.active, next));
            let outdated = std::mem::take(&mut state.outdated);
            state.frozen = Some(FrozenBuffer { buffer, outdated, note });
        }
        let generation = state.next_generation;
        // The number comes from the disk and may be the largest one. It only has to differ from the
        // last.
        state.next_generation = generation.wrapping_add(1);
        let identity = RunIdentity { generation, session, key_bits: self.key_bits };
        let (old, frozen) = (state.run.clone(), state.frozen.clone());
        if state.needs_larger_filter(0) {
            let frozen_len = frozen.as_ref().map_or(0, |frozen| frozen.buffer.len() as u64);
            let mut larger = self.larger_filter(Self::larger_capacity(&state, frozen_len));
            // The active buffer has entries here only if a pass has failed.
            state.active.iter().for_each(|entry| larger.insert(entry.key));
            state.larger_filter = Some(larger);
        }
        let fills_filter = state.larger_filter.is_some();
        drop(state);
        let Some(frozen) = frozen else { return };
        let old = old.map(|named| named.run);
        let (storage, codes) = (Arc::clone(&self.storage), identity.codes(&self.key));
        match MergePass::begin(storage, &identity, codes, old, frozen, fills_filter) {
            Ok(pass) => *slot = Some(pass),
            Err(error) => self.give_up(&identity.file(), &error),
        }
    }

    /// Does a share of the pass in proportion to the inserted entries, so that it ends when the
    /// active buffer is half full.
    fn advance(&self, entries: u64) {
        if let Some(mut slot) = self.pass.try_lock()
            && let Some(pass) = slot.as_mut()
        {
            let share = u128::from(pass.entries_total) * u128::from(entries) * 2 / self.capacity as u128;
            let share = u64::try_from(share).unwrap_or(u64::MAX);
            // A failure is recorded as the trouble of the index.
            let _ = self.step(&mut slot, share.max(STEP_ENTRIES_MIN));
        }
    }

    /// Finishes the current pass, or begins and finishes one, to make room in the active buffer.
    fn make_room(&self) {
        let mut slot = self.pass.lock();
        if slot.is_some() && self.step(&mut slot, u64::MAX).is_err() {
            return;
        }
        self.begin_in(&mut slot, None);
    }

    fn step(&self, slot: &mut Option<MergePass>, entries: u64) -> Result<(), PassError> {
        let Some(pass) = slot.as_mut() else { return Ok(()) };
        let file = pass.file().clone();
        let mut left = entries;
        loop {
            let stepped = pass.step(left.min(STEP_ENTRIES_MAX));
            for keys in pass.take_keys().chunks(FILTER_KEYS) {
                if let Some(filter) = &mut self.state.write().larger_filter {
                    keys.iter().for_each(|key| filter.insert(*key));
                }
            }
            left = left.saturating_sub(STEP_ENTRIES_MAX);
            match stepped {
                Ok(true) if left > 0 => {}
                Ok(true) => return Ok(()),
                Ok(false) => break,
                Err(error) => {
                    *slot = None;
                    self.give_up(&file, &error);
                    return Err(error);
                }
            }
        }
        let Some(pass) = slot.take() else { return Ok(()) };
        let passed = pass.finish().inspect_err(|error| self.give_up(&file, error))?;
        self.counters.passes.add(1);
        let mut state = self.state.write();
        // Replaced memory is freed after the lock on the state is released.
        let frozen = state.frozen.take();
        let note = frozen.as_ref().and_then(|frozen| frozen.note.clone());
        let outdated_filter =
            state.larger_filter.take().map(|larger| std::mem::replace(&mut state.filter, larger));
        let Some(session) = self.session else { return Ok(()) };
        let identity = RunIdentity { generation: passed.generation, session, key_bits: self.key_bits };
        let named = NamedRun { run: Arc::new(passed.run), identity, note };
        let old = state.run.replace(named);
        (state.trouble, state.retry_len) = (None, 0);
        let unsaved = old.filter(|old| !state.is_saved(old));
        drop(state);
        drop(outdated_filter);
        let frozen = frozen.filter(|_| self.capacity >= SPARE_ENTRIES_MIN);
        let used = frozen.and_then(|frozen| Arc::into_inner(frozen.buffer));
        if let Some(again) = used.and_then(|used| SpareBuffer::again(used, self.capacity)) {
            self.spare.lock().buffer.get_or_insert(again);
        }
        if let Some(old) = unsaved {
            // A file that cannot be removed is removed when the index is opened again.
            let _ = self.storage.remove_and_free_soon(&old.run.file);
        }
        Ok(())
    }

    /// Handles the failure of a pass: the frozen buffer stays in use, and another pass is tried
    /// later.
    fn give_up(&self, file: &FileName, error: &PassError) {
        let _ = self.storage.remove(file);
        let mut state = self.state.write();
        state.larger_filter = None;
        state.trouble = Some(with_causes(error));
        state.retry_len = state.active.len() + self.capacity / 8;
        drop(state);
        if let PassError::Read(ReadRunError::Damaged { .. }) = error {
            self.let_go_of_saved();
        }
    }

    /// Removes all runs that the summary does not name, as far as possible.
    fn remove_leftovers(&self) {
        let kept = self.state.read().saved.as_ref().map(RunIdentity::file);
        let Ok(files) = self.storage.list("index") else { return };
        let is_run = |file: &FileName| file.as_str().starts_with("index/disk-");
        for file in files.iter().filter(|file| is_run(file) && Some(*file) != kept.as_ref()) {
            let _ = self.storage.remove(file);
        }
    }

    /// Marks the index as incomplete, because missing entries may be in the unreadable part. The
    /// next opening rebuilds it.
    fn let_go_of_saved(&self) {
        self.state.write().is_incomplete = true;
        self.remove_summary();
    }

    /// Removes the summary, so that the next opening rebuilds the index.
    fn remove_summary(&self) {
        if self.session.is_some() && self.storage.remove(&summary_file()).is_ok() {
            let _ = self.storage.sync_folder("index");
        }
    }

    fn key_of(&self, fingerprint: Fingerprint) -> u64 {
        let unused_bits = u64::BITS - self.key_bits;
        fingerprint.0 >> unused_bits << unused_bits
    }
}

/// Builds the filter of all entries of a run.
fn filter_of(run: &Arc<IndexRun>, expected_blocks: u64) -> Result<Filter, OpenDiskIndexError> {
    let mut filter = SpareFilter::expecting(expected_blocks, run.entry_count).finish();
    let mut reader = RunReader::new(Arc::clone(run));
    let failed = |error: ReadRunError| match error {
        ReadRunError::Damaged { file, .. } => OpenDiskIndexError::Damaged { file },
        ReadRunError::Storage { file, source, .. } => OpenDiskIndexError::Storage { file, source },
    };
    loop {
        let entries = reader.ready().map_err(failed)?;
        if entries.is_empty() {
            break;
        }
        entries.iter().for_each(|entry| filter.insert(entry.key));
        let count = entries.len();
        reader.take(count);
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use varve_world::MemoryStorage;

    use super::super::page::{PAGE_BYTES, RunPageBuilder};
    use super::*;

    /// Earlier versions could be configured to leave room in each page, and to write entries there
    /// in place. A crash leaves such entries in a run whose summary does not count them.
    #[test]
    fn an_entry_that_was_written_in_place_is_found_and_stays() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let settings = DiskIndexSettings { memory_bytes: 4096, expected_blocks: 500, fingerprint_bits: 48 };
        let open = |session| DiskIndex::open(Arc::clone(&storage), [1; 32], settings, session).unwrap().0;
        let entry = |number: u64| (Fingerprint(number << 40), LogAddress::new(number).unwrap());
        let saved: Vec<_> = (1..1000).map(entry).collect();
        let index = DiskIndex::new(Arc::clone(&storage), [1; 32], settings, Some([1; 16]));
        index.insert_all(&saved);
        index.save(Vec::new()).unwrap();

        let run = index.state.read().run.clone().unwrap().run;
        let last = run.fences.len() - 1;
        let mut pages = vec![0; run.fences.len() * PAGE_BYTES];
        storage.read_at(&run.file, 0, &mut pages).unwrap();
        let (mut entries, mut page) = (Vec::new(), [0; PAGE_BYTES]);
        run.page(last as u64, &mut page).unwrap().read_all(&mut entries).unwrap();
        let (fingerprint, address) = (Fingerprint(entries[0].key + (1 << 39)), entries[0].address);
        entries.insert(1, IndexEntry { key: fingerprint.0, address });
        let mut builder = RunPageBuilder::new(run.codes);
        assert!(last > 0 && entries.iter().all(|entry| builder.push(*entry)), "the last page has room");
        pages[last * PAGE_BYTES..].copy_from_slice(&builder.finish(last as u64));
        storage.create_anew(&run.file).unwrap();
        storage.append(&run.file, &pages).unwrap();

        // The log names the entry behind the part that the note covers, so an opening inserts it.
        for session in [None, Some([2; 16])] {
            let index = open(session);
            index.insert_all(&[(fingerprint, address)]);
            assert!(index.candidates(fingerprint).addresses.contains(&address));
            for (fingerprint, address) in &saved {
                assert_eq!(index.candidates(*fingerprint).addresses, [*address]);
            }
            index.save(Vec::new()).unwrap();
            assert_eq!(index.failure(), None);
        }
        let index = open(None);
        assert_eq!((index.len(), index.candidates(fingerprint).addresses), (1000, vec![address]));
    }
}
