//! Small arenas of nights with write-only keys are merged, and their roots folded.

use std::time::Duration;

use varve_archive::{Archive, Collection, SnapshotContent, verify};
use varve_block::{Block, BlockName, BlockStore, BlockType};
use varve_content::Progress;
use varve_content::image::{ImagePart, write_image};
use varve_log::{ArenaId, ArenaMap, ClumpBytes};
use varve_store::{IndexKind, Keyring, NewKey, Role, Secret, Store, StoreConfig};
use varve_upkeep::{AuditShare, ReclaimedBatch};
use varve_world::{InlineWorkers, MemoryStorage, Random, SeededRandom, Storage, Timestamp};
use zeroize::Zeroizing;

use crate::collecting::{options, read};
use crate::live_blocks::{COST, config, open, secret, take_image, world};

/// The length of an arena without blocks.
const STUB_BYTES: u64 = 1024;
const BLOCK_BYTES: usize = 4096;

fn write_only_secret() -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![8; 32]))
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    SeededRandom::new(seed).fill(&mut noise).unwrap();
    noise
}

/// The disk on a night: some blocks that all nights share, and some of its own.
fn image(night: u64) -> Vec<u8> {
    [noise(1, 4 * BLOCK_BYTES), noise(1000 + night, 3 * BLOCK_BYTES), noise(1000 + night / 2, BLOCK_BYTES)]
        .concat()
}

struct Nights {
    storage: MemoryStorage,
    sessions: u64,
}

impl Nights {
    fn new(index: IndexKind) -> Self {
        let storage = MemoryStorage::new();
        let config = StoreConfig {
            index,
            arena_map: ArenaMap::new(2 * ArenaMap::ARENA_BYTES_MIN).unwrap(),
            clump_bytes: ClumpBytes::new(64 << 10).unwrap(),
            ..config(0)
        };
        Store::create(&world(&storage, 1), &config, Some(&secret()), COST).unwrap();
        let keyring = Keyring::of(&world(&storage, 2)).unwrap();
        let by = keyring.unlock(&secret()).unwrap();
        let key = NewKey { secret: &write_only_secret(), cost: COST, label: "", role: Role::WriteOnly };
        keyring.add(&by, &key).unwrap();
        Self { storage, sessions: 10 }
    }

    fn session(&mut self) -> u64 {
        self.sessions += 1;
        self.sessions
    }

    /// Takes a snapshot with the key that cannot read.
    fn take(&mut self, night: u64) {
        let seed = self.session();
        let mut archive = open(&self.storage, seed, &write_only_secret());
        take_image(&mut archive, &night.to_string(), &image(night));
        archive.close().unwrap();
    }

    fn read(&mut self) -> Archive {
        let seed = self.session();
        read(&self.storage, seed)
    }

    fn forget(&mut self, is_forgotten: impl Fn(u64) -> bool) {
        let seed = self.session();
        let mut archive = open(&self.storage, seed, &secret());
        let chosen = archive.snapshots().iter().filter(|one| is_forgotten(one.name.parse().unwrap()));
        let ids: Vec<_> = chosen.map(|snapshot| snapshot.id).collect();
        archive.forget(&ids, Timestamp(-100), Duration::ZERO, "a test").unwrap();
        archive.close().unwrap();
    }

    fn plan(&mut self, batch_bytes: u64) -> Collection {
        let mut options = options();
        options.budget.batch_bytes = batch_bytes;
        Collection::plan(&self.read(), options, &Progress::new()).unwrap()
    }

    fn apply(&mut self, collection: &mut Collection) -> ReclaimedBatch {
        let seed = self.session();
        let mut archive = open(&self.storage, seed, &secret());
        let batch = collection.apply(&mut archive, Timestamp(i64::MAX), &Progress::new()).unwrap();
        assert!(batch.failed.is_empty() && !batch.is_disk_full, "{:?}", batch.failed);
        archive.close().unwrap();
        batch
    }

    /// Merges all small arenas.
    fn merge(&mut self) {
        let mut collection = self.plan(1 << 30);
        while !collection.is_done() {
            self.apply(&mut collection);
        }
    }

    /// Every listed snapshot is whole. Returns their nights.
    fn check(&mut self) -> Vec<u64> {
        let archive = self.read();
        let verified = verify(&archive, Some(AuditShare::ALL), &Progress::new()).unwrap();
        assert!(verified.damage.is_empty() && verified.harm.is_empty(), "{verified:?}");
        read_all(&archive);
        archive.snapshots().iter().map(|snapshot| snapshot.name.parse().unwrap()).collect()
    }

    /// The lengths of all arenas.
    fn arena_bytes(&mut self) -> Vec<u64> {
        let archive = self.read();
        let length = |id: &ArenaId| self.storage.length(&id.file_name()).unwrap();
        archive.store().arenas().unwrap().iter().map(length).collect()
    }
}

/// Every listed snapshot has the contents of its night.
fn read_all(archive: &Archive) {
    for snapshot in archive.snapshots() {
        let SnapshotContent::Image(entry) = &snapshot.content else { unreachable!("only images are taken") };
        let (part, mut bytes) = (ImagePart::whole(entry), Vec::new());
        write_image(archive.store(), &InlineWorkers, &part, &mut bytes, &Progress::new()).unwrap();
        assert!(bytes == image(snapshot.name.parse().unwrap()), "{}", snapshot.name);
    }
}

#[test]
fn small_arenas_of_many_nights_are_merged() {
    for index in [IndexKind::Memory, IndexKind::Disk] {
        let mut nights = Nights::new(index);
        (0..40).for_each(|night| nights.take(night));
        nights.forget(|night| night % 5 == 0);
        // It stays open, and has read nothing yet.
        let reader = nights.read();
        let mut collection = nights.plan(200 << 10);
        let plan = &collection.report().plan;
        assert!(plan.totals.merged_count > 30 && plan.immovable.is_empty(), "{:?}", plan.totals);
        let (mut batch_count, mut next) = (0, 40);
        while !collection.is_done() {
            nights.apply(&mut collection);
            // Between two batches the nights go on.
            nights.take(next);
            nights.check();
            (batch_count, next) = (batch_count + 1, next + 1);
        }
        assert!(batch_count > 2);
        let expected: Vec<u64> = (0..next).filter(|night| *night >= 40 || night % 5 != 0).collect();
        assert_eq!(nights.check(), expected);
        read_all(&reader);

        // The arenas of the first nights have nothing in them, and others share their blocks.
        let arenas = nights.arena_bytes();
        assert!(arenas[..40].iter().all(|bytes| *bytes <= STUB_BYTES), "{arenas:?}");
        // A merge of what came since leaves nothing to merge.
        (next..next + 20).for_each(|night| nights.take(night));
        nights.merge();
        assert_eq!(nights.plan(1 << 30).report().plan.totals.merged_count, 0);
        let archive = nights.read();
        assert_eq!(archive.store().newest_catalog_roots().unwrap().len(), 1);
        drop(archive);
        assert_eq!(nights.check().len(), expected.len() + 20);
        // The next nights store only what is new.
        let before: u64 = nights.arena_bytes().iter().sum();
        nights.take(next);
        let after: u64 = nights.arena_bytes().iter().sum();
        assert!(after - before < 16 << 10, "{} bytes for a night that was stored before", after - before);
    }
}

/// After a crash between the copies and the commit, each block is in two places.
#[test]
fn a_merge_that_was_stopped_goes_on() {
    let mut nights = Nights::new(IndexKind::Memory);
    (0..20).for_each(|night| nights.take(night));
    let mut collection = nights.plan(1 << 30);
    let (seed, progress) = (nights.session(), Progress::new());
    let mut archive = open(&nights.storage, seed, &secret());
    // No arena is begun after this time.
    let begun = collection.apply(&mut archive, Timestamp(i64::MIN), &progress).unwrap();
    assert!(begun.replaced.is_empty() && begun.copied_bytes == 0);
    archive.close().unwrap();
    assert!(!collection.is_done());
    while !collection.is_done() {
        nights.apply(&mut collection);
    }
    assert_eq!(nights.check().len(), 20);
}

#[test]
fn a_few_small_arenas_are_left_alone() {
    let mut nights = Nights::new(IndexKind::Memory);
    (0..5).for_each(|night| nights.take(night));
    let totals = nights.plan(1 << 30).report().plan.totals;
    assert_eq!(totals.merged_count, 0, "{totals:?}");
}

/// The holder of a write-only key stores notes and roots of the catalog beside blocks that a
/// snapshot needs. They count for nothing, and a collection does not change that.
#[test]
fn notes_of_a_key_that_cannot_read_never_count() {
    for merges in [false, true] {
        let mut nights = Nights::new(IndexKind::Memory);
        (0..20).for_each(|night| nights.take(night));
        let seed = nights.session();
        let mut archive = open(&nights.storage, seed, &write_only_secret());
        // A list of barren blocks with every pointer block of the store, in the clump of the
        // snapshot's own structure.
        let pointers = pointers_of(&read(&nights.storage, seed + 1000));
        let mut fingerprints: Vec<u64> = pointers.iter().map(varve_store::note_fingerprint).collect();
        fingerprints.sort_unstable();
        let count = u32::try_from(fingerprints.len()).unwrap();
        let mut note: Vec<u8> = [2, count, 0, 1].iter().flat_map(|field: &u32| field.to_le_bytes()).collect();
        note.extend_from_slice(&[0xff; 16]);
        note.extend(fingerprints.iter().flat_map(|fingerprint| fingerprint.to_le_bytes()));
        archive.store().put(Block { block_type: BlockType::NOTE, bytes: &note }).unwrap();
        take_image(&mut archive, "20", &image(20));
        archive.close().unwrap();

        nights.forget(|night| night == 0);
        let mut options = options();
        options.budget.batch_bytes = 1 << 30;
        options.budget.merge_least = if merges { 2 } else { usize::MAX };
        // Every arena is written anew.
        let mut collection = Collection::plan(&nights.read(), options, &Progress::new()).unwrap();
        assert_eq!(collection.report().plan.totals.merged_count > 0, merges);
        while !collection.is_done() {
            nights.apply(&mut collection);
        }
        let archive = nights.read();
        let store = archive.store();
        for id in store.arenas().unwrap() {
            let is_write_only = store.vault().arena(id).unwrap().header().is_write_only();
            let names = store.names_in_arena(id).unwrap().names;
            let has_forged = names.iter().any(|name| {
                name.block_type == BlockType::NOTE && store.get(name).is_ok_and(|bytes| bytes == note)
            });
            assert!(is_write_only || !has_forged, "arena {id} has the note, and its notes count");
        }
        assert!(store.has_batch(&pointers[..1]).unwrap()[0], "the note counts");
        drop(archive);
        assert_eq!(nights.check().len(), 20);
    }
}

/// The pointer blocks of the newest snapshot.
fn pointers_of(archive: &Archive) -> Vec<BlockName> {
    let mut pointers = Vec::new();
    for id in archive.store().arenas().unwrap() {
        let names = archive.store().names_in_arena(id).unwrap().names;
        pointers.extend(names.into_iter().filter(|name| name.block_type.depth() > 0));
    }
    pointers.sort_unstable();
    pointers.dedup();
    pointers
}
