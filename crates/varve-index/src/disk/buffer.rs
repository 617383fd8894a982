//! The buffer of new entries: a [table](super::table) that grows, and a tree for keys that crowd
//! one place of the table (an attacker may choose the blocks of a store).
//!
//! The table grows by moving to a larger one, a few entries with each insertion. So no insertion
//! waits until millions of entries have moved.

use std::collections::BTreeSet;

use varve_block::{LogAddress, to_usize};

use super::IndexEntry;
use super::table::{EntryTable, Inserted, SLOT_BYTES};

/// Of this many slots, [`ENTRIES`] are taken before the table grows.
const SLOTS: usize = 20;
const ENTRIES: usize = 17;
/// The number of entries per [`SLOTS`] in a table of final size. It is larger than [`ENTRIES`],
/// because entries come by the thousand and the last batch may exceed the capacity a little.
const ENTRIES_MAX: usize = 18;
/// The slots of a new table.
const SLOTS_FIRST: usize = 1 << 12;
/// The least number of slots for which a buffer is sized, however little memory there is.
const SLOTS_MIN: usize = 100;
/// The number of entries that move from the outgrown table with each insertion. The new table is
/// larger by an eighth at least, so the last entry has moved before it is full.
const MOVES: usize = 16;
/// The approximate memory of an entry in the tree.
const CROWDED_BYTES: usize = 40;

/// New entries, in order.
#[derive(Debug, Clone)]
pub(super) struct EntryBuffer {
    table: EntryTable,
    /// The former table, from which entries are still moving. Those that remain follow all entries
    /// of `table`.
    outgrown: Option<OutgrownTable>,
    crowded: BTreeSet<IndexEntry>,
}

/// A table whose entries are moving to a larger one, in order. Entries from `first` on exist only
/// here. Earlier ones stay in their slots, so that a search finds the entries after them, but no
/// longer count.
#[derive(Debug, Clone)]
struct OutgrownTable {
    table: EntryTable,
    first: IndexEntry,
    /// The slot of `first`.
    at: usize,
    /// The number of entries that have not moved.
    left: usize,
}

impl EntryBuffer {
    pub(super) fn new() -> Self {
        Self::of(EntryTable::new(SLOTS_FIRST))
    }

    /// Makes a buffer in the given memory, which must be all zeros. It takes `entries` entries
    /// without growing.
    pub(super) fn in_memory(keys: Vec<u64>, addresses: Vec<[u8; 5]>, entries: usize) -> Self {
        Self::of(EntryTable::in_memory(keys, addresses, Self::homes_for(entries)))
    }

    /// Returns the number of slots of a buffer that takes `entries` entries.
    pub(super) fn slots_for(entries: usize) -> usize {
        EntryTable::slots_for(Self::homes_for(entries))
    }

    /// Returns the memory of its table, without clearing it.
    pub(super) fn into_memory(self) -> (Vec<u64>, Vec<[u8; 5]>) {
        self.table.into_memory()
    }

    fn of(table: EntryTable) -> Self {
        Self { table, outgrown: None, crowded: BTreeSet::new() }
    }

    /// Returns the number of entries that fit into `memory_bytes`.
    pub(super) fn capacity_in(memory_bytes: u64) -> usize {
        let slots = to_usize(memory_bytes / SLOT_BYTES as u64);
        slots.max(SLOTS_MIN) / SLOTS * ENTRIES
    }

    fn homes_for(entries: usize) -> usize {
        entries.div_ceil(ENTRIES) * SLOTS + SLOTS
    }

    pub(super) fn len(&self) -> usize {
        let left = self.outgrown.as_ref().map_or(0, |outgrown| outgrown.left);
        self.table.len() + left + self.crowded.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if entries are still moving from an outgrown table.
    pub(super) fn is_growing(&self) -> bool {
        self.outgrown.is_some()
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let outgrown = self.outgrown.as_ref().map_or(0, |outgrown| outgrown.table.memory_bytes());
        self.table.memory_bytes() + outgrown + (self.crowded.len() * CROWDED_BYTES) as u64
    }

    /// Adds an entry. Returns true if it was new. The table grows to the size for `capacity`
    /// entries and no further; more entries make it slower.
    pub(super) fn insert(&mut self, entry: IndexEntry, capacity: usize) -> bool {
        self.grow_towards(capacity);
        if self.crowded.contains(&entry) {
            return false;
        }
        let inserted = match &mut self.outgrown {
            Some(outgrown) if entry >= outgrown.first => outgrown.insert(entry),
            _ => self.table.insert(entry),
        };
        match inserted {
            Inserted::New => true,
            Inserted::Known => false,
            Inserted::TooFar => self.crowded.insert(entry),
        }
    }

    /// Continues to move entries to the larger table. Begins a larger table if this one is full.
    fn grow_towards(&mut self, capacity: usize) {
        if let Some(outgrown) = self.outgrown.take() {
            self.outgrown = self.take_from(outgrown);
            return;
        }
        let (homes, len) = (self.table.home_count(), self.table.len());
        let entries_max = if homes >= Self::homes_for(capacity) { ENTRIES_MAX } else { ENTRIES };
        if len >= homes / SLOTS * entries_max {
            let enough = Self::homes_for(capacity.max(len + 1));
            let larger = EntryTable::new((homes * 2).min(enough).max(homes / 8 * 9));
            let table = std::mem::replace(&mut self.table, larger);
            self.outgrown = OutgrownTable::of(table, 0, len);
        }
    }

    /// Moves the next few entries of an outgrown table. Returns the rest of it.
    fn take_from(&mut self, outgrown: OutgrownTable) -> Option<OutgrownTable> {
        let OutgrownTable { table, mut at, mut left, .. } = outgrown;
        for _ in 0..MOVES {
            let (entry, next) = table.next(at)?;
            if matches!(self.table.insert(entry), Inserted::TooFar) {
                self.crowded.insert(entry);
            }
            (at, left) = (next, left - 1);
        }
        OutgrownTable::of(table, at, left)
    }

    /// Adds every address that was inserted for `key` to `into`.
    pub(super) fn addresses_of(&self, key: u64, into: &mut Vec<LogAddress>) {
        into.extend(self.table.entries_of(key).map(|entry| entry.address));
        if let Some(outgrown) = self.outgrown.as_ref().filter(|outgrown| outgrown.first.key <= key) {
            let left = outgrown.table.entries_of(key).filter(|entry| *entry >= outgrown.first);
            into.extend(left.map(|entry| entry.address));
        }
        if !self.crowded.is_empty() {
            let first = IndexEntry { key, address: LogAddress::new(0).expect("the first address") };
            into.extend(
                self.crowded.range(first..).take_while(|entry| entry.key == key).map(|entry| entry.address),
            );
        }
    }

    /// Returns the first entry of the tables at slot `at` or after it, and the slot after that.
    pub(super) fn next_in_table(&self, at: usize) -> Option<(IndexEntry, usize)> {
        if let Some(found) = self.table.next(at) {
            return Some(found);
        }
        let slots = self.table.slot_count();
        let outgrown = self.outgrown.as_ref()?;
        let (entry, next) = outgrown.table.next(at.saturating_sub(slots).max(outgrown.at))?;
        Some((entry, slots + next))
    }

    /// Returns the first entry of the tree after `last`.
    pub(super) fn next_crowded(&self, last: Option<IndexEntry>) -> Option<IndexEntry> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.crowded.range((last.map_or(Unbounded, Excluded), Unbounded)).next().copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = IndexEntry> {
        let mut at = 0;
        let in_table = std::iter::from_fn(move || {
            let (entry, next) = self.next_in_table(at)?;
            at = next;
            Some(entry)
        });
        in_table.chain(self.crowded.iter().copied())
    }
}

impl OutgrownTable {
    /// Makes the rest of a table from slot `at` on; `None` if no entry is left there.
    fn of(table: EntryTable, at: usize, left: usize) -> Option<Self> {
        let (first, next) = table.next(at)?;
        Some(Self { table, first, at: next - 1, left })
    }

    /// Adds an entry that is not before the first one, so that the first one keeps its slot.
    fn insert(&mut self, entry: IndexEntry) -> Inserted {
        let inserted = self.table.insert(entry);
        self.left += usize::from(matches!(inserted, Inserted::New));
        inserted
    }
}

#[cfg(test)]
mod tests {
    use super::super::spare::SpareBuffer;
    use super::*;

    fn entry(key: u64, granule: u64) -> IndexEntry {
        IndexEntry { key, address: LogAddress::new(granule).unwrap() }
    }

    /// Keys of every kind: spread, crowded at one place, all equal, and at the very end.
    fn key(number: u64) -> u64 {
        match number % 4 {
            0 => number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            1 => (0x1234_5678 << 32) + number,
            2 => 77,
            _ => u64::MAX - number,
        }
    }

    #[test]
    fn it_agrees_with_a_set_whatever_the_keys() {
        let mut buffer = EntryBuffer::new();
        let mut model = BTreeSet::new();
        for number in 0..60_000u64 {
            let entry = entry(key(number), number / 8 % 9000);
            assert_eq!(buffer.insert(entry, 1 << 20), model.insert(entry), "{number}");
        }
        assert_eq!(buffer.len(), model.len());
        assert!(!buffer.crowded.is_empty(), "keys that crowd one place went to the tree");
        let mut all: Vec<_> = buffer.iter().collect();
        let in_table = &all[..buffer.len() - buffer.crowded.len()];
        assert!(in_table.is_sorted());
        all.sort_unstable();
        assert!(all.iter().eq(&model));
        for number in 0..2000 {
            let mut found = Vec::new();
            buffer.addresses_of(key(number), &mut found);
            found.sort_unstable();
            let expected = model.iter().filter(|entry| entry.key == key(number)).map(|entry| entry.address);
            assert!(expected.eq(found), "{number}");
        }
    }

    #[test]
    fn while_it_grows_it_agrees_with_a_set_as_well() {
        let mut buffer = EntryBuffer::new();
        let mut model = BTreeSet::new();
        let mut growing = 0;
        for number in 0..40_000u64 {
            // Each key occurs three times: with different addresses, and again with the same.
            let entry = entry(key(number / 3), number % 3 / 2);
            assert_eq!(buffer.insert(entry, 35_000), model.insert(entry), "{number}");
            assert_eq!(buffer.len(), model.len());
            growing += u64::from(buffer.outgrown.is_some());
            let asked = key(number.wrapping_mul(7919) % (number / 3 + 1));
            let mut found = Vec::new();
            buffer.addresses_of(asked, &mut found);
            found.sort_unstable();
            let least = IndexEntry { key: asked, address: LogAddress::new(0).unwrap() };
            let expected = model.range(least..).take_while(|entry| entry.key == asked);
            assert!(expected.map(|entry| entry.address).eq(found), "{number}");
            if buffer.outgrown.is_some() && number % 64 == 0 {
                let mut all: Vec<_> = buffer.iter().collect();
                assert!(all[..all.len() - buffer.crowded.len()].is_sorted());
                all.sort_unstable();
                assert!(all.iter().eq(&model), "{number}");
            }
        }
        assert!(growing > 500, "{growing}");
    }

    #[test]
    fn a_few_too_many_do_not_make_it_grow() {
        let capacity = EntryBuffer::capacity_in(4 << 20);
        let mut buffer = SpareBuffer::new(capacity).finish();
        let before = buffer.memory_bytes();
        for number in 0..(capacity + capacity / 20) as u64 {
            buffer.insert(entry(number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number), capacity);
        }
        assert_eq!(buffer.memory_bytes(), before);
    }

    #[test]
    fn memory_stays_within_what_was_asked() {
        let memory_bytes = 4 << 20;
        let capacity = EntryBuffer::capacity_in(memory_bytes);
        let mut buffer = EntryBuffer::new();
        for number in 0..capacity as u64 {
            buffer.insert(entry(number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number), capacity);
        }
        assert_eq!(buffer.len(), capacity);
        assert!(buffer.memory_bytes() < memory_bytes + 64_000, "{}", buffer.memory_bytes());
        let mut roomy = SpareBuffer::new(capacity).finish();
        let before = roomy.memory_bytes();
        buffer.iter().for_each(|entry| assert!(roomy.insert(entry, capacity)));
        assert_eq!((roomy.memory_bytes(), roomy.len()), (before, capacity));
        assert!(before < memory_bytes + 64_000, "{before}");
        assert!(capacity as u64 > memory_bytes / 16);
    }
}
