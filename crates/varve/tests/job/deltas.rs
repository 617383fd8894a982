//! `init --deltas`: blocks that differ little from the ones that they have replaced take little
//! space, wherever snapshots go.

use std::fs;

use crate::reclaiming::arena_bytes;
use crate::sandbox::{Sandbox, noise};

/// Smaller databases in folders are cut by content.
const BYTES: usize = 9 << 20;
const BLOCK_BYTES: usize = 16 << 10;

/// A database that no program can read, but that begins like one. Each day changes eight bytes of
/// every block.
fn database(day: u64) -> Vec<u8> {
    let mut bytes = noise(1, BYTES);
    bytes[..16].copy_from_slice(b"SQLite format 3\0");
    for block in bytes.chunks_mut(BLOCK_BYTES) {
        block[9000..9008].copy_from_slice(&day.to_le_bytes());
    }
    bytes
}

/// Takes snapshots of an image and of a folder with a database on some days. Returns the bytes that
/// the days after the first take.
fn take_days(sandbox: &Sandbox, days: u64) -> u64 {
    fs::create_dir_all(sandbox.path("home")).unwrap();
    let mut first = 0;
    for day in 1..=days {
        fs::write(sandbox.path("disk"), database(day)).unwrap();
        let mut other = database(day);
        other.reverse();
        other[..16].copy_from_slice(b"SQLite format 3\0");
        fs::write(sandbox.path("home/orders.sqlite"), other).unwrap();
        sandbox.ok(["snapshot", "disk", "--as", "image"]);
        sandbox.ok(["snapshot", "home"]);
        if day == 1 {
            first = arena_bytes(sandbox);
        }
    }
    arena_bytes(sandbox) - first
}

/// Checks every byte of the store, and the contents of the snapshots of some days.
fn shows(sandbox: &Sandbox, days: std::ops::RangeInclusive<u64>) {
    sandbox.ok(["verify", "--data"]);
    let listed = sandbox.json(["snapshots"]);
    let ids = |name: &str| -> Vec<String> {
        let of_name = listed.iter().filter(|snapshot| snapshot["name"] == name);
        of_name.map(|snapshot| snapshot["id"].as_str().unwrap().to_owned()).collect()
    };
    let count = usize::try_from(days.end() - days.start() + 1).unwrap();
    assert_eq!((ids("disk").len(), ids("home").len()), (count, count));
    for ((day, disk), home) in days.zip(ids("disk")).zip(ids("home")) {
        assert!(sandbox.run(["cat", &disk]).stdout == database(day), "day {day}");
        let found = sandbox.run(["cat", &format!("{home}:orders.sqlite")]).stdout;
        assert_eq!((found.len(), &found[..16]), (BYTES, &b"SQLite format 3\0"[..]));
        assert!(found.iter().skip(16).eq(database(day).iter().rev().skip(16)), "day {day}");
    }
}

#[test]
fn a_changed_block_takes_a_fraction_of_the_space() {
    let (with, without) =
        (Sandbox::made_with(&["--plaintext", "--deltas"]), Sandbox::made_with(&["--plaintext"]));
    let (small, large) = (take_days(&with, 3), take_days(&without, 3));
    assert!(large >= 4 * BYTES as u64, "without deltas each day takes all of it: {large} bytes");
    assert!(small * 10 < large, "{small} bytes instead of {large}");
    shows(&with, 1..=3);
    shows(&without, 1..=3);
}

#[test]
fn deltas_outlive_the_snapshot_of_their_bases() {
    let mut sandbox = Sandbox::made_with(&["--deltas"]);
    take_days(&sandbox, 4);
    // The bases of all deltas are blocks of the first day.
    let before = arena_bytes(&sandbox);
    let needs = sandbox.json(["stats", "--snapshots"]);
    for first in needs.iter().filter(|needs| needs["type"] == "snapshot_space").take(2) {
        let freed = first["freed_bytes"].as_u64().unwrap();
        assert!(freed < BYTES as u64 / 10, "later days need its blocks: {first}");
    }
    let sum = needs.iter().find(|needs| needs["type"] == "space_sum").unwrap();
    assert!(
        sum["deltas"].as_u64().unwrap() > 0 && sandbox.ok(["stats", "--snapshots"]).contains("as deltas")
    );
    for name in ["disk", "home"] {
        let listed = sandbox.json(["snapshots"]);
        let first = listed.iter().find(|snapshot| snapshot["name"] == name).unwrap()["id"].clone();
        sandbox.ok(["forget", "--undo-days", "0", first.as_str().unwrap()]);
    }
    sandbox.ok(["gc", "--least-dead", "0%"]);
    shows(&sandbox, 2..=4);
    assert!(arena_bytes(&sandbox) < before + (1 << 20), "nothing was stored twice");

    let replica = sandbox.arg("replica");
    sandbox.ok(["replicate", &replica]);
    sandbox.ok(["verify", "--replica", &replica, "--sample", "100%"]);
    let twin = sandbox.path("twin");
    sandbox.ok(["clone", &replica, twin.to_str().unwrap()]);
    sandbox.set_store(twin);
    shows(&sandbox, 2..=4);

    // A store without deltas gets whole blocks.
    let whole = Sandbox::made_with(&["--plaintext"]);
    let key = sandbox.key().unwrap().to_str().unwrap();
    let (from, to) = (sandbox.store().to_str().unwrap(), whole.store().to_str().unwrap());
    whole.ok(["copy", "--from-key-file", key, "--all", from, to]);
    shows(&whole, 2..=4);
}

#[test]
fn another_comparison_has_no_deltas() {
    let sandbox = Sandbox::empty();
    let refused = sandbox.fails(2, ["init", "--plaintext", "--deltas", "--compare", "value"]);
    assert!(refused.contains("--deltas"), "{refused}");
}
