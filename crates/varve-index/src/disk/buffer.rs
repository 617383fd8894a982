//! The buffer of new entries: a table in order of keys, with gaps, so that it is searched and filled at random and read in order.
//!
//! An entry's home is where its key would be if keys were spread evenly. It is at its home or after it, with no gap between.
//! Keys that crowd one place (a store's blocks may be chosen by an enemy) are kept in a tree beside the table.

use std::collections::BTreeSet;

use varve_block::LogAddress;

use super::Entry;

/// Of so many slots, [`ENTRIES`] are taken before the table grows.
const SLOTS: usize = 20;
const ENTRIES: usize = 17;
/// Slots of a new table.
const SLOTS_FIRST: usize = 1 << 12;
/// A buffer takes as many entries as go into so many slots, however little memory there is.
const SLOTS_MIN: usize = 100;
/// An entry that would be farther from its home goes to the tree.
const DISTANCE_MAX: usize = 512;
/// No address. That of the last place of all is the same; it goes to the tree.
const NOTHING: [u8; 5] = [0; 5];
/// Bytes of a slot.
const SLOT_BYTES: usize = 13;
/// About what an entry of the tree takes.
const CROWDED_BYTES: usize = 40;

/// New entries, in order.
#[derive(Debug, Clone)]
pub(super) struct Buffer {
    keys: Vec<u64>,
    /// As many as keys; the complement of an address, so that memory of zeros is an empty table.
    addresses: Vec<[u8; 5]>,
    home_count: usize,
    table_len: usize,
    crowded: BTreeSet<Entry>,
}

impl Buffer {
    pub(super) fn new() -> Self {
        Self::with_homes(SLOTS_FIRST)
    }

    /// One that takes so many entries without growing: no insertion waits until all of them have moved. Memory that is not used yet
    /// costs nothing.
    pub(super) fn with_room(entries: usize) -> Self {
        Self::with_homes(Self::homes_for(entries))
    }

    /// How many entries fit into this much memory.
    pub(super) fn capacity_in(memory_bytes: u64) -> usize {
        let slots = usize::try_from(memory_bytes / SLOT_BYTES as u64).unwrap_or(usize::MAX / SLOTS);
        slots.max(SLOTS_MIN) / SLOTS * ENTRIES
    }

    fn homes_for(entries: usize) -> usize {
        entries.div_ceil(ENTRIES) * SLOTS + SLOTS
    }

    fn with_homes(home_count: usize) -> Self {
        // What is pushed over the last home has a place of its own.
        let slot_count = home_count + DISTANCE_MAX;
        Self {
            keys: vec![0; slot_count],
            addresses: vec![NOTHING; slot_count],
            home_count,
            table_len: 0,
            crowded: BTreeSet::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table_len + self.crowded.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.keys.capacity() * size_of::<u64>()
            + self.addresses.capacity() * size_of::<[u8; 5]>()
            + self.crowded.len() * CROWDED_BYTES) as u64
    }

    /// Adds an entry; returns whether it was not there. Grows to what `capacity` entries need and not beyond; more than
    /// that make it slower.
    pub(super) fn insert(&mut self, entry: Entry, capacity: usize) -> bool {
        if self.table_len >= self.home_count / SLOTS * ENTRIES {
            let enough = Self::homes_for(capacity.max(self.table_len + 1));
            self.grow((self.home_count * 2).min(enough).max(self.home_count / 8 * 9));
        }
        if self.crowded.contains(&entry) {
            return false;
        }
        let home = self.home(entry.key);
        let mut at = home;
        while let Some(there) = self.get(at) {
            if there == entry {
                return false;
            }
            if there > entry {
                break;
            }
            at += 1;
        }
        if at - home > DISTANCE_MAX || entry.address.granule() == LogAddress::END - 1 {
            return self.crowded.insert(entry);
        }
        self.put_before(at, entry);
        self.table_len += 1;
        true
    }

    /// Every address that was inserted for `key`.
    pub(super) fn addresses_of(&self, key: u64, into: &mut Vec<LogAddress>) {
        let mut at = self.home(key);
        while let Some(there) = self.get(at) {
            if there.key > key {
                break;
            }
            if there.key == key {
                into.push(there.address);
            }
            at += 1;
        }
        if !self.crowded.is_empty() {
            let first = Entry { key, address: LogAddress::new(0).expect("the first address") };
            into.extend(
                self.crowded.range(first..).take_while(|entry| entry.key == key).map(|entry| entry.address),
            );
        }
    }

    /// The first entry of the table at place `at` or after it, and the place after that.
    pub(super) fn next_in_table(&self, at: usize) -> Option<(Entry, usize)> {
        (at..self.keys.len()).find_map(|place| Some((self.get(place)?, place + 1)))
    }

    /// The first entry of the tree after `last`.
    pub(super) fn next_crowded(&self, last: Option<Entry>) -> Option<Entry> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.crowded.range((last.map_or(Unbounded, Excluded), Unbounded)).next().copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> {
        let mut at = 0;
        let in_table = std::iter::from_fn(move || {
            let (entry, next) = self.next_in_table(at)?;
            at = next;
            Some(entry)
        });
        in_table.chain(self.crowded.iter().copied())
    }

    fn get(&self, place: usize) -> Option<Entry> {
        let bytes = self.addresses.get(place).filter(|bytes| **bytes != NOTHING)?;
        let mut word = [0; 8];
        word[..5].copy_from_slice(bytes);
        let granule = !u64::from_le_bytes(word) & (LogAddress::END - 1);
        Some(Entry { key: self.keys[place], address: LogAddress::new(granule)? })
    }

    fn set(&mut self, place: usize, entry: Entry) {
        let complement = (!entry.address.granule()).to_le_bytes();
        self.keys[place] = entry.key;
        self.addresses[place].copy_from_slice(&complement[..5]);
    }

    /// Puts `entry` at a place, and moves what is there, and all up to the next gap, on by one.
    fn put_before(&mut self, place: usize, entry: Entry) {
        let gap = (place..self.keys.len()).find(|at| self.addresses[*at] == NOTHING).unwrap_or_else(|| {
            self.keys.push(0);
            self.addresses.push(NOTHING);
            self.keys.len() - 1
        });
        self.keys.copy_within(place..gap, place + 1);
        self.addresses.copy_within(place..gap, place + 1);
        self.set(place, entry);
    }

    fn grow(&mut self, home_count: usize) {
        let old = std::mem::replace(self, Self::with_homes(home_count));
        self.crowded = old.crowded.clone();
        // They come in order, so each goes to its home or behind the one before.
        let mut next = 0;
        for place in 0..old.keys.len() {
            let Some(entry) = old.get(place) else { continue };
            let at = self.home(entry.key).max(next);
            if at >= self.keys.len() {
                self.keys.push(0);
                self.addresses.push(NOTHING);
            }
            self.set(at, entry);
            next = at + 1;
        }
        self.table_len = old.table_len;
    }

    #[expect(clippy::cast_possible_truncation, reason = "less than the count of homes")]
    fn home(&self, key: u64) -> usize {
        ((u128::from(key) * self.home_count as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: u64, granule: u64) -> Entry {
        Entry { key, address: LogAddress::new(granule).unwrap() }
    }

    /// Every kind of key: spread, crowded at one place, all the same, and at the very end.
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
        let mut buffer = Buffer::new();
        let mut model = BTreeSet::new();
        for number in 0..60_000u64 {
            let entry = entry(key(number), number / 8 % 9000);
            assert_eq!(buffer.insert(entry, 1 << 20), model.insert(entry), "{number}");
        }
        assert_eq!(buffer.len(), model.len());
        assert!(!buffer.crowded.is_empty(), "keys that crowd one place went to the tree");
        let mut all: Vec<_> = buffer.iter().collect();
        let in_table = &all[..buffer.table_len];
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
    fn memory_stays_within_what_was_asked() {
        let memory_bytes = 4 << 20;
        let capacity = Buffer::capacity_in(memory_bytes);
        let mut buffer = Buffer::new();
        for number in 0..capacity as u64 {
            buffer.insert(entry(number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number), capacity);
        }
        assert_eq!(buffer.len(), capacity);
        assert!(buffer.memory_bytes() < memory_bytes + 64_000, "{}", buffer.memory_bytes());
        let mut roomy = Buffer::with_room(capacity);
        let before = roomy.memory_bytes();
        buffer.iter().for_each(|entry| assert!(roomy.insert(entry, capacity)));
        assert_eq!((roomy.memory_bytes(), roomy.len()), (before, capacity));
        assert!(before < memory_bytes + 64_000, "{before}");
        assert!(capacity as u64 > memory_bytes / 16);
    }
}
