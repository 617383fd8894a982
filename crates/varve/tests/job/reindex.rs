//! The index of a store is changed, lost and damaged. Its log, and the data that it returns, stay
//! the same.

use std::fs;

use crate::sandbox::{Sandbox, noise};

const BYTES: usize = 3_000_000;

/// Makes a store with its index on disk, and a snapshot in it.
fn made() -> (Sandbox, Vec<u8>) {
    let sandbox = Sandbox::made_with(&[
        "--plaintext",
        "--index",
        "disk",
        "--index-memory",
        "1M",
        "--index-size",
        "500",
    ]);
    let bytes = noise(7, BYTES);
    sandbox.snapshot_bytes("web", &bytes);
    (sandbox, bytes)
}

fn kind(sandbox: &Sandbox) -> String {
    sandbox.json(["stats"]).remove(0)["index"]["kind"].as_str().unwrap().into()
}

fn index_files(sandbox: &Sandbox) -> Vec<String> {
    let listed = fs::read_dir(sandbox.store().join("index")).unwrap();
    let mut names: Vec<_> = listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.starts_with("disk") || name == "checkpoint");
    names.sort();
    names
}

#[test]
fn the_index_changes_and_the_log_does_not() {
    let (sandbox, bytes) = made();
    assert_eq!(kind(&sandbox), "disk");
    let log: Vec<_> = sandbox.arenas().iter().map(|arena| fs::metadata(arena).unwrap().len()).collect();
    for (words, expected) in [
        (vec!["--index", "memory"], ("memory", vec!["checkpoint".to_owned()])),
        (
            vec![
                "--index",
                "disk",
                "--index-memory",
                "2M",
                "--index-fingerprint",
                "40",
                "--index-prefetch",
                "four",
            ],
            ("disk", vec!["disk".to_owned(), "disk-0000000001".to_owned()]),
        ),
        // The index is rebuilt with its settings unchanged.
        (vec![], ("disk", vec!["disk".to_owned(), "disk-0000000001".to_owned()])),
        (vec!["--index", "memory"], ("memory", vec!["checkpoint".to_owned()])),
    ] {
        let told = sandbox.ok([&["reindex"], &words[..]].concat());
        assert!(told.contains("indexed") && told.contains("blocks"), "{told}");
        assert_eq!((kind(&sandbox).as_str(), index_files(&sandbox)), expected);
        assert!(sandbox.run(["cat", "web"]).stdout == bytes);
        assert_eq!(sandbox.snapshot_bytes("web", &bytes)["new_bytes"], 0);
        sandbox.ok(["verify", "--data"]);
    }
    let after: Vec<_> = sandbox.arenas().iter().map(|arena| fs::metadata(arena).unwrap().len()).collect();
    assert_eq!(after.len(), log.len());
}

#[test]
fn words_that_make_no_sense_are_refused() {
    let (sandbox, _) = made();
    let told = sandbox.fails(2, ["reindex", "--index", "memory", "--index-memory", "5M"]);
    assert!(told.contains("--index disk"), "{told}");
    for words in [
        ["reindex", "--index-memory", "5"],
        ["reindex", "--index-size", "0"],
        ["reindex", "--index-size", "5T"],
        ["reindex", "--index-fingerprint", "31"],
        ["reindex", "--index", "paper"],
    ] {
        sandbox.fails(2, words);
    }
    assert_eq!(kind(&sandbox), "disk");
}

#[test]
fn an_index_that_is_lost_or_harmed_is_made_again() {
    let (sandbox, bytes) = made();
    sandbox.ok(["reindex"]);
    for name in index_files(&sandbox) {
        let file = sandbox.store().join("index").join(&name);
        for harm in ["cut", "zeroed", "gone"] {
            let whole = fs::read(&file).unwrap();
            match harm {
                "cut" => fs::write(&file, &whole[..whole.len() / 2]).unwrap(),
                "zeroed" => fs::write(&file, vec![0; whole.len()]).unwrap(),
                _ => fs::remove_file(&file).unwrap(),
            }
            assert!(sandbox.run(["cat", "web"]).stdout == bytes, "{harm} {name}");
            assert_eq!(sandbox.snapshot_bytes("web", &bytes)["new_bytes"], 0, "{harm} {name}");
            sandbox.ok(["reindex"]);
        }
    }
}

/// A replica keeps the settings that the store had. Its clone can get any other index.
#[test]
fn a_store_whose_index_was_changed_is_replicated_and_brought_back() {
    let (sandbox, bytes) = made();
    let (replica, clone) = (sandbox.arg("replica"), sandbox.path("clone"));
    sandbox.ok(["replicate", &replica]);
    sandbox.ok(["reindex", "--index", "memory"]);
    sandbox.snapshot_bytes("more", b"more");
    sandbox.ok(["replicate", &replica]);
    sandbox.ok(["clone", &replica, clone.to_str().unwrap()]);
    let mut sandbox = sandbox;
    sandbox.set_store(clone);
    assert!(sandbox.run(["cat", "web"]).stdout == bytes);
    assert_eq!(sandbox.run(["cat", "more"]).stdout, b"more");
    sandbox.ok(["reindex", "--index", "disk"]);
    assert!(sandbox.run(["cat", "web"]).stdout == bytes);
}

/// By value, the index proposes the blocks to compare with. A new index proposes the same.
#[test]
fn by_value_the_index_changes_as_well() {
    let sandbox = Sandbox::made_with(&["--compare", "value"]);
    let bytes = noise(7, BYTES);
    sandbox.snapshot_bytes("web", &bytes);
    for (words, expected) in [(["--index", "disk"], "disk"), (["--index", "memory"], "memory")] {
        sandbox.ok([&["reindex"], &words[..]].concat());
        assert_eq!(kind(&sandbox), expected);
        assert!(sandbox.run(["cat", "web"]).stdout == bytes);
        assert_eq!(sandbox.snapshot_bytes("web", &bytes)["new_bytes"], 0);
        sandbox.ok(["verify", "--data"]);
    }
}
