//! A store on a simulated device with all snapshots of a workload.

use std::sync::Arc;

use anyhow::Result;
use varve_block::{Block, BlockName, BlockStore, BlockType, Score};
use varve_log::{ArenaMap, CompressionLevel, FrameBytes};
use varve_sim::{
    BatonWorkers, DeviceProfile, DeviceTimes, EmulatedStorage, GeneratedBlock, PageCacheLimits, TimedStorage,
    VirtualClock,
};
use varve_store::{CacheBytes, Encryption, PassphraseCost, Store, StoreAccess, StoreConfig};
use varve_world::{MemoryStorage, World, read_each_with};

use super::accesses::CachedWorkload;

const HOLDER: &str = "varve-lab";
/// The readers of [`WorkloadStore::read_by_many`].
pub(super) const READERS: usize = 32;
/// Blocks that are put together.
const PUT_BLOCKS: usize = 64;
/// Smaller blocks have no room for the header of a generated block.
const GENERATED_BYTES_MIN: u32 = 32;

/// The sizes of a store's parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoreSizes {
    pub(super) arena: ArenaMap,
    pub(super) frame: FrameBytes,
}

impl Default for StoreSizes {
    /// Those of a new store.
    fn default() -> Self {
        Self { arena: StoreConfig::new([0; 16]).arena_map, frame: FrameBytes::default() }
    }
}

/// The time and the device's work of one use of a store.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoreWork {
    pub(super) nanoseconds: u64,
    pub(super) log: DeviceTimes,
}

/// The store. It is by hash, with its index in memory, and without encryption, since emulated
/// storage recognises the blocks in the log only in clear.
pub(super) struct WorkloadStore<'a> {
    pub(super) workload: &'a CachedWorkload,
    world: World,
    clock: Arc<VirtualClock>,
    workers: BatonWorkers,
    storage: Arc<TimedStorage>,
    names: Vec<Score>,
    /// The snapshots after the first one.
    pub(super) taken: StoreWork,
}

impl<'a> WorkloadStore<'a> {
    /// Takes all snapshots.
    pub(super) fn fill(
        workload: &'a CachedWorkload,
        device: &DeviceProfile,
        limits: PageCacheLimits,
        sizes: StoreSizes,
    ) -> Result<Self> {
        let clock = Arc::new(VirtualClock::new());
        let workers = BatonWorkers::new(Arc::clone(&clock), READERS);
        let emulated = Arc::new(EmulatedStorage::new(Arc::new(MemoryStorage::new())));
        let storage = Arc::new(workers.storage(emulated, device, limits));
        let deterministic = World::deterministic(Arc::clone(&storage) as _, 1);
        let world = World { clock: Arc::clone(&clock) as _, ..deterministic };
        let mut config = StoreConfig::new([0x1d; 16]);
        config.encryption = Encryption::None;
        config.compression_level = CompressionLevel::new(1).unwrap_or_default();
        config.arena_map = sizes.arena;
        Store::create(&world, &config, None, PassphraseCost::default())?;
        let taken = StoreWork { nanoseconds: 0, log: DeviceTimes::default() };
        let mut found = Self { workload, world, clock, workers, storage, names: Vec::new(), taken };
        let store = found.open(StoreAccess::Write { holder: HOLDER })?;
        store.expect_reads_in_pieces(true);
        store.set_frame_bytes(sizes.frame);
        let mut started = found.start();
        for (number, snapshot) in workload.snapshots.iter().enumerate() {
            if number == 1 {
                started = found.start();
            }
            for batch in snapshot.chunks(PUT_BLOCKS) {
                let scores = put(&store, workload, batch)?;
                for (block, score) in batch.iter().zip(scores) {
                    if *block as usize == found.names.len() {
                        found.names.push(score);
                    }
                }
            }
            store.sync()?;
        }
        found.taken = found.work_since(started);
        store.close()?;
        Ok(found)
    }

    /// Reads blocks, some at a time, in a store that was opened before with empty caches.
    pub(super) fn read(&self, blocks: &[u32], together: usize, caches: CacheBytes) -> Result<StoreWork> {
        let store = self.open(StoreAccess::Read)?;
        store.set_cache_bytes(caches);
        let started = self.start();
        blocks.chunks(together.max(1)).try_for_each(|batch| self.read_batch(&store, batch))?;
        Ok(self.work_since(started))
    }

    /// Like [`read`](Self::read), by [`READERS`] readers at a time. Each has opened the store by
    /// itself: readers with common caches would wait for each other's pages.
    pub(super) fn read_by_many(
        &self,
        blocks: &[u32],
        together: usize,
        caches: CacheBytes,
    ) -> Result<StoreWork> {
        let mut stores = (0..READERS).map(|_| self.open(StoreAccess::Read)).collect::<Result<Vec<_>>>()?;
        stores.iter().for_each(|store| store.set_cache_bytes(caches));
        let started = self.start();
        let batches: Vec<_> = blocks.chunks(together.max(1)).collect();
        let read = read_each_with(&self.workers, &batches, &mut stores, |store, batch| {
            self.read_batch(store, batch)
        });
        read.into_iter().collect::<Result<()>>()?;
        Ok(self.work_since(started))
    }

    fn read_batch(&self, store: &Store, batch: &[u32]) -> Result<()> {
        let name =
            |block: &u32| BlockName { score: self.names[*block as usize], block_type: BlockType::DATA };
        let names: Vec<_> = batch.iter().map(name).collect();
        Ok(store.get_batch(&names).into_iter().try_for_each(|found| found.map(drop))?)
    }

    /// Puts blocks again that the store has.
    pub(super) fn put_again(&self, blocks: &[u32], caches: CacheBytes) -> Result<StoreWork> {
        let store = self.open(StoreAccess::Write { holder: HOLDER })?;
        store.set_cache_bytes(caches);
        let started = self.start();
        for batch in blocks.chunks(PUT_BLOCKS) {
            put(&store, self.workload, batch)?;
        }
        let work = self.work_since(started);
        store.close()?;
        Ok(work)
    }

    fn open(&self, access: StoreAccess<'_>) -> Result<Store> {
        self.storage.forget();
        Ok(Store::open(self.world.clone(), None, access, &mut |_| ())?)
    }

    fn start(&self) -> u64 {
        let _before = self.storage.take_times();
        self.clock.nanoseconds()
    }

    fn work_since(&self, started: u64) -> StoreWork {
        let [_, log] = self.storage.take_times();
        StoreWork { nanoseconds: self.clock.nanoseconds() - started, log }
    }
}

fn put(store: &Store, workload: &CachedWorkload, batch: &[u32]) -> Result<Vec<Score>> {
    let contents: Vec<_> = batch.iter().map(|block| contents(workload, *block)).collect();
    let blocks: Vec<_> = contents.iter().map(|bytes| Block { block_type: BlockType::DATA, bytes }).collect();
    Ok(store.put_batch(&blocks)?)
}

fn contents(workload: &CachedWorkload, block: u32) -> Vec<u8> {
    let bytes = workload.sizes[block as usize].max(GENERATED_BYTES_MIN);
    GeneratedBlock { number: u64::from(block), bytes }.contents()
}
