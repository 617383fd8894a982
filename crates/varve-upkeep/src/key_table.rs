//! An exact table of numbers by keys: open addressing, 16 bytes a slot, of which at most four
//! fifths are taken.
//!
//! A key is 96 bits of a keyed hash. Two of 2³⁰ keys are the same with a probability of 2⁻³⁷. The
//! salt is drawn for each run, so nobody can choose names that a table confuses. 64 bits would not
//! do: a mark skips a block that was walked, so a wrong answer could lose live blocks.
//!
//! The table is cut into parts that grow one at a time, so that growth takes little memory beside
//! the table itself.

use std::io;

use varve_world::Random;

/// The number of parts.
const PART_COUNT: usize = 64;
/// The bits of the first word that choose the part.
const PART_SHIFT: u32 = 32 - PART_COUNT.trailing_zeros();
/// The slots of a part that has just got its first entry.
const FIRST_SLOTS: usize = 16;
/// The most bytes that an entry of a [`KeyTable`] takes: its part has just grown by half.
pub const KEY_BYTES_MAX: u64 = 30;

/// The salt of the keys of a run.
#[derive(Debug, Clone)]
pub struct KeySalt([u8; 32]);

/// The hash of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    words: [u32; 3],
    /// Further bits, for a filter.
    filter_key: (u64, u64),
}

/// Three words of the key, and one more than the value. An empty slot is all zeros.
type TableSlot = [u32; 4];

const EMPTY: TableSlot = [0; 4];

/// See the module's documentation.
#[derive(Debug, Clone, Default)]
pub struct KeyTable {
    parts: Vec<TablePart>,
}

#[derive(Debug, Clone, Default)]
struct TablePart {
    slots: Vec<TableSlot>,
    count: usize,
}

impl KeySalt {
    /// Draws a salt.
    ///
    /// # Errors
    /// The system cannot supply random bytes.
    pub fn new(random: &dyn Random) -> io::Result<Self> {
        let mut salt = [0; 32];
        random.fill(&mut salt)?;
        Ok(Self(salt))
    }

    /// Returns the key for these bytes.
    #[must_use]
    pub fn key(&self, bytes: &[u8]) -> Key {
        let hash = blake3::keyed_hash(&self.0, bytes);
        let (words, _) = hash.as_bytes().as_chunks::<4>();
        let word = |place: usize| words.get(place).copied().map_or(0, u32::from_le_bytes);
        let long = |place: usize| u64::from(word(place)) << 32 | u64::from(word(place + 1));
        Key { words: [word(0), word(1), word(2)], filter_key: (long(3), long(5)) }
    }
}

impl Key {
    /// Returns the slice of all keys that has this one, from 0 to `slice_count - 1`.
    #[must_use]
    pub fn slice(self, slice_count: u32) -> u32 {
        ((u64::from(self.words[2]) * u64::from(slice_count)) >> 32) as u32
    }

    pub(crate) fn filter_key(self) -> (u64, u64) {
        self.filter_key
    }

    fn part(self) -> usize {
        (self.words[0] >> PART_SHIFT) as usize
    }
}

impl KeyTable {
    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<u32> {
        let part = self.parts.get(key.part())?;
        Some(part.slots.get(part.find(&key.words).ok()?)?[3] - 1)
    }

    /// Sets the value of a key. It must be less than the largest number.
    pub fn set(&mut self, key: Key, value: u32) {
        if self.parts.is_empty() {
            self.parts.resize(PART_COUNT, TablePart::default());
        }
        let part = &mut self.parts[key.part()];
        part.make_room();
        part.insert([key.words[0], key.words[1], key.words[2], value + 1]);
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.parts.iter().map(|part| part.count as u64).sum()
    }

    /// Returns the memory that the entries take, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.parts.iter().map(|part| (part.slots.capacity() * size_of::<TableSlot>()) as u64).sum()
    }
}

impl TablePart {
    fn make_room(&mut self) {
        if (self.count + 1) * 5 <= self.slots.len() * 4 {
            return;
        }
        let slot_count = (self.slots.len() + self.slots.len() / 2).max(FIRST_SLOTS);
        let before = std::mem::replace(&mut self.slots, vec![EMPTY; slot_count]);
        self.count = 0;
        for slot in before.into_iter().filter(|slot| *slot != EMPTY) {
            self.insert(slot);
        }
    }

    fn insert(&mut self, new: TableSlot) {
        let place = self.find(&[new[0], new[1], new[2]]);
        self.count += usize::from(place.is_err());
        self.slots[place.unwrap_or_else(|free| free)] = new;
    }

    /// Returns the place of a key, or as the error the free place for it; of a part without slots
    /// a place beyond its end.
    fn find(&self, words: &[u32; 3]) -> Result<usize, usize> {
        let slot_count = self.slots.len();
        let first = ((u64::from(words[1]) * slot_count as u64) >> 32) as usize;
        for place in (first..slot_count).chain(0..first) {
            match &self.slots[place] {
                slot if *slot == EMPTY => return Err(place),
                slot if slot[..3] == words[..] => return Ok(place),
                _ => {}
            }
        }
        Err(slot_count)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use varve_world::SeededRandom;

    use super::*;

    fn salt() -> KeySalt {
        KeySalt::new(&SeededRandom::new(1)).unwrap()
    }

    proptest! {
        #[test]
        fn the_table_agrees_with_a_map(steps in prop::collection::vec((0_u32..400, 0_u32..9), 0..1000)) {
            let (salt, mut table, mut model) = (salt(), KeyTable::default(), BTreeMap::new());
            for (number, value) in steps {
                table.set(salt.key(&number.to_le_bytes()), value);
                model.insert(number, value);
            }
            for number in 0..400_u32 {
                prop_assert_eq!(table.get(salt.key(&number.to_le_bytes())), model.get(&number).copied());
            }
            prop_assert_eq!(table.count(), model.len() as u64);
        }
    }

    #[test]
    fn an_entry_takes_at_most_so_many_bytes() {
        let (salt, mut table) = (salt(), KeyTable::default());
        assert_eq!(table.memory_bytes(), 0);
        let mut slices = [0; 4];
        for number in 1..=200_000_u32 {
            let key = salt.key(&number.to_le_bytes());
            table.set(key, number);
            slices[key.slice(4) as usize] += 1;
            let is_large = number > 10_000;
            assert!(!is_large || table.memory_bytes() <= KEY_BYTES_MAX * u64::from(number) + (1 << 14));
        }
        assert!(slices.iter().all(|count| (49_000..51_000).contains(count)), "{slices:?}");
    }
}
