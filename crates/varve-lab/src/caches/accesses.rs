//! The blocks of a workload in the order of the log, and the sequences in which they are used.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use varve_block::{BlockKind, to_usize};
use varve_log::{ClumpBytes, FrameBytes};
use varve_store::StoreConfig;
use varve_trace::{SourceKind, TraceReader, TraceRecord, TraceRun};

use crate::snapshots::workload::{BLOCK_BYTES, Workload400};

/// A directory page names at least this many blocks, unless its arena ends.
const PAGE_BLOCKS: u64 = 4096;
/// The memory for one block on a directory page.
const NAME_BYTES: u64 = 40;
/// The most blocks of a workload.
const BLOCKS_MAX: usize = 1 << 28;

/// The blocks that a cache loads and evicts together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum CacheUnit {
    Block,
    Frame,
    Clump,
    /// The blocks that a directory page names.
    Page,
    Arena,
}

/// The use of a workload's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum CacheUse {
    /// The names of the duplicates among the blocks of all snapshots, as they are taken.
    Duplicates,
    /// The names of the newest state of the source, when all of it is put once more.
    Again,
    /// The contents of that state, or of the blocks that a trace reads.
    Restore,
}

impl CacheUse {
    pub(super) const ALL: [Self; 3] = [Self::Duplicates, Self::Again, Self::Restore];

    /// Returns true if the cache has contents, and not just names.
    pub(super) fn is_of_contents(self) -> bool {
        self == Self::Restore
    }

    /// Returns the units that such a cache may have.
    pub(super) fn units(self) -> &'static [CacheUnit] {
        use CacheUnit::{Arena, Block, Clump, Frame, Page};
        if self.is_of_contents() { &[Block, Frame, Clump] } else { &[Block, Clump, Page, Arena] }
    }
}

/// Blocks, numbered in the order in which the log has them, and their uses.
pub(super) struct CachedWorkload {
    pub(super) name: String,
    /// The bytes of each block.
    pub(super) sizes: Vec<u32>,
    /// The blocks that each snapshot puts.
    pub(super) snapshots: Vec<Vec<u32>>,
    /// The newest state of the source.
    pub(super) newest: Vec<u32>,
    /// The blocks that are read: those of the trace, or the newest state.
    pub(super) read: Vec<u32>,
}

impl CachedWorkload {
    /// The disk of Foundation's section 5.3, on so many days.
    pub(super) fn foundation(scale: u64, days: u32, seed: u64) -> Self {
        let mut workload = Workload400::new(scale, seed);
        let mut snapshots = vec![workload.disk().to_vec()];
        snapshots.extend((0..days).map(|_| workload.next_day()));
        let newest = workload.disk().to_vec();
        let count = snapshots.iter().flatten().max().map_or(0, |last| *last as usize + 1);
        Self {
            name: "foundation-400".into(),
            sizes: vec![BLOCK_BYTES; count],
            snapshots,
            read: newest.clone(),
            newest,
        }
    }

    /// The data of a trace. Its folders, lists and roots lie elsewhere in a log, and are left out.
    pub(super) fn of_trace(file: &Path) -> Result<Self> {
        let context = || format!("cannot read {}", file.display());
        let reader = TraceReader::new(File::open(file).with_context(context)?).with_context(context)?;
        let mut blocks = TracedBlocks::default();
        for record in reader {
            blocks.apply(&record.with_context(context)?)?;
        }
        let newest = blocks.newest();
        ensure!(!newest.is_empty(), "{} puts no data", file.display());
        let name = file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
        let read = if blocks.read.is_empty() { newest.clone() } else { blocks.read };
        Ok(Self { name, sizes: blocks.sizes, snapshots: blocks.snapshots, newest, read })
    }

    /// Cuts each block into `parts`, which are put and read one after the other.
    pub(super) fn cut(self, parts: u32) -> Self {
        let cut = |blocks: Vec<u32>| -> Vec<u32> {
            blocks.into_iter().flat_map(|block| block * parts..(block + 1) * parts).collect()
        };
        let part_sizes = self.sizes.iter().flat_map(|size| (0..parts).map(|_| *size / parts));
        Self {
            name: self.name,
            sizes: part_sizes.collect(),
            snapshots: self.snapshots.into_iter().map(cut).collect(),
            newest: cut(self.newest),
            read: cut(self.read),
        }
    }

    /// Returns the sum of the sizes of blocks.
    pub(super) fn bytes_of<'a>(&self, blocks: impl IntoIterator<Item = &'a u32>) -> u64 {
        blocks.into_iter().map(|block| u64::from(self.sizes[*block as usize])).sum()
    }

    /// Returns the bytes that all snapshots but the first one put.
    pub(super) fn later_bytes(&self) -> u64 {
        self.snapshots.iter().skip(1).map(|blocks| self.bytes_of(blocks)).sum()
    }

    /// Returns the unit of each block, numbered in the order of the log. The engine's sizes are the
    /// defaults of a store.
    pub(super) fn units(&self, unit: CacheUnit) -> Vec<u32> {
        let frame_max = u64::from(FrameBytes::default().get());
        let clump_max = u64::from(ClumpBytes::default().get());
        let arena_bytes = StoreConfig::new([0; 16]).arena_map.arena_bytes();
        let (mut number, mut count, mut bytes, mut clump_bytes, mut filled) = (0, 0_u64, 0_u64, 0, 0_u64);
        let number_of = |size: &u32| {
            let size = u64::from(*size);
            let is_clump = clump_bytes > 0 && clump_bytes + size > clump_max;
            let is_arena = is_clump && filled >= arena_bytes;
            filled = if is_arena { size } else { filled + size };
            let is_next = match unit {
                CacheUnit::Block => true,
                CacheUnit::Frame => is_clump || bytes + size > frame_max,
                CacheUnit::Clump => is_clump,
                CacheUnit::Page => is_arena || (is_clump && count >= PAGE_BLOCKS),
                CacheUnit::Arena => is_arena,
            };
            clump_bytes = if is_clump { size } else { clump_bytes + size };
            if is_next && count > 0 {
                number += 1;
                (count, bytes) = (0, 0);
            }
            (count, bytes) = (count + 1, bytes + size);
            number
        };
        self.sizes.iter().map(number_of).collect()
    }

    /// Returns the memory for each unit.
    pub(super) fn weights(&self, units: &[u32], is_of_contents: bool) -> Vec<u64> {
        let mut weights = vec![0; units.last().map_or(0, |last| *last as usize + 1)];
        for (unit, size) in units.iter().zip(&self.sizes) {
            weights[*unit as usize] += if is_of_contents { u64::from(*size) } else { NAME_BYTES };
        }
        weights
    }
}

/// The blocks of a trace, as far as it was read.
#[derive(Default)]
struct TracedBlocks {
    /// The number of each id; `None` if it was never put.
    numbers: Vec<Option<u32>>,
    sizes: Vec<u32>,
    snapshots: Vec<Vec<u32>>,
    /// The newest state of each series: a block by its place.
    states: BTreeMap<u64, BTreeMap<u64, u32>>,
    series: u64,
    read: Vec<u32>,
}

impl TracedBlocks {
    fn apply(&mut self, record: &TraceRecord) -> Result<()> {
        match record {
            TraceRecord::Snapshot(begin) => {
                self.series = begin.series;
                self.snapshots.push(Vec::new());
                let state = self.states.entry(begin.series).or_default();
                // A snapshot of an image may put only the changed blocks.
                if begin.source != SourceKind::Image {
                    state.clear();
                }
            }
            TraceRecord::Put(run) if run.block_type.kind() == BlockKind::Data => self.put(run)?,
            TraceRecord::Get(run) if run.block_type.kind() == BlockKind::Data => {
                let known = (run.first_id..run.end_id()).filter_map(|id| *self.numbers.get(to_usize(id))?);
                self.read.extend(known);
            }
            _ => {}
        }
        Ok(())
    }

    fn put(&mut self, run: &TraceRun) -> Result<()> {
        let end = to_usize(run.end_id());
        ensure!(end <= BLOCKS_MAX, "the trace has more than {BLOCKS_MAX} blocks");
        if end > self.numbers.len() {
            self.numbers.resize(end, None);
        }
        if self.snapshots.is_empty() {
            self.snapshots.push(Vec::new());
        }
        let state = self.states.entry(self.series).or_default();
        let mut place = run.place;
        for id in end - to_usize(run.block_count)..end {
            let number = match self.numbers[id] {
                Some(number) => number,
                None => {
                    self.sizes.push(run.block_bytes);
                    u32::try_from(self.sizes.len() - 1)?
                }
            };
            self.numbers[id] = Some(number);
            if let Some(snapshot) = self.snapshots.last_mut() {
                snapshot.push(number);
            }
            state.insert(place, number);
            place += u64::from(run.block_bytes);
        }
        Ok(())
    }

    /// Returns the newest state of the source that was archived last.
    fn newest(&self) -> Vec<u32> {
        self.states.get(&self.series).into_iter().flat_map(|state| state.values().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use varve_block::BlockType;
    use varve_trace::{SizeClass, SnapshotBegin};

    use super::*;

    fn workload(sizes: Vec<u32>) -> CachedWorkload {
        CachedWorkload {
            name: "test".into(),
            sizes,
            snapshots: Vec::new(),
            newest: Vec::new(),
            read: Vec::new(),
        }
    }

    #[test]
    fn blocks_are_grouped_as_the_log_groups_them() {
        let found = workload(vec![16 << 10; 10_000]);
        assert_eq!(found.units(CacheUnit::Frame)[..5], [0, 0, 1, 1, 2]);
        let clumps = found.units(CacheUnit::Clump);
        assert_eq!((clumps[95], clumps[96]), (0, 1), "1.5 MiB");
        let pages = found.units(CacheUnit::Page);
        assert_eq!((pages[4127], pages[4128]), (0, 1), "the first whole clump behind 4096 blocks");
        let arenas = found.units(CacheUnit::Arena);
        assert_eq!((arenas[4127], arenas[4128]), (0, 1), "64 MiB");
        assert_eq!(found.weights(&clumps, true)[0], 3 << 19);
        assert_eq!(found.weights(&pages, false)[0], 4128 * NAME_BYTES);
        // A frame ends with its clump, and a block may be larger than a frame.
        let uneven = workload(vec![1 << 20, 600 << 10, 100, 50 << 10, 100]);
        assert_eq!(uneven.units(CacheUnit::Frame), [0, 1, 2, 3, 4]);
        assert_eq!(uneven.units(CacheUnit::Clump), [0, 1, 1, 1, 1]);
    }

    #[test]
    fn an_image_keeps_what_a_snapshot_does_not_put_and_a_folder_does_not() {
        let newest = |source| {
            let mut blocks = TracedBlocks::default();
            let run = |place, first_id, block_count| TraceRun {
                place,
                first_id,
                block_count,
                block_type: BlockType::DATA,
                block_bytes: 4096,
                size_class: SizeClass::UNKNOWN,
            };
            let begin = || TraceRecord::Snapshot(SnapshotBegin { time: 0, series: 0, source });
            let records = [
                begin(),
                TraceRecord::Put(run(0, 0, 4)),
                begin(),
                TraceRecord::Put(run(4096, 4, 1)),
                TraceRecord::Put(TraceRun { block_type: BlockType::DIRECTORY, ..run(0, 5, 1) }),
                TraceRecord::Get(run(0, 1, 2)),
            ];
            records.iter().for_each(|record| blocks.apply(record).unwrap());
            assert_eq!((blocks.read.as_slice(), blocks.sizes.len()), (&[1, 2][..], 5));
            blocks.newest()
        };
        assert_eq!(newest(SourceKind::Image), [0, 4, 2, 3]);
        assert_eq!(newest(SourceKind::Folder), [4]);
    }
}
