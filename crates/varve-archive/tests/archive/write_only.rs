//! A machine with a write-only key archives incrementally. Its nights wait for a writer that may
//! read.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use varve_archive::{
    Archive, Catalog, OriginRecord, RepairScope, Snapshot, SnapshotContent, SnapshotId, SnapshotRequest,
    repair, verify,
};
use varve_block::BlockKind;
use varve_content::folder::{FolderOptions, Watch};
use varve_content::{Node, NodeKind, Progress};
use varve_log::{ArenaId, ArenaMap};
use varve_store::{Keyring, NewKey, PassphraseCost, Role, Secret, Store, StoreAccess, StoreConfig};
use varve_upkeep::AuditShare;
use varve_world::{
    FileName, FixedClock, InlineWorkers, MemoryStorage, Random, RealClock, SeededRandom, Storage, Timestamp,
    World,
};
use zeroize::Zeroizing;

const COST: PassphraseCost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };
const WRITER: StoreAccess<'_> = StoreAccess::Write { holder: "a test" };

fn world(storage: &MemoryStorage, seed: u64) -> World {
    // The clock is an hour ahead, so the files of this test do not count as changed just now.
    let now = varve_world::Clock::now(&RealClock).0 + 3_600_000_000_000;
    World {
        storage: Arc::new(storage.clone()),
        clock: Arc::new(FixedClock(Timestamp(now))),
        random: Arc::new(SeededRandom::new(seed)),
        workers: Arc::new(InlineWorkers),
    }
}

fn key(byte: u8) -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![byte; 32]))
}

pub(super) fn open(storage: &MemoryStorage, seed: u64, byte: u8, access: StoreAccess<'_>) -> Archive {
    Archive::open(Store::open(world(storage, seed), Some(&key(byte)), access, &mut |_| {}).unwrap()).unwrap()
}

/// A store with a full key (1) and two write-only keys (2, 3).
pub(super) fn shared() -> MemoryStorage {
    let storage = MemoryStorage::new();
    Store::create(&world(&storage, 1), &StoreConfig::new([5; 16]), Some(&key(1)), COST).unwrap();
    add_keys(&storage);
    storage
}

fn add_keys(storage: &MemoryStorage) {
    let keyring = Keyring::of(&world(storage, 2)).unwrap();
    let by = keyring.unlock(&key(1)).unwrap();
    for byte in [2, 3] {
        keyring
            .add(&by, &NewKey { secret: &key(byte), cost: COST, label: "", role: Role::WriteOnly })
            .unwrap();
    }
}

/// Takes a snapshot, and returns the number of file bytes that were read for it.
fn night(archive: &mut Archive, source: &Path, reread: bool) -> u64 {
    let progress = Progress::new();
    let watch = Watch { progress: &progress, report: &|problem| panic!("{problem:?}") };
    let request =
        SnapshotRequest { name: "home".into(), source: b"home".to_vec(), ..SnapshotRequest::default() };
    let options = FolderOptions { reread, ..FolderOptions::default() };
    archive.take_folder(source, options, request, watch).unwrap();
    progress.snapshot().bytes_read
}

pub(super) fn one_night(storage: &MemoryStorage, seed: u64, byte: u8, source: &Path, reread: bool) -> u64 {
    let mut archive = open(storage, seed, byte, WRITER);
    let read = night(&mut archive, source, reread);
    archive.close().unwrap();
    read
}

fn source() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("deep/er")).unwrap();
    for number in 0..20_u8 {
        fs::write(folder.path().join(format!("deep/er/{number}")), vec![number; 10_000]).unwrap();
    }
    fs::write(folder.path().join("empty"), b"").unwrap();
    folder
}

#[test]
fn unchanged_files_are_not_read_again() {
    let (storage, source) = (shared(), source());
    assert_eq!(one_night(&storage, 10, 2, source.path(), false), 200_000);
    assert_eq!(one_night(&storage, 11, 2, source.path(), false), 0);
    fs::write(source.path().join("deep/er/7"), [77; 500]).unwrap();
    fs::rename(source.path().join("deep/er/8"), source.path().join("moved")).unwrap();
    assert_eq!(one_night(&storage, 12, 2, source.path(), false), 500 + 10_000);
    assert_eq!(one_night(&storage, 13, 2, source.path(), true), 190_500, "as asked");
    assert_eq!(one_night(&storage, 14, 2, source.path(), false), 0);
    // With another machine's key, or without the memory of the last night, all files are read again
    // and nothing is stored twice.
    assert_eq!(one_night(&storage, 15, 3, source.path(), false), 190_500);
    for name in storage.names().into_iter().filter(|name| name.as_str().starts_with("index/own-")) {
        storage.set_contents(&name, b"rubbish".to_vec());
    }
    let mut archive = open(&storage, 16, 2, WRITER);
    assert_eq!(night(&mut archive, source.path(), false), 190_500);
    assert_eq!(archive.snapshots().len(), 1, "it sees what it has taken itself");
    assert!(archive.snapshots()[0].growth.unwrap().new_bytes < 20_000, "folders' lists at most");
    archive.close().unwrap();

    let archive = open(&storage, 20, 1, StoreAccess::Read);
    assert_eq!(archive.snapshots().len(), 7);
    let verified = verify(&archive, Some(AuditShare::ALL), &Progress::new()).unwrap();
    assert!(verified.damage.is_empty() && verified.harm.is_empty(), "{verified:?}");
}

#[test]
fn what_is_remembered_of_a_store_that_lost_an_arena_is_not_believed() {
    let (storage, source) = (shared(), source());
    one_night(&storage, 10, 2, source.path(), false);
    let arena = varve_world::FileName::new("arenas/0000000000.arena").unwrap();
    let contents = storage.contents(&arena).unwrap();
    varve_world::Storage::remove(&storage, &arena).unwrap();
    assert_eq!(one_night(&storage, 11, 2, source.path(), false), 200_000);
    storage.set_contents(&arena, contents);
    drop(open(&storage, 12, 1, StoreAccess::Read));
}

#[test]
fn what_is_remembered_of_an_arena_that_lost_its_end_is_not_believed() {
    let (storage, source) = (shared(), source());
    one_night(&storage, 10, 2, source.path(), false);
    let arena = varve_world::FileName::new("arenas/0000000000.arena").unwrap();
    let contents = storage.contents(&arena).unwrap();
    storage.set_contents(&arena, contents[..contents.len() / 4].to_vec());
    let store = Store::open(world(&storage, 11), Some(&key(1)), WRITER, &mut |_| {}).unwrap();
    repair(&store, &[], RepairScope::All, &Progress::new()).unwrap();
    store.close().unwrap();
    assert_eq!(one_night(&storage, 12, 2, source.path(), false), 200_000);
    assert_eq!(one_night(&storage, 13, 2, source.path(), false), 0, "this night is remembered");
    let archive = open(&storage, 14, 1, StoreAccess::Read);
    let verified = verify(&archive, Some(AuditShare::ALL), &Progress::new()).unwrap();
    assert_eq!(archive.snapshots().len(), 2);
    assert!(verified.damage.is_empty() && verified.harm.is_empty(), "{verified:?}");
}

/// A store of small arenas with a full key (1) and two write-only keys (2, 3).
fn shared_in_small_arenas() -> MemoryStorage {
    let storage = MemoryStorage::new();
    let config = StoreConfig { arena_map: ArenaMap::new(1 << 20).unwrap(), ..StoreConfig::new([5; 16]) };
    Store::create(&world(&storage, 1), &config, Some(&key(1)), COST).unwrap();
    add_keys(&storage);
    storage
}

/// The arenas without a part of the catalog.
fn content_arenas(storage: &MemoryStorage) -> Vec<FileName> {
    let store = Store::open(world(storage, 99), Some(&key(1)), StoreAccess::Read, &mut |_| {}).unwrap();
    let has_catalog = |arena: &ArenaId| {
        let names = store.names_in_arena(*arena).unwrap().names;
        names.iter().any(|name| name.block_type.kind() == BlockKind::Catalog)
    };
    let arenas = store.arenas().unwrap().into_iter().filter(|arena| !has_catalog(arena));
    arenas.map(|arena| arena.file_name()).collect()
}

fn write_random(random: &SeededRandom, file: &Path, bytes: usize) {
    let mut contents = vec![0; bytes];
    random.fill(&mut contents).unwrap();
    fs::write(file, contents).unwrap();
}

#[test]
fn only_the_files_in_an_arena_that_is_gone_are_read_again() {
    let (storage, random) = (shared_in_small_arenas(), SeededRandom::new(1));
    let (own, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for number in 0..16 {
        write_random(&random, &own.path().join(format!("first {number:02}")), 200_000);
        write_random(&random, &others.path().join(format!("{number:02}")), 200_000);
    }
    assert_eq!(one_night(&storage, 10, 2, own.path(), false), 16 * 200_000);
    let of_first: BTreeSet<_> = content_arenas(&storage).into_iter().collect();
    one_night(&storage, 11, 3, others.path(), false);
    let of_others: Vec<_> =
        content_arenas(&storage).into_iter().filter(|arena| !of_first.contains(arena)).collect();
    for number in 0..16 {
        write_random(&random, &own.path().join(format!("second {number:02}")), 100_000);
    }
    assert_eq!(one_night(&storage, 12, 2, own.path(), false), 16 * 100_000);
    let before: BTreeSet<_> = of_first.iter().chain(&of_others).cloned().collect();
    let of_second = content_arenas(&storage).into_iter().find(|arena| !before.contains(arena)).unwrap();

    storage.remove(&of_others[0]).unwrap();
    assert_eq!(one_night(&storage, 13, 2, own.path(), false), 0, "none of its files lies there");
    storage.remove(&of_second).unwrap();
    assert_eq!(one_night(&storage, 14, 2, own.path(), false), 16 * 100_000, "of the second night only");
    assert_eq!(one_night(&storage, 15, 2, own.path(), false), 0);
    storage.remove(of_first.first().unwrap()).unwrap();
    assert_eq!(one_night(&storage, 16, 2, own.path(), false), 16 * 200_000, "of the first night only");
    assert_newest_is_whole(&storage, "after all");
}

/// Checks that everything is there which the newest snapshot leads to.
fn assert_newest_is_whole(storage: &MemoryStorage, when: &str) {
    let archive = open(storage, 98, 1, StoreAccess::Read);
    let newest = archive.snapshots().last().unwrap();
    let verified = verify(&archive, None, &Progress::new()).unwrap();
    let harm: Vec<_> = verified.harm.iter().filter(|harm| harm.snapshot == newest.id).collect();
    assert!(harm.is_empty(), "{when}: {harm:?}");
}

/// Any arena may go, as after its snapshots were collected. A night relies on none that is gone.
#[test]
fn a_night_leads_to_nothing_that_is_gone() {
    for seed in 0..5 {
        let (storage, random) = (shared_in_small_arenas(), SeededRandom::new(seed));
        let draw = |below: u8| {
            let mut byte = [0];
            random.fill(&mut byte).unwrap();
            byte[0] % below
        };
        let sources = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let mut kept_bytes = 0_u64;
        for round in 0..14 {
            let machine = usize::from(draw(2));
            let source = sources[machine].path();
            for _ in 0..draw(8) {
                let name = source.join(format!("{}", draw(24)));
                match draw(5) {
                    0 => drop(fs::remove_file(&name)),
                    // Both machines have some files in common.
                    1 => write_random(&SeededRandom::new(draw(4).into()), &name, 150_000),
                    _ => write_random(&random, &name, usize::from(draw(200)) * 1500),
                }
            }
            let all: u64 =
                fs::read_dir(source).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
            let key = u8::try_from(machine).unwrap() + 2;
            kept_bytes += all - one_night(&storage, 100 + round, key, source, draw(9) == 0);
            assert_newest_is_whole(&storage, &format!("seed {seed}, round {round}"));
            let arenas = content_arenas(&storage);
            if draw(2) == 0 && !arenas.is_empty() {
                storage.remove(&arenas[usize::from(draw(200)) % arenas.len()]).unwrap();
            }
        }
        assert!(kept_bytes > 2_000_000, "the nights do remember: {kept_bytes}");
    }
}

#[test]
fn what_only_a_saved_index_lists_is_given_up_by_a_repair() {
    for saves_index in [false, true] {
        let (storage, source) = (shared(), source());
        one_night(&storage, 10, 1, source.path(), false);
        one_night(&storage, 11, 2, source.path(), false);
        let archive = open(&storage, 12, 1, WRITER);
        archive.store().save_checkpoint().unwrap();
        archive.close().unwrap();
        for arena in storage.names().into_iter().filter(|name| name.as_str().starts_with("arenas/")) {
            varve_world::Storage::remove(&storage, &arena).unwrap();
        }
        let open_store =
            |seed| Store::open(world(&storage, seed), Some(&key(1)), WRITER, &mut |_| {}).unwrap();
        assert!(Archive::open(open_store(13)).is_err(), "what is listed is gone");
        let store = open_store(14);
        let report = repair(&store, &[], RepairScope::All, &Progress::new()).unwrap();
        assert!(report.plan.catalog_was_lost && report.plan.end_was_lost);
        if saves_index {
            store.save_checkpoint().unwrap();
        }
        store.close().unwrap();
        one_night(&storage, 15, 1, source.path(), false);
        assert_eq!(open(&storage, 16, 1, StoreAccess::Read).snapshots().len(), 1);
    }
}

#[test]
fn the_nights_of_several_machines_and_of_whoever_may_read_make_one_list() {
    let (storage, source) = (shared(), source());
    for (seed, byte) in (30..).zip([2, 1, 3, 2, 2, 1, 3]) {
        one_night(&storage, seed, byte, source.path(), false);
    }
    // Two nights whose process is killed right after the snapshot.
    for seed in [50, 51] {
        let mut archive = open(&storage, seed, 2, WRITER);
        night(&mut archive, source.path(), false);
        drop(archive);
    }
    one_night(&storage, 52, 3, source.path(), false);
    let ids = |byte| -> Vec<_> {
        open(&storage, 60, byte, StoreAccess::Read).snapshots().iter().map(|one| one.id).collect()
    };
    let all = ids(1);
    assert_eq!(all.len(), 10);
    assert_eq!(ids(2), [], "its own nights are not for it to see");
    one_night(&storage, 61, 1, source.path(), false);
    assert_eq!(ids(1)[..10], all);
    let archive = open(&storage, 62, 1, StoreAccess::Read);
    let verified = verify(&archive, Some(AuditShare::ALL), &Progress::new()).unwrap();
    assert!(verified.damage.is_empty() && verified.harm.is_empty(), "{verified:?}");
}

/// Adds a snapshot of an empty folder with this id, at a time in minutes, and with the origin that
/// `claim` returns for it. Returns it as the session lists it.
fn added(
    storage: &MemoryStorage,
    (seed, byte): (u64, u8),
    (id, minute): (u8, i64),
    claim: impl FnOnce(&Snapshot) -> Option<OriginRecord>,
) {
    let store = Store::open(world(storage, seed), Some(&key(byte)), WRITER, &mut |_| {}).unwrap();
    let root = Node::new(Vec::new(), NodeKind::Folder);
    let content = SnapshotContent::Folder(Box::new(root));
    let time = Timestamp(minute * 60_000_000_000);
    let mut snapshot = Snapshot::new(SnapshotId([id; 16]), "home".into(), time, content);
    snapshot.origin = claim(&snapshot);
    let mut catalog = match byte {
        1 => Catalog::load_of(&store, &store).unwrap(),
        _ => Catalog::unread(&store.newest_catalogs()),
    };
    catalog.add(&store, snapshot).unwrap();
    store.close().unwrap();
}

/// The origins as a reader sees them: the number of the snapshot, the role, whether the key is
/// known, and whether it is backdated.
fn origins(storage: &MemoryStorage, seed: u64) -> Vec<(u8, String, bool, bool)> {
    let archive = open(storage, seed, 1, StoreAccess::Read);
    let seen = archive.snapshots().iter().map(|one| {
        let (role, key) =
            one.added_with().map_or(Default::default(), |origin| (origin.role.clone(), origin.key.clone()));
        (one.id.0[0], role, !key.is_empty(), one.is_backdated())
    });
    seen.collect()
}

#[test]
fn nobody_claims_the_origin_of_another_key() {
    let (storage, source) = (shared(), source());
    one_night(&storage, 10, 1, source.path(), false);
    one_night(&storage, 11, 2, source.path(), false);
    let known = open(&storage, 12, 1, StoreAccess::Read).snapshots().to_vec();
    let roles: Vec<_> = known.iter().map(|one| one.added_with().unwrap().role.clone()).collect();
    assert_eq!(roles, ["full", "write-only"]);
    // A holder of another write-only key who somehow got the records of others puts them into
    // snapshots of his own.
    for (number, one) in (20_u8..).zip(&known) {
        added(&storage, (number.into(), 3), (number, 1), |_| one.origin.clone());
    }
    added(&storage, (22, 3), (22, 2), |_| None);
    let early = |number| (number, "write-only".to_owned(), false, false);
    let seen = origins(&storage, 23);
    assert_eq!(seen[2..], [early(20), early(21), early(22)]);
    assert!(seen[..2].iter().all(|(_, _, is_known, _)| *is_known));
    // The next final root states what is proven, and a claim in such a root is no more than one.
    one_night(&storage, 24, 1, source.path(), false);
    assert_eq!(origins(&storage, 25)[..5], seen);
    added(&storage, (26, 1), (26, 3), |_| known[1].origin.clone());
    let seen = origins(&storage, 27);
    assert_eq!(seen[6], (26, String::new(), false, false), "an unknown key");
}

#[test]
fn a_backdated_snapshot_stays_one() {
    let (storage, source) = (shared(), source());
    let ids = |storage: &MemoryStorage, seed| {
        let all = origins(storage, seed).into_iter();
        all.filter(|(.., is_backdated)| *is_backdated).map(|(id, ..)| id).collect::<Vec<_>>()
    };
    let add = |seed: u64, byte: u8, id: u8, minute: i64| {
        let mut archive = open(&storage, seed, byte, WRITER);
        let watch = Watch { progress: &Progress::new(), report: &|problem| panic!("{problem:?}") };
        let request = SnapshotRequest {
            id: Some(SnapshotId([id; 16])),
            time: Some(Timestamp(minute * 60_000_000_000)),
            name: "home".into(),
            ..SnapshotRequest::default()
        };
        archive.take_folder(source.path(), FolderOptions::default(), request, watch).unwrap();
        archive.close().unwrap();
    };
    let future = i64::MAX / 60_000_000_000 - 1;
    for (seed, (byte, id, minute)) in (30..).zip([
        (1, 1, 100),
        (2, 2, 10),
        (2, 3, 20),
        (2, 4, future),
        (2, 5, 30),
        (2, 6, 15),
        (3, 7, 12),
        (1, 8, 5),
    ]) {
        add(seed, byte, id, minute);
    }
    assert_eq!(ids(&storage, 40), [6], "not for a later one of another key, of a full key, or after now");
    // The later ones are forgotten for ever, in a root that states which one was backdated.
    let mut archive = open(&storage, 41, 1, WRITER);
    let later: Vec<_> = [3, 4, 5].map(|id| SnapshotId([id; 16])).into();
    archive.forget(&later, Timestamp(1), std::time::Duration::ZERO, "").unwrap();
    archive.close().unwrap();
    assert_eq!(ids(&storage, 42), [6]);
    let mut archive = open(&storage, 43, 1, WRITER);
    let all: Vec<_> = archive.snapshots().iter().map(|one| one.id).collect();
    archive.forget(&all, Timestamp(2), std::time::Duration::from_secs(60), "").unwrap();
    archive.undo_forget(&all).unwrap();
    archive.close().unwrap();
    assert_eq!(ids(&storage, 44), [6], "nothing becomes backdated by being forgotten and brought back");
}
