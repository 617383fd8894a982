//! Objects that are missing, cut, swapped or foreign, and a store that is itself damaged.

use std::sync::Arc;

use varve_block::BlockStore;
use varve_log::{ArenaId, ArenaMap, GRANULE_BYTES, Granule};
use varve_remote::{MemoryTarget, Target};
use varve_replica::{
    AuditFindingKind, CloneError, CloneOptions, ClumpShare, Replica, ReplicateOptions, SegmentEnd,
    SegmentName, clone_replica,
};
use varve_upkeep::DamageKind;
use varve_world::{FileName, MemoryStorage};

use crate::audited::audited;
use crate::sample::{
    Failing, Sample, arenas_at, contents, open_store, secret, segments, shared, small, world,
};

fn replicated(nights: u64) -> (Sample, MemoryTarget) {
    let sample = Sample::of_nights(nights);
    let target = MemoryTarget::new();
    sample.replicate(&shared(target.clone())).unwrap();
    (sample, target)
}

#[test]
fn whatever_is_missing_is_uploaded_again() {
    let (sample, target) = replicated(4);
    let there = shared(target.clone());
    for object in target.list("").unwrap() {
        target.set(&object.name, None);
        let done = sample.replicate(&there);
        let done = done.unwrap_or_else(|error| panic!("without {}: {error}", object.name));
        assert_eq!(done.object_count, 1, "{}", object.name);
        assert!(target.list("").unwrap().contains(&object), "{}", object.name);
    }
    for (number, object) in segments(&target).iter().enumerate() {
        if number % 3 != 0 {
            target.set(&object.name, None);
        }
    }
    sample.replicate(&there).unwrap();
    assert_eq!(arenas_at(&there), sample.arenas());
}

#[test]
fn what_was_cut_is_uploaded_beside_it() {
    let (sample, target) = replicated(4);
    let there = shared(target.clone());
    for object in segments(&target) {
        let whole = contents(&target, &object);
        for kept in [0, 1, whole.len() - 1] {
            target.set(&object.name, Some(whole.slice(..kept)));
            let plan = sample.plan(&there, &small()).unwrap();
            let wrong: Vec<_> = plan.wrong.iter().map(|wrong| (&wrong.object, wrong.bytes)).collect();
            assert_eq!(wrong, [(&object.name, kept as u64)]);
            // The same on a target at which each object can be written only once.
            sample.replicate_with(&shared(Failing::after(&target, u64::MAX)), &small(), 2).unwrap();
            let mended = arenas_at(&there) == sample.arenas();
            if !mended {
                // A single record can have only one name, so its object must be named for
                // replacement.
                let replace = [object.name.clone()].into();
                let options = ReplicateOptions { replace, ..small() };
                sample.replicate_with(&there, &options, 1).unwrap();
                assert_eq!(arenas_at(&there), sample.arenas(), "{}", object.name);
            }
            for added in segments(&target) {
                target.set(&added.name, None);
            }
            sample.replicate(&there).unwrap();
        }
    }
}

#[test]
fn what_is_named_is_replaced() {
    let (sample, target) = replicated(3);
    let there = shared(target.clone());
    let object = segments(&target).remove(1);
    target.set(&object.name, Some(vec![0; object.bytes as usize].into()));
    assert_eq!(sample.replicate(&there).unwrap().object_count, 0, "its length is right");
    let options = ReplicateOptions { replace: [object.name].into(), ..small() };
    assert_eq!(sample.replicate_with(&there, &options, 1).unwrap().object_count, 1);
    assert_eq!(arenas_at(&there), sample.arenas());
}

#[test]
fn damage_is_never_replicated_and_hinders_nothing_else() {
    let sample = Sample::of_nights(6);
    let arenas = sample.arenas();
    for (id, bytes) in &arenas {
        for place in [20, 600, bytes.len() / 2, bytes.len() - 500, bytes.len() - 50] {
            if Some(id) == arenas.keys().last() && place + 100 > bytes.len() {
                // This is the gap behind the last page.
                continue;
            }
            let hurt = sample.fork();
            let mut damaged = bytes.clone();
            damaged[place] ^= 4;
            hurt.storage.set_contents(&id.file_name(), damaged);
            let there = shared(MemoryTarget::new());
            let plan = hurt.plan(&there, &small()).unwrap();
            let done = hurt.replicate(&there).unwrap();
            let remote = arenas_at(&there);
            for (other, wanted) in &arenas {
                if other == id {
                    let there = remote.get(id).map_or(&[][..], Vec::as_slice);
                    assert!(wanted.starts_with(there), "arena {id} with byte {place} flipped");
                } else {
                    assert_eq!(remote.get(other), Some(wanted), "arena {other}");
                }
            }
            // The gap behind the last page means nothing, and neither do clumps that no page names.
            // The last page of the open arena, if torn, looks like the result of a crash. A cut is
            // reported.
            let is_unfinished = plan.unfinished.iter().any(|(arena, _)| arena == id);
            let is_torn_end = Some(id) == arenas.keys().last() && (is_unfinished || place > bytes.len() / 2);
            let is_harmless = is_torn_end || remote.get(id) == Some(bytes) || remote == arenas;
            let named: Vec<_> = done.damaged.iter().map(|damage| damage.arena).collect();
            assert!(is_harmless || named == [*id], "arena {id}, byte {place}: {named:?}");
        }
    }
}

#[test]
fn a_lost_arena_is_named_and_the_replica_has_it_still() {
    let (sample, target) = replicated(4);
    let there = shared(target.clone());
    let before = arenas_at(&there);
    let lost = *before.keys().next().unwrap();
    varve_world::Storage::remove(&sample.storage, &lost.file_name()).unwrap();
    let plan = sample.plan(&there, &small()).unwrap();
    assert_eq!(plan.missing_here, [lost]);
    sample.replicate(&there).unwrap();
    assert_eq!(arenas_at(&there), before);
}

/// Puts a forged seal at `offset` of the store's open arena, and returns its object name.
fn forge_seal(sample: &Sample, target: &MemoryTarget, offset: u64) -> FileName {
    let arena = *sample.arenas().keys().next_back().unwrap();
    let name =
        SegmentName { arena, generation: 0, offset, start: [0x5a; 16], end: SegmentEnd::Seal([0xa5; 32]) };
    target.set(&name.file_name(), Some(vec![7; 700].into()));
    name.file_name()
}

fn cloned(target: &MemoryTarget, storage: &MemoryStorage, keep_damaged: bool) -> Result<(), CloneError> {
    let replica = Arc::new(Replica::open(shared(target.clone())).unwrap());
    let options = CloneOptions { keep_damaged, ..CloneOptions::default() };
    let world = world(Arc::new(storage.clone()), 12);
    clone_replica(&replica, &world, Some(&secret()), options, &()).map(|_| ())
}

/// A name may claim a place a terabyte away.
#[test]
fn a_segment_that_no_arena_reaches_is_a_stranger() {
    let (sample, target) = replicated(4);
    let there = shared(target.clone());
    for offset in [48 << 20, 1 << 34, SegmentName::OFFSET_MAX - 1000] {
        let forged = forge_seal(&sample, &target, offset);
        let replica = Replica::open(Arc::clone(&there)).unwrap();
        assert!(replica.arenas().values().all(|arena| arena.bytes() < 48 << 20), "offset {offset}");
        let strangers: Vec<_> = replica.strangers().iter().map(|object| &object.name).collect();
        assert_eq!(strangers, [&forged]);
        let store = open_store(&there);
        for (name, bytes) in &sample.blocks {
            assert_eq!(store.get(name).unwrap(), bytes);
        }
        let storage = MemoryStorage::new();
        cloned(&target, &storage, false).unwrap();
        assert_eq!(arenas_at(&there), sample.arenas());
        assert_eq!(sample.plan(&there, &small()).unwrap().strangers, std::slice::from_ref(&forged));
        assert_eq!(sample.replicate(&there).unwrap().object_count, 0);
        let audit = audited(&target, ClumpShare::NONE);
        let found = audit.findings.iter().map(|finding| (finding.object.as_ref(), &finding.kind));
        let found: Vec<_> = found.collect();
        assert!(
            matches!(found[..], [(Some(object), AuditFindingKind::Stranger)] if *object == forged),
            "{found:?}"
        );
        target.set(&forged, None);
    }
}

/// A name may also claim an arena after ten thousand million others, none of which exists.
#[test]
fn an_arena_behind_the_end_of_any_log_is_a_stranger() {
    let (sample, target) = replicated(10);
    let map = ArenaMap::new(1 << 20).unwrap();
    let granules = map.arena_bytes() / GRANULE_BYTES;
    let last = (1 << 40) / granules - 1;
    assert!(
        map.address(ArenaId(last), Granule(0)).is_some()
            && map.address(ArenaId(last + 1), Granule(0)).is_none()
    );
    let name = |arena| {
        let (start, end) = ([0x5a; 16], SegmentEnd::Record([0xa5; 16]));
        SegmentName { arena: ArenaId(arena), generation: 0, offset: 0, start, end }.file_name()
    };
    let forged = [name(last + 1), name(9_999_999_999), name(u64::MAX)];
    forged.iter().for_each(|object| target.set(object, Some(vec![7; 700].into())));
    let replica = Replica::open(shared(target.clone())).unwrap();
    let strangers: Vec<_> = replica.strangers().iter().map(|object| &object.name).collect();
    assert_eq!(strangers, forged.iter().collect::<Vec<_>>());
    assert_eq!(sample.plan(&shared(target.clone()), &small()).unwrap().strangers, forged);
    // If more arenas are missing than there are unreadable ones, all possible ones are named, up to
    // the last.
    let lost: Vec<_> = sample.arenas().keys().copied().take(5).collect();
    let is_lost =
        |object: &FileName| SegmentName::of_file(object).is_some_and(|name| lost.contains(&name.arena));
    let gone = segments(&target).into_iter().map(|object| object.name).filter(is_lost);
    gone.chain([name(last + 1), name(u64::MAX)]).for_each(|object| target.set(&object, None));
    let findings = audited(&target, ClumpShare::NONE).findings;
    let is_missing = |kind: &AuditFindingKind| matches!(kind, AuditFindingKind::Order(DamageKind::Missing));
    let missing = findings.iter().filter(|finding| is_missing(&finding.kind));
    assert_eq!(missing.filter_map(|finding| finding.arena).collect::<Vec<_>>(), lost, "{findings:?}");
}

/// A forged segment within an arena's length makes a good arena look damaged. The damage is
/// reported, and no disk is filled.
#[test]
fn a_stray_segment_is_not_more_than_the_store_has() {
    let (sample, target) = replicated(4);
    let there = shared(target.clone());
    let forged = forge_seal(&sample, &target, 20 << 20);
    let plan = sample.plan(&there, &small()).unwrap();
    assert_eq!((plan.bytes(), plan.strangers), (0, vec![forged.clone()]));
    assert_eq!(sample.replicate(&there).unwrap().object_count, 0);
    // Nothing about it is remembered.
    target.set(&forged, None);
    assert_eq!(sample.plan(&there, &small()).unwrap().lost_there, None);
    let forged = forge_seal(&sample, &target, 20 << 20);
    let storage = MemoryStorage::new();
    let error = cloned(&target, &storage, false).unwrap_err();
    assert!(matches!(&error, CloneError::Damaged { damaged } if damaged.len() == 1), "{error}");
    let kept = storage.names().into_iter().map(|file| storage.contents(&file).unwrap().len()).max();
    assert!(kept.unwrap() < 4 << 20, "{kept:?}");
    cloned(&target, &storage, true).unwrap();
    // An object of an arena that does not exist is a stranger, too.
    let own = SegmentName::of_file(&forged).unwrap();
    target.set(&forged, None);
    let nowhere = SegmentName { arena: ArenaId(99), ..own }.file_name();
    target.set(&nowhere, Some(vec![7; 700].into()));
    assert_eq!(sample.plan(&there, &small()).unwrap().strangers, [nowhere]);
}

/// A forged segment is distinguished from one that a newer copy of the store has written, even
/// though an object before the latter is lost.
#[test]
fn a_lone_segment_of_the_stores_own_is_no_stray() {
    let mut newer = Sample::of_nights(1);
    let older = newer.fork();
    let target = MemoryTarget::new();
    let there = shared(target.clone());
    older.replicate(&there).unwrap();
    let known = segments(&target);
    newer.write(50, 20);
    newer.replicate(&there).unwrap();
    newer.write(51, 20);
    newer.replicate(&there).unwrap();
    let added: Vec<_> = segments(&target).into_iter().filter(|object| !known.contains(object)).collect();
    let (last, before) = added.split_last().unwrap();
    before.iter().for_each(|object| target.set(&object.name, None));
    let refused = older.plan(&there, &small()).unwrap_err().to_string();
    assert!(refused.contains(last.name.as_str()), "{refused}");
}

/// Each forged arena costs a constant number of operations when a replica is opened, however many
/// there are.
#[test]
fn each_made_up_arena_costs_a_constant_number_of_requests() {
    let (sample, target) = replicated(4);
    let operations = |made_up: u64| {
        for number in 0..made_up {
            let (start, end) = ([0x5a; 16], SegmentEnd::Record([0xa5; 16]));
            let name = SegmentName { arena: ArenaId(1000 + number), generation: 0, offset: 0, start, end };
            target.set(&name.file_name(), Some(vec![7; 700].into()));
        }
        let failing = Arc::new(Failing::after(&target, u64::MAX));
        let there: Arc<dyn Target> = Arc::<Failing>::clone(&failing);
        let store = open_store(&there);
        for (name, bytes) in &sample.blocks[..3] {
            assert_eq!(store.get(name).unwrap(), bytes);
        }
        u64::MAX - failing.left.load(std::sync::atomic::Ordering::Relaxed)
    };
    let without = operations(0);
    // Its header is looked at several times, but fetched once.
    assert_eq!(operations(300), without + 300);
    let audit = audited(&target, ClumpShare::NONE);
    assert!(
        audit.findings.iter().all(|finding| finding.arena >= Some(ArenaId(1000))),
        "{:?}",
        audit.findings
    );
    assert_eq!(audit.findings.len(), 300);
}
