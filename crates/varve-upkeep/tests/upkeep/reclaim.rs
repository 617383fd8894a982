//! Arenas are replaced by successors with their live blocks, and the power is cut at each call of
//! the disk on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use varve_block::{Block, BlockName, BlockStore, BlockType, GetError, with_causes};
use varve_log::{ArenaId, ArenaMap, ArenaState, ClumpBytes, ParityPercent};
use varve_sim::{Fault, OutcomeCount, SeededDraw, SimDisk, Strike};
use varve_store::{
    CompareMode, DiskIndexConfig, Encryption, IndexKind, PassphraseCost, RebuildProgress, Secret, Store,
    StoreAccess, StoreConfig, note_fingerprint,
};
use varve_upkeep::{BatchLimits, Checker, DamageKind, ParityDamage, ReclaimedBatch, Reclaimer};
use varve_world::{FixedClock, InlineWorkers, SeededRandom, Timestamp, World};
use zeroize::Zeroizing;

const LIMITS: BatchLimits = BatchLimits { written_bytes: u64::MAX, until: Timestamp(i64::MAX) };

/// The kinds of stores that the tests run on.
#[derive(Debug, Clone, Copy)]
struct StoreForm {
    compare: CompareMode,
    index: IndexKind,
    is_encrypted: bool,
    has_parity: bool,
}

const FORMS: [StoreForm; 4] = [
    StoreForm {
        compare: CompareMode::Hash,
        index: IndexKind::Memory,
        is_encrypted: false,
        has_parity: false,
    },
    StoreForm { compare: CompareMode::Hash, index: IndexKind::Memory, is_encrypted: true, has_parity: true },
    StoreForm { compare: CompareMode::Hash, index: IndexKind::Disk, is_encrypted: false, has_parity: false },
    StoreForm {
        compare: CompareMode::Value,
        index: IndexKind::Memory,
        is_encrypted: false,
        has_parity: false,
    },
];

impl StoreForm {
    fn secret(self) -> Option<Secret> {
        self.is_encrypted.then(|| Secret::KeyFile(Zeroizing::new(vec![7; 32])))
    }

    fn create(self, disk: &SimDisk) {
        let config = StoreConfig {
            compare: self.compare,
            index: self.index,
            encryption: if self.is_encrypted { Encryption::Aes256Gcm } else { Encryption::None },
            arena_map: ArenaMap::new(ArenaMap::ARENA_BYTES_MIN).unwrap(),
            clump_bytes: ClumpBytes::new(64 << 10).unwrap(),
            disk_index: DiskIndexConfig {
                memory_bytes: DiskIndexConfig::MEMORY_BYTES_MIN,
                expected_blocks: 1000,
                ..DiskIndexConfig::default()
            },
            parity_percent: self.has_parity.then(|| ParityPercent::new(5).unwrap()),
            ..StoreConfig::new([7; 16])
        };
        let cost = PassphraseCost::default();
        Store::create(&world(disk, 1), &config, self.secret().as_ref(), cost).unwrap();
    }

    fn open(self, disk: &SimDisk, seed: u64, is_writer: bool) -> Result<Store, String> {
        let access = if is_writer { StoreAccess::Write { holder: "a test" } } else { StoreAccess::Read };
        let opened = Store::open(world(disk, seed), self.secret().as_ref(), access, &mut |_| {});
        opened.map_err(|error| with_causes(&error))
    }
}

fn world(disk: &SimDisk, seed: u64) -> World {
    World {
        storage: Arc::new(disk.clone()),
        clock: Arc::new(FixedClock(Timestamp(0))),
        random: Arc::new(SeededRandom::new(seed)),
        workers: Arc::new(InlineWorkers),
    }
}

/// The blocks that were put, and whether each is live.
type Blocks = BTreeMap<BlockName, (Bytes, bool)>;

/// Block `number`: noise or text, large or small, so that clumps have frames and have none.
fn block(number: u64) -> (BlockType, Vec<u8>) {
    let mut draw = SeededDraw::new(number);
    let words = if number.is_multiple_of(7) { 10 } else { 2000 };
    let bytes = (0..words).flat_map(|_| {
        let drawn = draw.number();
        if number.is_multiple_of(3) { (drawn % 7).to_le_bytes() } else { drawn.to_le_bytes() }
    });
    let block_type = if number.is_multiple_of(11) {
        BlockType::at_depth(varve_block::BlockKind::Data, 1).unwrap()
    } else {
        BlockType::DATA
    };
    (block_type, [&number.to_le_bytes()[..], &bytes.collect::<Vec<_>>()].concat())
}

/// Fills several arenas in three sessions. Whole arenas die, and parts of others.
fn fill(form: StoreForm, disk: &SimDisk) -> Blocks {
    let mut blocks = Blocks::new();
    for session in 0..3 {
        let store = form.open(disk, 10 + session, true).unwrap();
        store.expect_reads_in_pieces(session != 1);
        for number in session * 100..(session + 1) * 100 {
            let (block_type, bytes) = block(number);
            let score = store.put(Block { block_type, bytes: &bytes }).unwrap();
            let is_live = number % 5 == 0 || (120..160).contains(&number);
            blocks.insert(BlockName { score, block_type }, (bytes.into(), is_live));
        }
        store.close().unwrap();
    }
    if form.index == IndexKind::Disk {
        save_index(form, disk, &blocks);
    }
    blocks
}

/// Makes the store save its index, which would be too small to be saved otherwise.
fn save_index(form: StoreForm, disk: &SimDisk, blocks: &Blocks) {
    let all_live: Blocks = blocks.iter().map(|(name, (bytes, _))| (*name, (bytes.clone(), true))).collect();
    let store = form.open(disk, 19, true).unwrap();
    let batch = replace_all(&store, &all_live).unwrap();
    assert!(!batch.replaced.is_empty() && batch.failed.is_empty());
    store.close().unwrap();
    assert!(disk.files().iter().any(|file| file.as_str() == "index/disk"));
}

fn sealed(store: &Store) -> Vec<ArenaId> {
    let log = store.vault().log();
    let is_sealed = |id: &ArenaId| {
        let state = log.open_arena(*id).and_then(|arena| log.state(&arena));
        matches!(state, Ok(ArenaState::Sealed { .. }))
    };
    log.arenas().unwrap_or_default().into_iter().filter(is_sealed).collect()
}

fn replace_all(store: &Store, blocks: &Blocks) -> Result<ReclaimedBatch, String> {
    let is_live = |name: &BlockName| blocks.get(name).is_some_and(|(_, is_live)| *is_live);
    let mut barren: Vec<u64> = blocks
        .iter()
        .filter(|(name, (_, is_live))| !is_live && name.block_type.depth() > 0)
        .map(|(name, _)| note_fingerprint(name))
        .collect();
    barren.sort_unstable();
    let reclaimer = Reclaimer::of(store).map_err(|error| with_causes(&error))?;
    reclaimer.note_barren(&barren).map_err(|error| with_causes(&error))?;
    let arenas = sealed(store);
    reclaimer.replace(&arenas, &is_live, LIMITS, &|| false).map_err(|error| with_causes(&error))
}

/// Checks that every live block is there, that a dead one is right or absent, and that a check of
/// all codes finds no damage. Returns the number of dead blocks that are there.
fn check(store: &Store, blocks: &Blocks) -> Result<usize, String> {
    let mut dead_count = 0;
    for (name, (bytes, is_live)) in blocks {
        match store.get(name) {
            Ok(found) if found == bytes => dead_count += usize::from(!is_live),
            Ok(_) => return Err(format!("{name} has other bytes")),
            Err(GetError::NotFound { .. }) if !is_live => {}
            Err(error) => return Err(format!("{name} (live: {is_live}): {}", with_causes(&error))),
        }
    }
    let checker = Checker::of(store);
    let mut damage = checker.check_order().map_err(|error| with_causes(&error))?;
    for id in store.arenas().unwrap() {
        damage.extend(checker.check_arena(id, true).map_err(|error| with_causes(&error))?.damage);
    }
    // A crash may come before the parity of a new arena is made.
    damage.retain(|damage| !matches!(damage.kind, DamageKind::Parity(ParityDamage::Missing)));
    if damage.is_empty() { Ok(dead_count) } else { Err(format!("damage: {damage:?}")) }
}

#[test]
fn live_blocks_stay_and_dead_ones_go() {
    for form in FORMS {
        let disk = SimDisk::new(1);
        form.create(&disk);
        let blocks = fill(form, &disk);
        let reader = form.open(&disk, 50, false).unwrap();
        let store = form.open(&disk, 20, true).unwrap();
        let before = check(&store, &blocks).unwrap();
        let batch = replace_all(&store, &blocks).unwrap();
        assert!(batch.failed.is_empty(), "{:?}", batch.failed);
        let (old, new) = batch
            .replaced
            .iter()
            .fold((0, 0), |(old, new), arena| (old + arena.old_bytes, new + arena.new_bytes));
        assert!(new < old * 2 / 3, "{form:?}: {old} bytes became {new}");
        let after = check(&store, &blocks).unwrap();
        assert!(after < before / 2, "{form:?}: {before} dead blocks became {after}");
        // A reader that was open all the time finds everything where it is now.
        check(&reader, &blocks).unwrap();
        assert!(reader.follow().unwrap());
        check(&reader, &blocks).unwrap();
        store.close().unwrap();
        for is_writer in [false, true] {
            let store = form.open(&disk, 30 + u64::from(is_writer), is_writer).unwrap();
            assert_eq!(check(&store, &blocks).unwrap(), after, "{form:?}");
        }
    }
}

/// An opening reads the directories of the replaced arenas, and of no others: neither after a crash
/// nor later. The next run of the index has only blocks that are there.
#[test]
fn an_index_on_disk_outlives_a_collection() {
    let form = FORMS[2];
    assert_eq!(form.index, IndexKind::Disk);
    let disk = SimDisk::new(1);
    form.create(&disk);
    let mut blocks = fill(form, &disk);
    let store = form.open(&disk, 18, true).unwrap();
    for number in 1000..1800 {
        let (block_type, bytes) = block(number);
        let score = store.put(Block { block_type, bytes: &bytes }).unwrap();
        blocks.insert(BlockName { score, block_type }, (bytes.into(), number % 2 == 0));
    }
    store.close().unwrap();
    save_index(form, &disk, &blocks);
    let open_and_count = |disk: &SimDisk, seed| {
        let access = StoreAccess::Write { holder: "a test" };
        let mut arenas_read = 0;
        let mut count = |progress: RebuildProgress| arenas_read = progress.arenas_total;
        let store = Store::open(world(disk, seed), None, access, &mut count).unwrap();
        (store, arenas_read)
    };
    let (store, arenas_read) = open_and_count(&disk, 20);
    let arenas = sealed(&store);
    assert!(arenas.len() >= 8 && arenas_read <= 1, "{arenas_read} of {}", arenas.len());
    let is_live = |name: &BlockName| blocks[name].1;
    let reclaimer = Reclaimer::of(&store).unwrap();
    let batch = reclaimer.replace(&arenas[..2], &is_live, LIMITS, &|| false).unwrap();
    assert_eq!(batch.replaced.len(), 2);
    let crashed = disk.fork(1);
    crashed.cut_power();
    crashed.restart();
    store.close().unwrap();
    for disk in [crashed, disk] {
        let (store, arenas_read) = open_and_count(&disk, 21);
        // The two arenas, and what was written since, among it the note about them.
        assert!((2..=4).contains(&arenas_read), "{arenas_read} of {}", arenas.len());
        check(&store, &blocks).unwrap();
        // As many new blocks as the index holds in memory, so that it is written.
        for number in 0..20_000_u64 {
            store.put(Block { block_type: BlockType::DATA, bytes: &number.to_le_bytes() }).unwrap();
        }
        store.close().unwrap();
        let (store, arenas_read) = open_and_count(&disk, 22);
        // Those that were written in the meantime.
        assert!(arenas_read <= 2, "{arenas_read}");
        let dead_count = check(&store, &blocks).unwrap();
        let live_count = blocks.values().filter(|(_, is_live)| *is_live).count();
        // The notes of the three collections are blocks, too.
        let note_count = 3;
        let expected = (live_count + dead_count + note_count + 20_000) as u64;
        assert_eq!(store.stats().unwrap().block_count, expected);
    }
}

#[test]
fn an_arena_without_live_blocks_shrinks_to_a_stub() {
    let form = FORMS[1];
    let disk = SimDisk::new(1);
    form.create(&disk);
    let mut blocks = fill(form, &disk);
    blocks.values_mut().for_each(|(_, is_live)| *is_live = false);
    let store = form.open(&disk, 20, true).unwrap();
    let batch = replace_all(&store, &blocks).unwrap();
    assert!(batch.replaced.iter().all(|arena| arena.new_bytes <= 1024), "{:?}", batch.replaced);
    check(&store, &blocks).unwrap();
    // Everything is stored anew when it is put again.
    for (name, (bytes, _)) in &blocks {
        assert_eq!(store.put(Block { block_type: name.block_type, bytes }).unwrap(), name.score);
    }
    store.sync().unwrap();
    blocks.values_mut().for_each(|(_, is_live)| *is_live = true);
    check(&store, &blocks).unwrap();
    store.close().unwrap();
    check(&form.open(&disk, 21, false).unwrap(), &blocks).unwrap();
}

/// A block that leads to others counts as absent if no snapshot needs it, even where it stays in
/// the log, and is there again once it was put.
#[test]
fn barren_blocks_count_as_absent_until_they_are_put_again() {
    let form = FORMS[0];
    let disk = SimDisk::new(1);
    form.create(&disk);
    let blocks = fill(form, &disk);
    let store = form.open(&disk, 20, true).unwrap();
    let pointer = |is_live: bool| {
        let is_it = |(name, (_, live)): &(&BlockName, &(Bytes, bool))| {
            name.block_type.depth() > 0 && *live == is_live
        };
        blocks.iter().find(is_it).map(|(name, (bytes, _))| (*name, bytes.clone())).unwrap()
    };
    let ((dead, bytes), (live, _)) = (pointer(false), pointer(true));
    assert_eq!(store.has_batch(&[dead, live]).unwrap(), [true, true]);
    let mut barren: Vec<u64> = blocks
        .iter()
        .filter(|(name, (_, is_live))| name.block_type.depth() > 0 && !is_live)
        .map(|(name, _)| note_fingerprint(name))
        .collect();
    barren.sort_unstable();
    Reclaimer::of(&store).unwrap().note_barren(&barren).unwrap();
    assert_eq!(store.has_batch(&[dead, live]).unwrap(), [false, true]);
    store.close().unwrap();
    let store = form.open(&disk, 21, true).unwrap();
    assert_eq!(store.has_batch(&[dead, live]).unwrap(), [false, true], "also for the next session");
    let (_, before) = store.session_growth();
    store.put(Block { block_type: dead.block_type, bytes: &bytes }).unwrap();
    assert!(store.session_growth().1 > before, "it is stored anew");
    store.sync().unwrap();
    assert_eq!(store.has_batch(&[dead]).unwrap(), [true]);
    store.close().unwrap();
    let store = form.open(&disk, 22, false).unwrap();
    assert_eq!(store.has_batch(&[dead]).unwrap(), [true]);
    assert_eq!(store.get(&dead).unwrap(), bytes);
}

/// A store before its collection, and the states in which a crash has left it.
struct CrashedCollection {
    form: StoreForm,
    disk: SimDisk,
    blocks: Blocks,
    seen: BTreeSet<u64>,
}

impl CrashedCollection {
    fn new(form: StoreForm) -> Self {
        let disk = SimDisk::new(1);
        form.create(&disk);
        let blocks = fill(form, &disk);
        Self { form, disk, blocks, seen: BTreeSet::new() }
    }

    /// Cuts the power at the `call`th call of a collection. Returns false if the collection came to
    /// its end before that.
    fn crash_at(&mut self, call: u64, count: OutcomeCount) -> Result<bool, String> {
        for hit in 0..count.hits {
            let seed = count.first_seed(call, hit);
            let disk = self.disk.fork(seed);
            disk.arm(&[Strike { after: call, fault: Fault::PowerCut }]);
            let worked = self.collect(&disk);
            if !disk.is_down() {
                return worked.map(|()| false);
            }
            for restart in 0..count.restarts {
                let left = disk.fork(seed + restart);
                left.restart();
                left.pretend_to_sync_folders(false);
                // Another crash may have left the same bytes. The same would follow.
                if self.seen.insert(left.contents_hash()) {
                    self.go_on(&left).map_err(|error| format!("seed {}: {error}", seed + restart))?;
                }
            }
        }
        Ok(true)
    }

    fn collect(&self, disk: &SimDisk) -> Result<(), String> {
        let store = self.form.open(disk, 20, true)?;
        replace_all(&store, &self.blocks)?;
        store.close().map_err(|error| with_causes(&error))
    }

    /// Acts as a machine does after a crash.
    fn go_on(&self, disk: &SimDisk) -> Result<(), String> {
        let (form, blocks) = (self.form, &self.blocks);
        check(&form.open(disk, 30, false)?, blocks).map_err(|error| format!("a reader: {error}"))?;
        let store = form.open(disk, 31, true)?;
        check(&store, blocks).map_err(|error| format!("a writer: {error}"))?;
        if disk.files().iter().any(|file| file.as_str().ends_with(".next")) {
            return Err("a successor is still there".into());
        }
        // The next run does what is left, and a power cut takes nothing of it.
        replace_all(&store, blocks)?;
        store.close().map_err(|error| with_causes(&error))?;
        disk.cut_power();
        disk.restart();
        check(&form.open(disk, 32, false)?, blocks).map_err(|error| format!("at the end: {error}"))?;
        Ok(())
    }
}

/// The first and the last form are tried at every call, the others at every fifth.
/// `VARVE_FAULT_OUTCOMES` tries so many outcomes of every call in every form.
#[test]
fn a_power_cut_at_any_call_loses_no_live_block() {
    let outcomes = std::env::var("VARVE_FAULT_OUTCOMES").ok().map(|text| text.parse().unwrap());
    let count = outcomes.map_or(OutcomeCount::ONE, OutcomeCount::of);
    for (number, form) in FORMS.into_iter().enumerate() {
        let step = if number.is_multiple_of(3) || outcomes.is_some() { 1 } else { 5 };
        let mut collection = CrashedCollection::new(form);
        let mut call = 0;
        while collection
            .crash_at(call, count)
            .unwrap_or_else(|error| panic!("{form:?}, call {call}: {error}"))
        {
            call += step;
        }
        assert!(call > 100, "{form:?}: only {call} calls");
    }
}

/// A collection that syncs no folder loses an arena at one of its last calls.
#[test]
fn a_collection_needs_its_syncs_of_folders() {
    let mut collection = CrashedCollection::new(FORMS[0]);
    collection.disk.pretend_to_sync_folders(true);
    let whole = collection.disk.fork(1);
    let before = whole.tally().operations;
    collection.collect(&whole).unwrap();
    let count = OutcomeCount { hits: 1, restarts: 8 };
    let mut calls = (0..whole.tally().operations - before).rev();
    let lost = calls.find_map(|call| collection.crash_at(call, count).err()).unwrap();
    assert!(lost.contains("damage"), "{lost}");
}
