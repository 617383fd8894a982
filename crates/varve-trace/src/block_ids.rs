//! Numbers for blocks, in the order of their first use. No block can be found from its number.

use std::io;

use varve_block::BlockName;
use varve_world::Random;

/// The slots of a new table.
const SLOTS_MIN: usize = 1 << 10;
/// Memory of a slot in bytes: a hash and a number.
const SLOT_BYTES: usize = 12;

/// The number of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockUse {
    /// The block is used for the first time.
    First(u64),
    /// The block was used before, and got this number then.
    Again(u64),
}

/// Gives each block a number: 0, 1, 2, … in the order of their first use.
///
/// The table holds 64 bits of a keyed hash of each name. Its key is drawn at the start and is never
/// stored, so nobody can compare the numbers of two traces, or look for a known block.
///
/// The memory is bounded. A full table gives blocks that it does not have a new number at each use.
pub struct BlockIds {
    key: [u8; 32],
    /// Open addressing with linear probing. A hash of 0 is an empty slot.
    hashes: Vec<u64>,
    ids: Vec<u32>,
    used_count: usize,
    next_id: u64,
    slots_max: usize,
}

impl BlockIds {
    /// Makes an empty table that takes at most `memory` bytes. While it grows, it takes half of
    /// them again.
    ///
    /// # Errors
    /// The system cannot supply a random key.
    pub fn new(random: &dyn Random, memory: usize) -> io::Result<Self> {
        let mut key = [0; 32];
        random.fill(&mut key)?;
        let slots = memory / SLOT_BYTES;
        let slots_max = if slots < SLOTS_MIN { SLOTS_MIN } else { 1 << slots.ilog2() };
        Ok(Self {
            key,
            hashes: vec![0; SLOTS_MIN],
            ids: vec![0; SLOTS_MIN],
            used_count: 0,
            next_id: 0,
            slots_max,
        })
    }

    /// Returns the number of a block.
    pub fn id_of(&mut self, name: &BlockName) -> BlockUse {
        let hash = self.hash_of(name);
        let mut slot = self.slot_of(hash);
        if self.hashes[slot] == hash {
            return BlockUse::Again(u64::from(self.ids[slot]));
        }
        let id = self.next_id;
        self.next_id += 1;
        let Ok(stored) = u32::try_from(id) else { return BlockUse::First(id) };
        if self.is_full() {
            return BlockUse::First(id);
        }
        if self.used_count >= self.slots_filled_max() {
            self.grow();
            slot = self.slot_of(hash);
        }
        self.hashes[slot] = hash;
        self.ids[slot] = stored;
        self.used_count += 1;
        BlockUse::First(id)
    }

    /// Reports whether a block has a number already.
    #[must_use]
    pub fn knows(&self, name: &BlockName) -> bool {
        let hash = self.hash_of(name);
        self.hashes[self.slot_of(hash)] == hash
    }

    /// Reports whether the table has all the blocks that it can have.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.next_id > u64::from(u32::MAX)
            || self.hashes.len() >= self.slots_max && self.used_count >= self.slots_filled_max()
    }

    fn slots_filled_max(&self) -> usize {
        self.hashes.len() / 8 * 7
    }

    fn hash_of(&self, name: &BlockName) -> u64 {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&[name.block_type.to_byte()]).update(name.score.as_bytes());
        let mut bytes = [0; 8];
        hasher.finalize_xof().fill(&mut bytes);
        u64::from_le_bytes(bytes).max(1)
    }

    /// The slot of a hash, or the empty slot in which it belongs. There always is an empty slot.
    fn slot_of(&self, hash: u64) -> usize {
        let mask = self.hashes.len() - 1;
        #[expect(clippy::cast_possible_truncation, reason = "only as many bits as there are slots count")]
        let mut slot = hash as usize & mask;
        while self.hashes[slot] != hash && self.hashes[slot] != 0 {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        let slot_count = self.hashes.len() * 2;
        let hashes = std::mem::replace(&mut self.hashes, vec![0; slot_count]);
        let ids = std::mem::replace(&mut self.ids, vec![0; slot_count]);
        for (hash, id) in hashes.into_iter().zip(ids).filter(|(hash, _)| *hash != 0) {
            let slot = self.slot_of(hash);
            self.hashes[slot] = hash;
            self.ids[slot] = id;
        }
    }
}

impl std::fmt::Debug for BlockIds {
    /// Never shows the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockIds").field("used_count", &self.used_count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use varve_block::{BlockType, Score};
    use varve_world::SeededRandom;

    use super::*;

    fn name(number: u64) -> BlockName {
        let score = Score::from(*blake3::hash(&number.to_le_bytes()).as_bytes());
        BlockName { score, block_type: BlockType::DATA }
    }

    #[test]
    fn numbers_follow_first_use() {
        let mut ids = BlockIds::new(&SeededRandom::new(1), 1 << 20).unwrap();
        for number in 0..20_000 {
            assert_eq!(ids.id_of(&name(number)), BlockUse::First(number));
        }
        for number in 0..20_000 {
            assert_eq!(ids.id_of(&name(number)), BlockUse::Again(number));
        }
        let other_type = BlockName { block_type: BlockType::DIRECTORY, ..name(0) };
        assert_eq!(ids.id_of(&other_type), BlockUse::First(20_000));
        assert!(!ids.is_full());
    }

    #[test]
    fn memory_is_bounded() {
        let mut ids = BlockIds::new(&SeededRandom::new(1), 0).unwrap();
        let kept = SLOTS_MIN as u64 / 8 * 7;
        for number in 0..2000 {
            assert_eq!(ids.is_full(), number >= kept);
            assert_eq!(ids.id_of(&name(number)), BlockUse::First(number));
        }
        assert!(ids.knows(&name(kept - 1)) && !ids.knows(&name(kept)));
        assert_eq!(ids.id_of(&name(kept - 1)), BlockUse::Again(kept - 1));
        assert_eq!(ids.id_of(&name(kept)), BlockUse::First(2000), "it is new at each use");
        assert_eq!(ids.hashes.len(), SLOTS_MIN);
    }

    #[test]
    fn the_key_decides_the_slots_and_is_not_shown() {
        let ids = [1, 2].map(|seed| BlockIds::new(&SeededRandom::new(seed), 0).unwrap());
        assert_ne!(ids[0].hash_of(&name(1)), ids[1].hash_of(&name(1)));
        assert_eq!(format!("{:?}", ids[0]), "BlockIds { used_count: 0, .. }");
    }
}
