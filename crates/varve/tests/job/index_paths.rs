//! `--index-path`: the user chooses the folders for the entries of the index.

use std::fs;
use std::path::Path;

use crate::sandbox::{Sandbox, noise};

const ON_DISK: [&str; 5] = ["--plaintext", "--index", "disk", "--index-memory", "1M"];

fn entry_files(folder: &Path) -> usize {
    let Ok(listed) = fs::read_dir(folder.join("index")) else { return 0 };
    let names = listed.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("disk-")).count()
}

#[test]
fn the_index_goes_where_it_is_told_and_back() {
    let mut sandbox = Sandbox::empty();
    sandbox.set_key(None);
    let store = sandbox.path("store");
    sandbox.set_store(store.clone());
    let [one, two, three] = ["one", "two", "three"].map(|name| sandbox.path(name));
    // The paths are relative to the working directory, like all paths.
    sandbox.ok([&["init"][..], &ON_DISK, &["--index-path", "one", "--index-path", "two"]].concat());
    let bytes = noise(7, 3_000_000);
    sandbox.snapshot_bytes("web", &bytes);
    sandbox.ok(["reindex"]);
    let files = || [&store, &one, &two, &three].map(|folder| entry_files(folder));
    assert_eq!(files(), [0, 1, 1, 0]);
    let stats = sandbox.json(["stats"]).remove(0);
    let places = stats["index"]["places"].as_array().unwrap();
    assert_eq!(places.len(), 2);
    assert!(places.iter().all(|place| place["trouble"].is_null()), "{places:?}");
    assert!(sandbox.ok(["stats"]).contains(two.to_str().unwrap()));

    // The disk of one folder is missing.
    fs::rename(&two, sandbox.path("away")).unwrap();
    let cat = sandbox.run(["cat", "web"]);
    assert!(
        cat.stdout == bytes && cat.stderr.contains("a folder of the index cannot be used"),
        "{}",
        cat.stderr
    );
    assert_eq!(sandbox.snapshot_bytes("web", &bytes)["new_bytes"], 0);
    assert!(sandbox.ok(["stats"]).contains("cannot be used"));
    assert!(!two.exists(), "nothing is made in its place");
    fs::rename(sandbox.path("away"), &two).unwrap();
    assert_eq!(sandbox.snapshot_bytes("web", &bytes)["new_bytes"], 0);

    sandbox.ok(["reindex", "--index-path", "three"]);
    assert_eq!(files(), [0, 0, 0, 1]);
    // The index is rebuilt with its settings unchanged.
    sandbox.ok(["reindex"]);
    assert_eq!(files(), [0, 0, 0, 1]);
    sandbox.ok(["reindex", "--index-path", "store"]);
    assert_eq!(files(), [1, 0, 0, 0]);
    sandbox.ok(["reindex", "--index-path", "one"]);
    sandbox.ok(["reindex", "--index", "memory"]);
    assert_eq!(files(), [0, 0, 0, 0]);
    assert!(sandbox.run(["cat", "web"]).stdout == bytes);
    assert_eq!(sandbox.snapshot_bytes("web", &bytes)["new_bytes"], 0);
    sandbox.ok(["verify", "--data"]);
}

#[test]
fn words_that_make_no_sense_are_refused() {
    let mut sandbox = Sandbox::empty();
    sandbox.set_key(None);
    let store = sandbox.path("store");
    sandbox.set_store(store);
    assert!(sandbox.fails(2, ["init", "--plaintext", "--index-path", "one"]).contains("--index disk"));
    sandbox.ok([&["init"][..], &ON_DISK].concat());
    assert!(
        sandbox.fails(1, ["reindex", "--index-path", "one", "--index-path", "one"]).contains("named once")
    );
    let other = sandbox.path("other");
    sandbox.ok(["reindex", "--index-path", "one"]);
    sandbox.set_store(other);
    sandbox.ok([&["init"][..], &ON_DISK].concat());
    assert!(sandbox.fails(1, ["reindex", "--index-path", "one"]).contains("holds the index of store"));
}
