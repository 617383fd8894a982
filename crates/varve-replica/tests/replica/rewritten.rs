//! A store whose arenas a collector has rewritten, its replica, and a machine that has seen the
//! replica before.

use std::sync::Arc;

use varve_block::{BlockName, BlockStore};
use varve_log::{ArenaId, ArenaState};
use varve_remote::{MemoryTarget, Object, Target};
use varve_replica::{ReplicaStorage, SegmentName};
use varve_store::{Store, StoreAccess};
use varve_upkeep::Checker;
use varve_world::MemoryStorage;

use crate::sample::{
    Failing, Sample, arenas_at, contents, name, open_replica, open_store, secret, segments, shared, small,
    world,
};

/// Opens the replica as a machine does that keeps its notes in `seen`.
fn open_with(target: &Arc<dyn Target>, seen: &MemoryStorage) -> Store {
    let storage = ReplicaStorage::new(open_replica(target), None, Some(Arc::new(seen.clone())));
    Store::open(world(Arc::new(storage), 3), Some(&secret()), StoreAccess::Read, &mut |_| {}).unwrap()
}

fn is_there(target: &Arc<dyn Target>, seen: &MemoryStorage) -> bool {
    open_with(target, seen).vault().newest_is_there().unwrap_or(false)
}

/// Makes the target as it was.
fn put_back(target: &MemoryTarget, objects: &[(Object, bytes::Bytes)]) {
    segments(target).iter().for_each(|object| target.set(&object.name, None));
    objects.iter().for_each(|(object, contents)| target.set(&object.name, Some(contents.clone())));
}

fn objects(target: &MemoryTarget) -> Vec<(Object, bytes::Bytes)> {
    segments(target).into_iter().map(|object| (object.clone(), contents(target, &object))).collect()
}

fn arena_of(object: &Object) -> SegmentName {
    SegmentName::of_file(&object.name).unwrap()
}

/// A store whose last arena had just been seen at its replica, was then sealed and rewritten, and
/// replicated again.
struct Rewritten {
    sample: Sample,
    target: MemoryTarget,
    seen: MemoryStorage,
    /// The arena of the page that was seen.
    arena: ArenaId,
    /// The replica as it was seen.
    before: Vec<(Object, bytes::Bytes)>,
}

impl Rewritten {
    fn new() -> Self {
        let mut sample = Sample::of_nights(3);
        let (target, seen) = (MemoryTarget::new(), MemoryStorage::new());
        let there = shared(target.clone());
        sample.replicate(&there).unwrap();
        let store = open_with(&there, &seen);
        store.vault().note_newest_seen().unwrap();
        let arena = store.vault().noted_arena().unwrap();
        let before = objects(&target);
        sample.write(40, 200);
        sample.rewrite(1, 3);
        sample.replicate(&there).unwrap();
        let generation = sample.unlock().2.open_arena(arena).unwrap().header().generation;
        assert_eq!(generation, 1, "the noted arena was rewritten");
        Self { sample, target, seen, arena, before }
    }

    fn there(&self) -> Arc<dyn Target> {
        shared(self.target.clone())
    }
}

#[test]
fn a_page_of_a_rewritten_arena_counts_as_there() {
    let rewritten = Rewritten::new();
    let there = rewritten.there();
    assert!(is_there(&there, &rewritten.seen));
    // From here on the note names a page of the new state.
    let store = open_with(&there, &rewritten.seen);
    store.vault().note_newest_seen().unwrap();
    for (name, bytes) in &rewritten.sample.blocks {
        assert_eq!(store.get(name).unwrap(), bytes);
    }
    assert!(is_there(&there, &rewritten.seen));
    put_back(&rewritten.target, &rewritten.before);
    assert!(!is_there(&there, &rewritten.seen), "the older copy is noticed");
}

#[test]
fn a_note_of_an_older_build_is_of_generation_0() {
    let rewritten = Rewritten::new();
    let note = rewritten.seen.contents(&name("index/newest")).unwrap();
    assert_eq!(note.len(), 60);
    let keys = rewritten.sample.unlock().2.keys().derive("varve 1 newest page");
    let body = &note[..24];
    let old = [body, blake3::keyed_hash(&keys, body).as_bytes()].concat();
    rewritten.seen.set_contents(&name("index/newest"), old);
    assert!(is_there(&rewritten.there(), &rewritten.seen));
    put_back(&rewritten.target, &[]);
    assert!(!is_there(&rewritten.there(), &rewritten.seen));
}

/// Each target shows the rewritten arena, which is authentic, without the part of the log that says
/// that it was rewritten.
#[test]
fn a_rewritten_arena_without_the_rest_of_the_log_is_a_rollback() {
    let rewritten = Rewritten::new();
    let (there, all) = (rewritten.there(), objects(&rewritten.target));
    let is_new = |object: &Object| !rewritten.before.iter().any(|(old, _)| old == object);
    // The end of the log is cut off.
    let cut: Vec<_> =
        all.iter().filter(|(object, _)| arena_of(object).arena <= rewritten.arena).cloned().collect();
    assert!(cut.len() < all.len());
    put_back(&rewritten.target, &cut);
    assert!(!is_there(&there, &rewritten.seen));
    // Nothing but the rewritten arena is newer than what was seen before.
    let only = |object: &Object| !is_new(object) || arena_of(object).arena == rewritten.arena;
    let mixed: Vec<_> = all.iter().filter(|(object, _)| only(object)).cloned().collect();
    assert!(mixed.len() > rewritten.before.len());
    put_back(&rewritten.target, &mixed);
    assert!(!is_there(&there, &rewritten.seen));
    put_back(&rewritten.target, &all);
    assert!(is_there(&there, &rewritten.seen));
}

/// Another arena is missing, so the ledger cannot be checked, but the note can be read.
#[test]
fn a_note_confirms_what_the_ledger_cannot() {
    let rewritten = Rewritten::new();
    let all = objects(&rewritten.target);
    let first = |object: &Object| arena_of(object).arena == ArenaId(0);
    assert!(rewritten.arena > ArenaId(0));
    let rest: Vec<_> = all.iter().filter(|(object, _)| !first(object)).cloned().collect();
    assert!(rest.len() < all.len());
    put_back(&rewritten.target, &rest);
    assert!(is_there(&rewritten.there(), &rewritten.seen));
}

fn has_all(store: &Store, blocks: &[(BlockName, Vec<u8>)]) -> bool {
    blocks.iter().all(|(name, bytes)| store.get(name).is_ok_and(|found| found == bytes))
}

/// Stops at every operation. The replica then opens, and is the old state or has every block of the
/// new one. A machine that has seen the old state has no complaint at any of these moments.
#[test]
fn the_replication_of_rewritten_arenas_may_stop_at_any_operation() {
    let mut sample = Sample::of_nights(4);
    let (start, seen) = (MemoryTarget::new(), MemoryStorage::new());
    sample.replicate(&shared(start.clone())).unwrap();
    open_with(&shared(start.clone()), &seen).vault().note_newest_seen().unwrap();
    let start = start.list("").unwrap().into_iter().map(|object| (object.clone(), contents(&start, &object)));
    let start: Vec<_> = start.collect();
    let old = sample.blocks.clone();
    sample.write(40, 200);
    sample.rewrite(1, 3);
    sample.write(41, 30);
    for jobs in [1, 3] {
        let (mut operations, mut old_count, mut new_count) = (0, 0, 0);
        loop {
            let target = MemoryTarget::new();
            start.iter().for_each(|(object, contents)| target.set(&object.name, Some(contents.clone())));
            let there = shared(target.clone());
            let failing = shared(Failing::after(&target, operations));
            let is_done = sample.replicate_with(&failing, &small(), jobs).is_ok();
            let store = open_store(&there);
            let (is_old, is_new) = (has_all(&store, &old), has_all(&store, &sample.blocks));
            assert!(is_old || is_new, "jobs {jobs}, after {operations} operations");
            assert!(is_there(&there, &seen), "jobs {jobs}, after {operations} operations");
            old_count += u32::from(is_old);
            new_count += u32::from(is_new);
            sample.replicate_with(&shared(Failing::after(&target, u64::MAX)), &small(), jobs).unwrap();
            assert_eq!(arenas_at(&there), sample.arenas(), "jobs {jobs}, after {operations} operations");
            let store = open_store(&there);
            assert!(Checker::of(&store).check_order().unwrap().is_empty());
            if is_done {
                break;
            }
            operations += 1;
        }
        assert!(old_count > 5 && new_count > 5, "{old_count} old, {new_count} new");
    }
}

/// A target that counts its requests.
fn operations_of(sample: &Sample, target: &MemoryTarget) -> u64 {
    let counted = Arc::new(Failing::after(target, u64::MAX));
    sample.replicate(&(Arc::clone(&counted) as Arc<dyn Target>)).unwrap();
    u64::MAX - counted.left.load(std::sync::atomic::Ordering::Relaxed)
}

/// The plan of a replica with earlier generations reads no more of the store than one without.
#[test]
fn earlier_generations_at_the_target_cost_no_reads() {
    let rewritten = Rewritten::new();
    let plan = rewritten.sample.plan(&rewritten.there(), &small()).unwrap();
    assert!(plan.segments.is_empty());
    let earlier: Vec<_> = plan.superseded.iter().map(|older| (older.arena, older.generation)).collect();
    assert_eq!(earlier, (0..=rewritten.arena.0).map(|arena| (ArenaId(arena), 0)).collect::<Vec<_>>());
    let fresh = MemoryTarget::new();
    rewritten.sample.replicate(&shared(fresh.clone())).unwrap();
    assert_eq!(operations_of(&rewritten.sample, &rewritten.target), operations_of(&rewritten.sample, &fresh));
    // A directory page is not looked at, as in any arena that is there.
    let log = rewritten.sample.unlock().2;
    let opened = log.open_arena(ArenaId(0)).unwrap();
    let ArenaState::Sealed { pages, .. } = log.state(&opened).unwrap() else { panic!("it is sealed") };
    let page = usize::try_from(pages[0].granule.byte_offset()).unwrap();
    let file = ArenaId(0).file_name();
    let mut bytes = rewritten.sample.storage.contents(&file).unwrap();
    bytes[page + 100] ^= 1;
    rewritten.sample.storage.set_contents(&file, bytes);
    let plan = rewritten.sample.plan(&rewritten.there(), &small()).unwrap();
    assert!(plan.damaged.is_empty() && plan.segments.is_empty());
}
