//! Takes the snapshots: each day's changed blocks are put, and synced.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use serde::Serialize;
use varve_block::{Block, BlockStore, BlockType, Score};
use varve_sim::{DeviceProfile, DeviceTimes, GeneratedBlock, TimedStorage, VirtualClock};
use varve_store::{PassphraseCost, Store, StoreAccess};
use varve_world::World;

use super::Snapshots;
use super::setting::SnapshotSetting;
use super::source_disk::SourceDisk;
use super::workload::{BLOCK_BYTES, Workload400};
use crate::simulated::timed_storage;

const HOLDER: &str = "varve-lab snapshots";
/// Blocks that are put together.
const BATCH_BLOCKS: usize = 64;

/// The snapshot of one day.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct SnapshotDay {
    pub(super) blocks: u64,
    pub(super) duplicates: u64,
    pub(super) nanoseconds: u64,
    pub(super) of_index: DeviceTimes,
    pub(super) of_log: DeviceTimes,
    pub(super) index: IndexSum,
}

/// The work of an index on disk.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct IndexSum {
    pub(super) lookups: u64,
    pub(super) filtered: u64,
    pub(super) pages_read: u64,
}

impl IndexSum {
    fn of(store: &Store) -> Self {
        store.disk_index_stats().map_or_else(Self::default, |stats| Self {
            lookups: stats.lookups,
            filtered: stats.filtered,
            pages_read: stats.page_reads,
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            lookups: self.lookups - before.lookups,
            filtered: self.filtered - before.filtered,
            pages_read: self.pages_read - before.pages_read,
        }
    }
}

impl SnapshotDay {
    fn add(&mut self, more: &Self) {
        self.blocks += more.blocks;
        self.duplicates += more.duplicates;
        self.nanoseconds += more.nanoseconds;
        self.of_index += more.of_index;
        self.of_log += more.of_log;
        self.index.lookups += more.index.lookups;
        self.index.filtered += more.index.filtered;
        self.index.pages_read += more.index.pages_read;
    }
}

/// A store with all snapshots, and the disks to be restored from it.
pub(super) struct TakenSnapshots {
    pub(super) world: World,
    pub(super) clock: Arc<VirtualClock>,
    pub(super) storage: Arc<TimedStorage>,
    pub(super) days: Vec<SnapshotDay>,
    /// The name of each content.
    pub(super) names: Vec<Score>,
    /// The contents of the disk on some days.
    pub(super) disks: BTreeMap<u32, Vec<u32>>,
}

impl TakenSnapshots {
    /// Returns a figure of all days.
    pub(super) fn columns(&self, figure: impl Fn(&SnapshotDay) -> u64) -> Vec<u64> {
        self.days.iter().map(figure).collect()
    }

    /// Returns the sum of all days.
    pub(super) fn sum(&self) -> SnapshotDay {
        let mut sum = SnapshotDay::default();
        self.days.iter().for_each(|day| sum.add(day));
        sum
    }
}

/// Makes a store with the disk's first state, and takes a snapshot a day.
pub(super) fn take_snapshots(
    args: &Snapshots,
    setting: &SnapshotSetting,
    log_device: &DeviceProfile,
    source_device: &DeviceProfile,
) -> Result<TakenSnapshots> {
    let (storage, clock) = timed_storage(log_device, setting.page_cache);
    let deterministic = World::deterministic(Arc::clone(&storage) as _, args.seed);
    let world = World { clock: Arc::clone(&clock) as _, ..deterministic };
    Store::create(&world, &setting.config, None, PassphraseCost::default())?;
    let store = Store::open(world.clone(), None, StoreAccess::Write { holder: HOLDER }, &mut |_| ())?;
    store.bound_caches(setting.cache_bytes);
    store.expect_reads_in_pieces(true);
    let mut workload = Workload400::new(args.scale, args.seed);
    let mut taker = SnapshotTaker { store, clock, storage, setting, source_device, names: Vec::new() };
    let first = workload.disk().to_vec();
    taker.take(&first)?;
    let mut days = Vec::new();
    let mut disks = BTreeMap::new();
    for day in 1..=args.days {
        let changed = workload.next_day();
        days.push(taker.take(&changed)?);
        if args.restore_every.is_some_and(|every| day.is_multiple_of(every)) {
            disks.insert(day, workload.disk().to_vec());
        }
    }
    let SnapshotTaker { store, clock, storage, names, .. } = taker;
    store.close()?;
    Ok(TakenSnapshots { world, clock, storage, days, names, disks })
}

struct SnapshotTaker<'a> {
    store: Store,
    clock: Arc<VirtualClock>,
    storage: Arc<TimedStorage>,
    setting: &'a SnapshotSetting,
    source_device: &'a DeviceProfile,
    names: Vec<Score>,
}

impl SnapshotTaker<'_> {
    /// Takes a snapshot of these contents.
    fn take(&mut self, contents: &[u32]) -> Result<SnapshotDay> {
        let (started, index_before) = (self.clock.nanoseconds(), IndexSum::of(&self.store));
        let _earlier = self.storage.take_times();
        let known = self.names.len();
        let mut source = SourceDisk::new(self.source_device, started);
        for batch in contents.chunks(BATCH_BLOCKS) {
            let bytes: Vec<Vec<u8>> = batch.iter().map(|content| block(*content).contents()).collect();
            let blocks: Vec<_> =
                bytes.iter().map(|bytes| Block { block_type: BlockType::DATA, bytes }).collect();
            self.clock.wait_until(source.read(batch.len() as u64));
            let scores = self.store.put_batch(&blocks)?;
            source.note_taken(self.clock.nanoseconds(), batch.len() as u64);
            for (content, score) in batch.iter().zip(scores) {
                if *content as usize == self.names.len() {
                    self.names.push(score);
                }
            }
        }
        self.store.sync()?;
        if self.setting.saves_index {
            self.store.save_checkpoint()?;
        }
        let [of_index, of_log] = self.storage.take_times();
        Ok(SnapshotDay {
            blocks: contents.len() as u64,
            duplicates: contents.iter().filter(|content| (**content as usize) < known).count() as u64,
            nanoseconds: self.clock.nanoseconds() - started,
            of_index,
            of_log,
            index: IndexSum::of(&self.store).since(index_before),
        })
    }
}

/// Returns the block with this content.
pub(super) fn block(content: u32) -> GeneratedBlock {
    GeneratedBlock { number: u64::from(content), bytes: BLOCK_BYTES }
}
