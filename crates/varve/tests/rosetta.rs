//! The independent reader reads what the program wrote: golden stores and fresh ones, and finds the same in them.
#![allow(clippy::print_stderr, reason = "says what it skipped")]

mod sandbox;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sandbox::{Sandbox, manifest, noise, sample_folder, sparse_image, write_at};

const MODULES: &str = "import blake3, zstandard, cryptography, argon2, xxhash";

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Whether the reader can run here.
fn is_ready() -> bool {
    let imported = Command::new("python3").args(["-c", MODULES]).output();
    let ready = imported.is_ok_and(|output| output.status.success());
    if !ready {
        eprintln!("skipped: rosetta, which needs python3 and the packages in rosetta/requirements.txt");
    }
    ready
}

fn rosetta(sandbox: &Sandbox, words: &[&str]) -> Output {
    let mut command = Command::new("python3");
    command.arg(root().join("rosetta/rosetta.py"));
    if let Some(key) = sandbox.key() {
        command.arg("--key-file").arg(key);
    }
    command.arg(sandbox.store()).args(words).env("TZ", "UTC").output().unwrap()
}

#[track_caller]
fn rosetta_ok(sandbox: &Sandbox, words: &[&str]) -> Vec<u8> {
    let output = rosetta(sandbox, words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Both readers list the same snapshots and restore the same.
fn agree(sandbox: &Sandbox) {
    let ids = sandbox.ids();
    let listed: serde_json::Value =
        serde_json::from_slice(&rosetta_ok(sandbox, &["list", "--json"])).unwrap();
    let mut theirs: Vec<_> =
        listed.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect();
    let mut ours = ids.clone();
    ours.sort();
    theirs.sort();
    assert_eq!(theirs, ours);
    assert!(String::from_utf8_lossy(&rosetta_ok(sandbox, &["check"])).contains("sound"));
    for id in &ids {
        let (ours, theirs) = (sandbox.arg(&format!("ours-{id}")), sandbox.arg(&format!("theirs-{id}")));
        sandbox.run(["restore", id, &ours]);
        rosetta(sandbox, &["restore", id, &theirs]);
        same(Path::new(&ours), Path::new(&theirs), id);
    }
}

fn same(ours: &Path, theirs: &Path, id: &str) {
    if ours.is_dir() {
        assert_eq!(format!("{:#?}", manifest(theirs)), format!("{:#?}", manifest(ours)), "{id}");
    } else {
        assert!(fs::read(theirs).unwrap() == fs::read(ours).unwrap(), "{id}");
    }
}

#[test]
fn golden_stores_are_read_alike() {
    if !is_ready() {
        return;
    }
    let mut count = 0;
    for version in ["store-v1", "store-v2"] {
        let golden = root().join("fixtures").join(version);
        let key = golden.join("key");
        let mut stores: Vec<_> = fs::read_dir(&golden).unwrap().map(|entry| entry.unwrap().path()).collect();
        stores.retain(|path| path.is_dir());
        for store in stores {
            let is_plain = store.to_str().unwrap().ends_with("plain");
            agree(&Sandbox::copy_of(&store, (!is_plain).then_some(key.as_path())));
            count += 1;
        }
    }
    assert!(count >= 17, "{count} golden stores");
}

#[test]
fn fresh_stores_are_read_alike() {
    if !is_ready() {
        return;
    }
    for kind in [
        &["--plaintext"][..],
        &[],
        &["--score", "sha1"],
        &["--score", "sha1", "--plaintext"],
        &["--plaintext", "--block-size", "512"],
        &["--parity", "20%", "--clump-size", "128K"],
        &["--compare", "value"],
        &["--compare", "value", "--plaintext"],
        &["--index", "disk", "--index-memory", "1M"],
        &["--index", "disk", "--index-memory", "1M", "--plaintext"],
        &["--index", "disk", "--index-memory", "1M", "--score", "sha1"],
        &["--index", "disk", "--index-memory", "1M", "--score", "sha1", "--plaintext"],
        &["--index", "disk", "--index-memory", "1M", "--compare", "value"],
        &["--index", "disk", "--index-memory", "1M", "--compare", "value", "--plaintext"],
    ] {
        let sandbox = Sandbox::made_with(kind);
        let (image, folder) = (sandbox.path("disk.img"), sandbox.path("home"));
        sparse_image(&image, (3 << 20) + 5, &[(70_000, &noise(50, 900_000)), (2 << 20, &[b'x'; 300_000])]);
        sample_folder(&folder);
        sandbox.ok(["snapshot", "disk.img", "home"]);
        // Where the index is makes no difference to the log: one night will do.
        if !kind.contains(&"--index") {
            write_at(&image, 1 << 20, &noise(51, 200_000));
            fs::write(folder.join("letter.txt"), "changed").unwrap();
            sandbox.ok(["snapshot", "disk.img", "home"]);
        }
        agree(&sandbox);
    }
}

#[test]
fn what_a_machine_that_may_not_read_has_written_is_read_alike() {
    if !is_ready() {
        return;
    }
    let sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("disk", &noise(54, 300_000));
    for (name, role) in [("writer", "--write-only"), ("reader", "--append-only")] {
        fs::write(sandbox.path(name), noise(name.len() as u64 * 7 + role.len() as u64, 32)).unwrap();
        sandbox.ok(["key", "add", role, "--new-key-file", name, "--label", "a \"machine\" – ünd"]);
    }
    let mut writer = Sandbox::empty();
    writer.set_store(sandbox.store().into());
    writer.set_key(Some(sandbox.path("writer")));
    sample_folder(&writer.path("home"));
    for night in 0..3 {
        writer.ok(["snapshot", "home"]);
        writer.snapshot_bytes("disk", &noise(55 + night, 2_000_000));
    }
    agree(&sandbox);
    let refused = rosetta(&writer, &["list"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("write-only"));
    let mut reader = Sandbox::empty();
    reader.set_store(sandbox.store().into());
    reader.set_key(Some(sandbox.path("reader")));
    agree(&reader);
    // Folded into one list by whoever may read.
    sandbox.snapshot_bytes("disk", &noise(60, 1000));
    agree(&sandbox);
}

#[test]
fn a_wrong_key_and_damage_are_noticed() {
    if !is_ready() {
        return;
    }
    let mut sandbox = Sandbox::encrypted();
    sandbox.snapshot_bytes("disk", &noise(52, 600_000));
    let arena = sandbox.arenas().remove(0);
    let byte = fs::read(&arena).unwrap()[300_000] ^ 1;
    write_at(&arena, 300_000, &[byte]);
    assert_eq!(rosetta(&sandbox, &["check"]).status.code(), Some(1));
    fs::write(sandbox.path("other"), noise(53, 32)).unwrap();
    sandbox.set_key(Some(sandbox.path("other")));
    assert_eq!(rosetta(&sandbox, &["list"]).status.code(), Some(1));
}
