//! A table of entries in the order of their keys, with gaps. It is searched and filled at random,
//! and read in order.
//!
//! An entry's home is the slot of its key if keys were spread evenly. The entry is at its home or
//! after it, with no gap between.

use varve_block::LogAddress;

use super::IndexEntry;

/// An entry that would be farther from its home is refused.
const DISTANCE_MAX: usize = 512;
/// An empty slot. The last address of all has the same value, and is refused.
const NOTHING: [u8; 5] = [0; 5];
/// The bytes of a slot.
pub(super) const SLOT_BYTES: usize = 13;

#[derive(Debug, Clone)]
pub(super) struct EntryTable {
    keys: Vec<u64>,
    /// One for each key: the complement of the address, so that zeroed memory is an empty table.
    addresses: Vec<[u8; 5]>,
    home_count: usize,
    len: usize,
}

/// The result of an insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inserted {
    New,
    /// The entry was present.
    Known,
    /// The entry was refused: too many entries have its home, or homes near it.
    TooFar,
}

impl EntryTable {
    pub(super) fn new(home_count: usize) -> Self {
        let slot_count = Self::slots_for(home_count);
        Self::in_memory(vec![0; slot_count], vec![NOTHING; slot_count], home_count)
    }

    /// Makes an empty table in memory of zeros.
    pub(super) fn in_memory(keys: Vec<u64>, addresses: Vec<[u8; 5]>, home_count: usize) -> Self {
        Self { keys, addresses, home_count, len: 0 }
    }

    /// Returns the number of slots: the homes, and room for entries that are pushed past the last
    /// home.
    pub(super) fn slots_for(home_count: usize) -> usize {
        home_count + DISTANCE_MAX
    }

    /// Returns its memory, without clearing it.
    pub(super) fn into_memory(self) -> (Vec<u64>, Vec<[u8; 5]>) {
        (self.keys, self.addresses)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn home_count(&self) -> usize {
        self.home_count
    }

    pub(super) fn slot_count(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.keys.capacity() * size_of::<u64>() + self.addresses.capacity() * size_of::<[u8; 5]>()) as u64
    }

    pub(super) fn insert(&mut self, entry: IndexEntry) -> Inserted {
        let home = self.home(entry.key);
        let mut at = home;
        while let Some(there) = self.get(at) {
            if there == entry {
                return Inserted::Known;
            }
            if there > entry {
                break;
            }
            at += 1;
        }
        if at - home > DISTANCE_MAX || entry.address.granule() == LogAddress::END - 1 {
            return Inserted::TooFar;
        }
        self.put_before(at, entry);
        self.len += 1;
        Inserted::New
    }

    /// Returns all entries with this key, in order.
    pub(super) fn entries_of(&self, key: u64) -> impl Iterator<Item = IndexEntry> {
        let from_home = (self.home(key)..).map_while(|at| self.get(at));
        from_home.take_while(move |there| there.key <= key).filter(move |there| there.key == key)
    }

    /// Returns the first entry at slot `at` or after it, and the slot after that.
    pub(super) fn next(&self, at: usize) -> Option<(IndexEntry, usize)> {
        (at..self.keys.len()).find_map(|place| Some((self.get(place)?, place + 1)))
    }

    fn get(&self, place: usize) -> Option<IndexEntry> {
        let bytes = self.addresses.get(place).filter(|bytes| **bytes != NOTHING)?;
        let mut word = [0; 8];
        word[..5].copy_from_slice(bytes);
        let granule = !u64::from_le_bytes(word) & (LogAddress::END - 1);
        Some(IndexEntry { key: self.keys[place], address: LogAddress::new(granule)? })
    }

    /// Puts `entry` into a slot, and shifts the entries up to the next gap by one.
    fn put_before(&mut self, place: usize, entry: IndexEntry) {
        let gap = (place..self.keys.len()).find(|at| self.addresses[*at] == NOTHING).unwrap_or_else(|| {
            self.keys.push(0);
            self.addresses.push(NOTHING);
            self.keys.len() - 1
        });
        self.keys.copy_within(place..gap, place + 1);
        self.addresses.copy_within(place..gap, place + 1);
        let complement = (!entry.address.granule()).to_le_bytes();
        self.keys[place] = entry.key;
        self.addresses[place].copy_from_slice(&complement[..5]);
    }

    #[expect(clippy::cast_possible_truncation, reason = "less than the count of homes")]
    fn home(&self, key: u64) -> usize {
        ((u128::from(key) * self.home_count as u128) >> 64) as usize
    }
}
