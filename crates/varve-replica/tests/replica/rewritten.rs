//! A store whose arenas a collector has rewritten, its replica, and a machine that has seen the
//! replica before.

use std::sync::Arc;

use varve_block::BlockStore;
use varve_log::ArenaId;
use varve_remote::{MemoryTarget, Object, Target};
use varve_replica::{ReplicaStorage, SegmentName};
use varve_store::{Store, StoreAccess};
use varve_world::MemoryStorage;

use crate::sample::{Sample, contents, name, open_replica, secret, segments, shared, world};

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
