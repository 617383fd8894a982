//! The copies of each snapshot in `varve snapshots`: as the last replications and verifications
//! left them.

use std::fs;

use serde_json::{Value, json};

use crate::sandbox::{Sandbox, noise, write_at};

fn take(sandbox: &Sandbox, seed: u64) {
    fs::create_dir_all(sandbox.path("home")).unwrap();
    fs::write(sandbox.path("home/noise"), noise(seed, 100_000)).unwrap();
    sandbox.ok(["snapshot", "home"]);
}

/// Of each snapshot, the copies that hold it: the last part of the address, whether it was
/// verified, read, and found damaged.
fn copies(sandbox: &Sandbox) -> Vec<Vec<(String, bool, bool, bool)>> {
    let copy = |copy: &Value| {
        let address = copy["address"].as_str().unwrap();
        let name = address.rsplit('/').next().unwrap().to_owned();
        (name, copy["verified"].is_string(), copy["read"].is_string(), copy["damaged"] == json!(true))
    };
    let listed = sandbox.json(["snapshots"]);
    listed.iter().map(|one| one["copies"].as_array().unwrap().iter().map(copy).collect()).collect()
}

#[test]
fn each_snapshot_names_the_copies_that_hold_it() {
    let sandbox = Sandbox::encrypted();
    take(&sandbox, 1);
    assert_eq!(copies(&sandbox), [vec![]]);
    assert!(!sandbox.ok(["snapshots"]).contains("COPIES"), "there are none");
    let held = |name: &str| (name.to_owned(), false, false, false);
    sandbox.ok(["replicate", "usb", "--dry-run"]);
    assert_eq!(copies(&sandbox), [vec![]]);
    sandbox.ok(["replicate", "usb"]);
    take(&sandbox, 2);
    assert_eq!(copies(&sandbox), [vec![held("usb")], vec![]]);
    let shown = sandbox.ok(["snapshots"]);
    let ends: Vec<_> = shown.lines().map(|line| line.rsplit("  ").next().unwrap().trim()).collect();
    assert_eq!(ends, ["COPIES", "usb", "none"]);

    // A verification tells what the copy has, and reads it only with --data.
    sandbox.ok(["verify", "--replica", "usb"]);
    sandbox.ok(["replicate", "far"]);
    let verified = ("usb".to_owned(), true, false, false);
    assert_eq!(copies(&sandbox), [vec![held("far"), verified.clone()], vec![held("far")]]);
    sandbox.ok(["verify", "--replica", "usb", "--data"]);
    let read = ("usb".to_owned(), true, true, false);
    assert_eq!(copies(&sandbox)[0], [held("far"), read.clone()]);
    sandbox.ok(["replicate", "usb"]);
    assert_eq!(copies(&sandbox)[1], [held("far"), held("usb")], "the new one was not read");
    assert!(sandbox.ok(["snapshots"]).contains("far, usb (read 20"));

    // A failed replication claims nothing.
    take(&sandbox, 3);
    fs::remove_dir_all(sandbox.path("far")).unwrap();
    fs::write(sandbox.path("far"), "in its place").unwrap();
    assert_ne!(sandbox.run(["replicate", "far"]).code, Some(0));
    assert_eq!(copies(&sandbox)[2], []);
}

#[test]
fn a_damaged_copy_counts_as_none_until_it_is_mended() {
    let sandbox = Sandbox::encrypted();
    take(&sandbox, 1);
    sandbox.ok(["replicate", "usb"]);
    sandbox.ok(["verify", "--replica", "usb", "--data"]);
    let folder = sandbox.path("usb/arenas");
    let arena = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let object = fs::read_dir(arena).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&object).unwrap();
    write_at(&object, 9_000, b"damage");
    assert_eq!(sandbox.run(["verify", "--replica", "usb", "--data"]).code, Some(5));
    let damaged = ("usb".to_owned(), false, false, true);
    assert_eq!(copies(&sandbox), [vec![damaged.clone()]]);
    assert!(sandbox.ok(["snapshots"]).contains("usb (damaged)"));
    sandbox.ok(["replicate", "usb"]);
    assert_eq!(copies(&sandbox), [vec![damaged]], "an upload does not look at it");
    fs::write(&object, whole).unwrap();
    sandbox.ok(["verify", "--replica", "usb", "--data"]);
    assert_eq!(copies(&sandbox), [vec![("usb".to_owned(), true, true, false)]]);
}

/// A key that may not read replicates, and knows no snapshots.
#[test]
fn what_cannot_be_known_is_not_claimed() {
    let mut sandbox = Sandbox::encrypted();
    sandbox.add_limited_keys();
    take(&sandbox, 1);
    let key = sandbox.key().map(Into::into);
    sandbox.set_key(Some(sandbox.path("writer")));
    sandbox.ok(["replicate", "usb"]);
    sandbox.set_key(key);
    assert_eq!(copies(&sandbox), [vec![]]);
}
