//! Stores, replicas and keys of later programs. They are simulated: a number of their format is
//! raised, with the codes that cover it. This program leaves them as they are, shows no older state
//! in their place, and ends with a status of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use varve_block::from_hex;
use varve_log::LogKeys;
use varve_store::StoreConfig;

use crate::sandbox::{Sandbox, copy_folder, noise};

const STATUS: i32 = 13;

/// The commands that read a store, write to it, or care for it.
const COMMANDS: [&[&str]; 17] = [
    &["snapshots"],
    &["snapshots", "--json"],
    &["ls", "disk"],
    &["cat", "disk"],
    &["restore", "disk", "out"],
    &["find", "disk"],
    &["stats"],
    &["snapshot", "home"],
    &["forget", "disk"],
    &["prune", "--keep-last", "1"],
    &["gc"],
    &["verify"],
    &["verify", "--data"],
    &["repair"],
    &["repair", "--plan"],
    &["replicate", "replica"],
    &["replicate", "new replica"],
];

/// Every file of a folder, except those that only help this program to find things, and locks.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() && name != "index" && name != "leases" {
                folders.push(path);
            } else if path.is_file() && !["lock", "keys-lock", "replicate.lock"].contains(&name.as_str()) {
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Makes a store without encryption, with several arenas, parity and a replica.
fn sample() -> Sandbox {
    let sandbox = Sandbox::made_with(&["--plaintext", "--parity", "10%"]);
    fs::create_dir(sandbox.path("home")).unwrap();
    fs::write(sandbox.path("home/letter"), "dear reader").unwrap();
    sandbox.snapshot_bytes("disk", &noise(3, 6_500_000));
    sandbox.snapshot_bytes("disk", &noise(4, 400_000));
    sandbox.ok(["snapshot", "home"]);
    sandbox.ok(["replicate", "replica"]);
    sandbox
}

fn keys(sandbox: &Sandbox) -> LogKeys {
    let text = fs::read_to_string(sandbox.store().join("config.toml")).unwrap();
    LogKeys::plain(&StoreConfig::from_text(&text).unwrap().binding())
}

/// Writes an arena's header anew, as that of a later version.
fn raise_arena(keys: &LogKeys, file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    bytes[8..12].copy_from_slice(&9_u32.to_le_bytes());
    let code = blake3::keyed_hash(&keys.derive("varve 1 seal"), &bytes[..480]);
    bytes[480..512].copy_from_slice(code.as_bytes());
    fs::write(file, bytes).unwrap();
}

/// Gives the footer of a sealed arena a later version.
fn raise_footer(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let footer = bytes.len() - 96;
    bytes[footer + 8..footer + 12].copy_from_slice(&9_u32.to_le_bytes());
    let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[footer..footer + 88]);
    bytes[footer + 88..].copy_from_slice(&checksum.to_le_bytes());
    fs::write(file, bytes).unwrap();
}

/// Gives both headers of a parity file a later version.
fn raise_parity(keys: &LogKeys, file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let last = bytes.len() - 4096;
    let key = blake3::derive_key("varve 1 parity", &keys.derive("varve 1 seal"));
    for header in [0, last] {
        bytes[header + 8..header + 12].copy_from_slice(&9_u32.to_le_bytes());
        let code = blake3::keyed_hash(&key, &bytes[header..header + 128]);
        bytes[header + 128..header + 160].copy_from_slice(code.as_bytes());
    }
    fs::write(file, bytes).unwrap();
}

#[track_caller]
fn refuses(sandbox: &Sandbox, words: &[&str]) {
    let run = sandbox.run(words);
    assert_eq!(run.code, Some(STATUS), "{words:?}: {}{}", run.text(), run.stderr);
    let said = run.text() + &run.stderr;
    assert!(said.contains("use a newer ") && !said.contains("damaged:"), "{words:?}: {said}");
    assert!(run.stdout.is_empty() || words.contains(&"--json"), "{words:?}: {}", run.text());
}

/// Checks that no command does anything to a store.
#[track_caller]
fn refuses_all(sandbox: &Sandbox, what: &str) {
    let before = files(sandbox.store());
    let replica = files(&sandbox.path("replica"));
    for words in COMMANDS {
        refuses(sandbox, words);
        assert!(files(sandbox.store()) == before, "{what}: {words:?} changes the store");
        assert!(files(&sandbox.path("replica")) == replica, "{what}: {words:?} changes the replica");
    }
    assert!(!sandbox.path("out").exists() && !sandbox.path("new replica/config.toml").exists());
}

#[test]
fn a_store_with_a_newer_arena_is_left_as_it_is() {
    let mut sandbox = sample();
    let keys = keys(&sandbox);
    let good = sandbox.store().to_owned();
    let count = sandbox.arenas().len();
    assert!(count > 3);
    for (raised, by_seal) in [(count - 1, false), (count - 2, false), (0, false), (1, true)] {
        let what = format!("arena {raised} of {count}, its seal: {by_seal}");
        let place = sandbox.path(&format!("raised {raised}"));
        copy_folder(&good, &place);
        // A newer program keeps no index under the names of this one that covers its arenas.
        fs::remove_dir_all(place.join("index")).unwrap();
        sandbox.set_store(place);
        let arena = sandbox.arenas().remove(raised);
        let old = fs::read(&arena).unwrap();
        if by_seal {
            raise_footer(&arena)
        } else {
            raise_arena(&keys, &arena)
        }
        refuses_all(&sandbox, &what);
        // The newer program has come home.
        fs::write(&arena, old).unwrap();
        assert_eq!(sandbox.ids().len(), 3, "{what}");
        sandbox.ok(["verify", "--data"]);
        sandbox.ok(["snapshot", "home"]);
    }
}

/// An index that knows an arena saves reading it. So an arena that somebody raised by hand is met
/// only when it is read, and the last one is read always.
#[test]
fn an_index_hides_no_newer_end() {
    let sandbox = sample();
    let keys = keys(&sandbox);
    raise_arena(&keys, &sandbox.arenas().pop().unwrap());
    refuses_all(&sandbox, "the last arena");
}

#[test]
fn settings_of_a_newer_program_are_left_as_they_are() {
    let sandbox = sample();
    let config = sandbox.store().join("config.toml");
    let text = fs::read_to_string(&config).unwrap();
    // A later format may lack what this one has.
    for newer in [text.replace("format = 1", "format = 9"), "format = 9\n".to_owned()] {
        fs::write(&config, newer).unwrap();
        refuses_all(&sandbox, "config.toml");
    }
    fs::write(&config, text).unwrap();
    sandbox.ok(["verify"]);
}

#[test]
fn a_replica_of_a_newer_program_is_left_as_it_is() {
    let sandbox = sample();
    let keys = keys(&sandbox);
    let replica = sandbox.path("replica");
    let good = sandbox.path("good");
    copy_folder(&replica, &good);
    let segments: Vec<_> = files(&replica).into_keys().filter(|file| file.extension().is_none()).collect();
    let begins = |file: &&PathBuf| file.file_name().unwrap().to_str().unwrap().starts_with("000000000000-");
    let last = segments.iter().rfind(begins).unwrap();
    let first = segments.iter().find(begins).unwrap();
    let raisings: [(&str, &dyn Fn()); 4] = [
        ("the last arena", &|| raise_arena(&keys, last)),
        ("the first arena", &|| raise_arena(&keys, first)),
        ("the layout", &|| fs::write(replica.join("replica.toml"), "layout = 9\n").unwrap()),
        ("the settings", &|| fs::write(replica.join("config.toml"), "format = 9\n").unwrap()),
    ];
    for (what, raise) in raisings {
        raise();
        let before = files(&replica);
        for words in [
            &["clone", "replica", "clone"][..],
            &["clone", "replica", "clone", "--keep-damaged"],
            &["verify", "--replica", "replica"],
            &["verify", "--replica", "replica", "--data"],
        ] {
            refuses(&sandbox, words);
            assert!(!sandbox.path("clone/config.toml").exists(), "{what}");
            drop(fs::remove_dir_all(sandbox.path("clone")));
        }
        let read = crate::sandbox::Run::new(sandbox.command_at(&replica).arg("snapshots").output().unwrap());
        assert_eq!(read.code, Some(STATUS), "{what}: {}{}", read.text(), read.stderr);
        if what.contains("the layout") || what.contains("the settings") {
            refuses(&sandbox, &["replicate", "replica"]);
        }
        assert!(files(&replica) == before, "{what}");
        fs::remove_dir_all(&replica).unwrap();
        copy_folder(&good, &replica);
    }
}

#[test]
fn parity_of_a_newer_program_is_left_as_it_is() {
    let sandbox = sample();
    let keys = keys(&sandbox);
    let parity = fs::read_dir(sandbox.store().join("parity")).unwrap().next().unwrap().unwrap().path();
    raise_parity(&keys, &parity);
    let raised = fs::read(&parity).unwrap();
    for words in [&["verify"][..], &["verify", "--data"], &["repair", "--data"]] {
        refuses(&sandbox, words);
    }
    // Nothing depends on parity.
    sandbox.ok(["snapshot", "home"]);
    assert_eq!(sandbox.ids().len(), 4);
    assert!(fs::read(&parity).unwrap() == raised);
}

#[test]
fn a_key_of_a_newer_program_is_no_damage() {
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("disk", &noise(3, 1000));
    sandbox.ok(["replicate", "replica"]);
    let file = fs::read_dir(sandbox.store().join("keys")).unwrap().next().unwrap().unwrap().path();
    let good = fs::read_to_string(&file).unwrap();
    let value = |text: &str, key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{key} = "))).unwrap();
        line.trim_matches('"').to_owned()
    };
    for (from, to) in [("kind = \"key-file\"", "kind = \"token\""), ("role = \"full\"", "role = \"auditor\"")]
    {
        let newer = good.replace(from, to);
        assert_ne!(newer, good);
        let fields = ["id", "kind", "role", "created", "label", "salt", "wrapped"];
        let lines: String = fields.iter().map(|key| format!("{key} = {}\n", value(&newer, key))).collect();
        let check = blake3::hash(format!("varve key 1\n{lines}").as_bytes()).to_hex();
        let newer = newer.replace(&value(&newer, "check"), &check[..16]);
        assert!(from_hex(&check[..16]).is_ok());
        fs::write(&file, &newer).unwrap();
        for words in [&["snapshots"][..], &["snapshot", "key"], &["repair", "--from", "replica"]] {
            refuses(&sandbox, words);
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), newer, "no copy replaces it");
    }
    fs::write(&file, &good).unwrap();
    sandbox.ok(["verify"]);
}

/// Raises the version of a head, and signs it anew with the key in this file.
fn raise_head(head: &Path, key_file: &Path) {
    let key = fs::read_to_string(key_file).unwrap();
    let secret = key.lines().find_map(|line| line.strip_prefix("secret = ")).unwrap();
    let pair = Ed25519KeyPair::from_seed_unchecked(&STANDARD.decode(secret).unwrap()).unwrap();
    let text = fs::read_to_string(head).unwrap();
    let lines = &text[..text.find("signature = ").unwrap()];
    let lines = lines.replacen("varve publication 1\n", "varve publication 2\n", 1);
    let signature = STANDARD.encode(pair.sign(lines.as_bytes()).as_ref());
    let public = STANDARD.encode(pair.public_key().as_ref());
    fs::write(head, format!("{lines}signature = {public} {signature}\n")).unwrap();
}

#[test]
fn a_publication_of_a_newer_program_is_left_as_it_is() {
    let sandbox = Sandbox::made_with(&["--plaintext"]);
    sandbox.snapshot_bytes("disk", &noise(3, 300_000));
    let edition = sandbox.json(["publish", "disk", "www", "--key", "publisher.key"]).pop().unwrap();
    let address = format!("www/#{}", edition["key"].as_str().unwrap());
    sandbox.ok(["verify", "--publication", &address]);
    raise_head(&sandbox.path("www/head"), &sandbox.path("publisher.key"));
    let before = files(&sandbox.path("www"));
    for words in [
        &["publish", "disk", "www", "--key", "publisher.key"][..],
        &["verify", "--publication", &address],
        &["attach", &address, "disk", "--no-cache", "--nbd", "unix:nbd"],
    ] {
        refuses(&sandbox, words);
    }
    assert!(files(&sandbox.path("www")) == before);
}

#[test]
fn a_trace_of_a_newer_program_is_no_damaged_one() {
    let sandbox = Sandbox::made_with(&["--plaintext"]);
    sandbox.snapshot_bytes("disk", &noise(3, 300_000));
    let planner = sandbox.planner();
    planner.ok(["trace", "from-store", "all.vtrace"]);
    let mut bytes = fs::read(sandbox.path("all.vtrace")).unwrap();
    bytes[8..10].copy_from_slice(&2_u16.to_le_bytes());
    fs::write(sandbox.path("all.vtrace"), bytes).unwrap();
    refuses(&planner, &["trace", "profile", "all.vtrace"]);
    refuses(&planner, &["trace", "show", "all.vtrace"]);
}

#[test]
fn the_folder_of_a_newer_proxy_is_left_as_it_is() {
    let sandbox = Sandbox::made_with(&["--plaintext"]);
    let folder = sandbox.path("buffer");
    fs::create_dir(&folder).unwrap();
    let body = "format = 9\n";
    let code = xxhash_rust::xxh3::xxh3_64(body.as_bytes());
    fs::write(folder.join("segments.toml"), format!("{body}# xxh3 {code:016x}\n")).unwrap();
    let before = files(&folder);
    refuses(&sandbox, &["serve", "--venti", "127.0.0.1:0", "--look-aside", "buffer"]);
    assert!(files(&folder) == before);
}
