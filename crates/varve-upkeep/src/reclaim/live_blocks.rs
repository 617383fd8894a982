//! The set of live blocks: all blocks that a snapshot, a list of the catalog, or another root leads
//! to.
//!
//! A wrong answer may keep a dead block, and never loses a live one. Blocks that lead to others
//! (pointer blocks, lists, roots) are in an exact set. All other blocks are in a Bloom filter,
//! whose memory is bounded. Both know a block by a hash of its whole name, keyed with a salt that
//! each run draws anew. So nobody can choose blocks that the filter confuses, and a dead block that
//! one run keeps by mistake is freed by the next.
//!
//! The exact set also records which blocks were *walked*: everything below them is in the set. A
//! mark walks no block twice, and an interrupted mark can be continued with the same set. The same
//! pointer block may be part of trees of several kinds, and leads to other blocks in each of them.
//! So it is recorded with the [`WalkedAs`] of its tree. A folder is recorded by its whole entry.
//!
//! A block that is stored as a delta needs its base. So the base of every delta in the log is live,
//! whether the delta is or not: a dead delta that stays, because its arena is not written anew, can
//! still be read and checked, and found when the same block is put again.
//!
//! The root of a catalog is live only if it is the newest final one. An added root that came into
//! an arena of a full key would count as final, and would hide the snapshots before it. Anybody who
//! may add snapshots can make one that leads to such a root, so leading there is not enough.

mod leaf_filter;

use std::collections::BTreeSet;
use std::io;

use varve_block::{BlockKind, BlockName, BlockType, SCORE_BYTES_MAX};
use varve_log::{ArenaId, ArenaState, ReadLogError};
use varve_store::Store;
use varve_world::Random;

use self::leaf_filter::LeafFilter;
use crate::key_table::{Key, KeySalt, KeyTable};

/// The default bound on the memory of the filter.
pub const FILTER_BYTES_DEFAULT: u64 = 256 << 20;
/// The exact set may always take this much memory: some millions of blocks.
const STRUCTURE_BYTES_LEAST: u64 = 64 << 20;

/// The way in which everything below a block was walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkedAs {
    /// A pointer block of a fixed tree whose leaves have the kind of the pointer block.
    Fixed,
    /// A pointer block of a tree that is cut by content.
    ContentCut,
    /// A root or a block of entries of another program, or a pointer block above such entries. That
    /// pointer block has the type of one above data.
    Foreign,
}

/// The bits of the value of a block that is in the exact set, beside those of [`WalkedAs`].
const PRESENT: u32 = 1 << 3;
/// The bit of the entry of a folder.
const FOLDER: u32 = 1 << 4;

impl WalkedAs {
    fn bit(self) -> u32 {
        match self {
            Self::Fixed => 1 << 0,
            Self::ContentCut => 1 << 1,
            Self::Foreign => 1 << 2,
        }
    }
}

/// The live blocks of a store. See the module's documentation.
#[derive(Debug, Clone)]
pub struct LiveBlocks {
    salt: KeySalt,
    /// The bits of each block and folder.
    structure: KeyTable,
    structure_bytes_max: u64,
    leaves: LeafFilter,
    catalog_root: Option<BlockName>,
    /// The sealed arenas, with their generations, whose deltas have their bases in the set.
    with_bases: BTreeSet<(ArenaId, u32)>,
}

/// Returns true if a block of this name leads to other blocks.
pub(super) fn is_structure(name: &BlockName) -> bool {
    name.block_type.depth() > 0 || name.block_type.kind() != BlockKind::Data
}

fn is_note(name: &BlockName) -> bool {
    name.block_type.kind() == BlockKind::Note
}

impl LiveBlocks {
    /// Makes an empty set for a store of `block_count` blocks. The filter takes 16 bits a block, at
    /// most `filter_bytes_max` in all. The exact set should take no more either: see
    /// [`is_over_memory`](Self::is_over_memory). The salt is drawn from `random`.
    ///
    /// # Errors
    /// The system cannot supply random bytes.
    pub fn new(random: &dyn Random, block_count: u64, filter_bytes_max: u64) -> io::Result<Self> {
        let salt = KeySalt::new(random)?;
        let leaves = LeafFilter::new(block_count, filter_bytes_max);
        let structure_bytes_max = filter_bytes_max.max(STRUCTURE_BYTES_LEAST);
        Ok(Self {
            salt,
            structure: KeyTable::default(),
            structure_bytes_max,
            leaves,
            catalog_root: None,
            with_bases: BTreeSet::new(),
        })
    }

    /// Sets the newest final root of the catalog. No other root is live.
    pub fn set_catalog_root(&mut self, root: Option<BlockName>) {
        self.catalog_root = root;
    }

    /// Adds the bases of all deltas in a store. `arenas` are the numbers of its arenas, in order.
    /// Reads the directory pages of those that may hold deltas, of each sealed arena only once.
    ///
    /// # Errors
    /// [`ReadLogError`] when a page cannot be read: a base may be missing then.
    pub fn insert_bases(&mut self, store: &Store, arenas: &[ArenaId]) -> Result<(), ReadLogError> {
        for arena in store.arenas_with_deltas(arenas) {
            let arena = arena?;
            let key = (arena.id(), arena.header().generation);
            if self.with_bases.contains(&key) {
                continue;
            }
            for page in store.pages_in_arena(arena.id())? {
                for base in page?.blocks().filter_map(|block| block.base_name()) {
                    self.insert(&base);
                }
            }
            if matches!(store.vault().log().state(&arena)?, ArenaState::Sealed { .. }) {
                self.with_bases.insert(key);
            }
        }
        Ok(())
    }

    /// Adds a block, unless it is the root of a catalog. Returns true if it was not in the set. A
    /// filter that takes the block for another one returns false.
    pub fn insert(&mut self, name: &BlockName) -> bool {
        if name.block_type == BlockType::CATALOG {
            return false;
        }
        let key = self.key_of(name);
        if is_structure(name) {
            let is_new = self.structure.get(key).is_none();
            self.note(key, PRESENT);
            is_new
        } else {
            self.leaves.insert(key.filter_key())
        }
    }

    /// Returns true if the block is live. Seldom returns true for a dead block, and never false for
    /// a live one. The store's own notes are always live.
    #[must_use]
    pub fn contains(&self, name: &BlockName) -> bool {
        if name.block_type == BlockType::CATALOG {
            return self.catalog_root == Some(*name);
        }
        if is_note(name) {
            return true;
        }
        let key = self.key_of(name);
        if is_structure(name) {
            self.structure.get(key).is_some()
        } else {
            self.leaves.may_contain(key.filter_key())
        }
    }

    /// Adds a block, and records that everything below it was walked in this way and is in the set.
    pub fn note_walked(&mut self, block: &BlockName, walked: WalkedAs) {
        self.note(self.key_of(block), walked.bit());
    }

    /// Returns true if [`note_walked`](Self::note_walked) was called with this block and this way.
    #[must_use]
    pub fn is_walked(&self, block: &BlockName, walked: WalkedAs) -> bool {
        self.is_noted(self.key_of(block), walked.bit())
    }

    /// Records that the list with this entry, and all files and folders in it, are in the set.
    /// `entry` is the encoded entry: its size and layout decide how the list is read.
    pub fn note_folder_walked(&mut self, entry: &[u8]) {
        self.note(self.salt.key(entry), FOLDER);
    }

    /// Returns true if [`note_folder_walked`](Self::note_folder_walked) was called with this entry.
    #[must_use]
    pub fn is_folder_walked(&self, entry: &[u8]) -> bool {
        self.is_noted(self.salt.key(entry), FOLDER)
    }

    /// Returns the memory that it takes, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.structure.memory_bytes() + self.leaves.memory_bytes()
    }

    /// Returns the bound on the memory of the exact set, in bytes.
    #[must_use]
    pub fn structure_bytes_max(&self) -> u64 {
        self.structure_bytes_max
    }

    /// Returns true if the exact set takes more memory than it may. A mark has to end then.
    #[must_use]
    pub fn is_over_memory(&self) -> bool {
        self.structure.memory_bytes() > self.structure_bytes_max
    }

    /// Returns the number of entries of the exact set.
    #[must_use]
    pub fn structure_count(&self) -> u64 {
        self.structure.count()
    }

    /// Returns the number of different leaves that were added, less those that the filter took for
    /// others.
    #[must_use]
    pub fn leaf_count(&self) -> u64 {
        self.leaves.key_count()
    }

    /// Returns the share of dead leaves that the filter takes for live ones, from 0 to 1. Reads the
    /// whole filter.
    #[must_use]
    pub fn false_positive_rate(&self) -> f64 {
        self.leaves.false_positive_rate()
    }

    fn note(&mut self, key: Key, bit: u32) {
        let bits = self.structure.get(key).unwrap_or_default();
        self.structure.set(key, bits | bit);
    }

    fn is_noted(&self, key: Key, bit: u32) -> bool {
        self.structure.get(key).is_some_and(|bits| bits & bit != 0)
    }

    fn key_of(&self, name: &BlockName) -> Key {
        let mut input = [0; SCORE_BYTES_MAX + 1];
        let score = name.score.as_bytes();
        input[0] = name.block_type.to_byte();
        input[1..=score.len()].copy_from_slice(score);
        self.salt.key(&input[..=score.len()])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use varve_block::{BlockType, Score};
    use varve_world::SeededRandom;

    use super::*;

    fn set(seed: u64, block_count: u64) -> LiveBlocks {
        LiveBlocks::new(&SeededRandom::new(seed), block_count, FILTER_BYTES_DEFAULT).unwrap()
    }

    fn name(number: u32, byte: u8) -> BlockName {
        let score = Score::from(*blake3::hash(&number.to_le_bytes()).as_bytes());
        BlockName { score, block_type: BlockType::from_byte(byte).unwrap() }
    }

    fn any_name() -> impl Strategy<Value = BlockName> {
        // Data, a pointer block, a list, a pointer block of a list, a root.
        (0_u32..60, prop::sample::select(vec![0, 1, 0x20, 0x21, 0x40]))
            .prop_map(|(number, byte)| name(number, byte))
    }

    proptest! {
        #[test]
        fn the_set_never_forgets(seed in any::<u64>(), names in prop::collection::vec(any_name(), 0..300)) {
            let (mut live, mut model) = (set(seed, 10_000), std::collections::BTreeSet::new());
            for name in &names {
                prop_assert_eq!(live.contains(name), model.contains(name));
                prop_assert_eq!(live.insert(name), model.insert(*name));
                prop_assert!(model.iter().all(|name| live.contains(name)));
            }
            prop_assert_eq!(live.structure_count() + live.leaf_count(), model.len() as u64);
        }
    }

    #[test]
    fn a_block_is_walked_in_one_way_only() {
        let mut live = set(1, 100);
        let pointer = name(1, 1);
        live.note_walked(&pointer, WalkedAs::ContentCut);
        assert!(live.contains(&pointer) && !live.insert(&pointer));
        assert!(live.is_walked(&pointer, WalkedAs::ContentCut));
        assert!(!live.is_walked(&pointer, WalkedAs::Fixed) && !live.is_walked(&pointer, WalkedAs::Foreign));
        live.note_walked(&pointer, WalkedAs::Foreign);
        assert!(
            live.is_walked(&pointer, WalkedAs::ContentCut) && live.is_walked(&pointer, WalkedAs::Foreign)
        );
        assert!(!live.is_walked(&pointer, WalkedAs::Fixed));
    }

    #[test]
    fn only_the_newest_final_root_of_a_catalog_is_live() {
        let mut live = set(1, 100);
        let (newest, added) = (name(1, 0x60), name(2, 0x60));
        live.set_catalog_root(Some(newest));
        assert!(!live.insert(&added) && live.contains(&newest) && !live.contains(&added));
        live.set_catalog_root(Some(added));
        assert!(live.contains(&added) && !live.contains(&newest));
    }

    #[test]
    fn a_folder_is_known_by_its_whole_entry() {
        let mut live = set(1, 100);
        let list = name(1, 0x20);
        live.note_folder_walked(b"an entry");
        assert!(live.is_folder_walked(b"an entry") && !live.is_folder_walked(b"an entr"));
        // Its name alone is neither a folder nor a live block.
        live.insert(&name(2, 0x20));
        assert!(!live.contains(&list) && !live.is_folder_walked(list.score.as_bytes()));
    }

    #[test]
    fn a_block_that_one_run_keeps_by_mistake_is_freed_by_another() {
        // Two bits a block: many mistakes.
        let filled = |seed| {
            let mut live = LiveBlocks::new(&SeededRandom::new(seed), 10_000, 2500).unwrap();
            (0..10_000).for_each(|number| {
                live.insert(&name(number, 0));
            });
            live
        };
        let (first, second) = (filled(1), filled(2));
        let mistakes =
            |live: &LiveBlocks| (10_000..20_000).filter(|number| live.contains(&name(*number, 0))).count();
        let both = (10_000..20_000)
            .map(|number| name(number, 0))
            .filter(|name| first.contains(name) && second.contains(name));
        let (one, other, both) = (mistakes(&first) as f64, mistakes(&second) as f64, both.count() as f64);
        let expected = one * other / 10_000.0;
        assert!(one > 1000.0 && (both - expected).abs() < expected / 10.0, "{one}, {other}, both {both}");
        assert!((first.false_positive_rate() - one / 10_000.0).abs() < 0.02);
        assert!(first.memory_bytes() < 2600);
    }
}
