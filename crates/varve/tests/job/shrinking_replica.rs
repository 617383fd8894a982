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

/// The length of the replica's files in bytes.
fn replica_bytes(sandbox: &Sandbox) -> u64 {
    let folders = fs::read_dir(sandbox.path("replica/arenas")).unwrap();
    let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

/// A store with a replica which has the earlier generations of arenas that `gc` has written anew.
/// Each arena has contents of several nights, and every second night is forgotten.
fn with_superseded() -> Sandbox {
    let sandbox = Sandbox::encrypted();
    for night in 0..NIGHTS {
        take(&sandbox, night, NIGHT_BYTES);
    }
    sandbox.ok(["replicate", "replica"]);
    let ids = sandbox.ids();
    let words = ["forget", "--undo-days", "0"].into_iter();
    sandbox.ok(words.chain(ids.iter().step_by(2).map(String::as_str)));
    sandbox.ok(["gc"]);
    sandbox.ok(["replicate", "replica"]);
    sandbox
}

const NIGHTS: u64 = 8;
const NIGHT_BYTES: usize = 300_000;

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

#[test]
fn a_replica_shrinks_once_its_present_generations_are_proven() {
    let sandbox = with_superseded();
    let (all, all_bytes) = (folders(&sandbox), replica_bytes(&sandbox));

    let dry = sandbox.json(["replicate", "replica", "--drop-superseded", "--dry-run"]).pop().unwrap();
    let doomed: BTreeSet<String> = dry["objects"].as_array().unwrap().iter().map(folder_of).collect();
    assert!(!doomed.is_empty() && doomed.iter().all(|folder| folder.ends_with(".0")), "{doomed:?}");
    assert_eq!(folders(&sandbox), all, "a dry run removes nothing");

    let waiting = sandbox.ok(["replicate", "replica", "--drop-superseded=30d"]);
    assert!(waiting.contains("not old enough, the first until "), "{waiting}");
    assert_eq!(folders(&sandbox), all);

    let removed = sandbox.json(["replicate", "replica", "--drop-superseded"]).pop().unwrap();
    assert_eq!((&removed["removed"], &removed["freed_bytes"]), (&dry["objects"], &dry["bytes"]));
    let left: BTreeSet<String> = all.difference(&doomed).cloned().collect();
    assert_eq!(folders(&sandbox), left);
    assert_eq!(replica_bytes(&sandbox), all_bytes - dry["bytes"].as_u64().unwrap());
    assert!(replica_bytes(&sandbox) < all_bytes * 3 / 4, "{} of {all_bytes}", replica_bytes(&sandbox));

    let again = sandbox.ok(["replicate", "replica", "--drop-superseded"]);
    assert!(again.contains("no earlier generation to remove from "), "{again}");
    sandbox.ok(["verify", "--replica", "replica", "--data"]);
    assert!(read_elsewhere(&sandbox).stdout == noise(NIGHTS - 1, NIGHT_BYTES));
    sandbox.ok(["clone", "replica", "clone"]);
}

fn folder_of(object: &serde_json::Value) -> String {
    object.as_str().unwrap().split('/').nth(1).unwrap().to_owned()
}

#[test]
fn an_earlier_generation_stays_beside_a_present_one_that_is_damaged() {
    let sandbox = with_superseded();
    let all = folders(&sandbox);
    let rewritten = all.iter().filter(|folder| folder.ends_with(".1"));
    let objects =
        rewritten.flat_map(|folder| fs::read_dir(sandbox.path("replica/arenas").join(folder)).unwrap());
    let objects = objects.map(|object| object.unwrap().path());
    let largest = objects.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    assert!(largest.metadata().unwrap().len() > 200_000, "an arena keeps clumps");
    let rewritten = largest.parent().unwrap().file_name().unwrap().to_str().unwrap();
    let mut contents = fs::read(&largest).unwrap();
    let middle = contents.len() / 2;
    contents[middle] ^= 1;
    fs::write(&largest, &contents).unwrap();

    let run = sandbox.run(["replicate", "replica", "--drop-superseded"]);
    assert_eq!(run.code, Some(5), "{}", run.stderr);
    assert!(run.stderr.contains("keeps its earlier generations at "), "{}", run.stderr);
    let arena = rewritten.split('.').next().unwrap();
    assert!(folders(&sandbox).contains(&format!("{arena}.0")));

    let name = format!("arenas/{rewritten}/{}", largest.file_name().unwrap().to_str().unwrap());
    sandbox.ok(["replicate", "replica", "--replace", &name, "--drop-superseded"]);
    assert!(!folders(&sandbox).contains(&format!("{arena}.0")));
    sandbox.ok(["verify", "--replica", "replica", "--data"]);
}

/// The earlier generations may be the only good copy of what the store has lost.
#[test]
fn nothing_is_removed_for_a_damaged_store() {
    let sandbox = with_superseded();
    let all = folders(&sandbox);
    let damaged = sandbox.arenas().remove(0);
    let mut contents = fs::read(&damaged).unwrap();
    contents[40] ^= 1;
    fs::write(&damaged, contents).unwrap();
    let run = sandbox.run(["replicate", "replica", "--drop-superseded"]);
    assert_eq!(run.code, Some(5), "{}", run.stderr);
    assert_eq!(folders(&sandbox), all, "{}", run.stderr);
}
