//! A replayed collection beside a real one: `varve forget` and `varve gc` of a store, and
//! `varve-lab replay --keep` of the same store's trace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const DISK_BYTES: usize = 12 << 20;
const CHANGED_BYTES: usize = 64 << 10;
const DAYS: u64 = 5;
const ARENA_SIZE: &str = "4M";
/// The bytes that may be on the other side of the border of an arena: two blocks.
const BORDER_BYTES: i64 = 2 * (32 << 10);

/// Returns bytes that do not compress: xorshift64.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..bytes / 8).flat_map(|_| next()).collect()
}

/// Runs a program that prints a JSON object a line.
fn run(program: &Path, words: &[&str]) -> Vec<Value> {
    let done = Command::new(program).args(words).env_remove("VARVE_STORE").output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    let printed = String::from_utf8(done.stdout).unwrap();
    printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the difference between two counts of bytes.
fn bytes_between(found: &Value, expected: &Value) -> i64 {
    found.as_i64().unwrap() - expected.as_i64().unwrap()
}

/// The blocks do not compress, so the trace has their exact sizes. It has no blocks of structure,
/// which are some of the freed bytes. Workers of the real snapshots finish in an order of their
/// own, so some blocks at the border of two arenas are in the other one.
#[test]
fn a_replayed_forget_and_gc_agree_with_the_real_ones() {
    let lab = PathBuf::from(env!("CARGO_BIN_EXE_varve-lab"));
    let [varve, plan] = ["varve", "varve-plan"]
        .map(|name| lab.with_file_name(format!("{name}{}", std::env::consts::EXE_SUFFIX)));
    for program in [&varve, &plan] {
        if !program.exists() {
            eprintln!("skipped: {} is not built; `cargo build --workspace` builds it", program.display());
            return;
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (store, disk, trace) = (path("store"), path("disk"), path("store.vtrace"));
    let varve = |words: &[&str]| run(&varve, &[&["--json", "--store", &store][..], words].concat());
    varve(&["init", "--plaintext", "--arena-size", ARENA_SIZE]);
    let mut contents = noise(1, DISK_BYTES);
    for day in 1..=DAYS {
        for change in 0..16 {
            let number = day * 16 + change;
            let place =
                usize::try_from(number * 7919).unwrap() % (DISK_BYTES / CHANGED_BYTES) * CHANGED_BYTES;
            contents[place..place + CHANGED_BYTES].copy_from_slice(&noise(number, CHANGED_BYTES));
        }
        fs::write(&disk, &contents).unwrap();
        let time = format!("2026-05-0{day}T23:00:00Z");
        varve(&["snapshot", &disk, "--as", "image", "--name", "disk", "--time", &time]);
    }
    run(&plan, &["--json", "--store", &store, "trace", "from-store", "--read", &trace]);
    varve(&["forget", "--keep-last", "2", "--undo-days", "0", "--trust-clock"]);
    let collected = varve(&["gc", "--trust-clock", "--min-age", "0s"]);
    let real = collected.iter().find(|record| record["type"] == "gc_done").unwrap();

    let replayed = run(&lab, &["replay", &trace, "--arena-size", ARENA_SIZE, "--keep", "2"]);
    let simulated = &replayed.last().unwrap()["collected"];
    assert_eq!(simulated["replaced_arenas"], real["arenas"], "{simulated} {real}");
    assert!(real["arenas"].as_u64().unwrap() >= 3, "{real}");
    let written = bytes_between(&simulated["written_bytes"], &real["written_bytes"]);
    let freed = bytes_between(&simulated["freed_bytes"], &real["freed_bytes"]);
    let bound = real["arenas"].as_i64().unwrap() * BORDER_BYTES;
    assert!(written.abs() < bound, "{written}: {simulated} {real}");
    assert!(freed.abs() < bound, "{freed}: {simulated} {real}");
}
