//! Files that somebody without a key adds to `keys/`, and their effect on the holders of keys.

use std::sync::Arc;

use varve_world::{FixedClock, InlineWorkers, MemoryStorage, SeededRandom, Timestamp, World};
use zeroize::Zeroizing;

use super::*;
use crate::{OpenStoreError, Store, StoreAccess};

const CHEAP: PassphraseCost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };

fn world(storage: &MemoryStorage) -> World {
    World {
        storage: Arc::new(storage.clone()),
        clock: Arc::new(FixedClock(Timestamp(0))),
        random: Arc::new(SeededRandom::new(1)),
        workers: Arc::new(InlineWorkers),
    }
}

fn passphrase(text: &str) -> Secret {
    Secret::Passphrase(Zeroizing::new(text.into()))
}

fn key_file(byte: u8) -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![byte; 40]))
}

/// Makes a store with one key. Returns it with the contents of the key's file.
fn created(secret: &Secret) -> (MemoryStorage, String) {
    let storage = MemoryStorage::new();
    Store::create(&world(&storage), &StoreConfig::new([5; 16]), Some(secret), CHEAP).unwrap();
    let names = storage.names();
    let file = names.iter().find(|file| file.folder() == FOLDER).unwrap();
    let text = String::from_utf8(storage.contents(file).unwrap()).unwrap();
    (storage, text)
}

/// Adds `count` files beside the keys of the store. Their names sort before the others.
fn lay(storage: &MemoryStorage, count: u32, contents: &str) {
    for number in 0..count {
        let file = FileName::new(&format!("{FOLDER}/00{number:06}.toml")).unwrap();
        storage.set_contents(&file, contents.as_bytes().to_vec());
    }
}

/// Makes a file as early programs wrote it, which is good under any name, and which no secret here
/// opens.
fn made_up(key: &str, from: &str, to: &str) -> String {
    let said = ["kind", "memory_kib", "passes", "lanes", "salt", "wrapped"];
    let is_said = |line: &&str| said.iter().any(|name| line.starts_with(name));
    let text: String = key.lines().filter(is_said).flat_map(|line| [line, "\n"]).collect();
    assert!(text.contains(from), "{text}");
    text.replace(from, to)
}

fn refused(storage: &MemoryStorage, secret: &Secret) -> KeyError {
    match Store::open(world(storage), Some(secret), StoreAccess::Read, &mut |_| {}).map(drop) {
        Err(OpenStoreError::Keys(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn opens(storage: &MemoryStorage, secret: &Secret) -> bool {
    Store::open(world(storage), Some(secret), StoreAccess::Read, &mut |_| {}).is_ok()
}

#[test]
fn what_is_no_key_hides_none() {
    for (right, wrong) in [(passphrase("right"), passphrase("wrong")), (key_file(1), key_file(2))] {
        let (storage, _) = created(&right);
        lay(&storage, 1000, "rubbish");
        assert!(opens(&storage, &right));
        let error = refused(&storage, &wrong);
        assert!(matches!(&error, KeyError::Wrong { damaged, .. } if damaged.len() == 1000));
        let text = error.to_string();
        assert!(text.contains("keys/00000002.toml and 997 more could not be tried"), "{text}");
    }
}

#[test]
fn made_up_keys_hide_none() {
    for (right, wrong) in [(passphrase("right"), passphrase("wrong")), (key_file(1), key_file(2))] {
        let (storage, key) = created(&right);
        lay(&storage, 300, &made_up(&key, "", ""));
        assert!(opens(&storage, &right));
        assert!(matches!(refused(&storage, &wrong), KeyError::Wrong { damaged, .. } if damaged.is_empty()));
        let world = world(&storage);
        let keyring = Keyring::of(&world).unwrap();
        assert_eq!(keyring.list().unwrap().0.len(), 301);
        let by = keyring.unlock(&right).unwrap();
        let new = NewKey { secret: &wrong, cost: CHEAP, label: "", role: Role::Full };
        assert!(matches!(keyring.add(&by, &new), Err(KeyError::TooMany)));
        assert_eq!(keyring.remove(&by, "00000299").unwrap(), "00000299");
    }
}

#[test]
fn keys_that_cost_too_much_are_named_and_not_tried() {
    let right = passphrase("right");
    let (storage, key) = created(&right);
    for (from, to) in [
        ("memory_kib = 64", "memory_kib = 4294967295"),
        ("passes = 1", "passes = 65"),
        ("lanes = 1", "lanes = 65"),
        ("lanes = 1", "lanes = 0"),
    ] {
        lay(&storage, 100, &made_up(&key, from, to));
        assert!(opens(&storage, &right), "{to}");
        let error = refused(&storage, &passphrase("wrong"));
        assert!(matches!(&error, KeyError::NotAllTried { tried_count: 1, left, .. } if left.len() == 100));
        assert_eq!(
            error.to_string(),
            "the passphrase was tried on 1 of 101 keys, and opens none of them; trying the others would take too long: \
             keys/00000000.toml, keys/00000001.toml, keys/00000002.toml and 97 more; remove the keys that you did not make from \
             \"keys\", and try again"
        );
        assert!(matches!(refused(&storage, &key_file(1)), KeyError::NoSuchKind { .. }));
    }
}
