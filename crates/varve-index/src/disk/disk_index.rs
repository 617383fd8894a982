//! All parts together: what is asked, what is inserted, and how far the pass has come.

mod saving;

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use varve_block::{Fingerprint, LogAddress, with_causes};
use varve_world::{FileName, Storage};

use super::Entry;
use super::buffer::Buffer;
use super::filter::Filter;
use super::nearby::Nearby;
use super::pass::{Pass, PassError};
use super::run::{ReadRunError, Run, RunReader};
use super::spare::{Spare, SpareBuffer, SpareFilter};
use super::state::{Frozen, NamedRun, State};
use super::stats::{Counters, DiskIndexStats};
use super::summary::{OpenDiskIndexError, RunIdentity, Summary, summary_file};
pub use saving::{Ready, SaveDiskIndexError};

/// So many entries are taken on in one step, if fewer blocks are inserted.
const STEP_ENTRIES_MIN: u64 = 1 << 12;
/// So many are taken on at a time, however many are to be: their keys are kept for a larger filter meanwhile.
const STEP_ENTRIES_MAX: u64 = 1 << 18;
/// A larger filter takes so many keys at a time from a pass: whoever asks waits no longer.
const FILTER_KEYS: usize = 1 << 12;
/// What is needed when the active buffer is full is ready when so many more parts of it, of all that it takes, have come in.
const READY_PARTS: usize = 4;
/// A buffer for fewer entries has so few pages that none is made ready beforehand.
const SPARE_ENTRIES_MIN: usize = 1 << 17;
/// How often a look-up is tried again because the run was replaced while it was being read.
const TRIES_MAX: usize = 8;

/// How an index on disk is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskIndexSettings {
    /// Memory of the buffers and the cache: all but the filter, and eight bytes for 400 blocks.
    pub memory_bytes: u64,
    /// How many blocks the filter is made for. With more it is made anew, larger.
    pub expected_blocks: u64,
    /// Leading bits of fingerprints that are kept, 32 to 64. Of n blocks, one look-up in 2^bits / n finds a place that is not meant.
    pub fingerprint_bits: u32,
}

/// What is known of a fingerprint without reading the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Near {
    /// All places; often none.
    All(Vec<LogAddress>),
    /// Some places; there may be others.
    Some(Vec<LogAddress>),
}

/// What is known of a fingerprint after reading the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where the block may be.
    pub addresses: Vec<LogAddress>,
    /// Whether it can be nowhere else. If not, only the log's directories can tell.
    pub is_complete: bool,
    /// Whether the disk was read for it: what stands beside it in the log may be asked for next.
    pub is_from_disk: bool,
}

/// Where each block may be: most of it on disk. Callable from many threads at once.
pub struct DiskIndex {
    storage: Arc<dyn Storage>,
    key: [u8; 32],
    settings: DiskIndexSettings,
    key_bits: u32,
    /// Names the runs of one writer; a reader has none, and writes nothing.
    session: Option<[u8; 16]>,
    /// How many entries the active buffer takes.
    capacity: usize,
    /// Whether it works as Venti's own does.
    is_plain: bool,
    /// While a page is written in place, nobody reads one.
    pages: RwLock<()>,
    // Taken in this order.
    pass: Mutex<Option<Pass>>,
    state: RwLock<State>,
    spare: Mutex<Spare>,
    nearby: Mutex<Nearby>,
    counters: Counters,
}

impl DiskIndex {
    /// An empty index; a writer has a session, drawn at random. Whatever is there of another index is removed by a writer, as
    /// far as it can be.
    #[must_use]
    pub fn new(
        storage: Arc<dyn Storage>,
        key: [u8; 32],
        settings: DiskIndexSettings,
        session: Option<[u8; 16]>,
    ) -> Self {
        // Nobody waits yet, as insertions would.
        let filter = SpareFilter::expecting(settings.expected_blocks, 0).finish();
        let key_bits = settings.fingerprint_bits.clamp(32, u64::BITS);
        let index = Self::with((storage, key, settings, session), key_bits, filter, None);
        if session.is_some() {
            index.remove_summary();
            index.remove_leftovers();
        }
        index
    }

    /// Opens the index that is there, and returns the note that it was saved with.
    ///
    /// # Errors
    /// [`OpenDiskIndexError`]; it is to be made anew then, from the log.
    pub fn open(
        storage: Arc<dyn Storage>,
        key: [u8; 32],
        settings: DiskIndexSettings,
        session: Option<[u8; 16]>,
    ) -> Result<(Self, Vec<u8>), OpenDiskIndexError> {
        let (summary, filter) = Summary::read(storage.as_ref(), &key)?;
        let identity = summary.identity;
        let run = Arc::new(Run {
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
        let index = Self::with((storage, key, settings, session), key_bits, filter, Some(named));
        if session.is_some() {
            index.remove_leftovers();
        }
        Ok((index, summary.note))
    }

    fn with(
        (storage, key, settings, session): (Arc<dyn Storage>, [u8; 32], DiskIndexSettings, Option<[u8; 16]>),
        key_bits: u32,
        filter: Filter,
        run: Option<NamedRun>,
    ) -> Self {
        let saved = run.as_ref().map(|named| named.identity.clone());
        let next_generation = saved.as_ref().map_or(1, |saved| saved.generation.wrapping_add(1));
        // Two buffers of a quarter each, and the cache; an eighth is left for fences and for what a pass reads and writes.
        Self {
            storage,
            key,
            settings,
            key_bits,
            session,
            capacity: Buffer::capacity_in(settings.memory_bytes / 4),
            is_plain: false,
            pages: RwLock::default(),
            pass: Mutex::new(None),
            state: RwLock::new(State {
                run,
                saved,
                frozen: None,
                active: Buffer::new(),
                placed_count: 0,
                filter,
                larger_filter: None,
                next_generation,
                retry_len: 0,
                trouble: None,
                is_incomplete: false,
            }),
            spare: Mutex::default(),
            nearby: Mutex::new(Nearby::new(settings.memory_bytes / 8 * 3)),
            counters: Counters::default(),
        }
    }

    /// Lets it work as Venti's own index does, to be compared with: no look-up asks the filter, and each entry is written to its
    /// page on disk, in place. The buffers have what finds no room there until the next pass, which leaves half of each page free. Much slower; and a reader beside a
    /// writer may meet a page that is just being written, and take it for damaged.
    #[must_use]
    pub fn plain(self) -> Self {
        Self { is_plain: true, ..self }
    }

    /// How it was made.
    #[must_use]
    pub fn settings(&self) -> DiskIndexSettings {
        self.settings
    }

    /// How many pairs of fingerprint and address it holds; those that were inserted again after a crash count twice until the next pass.
    #[must_use]
    pub fn len(&self) -> u64 {
        let state = self.state.read();
        let in_run = state.run.as_ref().map_or(0, |named| named.run.entry_count);
        in_run + state.buffered()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many of them no saved run holds.
    #[must_use]
    pub fn unsaved(&self) -> u64 {
        let state = self.state.read();
        match &state.run {
            Some(named) if !state.is_saved(named) => named.run.entry_count + state.buffered(),
            _ => state.buffered(),
        }
    }

    /// Whether it has written what no summary names: lost, that would have to be written again.
    #[must_use]
    pub fn has_unsaved_run(&self) -> bool {
        let state = self.state.read();
        state.run.as_ref().is_some_and(|named| !state.is_saved(named))
    }

    /// All memory that it takes, with the filter.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let stats = self.stats();
        stats.memory_bytes + stats.filter_bytes
    }

    /// What it looks like inside.
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
            page_writes: self.counters.page_writes.get(),
            false_reads: self.counters.false_reads.get(),
            remembered: self.counters.remembered.get(),
            passes: self.counters.passes.get(),
            trouble: state.trouble.clone(),
        }
    }

    /// What keeps it from being used or written; it is slower then, or forgets at the end what it could not write.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.state.read().trouble.clone()
    }

    // ---- asking

    /// What is known of a fingerprint without reading the disk.
    #[must_use]
    pub fn near(&self, fingerprint: Fingerprint) -> Near {
        self.counters.lookups.add(1);
        let key = self.key_of(fingerprint);
        let mut found = Vec::new();
        // First of all, since that is the smallest of the tables: whoever asks in order finds there what is asked for.
        self.nearby.lock().find(fingerprint, &mut found);
        if !found.is_empty() {
            return Near::Some(found);
        }
        let is_all = {
            let state = self.state.read();
            if !self.may_contain(&state, key) {
                self.counters.filtered.add(1);
                return Near::All(found);
            }
            state.buffered_addresses(key, &mut found);
            state.run.is_none() && !state.is_incomplete
        };
        if is_all { Near::All(found) } else { Near::Some(found) }
    }

    /// Where the block with this fingerprint may be: reads one page, seldom two.
    #[must_use]
    pub fn candidates(&self, fingerprint: Fingerprint) -> Found {
        let key = self.key_of(fingerprint);
        let mut generation = None;
        for _ in 0..TRIES_MAX {
            let mut addresses = Vec::new();
            let (run, is_incomplete) = {
                let state = self.state.read();
                if !self.may_contain(&state, key) {
                    return Found { addresses, is_complete: true, is_from_disk: false };
                }
                state.buffered_addresses(key, &mut addresses);
                (state.run.clone(), state.is_incomplete)
            };
            let Some(run) = run else {
                return Found { addresses, is_complete: !is_incomplete, is_from_disk: false };
            };
            let before = addresses.len();
            let looked_up = {
                let _pages = self.pages.read();
                run.run.addresses_of(key, &mut addresses)
            };
            match looked_up {
                Ok(lookup) => {
                    self.counters.page_reads.add(lookup.pages_read);
                    self.counters.false_reads.add(u64::from(addresses.len() == before));
                    let is_complete = lookup.is_complete && !is_incomplete;
                    return Found { addresses, is_complete, is_from_disk: lookup.pages_read > 0 };
                }
                // The run may have been replaced, and its file removed: by our own pass, or by the writer that we follow.
                Err(error) => {
                    let is_same = generation == Some(run.identity.generation);
                    if is_same || !self.look_again(&run) {
                        self.note_unreadable(&error);
                        return Found { addresses, is_complete: false, is_from_disk: false };
                    }
                    generation = Some(run.identity.generation);
                }
            }
        }
        Found { addresses: Vec::new(), is_complete: false, is_from_disk: false }
    }

    fn may_contain(&self, state: &State, key: u64) -> bool {
        self.is_plain || state.filter.may_contain(key)
    }

    /// Takes note of where blocks are that may be asked for soon.
    pub fn remember(&self, entries: impl IntoIterator<Item = (Fingerprint, LogAddress)>) {
        let mut nearby = self.nearby.lock();
        let mut count = 0;
        for (fingerprint, address) in entries {
            nearby.insert(fingerprint, address);
            count += 1;
        }
        self.counters.remembered.add(count);
    }

    /// How many entries it makes sense to remember at a time.
    #[must_use]
    pub fn remember_max(&self) -> u64 {
        self.nearby.lock().capacity() / 4
    }

    /// After a failed reading: whether there is something else to read now.
    fn look_again(&self, failed: &NamedRun) -> bool {
        if self.session.is_some() {
            // Once more, too: one bad reading is no damage.
            return true;
        }
        let Ok(summary) = Summary::read_without_filter(self.storage.as_ref(), &self.key) else { return true };
        let mut state = self.state.write();
        let is_news = summary.identity != failed.identity && summary.identity.key_bits == self.key_bits;
        if is_news {
            // What the writer has added is in the active buffer, too, as far as we have followed it; the run holds at least as
            // much as the one before, so what the filter knows is still enough.
            let identity = summary.identity;
            let run = Arc::new(Run {
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

    // ---- inserting

    /// Adds where blocks may be. Returns how many of these were not in the buffer. Does its share of the pass that is under way.
    pub fn insert_all(&self, entries: &[(Fingerprint, LogAddress)]) -> u64 {
        if self.is_plain && self.session.is_some() {
            let (in_place, rest) = self.write_in_place(entries);
            return in_place + self.insert_buffered(&rest);
        }
        self.insert_buffered(entries)
    }

    /// Writes entries to their pages. Returns how many, and those for which there is no room.
    fn write_in_place(&self, entries: &[(Fingerprint, LogAddress)]) -> (u64, Vec<(Fingerprint, LogAddress)>) {
        let mut slot = self.pass.lock();
        // What is written in place of the run before would be missing in the next one. A failure is kept as the index's trouble.
        let _ = self.step(&mut slot, u64::MAX);
        let run = self.state.read().run.clone();
        let (Some(run), true) = (run, slot.is_none()) else { return (0, entries.to_vec()) };
        let entry_of = |(fingerprint, address)| Entry { key: self.key_of(fingerprint), address };
        let placed = run.run.put_all_in_place(entries, entry_of, &self.pages);
        self.counters.page_writes.add(placed.keys.len() as u64);
        {
            let mut state = self.state.write();
            placed.keys.iter().for_each(|key| state.note_key(*key));
            state.placed_count += placed.keys.len() as u64;
        }
        if let Some(error) = &placed.failed {
            self.note_unreadable(error);
        }
        (placed.keys.len() as u64, placed.rest)
    }

    fn insert_buffered(&self, entries: &[(Fingerprint, LogAddress)]) -> u64 {
        let full_len = self.capacity * 2 + 8192;
        let must_wait = |state: &State| {
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
                let entry = Entry { key: self.key_of(*fingerprint), address: *address };
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

    /// A reader cannot write: its buffer holds what no run that it knows holds.
    fn buffer_capacity(&self) -> usize {
        if self.session.is_some() { self.capacity } else { usize::MAX / 64 }
    }

    /// Whether the active buffer is full and a pass is to be begun.
    #[must_use]
    pub fn is_due(&self) -> bool {
        let state = self.state.read();
        self.session.is_some()
            && !state.is_incomplete
            && state.active.len() >= self.capacity.max(state.retry_len)
            && (state.frozen.is_none() || state.trouble.is_some())
    }

    /// Makes a piece of the memory ready that will be needed when the active buffer is full.
    fn make_ready(&self, entries: usize) {
        if self.session.is_none() {
            return;
        }
        let (is_soon, larger) = {
            let state = self.state.read();
            // Two tables of one that grows and a spare one would be more memory than there is.
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
        spare.lay((entries.saturating_mul(READY_PARTS), self.capacity));
    }

    /// The buffer that is filled after this one.
    fn next_buffer(&self) -> Buffer {
        let spare = self.spare.lock().buffer.take();
        // After one that was filled comes another one.
        let is_full = self.state.read().active.len() >= self.capacity;
        let spare = spare.or_else(|| is_full.then(|| SpareBuffer::new(self.capacity)));
        spare.map_or_else(Buffer::new, SpareBuffer::finish)
    }

    /// For how many keys the next filter is, with so many entries that are in no run.
    fn larger_capacity(state: &State, buffered: u64) -> u64 {
        // By what there is, not by how many keys the filter is said to have: that is a number from the disk.
        let entries = state.run.as_ref().map_or(0, |named| named.run.entry_count) + buffered;
        state.filter.capacity().max(entries).saturating_mul(2)
    }

    fn larger_filter(&self, capacity: u64) -> Filter {
        let spare = self.spare.lock().filter.take();
        // The last insertion has brought a few more than it was begun for.
        match spare.filter(|spare| spare.is_done() && spare.capacity() >= capacity / 8 * 7) {
            Some(spare) => spare.finish(),
            None => Filter::new(capacity),
        }
    }

    /// Freezes the active buffer, and begins to write the next run. `note` says which part of the log is in the index now;
    /// without one the run is used, and not saved.
    pub fn begin(&self, note: Option<Vec<u8>>) {
        // While the run is being saved, nothing begins; the caller asks again soon.
        if let Some(mut pass) = self.pass.try_lock() {
            self.begin_in(&mut pass, note);
        }
    }

    fn begin_in(&self, slot: &mut Option<Pass>, note: Option<Vec<u8>>) {
        let Some(session) = self.session.filter(|_| slot.is_none()) else { return };
        if self.state.read().is_incomplete {
            return;
        }
        // Whoever holds the slot freezes; and what is not ready yet is made ready when nobody waits for the state.
        let next = self.state.read().frozen.is_none().then(|| self.next_buffer());
        let mut state = self.state.write();
        if let Some(next) = next {
            let buffer = Arc::new(std::mem::replace(&mut state.active, next));
            state.frozen = Some(Frozen { buffer, note });
        }
        let generation = state.next_generation;
        // It comes from the disk; what matters is that the next one is another.
        state.next_generation = generation.wrapping_add(1);
        let identity = RunIdentity { generation, session, key_bits: self.key_bits };
        let (old, frozen) = (state.run.clone(), state.frozen.clone());
        if state.needs_larger_filter(0) {
            let frozen_len = frozen.as_ref().map_or(0, |frozen| frozen.buffer.len() as u64);
            let mut larger = self.larger_filter(Self::larger_capacity(&state, frozen_len));
            // Some are there only if a pass has failed.
            state.active.iter().for_each(|entry| larger.insert(entry.key));
            state.larger_filter = Some(larger);
        }
        let fills_filter = state.larger_filter.is_some();
        drop(state);
        let Some(frozen) = frozen else { return };
        let place = (Arc::clone(&self.storage), identity.file(), generation);
        let old = old.map(|named| named.run);
        match Pass::begin(place, identity.codes(&self.key), old, frozen.buffer, fills_filter, self.is_plain) {
            Ok(pass) => *slot = Some(pass),
            Err(error) => self.give_up(&identity.file(), &error),
        }
    }

    /// Does a share of the pass, as large as the insertion of so many entries asks for: it ends when the active buffer is half full.
    fn advance(&self, entries: u64) {
        if let Some(mut slot) = self.pass.try_lock()
            && let Some(pass) = slot.as_mut()
        {
            let share = u128::from(pass.entries_total) * u128::from(entries) * 2 / self.capacity as u128;
            let share = u64::try_from(share).unwrap_or(u64::MAX);
            // A failure is kept as the index's trouble.
            let _ = self.step(&mut slot, share.max(STEP_ENTRIES_MIN));
        }
    }

    /// Ends the pass that is under way, or begins one and ends it, so that there is room in the active buffer.
    fn make_room(&self) {
        let mut slot = self.pass.lock();
        if slot.is_some() && self.step(&mut slot, u64::MAX).is_err() {
            return;
        }
        self.begin_in(&mut slot, None);
    }

    fn step(&self, slot: &mut Option<Pass>, entries: u64) -> Result<(), PassError> {
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
        // What is let go is let go when nobody waits for the state.
        let frozen = state.frozen.take();
        let note = frozen.as_ref().and_then(|frozen| frozen.note.clone());
        let outdated_filter =
            state.larger_filter.take().map(|larger| std::mem::replace(&mut state.filter, larger));
        let Some(session) = self.session else { return Ok(()) };
        let identity = RunIdentity { generation: passed.generation, session, key_bits: self.key_bits };
        let named = NamedRun { run: Arc::new(passed.run), identity, note };
        let old = state.run.replace(named);
        state.placed_count = 0;
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
            // What stays is removed when the index is opened again.
            let _ = self.storage.remove_and_free_soon(&old.run.file);
        }
        Ok(())
    }

    /// A pass has failed: what is frozen stays where it is, and another pass is tried later.
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

    /// Removes what is not named by the summary, as far as it can be removed.
    fn remove_leftovers(&self) {
        let kept = self.state.read().saved.as_ref().map(RunIdentity::file);
        let Ok(files) = self.storage.list("index") else { return };
        let is_run = |file: &FileName| file.as_str().starts_with("index/disk-");
        for file in files.iter().filter(|file| is_run(file) && Some(*file) != kept.as_ref()) {
            let _ = self.storage.remove(file);
        }
    }

    /// What is not found may be in what cannot be read; and the next opening makes the index anew.
    fn let_go_of_saved(&self) {
        self.state.write().is_incomplete = true;
        self.remove_summary();
    }

    /// So that the next opening makes the index anew.
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

/// The filter of all that is in a run.
fn filter_of(run: &Arc<Run>, expected_blocks: u64) -> Result<Filter, OpenDiskIndexError> {
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
