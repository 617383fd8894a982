//! The real program writes a store in many runs, and is stopped before the end of many of them.
//! This module checks the store after each stop.
//!
//! These must hold: the store opens by itself; every reported snapshot restores to the byte;
//! `verify` finds no damage; the next snapshot succeeds; and it does not store again the blocks
//! that a page had named before the stop.
#![allow(dead_code, reason = "each test uses its own part of this")]
#![allow(clippy::print_stderr, reason = "says what was done")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;

use serde_json::Value;

use crate::sandbox::{Sandbox, manifest, noise, write_at};

const BLOCK_BYTES: usize = 4096;
const IMAGE_BYTES: usize = 8 << 20;
/// Sizes of arenas, blocks and clumps that give several arenas per sync, several pages per arena,
/// and many clumps per page.
const SIZES: [[&str; 6]; 3] = [
    ["--arena-size", "1M", "--block-size", "4K", "--clump-size", "1M"],
    ["--arena-size", "1M", "--block-size", "4K", "--clump-size", "16K"],
    ["--arena-size", "4M", "--block-size", "1K", "--clump-size", "16K"],
];
/// A run that is stopped after it has begun this many arenas leaves so much data that storing it
/// again would be noticed. A full arena with a successor has a page for all of it, so at least two
/// of these arenas are kept.
pub const ARENAS_OF_A_PROOF: u64 = 3;
/// Upper bound on the snapshots of one store. At the bound a fresh store replaces it, so that the
/// checks stay quick.
const SNAPSHOTS_MAX: usize = 12;

/// Returns the number in an environment variable, if it is set.
pub fn asked_for(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")))
}

/// Returns the seed of all random choices: `VARVE_SEED`, or a fixed number.
pub fn seed() -> u64 {
    asked_for("VARVE_SEED").unwrap_or(20_260_501)
}

/// Pseudo-random numbers from a seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns any number (Sebastiano Vigna's splitmix64).
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }
}

/// The kind of the archived source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Image,
    Folder,
}

/// All content that a restore must bring back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Image(Vec<u8>),
    Folder(BTreeMap<PathBuf, String>),
}

/// A store, its source, and the snapshots that the program has reported.
pub struct Ordeal {
    pub sandbox: Sandbox,
    pub dice: Dice,
    kind: Kind,
    sizes: [&'static str; 6],
    /// Finished snapshots, with their ids.
    done: Vec<(String, Content)>,
    /// Snapshots that were begun of the source in its present state.
    attempts: u64,
    /// Snapshots that were begun since the last undisturbed one, and the new bytes in the source
    /// since then.
    begun: u64,
    changed_bytes: u64,
    ordered_bytes: u64,
    ordered_arenas: u64,
    /// True if one of these snapshots was finished.
    is_done: bool,
    /// Counts stops that left so much data that storing it again would have been noticed.
    pub proofs: u64,
}

/// Returns the line of the output that reports a finished snapshot, if the line is complete. Errors
/// are lines of the same output.
pub fn reported_snapshot(output: &str) -> Option<Value> {
    let whole = output.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str::<Value>(line).unwrap()).find(|line| line["type"] == "snapshot")
}

impl Ordeal {
    /// `store` is the place of the store, if it is not beside its source.
    pub fn new(kind: Kind, seed: u64, store: Option<PathBuf>) -> Self {
        let mut sandbox = Sandbox::empty();
        if let Some(store) = store {
            sandbox.set_store(store);
        }
        let mut dice = Dice::new(seed);
        let sizes = dice.choose(&SIZES);
        let mut ordeal = Self {
            sandbox,
            dice,
            kind,
            sizes,
            done: Vec::new(),
            attempts: 0,
            begun: 0,
            changed_bytes: 0,
            ordered_bytes: 0,
            ordered_arenas: 0,
            is_done: false,
            proofs: 0,
        };
        match kind {
            Kind::Image => {
                let image = File::create(ordeal.source()).unwrap();
                image.set_len(IMAGE_BYTES as u64).unwrap();
            }
            Kind::Folder => {
                for folder in ["", "a", "a/b", "c"] {
                    fs::create_dir(ordeal.source().join(folder)).unwrap();
                }
            }
        }
        ordeal.change();
        ordeal
    }

    /// Returns the arguments that make the store.
    pub fn init(&self) -> Vec<&'static str> {
        [&["init"], &self.sizes[..]].concat()
    }

    pub fn source(&self) -> PathBuf {
        self.sandbox.path(match self.kind {
            Kind::Image => "disk.img",
            Kind::Folder => "folder",
        })
    }

    /// Returns the arguments that take a snapshot of the source.
    pub fn snapshot(&self) -> Vec<String> {
        let form = match self.kind {
            Kind::Image => &["--as", "image"][..],
            Kind::Folder => &[],
        };
        let source = self.source();
        let args = [&["--json", "snapshot", source.to_str().unwrap(), "--name", "it"], form].concat();
        args.into_iter().map(String::from).collect()
    }

    pub fn is_old(&self) -> bool {
        self.done.len() >= SNAPSHOTS_MAX
    }

    pub fn done_count(&self) -> usize {
        self.done.len()
    }

    /// Simulates a day: much of the source changes, and its new bytes were nowhere before.
    pub fn change(&mut self) {
        self.attempts = 0;
        match self.kind {
            Kind::Image => self.change_image(),
            Kind::Folder => self.change_folder(),
        }
    }

    fn change_image(&mut self) {
        for _ in 0..1 + self.dice.index(4) {
            let blocks = IMAGE_BYTES / BLOCK_BYTES;
            let first = self.dice.index(blocks);
            let count = (1 + self.dice.index(400)).min(blocks - first);
            let bytes = noise(self.dice.number(), count * BLOCK_BYTES);
            write_at(&self.source(), (first * BLOCK_BYTES) as u64, &bytes);
            self.changed_bytes += bytes.len() as u64;
        }
    }

    fn change_folder(&mut self) {
        for _ in 0..2 + self.dice.index(12) {
            let file = format!("{}/{}", self.dice.choose(&[".", "a", "a/b", "c"]), self.dice.index(9));
            let path = self.source().join(file);
            if self.dice.percent(15) {
                drop(fs::remove_file(path));
                continue;
            }
            let length = 1 + self.dice.index(600_000);
            fs::write(path, noise(self.dice.number(), length)).unwrap();
            self.changed_bytes += length as u64;
        }
    }

    pub fn content(&self) -> Content {
        match self.kind {
            Kind::Image => Content::Image(fs::read(self.source()).unwrap()),
            Kind::Folder => Content::Folder(manifest(&self.source())),
        }
    }

    /// Notes that a snapshot is about to be begun.
    pub fn begin(&mut self) {
        self.begun += 1;
        self.attempts += 1;
    }

    /// Notes that a snapshot of the present source was reported as finished, with this line of the
    /// output.
    pub fn note_done(&mut self, snapshot: &Value) {
        let content = self.content();
        self.done.push((snapshot["id"].as_str().unwrap().into(), content));
        self.is_done = true;
    }

    /// Returns the number of snapshots in the store that were never reported.
    pub fn unreported(&self) -> usize {
        self.sandbox.ids().iter().filter(|id| self.done.iter().all(|(done, _)| done != *id)).count()
    }

    /// Checks the store after a stop, with read access only.
    pub fn reads_well(&mut self, situation: &str) {
        let ids = self.sandbox.ids();
        for (id, _) in &self.done {
            assert!(ids.contains(id), "{situation}: {id} was reported as done, and is not there");
        }
        let unreported: Vec<_> =
            ids.into_iter().filter(|id| self.done.iter().all(|(done, _)| done != id)).collect();
        assert!(unreported.len() as u64 <= self.attempts, "{situation}: {unreported:?}");
        for id in unreported {
            // The snapshot was finished, and only its report was cut off.
            let content = self.content();
            self.done.push((id, content));
            self.is_done = true;
            self.restores(self.done.len() - 1, situation);
        }
        let words: &[&str] = if self.dice.percent(30) { &["verify", "--data"] } else { &["verify"] };
        self.verifies(words, situation);
        if let Some(last) = self.done.len().checked_sub(1) {
            self.restores(last, situation);
            let other = self.dice.index(self.done.len());
            self.restores(other, situation);
        }
    }

    fn verifies(&self, words: &[&str], situation: &str) {
        let run = self.sandbox.run(words);
        assert_eq!(run.code, Some(0), "{situation}: {}{}", run.text(), run.stderr);
    }

    fn restores(&self, which: usize, situation: &str) {
        let (id, content) = &self.done[which];
        let back = self.sandbox.path("back");
        let run = self.sandbox.run(["restore", id, back.to_str().unwrap()]);
        assert_eq!(run.code, Some(0), "{situation}: {}", run.stderr);
        match content {
            Content::Image(bytes) => {
                assert!(fs::read(&back).unwrap() == *bytes, "{situation}: {id} has other bytes");
                fs::remove_file(back).unwrap();
            }
            Content::Folder(files) => {
                assert_eq!(&manifest(&back), files, "{situation}: {id}");
                fs::remove_dir_all(back).unwrap();
            }
        }
    }

    /// Takes the next snapshot after a stop: it must succeed, and store nothing a second time.
    pub fn goes_on(&mut self, situation: &str) {
        if !self.is_done && self.arena_count() >= self.ordered_arenas + ARENAS_OF_A_PROOF {
            self.proofs += 1;
        }
        self.begin();
        let run = self.sandbox.run(self.snapshot());
        assert_eq!(run.code, Some(0), "{situation}: {}", run.stderr);
        self.note_done(&reported_snapshot(&run.text()).unwrap());
        let grown = self.log_bytes() - self.ordered_bytes;
        // Each session adds pointer blocks, its catalog, its pages, and the seals of its arenas.
        let allowed = self.changed_bytes + self.begun * (self.changed_bytes / 8 + (64 << 10));
        assert!(
            grown <= allowed,
            "{situation}: {} bytes are new, and the log has grown by {grown}: more than {allowed}",
            self.changed_bytes
        );
        (self.begun, self.changed_bytes, self.is_done) = (0, 0, false);
        (self.ordered_bytes, self.ordered_arenas) = (self.log_bytes(), self.arena_count());
    }

    /// Checks a store for the last time: every byte is read, and every snapshot restored.
    pub fn ends_well(&self, situation: &str) {
        self.verifies(&["verify", "--data"], situation);
        (0..self.done.len()).for_each(|which| self.restores(which, situation));
    }

    fn log_bytes(&self) -> u64 {
        self.sandbox.arenas().iter().map(|arena| fs::metadata(arena).unwrap().len()).sum()
    }

    pub fn arena_count(&self) -> u64 {
        match fs::read_dir(self.sandbox.store().join("arenas")) {
            Ok(listed) => listed.count() as u64,
            Err(_) => 0,
        }
    }
}

/// Counts of events by name.
#[derive(Default)]
pub struct Tally(BTreeMap<String, u64>);

impl Tally {
    pub fn add(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_default() += 1;
    }

    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    pub fn print(&self, title: &str) {
        eprintln!("{title}");
        for (what, count) in &self.0 {
            eprintln!("  {count:5}  {what}");
        }
    }
}
