//! A table of entries in order of keys, with gaps, so that it is searched and filled at random and read in order.
//!
//! An entry's home is where its key would be if keys were spread evenly. It is at its home or after it, with no gap between.

use varve_block::LogAddress;

use super::Entry;

/// An entry that would be farther from its home is not taken.
const DISTANCE_MAX: usize = 512;
/// No address. That of the last place of all is the same; it is not taken.
const NOTHING: [u8; 5] = [0; 5];
/// Bytes of a slot.
pub(super) const SLOT_BYTES: usize = 13;

#[derive(Debug, Clone)]
pub(super) struct Table {
    keys: Vec<u64>,
    /// As many as keys; the complement of an address, so that memory of zeros is an empty table.
    addresses: Vec<[u8; 5]>,
    home_count: usize,
    len: usize,
}

/// What became of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inserted {
    New,
    /// It was there.
    Known,
    /// It was not taken: too many entries have its home, or homes beside it.
    TooFar,
}

impl Table {
    pub(super) fn new(home_count: usize) -> Self {
        let slot_count = Self::slots_for(home_count);
        Self::in_memory(vec![0; slot_count], vec![NOTHING; slot_count], home_count)
    }

    /// An empty one in as many zeros as it has slots.
    pub(super) fn in_memory(keys: Vec<u64>, addresses: Vec<[u8; 5]>, home_count: usize) -> Self {
        Self { keys, addresses, home_count, len: 0 }
    }

    /// What is pushed over the last home has a place of its own.
    pub(super) fn slots_for(home_count: usize) -> usize {
        home_count + DISTANCE_MAX
    }

    /// Its memory, as it was left.
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

    pub(super) fn insert(&mut self, entry: Entry) -> Inserted {
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

    /// All entries with this key, in order.
    pub(super) fn entries_of(&self, key: u64) -> impl Iterator<Item = Entry> {
        let from_home = (self.home(key)..).map_while(|at| self.get(at));
        from_home.take_while(move |there| there.key <= key).filter(move |there| there.key == key)
    }

    /// The first entry at place `at` or after it, and the place after that.
    pub(super) fn next(&self, at: usize) -> Option<(Entry, usize)> {
        (at..self.keys.len()).find_map(|place| Some((self.get(place)?, place + 1)))
    }

    fn get(&self, place: usize) -> Option<Entry> {
        let bytes = self.addresses.get(place).filter(|bytes| **bytes != NOTHING)?;
        let mut word = [0; 8];
        word[..5].copy_from_slice(bytes);
        let granule = !u64::from_le_bytes(word) & (LogAddress::END - 1);
        Some(Entry { key: self.keys[place], address: LogAddress::new(granule)? })
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
        let complement = (!entry.address.granule()).to_le_bytes();
        self.keys[place] = entry.key;
        self.addresses[place].copy_from_slice(&complement[..5]);
    }

    #[expect(clippy::cast_possible_truncation, reason = "less than the count of homes")]
    fn home(&self, key: u64) -> usize {
        ((u128::from(key) * self.home_count as u128) >> 64) as usize
    }
}
