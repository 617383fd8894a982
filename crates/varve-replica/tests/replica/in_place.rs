//! A replica that is read in place: through a cache, without any write, and as a source for
//! healing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use varve_block::BlockStore;
use varve_remote::{MemoryTarget, Target};
use varve_replica::{HealingStore, ObjectFault, RangeCache, Replica, ReplicaStorage};
use varve_store::{IndexKind, OpenStoreError, Store, StoreAccess};
use varve_upkeep::Checker;
use varve_world::MemoryStorage;

use crate::sample::{Failing, Sample, name, open_replica, open_store, secret, segments, shared, world};

fn replicated() -> (Sample, MemoryTarget) {
    let sample = Sample::of_nights(4);
    let target = MemoryTarget::new();
    sample.replicate(&shared(target.clone())).unwrap();
    (sample, target)
}

#[test]
fn what_was_read_once_comes_from_the_cache() {
    let (sample, target) = replicated();
    let kept = MemoryStorage::new();
    let mut asked = Vec::new();
    for _ in 0..3 {
        let counted = Arc::new(Failing::after(&target, u64::MAX));
        let cache = RangeCache::new(Arc::new(kept.clone()), 64 << 20);
        let replica = Arc::new(Replica::open(Arc::clone(&counted) as _).unwrap());
        let storage = Arc::new(ReplicaStorage::new(replica, Some(cache), None));
        let store = Store::open(world(storage, 3), Some(&secret()), StoreAccess::Read, &mut |_| {}).unwrap();
        for (name, bytes) in &sample.blocks {
            assert_eq!(store.get(name).unwrap(), bytes);
        }
        asked.push(u64::MAX - counted.left.load(Ordering::Relaxed));
        // Damage to the cache costs only a request.
        let file = kept.names().into_iter().nth(3).unwrap();
        kept.set_contents(&file, vec![0; 70_000]);
    }
    let settings = 12;
    assert!(asked[1] <= settings && asked[2] <= settings && asked[0] > 20, "{asked:?}");
    let small = MemoryStorage::new();
    let cache = RangeCache::new(Arc::new(small.clone()), 200_000);
    let storage = Arc::new(ReplicaStorage::new(open_replica(&shared(target)), Some(cache), None));
    let store = Store::open(world(storage, 3), Some(&secret()), StoreAccess::Read, &mut |_| {}).unwrap();
    for (name, bytes) in &sample.blocks {
        assert_eq!(store.get(name).unwrap(), bytes);
    }
    assert!(small.names().len() <= 3, "the cache is bounded");
}

#[test]
fn an_object_that_has_lost_its_end_is_told() {
    let (_, target) = replicated();
    let there = shared(target.clone());
    assert_eq!(open_replica(&there).damaged_objects().count(), 0);
    let all = segments(&target);
    let followed = |name: &str| {
        all.iter().any(|next| next.name.as_str().contains(&format!("-{}-", &name[name.len() - 32..])))
    };
    let cut = all.iter().find(|object| object.bytes > 1 && followed(object.name.as_str())).unwrap();
    let bytes = target.get(&cut.name, 0..cut.bytes - 1).unwrap();
    target.set(&cut.name, Some(bytes));
    let told: Vec<_> = open_replica(&there).damaged_objects().collect();
    assert_eq!(told, [(cut.name.clone(), ObjectFault::CutShort)]);
}

#[test]
fn a_replica_is_only_read() {
    let (_, target) = replicated();
    let before = segments(&target);
    let storage = Arc::new(ReplicaStorage::new(open_replica(&shared(target.clone())), None, None));
    let refused =
        Store::open(world(storage, 3), Some(&secret()), StoreAccess::Write { holder: "me" }, &mut |_| {});
    let Err(OpenStoreError::Lock(error)) = refused else { panic!("it must not open") };
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("a replica cannot be written"), "{source}");
    assert_eq!(segments(&target), before);
}

#[test]
fn an_older_replica_is_noticed_by_who_has_seen_a_newer_one() {
    let mut sample = Sample::of_nights(2);
    let target = MemoryTarget::new();
    let there = shared(target.clone());
    sample.replicate(&there).unwrap();
    let old = segments(&target);
    sample.write(50, 40);
    sample.replicate(&there).unwrap();
    let hints = MemoryStorage::new();
    let open = || {
        let storage = ReplicaStorage::new(open_replica(&there), None, Some(Arc::new(hints.clone())));
        Store::open(world(Arc::new(storage), 3), Some(&secret()), StoreAccess::Read, &mut |_| {}).unwrap()
    };
    let store = open();
    assert!(store.vault().newest_is_there().unwrap());
    store.vault().note_newest_seen().unwrap();
    assert!(hints.contents(&name("index/newest")).is_some());
    assert!(open().vault().newest_is_there().unwrap());
    for object in segments(&target) {
        if !old.contains(&object) {
            target.set(&object.name, None);
        }
    }
    let store = open();
    let seen = store.vault().newest_is_there();
    assert!(!seen.is_ok_and(|is_there| is_there), "it was put back");
    assert!(!Checker::of(&store).check_order().unwrap().is_empty());
    sample.replicate(&there).unwrap();
    assert!(open().vault().newest_is_there().unwrap());
}

#[test]
fn lost_blocks_come_from_the_replica() {
    let (sample, target) = replicated();
    let broken = sample.fork();
    for id in sample.arenas().into_keys() {
        let mut bytes = broken.storage.contents(&id.file_name()).unwrap();
        for place in (5_000..bytes.len().saturating_sub(20_000)).step_by(200_000) {
            bytes[place] ^= 1;
        }
        broken.storage.set_contents(&id.file_name(), bytes);
    }
    let local =
        Arc::new(Store::open(broken.world(), Some(&secret()), StoreAccess::Read, &mut |_| {}).unwrap());
    let names: Vec<_> = sample.blocks.iter().map(|(name, _)| *name).collect();
    let lost = local.get_batch(&names).iter().filter(|result| result.is_err()).count();
    assert!(lost > 5, "{lost}");
    let healing = HealingStore::new(
        Arc::clone(&local) as _,
        Box::new(move || vec![Box::new(open_store(&shared(target.clone())))]),
    );
    for (found, (_, bytes)) in healing.get_batch(&names).into_iter().zip(&sample.blocks) {
        assert_eq!(found.unwrap(), bytes);
    }
    assert_eq!(healing.get(&names[0]).unwrap(), sample.blocks[0].1);
    let names_lost = healing.take_lost();
    assert_eq!(names_lost.len(), lost);
    assert!(healing.take_lost().is_empty());

    // Blocks that were stored again are read here, without a request to the replica.
    let access = StoreAccess::Write { holder: "test" };
    let writer = Store::open(broken.world(), Some(&secret()), access, &mut |_| {}).unwrap();
    assert_eq!(healing.heal(&writer, &names_lost).unwrap(), lost as u64);
    assert_eq!(healing.heal(&writer, &names_lost).unwrap(), 0, "once is enough");
    writer.close().unwrap();
    let local = Store::open(broken.world(), Some(&secret()), StoreAccess::Read, &mut |_| {}).unwrap();
    for (found, (name, bytes)) in local.get_batch(&names).into_iter().zip(&sample.blocks) {
        assert_eq!(found.unwrap(), bytes, "{name}");
    }
}

#[test]
fn who_loses_nothing_opens_no_replica() {
    let (sample, _) = replicated();
    let local = Store::open(sample.world(), Some(&secret()), StoreAccess::Read, &mut |_| {}).unwrap();
    let healing = HealingStore::new(Arc::new(local), Box::new(|| panic!("nothing is lost")));
    for (name, bytes) in &sample.blocks {
        assert_eq!(healing.get(name).unwrap(), bytes);
    }
}

#[test]
fn a_store_with_its_replica_keeps_the_contract() {
    let mut id = 20;
    varve_block::contract::check(&mut || {
        id += 1;
        let sample = Sample::new(id);
        let target = shared(MemoryTarget::new());
        sample.replicate(&target).unwrap();
        let access = StoreAccess::Write { holder: "test" };
        let local = Store::open(sample.world(), Some(&secret()), access, &mut |_| {}).unwrap();
        HealingStore::new(Arc::new(local), Box::new(move || vec![Box::new(open_store(&target))]))
    });
}

/// No key is bound to the index setting, so a target can forge it.
#[test]
fn the_index_of_a_replica_is_in_memory_whatever_its_config_says() {
    let (sample, target) = replicated();
    let there = shared(target.clone());
    let file = name("config.toml");
    let text = target.get(&file, 0..target.list("").unwrap().iter().find(|o| o.name == file).unwrap().bytes);
    let text = String::from_utf8(text.unwrap().to_vec()).unwrap();
    let wanted = "index = \"disk\"\nindex_memory = 4194304\nindex_blocks = 68719476736\n";
    let forged = text.replace("index = \"memory\"\n", wanted);
    assert_ne!(forged, text);
    target.set(&file, Some(forged.into()));
    let store = open_store(&there);
    assert_eq!(store.config().index, IndexKind::Memory);
    for (name, bytes) in &sample.blocks {
        assert_eq!(store.get(name).unwrap(), bytes);
    }
    // The config itself is returned unchanged.
    assert_eq!(open_replica(&there).config().unwrap().index, IndexKind::Disk);
}
