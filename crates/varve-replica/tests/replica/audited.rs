//! Audits find every kind of tampering, and name the object that has it.

use std::sync::Arc;

use varve_remote::{MemoryTarget, Target};
use varve_replica::{AuditReport, ClumpShare, ReplicaStorage, ReplicaToAudit, audit};
use varve_store::{Store, StoreAccess};
use varve_world::FileName;

use crate::sample::{Sample, contents, name, open_replica, secret, segments, shared, world};

pub fn audited(target: &MemoryTarget, share: ClumpShare) -> AuditReport {
    let replica = open_replica(&shared(target.clone()));
    let world = world(Arc::new(ReplicaStorage::new(Arc::clone(&replica), None, None)), 9);
    let (_, log) = Store::unlock(&world, Some(&secret())).unwrap();
    let store = Store::open(world.clone(), Some(&secret()), StoreAccess::Read, &mut |_| {}).unwrap();
    audit(ReplicaToAudit { replica: &replica, world: &world, store: &store, log: &log }, share, &()).unwrap()
}

fn replicated() -> (Sample, MemoryTarget) {
    let sample = Sample::of_nights(4);
    let target = MemoryTarget::new();
    sample.replicate(&shared(target.clone())).unwrap();
    (sample, target)
}

fn names(audit: &AuditReport) -> Vec<FileName> {
    audit.findings.iter().filter_map(|finding| finding.object.clone()).collect()
}

#[test]
fn a_good_replica_is_found_good() {
    let (sample, target) = replicated();
    let some = ClumpShare::from_millionths(200_000).unwrap();
    for share in [ClumpShare::NONE, some, ClumpShare::ALL] {
        let audit = audited(&target, share);
        assert!(audit.findings.is_empty(), "{:?}", audit.findings);
        assert_eq!(audit.arena_count, sample.arenas().len() as u64);
        assert_eq!(audit.segment_count, segments(&target).len() as u64);
        let read = audit.checked_count;
        match share {
            ClumpShare::NONE => assert_eq!(read, 0),
            ClumpShare::ALL => assert_eq!(read, audit.clump_count),
            _ => assert!(read > 0 && read < audit.clump_count / 2, "{read} of {}", audit.clump_count),
        }
    }
}

#[test]
fn every_cut_and_every_missing_object_is_named() {
    let (_, target) = replicated();
    let objects = segments(&target);
    for (number, object) in objects.iter().enumerate() {
        let whole = contents(&target, object);
        for kept in [None, Some(whole.len() - 1), Some(whole.len() / 2)] {
            target.set(&object.name, kept.map(|kept| whole.slice(..kept)));
            let audit = audited(&target, ClumpShare::NONE);
            // If the end of the log is missing, the rest is a good, shorter log: only a party that
            // saw the later state can tell. The same is true of the last seal, which no later page
            // covers yet.
            let is_end = number + 2 >= objects.len() && kept.is_none();
            assert!(is_end || !audit.findings.is_empty(), "{} kept {kept:?}", object.name);
            if kept.is_some() {
                let named = names(&audit);
                assert!(named.contains(&object.name), "{} kept {kept:?}: {:?}", object.name, audit.findings);
            }
            target.set(&object.name, Some(whole.clone()));
        }
    }
    assert!(audited(&target, ClumpShare::ALL).findings.is_empty());
}

#[test]
fn every_flipped_byte_is_found_by_a_full_audit() {
    let (_, target) = replicated();
    for object in segments(&target) {
        let whole = contents(&target, &object);
        // Irregular places, because none may lie in a gap between records: a flipped byte means
        // nothing there.
        for place in [0, 30, 77, 700, whole.len() / 3, whole.len() / 2] {
            let mut flipped = whole.to_vec();
            flipped[place] ^= 1;
            target.set(&object.name, Some(flipped.into()));
            let audit = audited(&target, ClumpShare::ALL);
            assert!(!audit.findings.is_empty(), "{} byte {place}", object.name);
            assert!(
                names(&audit).contains(&object.name),
                "{} byte {place}: {:?}",
                object.name,
                audit.findings
            );
            target.set(&object.name, Some(whole.clone()));
        }
    }
}

#[test]
fn swapped_and_foreign_objects_are_named() {
    let (sample, target) = replicated();
    let objects = segments(&target);
    let (one, other) = (&objects[0], &objects[1]);
    let (first, second) = (contents(&target, one), contents(&target, other));
    target.set(&one.name, Some(second.clone()));
    target.set(&other.name, Some(first.clone()));
    let found = names(&audited(&target, ClumpShare::NONE));
    assert!(found.contains(&one.name), "{found:?}");
    target.set(&one.name, Some(first));
    target.set(&other.name, Some(second));

    let mut stranger = Sample::new(6);
    stranger.write(1, 200);
    let foreign = MemoryTarget::new();
    stranger.replicate(&shared(foreign.clone())).unwrap();
    let theirs = contents(&foreign, &segments(&foreign)[0]);
    let whole = contents(&target, one);
    target.set(&one.name, Some(theirs.slice(..whole.len().min(theirs.len()))));
    let audit = audited(&target, ClumpShare::NONE);
    assert!(names(&audit).contains(&one.name));
    assert!(format!("{:?}", audit.findings).contains("ForeignStore"), "{:?}", audit.findings);
    target.set(&one.name, Some(whole));

    target.set(&segments(&foreign)[0].name, Some(theirs));
    let added = names(&audited(&target, ClumpShare::NONE));
    assert!(added.contains(&segments(&foreign)[0].name), "{added:?}");
    target.set(&segments(&foreign)[0].name, None);

    for stranger in ["notes.txt", "arenas/0000000000.arena"] {
        target.set(&name(stranger), Some("hello".into()));
    }
    target.set(&name("FORMAT.md"), None);
    let found = audited(&target, ClumpShare::NONE).findings;
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(sample.replicate(&shared(target.clone())).unwrap().object_count, 1);
}

#[test]
fn what_an_interrupted_upload_leaves_is_no_damage() {
    let (sample, target) = replicated();
    let objects = target.list("arenas").unwrap();
    for kept in 1..objects.len() {
        let cut = MemoryTarget::new();
        for object in target.list("").unwrap() {
            let is_kept = objects.iter().position(|other| *other == object).is_none_or(|place| place < kept);
            if is_kept {
                cut.set(&object.name, Some(contents(&target, &object)));
            }
        }
        let found = audited(&cut, ClumpShare::ALL).findings;
        assert!(found.is_empty(), "{kept}: {found:?}");
    }
    drop(sample);
}
