//! `varve gc` is killed at random moments of its work, on a real file system. No listed snapshot
//! loses a byte, and the next run goes on.
//!
//! `VARVE_KILLS` sets the number of kills, and `VARVE_SEED` the random choices.
#![allow(clippy::disallowed_methods, reason = "waits for a moment, and stops in good time")]
#![allow(clippy::print_stderr, reason = "says what was done")]

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::crash_runs::{Dice, asked_for, seed};
use crate::sandbox::{Sandbox, noise};

const KILLS: u64 = 60;
/// A test without `VARVE_KILLS` stops after this time.
const TIME_MAX: Duration = Duration::from_secs(12);
/// The snapshots that are kept. Each has contents of its own, and some that all have.
const KEPT: usize = 4;
const OWN_BYTES: usize = 700_000;

/// A store whose snapshots are forgotten, and what each listed one contains.
struct ForgettingStore {
    sandbox: Sandbox,
    contents: BTreeMap<String, Vec<u8>>,
    taken_count: u64,
}

impl ForgettingStore {
    fn new() -> Self {
        let sandbox = Sandbox::encrypted();
        Self { sandbox, contents: BTreeMap::new(), taken_count: 0 }
    }

    fn take(&mut self) {
        self.taken_count += 1;
        let contents = [noise(0, 300_000), noise(self.taken_count, OWN_BYTES)].concat();
        fs::write(self.sandbox.path("new"), &contents).unwrap();
        let words = ["snapshot", "new", "--as", "image", "--name", "night"];
        let taken = self.sandbox.json(words).remove(0);
        self.contents.insert(taken["id"].as_str().unwrap().to_owned(), contents);
    }

    /// Forgets all but the newest snapshots for good.
    fn forget(&mut self) {
        let ids = self.sandbox.ids();
        let forgotten = &ids[..ids.len().saturating_sub(KEPT)];
        let words = ["forget", "--undo-days", "0"].into_iter();
        self.sandbox.ok(words.chain(forgotten.iter().map(String::as_str)));
        self.contents.retain(|id, _| !forgotten.contains(id));
    }

    /// Runs `gc`, and kills it after this time. Returns false if it had ended before that.
    fn kill_gc_after(&self, time: Duration) -> bool {
        let mut command = self.sandbox.command();
        command.args(["gc", "--least-dead", "0%"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        sleep(time);
        let is_running = child.try_wait().unwrap().is_none();
        if is_running {
            child.kill().unwrap();
        }
        let output = child.wait_with_output().unwrap();
        let has_succeeded = output.status.success() || output.status.code().is_none();
        assert!(has_succeeded, "{}", String::from_utf8_lossy(&output.stderr));
        is_running
    }

    /// Every listed snapshot reads back as it was taken.
    fn check(&self, seed: u64) {
        let mut listed = self.sandbox.ids();
        listed.sort();
        let expected: Vec<_> = self.contents.keys().cloned().collect();
        assert_eq!(listed, expected, "seed {seed}");
        for (id, contents) in &self.contents {
            let read = self.sandbox.run(["cat", id]);
            assert!(read.code == Some(0) && read.stdout == *contents, "seed {seed}, {id}: {}", read.stderr);
        }
    }
}

#[test]
fn a_killed_gc_loses_nothing_and_the_next_goes_on() {
    let (seed, kills) = (seed(), asked_for("VARVE_KILLS"));
    let (mut dice, began) = (Dice::new(seed), Instant::now());
    let mut store = ForgettingStore::new();
    (0..KEPT + 2).for_each(|_| store.take());
    store.forget();
    let undisturbed = Instant::now();
    store.sandbox.ok(["gc", "--least-dead", "0%"]);
    let usual = u64::try_from(undisturbed.elapsed().as_nanos()).unwrap();

    let (mut killed, mut ended) = (0, 0);
    while killed < kills.unwrap_or(KILLS) && (kills.is_some() || began.elapsed() < TIME_MAX) {
        (0..1 + dice.below(2)).for_each(|_| store.take());
        store.forget();
        match store.kill_gc_after(Duration::from_nanos(dice.below(usual))) {
            true => killed += 1,
            false => ended += 1,
        }
        store.check(seed);
        if dice.percent(30) {
            store.sandbox.ok(["gc", "--least-dead", "0%"]);
            store.sandbox.ok(["verify", "--data"]);
        }
    }
    store.sandbox.ok(["gc", "--least-dead", "0%"]);
    store.sandbox.ok(["verify", "--data"]);
    store.check(seed);
    let plan = store.sandbox.json(["gc", "--dry-run"]).remove(0);
    let (bytes, dead) = (plan["bytes"].as_u64().unwrap(), plan["dead_bytes"].as_u64().unwrap());
    eprintln!(
        "seed {seed}: {killed} kills, {ended} ends before the kill; at the end {dead} of {bytes} bytes are dead"
    );
    assert!(killed >= kills.unwrap_or(5), "seed {seed}: only {killed} kills");
    assert!(dead < bytes / 2, "seed {seed}: {dead} of {bytes} bytes are still dead");
}
