//! Space is freed while others take snapshots. Nothing that a snapshot needs is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use varve_archive::{
    Archive, CollectOptions, Collection, ForeignRoots, LiveRoots, PriceFile, RepairScope, SnapshotId, mark,
    repair, verify,
};
use varve_block::{Block, BlockKind, BlockName, BlockStore, BlockType, GetError};
use varve_content::Progress;
use varve_log::{ArenaId, ArenaMap, ClumpBytes};
use varve_sim::SeededDraw;
use varve_store::{Store, StoreAccess, StoreConfig, WithoutBarren};
use varve_upkeep::{ArenaMeter, AuditShare, FILTER_BYTES_DEFAULT, LiveBlocks, ReclaimBudget, ReclaimedBatch};
use varve_world::{MemoryStorage, Random, SeededRandom, Storage as _, Timestamp};

use crate::live_blocks::{
    COST, SecondWalk, change_folder, change_image, config, make_store, open, secret, take_folder, take_image,
    try_to_take_image, world,
};

/// The settings of a collection that frees all it can, a few arenas at a time.
pub(super) fn options() -> CollectOptions {
    CollectOptions {
        budget: ReclaimBudget { least_dead: 0.0, batch_bytes: 1 << 20, ..ReclaimBudget::default() },
        filter_bytes: FILTER_BYTES_DEFAULT,
        young_since: None,
        prices: PriceFile::default(),
        foreign: Some(ForeignRoots::None),
        trusts_clock: true,
    }
}

pub(super) fn read(storage: &MemoryStorage, seed: u64) -> Archive {
    let store = Store::open(world(storage, seed), Some(&secret()), StoreAccess::Read, &mut |_| {});
    Archive::open(store.unwrap()).unwrap()
}

fn plan(storage: &MemoryStorage, seed: u64) -> Collection {
    Collection::plan(&read(storage, seed), options(), &Progress::new()).unwrap()
}

fn apply(collection: &mut Collection, storage: &MemoryStorage, seed: u64) -> ReclaimedBatch {
    let mut archive = open(storage, seed, &secret());
    let batch = collection.apply(&mut archive, Timestamp(i64::MAX), &Progress::new()).unwrap();
    assert!(batch.failed.is_empty() && !batch.is_disk_full, "{:?}", batch.failed);
    archive.close().unwrap();
    batch
}

/// Forgets snapshots. Their undo has ended at once.
fn forget(storage: &MemoryStorage, seed: u64, choose: &mut dyn FnMut() -> bool) -> BTreeSet<SnapshotId> {
    let mut archive = open(storage, seed, &secret());
    let ids: Vec<_> = archive.snapshots().iter().filter(|_| choose()).map(|snapshot| snapshot.id).collect();
    archive.forget(&ids, Timestamp(-100), Duration::ZERO, "a test").unwrap();
    archive.close().unwrap();
    ids.into_iter().collect()
}

/// Everything that the listed snapshots need is in the store, and nothing in it is damaged.
fn must_be_whole(storage: &MemoryStorage, seed: u64) {
    let archive = read(storage, seed);
    let verified = verify(&archive, Some(AuditShare::ALL), &Progress::new()).unwrap();
    assert!(verified.damage.is_empty(), "{:?}", verified.damage);
    assert!(verified.harm.is_empty(), "{:?}", verified.harm);
    let store = archive.store();
    let roots = LiveRoots::of(store, ForeignRoots::None, &BTreeSet::new()).unwrap();
    for name in SecondWalk::of(store, &roots).names {
        store.get(&name).unwrap();
    }
}

/// Returns the length of the sealed arenas that hold dead blocks, and the bytes that could be freed
/// there.
fn dead_bytes(storage: &MemoryStorage, seed: u64) -> (u64, u64) {
    let archive = read(storage, seed);
    let store = archive.store();
    let roots = LiveRoots::of(store, ForeignRoots::None, &BTreeSet::new()).unwrap();
    let random = SeededRandom::new(seed);
    let mut live = LiveBlocks::new(&random, 100_000, FILTER_BYTES_DEFAULT).unwrap();
    mark(store, &roots, &mut live, &Progress::new()).unwrap();
    let meter = ArenaMeter::new(store, &live);
    let uses: Vec<_> = store.arenas().unwrap().iter().map(|id| meter.measure(*id).unwrap().usage).collect();
    let sealed = uses.iter().filter(|usage| usage.obstacle.is_none());
    sealed.fold((0, 0), |(all, dead), usage| (all + usage.file_bytes, dead + usage.dead_bytes()))
}

#[test]
fn space_is_freed_while_others_take_snapshots() {
    for seed in 0..8 {
        let (storage, folder) = make_store(seed);
        let mut draw = SeededDraw::new(900 + seed);
        let mut session = 10_000 + 100 * seed;
        let mut next = || {
            session += 1;
            session
        };
        let forgotten = forget(&storage, next(), &mut || draw.below(2) == 0);
        let (_, dead_before) = dead_bytes(&storage, next());
        let mut collection = plan(&storage, next());
        let planned: BTreeSet<_> = collection.report().expired.iter().copied().collect();
        assert_eq!(planned, forgotten);
        let mut image = Vec::new();
        let mut batch_count = 0;
        while !collection.is_done() {
            // Somebody takes a snapshot before each batch. It may need blocks that were dead.
            let mut archive = open(&storage, next(), &secret());
            change_image(&mut image, &mut draw);
            take_image(&mut archive, "another", &image);
            change_folder(folder.path(), &mut draw);
            take_folder(&mut archive, "home", folder.path());
            archive.close().unwrap();
            apply(&mut collection, &storage, next());
            must_be_whole(&storage, next());
            batch_count += 1;
        }
        assert!(batch_count > 1, "one batch tests little");
        let listed: BTreeSet<_> =
            read(&storage, next()).snapshots().iter().map(|snapshot| snapshot.id).collect();
        assert!(listed.is_disjoint(&forgotten));
        let (sealed, dead_after) = dead_bytes(&storage, next());
        assert!(dead_before > 0 && dead_after < sealed / 4, "{dead_after} of {sealed} bytes are dead");
    }
}

/// A snapshot that was forgotten is taken once more between the plan and its first batch. All its
/// blocks are still there, so that it stores none of them again.
#[test]
fn blocks_that_were_dead_in_the_plan_may_be_needed_again() {
    for seed in [0, 1, 2, 4] {
        let storage = MemoryStorage::new();
        let settings = StoreConfig {
            arena_map: ArenaMap::new(ArenaMap::ARENA_BYTES_MIN).unwrap(),
            clump_bytes: ClumpBytes::new(64 << 10).unwrap(),
            ..config(seed)
        };
        Store::create(&world(&storage, 1), &settings, Some(&secret()), COST).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut draw = SeededDraw::new(seed);
        (0..5).for_each(|_| change_folder(folder.path(), &mut draw));
        let image = |number: u64| {
            let mut bytes = vec![0; 2 << 20];
            SeededRandom::new(number).fill(&mut bytes).unwrap();
            bytes
        };
        let take_both = |session: u64, number: u64, source: &Path| {
            let mut archive = open(&storage, session, &secret());
            take_image(&mut archive, "disk", &image(number));
            take_folder(&mut archive, "home", source);
            archive.close().unwrap();
        };
        take_both(10, 1, folder.path());
        let other = tempfile::tempdir().unwrap();
        take_both(11, 2, other.path());
        let mut place = 0;
        let forgotten = forget(&storage, 12, &mut || {
            place += 1;
            place <= 2
        });
        assert_eq!(forgotten.len(), 2);
        let mut collection = plan(&storage, 13);
        assert!(!collection.is_done());
        take_both(14, 1, folder.path());
        let mut session = 20;
        while !collection.is_done() {
            apply(&mut collection, &storage, session);
            must_be_whole(&storage, session + 1);
            session += 2;
        }
        // The next night finds the blocks as well.
        take_both(session, 1, folder.path());
        must_be_whole(&storage, session + 1);
    }
}

/// After a collection a tree whose top is still there, and whose leaves are gone, is stored anew.
#[test]
fn a_snapshot_that_was_collected_can_be_taken_again() {
    for seed in [0, 1, 2, 4] {
        let (storage, folder) = make_store(seed);
        forget(&storage, 10_000, &mut || true);
        let mut collection = plan(&storage, 10_001);
        let mut session = 10_002;
        while !collection.is_done() {
            apply(&mut collection, &storage, session);
            session += 1;
        }
        let mut archive = open(&storage, session, &secret());
        take_folder(&mut archive, "home", folder.path());
        let mut image = Vec::new();
        change_image(&mut image, &mut SeededDraw::new(seed));
        take_image(&mut archive, "disk", &image);
        archive.close().unwrap();
        must_be_whole(&storage, session + 1);
    }
}

/// The arenas that hold notes, each with the offset of a clump with notes.
fn note_places(storage: &MemoryStorage) -> BTreeSet<(ArenaId, u64)> {
    let archive = read(storage, 20_000);
    let store = archive.store();
    let mut places = BTreeSet::new();
    for id in store.arenas().unwrap() {
        for page in store.pages_in_arena(id).unwrap().map(Result::unwrap) {
            let notes = page.blocks().filter(|block| block.name.block_type == BlockType::NOTE);
            places.extend(notes.map(|block| (id, block.granule.byte_offset())));
        }
    }
    places
}

/// Damages every clump that holds a note. Returns their number.
fn damage_notes(storage: &MemoryStorage) -> usize {
    let places = note_places(storage);
    for (id, offset) in &places {
        let mut bytes = storage.contents(&id.file_name()).unwrap();
        bytes[usize::try_from(*offset).unwrap() + 70] ^= 1;
        storage.set_contents(&id.file_name(), bytes);
    }
    places.len()
}

/// The undo of a second snapshot ends between the plan and the first batch. The plan has not asked
/// whether somebody uses it, so it stays in the trash.
#[test]
fn only_the_planned_snapshots_are_gone() {
    let (storage, _folder) = make_store(0);
    let mut place = 0;
    let first = forget(&storage, 10_000, &mut || {
        place += 1;
        place == 1
    });
    let mut collection = plan(&storage, 10_001);
    let mut place = 0;
    let second = forget(&storage, 10_002, &mut || {
        place += 1;
        place == 1
    });
    apply(&mut collection, &storage, 10_003);
    let archive = read(&storage, 10_004);
    assert_eq!(*archive.catalog().gone(), first);
    let trash: BTreeSet<_> = archive.catalog().trash().iter().map(|trashed| trashed.snapshot.id).collect();
    assert_eq!(trash, second);
    let mut archive = open(&storage, 10_005, &secret());
    archive.undo_forget(&second.into_iter().collect::<Vec<_>>()).unwrap();
    archive.close().unwrap();
    must_be_whole(&storage, 10_006);
}

#[test]
fn a_rewritten_arena_is_as_long_as_planned() {
    for seed in 0..8 {
        let (storage, _folder) = make_store(seed);
        let mut draw = SeededDraw::new(900 + seed);
        forget(&storage, 10_000, &mut || draw.below(2) == 0);
        let mut collection = plan(&storage, 10_001);
        let planned: BTreeMap<_, _> =
            collection.report().plan.rewritten().map(|one| (one.arena, one.written_bytes)).collect();
        let (mut session, mut count) = (10_002, 0);
        while !collection.is_done() {
            for arena in apply(&mut collection, &storage, session).replaced {
                let planned = planned[&arena.arena];
                let off = arena.new_bytes.abs_diff(planned);
                assert!(off <= 2048 + planned / 50, "{arena:?}, planned {planned}, seed {seed}");
                count += 1;
            }
            session += 1;
        }
        assert_eq!(count, planned.len());
    }
}

/// A pointer block that is left in the log although the blocks below it were removed.
struct BarrenPointer {
    storage: MemoryStorage,
    /// The number of the next session.
    session: u64,
    name: BlockName,
    bytes: Vec<u8>,
    below: Vec<BlockName>,
}

impl BarrenPointer {
    /// Between two batches a session without a snapshot stores a pointer block over blocks that the
    /// next batch removes. Another session stores so many other blocks.
    fn new(others_count: u64) -> Self {
        let (storage, _folder) = make_store(0);
        let archive = open(&storage, 10_000, &secret());
        let leaf = BlockType::leaf(BlockKind::Data);
        let leaves: Vec<BlockName> = (0..400)
            .map(|number| {
                let mut bytes = vec![0; 8192];
                SeededRandom::new(number).fill(&mut bytes).unwrap();
                let score = archive.store().put(Block { block_type: leaf, bytes: &bytes }).unwrap();
                BlockName { score, block_type: leaf }
            })
            .collect();
        archive.close().unwrap();

        let mut collection = plan(&storage, 10_001);
        let mut archive = open(&storage, 10_002, &secret());
        let begun = collection.apply(&mut archive, Timestamp(i64::MIN), &Progress::new()).unwrap();
        archive.close().unwrap();
        assert!(!collection.is_done(), "{begun:?}");

        let archive = open(&storage, 10_003, &secret());
        let store = archive.store();
        let below = leaves[200..250].to_vec();
        assert!(store.has_batch(&below).unwrap().iter().all(|is_there| *is_there), "not removed yet");
        let bytes: Vec<u8> = below.iter().flat_map(|leaf| leaf.score.as_bytes()).copied().collect();
        let block_type = BlockType::at_depth(BlockKind::Data, 1).unwrap();
        let score = store.put(Block { block_type, bytes: &bytes }).unwrap();
        archive.close().unwrap();
        put_leaves(&storage, 10_004, others_count);

        let mut session = 10_005;
        while !collection.is_done() {
            apply(&mut collection, &storage, session);
            session += 1;
        }
        Self { storage, session, name: BlockName { score, block_type }, bytes, below }
    }

    /// A caller that skips what is below a stored block must not find it, until it is stored anew.
    fn must_count_as_absent(&self) {
        let archive = open(&self.storage, self.session + 10, &secret());
        let store = archive.store();
        let is_there = |name: &BlockName| store.has_batch(&[*name]).unwrap()[0];
        assert!(!self.below.iter().any(is_there), "they were removed");
        assert!(!is_there(&self.name), "it leads to removed blocks");
        let for_others = WithoutBarren(archive.blocks());
        let found = for_others.get_batch(&[self.name, self.below[0]]);
        assert!(found.iter().all(|found| matches!(found, Err(GetError::NotFound { .. }))), "{found:?}");
        // A snapshot of a key that cannot read the list may lead to it, so its bytes are returned.
        assert_eq!(store.get(&self.name).unwrap(), self.bytes);
        store.put(Block { block_type: self.name.block_type, bytes: &self.bytes }).unwrap();
        assert!(is_there(&self.name));
        assert_eq!(for_others.get(&self.name).unwrap(), self.bytes);
    }
}

/// A session without a snapshot stores blocks of 8 KiB.
fn put_leaves(storage: &MemoryStorage, seed: u64, count: u64) {
    let archive = open(storage, seed, &secret());
    for number in 0..count {
        let mut bytes = vec![0; 8192];
        SeededRandom::new(seed * 1000 + number).fill(&mut bytes).unwrap();
        let block_type = BlockType::leaf(BlockKind::Data);
        archive.store().put(Block { block_type, bytes: &bytes }).unwrap();
    }
    archive.close().unwrap();
}

#[test]
fn a_pointer_block_above_removed_blocks_counts_as_absent() {
    BarrenPointer::new(0).must_count_as_absent();
}

/// A repair writes the arena with the list of barren blocks anew, without the list.
#[test]
fn barren_blocks_stay_barren_after_their_list_was_lost() {
    let pointer = BarrenPointer::new(0);
    assert!(damage_notes(&pointer.storage) > 0);
    let archive = open(&pointer.storage, pointer.session, &secret());
    let report = repair(archive.store(), &[], RepairScope::All, &Progress::new()).unwrap();
    assert!(report.repaired.arena_count > 0);
    archive.close().unwrap();
    pointer.must_count_as_absent();
}

/// An arena with notes is gone or damaged, and no repair has run. The saved index is gone too, so
/// that nothing tells where the list was. A night after that must not rely on a barren block.
#[test]
fn barren_blocks_count_as_absent_while_their_list_is_lost() {
    // The list with the pointer block is not in the arena of the pointer block.
    let mut pointer = BarrenPointer::new(1000);
    // Nothing would tell that the newest arena is gone.
    put_leaves(&pointer.storage, pointer.session, 1000);
    let whole = pointer.storage.fork();
    let arenas: BTreeSet<ArenaId> = note_places(&whole).into_iter().map(|(arena, _)| arena).collect();
    let mut readable_count = 0;
    for (arena, is_gone) in arenas.iter().flat_map(|arena| [(arena, true), (arena, false)]) {
        let storage = whole.fork();
        for hint in storage.names().iter().filter(|name| name.folder() == "index") {
            storage.remove(hint).unwrap();
        }
        if is_gone {
            storage.remove(&arena.file_name()).unwrap();
        } else {
            let mut bytes = storage.contents(&arena.file_name()).unwrap();
            bytes[..4096].fill(0);
            storage.set_contents(&arena.file_name(), bytes);
        }
        pointer.storage = storage;
        let archive = open(&pointer.storage, pointer.session + 10, &secret());
        let store = archive.store();
        assert_eq!(store.has_batch(&[pointer.name]).unwrap(), [false], "{arena} is gone: {is_gone}");
        readable_count += usize::from(store.get(&pointer.name).is_ok());
        // It is stored anew once, and then counts as present for good.
        store.put(Block { block_type: pointer.name.block_type, bytes: &pointer.bytes }).unwrap();
        assert_eq!(store.has_batch(&[pointer.name]).unwrap(), [true]);
        archive.close().unwrap();
        let archive = open(&pointer.storage, pointer.session + 11, &secret());
        assert_eq!(archive.store().has_batch(&[pointer.name]).unwrap(), [true]);
    }
    assert!(readable_count > 0, "it is tested where the block is there, and its list is not");
}

/// New data leaves so much of the disk free that old snapshots can make room for it.
#[test]
fn a_full_disk_can_be_emptied() {
    let storage = MemoryStorage::new();
    Store::create(&world(&storage, 1), &config(0), Some(&secret()), COST).unwrap();
    storage.set_bytes_max(Some(40 << 20));
    let image = |number: u64| {
        let mut bytes = vec![0; 3 << 20];
        SeededRandom::new(number).fill(&mut bytes).unwrap();
        bytes
    };
    let mut night = 0;
    let full = loop {
        night += 1;
        assert!(night < 40, "the disk does not become full");
        let mut archive = open(&storage, 100 + night, &secret());
        if let Err(error) = try_to_take_image(&mut archive, "disk", &image(night)) {
            break error;
        }
        archive.close().unwrap();
    };
    assert!(full.contains("No space left"), "{full}");
    let mut place = 0;
    forget(&storage, 1000, &mut || {
        place += 1;
        place <= 3
    });
    let mut collection = plan(&storage, 1001);
    let mut session = 1002;
    while !collection.is_done() {
        apply(&mut collection, &storage, session);
        session += 1;
    }
    let mut archive = open(&storage, session, &secret());
    take_image(&mut archive, "disk", &image(night));
    archive.close().unwrap();
    must_be_whole(&storage, session + 1);
}
