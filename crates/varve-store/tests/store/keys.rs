//! The keys of a store: several of them, each with its role. They are made and removed in an order
//! that no crash can harm.

use std::sync::Arc;

use varve_block::{Block, BlockName, BlockStore, BlockType, GetError};
use varve_log::ArenaId;
use varve_store::{
    KeyError, Keyring, NewKey, NotPermitted, OpenStoreError, PassphraseCost, Permission, Role, Secret, Store,
    StoreAccess, StoreConfig,
};
use varve_upkeep::{BatchLimits, Checker, Reclaimer};
use varve_world::{
    FileName, FixedClock, InlineWorkers, MemoryStorage, Random, SeededRandom, Storage, Timestamp, World,
};
use zeroize::Zeroizing;

const CHEAP: PassphraseCost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };
const WRITER: StoreAccess<'_> = StoreAccess::Write { holder: "a test" };

fn world(storage: &MemoryStorage, seed: u64) -> World {
    World {
        storage: Arc::new(storage.clone()),
        clock: Arc::new(FixedClock(Timestamp(1_700_000_000_000_000_000))),
        random: Arc::new(SeededRandom::new(seed)),
        workers: Arc::new(InlineWorkers),
    }
}

fn passphrase(text: &str) -> Secret {
    Secret::Passphrase(Zeroizing::new(text.into()))
}

fn key_file(byte: u8) -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![byte; 40]))
}

fn created(secret: &Secret) -> MemoryStorage {
    let storage = MemoryStorage::new();
    let mut config = StoreConfig::new([5; 16]);
    config.arena_map = varve_log::ArenaMap::new(1 << 20).unwrap();
    Store::create(&world(&storage, 1), &config, Some(secret), CHEAP).unwrap();
    storage
}

fn keyring(storage: &MemoryStorage, seed: u64) -> Keyring {
    Keyring::of(&world(storage, seed)).unwrap()
}

fn add(
    storage: &MemoryStorage,
    seed: u64,
    by: &Secret,
    secret: &Secret,
    role: Role,
) -> Result<String, KeyError> {
    let keyring = keyring(storage, seed);
    let by = keyring.unlock(by)?;
    let entry = keyring.add(&by, &NewKey { secret, cost: CHEAP, label: "a label", role })?;
    Ok(entry.id)
}

fn open(
    storage: &MemoryStorage,
    seed: u64,
    secret: &Secret,
    access: StoreAccess<'_>,
) -> Result<Store, OpenStoreError> {
    Store::open(world(storage, seed), Some(secret), access, &mut |_| {})
}

fn put(store: &Store, block_type: BlockType, bytes: &[u8]) -> BlockName {
    BlockName { score: store.put(Block { block_type, bytes }).unwrap(), block_type }
}

fn file_of(id: &str) -> FileName {
    FileName::new(&format!("keys/{id}.toml")).unwrap()
}

#[test]
fn every_key_opens_and_what_is_stored_stays_as_it_is() {
    let first = passphrase("correct horse");
    let storage = created(&first);
    let store = open(&storage, 2, &first, WRITER).unwrap();
    let name = put(&store, BlockType::DATA, b"a block");
    store.close().unwrap();
    let arena = FileName::new("arenas/0000000000.arena").unwrap();
    let before = storage.contents(&arena);
    add(&storage, 3, &first, &passphrase("another"), Role::Full).unwrap();
    add(&storage, 4, &passphrase("another"), &key_file(1), Role::Full).unwrap();
    for secret in [&first, &passphrase("another"), &key_file(1)] {
        let store = open(&storage, 5, secret, StoreAccess::Read).unwrap();
        assert_eq!(store.get(&name).unwrap(), b"a block".as_slice());
        assert_eq!(store.role(), Role::Full);
    }
    assert_eq!(storage.contents(&arena), before);
    let (entries, damaged) = keyring(&storage, 6).list().unwrap();
    assert_eq!((entries.len(), damaged.len()), (3, 0));
    assert!(entries.iter().all(|entry| entry.created == Some(1_700_000_000)));
    assert_eq!(entries.iter().filter(|entry| entry.passphrase.is_none()).count(), 1);
}

#[test]
fn the_wrong_key_is_told_at_once() {
    let storage = created(&passphrase("correct horse"));
    let complaint =
        |storage: &MemoryStorage, secret: &Secret| keyring(storage, 2).unlock(secret).map(drop).unwrap_err();
    assert!(matches!(complaint(&storage, &passphrase("x")), KeyError::Wrong { what: "passphrase", .. }));
    assert!(matches!(complaint(&storage, &key_file(1)), KeyError::NoSuchKind { what: "key file" }));
    let id = keyring(&storage, 2).list().unwrap().0[0].id.clone();
    let good = storage.contents(&file_of(&id)).unwrap();
    // Any damage is reported as damage, not as a wrong passphrase.
    for place in 0..good.len() - 1 {
        let mut bad = good.clone();
        bad[place] ^= 1;
        storage.set_contents(&file_of(&id), bad);
        match keyring(&storage, 2).unlock(&passphrase("correct horse")) {
            Err(KeyError::Malformed { file }) => assert_eq!(file, file_of(&id)),
            other => panic!("byte {place}: {:?}", other.map(|key| key.entry)),
        }
    }
    storage.set_contents(&file_of(&id), good);
    storage.set_contents(&file_of("zz"), b"rubbish".to_vec());
    let wrong = complaint(&storage, &passphrase("x")).to_string();
    assert!(wrong.contains("keys/zz.toml could not be tried"), "{wrong}");
    assert!(keyring(&storage, 2).unlock(&passphrase("correct horse")).is_ok());
}

#[test]
fn nothing_in_a_key_file_can_be_changed_unnoticed() {
    let storage = created(&passphrase("correct horse"));
    add(&storage, 3, &passphrase("correct horse"), &key_file(1), Role::WriteOnly).unwrap();
    let entry = keyring(&storage, 2)
        .list()
        .unwrap()
        .0
        .into_iter()
        .find(|entry| entry.role == Role::WriteOnly)
        .unwrap();
    let good = String::from_utf8(storage.contents(&file_of(&entry.id)).unwrap()).unwrap();
    for (from, to) in [
        ("write-only", "append-only"),
        ("write-only", "full"),
        ("a label", "b label"),
        ("created = 1700000000", "created = 1700000001"),
    ] {
        // The check fits the changed file, as a forger would write it.
        let changed = good.replace(from, to);
        let without: String = changed
            .lines()
            .filter(|line| !line.starts_with("check"))
            .fold(String::new(), |text, line| text + line + "\n");
        storage.set_contents(&file_of(&entry.id), changed.into_bytes());
        assert!(keyring(&storage, 2).unlock(&key_file(1)).is_err(), "{from}");
        storage.set_contents(&file_of(&entry.id), without.into_bytes());
        assert!(keyring(&storage, 2).unlock(&key_file(1)).is_err(), "{from}");
    }
    // Another store's config, or another name for the file.
    storage.set_contents(&file_of("0123456789abcdef"), good.clone().into_bytes());
    storage.set_contents(&file_of(&entry.id), Vec::new());
    assert!(keyring(&storage, 2).unlock(&key_file(1)).is_err());
    storage.set_contents(&file_of(&entry.id), good.into_bytes());
    assert_eq!(keyring(&storage, 2).unlock(&key_file(1)).unwrap().entry, entry);
    let config = FileName::new("config.toml").unwrap();
    let text = String::from_utf8(storage.contents(&config).unwrap()).unwrap();
    storage.set_contents(&config, text.replace("blake3", "sha1").into_bytes());
    assert!(matches!(keyring(&storage, 2).unlock(&key_file(1)), Err(KeyError::Wrong { .. })));
}

#[test]
fn a_key_that_cannot_be_read_keeps_no_other_from_opening() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::real(folder.path());
    let config = StoreConfig::new([1; 16]);
    Store::create(&world, &config, Some(&key_file(1)), PassphraseCost::default()).unwrap();
    std::os::unix::fs::symlink("/nonexistent", folder.path().join("keys/00000000000000aa.toml")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(folder.path().join("keys/00000000000000bb.toml"));
    assert!(Store::open(world.clone(), Some(&key_file(1)), StoreAccess::Read, &mut |_| {}).is_ok());
    let wrong = Store::open(world, Some(&key_file(2)), StoreAccess::Read, &mut |_| {}).map(drop).unwrap_err();
    assert!(varve_block::with_causes(&wrong).contains("00000000000000bb.toml"), "{wrong:?}");
    drop(socket.unwrap());
}

#[test]
fn hostile_key_files_cost_nothing() {
    let storage = created(&passphrase("correct horse"));
    let id = keyring(&storage, 2).list().unwrap().0[0].id.clone();
    let good = String::from_utf8(storage.contents(&file_of(&id)).unwrap()).unwrap();
    // Early files have no check that would find this.
    let early: String = good
        .lines()
        .filter(|line| !["id", "role", "created", "label", "check"].iter().any(|key| line.starts_with(key)))
        .fold(String::new(), |text, line| text + line + "\n");
    for (from, to) in [
        ("memory_kib = 64", "memory_kib = 4294967295"),
        ("passes = 1", "passes = 4000000000"),
        ("lanes = 1", "lanes = 65"),
        ("lanes = 1", "lanes = 0"),
    ] {
        storage.set_contents(&file_of(&id), early.replace(from, to).into_bytes());
        assert!(keyring(&storage, 2).unlock(&passphrase("correct horse")).is_err());
    }
    // The most expensive key allowed takes half an hour. A cheaper key that fits is tried before
    // it.
    let dear = early.replace("memory_kib = 64", "memory_kib = 4194304").replace("passes = 1", "passes = 64");
    storage.set_contents(&file_of(&id), good.clone().into_bytes());
    storage.set_contents(&file_of("0000000000000000"), dear.into_bytes());
    assert!(open(&storage, 2, &passphrase("correct horse"), StoreAccess::Read).is_ok());
    storage.remove(&file_of("0000000000000000")).unwrap();
    for length in 0..good.len() - 1 {
        storage.set_contents(&file_of(&id), good.as_bytes()[..length].to_vec());
        assert!(keyring(&storage, 2).unlock(&passphrase("correct horse")).is_err(), "{length}");
    }
    storage.set_contents(&file_of(&id), vec![b'#'; 1 << 20]);
    assert!(matches!(keyring(&storage, 2).unlock(&key_file(1)), Err(KeyError::Malformed { .. })));
}

#[test]
fn weak_secrets_and_odd_labels_are_refused() {
    let first = key_file(1);
    let storage = created(&first);
    for secret in [passphrase(""), Secret::KeyFile(Zeroizing::new(vec![1; 31]))] {
        assert!(matches!(add(&storage, 2, &first, &secret, Role::Full), Err(KeyError::TooShort { .. })));
        let made =
            Store::create(&world(&MemoryStorage::new(), 1), &StoreConfig::new([1; 16]), Some(&secret), CHEAP);
        assert!(made.is_err());
    }
    assert!(matches!(
        add(&storage, 2, &first, &key_file(1), Role::WriteOnly),
        Err(KeyError::Duplicate { .. })
    ));
    let keyring = keyring(&storage, 2);
    let by = keyring.unlock(&first).unwrap();
    for label in ["two\nlines", &"x".repeat(201)] {
        let new = NewKey { secret: &key_file(2), cost: CHEAP, label, role: Role::Full };
        assert!(matches!(keyring.add(&by, &new), Err(KeyError::Label)));
    }
    let mean = PassphraseCost { memory_kib: u32::MAX, ..CHEAP };
    let new = NewKey { secret: &passphrase("x"), cost: mean, label: "", role: Role::Full };
    assert!(matches!(keyring.add(&by, &new), Err(KeyError::Cost)));
    assert_eq!(keyring.list().unwrap().0.len(), 1);
}

#[test]
fn the_last_key_that_opens_everything_stays() {
    let first = passphrase("correct horse");
    let storage = created(&first);
    let id = keyring(&storage, 2).list().unwrap().0[0].id.clone();
    add(&storage, 3, &first, &key_file(2), Role::AppendOnly).unwrap();
    add(&storage, 4, &first, &key_file(3), Role::WriteOnly).unwrap();
    let keyring = keyring(&storage, 5);
    let by = keyring.unlock(&first).unwrap();
    assert!(matches!(keyring.remove(&by, &id), Err(KeyError::Last { .. })));
    assert!(matches!(keyring.remove(&by, "nothing"), Err(KeyError::NoSuchKey { .. })));
    assert!(matches!(keyring.remove(&by, ""), Err(KeyError::NoSuchKey { .. })));
    let other = add(&storage, 6, &first, &key_file(4), Role::Full).unwrap();
    assert_eq!(keyring.remove(&by, &id[..6]).unwrap(), id);
    assert!(matches!(keyring.unlock(&first), Err(KeyError::NoSuchKind { .. })));
    let by = keyring.unlock(&key_file(4)).unwrap();
    assert!(matches!(keyring.remove(&by, &other), Err(KeyError::Last { .. })));
    // A damaged key file can be removed, and does not count.
    storage.set_contents(&file_of("0000"), b"rubbish".to_vec());
    assert!(matches!(keyring.remove(&by, &other), Err(KeyError::Last { .. })));
    assert_eq!(keyring.remove(&by, "0000").unwrap(), "0000");
}

#[test]
fn a_passphrase_is_changed_and_the_new_one_is_there_before_the_old_one_goes() {
    let (old, new) = (passphrase("old"), passphrase("new"));
    let storage = created(&old);
    let keyring = keyring(&storage, 2);
    let by = keyring.unlock(&old).unwrap();
    let entry = keyring.change(&by, &new, CHEAP).unwrap();
    assert!(keyring.unlock(&old).is_err());
    assert_eq!(keyring.unlock(&new).unwrap().entry, entry);
    assert_eq!(keyring.list().unwrap().0.len(), 1);
    // On a full disk the old key stays as it was.
    storage.set_bytes_max(Some(10));
    let by = keyring.unlock(&new).unwrap();
    assert!(matches!(keyring.change(&by, &passphrase("third"), CHEAP), Err(KeyError::Storage(_))));
    assert!(keyring.unlock(&new).is_ok());
}

#[test]
fn only_a_full_key_manages_keys() {
    let first = key_file(1);
    let storage = created(&first);
    add(&storage, 2, &first, &key_file(2), Role::AppendOnly).unwrap();
    add(&storage, 3, &first, &key_file(3), Role::WriteOnly).unwrap();
    let refused = |error: KeyError| {
        matches!(error, KeyError::NotPermitted(NotPermitted { permission: Permission::ManageKeys, .. }))
    };
    for secret in [key_file(2), key_file(3)] {
        assert!(refused(add(&storage, 4, &secret, &key_file(9), Role::Full).unwrap_err()));
        let keyring = keyring(&storage, 5);
        let by = keyring.unlock(&secret).unwrap();
        assert!(refused(keyring.export(&by).map(drop).unwrap_err()));
        assert!(refused(keyring.remove(&by, "a").unwrap_err()));
        assert!(refused(keyring.change(&by, &key_file(9), CHEAP).unwrap_err()));
    }
    assert_eq!(keyring(&storage, 6).list().unwrap().0.len(), 3);
}

#[test]
fn paper_opens_what_every_other_key_is_lost_for() {
    let storage = created(&passphrase("forgotten"));
    let keyring = keyring(&storage, 2);
    let by = keyring.unlock(&passphrase("forgotten")).unwrap();
    let paper = keyring.export(&by).unwrap().lines().join("\n");
    let by = keyring.unlock_paper(&paper).unwrap();
    keyring.add(&by, &NewKey { secret: &key_file(1), cost: CHEAP, label: "", role: Role::Full }).unwrap();
    let store = open(&storage, 3, &key_file(1), WRITER).unwrap();
    let name = put(&store, BlockType::DATA, b"a block");
    store.close().unwrap();
    let store = open(&storage, 4, &passphrase("forgotten"), StoreAccess::Read).unwrap();
    assert_eq!(store.get(&name).unwrap(), b"a block".as_slice());
}

#[test]
fn an_append_only_key_reads_and_adds() {
    let first = key_file(1);
    let storage = created(&first);
    add(&storage, 2, &first, &key_file(2), Role::AppendOnly).unwrap();
    let store = open(&storage, 3, &first, WRITER).unwrap();
    let old = put(&store, BlockType::DATA, b"old");
    store.close().unwrap();
    let store = open(&storage, 4, &key_file(2), WRITER).unwrap();
    assert_eq!(store.role(), Role::AppendOnly);
    assert_eq!(store.get(&old).unwrap(), b"old".as_slice());
    let new = put(&store, BlockType::DATA, b"new");
    assert!(store.role().require(Permission::Destroy).is_err());
    store.close().unwrap();
    assert_eq!(open(&storage, 5, &first, StoreAccess::Read).unwrap().get(&new).unwrap(), b"new".as_slice());
}

/// A store with an old block in it, a full key (1) and a write-only key (2).
fn shared() -> (MemoryStorage, BlockName) {
    let storage = created(&key_file(1));
    add(&storage, 2, &key_file(1), &key_file(2), Role::WriteOnly).unwrap();
    let store = open(&storage, 3, &key_file(1), WRITER).unwrap();
    let old = put(&store, BlockType::DATA, b"written by somebody who may read");
    store.close().unwrap();
    (storage, old)
}

fn refuses_to_read(store: &Store, name: &BlockName) {
    match store.get(name) {
        Err(GetError::Failed { source, .. }) => assert!(source.is::<NotPermitted>(), "{source}"),
        other => panic!("{other:?}"),
    }
}

fn checks_well(store: &Store, data: bool) {
    assert!(Checker::of(store).check_order().unwrap().is_empty(), "{:?}", Checker::of(store).check_order());
    for id in store.arenas().unwrap() {
        let check = Checker::of(store).check_arena(id, data).unwrap();
        assert!(check.damage.is_empty(), "{:?}", check.damage);
    }
}

#[test]
fn a_write_only_key_adds_knows_duplicates_and_reads_nothing() {
    let (storage, old) = shared();
    let mut names = vec![old];
    for night in 0..3_u8 {
        let store = open(&storage, 10 + u64::from(night), &key_file(2), WRITER).unwrap();
        assert_eq!(store.role(), Role::WriteOnly);
        let again = put(&store, BlockType::DATA, b"written by somebody who may read");
        assert_eq!(again, old);
        assert_eq!(store.session_growth().0, 0, "a duplicate is known by its name");
        names.push(put(&store, BlockType::DATA, &[night; 5000]));
        for name in &names {
            refuses_to_read(&store, name);
        }
        assert!(store.has_batch(&names).unwrap().into_iter().all(|there| there));
        store.sync().unwrap();
        refuses_to_read(&store, names.last().unwrap());
        store.close().unwrap();
        let reader = open(&storage, 20, &key_file(2), StoreAccess::Read).unwrap();
        names.iter().for_each(|name| refuses_to_read(&reader, name));
        checks_well(&reader, false);
        assert!(Checker::of(&reader).check_arena(varve_log::ArenaId(0), true).is_err(), "that needs to read");
    }
    let store = open(&storage, 30, &key_file(1), WRITER).unwrap();
    assert_eq!(store.arenas().unwrap().len(), 4, "one for each session");
    for (name, night) in names[1..].iter().zip(0..) {
        assert_eq!(store.get(name).unwrap(), [night; 5000].as_slice());
    }
    checks_well(&store, true);
    put(&store, BlockType::DATA, b"and on");
    store.close().unwrap();
    checks_well(&open(&storage, 31, &key_file(1), StoreAccess::Read).unwrap(), true);
}

#[test]
fn no_key_within_reach_of_a_write_only_holder_opens_a_clump() {
    let (storage, _) = shared();
    let store = open(&storage, 4, &key_file(2), WRITER).unwrap();
    put(&store, BlockType::DATA, b"its own night, which it must not read either");
    store.close().unwrap();
    // All keys derived from the secret in its slot and from the header of an arena.
    let handed = handed_to_writer(&storage);
    let mut reachable: Vec<[u8; 32]> = handed.as_chunks::<32>().0.to_vec();
    let contexts = [
        "read",
        "names",
        "plain",
        "score",
        "digest",
        "seal",
        "directory",
        "wrap",
        "open",
        "session",
        "own",
        "key file",
    ];
    for _ in 0..2 {
        for key in reachable.clone() {
            reachable.extend(contexts.map(|context| blake3::derive_key(&format!("varve 1 {context}"), &key)));
        }
    }
    for arena in 0..2 {
        let file = storage.contents(&FileName::new(&format!("arenas/{arena:010}.arena")).unwrap()).unwrap();
        let uid = &file[48..64];
        let mut keys = reachable.clone();
        for key in &reachable {
            for context in ["wrap", "directory"] {
                keys.push(blake3::derive_key(&format!("varve 1 {context}"), &[&key[..], uid].concat()));
            }
        }
        let header = &file[512..576];
        assert_eq!(&header[..4], b"clmp");
        let body_bytes = u32::from_le_bytes(header[4..8].try_into().unwrap()) as usize;
        let sealed = [&file[576..576 + body_bytes], &header[40..56]].concat();
        for key in &keys {
            for key in [*key, blake3::derive_key("varve 1 session", &[&key[..], &header[16..32]].concat())] {
                // Its wrapping has nonce 0, like the first record of a session.
                assert_eq!(&header[8..16], &[0; 8]);
                let associated = [&header[..40], uid].concat();
                assert!(varve_log::unwrap_secret(&key, &associated, &sealed).is_err());
                for length in [48, 80] {
                    assert!(varve_log::unwrap_secret(&key, &file[..72], &file[72..72 + length]).is_err());
                }
            }
        }
    }
}

/// The secret in the slot of the write-only key, unwrapped as its holder would do it.
fn handed_to_writer(storage: &MemoryStorage) -> Vec<u8> {
    let entry = keyring(storage, 6)
        .list()
        .unwrap()
        .0
        .into_iter()
        .find(|entry| entry.role == Role::WriteOnly)
        .unwrap();
    let text = String::from_utf8(storage.contents(&file_of(&entry.id)).unwrap()).unwrap();
    let table: toml::Table = text.parse().unwrap();
    let hex = |name: &str| varve_block::from_hex(table[name].as_str().unwrap()).unwrap();
    let key = blake3::derive_key("varve 1 key file", &[&hex("salt")[..], &[2; 40]].concat());
    let config = FileName::new("config.toml").unwrap();
    let config =
        StoreConfig::from_text(&String::from_utf8(storage.contents(&config).unwrap()).unwrap()).unwrap();
    let bound = format!(
        "varve key 1\nid = {}\nkind = key-file\nrole = write-only\ncreated = 1700000000\nlabel = a label\n",
        entry.id
    );
    let associated = [&config.binding()[..], bound.as_bytes()].concat();
    let keys = varve_log::unwrap_secret(&key, &associated, &hex("wrapped")).unwrap().to_vec();
    assert_eq!(keys.len(), varve_log::WRITER_KEYS_BYTES);
    keys
}

#[test]
fn crashes_of_a_writer_who_cannot_read_lose_nothing_that_was_synced() {
    let (storage, old) = shared();
    let (mut synced, mut roots) = (vec![old], Vec::new());
    // Several nights, each killed after its sync, some with unsynced blocks.
    for night in 0..7_u8 {
        let store = open(&storage, 40 + u64::from(night), &key_file(2), WRITER).unwrap();
        synced.push(put(&store, BlockType::DATA, &[night; 3000]));
        store.sync().unwrap();
        roots.push(put(&store, BlockType::CATALOG, &[night; 30]));
        store.sync().unwrap();
        synced.extend(roots.last());
        if night % 2 == 0 {
            put(&store, BlockType::DATA, &[100 + night; 3000]);
        }
        drop(store);
        let reader = open(&storage, 60, &key_file(1), StoreAccess::Read).unwrap();
        assert!(synced.iter().all(|name| reader.get(name).is_ok()), "night {night}");
    }
    let next = open(&storage, 70, &key_file(2), WRITER).unwrap();
    assert_eq!(next.newest_catalogs().first(), roots.last(), "the newest root is offered, though not proven");
    assert_eq!(next.arenas().unwrap().len(), 8, "nothing was removed");
    next.close().unwrap();
    let store = open(&storage, 71, &key_file(1), WRITER).unwrap();
    assert!(synced.iter().all(|name| store.get(name).is_ok()));
    let new = put(&store, BlockType::DATA, b"what comes after");
    store.close().unwrap();
    let reader = open(&storage, 72, &key_file(1), StoreAccess::Read).unwrap();
    assert!(synced.iter().chain([&new]).all(|name| reader.get(name).is_ok()));
    checks_well(&reader, true);
    // All arenas but the last have their seals now, and the next writers know these.
    let store = open(&storage, 73, &key_file(2), WRITER).unwrap();
    store.close().unwrap();
    checks_well(&open(&storage, 74, &key_file(1), StoreAccess::Read).unwrap(), true);
}

#[test]
fn a_power_cut_that_keeps_a_page_and_loses_its_clump_harms_no_later_night() {
    let (storage, _) = shared();
    let store = open(&storage, 4, &key_file(2), WRITER).unwrap();
    let mut second = vec![0; 3000];
    SeededRandom::new(2).fill(&mut second).unwrap();
    let kept = put(&store, BlockType::DATA, &[1; 3000]);
    store.sync().unwrap();
    let lost = put(&store, BlockType::DATA, &second);
    store.sync().unwrap();
    drop(store);
    // The second clump was not durable after all, as if the sync had never returned.
    let arena = FileName::new("arenas/0000000001.arena").unwrap();
    let mut file = storage.contents(&arena).unwrap();
    let starts: Vec<_> =
        (512..file.len()).step_by(128).filter(|place| file[*place..].starts_with(b"clmp")).collect();
    let sector = (starts[1] + 64).next_multiple_of(512);
    file[sector..sector + 512].fill(0);
    storage.set_contents(&arena, file);
    let store = open(&storage, 5, &key_file(2), WRITER).unwrap();
    assert_eq!(
        store.has_batch(&[kept, lost]).unwrap(),
        [true, false],
        "nothing is built on what is not proven"
    );
    assert_eq!(put(&store, BlockType::DATA, &second), lost);
    store.close().unwrap();
    let store = open(&storage, 6, &key_file(1), WRITER).unwrap();
    assert_eq!(store.get(&kept).unwrap(), [1; 3000].as_slice());
    assert_eq!(store.get(&lost).unwrap(), second.as_slice(), "stored again by the next night");
    store.close().unwrap();
    checks_well(&open(&storage, 7, &key_file(1), StoreAccess::Read).unwrap(), true);
}

/// The block that the page of a writer who may not read names, though other bytes are there.
const TRUTH: &[u8] = b"what will come";

/// A writer who may not read claims, in arena 1, to have stored [`TRUTH`]. Returns also the names
/// of a block that an earlier writer stored, and of `TRUTH`.
fn lied_to() -> (MemoryStorage, BlockName, BlockName) {
    use varve_log::{Appender, ArenaId, ClumpBytes, ClumpDraft, Log, LogConfig, LogKeys, NamedBlock, Seals};
    let (storage, old) = shared();
    let keys = LogKeys::from_names_and_write(handed_to_writer(&storage).first_chunk().unwrap());
    let map = varve_log::ArenaMap::new(1 << 20).unwrap();
    let config = LogConfig { store_id: [5; 16], map, score_bytes: 32 };
    let log = Arc::new(Log::new(Arc::new(storage.clone()), keys, config));
    let name = BlockName { score: log.keys().blake3_score(TRUTH), block_type: BlockType::DATA };
    let mut draft = ClumpDraft::new(ClumpBytes::default());
    draft.push(NamedBlock { name, digest: None, bytes: b"nothing of it.", base: None });
    let random = Arc::new(SeededRandom::new(9));
    let mut appender =
        Appender::new(Arc::clone(&log), random, (Seals::default(), 0), Vec::new(), ArenaId(1)).unwrap();
    let framing = varve_log::Framing::Pieces(varve_log::FrameBytes::default());
    appender.append(draft.pack(varve_log::CompressionLevel::default(), framing)).unwrap();
    appender.finish_page().unwrap();
    let plan = appender.plan_sync();
    plan.carry_out(&log).unwrap();
    appender.finish_sync(&plan).unwrap();
    (storage, old, name)
}

#[test]
fn a_lie_of_a_writer_who_may_not_read_is_not_built_on() {
    let (storage, old, name) = lied_to();
    let store = open(&storage, 5, &key_file(1), WRITER).unwrap();
    assert!(store.get(&name).is_err(), "a block is believed by its bytes");
    assert_eq!(put(&store, BlockType::DATA, TRUTH), name);
    store.close().unwrap();
    let store = open(&storage, 6, &key_file(1), StoreAccess::Read).unwrap();
    assert_eq!(store.get(&name).unwrap(), TRUTH);
    assert!(store.get(&old).is_ok());
    assert!(
        !Checker::of(&store).check_arena(ArenaId(1), true).unwrap().damage.is_empty(),
        "and the lie is found"
    );
}

#[test]
fn a_lie_ends_when_its_arena_is_written_anew_or_merged() {
    for is_merge in [false, true] {
        let (storage, old, name) = lied_to();
        let store = open(&storage, 5, &key_file(1), WRITER).unwrap();
        put(&store, BlockType::DATA, TRUTH);
        // Fills the arena, so that the next session begins another.
        let mut noise = vec![0; 900 << 10];
        SeededRandom::new(3).fill(&mut noise).unwrap();
        for number in 0..2 {
            noise[0] = number;
            put(&store, BlockType::DATA, &noise);
        }
        store.close().unwrap();

        let store = open(&storage, 6, &key_file(1), WRITER).unwrap();
        let reclaimer = Reclaimer::of(&store).unwrap();
        let limits = BatchLimits { written_bytes: u64::MAX, until: Timestamp(i64::MAX) };
        let is_live = |live: &BlockName| [old, name].contains(live);
        let arenas = [ArenaId(1), ArenaId(2)];
        let done = if is_merge {
            reclaimer.merge(&arenas, &is_live, limits, &|| false).unwrap()
        } else {
            reclaimer.replace(&arenas, &is_live, limits, &|| false).unwrap()
        };
        assert!(done.failed.is_empty(), "{:?}", done.failed);
        assert_eq!(done.replaced.len(), 2, "{is_merge}");
        store.close().unwrap();

        let store = open(&storage, 7, &key_file(1), StoreAccess::Read).unwrap();
        assert_eq!(store.get(&name).unwrap(), TRUTH, "{is_merge}");
        assert!(store.get(&old).is_ok());
        for id in store.arenas().unwrap() {
            let found = Checker::of(&store).check_arena(id, true).unwrap();
            assert!(found.damage.is_empty(), "{is_merge}, {id}: {:?}", found.damage);
        }
    }
}

#[test]
fn what_one_key_keeps_for_itself_no_other_reads() {
    let (storage, _) = shared();
    add(&storage, 8, &key_file(1), &key_file(3), Role::WriteOnly).unwrap();
    let own = |byte: u8| open(&storage, 9, &key_file(byte), StoreAccess::Read).unwrap();
    own(2).vault().write_own(b"last night", b"what it was").unwrap();
    assert_eq!(own(2).vault().read_own(b"last night").unwrap().as_slice(), b"what it was");
    assert!(own(2).vault().read_own(b"another").is_none());
    assert!(
        own(3).vault().read_own(b"last night").is_none() && own(1).vault().read_own(b"last night").is_none()
    );
    let file = storage.names().into_iter().find(|name| name.as_str().starts_with("index/own-")).unwrap();
    let good = storage.contents(&file).unwrap();
    for place in 0..good.len() {
        let mut bad = good.clone();
        bad[place] ^= 1;
        storage.set_contents(&file, bad);
        assert!(own(2).vault().read_own(b"last night").is_none());
    }
}
