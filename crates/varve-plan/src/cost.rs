//! The disk operations of each kind of store in the six cases of Foundation's Figure 5 (Rhea et al.
//! 2008, section 3), computed for the present engine.

use serde::Serialize;
use varve_store::IndexKind;

use crate::engine::Engine;

/// An access pattern (Foundation, Figure 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// Reads of single blocks that are not near each other.
    OutOfOrderRead,
    /// Reads in the order in which the blocks were written.
    SequentialRead,
    /// Writes of single blocks that the store already has, in another order than the first time.
    OutOfOrderDuplicate,
    /// Writes of blocks that the store already has, just after their neighbours were written again.
    NearDuplicate,
    /// Writes of blocks that the store already has, in the order of the first time.
    SequentialDuplicate,
    /// Writes of new blocks.
    FreshWrite,
}

impl Case {
    /// All cases, in Foundation's order.
    pub const ALL: [Self; 6] = [
        Self::OutOfOrderRead,
        Self::SequentialRead,
        Self::OutOfOrderDuplicate,
        Self::NearDuplicate,
        Self::SequentialDuplicate,
        Self::FreshWrite,
    ];

    /// Returns the name for output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OutOfOrderRead => "out-of-order read",
            Self::SequentialRead => "sequential read",
            Self::OutOfOrderDuplicate => "out-of-order duplicate",
            Self::NearDuplicate => "near duplicate",
            Self::SequentialDuplicate => "sequential duplicate",
            Self::FreshWrite => "fresh write",
        }
    }

    /// Reports whether the blocks are requested one at a time, each after the reply to the one
    /// before.
    pub(crate) fn is_one_by_one(self) -> bool {
        matches!(self, Self::OutOfOrderRead | Self::OutOfOrderDuplicate | Self::NearDuplicate)
    }
}

/// The average cost of one block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct CaseCost {
    /// Reads that wait for the disk to seek.
    pub seeks: f64,
    pub read_bytes: f64,
    pub written_bytes: f64,
    /// Uncompressed bytes that are decompressed, decrypted and hashed, or only hashed.
    pub worked_bytes: f64,
}

impl std::ops::Add for CaseCost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            seeks: self.seeks + other.seeks,
            read_bytes: self.read_bytes + other.read_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
            worked_bytes: self.worked_bytes + other.worked_bytes,
        }
    }
}

/// Constants of the engine. `docs/internals/format.md` and `docs/decisions` give these numbers.
pub(crate) mod engine {
    /// Blocks in a directory page.
    pub(crate) const PAGE_BLOCKS: f64 = 4096.0;
    /// Bytes of a block in a directory page: a score, and columns that need almost nothing.
    pub(crate) const PAGE_ENTRY_BYTES: f64 = 33.0;
    /// A frame of a disk image, before compression.
    pub(crate) const FRAME_BYTES: f64 = 32_768.0;
    /// A frame of blocks that do not compress.
    pub(crate) const LONELY_FRAME_BYTES: f64 = 8192.0;
    /// Blocks that compress to more than this share are stored as they are.
    pub(crate) const INCOMPRESSIBLE_SHARE: f64 = 0.97;
    /// Bytes that are read from a clump to find its frames.
    pub(crate) const CLUMP_TABLE_BYTES: f64 = 4096.0;
    /// A page of the index on disk.
    pub(crate) const INDEX_PAGE_BYTES: f64 = 4096.0;
    /// Bytes of an entry in the file of the index on disk.
    pub(crate) const INDEX_ENTRY_BYTES: f64 = 9.1;
    /// Bytes of an entry in the buffer in front of that file.
    pub(crate) const BUFFER_ENTRY_BYTES: f64 = 20.0;
    /// The share of the index memory that each of the two buffers has.
    pub(crate) const BUFFER_SHARE: f64 = 0.25;
    /// Blocks that enter the cache of neighbours after a look-up on disk.
    pub(crate) const NEIGHBOURS: f64 = 65_536.0;
    /// The share of new blocks that pass the filter as false positives.
    pub(crate) const FILTER_MISSES: f64 = 0.001;
    /// A full arena.
    pub(crate) const ARENA_BYTES: f64 = 67_108_864.0;
}

/// The properties of the stored data that decide the costs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DataShape {
    pub block_bytes: f64,
    /// The share of a block that remains after compression.
    pub stored_share: f64,
    pub block_count: f64,
    /// Memory of an index on disk, without its filter, in bytes.
    pub index_memory: f64,
}

impl DataShape {
    fn stored_bytes(&self) -> f64 {
        self.block_bytes * self.stored_share
    }

    pub(crate) fn frame_bytes(&self) -> f64 {
        let is_lonely = self.stored_share > engine::INCOMPRESSIBLE_SHARE;
        let goal = if is_lonely { engine::LONELY_FRAME_BYTES } else { engine::FRAME_BYTES };
        goal.max(self.block_bytes)
    }

    fn arena_blocks(&self) -> f64 {
        engine::ARENA_BYTES / (self.stored_bytes() + engine::PAGE_ENTRY_BYTES)
    }

    /// Returns the number of blocks that one look-up on disk prefetches.
    fn neighbours(&self) -> f64 {
        let remembered = self.index_memory * 0.375 / 10.0;
        engine::NEIGHBOURS.min(self.arena_blocks()).min(remembered.max(engine::PAGE_BLOCKS))
    }

    fn directory_page(&self) -> CaseCost {
        let read_bytes = engine::PAGE_BLOCKS.min(self.arena_blocks()) * engine::PAGE_ENTRY_BYTES;
        CaseCost { seeks: 1.0, read_bytes, ..CaseCost::default() }
    }

    /// The table of a clump, and the one frame with the block.
    fn single_read(&self) -> CaseCost {
        CaseCost {
            seeks: 2.0,
            read_bytes: engine::CLUMP_TABLE_BYTES + self.frame_bytes() * self.stored_share,
            worked_bytes: self.frame_bytes(),
            ..CaseCost::default()
        }
    }

    fn read_in_a_row(&self) -> CaseCost {
        CaseCost {
            seeks: self.stored_bytes() / engine::ARENA_BYTES,
            read_bytes: self.stored_bytes(),
            worked_bytes: self.block_bytes,
            ..CaseCost::default()
        }
    }

    /// A block that is appended to the log.
    fn written_block(&self) -> CaseCost {
        CaseCost {
            written_bytes: self.stored_bytes() + engine::PAGE_ENTRY_BYTES,
            worked_bytes: self.block_bytes,
            ..CaseCost::default()
        }
    }
}

/// The cost of one block, by the disk that bears it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SplitCost {
    /// The arenas, and the processor.
    pub log: CaseCost,
    /// The files of an index on disk.
    pub index: CaseCost,
}

impl SplitCost {
    fn of_log(log: CaseCost) -> Self {
        Self { log, ..Self::default() }
    }

    fn and_log(self, log: CaseCost) -> Self {
        Self { log: self.log + log, ..self }
    }
}

/// Returns the cost of one block for an engine in one of the six cases.
pub(crate) fn cost(engine: Engine, case: Case, shape: &DataShape) -> CaseCost {
    let split = split_cost(engine, case, shape);
    split.index + split.log
}

/// Returns the cost of one block, with the index on disk apart.
pub(crate) fn split_cost(engine: Engine, case: Case, shape: &DataShape) -> SplitCost {
    let is_on_disk = engine.index == IndexKind::Disk;
    let (single, in_a_row) = (shape.single_read(), shape.read_in_a_row());
    let page = shape.directory_page();
    let hashed = CaseCost { worked_bytes: shape.block_bytes, ..CaseCost::default() };
    let (look_up, look_up_of_many) = match is_on_disk {
        true => (look_up(), look_up_of_many(shape)),
        false => (CaseCost::default(), SplitCost::default()),
    };
    match (case, engine.by_value) {
        (Case::OutOfOrderRead, false) => SplitCost { log: single, index: look_up },
        (Case::OutOfOrderRead, true) => SplitCost::of_log(single),
        (Case::SequentialRead, false) => look_up_of_many.and_log(in_a_row),
        (Case::SequentialRead, true) => SplitCost::of_log(in_a_row),
        // A directory page confirms that the block is where the index says.
        (Case::OutOfOrderDuplicate, false) => SplitCost { log: page + hashed, index: look_up },
        (Case::OutOfOrderDuplicate, true) => SplitCost { log: page + single + hashed, index: look_up },
        (Case::NearDuplicate, false) => SplitCost::of_log(hashed),
        (Case::NearDuplicate, true) => SplitCost::of_log(single + hashed),
        (Case::SequentialDuplicate, false) if is_on_disk => look_up_of_many.and_log(hashed),
        (Case::SequentialDuplicate, false) => SplitCost::of_log(page_of_many() + hashed),
        // The measured processor time of a block includes the comparison.
        (Case::SequentialDuplicate, true) => look_up_of_many.and_log(in_a_row),
        (Case::FreshWrite, _) => {
            let index = if is_on_disk { entry_of_new_block(shape) } else { CaseCost::default() };
            SplitCost { log: shape.written_block(), index }
        }
    }
}

/// The share of one block in a directory page that serves all blocks on it.
fn page_of_many() -> CaseCost {
    let seeks = 1.0 / engine::PAGE_BLOCKS;
    CaseCost { seeks, read_bytes: engine::PAGE_ENTRY_BYTES, ..CaseCost::default() }
}

/// One page of the index on disk. The neighbours of the block come in only if look-ups continue
/// near it.
fn look_up() -> CaseCost {
    CaseCost { seeks: 1.0, read_bytes: engine::INDEX_PAGE_BYTES, ..CaseCost::default() }
}

/// One page of the index on disk and one directory, for all their neighbours.
fn look_up_of_many(shape: &DataShape) -> SplitCost {
    let seeks = 1.0 / shape.neighbours();
    let read_bytes = engine::INDEX_PAGE_BYTES / shape.neighbours();
    SplitCost {
        log: CaseCost { seeks, read_bytes: engine::PAGE_ENTRY_BYTES, ..CaseCost::default() },
        index: CaseCost { seeks, read_bytes, ..CaseCost::default() },
    }
}

/// The look-ups of false positives, and the share of a block in a pass: each full buffer causes one
/// pass that reads and writes the whole file of entries.
fn entry_of_new_block(shape: &DataShape) -> CaseCost {
    let buffered = (shape.index_memory * engine::BUFFER_SHARE / engine::BUFFER_ENTRY_BYTES).max(1.0);
    let passed = shape.block_count * engine::INDEX_ENTRY_BYTES / buffered;
    CaseCost {
        seeks: engine::FILTER_MISSES,
        read_bytes: engine::FILTER_MISSES * engine::INDEX_PAGE_BYTES + passed,
        written_bytes: passed,
        ..CaseCost::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: DataShape =
        DataShape { block_bytes: 4096.0, stored_share: 1.0, block_count: 1e8, index_memory: 192e6 };

    fn engine(index: IndexKind, by_value: bool) -> Engine {
        Engine { index, by_value }
    }

    #[test]
    fn reads_by_value_need_no_index() {
        let [hash, value] = [false, true].map(|by_value| engine(IndexKind::Disk, by_value));
        for case in [Case::OutOfOrderRead, Case::SequentialRead] {
            let in_memory = engine(IndexKind::Memory, false);
            assert_eq!(cost(value, case, &SHAPE), cost(in_memory, case, &SHAPE), "{case:?}");
            assert!(cost(hash, case, &SHAPE).seeks > cost(value, case, &SHAPE).seeks, "{case:?}");
        }
    }

    #[test]
    fn duplicates_by_value_are_read_and_by_hash_they_are_not() {
        for index in [IndexKind::Memory, IndexKind::Disk] {
            let [hash, value] = [false, true].map(|by_value| engine(index, by_value));
            for case in [Case::OutOfOrderDuplicate, Case::NearDuplicate] {
                assert!(cost(hash, case, &SHAPE).seeks < cost(value, case, &SHAPE).seeks, "{case:?}");
            }
            let read = |engine| cost(engine, Case::SequentialDuplicate, &SHAPE).read_bytes;
            assert!(read(hash) < read(value));
            assert!(cost(hash, Case::NearDuplicate, &SHAPE).seeks.abs() < f64::EPSILON);
        }
    }

    #[test]
    fn a_larger_buffer_makes_fewer_passes() {
        let disk = engine(IndexKind::Disk, false);
        let small = cost(disk, Case::FreshWrite, &SHAPE);
        let large = cost(disk, Case::FreshWrite, &DataShape { index_memory: 384e6, ..SHAPE });
        assert!(large.written_bytes < small.written_bytes);
        let append = 4096.0 + engine::PAGE_ENTRY_BYTES;
        assert!(((small.written_bytes - append) / (large.written_bytes - append) - 2.0).abs() < 1e-9);
    }
}
