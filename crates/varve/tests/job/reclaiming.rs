//! `gc`: the space of forgotten snapshots comes back, and nothing else goes.

use std::fs;

use crate::sandbox::{Sandbox, noise};

const MIB: usize = 1 << 20;

fn take(sandbox: &Sandbox, seed: u64, bytes: usize) {
    fs::write(sandbox.path("new"), noise(seed, bytes)).unwrap();
    sandbox.ok(["snapshot", "new", "--as", "file", "--name", "night"]);
}

fn arena_bytes(sandbox: &Sandbox) -> u64 {
    sandbox.arenas().iter().map(|file| file.metadata().unwrap().len()).sum()
}

#[test]
fn space_comes_back_once_undo_has_ended() {
    let sandbox = Sandbox::encrypted();
    for night in 1..=3 {
        take(&sandbox, night, 4 * MIB);
    }
    let full = arena_bytes(&sandbox);
    let ids = sandbox.ids();
    let nothing = sandbox.json(["gc", "--dry-run"]).remove(0);
    assert_eq!(nothing["type"], "gc_plan");
    assert!(nothing["freed_bytes"].as_u64().unwrap() < 100_000, "old catalogs at most: {nothing}");

    // The trash keeps everything.
    sandbox.ok(["forget", &ids[0]]);
    let kept = sandbox.json(["gc"]).remove(0);
    assert_eq!(kept["in_trash"], 1);
    assert!(kept["freed_bytes"].as_u64().unwrap() < 100_000, "{kept}");
    sandbox.ok(["forget", "--undo", &ids[0]]);

    sandbox.ok(["forget", "--undo-days", "0", &ids[0], &ids[1]]);
    let before = arena_bytes(&sandbox);
    let planned = sandbox.json(["gc", "--dry-run"]).remove(0);
    assert_eq!(planned["gone"].as_array().unwrap().len(), 2);
    assert_eq!(arena_bytes(&sandbox), before, "a dry run changes nothing");
    let done = sandbox.json(["gc"]).pop().unwrap();
    assert_eq!(done["type"], "gc_done");
    assert!(arena_bytes(&sandbox) < full / 2, "{} of {full} bytes are left", arena_bytes(&sandbox));
    assert_eq!(sandbox.run(["cat", "night"]).stdout, noise(3, 4 * MIB));
    assert_eq!(sandbox.json(["verify", "--data"])[0]["snapshots"], 1);
    assert!(sandbox.fails(1, ["forget", "--undo", &ids[0]]).contains("trash"));

    // A second run finds nothing, and the store goes on as before.
    let again = sandbox.json(["gc"]).remove(0);
    assert!(again["freed_bytes"].as_u64().unwrap() < 100_000, "{again}");
    take(&sandbox, 1, 4 * MIB);
    assert_eq!(sandbox.run(["cat", "night"]).stdout, noise(1, 4 * MIB), "dropped data is stored again");
    assert_eq!(sandbox.json(["verify", "--data"])[0]["snapshots"], 2);
}

#[test]
fn gc_asks_for_foreign_roots_where_there_may_be_some() {
    let sandbox = Sandbox::made_with(&["--plaintext", "--score", "sha1"]);
    take(&sandbox, 1, MIB);
    assert!(sandbox.fails(1, ["gc", "--dry-run"]).contains("--no-foreign-roots"));
    sandbox.ok(["gc", "--no-foreign-roots"]);
    sandbox.ok(["gc", "--keep-all-roots"]);
}
