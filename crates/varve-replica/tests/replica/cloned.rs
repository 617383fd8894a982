//! Clones: the whole store is copied, even in several steps, and no unchecked arena is accepted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use varve_block::BlockStore;
use varve_remote::{MemoryTarget, Object, Observer, Target};
use varve_replica::{CloneError, CloneOptions, Cloned, Replica, clone_replica};
use varve_store::{Secret, Store, StoreAccess};
use varve_upkeep::Checker;
use varve_world::{MemoryStorage, Timestamp, World};
use zeroize::Zeroizing;

use crate::sample::{Failing, Sample, contents, name, secret, segments, shared, world};

fn cloned_into(
    target: &MemoryTarget,
    storage: &MemoryStorage,
    options: CloneOptions,
) -> Result<Cloned, CloneError> {
    let replica = Arc::new(Replica::open(shared(target.clone())).unwrap());
    clone_replica(&replica, &into(storage), Some(&secret()), options, &())
}

fn into(storage: &MemoryStorage) -> World {
    world(Arc::new(storage.clone()), 12)
}

fn replicated() -> (Sample, MemoryTarget) {
    let sample = Sample::of_nights(4);
    let target = MemoryTarget::new();
    sample.replicate(&shared(target.clone())).unwrap();
    (sample, target)
}

fn is_the_same(sample: &Sample, storage: &MemoryStorage) {
    let files: Vec<_> = sample.storage.names().into_iter().filter(|file| file.folder() != "index").collect();
    for file in files.iter().filter(|file| file.folder() != "arenas" && !file.as_str().ends_with("lock")) {
        assert!(storage.contents(file) == sample.storage.contents(file), "{file}");
    }
    for (id, bytes) in sample.arenas() {
        assert!(storage.contents(&id.file_name()) == Some(bytes), "arena {id}");
    }
    let store =
        Store::open(into(storage), Some(&secret()), StoreAccess::Write { holder: "clone" }, &mut |_| {});
    let store = store.unwrap();
    for (name, bytes) in &sample.blocks {
        assert_eq!(store.get(name).unwrap(), bytes);
    }
    assert!(Checker::of(&store).check_order().unwrap().is_empty());
}

#[test]
fn a_clone_equals_its_source() {
    let (sample, target) = replicated();
    let storage = MemoryStorage::new();
    let cloned = cloned_into(&target, &storage, CloneOptions::default()).unwrap();
    assert_eq!(cloned.arena_count, sample.arenas().len() as u64);
    assert!(storage.names().iter().all(|file| !file.as_str().ends_with(".new")));
    is_the_same(&sample, &storage);
    let again = cloned_into(&target, &storage, CloneOptions::default()).unwrap_err();
    assert!(matches!(again, CloneError::Exists), "{again}");
}

#[test]
fn a_clone_goes_on_with_the_replica() {
    let (_, target) = replicated();
    let storage = MemoryStorage::new();
    cloned_into(&target, &storage, CloneOptions::default()).unwrap();
    let mut clone = Sample { storage, blocks: Vec::new(), now: Timestamp(1) };
    clone.write(300, 40);
    let done = clone.replicate(&shared(target.clone())).unwrap();
    assert!(done.uploaded_bytes > 0);
    assert_eq!(crate::sample::arenas_at(&shared(target)), clone.arenas());
}

#[test]
fn a_clone_may_stop_anywhere() {
    let (sample, target) = replicated();
    let storage = MemoryStorage::new();
    let mut steps = 0;
    loop {
        // Each attempt has one more operation. Arenas are fetched side by side and torn every time,
        // so all of them may need a little more.
        let failing = shared(Failing::after(&target, 8 + steps));
        let done = Replica::open(failing).map(|replica| {
            clone_replica(&Arc::new(replica), &into(&storage), Some(&secret()), CloneOptions::default(), &())
        });
        if done.is_ok_and(|done| done.is_ok()) {
            break;
        }
        let opened = Store::read_config(&into(&storage));
        assert!(opened.is_err(), "what is not finished is no store");
        // Half-written files are torn by the power failure.
        for file in storage.names().into_iter().filter(|file| file.as_str().ends_with("arena.new")) {
            let mut torn = storage.contents(&file).unwrap();
            let half = torn.len() / 2;
            torn[half..].fill(0xee);
            storage.set_contents(&file, torn);
        }
        steps += 1;
        assert!(steps < 100, "it comes to an end");
    }
    assert!(steps > 1, "{steps}");
    is_the_same(&sample, &storage);
}

struct StopAfter(AtomicU64);

impl Observer for StopAfter {
    fn is_cancelled(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
    }
}

#[test]
fn a_clone_stops_when_it_is_told_to() {
    let (sample, target) = replicated();
    let storage = MemoryStorage::new();
    let replica = Arc::new(Replica::open(shared(target.clone())).unwrap());
    let stop = StopAfter(AtomicU64::new(2));
    let stopped = clone_replica(&replica, &into(&storage), Some(&secret()), CloneOptions::default(), &stop);
    assert!(matches!(stopped, Err(CloneError::Cancelled)));
    cloned_into(&target, &storage, CloneOptions::default()).unwrap();
    is_the_same(&sample, &storage);
}

/// No key is bound to the index setting of the replica's config, and every opening of the clone
/// would allocate the memory that it names.
#[test]
fn an_index_that_the_log_is_no_reason_for_is_not_cloned() {
    let (_, target) = replicated();
    let file = name("config.toml");
    let listed = target.list("").unwrap();
    let bytes = listed.iter().find(|object| object.name == file).unwrap().bytes;
    let text = String::from_utf8(target.get(&file, 0..bytes).unwrap().to_vec()).unwrap();
    for (wanted, taken) in [("68719476736", "1048576"), ("77", "77")] {
        let disk = |blocks| format!("index = \"disk\"\nindex_memory = 4194304\nindex_blocks = {blocks}\n");
        target.set(&file, Some(text.replace("index = \"memory\"\n", &disk(wanted)).into()));
        let storage = MemoryStorage::new();
        cloned_into(&target, &storage, CloneOptions::default()).unwrap();
        let cloned = String::from_utf8(storage.contents(&file).unwrap()).unwrap();
        assert!(cloned.contains(&disk(taken)), "{cloned}");
        Store::open(into(&storage), Some(&secret()), StoreAccess::Write { holder: "clone" }, &mut |_| {})
            .unwrap();
    }
}

#[test]
fn nothing_is_cloned_over_something_else() {
    let (_, target) = replicated();
    for stranger in ["letter.txt", "arenas/0000000000.arena", "keys/mine.toml"] {
        let storage = MemoryStorage::new();
        storage.set_contents(&name(stranger), b"mine".to_vec());
        let refused = cloned_into(&target, &storage, CloneOptions::default()).unwrap_err();
        assert!(matches!(refused, CloneError::NotEmpty { .. }), "{refused}");
        assert_eq!(storage.names().len(), 1);
    }
}

#[test]
fn damaged_arenas_are_named_and_only_kept_when_asked() {
    let (sample, target) = replicated();
    let object = &segments(&target)[1];
    let whole = contents(&target, object);
    let mut flipped = whole.to_vec();
    flipped[1000] ^= 1;
    for damaged in [Some(flipped.into()), None] {
        target.set(&object.name, damaged);
        let storage = MemoryStorage::new();
        let refused = cloned_into(&target, &storage, CloneOptions::default()).unwrap_err();
        assert!(matches!(&refused, CloneError::Damaged { damaged } if damaged.len() == 1), "{refused}");
        assert!(Store::read_config(&into(&storage)).is_err());

        let kept = storage.fork();
        let options = CloneOptions { keep_damaged: true, ..CloneOptions::default() };
        assert_eq!(cloned_into(&target, &kept, options).unwrap().damaged.len(), 1);
        let store = Store::open(into(&kept), Some(&secret()), StoreAccess::Read, &mut |_| {}).unwrap();
        let good = sample.blocks.iter().filter(|(name, _)| store.get(name).is_ok()).count();
        assert!(good > sample.blocks.len() / 2 && good < sample.blocks.len(), "{good}");

        target.set(&object.name, Some(whole.clone()));
        cloned_into(&target, &storage, CloneOptions::default()).unwrap();
        is_the_same(&sample, &storage);
    }
}

/// The remaining objects look like a replica that was stopped earlier, except for the seals that
/// the newest page has counted. They cover all arenas but the last one or two.
#[test]
fn an_arena_that_is_not_there_at_all_is_missed() {
    let (sample, target) = (Sample::of_nights(10), MemoryTarget::new());
    sample.replicate(&shared(target.clone())).unwrap();
    let newest = sample.arenas().pop_last().unwrap().0;
    let objects = segments(&target);
    let arena_of = |object: &Object| object.name.folder().to_owned();
    let folders: BTreeSet<_> = objects.iter().map(arena_of).collect();
    assert!(folders.len() >= 5, "{folders:?}");
    for folder in folders.iter().take(folders.len() - 2) {
        for is_seal_alone in [false, true] {
            let hurt = MemoryTarget::new();
            for object in target.list("").unwrap() {
                hurt.set(&object.name, Some(contents(&target, &object)));
            }
            let all: Vec<_> = objects.iter().filter(|object| arena_of(object) == *folder).collect();
            let gone = if is_seal_alone { &all[all.len() - 1..] } else { &all[..] };
            gone.iter().for_each(|object| hurt.set(&object.name, None));
            let storage = MemoryStorage::new();
            let refused = cloned_into(&hurt, &storage, CloneOptions::default()).unwrap_err();
            let CloneError::Damaged { damaged } = &refused else { panic!("{folder}: {refused}") };
            assert!(damaged.len() == 1 && damaged[0].arena < newest, "{folder}: {refused}");
            sample.replicate(&shared(hurt.clone())).unwrap();
            cloned_into(&hurt, &storage, CloneOptions::default()).unwrap();
            is_the_same(&sample, &storage);
        }
    }
}

#[test]
fn without_a_key_nothing_is_checked_and_that_must_be_said() {
    let (sample, target) = replicated();
    let replica = Arc::new(Replica::open(shared(target)).unwrap());
    let wrong = Secret::KeyFile(Zeroizing::new(vec![8; 32]));
    for secret in [None, Some(&wrong)] {
        let storage = MemoryStorage::new();
        let refused = clone_replica(&replica, &into(&storage), secret, CloneOptions::default(), &());
        assert!(matches!(refused, Err(CloneError::Open(_))));
    }
    let storage = MemoryStorage::new();
    let options = CloneOptions { unchecked: true, ..CloneOptions::default() };
    clone_replica(&replica, &into(&storage), None, options, &()).unwrap();
    is_the_same(&sample, &storage);
}
