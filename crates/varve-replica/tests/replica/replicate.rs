//! Replication: as the log grows, interrupted anywhere, by two writers at a time, and by two copies
//! whose histories differ.

use std::collections::BTreeSet;
use std::sync::Arc;

use varve_block::{Block, BlockName, BlockStore, BlockType};
use varve_remote::{MemoryTarget, Target};
use varve_replica::{ReplicateError, ReplicateOptions};
use varve_store::{Encryption, Store, StoreAccess};
use varve_upkeep::Checker;
use varve_world::FileName;

use crate::sample::{
    Failing, Sample, arenas_at, contents, name, open_store, random_bytes, secret, segments, shared, small,
};

#[test]
fn a_replica_holds_every_arena_byte_for_byte() {
    for encryption in [Encryption::Aes256Gcm, Encryption::None] {
        for options in [small(), ReplicateOptions::default()] {
            let mut sample = Sample::with(5, encryption);
            let target = MemoryTarget::new();
            let there = shared(target.clone());
            for night in 0..4 {
                sample.write(night, 60);
                let done = sample.replicate_with(&there, &options, 3).unwrap();
                assert!(done.uploaded_bytes > 0 && done.damaged.is_empty());
                assert_eq!(arenas_at(&there), sample.arenas());
                let again = sample.replicate_with(&there, &options, 3).unwrap();
                assert_eq!((again.uploaded_bytes, again.object_count), (0, 0), "nothing is uploaded twice");
            }
            let total: u64 = segments(&target).iter().map(|object| object.bytes).sum();
            let local: usize = sample.arenas().values().map(Vec::len).sum();
            assert_eq!(total, local as u64, "and nothing is there twice");
            let store = open_store(&there);
            for (name, bytes) in &sample.blocks {
                assert_eq!(store.get(name).unwrap(), bytes);
            }
        }
    }
}

#[test]
fn a_store_that_is_being_written_is_replicated() {
    let sample = Sample::of_nights(1);
    let access = StoreAccess::Write { holder: "writer" };
    let writer = Store::open(sample.world(), Some(&secret()), access, &mut |_| {}).unwrap();
    let there = shared(MemoryTarget::new());
    let mut written = sample.blocks.clone();
    for night in 0..6 {
        for block in 0..40 {
            let bytes = random_bytes(90_000 + night * 100 + block, 9000);
            let score = writer.put(Block { block_type: BlockType::DATA, bytes: &bytes }).unwrap();
            written.push((BlockName { score, block_type: BlockType::DATA }, bytes));
        }
        writer.sync().unwrap();
        // More data follows, and no page names it yet.
        let bytes = random_bytes(80_000 + night, 200_000);
        writer.put(Block { block_type: BlockType::DATA, bytes: &bytes }).unwrap();
        sample.replicate(&there).unwrap();
        check_prefix(&sample, &there);
        let store = open_store(&there);
        for (name, bytes) in &written {
            assert_eq!(store.get(name).unwrap(), bytes, "what was synced is there");
        }
    }
    writer.close().unwrap();
    sample.replicate(&there).unwrap();
    assert_eq!(arenas_at(&there), sample.arenas());
}

#[test]
fn segments_are_bounded() {
    let sample = Sample::of_nights(4);
    let target = MemoryTarget::new();
    sample.replicate(&shared(target.clone())).unwrap();
    let longest = segments(&target).iter().map(|object| object.bytes).max().unwrap();
    assert!(longest <= small().segment_bytes, "{longest}");
    let tiny = ReplicateOptions { segment_bytes: 1, ..small() };
    let target = MemoryTarget::new();
    let there = shared(target.clone());
    sample.replicate_with(&there, &tiny, 2).unwrap();
    assert_eq!(arenas_at(&there), sample.arenas(), "a record longer than a segment has one of its own");
}

#[test]
fn the_remote_sees_only_ciphertext() {
    let sample = Sample::of_nights(2);
    let target = MemoryTarget::new();
    sample.replicate(&shared(target.clone())).unwrap();
    for object in segments(&target) {
        let bytes = contents(&target, &object);
        for (_, block) in &sample.blocks {
            assert!(!bytes.windows(32).any(|window| window == &block[..32]));
        }
    }
}

/// Stops at every operation. The objects then form a prefix of the log that opens, and the next run
/// continues.
#[test]
fn it_may_stop_at_any_operation() {
    let sample = Sample::of_nights(4);
    let whole = MemoryTarget::new();
    sample.replicate(&shared(whole.clone())).unwrap();
    let wanted = whole.list("").unwrap();
    for jobs in [1, 3] {
        let mut operations = 0;
        loop {
            let target = MemoryTarget::new();
            let there = shared(target.clone());
            let stopped = sample.replicate_with(&shared(Failing::after(&target, operations)), &small(), jobs);
            let is_done = stopped.is_ok();
            if target.list("").unwrap().iter().any(|object| object.name.as_str() == "config.toml") {
                check_prefix(&sample, &there);
            }
            sample.replicate_with(&shared(Failing::after(&target, u64::MAX)), &small(), jobs).unwrap();
            assert_eq!(target.list("").unwrap(), wanted, "after {operations} operations");
            if is_done {
                break;
            }
            operations += 1;
        }
        assert!(operations > 12, "{operations}");
    }
}

/// A reader sees whole arenas, except the last one, which may be cut.
fn check_prefix(sample: &Sample, there: &Arc<dyn Target>) {
    let (local, remote) = (sample.arenas(), arenas_at(there));
    let count = remote.len();
    for (number, ((id, bytes), (wanted_id, wanted))) in remote.iter().zip(&local).enumerate() {
        assert_eq!(id, wanted_id, "no arena is missing between others");
        assert!(wanted.starts_with(bytes));
        assert!(number + 1 == count || bytes.len() == wanted.len(), "arena {id} is cut, and not the last");
    }
    let store = open_store(there);
    assert!(Checker::of(&store).check_order().unwrap().is_empty());
    for id in store.arenas().unwrap() {
        let check = Checker::of(&store).check_arena(id, true).unwrap();
        assert!(check.damage.is_empty(), "{:?}", check.damage);
    }
}

#[test]
fn it_goes_on_in_short_steps() {
    let sample = Sample::of_nights(4);
    let target = MemoryTarget::new();
    let mut steps = 0;
    while sample.replicate_with(&shared(Failing::after(&target, 8)), &small(), 2).is_err() {
        steps += 1;
        assert!(steps < 100, "every step gets further");
    }
    assert!(steps > 1);
    assert_eq!(arenas_at(&shared(target)), sample.arenas());
}

#[test]
fn another_stores_place_is_refused() {
    let (mine, mut other) = (Sample::of_nights(1), Sample::new(6));
    other.write(1, 10);
    let target = shared(MemoryTarget::new());
    other.replicate(&target).unwrap();
    let before = target.list("").unwrap();
    let refused = mine.replicate(&target).unwrap_err();
    assert!(matches!(refused, ReplicateError::ForeignStore { .. }), "{refused}");
    assert_eq!(target.list("").unwrap(), before, "nothing was changed");

    let target = MemoryTarget::new();
    target.set(&name("photos/cat.jpg"), Some("meow".into()));
    let refused = mine.replicate(&shared(target.clone())).unwrap_err();
    assert!(matches!(refused, ReplicateError::Occupied { .. }), "{refused}");
    assert_eq!(target.list("").unwrap().len(), 1);

    let forged = MemoryTarget::new();
    mine.replicate(&shared(forged.clone())).unwrap();
    let config = String::from_utf8(mine.storage.contents(&name("config.toml")).unwrap()).unwrap();
    forged.set(&name("config.toml"), Some(config.replace("aes-256-gcm", "none").into()));
    let refused = mine.replicate(&shared(forged)).unwrap_err();
    assert!(matches!(refused, ReplicateError::ForeignConfig), "{refused}");
}

#[test]
fn two_copies_never_mix() {
    let mut one = Sample::of_nights(3);
    let target = shared(MemoryTarget::new());
    one.replicate(&target).unwrap();
    let mut other = one.fork();
    one.write(100, 50);
    other.write(200, 80);
    one.replicate(&target).unwrap();
    let before = target.list("").unwrap();
    let refused = other.replicate(&target).unwrap_err();
    assert!(matches!(refused, ReplicateError::Diverged { .. }), "{refused}");
    assert_eq!(target.list("").unwrap(), before, "nothing was changed");
    one.write(101, 200);
    one.replicate(&target).unwrap();
    assert_eq!(arenas_at(&target), one.arenas());
}

#[test]
fn an_older_copy_is_told_that_it_is_older() {
    for blocks in [5, 50, 300] {
        let mut sample = Sample::of_nights(3);
        let older = sample.fork();
        sample.write(100, blocks);
        let target = shared(MemoryTarget::new());
        sample.replicate(&target).unwrap();
        let before = target.list("").unwrap();
        let refused = older.replicate(&target).unwrap_err();
        assert!(matches!(refused, ReplicateError::Ahead { .. }), "{blocks}: {refused}");
        assert_eq!(target.list("").unwrap(), before, "nothing was changed");
    }
}

/// A target at which a second copy of the store uploads between two operations of the first.
struct Crowded {
    below: MemoryTarget,
    operations: std::sync::atomic::AtomicU64,
    intrude: Box<dyn Fn() + Send + Sync>,
    at: u64,
}

impl std::fmt::Display for Crowded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.below.fmt(f)
    }
}

impl Crowded {
    fn count(&self) {
        if self.operations.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == self.at {
            (self.intrude)();
        }
    }
}

impl Target for Crowded {
    fn capabilities(&self) -> varve_remote::Capabilities {
        self.below.capabilities()
    }
    fn put(
        &self,
        name: &varve_world::FileName,
        contents: bytes::Bytes,
        mode: varve_remote::PutMode,
    ) -> Result<(), varve_remote::TargetError> {
        self.count();
        self.below.put(name, contents, mode)
    }
    fn get(
        &self,
        name: &varve_world::FileName,
        range: std::ops::Range<u64>,
    ) -> Result<bytes::Bytes, varve_remote::TargetError> {
        self.count();
        self.below.get(name, range)
    }
    fn list(&self, folder: &str) -> Result<Vec<varve_remote::Object>, varve_remote::TargetError> {
        self.count();
        self.below.list(folder)
    }
    fn remove(&self, name: &varve_world::FileName) -> Result<(), varve_remote::TargetError> {
        self.below.remove(name)
    }
}

#[test]
fn two_at_the_same_time_are_noticed_or_agree() {
    let start = Sample::of_nights(2);
    let target = MemoryTarget::new();
    start.replicate(&shared(target.clone())).unwrap();
    let objects = target.list("").unwrap();
    let (mut one, mut fork) = (start.fork(), start.fork());
    one.write(100, 150);
    fork.write(200, 150);
    let same = one.fork();
    for (other, is_same) in [(fork, false), (same, true)] {
        let mut noticed = 0;
        for at in 1..12 {
            let target = MemoryTarget::new();
            for object in &objects {
                target.set(&object.name, Some(start_contents(&start, object)));
            }
            let (copy, intruder) = (target.clone(), other.clone());
            let intrude = Box::new(move || {
                // Either of the two may be refused. The target must not mix them.
                drop(intruder.replicate(&shared(copy.clone())));
            });
            let crowded = Crowded { below: target.clone(), operations: 0.into(), intrude, at };
            let done = one.replicate_with(&shared(crowded), &small(), 1);
            if is_same {
                done.unwrap();
                assert_eq!(arenas_at(&shared(target)), one.arenas());
            } else {
                match done {
                    // In this case the other copy was refused.
                    Ok(_) => assert_eq!(arenas_at(&shared(target)), one.arenas()),
                    Err(ReplicateError::Diverged { .. } | ReplicateError::Ahead { .. }) => noticed += 1,
                    Err(error) => panic!("at {at}: {error}"),
                }
            }
        }
        assert!(is_same || noticed > 3, "{noticed}");
    }
}

/// The worst case: each copy finished before the other's listing, and both cut their segments at
/// the same places.
#[test]
fn a_reader_never_mixes_two_histories_of_an_arena() {
    let start = Sample::of_nights(2);
    let (mut one, mut other) = (start.fork(), start.fork());
    one.write(100, 60);
    other.write(200, 60);
    let both = MemoryTarget::new();
    for copy in [&one, &other] {
        let alone = MemoryTarget::new();
        copy.replicate(&shared(alone.clone())).unwrap();
        for object in alone.list("").unwrap() {
            both.set(&object.name, Some(contents(&alone, &object)));
        }
    }
    let (one_has, other_has) = (one.arenas(), other.arenas());
    assert_ne!(one_has, other_has);
    for (id, bytes) in arenas_at(&shared(both.clone())) {
        assert!(one_has.get(&id) == Some(&bytes) || other_has.get(&id) == Some(&bytes), "arena {id}");
    }
    for copy in [one, other] {
        let refused = copy.replicate(&shared(both.clone())).unwrap_err();
        let told = matches!(refused, ReplicateError::Diverged { .. } | ReplicateError::Ahead { .. });
        assert!(told, "{refused}");
    }
}

fn start_contents(start: &Sample, object: &varve_remote::Object) -> bytes::Bytes {
    let target = MemoryTarget::new();
    start.replicate(&shared(target.clone())).unwrap();
    contents(&target, object)
}

#[test]
fn a_replica_that_was_put_back_is_noticed() {
    let mut sample = Sample::of_nights(2);
    let target = MemoryTarget::new();
    let there = shared(target.clone());
    sample.replicate(&there).unwrap();
    let old: Vec<_> = target.list("").unwrap();
    sample.write(100, 100);
    sample.replicate(&there).unwrap();
    assert_eq!(sample.plan(&there, &small()).unwrap().lost_there, None);
    for object in target.list("").unwrap() {
        if !old.contains(&object) {
            target.set(&object.name, None);
        }
    }
    let plan = sample.plan(&there, &small()).unwrap();
    assert!(plan.lost_there.is_some() && plan.bytes() > 0);
    sample.replicate(&there).unwrap();
    assert_eq!(arenas_at(&there), sample.arenas(), "and what was lost is there again");
    assert_eq!(sample.plan(&there, &small()).unwrap().lost_there, None);
    for object in target.list("").unwrap() {
        target.set(&object.name, None);
    }
    // An emptied target may be the mount point of a disk that is away.
    let usual = ReplicateOptions { recreate: false, ..small() };
    assert!(matches!(sample.plan(&there, &usual), Err(ReplicateError::Emptied)));
    assert!(matches!(sample.replicate_with(&there, &usual, 1), Err(ReplicateError::Emptied)));
    assert!(target.list("").unwrap().is_empty(), "nothing was written");
    assert!(sample.plan(&there, &small()).unwrap().lost_there.is_some(), "emptied");
    sample.replicate_with(&there, &small(), 1).unwrap();
    assert_eq!(arenas_at(&there), sample.arenas());
}

/// The first keys of early stores have a number as their name, and are not bound to it.
#[test]
fn early_keys_are_added_beside_those_that_are_there() {
    let sample = Sample::of_nights(1);
    let own = sample.storage.names().into_iter().find(|file| file.folder() == "keys").unwrap();
    let own = String::from_utf8(sample.storage.contents(&own).unwrap()).unwrap();
    let unbound =
        |line: &&str| !["id", "role", "created", "label", "check"].contains(&line.split(' ').next().unwrap());
    let early: String = own.split_inclusive('\n').filter(unbound).collect();
    let file = name("keys/0000.toml");
    sample.storage.set_contents(&file, early.clone().into_bytes());
    let target = MemoryTarget::new();
    let there = shared(target.clone());
    sample.replicate(&there).unwrap();
    let changed = format!("{early}# another wrapping\n");
    sample.storage.set_contents(&file, changed.clone().into_bytes());
    let plan = sample.plan(&there, &small()).unwrap();
    assert_eq!((plan.extra_keys.as_slice(), plan.wrong_settings), (std::slice::from_ref(&file), vec![]));
    sample.replicate(&there).unwrap();
    assert_eq!(target.list("keys").unwrap().len(), 3, "the old key is there still: nobody said to remove it");
    open_store(&there);
    let done =
        sample.replicate_with(&there, &ReplicateOptions { delete_extra_keys: true, ..small() }, 1).unwrap();
    assert_eq!(done.removed_keys, [file]);
    let left = target.list("keys").unwrap();
    assert_eq!(left.len(), 2);
    assert!(left.iter().any(|object| contents(&target, object) == changed));
    assert_eq!(sample.replicate(&there).unwrap().object_count, 0);
}

#[test]
fn damaged_settings_there_are_named_and_only_replaced_when_that_is_said() {
    let sample = Sample::of_nights(1);
    let target = MemoryTarget::new();
    let there = shared(target.clone());
    sample.replicate(&there).unwrap();
    let key = sample.storage.names().into_iter().find(|file| file.folder() == "keys").unwrap();
    let text = |file: &FileName| {
        let object = target.list("").unwrap().into_iter().find(|object| object.name == *file).unwrap();
        contents(&target, &object)
    };
    for file in [key.clone(), name("config.toml"), name("replica.toml")] {
        let whole = text(&file);
        for damaged in [&b"rubbish"[..], &whole[..whole.len() / 2], b""] {
            target.set(&file, Some(bytes::Bytes::copy_from_slice(damaged)));
            let before = target.list("").unwrap();
            let told = sample.replicate(&there).map(|_| sample.plan(&there, &small()).unwrap());
            match told {
                Ok(plan) => assert_eq!((plan.wrong_settings, plan.extra_keys), (vec![key.clone()], vec![])),
                Err(error) => assert!(file != key, "{error}"),
            }
            assert_eq!(target.list("").unwrap(), before, "{file}: nothing was changed");
            let replace = BTreeSet::from([file.clone()]);
            let done = sample.replicate_with(&there, &ReplicateOptions { replace, ..small() }, 1).unwrap();
            assert_eq!((done.object_count, text(&file)), (1, whole.clone()), "{file}");
            open_store(&there);
        }
    }
    // If neither file identifies the owner of the replica, nothing is replaced.
    for file in ["config.toml", "replica.toml"] {
        target.set(&name(file), Some("rubbish".into()));
    }
    let replace = BTreeSet::from(["config.toml", "replica.toml"].map(name));
    sample.replicate_with(&there, &ReplicateOptions { replace, ..small() }, 1).unwrap_err();
}
