//! Stores in memory that are written night by night, and targets that fail at a chosen operation.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use varve_block::{Block, BlockName, BlockStore, BlockType};
use varve_log::{ArenaId, ArenaMap, ArenaState, ClumpBytes, Log};
use varve_remote::{Capabilities, MemoryTarget, Object, PutMode, Target, TargetError};
use varve_replica::{
    DropError, DropPlan, Dropped, Replica, ReplicaStorage, ReplicateError, ReplicateOptions, Replicated,
    ReplicationPlan, ReplicationSource, SupersededGeneration,
};
use varve_store::{Encryption, PassphraseCost, Secret, Store, StoreAccess, StoreConfig};
use varve_upkeep::{BatchLimits, Reclaimer};
use varve_world::{
    FileName, FixedClock, MemoryStorage, Random, RealWorkers, SeededRandom, Storage, Timestamp, World,
};
use zeroize::Zeroizing;

pub fn name(text: &str) -> FileName {
    FileName::new(text).unwrap()
}

pub fn world(storage: Arc<dyn Storage>, seed: u64) -> World {
    World {
        storage,
        clock: Arc::new(FixedClock(Timestamp(0))),
        random: Arc::new(SeededRandom::new(seed)),
        workers: Arc::new(RealWorkers::new(3)),
    }
}

pub fn secret() -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![7; 32]))
}

pub fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SeededRandom::new(seed).fill(&mut bytes).unwrap();
    bytes
}

/// A store, and the blocks that were put into it.
#[derive(Clone)]
pub struct Sample {
    pub storage: MemoryStorage,
    pub blocks: Vec<(BlockName, Vec<u8>)>,
    /// The time at which the store is replicated.
    pub now: Timestamp,
}

impl Sample {
    pub fn new(id: u8) -> Self {
        Self::with(id, Encryption::Aes256Gcm)
    }

    pub fn with(id: u8, encryption: Encryption) -> Self {
        let storage = MemoryStorage::new();
        let mut config = StoreConfig::new([id; 16]);
        config.encryption = encryption;
        config.arena_map = ArenaMap::new(1 << 20).unwrap();
        config.clump_bytes = ClumpBytes::new(64 << 10).unwrap();
        let world = world(Arc::new(storage.clone()), u64::from(id));
        Store::create(&world, &config, Some(&secret()), PassphraseCost::default()).unwrap();
        Self { storage, blocks: Vec::new(), now: Timestamp(1) }
    }

    /// An independent copy of the store. Later writes to one do not reach the other.
    pub fn fork(&self) -> Self {
        Self { storage: self.storage.fork(), ..self.clone() }
    }

    /// Puts some hundred KiB, different for each seed.
    pub fn write(&mut self, seed: u64, block_count: u64) {
        let world = world(Arc::new(self.storage.clone()), 1000 + seed);
        let store =
            Store::open(world, Some(&secret()), StoreAccess::Write { holder: "test" }, &mut |_| {}).unwrap();
        for block in 0..block_count {
            let bytes = random_bytes(seed * 10_000 + block, 9000);
            let score = store.put(Block { block_type: BlockType::DATA, bytes: &bytes }).unwrap();
            self.blocks.push((BlockName { score, block_type: BlockType::DATA }, bytes));
        }
        store.close().unwrap();
    }

    /// Rewrites all sealed arenas, as a collector does: only every `step`th block stays.
    pub fn rewrite(&mut self, seed: u64, step: usize) {
        let world = world(Arc::new(self.storage.clone()), 2000 + seed);
        let store =
            Store::open(world, Some(&secret()), StoreAccess::Write { holder: "test" }, &mut |_| {}).unwrap();
        self.blocks = self.blocks.iter().step_by(step).cloned().collect();
        let live: BTreeSet<BlockName> = self.blocks.iter().map(|(name, _)| *name).collect();
        let log = store.vault().log();
        let is_sealed = |id: &ArenaId| {
            let state = log.open_arena(*id).and_then(|arena| log.state(&arena));
            matches!(state, Ok(ArenaState::Sealed { .. }))
        };
        let arenas: Vec<_> = log.arenas().unwrap().into_iter().filter(is_sealed).collect();
        let reclaimer = Reclaimer::of(&store).unwrap();
        reclaimer.note_barren(&[]).unwrap();
        let limits = BatchLimits { written_bytes: u64::MAX, until: Timestamp(i64::MAX) };
        let batch = reclaimer.replace(&arenas, &|name| live.contains(name), limits, &|| false).unwrap();
        assert_eq!((batch.replaced.len(), batch.failed.len()), (arenas.len(), 0));
        store.close().unwrap();
    }

    /// A store of `nights` nights and several arenas.
    pub fn of_nights(nights: u64) -> Self {
        let mut sample = Self::new(5);
        for night in 0..nights {
            sample.write(night, 60);
        }
        sample
    }

    pub fn world(&self) -> World {
        let world = world(Arc::new(self.storage.clone()), 77);
        World { clock: Arc::new(FixedClock(self.now)), ..world }
    }

    pub fn unlock(&self) -> (World, StoreConfig, Log) {
        let world = self.world();
        let (config, log) = Store::unlock(&world, Some(&secret())).unwrap();
        (world, config, log)
    }

    pub fn plan(
        &self,
        target: &Arc<dyn Target>,
        options: &ReplicateOptions,
    ) -> Result<ReplicationPlan, ReplicateError> {
        let (world, config, log) = self.unlock();
        ReplicationPlan::new(ReplicationSource { world: &world, config: &config, log: &log }, target, options)
    }

    pub fn replicate_with(
        &self,
        target: &Arc<dyn Target>,
        options: &ReplicateOptions,
        jobs: usize,
    ) -> Result<Replicated, ReplicateError> {
        let (world, config, log) = self.unlock();
        let source = ReplicationSource { world: &world, config: &config, log: &log };
        let plan = ReplicationPlan::new(source, target, options)?;
        plan.apply(source, target, options, &RealWorkers::new(jobs), &())
    }

    pub fn replicate(&self, target: &Arc<dyn Target>) -> Result<Replicated, ReplicateError> {
        self.replicate_with(target, &small(), 3)
    }

    /// Returns the earlier generations at a target.
    pub fn superseded(&self, target: &Arc<dyn Target>) -> Vec<SupersededGeneration> {
        let (world, config, log) = self.unlock();
        let source = ReplicationSource { world: &world, config: &config, log: &log };
        ReplicationPlan::new(source, target, &small()).unwrap().superseded
    }

    /// Does the same with the listing at the end of a replication.
    pub fn superseded_after_replicating(&self, target: &Arc<dyn Target>) -> Vec<SupersededGeneration> {
        let done = self.replicate(target).unwrap();
        let (world, config, log) = self.unlock();
        let source = ReplicationSource { world: &world, config: &config, log: &log };
        done.plan_again(source, target, &small()).unwrap().superseded
    }

    /// Removes the earlier generations from a target, if they are this old.
    pub fn drop_superseded(&self, target: &Arc<dyn Target>, age: Duration) -> Result<Dropped, DropError> {
        let (world, config, log) = self.unlock();
        let source = ReplicationSource { world: &world, config: &config, log: &log };
        let plan = ReplicationPlan::new(source, target, &small())?;
        let plan = DropPlan::new(source, target.as_ref(), &plan, age);
        let mut dropped = Dropped::default();
        plan.apply(source, Some(&secret()), target, &(), &mut dropped).map(|()| dropped)
    }

    /// The files of the log up to the last byte that a page names. The mark that a writer leaves
    /// when it closes the store is cut: the next writer cuts it as well. It is no part of the
    /// history, and no replica has it.
    pub fn arenas(&self) -> BTreeMap<ArenaId, Vec<u8>> {
        let (_, _, log) = self.unlock();
        let file = |id: ArenaId| {
            let mut contents = self.storage.contents(&id.file_name()).unwrap();
            let arena = log.open_arena(id).unwrap();
            if matches!(log.state(&arena).unwrap(), ArenaState::Unsealed) {
                let mut found = log.scan(&arena).unwrap();
                found.drop_mark();
                contents.truncate(usize::try_from(found.log_bytes).unwrap());
            }
            contents
        };
        log.arenas().unwrap().into_iter().map(|id| (id, file(id))).collect()
    }
}

/// Segments so small that an arena has several. All targets in memory have the same name, so an
/// empty one may follow another.
pub fn small() -> ReplicateOptions {
    ReplicateOptions { segment_bytes: 300 << 10, recreate: true, ..ReplicateOptions::default() }
}

pub fn shared(target: impl Target + 'static) -> Arc<dyn Target> {
    Arc::new(target)
}

pub fn open_replica(target: &Arc<dyn Target>) -> Arc<Replica> {
    Arc::new(Replica::open(Arc::clone(target)).unwrap())
}

/// Opens the store that a target holds, in place.
pub fn open_store(target: &Arc<dyn Target>) -> Store {
    let storage = ReplicaStorage::new(open_replica(target), None, None);
    Store::open(world(Arc::new(storage), 3), Some(&secret()), StoreAccess::Read, &mut |_| {}).unwrap()
}

/// The replica's bytes of each arena. An arena that is damaged at its source may have a hole at the
/// replica, and is then omitted.
pub fn arenas_at(target: &Arc<dyn Target>) -> BTreeMap<ArenaId, Vec<u8>> {
    let replica = open_replica(target);
    let ids = replica.arenas().keys().copied();
    ids.filter_map(|id| {
        let bytes = replica.arena_bytes(id)?;
        Some((id, replica.read_arena(id, 0..bytes).ok()?.to_vec()))
    })
    .collect()
}

pub fn segments(target: &MemoryTarget) -> Vec<Object> {
    target.list("arenas").unwrap()
}

pub fn contents(target: &MemoryTarget, object: &Object) -> Bytes {
    target.get(&object.name, 0..object.bytes).unwrap()
}

/// A target that fails after `left` operations, and allows no object to be replaced or removed.
pub struct Failing {
    pub below: MemoryTarget,
    pub left: AtomicU64,
    may_remove: bool,
}

impl Failing {
    pub fn after(below: &MemoryTarget, operations: u64) -> Self {
        Self { below: below.clone(), left: AtomicU64::new(operations), may_remove: false }
    }

    /// Allows objects to be removed.
    pub fn with_removals(below: &MemoryTarget, operations: u64) -> Self {
        Self { may_remove: true, ..Self::after(below, operations) }
    }

    fn count(&self, what: &str) -> Result<(), TargetError> {
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.map(|_| ()).map_err(|_| TargetError::Failed {
            what: what.into(),
            source: std::io::Error::other("the line is dead"),
        })
    }
}

impl fmt::Display for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.below.fmt(f)
    }
}

impl Target for Failing {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn put(&self, name: &FileName, contents: Bytes, mode: PutMode) -> Result<(), TargetError> {
        self.count(name.as_str())?;
        assert_eq!(mode, PutMode::Create, "nothing is ever replaced");
        self.below.put(name, contents, mode)
    }

    fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, TargetError> {
        self.count(name.as_str())?;
        self.below.get(name, range)
    }

    fn list(&self, folder: &str) -> Result<Vec<Object>, TargetError> {
        self.count(folder)?;
        self.below.list(folder)
    }

    fn remove(&self, name: &FileName) -> Result<(), TargetError> {
        assert!(self.may_remove, "{name} was to be removed, and nobody has asked for that");
        self.count(name.as_str())?;
        self.below.remove(name)
    }
}
