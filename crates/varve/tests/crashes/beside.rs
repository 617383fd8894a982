//! The real program works beside itself: snapshots, collections, readers, a mount and checks use
//! one store at the same time. The store is sound, so nobody may report damage,
//! fail, or note anything. Then one byte is changed, and every checker names it.
//!
//! `VARVE_BESIDE_SECONDS` sets the time for each kind of store, and `VARVE_SEED` the random
//! choices. The moments also depend on the machine.
#![allow(clippy::disallowed_methods, reason = "several processes at a time, in good time")]
#![allow(clippy::print_stderr, reason = "says what was done")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::Signal;

use crate::crash_runs::{Dice, asked_for, seed};
use crate::mount_point::{Mount, can_mount};
use crate::sandbox::{Run, Sandbox, json_lines, noise, write_at};

const SECONDS: u64 = 3;
const IMAGE_BYTES: usize = 1_500_000;
/// The newest snapshots that are not forgotten.
const KEPT: usize = 3;

/// A store at work.
struct Work<'a> {
    sandbox: &'a Sandbox,
    /// The snapshots that are never forgotten: their ids and contents.
    kept: Vec<(String, Vec<u8>)>,
    is_over: AtomicBool,
    reports: Mutex<Vec<String>>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Work<'_> {
    fn run(&self, words: &[&str]) -> Run {
        let mut command = self.sandbox.command();
        Run::new(command.args(["--wait", "60s"]).args(words).stdin(Stdio::null()).output().unwrap())
    }

    /// Runs a command that must succeed and say nothing of damage.
    fn must(&self, what: &'static str, words: &[&str]) -> Run {
        let run = self.run(words);
        *self.counts.lock().entry(what).or_default() += 1;
        let said = format!("{}{}", run.stderr, if what == "cat" { String::new() } else { run.text() });
        // The records for programs name the damage that is not there.
        let said = said.replace("\"damaged\":false", "");
        let is_alarm =
            ["damage", "BROKEN", "cannot be read", "is lost", "lost:"].iter().any(|word| said.contains(word));
        if run.code != Some(0) || is_alarm {
            self.report(format!("{words:?}: status {:?}: {}", run.code, first_lines(&said)));
        }
        run
    }

    fn report(&self, report: String) {
        self.reports.lock().push(report);
    }

    fn until_over(&self, mut step: impl FnMut()) {
        while !self.is_over.load(Ordering::Relaxed) && self.reports.lock().is_empty() {
            step();
        }
    }

    fn take_snapshots(&self, mut dice: Dice) {
        let image = self.sandbox.path("image");
        let mut night = 0;
        self.until_over(|| {
            night += 1;
            for _ in 0..6 {
                write_at(&image, dice.below(IMAGE_BYTES as u64 - 9000), &noise(dice.number(), 9000));
            }
            self.must(
                "snapshot",
                &["snapshot", &self.sandbox.arg("image"), "--as", "image", "--name", "night"],
            );
            if night % 3 == 0 {
                let listed = json_lines(&self.must("snapshots", &["--json", "snapshots"]).text());
                let nights = listed.iter().filter(|snapshot| snapshot["name"] == "night");
                let ids: Vec<_> = nights.filter_map(|snapshot| snapshot["id"].as_str()).collect();
                let mut words = vec!["forget", "--undo-days", "0"];
                words.extend(&ids[..ids.len().saturating_sub(KEPT)]);
                if words.len() > 3 {
                    self.must("forget", &words);
                }
            }
        });
    }

    fn read(&self, mut dice: Dice) {
        self.until_over(|| match dice.below(8) {
            0 => drop(self.must("verify", &["verify"])),
            1 => drop(self.must("verify --data", &["verify", "--data"])),
            2 => drop(self.must("gc --dry-run", &["gc", "--dry-run", "--least-dead", "0%"])),
            3 => drop(self.must("stats --arenas", &["stats", "--arenas"])),
            4 => drop(self.must("stats --snapshots", &["stats", "--snapshots"])),
            5 => drop(self.must("snapshots", &["snapshots"])),
            _ => {
                let (id, contents) = &self.kept[dice.index(self.kept.len())];
                if self.must("cat", &["cat", id]).stdout != *contents {
                    self.report(format!("{id} reads back otherwise"));
                }
            }
        });
    }

    /// Reads a kept image in a mount, in pieces.
    fn read_mount(&self, mount: &Mount, mut dice: Dice) {
        let (id, contents) = &self.kept[0];
        let folder = mount.path(&format!("by-id/{id}"));
        self.until_over(|| {
            *self.counts.lock().entry("read in a mount").or_default() += 1;
            let place = dice.index(contents.len() - 70_000);
            let mut piece = vec![0; 70_000];
            let read = fs::metadata(&folder).and_then(|found| {
                let file = if found.is_dir() {
                    fs::read_dir(&folder)?.next().unwrap()?.path()
                } else {
                    folder.clone()
                };
                File::open(file)?.read_exact_at(&mut piece, place as u64)
            });
            match read {
                Err(error) => self.report(format!("the mount: {error}")),
                Ok(()) if piece != contents[place..place + piece.len()] => {
                    self.report("the mount reads back otherwise".into());
                }
                Ok(()) => {}
            }
            std::thread::park_timeout(Duration::from_millis(10));
        });
    }
}

fn first_lines(text: &str) -> String {
    text.lines().take(4).collect::<Vec<_>>().join(" | ")
}

/// All of it at the same time, in a store of this kind. Nobody reports anything.
fn nobody_reports(kind: &[&str]) {
    let (seed, began) = (seed(), Instant::now());
    let time = Duration::from_secs(asked_for("VARVE_BESIDE_SECONDS").unwrap_or(SECONDS));
    let sandbox = Sandbox::made_with(&[&["--clump-size", "64K"], kind].concat());
    let image = sandbox.path("image");
    let mut kept = Vec::new();
    for number in 0..2 {
        let contents = noise(seed.wrapping_add(number), IMAGE_BYTES);
        fs::write(&image, &contents).unwrap();
        let words = ["snapshot", &sandbox.arg("image"), "--as", "image", "--name", "kept"];
        let taken = sandbox.json(words).remove(0);
        kept.push((taken["id"].as_str().unwrap().to_owned(), contents));
    }
    let work = Work {
        sandbox: &sandbox,
        kept,
        is_over: AtomicBool::new(false),
        reports: Mutex::default(),
        counts: Mutex::default(),
    };
    let mount = can_mount("readers of a mount beside a collector").then(|| {
        let at = sandbox.path("days");
        let mut command = sandbox.command();
        command.arg("mount").arg(&at);
        Mount::start(command, &at)
    });
    let dice = |number: u64| Dice::new(seed.wrapping_add(number));
    std::thread::scope(|scope| {
        scope.spawn(|| work.take_snapshots(dice(100)));
        scope.spawn(|| {
            work.until_over(|| drop(work.must("gc", &["gc", "--least-dead", "0%"])));
        });
        scope.spawn(|| {
            let copy = sandbox.arg("copy");
            work.until_over(|| drop(work.must("replicate", &["replicate", &copy])));
        });
        for number in 0..2 {
            let (work, dice) = (&work, dice(200 + number));
            scope.spawn(move || work.read(dice));
        }
        if let Some(mount) = &mount {
            scope.spawn(|| work.read_mount(mount, dice(300)));
        }
        while began.elapsed() < time && work.reports.lock().is_empty() {
            std::thread::park_timeout(Duration::from_millis(50));
        }
        work.is_over.store(true, Ordering::Relaxed);
    });
    if let Some(mount) = mount {
        mount.end(Signal::TERM);
    }
    eprintln!("seed {seed}, {kind:?}: {:?}", work.counts.lock());
    // Liveness: once nobody else works, everybody calls the store sound.
    work.must("gc", &["gc", "--least-dead", "0%"]);
    work.must("verify --data", &["verify", "--data"]);
    for note in ["damaged", "lost"] {
        let noted = fs::read(sandbox.store().join("index").join(note)).unwrap_or_default();
        assert!(noted.len() <= 140, "seed {seed}: index/{note} has {} bytes", noted.len());
    }
    let reports = work.reports.lock().clone();
    assert!(reports.is_empty(), "seed {seed}, {kind:?}: {reports:#?}");
    every_checker_names_a_changed_byte(&work, seed);
}

/// Changes one byte of each arena in turn, at a few places in the middle of its data. A byte
/// between two records belongs to nothing.
fn every_checker_names_a_changed_byte(work: &Work<'_>, seed: u64) {
    let (mut named, mut between, mut dice) = (0, 0, Dice::new(seed));
    for arena in work.sandbox.arenas() {
        let whole = fs::read(&arena).unwrap();
        if whole.len() < 300_000 {
            continue;
        }
        for _ in 0..2 {
            let place = 100_000 + dice.index(100_000);
            write_at(&arena, place as u64, &[whole[place] ^ 1]);
            let verified = work.run(&["verify", "--data"]);
            let context = format!("seed {seed}, {} at {place}: {}", arena.display(), verified.text());
            if verified.code == Some(0) {
                between += 1;
            } else {
                assert_eq!(verified.code, Some(5), "{context}");
                let number: u64 = arena.file_stem().unwrap().to_str().unwrap().parse().unwrap();
                assert!(verified.text().contains(&format!("arena {number},")), "{context}");
                let mut codes = Vec::new();
                for (id, contents) in &work.kept {
                    let read = work.run(&["cat", id]);
                    assert!(read.code != Some(0) || read.stdout == *contents, "wrong bytes: {context}");
                    codes.push(read.code);
                }
                assert_eq!(
                    codes.contains(&Some(5)),
                    verified.text().contains(" kept"),
                    "{codes:?}, {context}"
                );
                named += 1;
            }
            write_at(&arena, place as u64, &whole[place..=place]);
        }
    }
    eprintln!("seed {seed}: {named} changed bytes are named, {between} are between records");
    assert!(named > 0 && between <= named, "seed {seed}: {named} named, {between} between records");
    let verified = work.run(&["verify", "--data"]);
    assert_eq!(verified.code, Some(0), "seed {seed}: {}", verified.text());
}

#[test]
fn nobody_reports_damage_that_is_none() {
    nobody_reports(&[]);
}

#[test]
fn nobody_reports_damage_that_is_none_with_an_index_on_disk() {
    nobody_reports(&["--index", "disk", "--index-memory", "1M", "--index-size", "1000"]);
}

#[test]
fn nobody_reports_damage_that_is_none_by_value() {
    nobody_reports(&["--compare", "value"]);
}

#[test]
fn nobody_reports_damage_that_is_none_with_deltas() {
    nobody_reports(&["--deltas"]);
}

#[test]
fn nobody_reports_damage_that_is_none_with_parity() {
    nobody_reports(&["--parity", "10%", "--plaintext"]);
}
