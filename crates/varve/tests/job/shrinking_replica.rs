//! The replica of a store whose arenas `gc` has written anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::sandbox::{Run, Sandbox, copy_folder, noise};

const MIB: usize = 1 << 20;

fn take(sandbox: &Sandbox, seed: u64, bytes: usize) {
    fs::write(sandbox.path("new"), noise(seed, bytes)).unwrap();
    sandbox.ok(["snapshot", "new", "--as", "file", "--name", "night"]);
}

/// Forgets all snapshots except the newest, for good, and frees their space.
fn forget_all_but_newest(sandbox: &Sandbox) {
    let ids = sandbox.ids();
    let (_, old) = ids.split_last().unwrap();
    let words = ["forget", "--undo-days", "0"].into_iter().chain(old.iter().map(String::as_str));
    sandbox.ok(words);
    sandbox.ok(["gc"]);
}

/// Reads the replica as another machine does, which has the key, but not the store. Its cache
/// remembers what it has seen there.
fn read_elsewhere(sandbox: &Sandbox) -> Run {
    let mut command = sandbox.command_at(Path::new("replica"));
    command.env("XDG_CACHE_HOME", sandbox.path("cache of machine b"));
    Run::new(command.args(["cat", "night"]).output().unwrap())
}

/// The arenas at the replica, each with its generations: the names of their folders.
fn folders(sandbox: &Sandbox) -> BTreeSet<String> {
    let entries = fs::read_dir(sandbox.path("replica/arenas")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_machine_that_has_seen_the_replica_before_gc_reads_it_without_complaint() {
    let sandbox = Sandbox::encrypted();
    take(&sandbox, 1, 3 * MIB);
    sandbox.ok(["replicate", "replica"]);
    let seen = read_elsewhere(&sandbox);
    assert_eq!((seen.stdout, seen.stderr.as_str()), (noise(1, 3 * MIB), ""));
    let last = folders(&sandbox).pop_last().unwrap();
    copy_folder(&sandbox.path("replica"), &sandbox.path("older"));

    take(&sandbox, 2, 3 * MIB);
    forget_all_but_newest(&sandbox);
    sandbox.ok(["replicate", "replica"]);
    let rewritten = last.replace(".0", ".1");
    assert!(folders(&sandbox).contains(&rewritten), "the arena with the page that was seen is rewritten");
    for _ in 0..2 {
        let read = read_elsewhere(&sandbox);
        assert_eq!((read.stdout, read.stderr.as_str()), (noise(2, 3 * MIB), ""));
    }

    // Somebody puts the older copy back.
    fs::remove_dir_all(sandbox.path("replica")).unwrap();
    fs::rename(sandbox.path("older"), sandbox.path("replica")).unwrap();
    let older = read_elsewhere(&sandbox);
    assert!(older.stderr.contains("is older than when this machine last saw it"), "{}", older.stderr);
}
