//! Objects that are missing, cut, swapped or foreign, and a store that is damaged itself.

use varve_remote::{MemoryTarget, Target};
use varve_replica::ReplicateOptions;

use crate::sample::{Failing, Sample, arenas_at, contents, segments, shared, small};

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
            // On a target that is written only once, too.
            sample.replicate_with(&shared(Failing::after(&target, u64::MAX)), &small(), 2).unwrap();
            let mended = arenas_at(&there) == sample.arenas();
            if !mended {
                // A single record has only one name: it must be replaced by name.
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
                // The gap behind the last page.
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
            // The gap behind the last page means nothing, and neither does what no page names.
            // The last page of the open arena, torn, looks like what a crash leaves.
            // What will be cut is told.
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
