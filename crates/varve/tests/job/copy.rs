//! `varve copy`: snapshots are copied unchanged from any kind of store to any other.

use crate::sandbox;
use std::fs;
use std::path::PathBuf;

use crate::sandbox::{Sandbox, manifest, noise, sample_folder, sparse_image, write_at};
use serde_json::Value;

const KINDS: [&[&str]; 6] = [
    &["--compare", "value"],
    &["--plaintext", "--score", "sha1", "--index", "disk", "--index-memory", "1M"],
    &["--plaintext", "--compare", "value", "--index", "disk", "--index-memory", "1M"],
    &["--score", "sha1"],
    &["--compare", "value", "--clump-size", "64K"],
    &["--block-size", "4K"],
];

/// Archives an image and a folder on two nights.
fn archived(sandbox: &Sandbox) {
    let (image, folder) = (sandbox.path("disk.img"), sandbox.path("home"));
    sparse_image(&image, (4 << 20) + 5, &[(70_000, &noise(50, 900_000)), (2 << 20, &[b'x'; 300_000])]);
    sample_folder(&folder);
    fs::write(folder.join("large"), noise(58, 700_000)).unwrap();
    sandbox.ok(["snapshot", "disk.img", "home", "--as", "image", "--tag", "kind=sample"]);
    write_at(&image, 1 << 20, &noise(51, 200_000));
    fs::write(folder.join("letter.txt"), "changed").unwrap();
    sandbox.ok(["snapshot", "disk.img", "home", "--as", "image"]);
}

/// Returns all snapshots: their listed fields without their costs, and their restored content.
fn shown(sandbox: &Sandbox, round: usize) -> Vec<(Value, String)> {
    let listed = sandbox.json(["snapshots"]);
    let mut shown = Vec::new();
    for snapshot in &listed {
        let id = snapshot["id"].as_str().unwrap();
        let out = sandbox.arg(&format!("out-{round}-{id}"));
        sandbox.run(["restore", id, &out]);
        let content = if snapshot["kind"] == "image" {
            checksum(&fs::read(&out).unwrap())
        } else {
            format!("{:#?}", manifest(out.as_ref()))
        };
        let mut said = snapshot.clone();
        for cost in ["new_bytes", "stored_bytes", "elapsed", "added_with"] {
            said.as_object_mut().unwrap().retain(|field, _| !field.starts_with(cost));
        }
        shown.push((said, content));
    }
    shown
}

/// A 64-bit FNV-1a hash. It is enough for files that nobody forges.
fn checksum(bytes: &[u8]) -> String {
    let add = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{} bytes, {:x}", bytes.len(), bytes.iter().fold(0xcbf2_9ce4_8422_2325, add))
}

fn store_of(sandbox: &Sandbox) -> String {
    sandbox.store().to_str().unwrap().to_owned()
}

fn copy(from: &Sandbox, to: &Sandbox, what: &[&str]) -> sandbox::Run {
    let (from_path, to_path) = (store_of(from), store_of(to));
    let from_key = from.key().map(|key| key.to_str().unwrap().to_owned());
    let mut words = vec!["copy"];
    if let Some(key) = &from_key {
        words.extend(["--from-key-file", key.as_str()]);
    }
    if what.is_empty() {
        words.push("--all");
    }
    words.push(&from_path);
    words.extend(what);
    words.push(&to_path);
    to.run(words)
}

#[test]
fn snapshots_go_round_through_all_kinds_of_stores() {
    let first = Sandbox::encrypted();
    archived(&first);
    let wanted = shown(&first, 0);
    let mut before = first;
    for (round, kind) in KINDS.into_iter().enumerate() {
        let next = Sandbox::made_with(kind);
        let run = copy(&before, &next, &[]);
        assert_eq!(run.code, Some(0), "{kind:?}: {}", run.stderr);
        assert_eq!(shown(&next, round + 1), wanted, "{kind:?}");
        next.ok(["verify", "--data"]);
        // Data that both nights share is stored once in the copy too, as in the original.
        let costs = next.json(["snapshots"]);
        let new_bytes: Vec<_> = costs.iter().map(|one| one["new_bytes"].as_u64().unwrap()).collect();
        assert!(new_bytes[2] < 500_000 && new_bytes[3] < 100_000, "{kind:?}: {new_bytes:?}");
        before = next;
    }
}

#[test]
fn a_copy_goes_on_where_it_stopped_and_copies_nothing_twice() {
    let from = Sandbox::encrypted();
    archived(&from);
    let to = Sandbox::made_with(&["--compare", "value"]);
    let ids = from.ids();
    assert_eq!(copy(&from, &to, &[&ids[0]]).code, Some(0));
    assert_eq!(to.ids(), ids[..1]);
    // The next snapshot shares the existing data with the one before it.
    assert_eq!(copy(&from, &to, &[&ids[2], &ids[0]]).code, Some(0));
    let costs = to.json(["snapshots"]);
    assert!(costs[1]["new_bytes"].as_u64().unwrap() < 500_000, "{costs:?}");
    assert_eq!(copy(&from, &to, &[]).code, Some(0));
    assert_eq!(to.ids().len(), 4);
    let again = copy(&from, &to, &[]);
    assert_eq!(again.code, Some(0));
    assert_eq!(String::from_utf8_lossy(&again.stdout).matches("already there").count(), 4);
    to.ok(["verify", "--data"]);
    // New snapshots of the same source continue in the copy.
    fs::copy(from.path("disk.img"), to.path("disk.img")).unwrap();
    let next = to.json(["snapshot", "disk.img", "--as", "image", "--name", "disk.img"]);
    assert!(next[0]["new_bytes"].as_u64().unwrap() < 100_000, "{next:?}");
}

#[test]
fn what_is_damaged_is_named_and_the_rest_is_copied() {
    let from = Sandbox::made_with(&["--plaintext"]);
    from.snapshot_bytes("good", &noise(1, 300_000));
    from.snapshot_bytes("bad", &noise(2, 600_000));
    let arena: PathBuf = from.arenas().remove(0);
    write_at(&arena, 600_000, &[0x55; 4096]);
    let to = Sandbox::made_with(&["--compare", "value"]);
    let run = copy(&from, &to, &[]);
    assert_eq!(run.code, Some(5), "{}", run.stderr);
    assert!(run.stderr.contains("bad is not copied"), "{}", run.stderr);
    assert_eq!(to.run(["cat", "good"]).stdout, noise(1, 300_000));
    to.fails(1, ["cat", "bad"]);
}

#[test]
fn wrong_words_are_told() {
    let (from, to) = (Sandbox::encrypted(), Sandbox::encrypted());
    from.snapshot_bytes("one", b"one");
    let (from_path, to_path) = (store_of(&from), store_of(&to));
    let said = from.fails(2, ["copy", &from_path, &to_path]);
    assert!(said.contains("--all"), "{said}");
    let said = from.fails(2, ["copy", "--all", &from_path, "one", &to_path]);
    assert!(said.contains("leave out"), "{said}");
    let said = from.fails(1, ["copy", &from_path, "one", &from_path]);
    assert!(said.contains("same store"), "{said}");
    let said = from.fails(2, ["copy", "--fast", &from_path, "one", &to_path]);
    assert!(said.contains("--fast"), "{said}");
    fs::write(to.path("wrong"), noise(77, 32)).unwrap();
    let said = to.fails(12, ["copy", "--from-key-file", "wrong", &from_path, "one", &to_path]);
    assert!(said.contains("key"), "{said}");
    let said = to.fails(1, ["copy", &from_path, "two", &to_path]);
    assert!(said.contains("no snapshot is called"), "{said}");
}

/// `init` and `key add` refuse options that exclude each other.
#[test]
fn a_store_that_compares_by_value_says_what_it_cannot_do() {
    let sandbox = Sandbox::empty();
    let said = sandbox.fails(2, ["init", "--plaintext", "--compare", "value", "--score", "sha1"]);
    assert!(said.contains("--score"), "{said}");
    let sandbox = Sandbox::made_with(&["--compare", "value"]);
    fs::write(sandbox.path("other"), noise(3, 32)).unwrap();
    let said = sandbox.fails(1, ["key", "add", "--write-only", "--new-key-file", "other"]);
    assert!(said.contains("by value"), "{said}");
    let said = sandbox.fails(1, ["serve", "--venti", "127.0.0.1:0"]);
    assert!(said.contains("--score sha1"), "{said}");
    fs::create_dir_all(sandbox.path("home")).unwrap();
    let said = sandbox.fails(1, ["snapshot", "--vac", "home.vac", "home"]);
    assert!(said.contains("SHA-1") || said.contains("sha1"), "{said}");
}
