//! Finds the set of snapshots that need each block. Leaves are not read.
//!
//! A block is needed by everybody who needs a block that leads to it. So it is entered once it is
//! known how often others lead to it, and all of them have passed on who needs them:
//!
//! ```text
//! count: how often does a snapshot, a folder or a block lead to this one?     each is read once
//! spread: from above each of these times comes a set; at the last one, enter  each is read once more
//! ```
//!
//! So the work does not depend on the number of snapshots that share a block. If not all leaves fit
//! in memory at once, everything is read once more for each further slice of them.
//!
//! A snapshot that needs a block that is stored as a delta needs its base, too. The walk does not
//! see bases: the directory pages name them, and they get the sets of their deltas in the end.
//!
//! The same pointer block may be part of trees of several kinds, and leads to other blocks in each.
//! So it is recorded with the kind of its tree. A folder is recorded by its whole entry.

use std::io;

use varve_block::{BlockName, BlockStore, BlockType};
use varve_content::Progress;
use varve_store::is_structure;
use varve_tree::TreeBlock;
use varve_upkeep::{Key, KeySalt, KeyTable, WalkedAs};
use varve_world::Random;

use super::needer_sets::{NeederSets, SetNumber};
use crate::reclaiming::block_walk::{TreePart, WalkVisitor};
use crate::reclaiming::live_marker::walked_as;
use crate::reclaiming::mark_error::MarkError;
use crate::reclaiming::roots::LiveRoots;
use crate::reclaiming::snapshot_walk::SnapshotWalk;

/// The kinds of entries of one block. The first byte of what is hashed for a key is their number.
const LEAF: u8 = 1;
const FIXED: u8 = 2;
const CONTENT_CUT: u8 = 3;
const FOREIGN: u8 = 4;
const FOLDER: u8 = 5;

/// The largest count of a key. Nothing that was really stored leads anywhere so often.
const TIMES_MAX: u32 = u32::MAX - 1;

/// The slice of all leaves that a walk records. Blocks that lead to others are recorded in the
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeafSlice {
    pub number: u32,
    pub count: u32,
}

/// The sets of the blocks of a store.
pub(crate) struct BlockNeeds {
    salt: KeySalt,
    slice: LeafSlice,
    /// The sets of the blocks and folders that lead to others, and of all other blocks that are no
    /// data.
    structure: KeyTable,
    /// The sets of the data blocks of the slice, and of the deltas in `deltas`.
    leaves: KeyTable,
    /// The deltas of other slices whose bases are in this one.
    deltas: KeyTable,
    /// For each block or folder that leads to others: the number of times that something led to it
    /// and has not passed on its set. Later the last slice in which it was entered.
    times: KeyTable,
}

/// The roots, with the sets of those that need them.
pub(crate) struct NeedRoots<'a> {
    pub roots: &'a LiveRoots,
    /// In the order of the snapshots.
    pub sets: Vec<SetNumber>,
    pub catalog: SetNumber,
}

/// The bounds on the memory of a walk, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NeedMemory {
    pub all_bytes: u64,
    /// For the different sets.
    pub sets_bytes: u64,
}

/// Why a walk did not tell who needs each block.
#[derive(Debug)]
pub(crate) enum NeedWalkError {
    Walk(MarkError),
    /// The tables take too much memory.
    Memory,
    /// The different sets take too much memory.
    Sets,
    /// A folder contains itself.
    Circle,
}

impl NeedRoots<'_> {
    fn walk<V: WalkVisitor>(
        &self,
        blocks: &dyn BlockStore,
        visitor: &mut V,
        known: impl Fn(SetNumber) -> V::Known,
        progress: &Progress,
    ) -> Result<(), MarkError> {
        let mut walk = SnapshotWalk::new(blocks, visitor, progress);
        for list in &self.roots.lists {
            walk.list(known(self.catalog), list)?;
        }
        // The newest snapshot comes first: its blocks are most likely to be in memory.
        for (snapshot, set) in self.roots.snapshots.iter().zip(&self.sets).rev() {
            walk.snapshot(known(*set), snapshot)?;
        }
        Ok(())
    }
}

impl BlockNeeds {
    /// Makes empty tables.
    ///
    /// # Errors
    /// The system cannot supply random bytes.
    pub(crate) fn new(random: &dyn Random) -> io::Result<Self> {
        Ok(Self {
            salt: KeySalt::new(random)?,
            slice: LeafSlice { number: 0, count: 1 },
            structure: KeyTable::default(),
            leaves: KeyTable::default(),
            deltas: KeyTable::default(),
            times: KeyTable::default(),
        })
    }

    /// Begins a slice. The slices come in order.
    pub(crate) fn begin(&mut self, slice: LeafSlice) {
        (self.slice, self.leaves, self.deltas) = (slice, KeyTable::default(), KeyTable::default());
    }

    /// Prepares for a delta and its base, before the walk of a slice.
    pub(crate) fn expect_delta(&mut self, delta: &BlockName, base: &BlockName) {
        let (delta, base) = (self.key(LEAF, delta), self.key(LEAF, base));
        if self.is_here(base) && !self.is_here(delta) {
            self.deltas.set(delta, 0);
        }
    }

    /// Adds the set of a delta to that of its base, after the walk of a slice. Each delta of the
    /// log must have been expected before, unless there is one slice only. No base is a delta.
    pub(crate) fn add_to_base(&mut self, delta: &BlockName, base: &BlockName, sets: &mut NeederSets) {
        let (delta, base) = (self.key(LEAF, delta), self.key(LEAF, base));
        if self.is_here(base)
            && let Some(set) = set_in(&self.leaves, delta)
        {
            add(&mut self.leaves, base, set, sets);
        }
    }

    /// Walks everything, and finds the sets of the leaves in the slice that was begun.
    ///
    /// # Errors
    /// [`NeedWalkError`]: the tables are of no use then.
    pub(crate) fn find(
        &mut self,
        blocks: &dyn BlockStore,
        from: &NeedRoots<'_>,
        sets: &mut NeederSets,
        memory: NeedMemory,
        progress: &Progress,
    ) -> Result<(), NeedWalkError> {
        let slice = self.slice;
        let mut visitor = NeedVisitor { needs: self, sets, memory, entered_count: 0 };
        let walked = if slice.number > 0 {
            from.walk(blocks, &mut AddLeaves(&mut visitor), |set| set, progress)
        } else {
            let counted = from.walk(blocks, &mut CountTimes(&mut visitor), |_| (), progress);
            counted.and_then(|()| from.walk(blocks, &mut SpreadSets(&mut visitor), |set| set, progress))
        };
        if let Some(error) = visitor.beyond_memory() {
            return Err(error);
        }
        walked.map_err(NeedWalkError::Walk)?;
        let is_circle = slice.number == 0 && visitor.entered_count != visitor.needs.times.count();
        if is_circle { Err(NeedWalkError::Circle) } else { Ok(()) }
    }

    /// Returns who needs a block; `None` if nobody does. If the block is told in another slice, the
    /// result is an error.
    pub(crate) fn of(
        &self,
        name: &BlockName,
        sets: &mut NeederSets,
    ) -> Result<Option<SetNumber>, OtherSlice> {
        let leaf = self.key(LEAF, name);
        if !is_structure(name) {
            return if self.is_here(leaf) { Ok(set_in(&self.leaves, leaf)) } else { Err(OtherSlice) };
        }
        if !self.is_first_slice() {
            return Err(OtherSlice);
        }
        let keys = [FIXED, CONTENT_CUT, FOREIGN].map(|kind| self.key(kind, name));
        let found = keys.into_iter().chain([leaf]).filter_map(|key| set_in(&self.structure, key));
        Ok(found.reduce(|one, other| sets.join(one, other)))
    }

    /// Returns true if the sets of blocks that lead to others are told now.
    pub(crate) fn is_first_slice(&self) -> bool {
        self.slice.number == 0
    }

    fn is_here(&self, leaf: Key) -> bool {
        leaf.slice(self.slice.count) == self.slice.number
    }

    fn key(&self, kind: u8, name: &BlockName) -> Key {
        self.salt.key(&[&[kind, name.block_type.to_byte()], name.score.as_bytes()].concat())
    }

    fn key_of(&self, part: TreePart<'_>) -> Key {
        match part {
            TreePart::Block(block) => self.key(kind_of(block), &block.name),
            TreePart::Folder(entry) => self.salt.key(&[&[FOLDER], entry].concat()),
        }
    }

    fn memory_bytes(&self) -> u64 {
        [&self.structure, &self.leaves, &self.deltas, &self.times].map(KeyTable::memory_bytes).iter().sum()
    }
}

/// The block is told in the walk of another slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OtherSlice;

/// The part that the visitors have in common.
struct NeedVisitor<'a> {
    needs: &'a mut BlockNeeds,
    sets: &'a mut NeederSets,
    memory: NeedMemory,
    entered_count: u64,
}

impl NeedVisitor<'_> {
    fn beyond_memory(&self) -> Option<NeedWalkError> {
        let sets_bytes = self.sets.memory_bytes();
        if sets_bytes > self.memory.sets_bytes {
            return Some(NeedWalkError::Sets);
        }
        let is_beyond = self.needs.memory_bytes() + sets_bytes > self.memory.all_bytes;
        is_beyond.then_some(NeedWalkError::Memory)
    }

    fn exceeded_memory(&self) -> Option<u64> {
        self.beyond_memory().map(|_| self.memory.all_bytes)
    }

    /// Adds those in a set to those that need a leaf.
    fn add_to_leaf(&mut self, leaf: &TreeBlock, set: SetNumber) {
        let key = self.needs.key(LEAF, &leaf.name);
        if is_structure(&leaf.name) {
            if self.needs.is_first_slice() {
                add(&mut self.needs.structure, key, set, self.sets);
            }
        } else if self.needs.is_here(key) || self.needs.deltas.get(key).is_some() {
            add(&mut self.needs.leaves, key, set, self.sets);
        }
    }

    /// Adds those in a set to those that need a part, if it is a leaf. Returns whether it is one.
    fn reach_leaf(&mut self, part: TreePart<'_>, set: SetNumber) -> bool {
        match part {
            TreePart::Block(block) if block.is_leaf() => {
                self.add_to_leaf(block, set);
                true
            }
            _ => false,
        }
    }

    /// Returns the set of a part that is entered, which is complete.
    fn set_of(&self, part: TreePart<'_>) -> Option<SetNumber> {
        set_in(&self.needs.structure, self.needs.key_of(part))
    }
}

/// Counts how often each part is reached, and enters it the first time.
struct CountTimes<'a, 'b>(&'a mut NeedVisitor<'b>);

impl WalkVisitor for CountTimes<'_, '_> {
    type Known = ();

    fn reach(&mut self, (): (), part: TreePart<'_>) -> bool {
        if is_leaf(part) {
            return false;
        }
        let needs = &mut *self.0.needs;
        let key = needs.key_of(part);
        let times = needs.times.get(key).unwrap_or_default();
        needs.times.set(key, TIMES_MAX.min(times + 1));
        times == 0
    }

    fn enter(&mut self, _: TreePart<'_>) {}

    fn exceeded_memory(&self) -> Option<u64> {
        self.0.exceeded_memory()
    }
}

/// Adds the set of a part to those below it, and enters a part the last time that it is reached.
struct SpreadSets<'a, 'b>(&'a mut NeedVisitor<'b>);

impl WalkVisitor for SpreadSets<'_, '_> {
    type Known = SetNumber;

    fn reach(&mut self, above: SetNumber, part: TreePart<'_>) -> bool {
        if self.0.reach_leaf(part, above) {
            return false;
        }
        let needs = &mut *self.0.needs;
        let key = needs.key_of(part);
        add(&mut needs.structure, key, above, self.0.sets);
        let times = needs.times.get(key).unwrap_or_default();
        needs.times.set(key, times.saturating_sub(1));
        self.0.entered_count += u64::from(times == 1);
        times == 1
    }

    fn enter(&mut self, part: TreePart<'_>) -> SetNumber {
        self.0.set_of(part).expect("a set came with each time that the part was reached")
    }

    fn exceeded_memory(&self) -> Option<u64> {
        self.0.exceeded_memory()
    }
}

/// Adds the sets that are known to the leaves of a further slice, and enters each part once.
struct AddLeaves<'a, 'b>(&'a mut NeedVisitor<'b>);

impl WalkVisitor for AddLeaves<'_, '_> {
    type Known = SetNumber;

    fn reach(&mut self, above: SetNumber, part: TreePart<'_>) -> bool {
        if self.0.reach_leaf(part, above) {
            return false;
        }
        let needs = &mut *self.0.needs;
        let (key, number) = (needs.key_of(part), needs.slice.number);
        let is_new = needs.times.get(key) != Some(number);
        needs.times.set(key, number);
        // A part without a set did not exist before. That cannot be: names lead to the same bytes.
        is_new && set_in(&needs.structure, key).is_some()
    }

    fn enter(&mut self, part: TreePart<'_>) -> SetNumber {
        self.0.set_of(part).expect("only parts with a set are entered")
    }

    fn exceeded_memory(&self) -> Option<u64> {
        self.0.exceeded_memory()
    }
}

fn is_leaf(part: TreePart<'_>) -> bool {
    matches!(part, TreePart::Block(block) if block.is_leaf())
}

fn set_in(table: &KeyTable, key: Key) -> Option<SetNumber> {
    table.get(key).map(SetNumber::from_number)
}

fn add(table: &mut KeyTable, key: Key, set: SetNumber, sets: &mut NeederSets) {
    let known = set_in(table, key);
    let joined = known.map_or(set, |known| sets.join(known, set));
    if known != Some(joined) {
        table.set(key, joined.get());
    }
}

/// Returns the kind of entry for a block that leads to others.
fn kind_of(block: &TreeBlock) -> u8 {
    match walked_as(block) {
        WalkedAs::Fixed => FIXED,
        WalkedAs::ContentCut => CONTENT_CUT,
        WalkedAs::Foreign => FOREIGN,
    }
}

/// Returns true if a block is the root of a catalog. No snapshot needs one, whatever it leads to.
pub(crate) fn is_catalog_root(name: &BlockName) -> bool {
    name.block_type == BlockType::CATALOG
}
