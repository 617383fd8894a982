//! Earlier generations are removed from a target: only when the later one is proven whole there,
//! and a page counts it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use varve_block::BlockStore;
use varve_log::{ArenaId, ArenaState};
use varve_remote::{Capabilities, Erased, MemoryTarget, Object, ObjectLock, PutMode, Target, TargetError};
use varve_replica::{DropError, Dropped, NotProven, SegmentName};
use varve_upkeep::Checker;
use varve_world::{FileName, Timestamp};

use crate::sample::{Failing, Sample, arenas_at, contents, open_store, segments, shared};

const AT_ONCE: Duration = Duration::ZERO;
const DAY: Duration = Duration::from_hours(24);

fn generation_of(object: &Object) -> u32 {
    SegmentName::of_file(&object.name).unwrap().generation
}

fn bytes_at(target: &MemoryTarget) -> u64 {
    segments(target).iter().map(|object| object.bytes).sum()
}

/// A store that was replicated, rewritten, and replicated again.
fn rewritten() -> (Sample, MemoryTarget) {
    let mut sample = Sample::of_nights(4);
    let target = MemoryTarget::new();
    let there = shared(target.clone());
    sample.replicate(&there).unwrap();
    sample.write(40, 120);
    sample.rewrite(1, 3);
    sample.replicate(&there).unwrap();
    (sample, target)
}

#[track_caller]
fn check(sample: &Sample, there: &Arc<dyn Target>) {
    assert_eq!(arenas_at(there), sample.arenas());
    let store = open_store(there);
    for (name, bytes) in &sample.blocks {
        assert_eq!(store.get(name).unwrap(), bytes);
    }
    assert!(Checker::of(&store).check_order().unwrap().is_empty());
}

#[test]
fn a_replica_shrinks_to_the_length_of_its_store() {
    let (sample, target) = rewritten();
    let there = shared(target.clone());
    let before = bytes_at(&target);
    let dropped = sample.drop_superseded(&there, AT_ONCE).unwrap();
    assert!(dropped.removed.len() > 3 && dropped.kept.is_empty() && dropped.locked.is_empty());
    assert!(dropped.removed.iter().all(|object| generation_of(object) == 0));
    assert_eq!(bytes_at(&target), before - dropped.bytes());
    let local: usize = sample.arenas().values().map(Vec::len).sum();
    assert_eq!(bytes_at(&target), local as u64);
    check(&sample, &there);
    let again = sample.drop_superseded(&there, AT_ONCE).unwrap();
    assert_eq!((again.removed.len(), again.kept.len()), (0, 0));
    assert_eq!(sample.replicate(&there).unwrap().uploaded_bytes, 0);
}

#[test]
fn the_end_of_a_replication_tells_what_can_be_removed() {
    let (mut sample, target) = rewritten();
    let there = shared(target.clone());
    sample.write(160, 40);
    sample.rewrite(0, 4);
    let superseded = sample.superseded_after_replicating(&there);
    assert!(superseded.len() > 3, "{superseded:?}");
    assert_eq!(superseded, sample.superseded(&there));
}

/// The age counts from the first replication that saw the later generation there.
#[test]
fn generations_wait_until_they_are_old_enough() {
    let (mut sample, target) = rewritten();
    let there = shared(target.clone());
    let before = segments(&target);
    assert!(sample.drop_superseded(&there, DAY).unwrap().removed.is_empty());
    // The first replication was at 1.
    sample.now = Timestamp(i64::try_from(DAY.as_nanos()).unwrap());
    sample.replicate(&there).unwrap();
    assert!(sample.drop_superseded(&there, DAY).unwrap().removed.is_empty());
    assert_eq!(segments(&target), before);
    sample.now = Timestamp(sample.now.0 + 1);
    assert!(!sample.drop_superseded(&there, DAY).unwrap().removed.is_empty());
    check(&sample, &there);
}

/// Somebody has forged or damaged the record of times: the time begins anew.
#[test]
fn a_forged_record_makes_nothing_older() {
    let (mut sample, target) = rewritten();
    let there = shared(target.clone());
    let is_record = |file: &FileName| file.as_str().starts_with("index/superseded-");
    let record = sample.storage.names().into_iter().find(is_record).unwrap();
    let mut bytes = sample.storage.contents(&record).unwrap();
    bytes[15] ^= 0x80;
    sample.storage.set_contents(&record, bytes);
    sample.now = Timestamp(i64::try_from(DAY.as_nanos()).unwrap());
    assert!(sample.drop_superseded(&there, DAY).unwrap().removed.is_empty());
    assert!(!sample.drop_superseded(&there, AT_ONCE).unwrap().removed.is_empty());
}

/// Stops at every operation of replication and removal. At each stop the replica has every block of
/// the old or of the new state, and the next run ends at the same objects.
#[test]
fn it_may_stop_at_any_operation() {
    let mut sample = Sample::of_nights(4);
    let start = MemoryTarget::new();
    sample.replicate(&shared(start.clone())).unwrap();
    let objects = start.list("").unwrap().into_iter();
    let start: Vec<_> = objects.map(|object| (object.clone(), contents(&start, &object))).collect();
    let old = sample.blocks.clone();
    sample.write(40, 120);
    sample.rewrite(1, 3);
    let (mut operations, mut removing_count) = (0, 0);
    loop {
        let target = MemoryTarget::new();
        start.iter().for_each(|(object, contents)| target.set(&object.name, Some(contents.clone())));
        let there = shared(target.clone());
        let failing = shared(Failing::with_removals(&target, operations));
        let replicated = sample.replicate(&failing).is_ok();
        let is_done = replicated && sample.drop_superseded(&failing, AT_ONCE).is_ok();
        let store = open_store(&there);
        let has = |blocks: &[(varve_block::BlockName, Vec<u8>)]| {
            blocks.iter().all(|(name, bytes)| store.get(name).is_ok_and(|found| found == bytes))
        };
        assert!(has(&sample.blocks) || has(&old), "after {operations} operations");
        if replicated {
            removing_count += 1;
            check(&sample, &there);
        }
        sample.replicate(&there).unwrap();
        sample.drop_superseded(&there, AT_ONCE).unwrap();
        assert!(segments(&target).iter().all(|object| {
            let generation = generation_of(object);
            let arena = SegmentName::of_file(&object.name).unwrap().arena;
            generation == sample.unlock().2.open_arena(arena).unwrap().header().generation
        }));
        check(&sample, &there);
        if is_done {
            break;
        }
        operations += 1;
    }
    assert!(removing_count > 20, "{removing_count} of {operations}");
}

/// Every object of a later generation in turn is lost, cut, or damaged in its middle. Then no
/// object of its arena is removed.
#[test]
fn a_damaged_later_generation_keeps_the_earlier_one() {
    let (sample, target) = rewritten();
    let there = shared(target.clone());
    let all: Vec<_> =
        segments(&target).into_iter().map(|object| (object.clone(), contents(&target, &object))).collect();
    let (mut refused_count, mut kept_count) = (0, 0);
    for (victim, whole) in all.iter().filter(|(object, _)| generation_of(object) == 1) {
        let mut flipped = whole.to_vec();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        for spoiled in [None, Some(whole.slice(..whole.len() - 1)), Some(Bytes::from(flipped))] {
            target.set(&victim.name, spoiled);
            let arena = SegmentName::of_file(&victim.name).unwrap().arena;
            let is_of_it = |object: &Object| SegmentName::of_file(&object.name).unwrap().arena == arena;
            match sample.drop_superseded(&there, AT_ONCE) {
                Ok(dropped) => {
                    assert!(!dropped.removed.iter().any(is_of_it), "{}", victim.name);
                    let kept: Vec<_> = dropped.kept.iter().map(|(arena, _)| *arena).collect();
                    assert_eq!(kept, [arena]);
                    kept_count += 1;
                }
                Err(DropError::ReplicaDamaged { .. }) => refused_count += 1,
                Err(error) => panic!("{}: {error}", victim.name),
            }
            all.iter().for_each(|(object, contents)| target.set(&object.name, Some(contents.clone())));
        }
    }
    assert!(kept_count > 2 && refused_count > 2, "{kept_count} kept, {refused_count} refused");
}

#[test]
fn a_damaged_store_removes_nothing() {
    let (sample, target) = rewritten();
    let there = shared(target.clone());
    let before = segments(&target);
    let log = sample.unlock().2;
    let ids = log.arenas().unwrap();
    for id in &ids[..ids.len() - 1] {
        let opened = log.open_arena(*id).unwrap();
        let ArenaState::Sealed { pages, .. } = log.state(&opened).unwrap() else { panic!("it is sealed") };
        let page = usize::try_from(pages[0].granule.byte_offset()).unwrap();
        let good = sample.storage.contents(&id.file_name()).unwrap();
        // A page, and the seal.
        for place in [page + 100, good.len() - 1] {
            let mut bytes = good.clone();
            bytes[place] ^= 1;
            sample.storage.set_contents(&id.file_name(), bytes);
            let refused = sample.drop_superseded(&there, AT_ONCE);
            assert!(refused.is_err(), "arena {id}, offset {place}: {refused:?}");
            assert_eq!(segments(&target), before);
        }
        sample.storage.set_contents(&id.file_name(), good);
    }
    // A clump, which only the comparison of the bytes finds.
    let mut bytes = sample.storage.contents(&ArenaId(0).file_name()).unwrap();
    bytes[700] ^= 1;
    sample.storage.set_contents(&ArenaId(0).file_name(), bytes);
    let dropped = sample.drop_superseded(&there, AT_ONCE).unwrap();
    assert!(matches!(dropped.kept.as_slice(), [(ArenaId(0), NotProven::DamagedHere(_))]), "{dropped:?}");
}

/// The later generations are there, and the end of the log that counts them is not.
#[test]
fn a_replica_without_the_ledger_keeps_everything() {
    let (sample, target) = rewritten();
    let there = shared(target.clone());
    let arena = |object: &Object| SegmentName::of_file(&object.name).unwrap().arena;
    let last = segments(&target).iter().map(arena).max().unwrap();
    for object in segments(&target).iter().filter(|object| arena(object) == last) {
        target.set(&object.name, None);
    }
    let refused = sample.drop_superseded(&there, AT_ONCE);
    assert!(matches!(refused, Err(DropError::ReplicaDamaged { .. })), "{refused:?}");
    assert!(segments(&target).iter().any(|object| generation_of(object) == 0));
}

/// A target that protects some objects, and refuses to remove others.
struct Locking {
    below: MemoryTarget,
    lock: fn(&FileName) -> Option<Result<ObjectLock, TargetError>>,
}

impl fmt::Display for Locking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.below.fmt(f)
    }
}

impl Target for Locking {
    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }

    fn put(&self, name: &FileName, contents: Bytes, mode: PutMode) -> Result<(), TargetError> {
        self.below.put(name, contents, mode)
    }

    fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, TargetError> {
        self.below.get(name, range)
    }

    fn list(&self, folder: &str) -> Result<Vec<Object>, TargetError> {
        self.below.list(folder)
    }

    fn remove(&self, name: &FileName) -> Result<(), TargetError> {
        panic!("{name} was removed without a look at its lock");
    }

    fn erase(&self, name: &FileName) -> Result<Erased, TargetError> {
        match (self.lock)(name) {
            Some(lock) => lock.map(Erased::Locked),
            None => self.below.erase(name),
        }
    }
}

#[test]
fn locked_objects_stay_and_all_others_go() {
    let (sample, target) = rewritten();
    let lock = |name: &FileName| match SegmentName::of_file(name).unwrap().arena {
        ArenaId(0) => Some(Ok(ObjectLock::Until("2026-12-01".into()))),
        ArenaId(1) => Some(Err(TargetError::Refused {
            what: name.to_string(),
            source: std::io::Error::other("access denied"),
        })),
        _ => None,
    };
    let there = shared(Locking { below: target.clone(), lock });
    let Dropped { removed, locked, refused, .. } = sample.drop_superseded(&there, AT_ONCE).unwrap();
    assert!(!removed.is_empty() && !locked.is_empty() && !refused.is_empty());
    let is_superseded = |object: &Object| {
        SegmentName::of_file(&object.name).unwrap().arena <= ArenaId(1) && generation_of(object) == 0
    };
    let left = segments(&target).into_iter().filter(is_superseded).count();
    assert_eq!(left, locked.len() + refused.len());
    // When the lock has ended, the rest goes.
    let there = shared(target.clone());
    sample.drop_superseded(&there, AT_ONCE).unwrap();
    check(&sample, &there);
    assert!(!segments(&target).iter().any(is_superseded));
}
