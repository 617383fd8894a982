//! The power is cut at random moments while the real program writes. Its file system then forgets
//! unsynced data.
//!
//! `VARVE_CUTS` sets the number of cuts, and `VARVE_SEED` the random choices. The tests need FUSE:
//! as root, or with `fusermount3`.
#![allow(clippy::disallowed_methods, reason = "stops in good time, and waits for a program to end")]
#![allow(clippy::print_stderr, reason = "says what was done and what was skipped")]

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::crash_runs::{Dice, Kind, Ordeal, Tally, asked_for, reported_snapshot, seed};
use crate::forgetful_disk::disk::{Fate, Names};
use crate::forgetful_disk::machine::Machine;
use crate::sandbox::Run;

/// The default number of cuts for each kind of source. With this default, a test stops after
/// `TIME_MAX`.
const CUTS: u64 = 80;
const TIME_MAX: Duration = Duration::from_secs(40);
/// Time-out for a program after a cut. A longer run counts as a hang.
const END_MAX: Duration = Duration::from_secs(60);

const NOTHING_KEPT: Fate = Fate { data_percent: 0, piece_sectors: 1, names: Names::None };
const ALL_KEPT: Fate = Fate { data_percent: 100, piece_sectors: 1, names: Names::First(100) };

/// Runs the program until it ends. Without its disk it ends by itself; after a true power cut it
/// would not get so far.
fn run_until_cut<S: AsRef<OsStr>>(ordeal: &Ordeal, words: impl IntoIterator<Item = S>) -> Run {
    let mut child =
        ordeal.sandbox.command().args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < END_MAX, "the program hangs");
        std::thread::sleep(Duration::from_micros(500));
    }
    Run::new(child.wait_with_output().unwrap())
}

fn cut_snapshots(kind: Kind, test: &str) {
    let seed = seed() + kind as u64;
    let wanted = asked_for("VARVE_CUTS");
    let started = Instant::now();
    let mut tally = Tally::default();
    let (mut lives, mut finished, mut proofs) = (0, 0, 0);
    let goes_on = |tally: &Tally| match wanted {
        Some(wanted) => tally.total() < wanted,
        None => tally.total() < CUTS && started.elapsed() < TIME_MAX,
    };
    while goes_on(&tally) {
        let Some(mut machine) = Machine::start(test) else { return };
        let mut ordeal = Ordeal::new(kind, seed + 1000 * lives, Some(machine.path("store")));
        let mut dice = Dice::new(seed + 1000 * lives + 1);
        lives += 1;
        ordeal.sandbox.ok(ordeal.init());
        machine.restart(NOTHING_KEPT, &mut dice);
        let mut usual = 60;
        while goes_on(&tally) && !ordeal.is_old() {
            let after = dice.below(usual * 11 / 10);
            let fate = Fate::draw(&mut dice);
            let situation = format!(
                "seed {seed}, life {lives}, cut {}, after {after} of {usual}, {fate:?}",
                tally.total()
            );
            machine.disk.get().cut_after(after, dice.percent(50));
            ordeal.begin();
            let run = run_until_cut(&ordeal, ordeal.snapshot());
            let output = run.text();
            let was_cut = machine.disk.get().is_off();
            assert!(run.code == Some(0) || was_cut, "{situation}: {}", run.stderr);
            let reported = reported_snapshot(&output);
            match (was_cut, reported.is_some()) {
                (true, true) => tally.add("closing, after the snapshot was reported"),
                (true, false) => tally.add(format!("{} of ten parts through", after * 10 / usual)),
                (false, _) => finished += 1,
            }
            if let Some(snapshot) = &reported {
                ordeal.note_done(snapshot);
            }
            machine.restart(fate, &mut dice);
            if dice.percent(20) {
                // The power is cut again, before anybody has read the store.
                continue;
            }
            let reads_first = dice.percent(70);
            if reads_first {
                ordeal.reads_well(&situation);
            }
            let before = machine.disk.get().operations();
            ordeal.goes_on(&situation);
            usual = (usual + machine.disk.get().operations() - before) / 2;
            if !reads_first {
                ordeal.reads_well(&situation);
            }
            ordeal.change();
        }
        ordeal.ends_well(&format!("seed {seed}, life {lives}"));
        proofs += ordeal.proofs;
    }
    let elapsed = started.elapsed().as_secs_f64();
    tally.print(&format!(
        "{} power cuts in snapshots of {kind:?}s in {lives} stores, {elapsed:.0} s, seed {seed}; {proofs} times much was kept; \
         {finished} runs were done before",
        tally.total()
    ));
}

#[test]
fn power_cuts_in_snapshots_of_images_cost_nothing_that_was_done() {
    cut_snapshots(Kind::Image, "power cuts in snapshots of images");
}

#[test]
fn power_cuts_in_snapshots_of_folders_cost_nothing_that_was_done() {
    cut_snapshots(Kind::Folder, "power cuts in snapshots of folders");
}

#[test]
fn a_power_cut_in_init_leaves_no_store_or_a_whole_one() {
    let mut dice = Dice::new(seed());
    let mut tally = Tally::default();
    for after in 0.. {
        let Some(mut machine) = Machine::start("power cuts in init") else { return };
        let ordeal = Ordeal::new(Kind::Image, seed() + after, Some(machine.path("store")));
        // Half of the cuts keep nothing, because a reported step must not survive only by luck.
        let fate = if dice.percent(50) { NOTHING_KEPT } else { Fate::draw(&mut dice) };
        let situation = format!("seed {}, after {after}, {fate:?}", seed());
        machine.disk.get().cut_after(after, dice.percent(50));
        let was_done = run_until_cut(&ordeal, ordeal.init()).code == Some(0);
        let was_cut = machine.disk.get().is_off();
        machine.restart(fate, &mut dice);
        let is_there = machine.path("store/config.toml").exists();
        assert!(is_there || !was_done, "{situation}: what was made is gone");
        if is_there {
            ordeal.sandbox.ok(["verify"]);
        } else {
            let said = ordeal.sandbox.fails(10, ["verify"]);
            assert!(said.contains("not a store"), "{situation}: {said}");
            let run = ordeal.sandbox.run(ordeal.init());
            assert_eq!(run.code, Some(0), "{situation}: {}", run.stderr);
        }
        ordeal.sandbox.ok(ordeal.snapshot());
        tally.add(if is_there { "a whole store" } else { "no store" });
        if !was_cut {
            break;
        }
    }
    tally.print(&format!("{} power cuts in init, one after each step; each has left", tally.total()));
}

// ---- the file system itself

fn write(path: &Path, bytes: &[u8]) -> File {
    let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn sync_folder(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

#[test]
fn what_was_not_synced_is_forgotten() {
    let Some(mut machine) = Machine::start("the forgetful file system") else { return };
    let mut dice = Dice::new(1);
    write(&machine.path("lost"), b"never synced");
    assert_eq!(fs::read(machine.path("lost")).unwrap(), b"never synced");
    write(&machine.path("kept"), b"synced").sync_data().unwrap();
    write(&machine.path("nameless"), b"synced, but not its folder").sync_all().unwrap();
    fs::rename(machine.path("kept"), machine.path("kept for good")).unwrap();
    drop(machine.path("nameless"));
    sync_folder(&machine.path(""));
    write(&machine.path("later"), b"synced, but not its folder").sync_all().unwrap();
    let mut kept = OpenOptions::new().append(true).open(machine.path("kept for good")).unwrap();
    kept.write_all(b", and more").unwrap();
    drop(kept);
    machine.restart(NOTHING_KEPT, &mut dice);
    assert_eq!(fs::read(machine.path("kept for good")).unwrap(), b"synced");
    assert_eq!(fs::read(machine.path("lost")).unwrap(), b"", "its name was synced, its bytes were not");
    assert_eq!(fs::read(machine.path("nameless")).unwrap(), b"synced, but not its folder");
    assert!(!machine.path("later").exists());
}

#[test]
fn unsynced_changes_of_names_are_undone() {
    let Some(mut machine) = Machine::start("the forgetful file system's names") else { return };
    let mut dice = Dice::new(1);
    for name in ["old", "removed", "replaced", "replacement", "shortened"] {
        write(&machine.path(name), name.as_bytes()).sync_all().unwrap();
    }
    sync_folder(&machine.path(""));
    fs::rename(machine.path("old"), machine.path("new")).unwrap();
    fs::remove_file(machine.path("removed")).unwrap();
    fs::rename(machine.path("replacement"), machine.path("replaced")).unwrap();
    fs::create_dir(machine.path("folder")).unwrap();
    OpenOptions::new().write(true).open(machine.path("shortened")).unwrap().set_len(2).unwrap();
    assert_eq!(fs::read(machine.path("shortened")).unwrap(), b"sh");
    machine.restart(NOTHING_KEPT, &mut dice);
    for name in ["old", "removed", "replaced", "replacement", "shortened"] {
        assert_eq!(fs::read(machine.path(name)).unwrap(), name.as_bytes());
    }
    assert!(!machine.path("new").exists() && !machine.path("folder").exists());

    fs::rename(machine.path("old"), machine.path("new")).unwrap();
    machine.restart(ALL_KEPT, &mut dice);
    assert!(machine.path("new").exists() && !machine.path("old").exists());
}

#[test]
fn a_write_is_torn_between_sectors() {
    let Some(mut machine) = Machine::start("the forgetful file system's sectors") else { return };
    let mut dice = Dice::new(1);
    let (mut kept, mut lost) = (0, 0);
    for round in 0..20 {
        let name = format!("file {round}");
        drop(write(&machine.path(&name), &[]));
        sync_folder(&machine.path(""));
        write(&machine.path(&name), &[7; 100 * 512 + 100]);
        machine.restart(Fate { data_percent: 50, ..NOTHING_KEPT }, &mut dice);
        for sector in fs::read(machine.path(&name)).unwrap().chunks(512) {
            match sector {
                _ if sector.iter().all(|byte| *byte == 7) => kept += 1,
                _ if sector.iter().all(|byte| *byte == 0) => lost += 1,
                _ => panic!("half a sector"),
            }
        }
    }
    assert!(kept > 800 && lost > 800, "{kept} and {lost}");
}

#[test]
fn the_power_fails_when_it_is_told_to() {
    let Some(mut machine) = Machine::start("the forgetful file system's power") else { return };
    for done in [false, true] {
        let name = format!("file {done}");
        machine.disk.get().cut_after(2, done);
        let file = write(&machine.path(&name), b"contents");
        let synced = file.sync_all();
        assert!(synced.is_err(), "the creation and the write were the last that it did");
        drop(file);
        assert!(fs::write(machine.path("another"), "x").is_err());
        machine.restart(Fate { names: Names::First(100), ..NOTHING_KEPT }, &mut Dice::new(1));
        let expected: &[u8] = if done { b"contents" } else { b"" };
        assert_eq!(fs::read(machine.path(&name)).unwrap(), expected);
    }
}

#[test]
fn one_at_a_time_holds_the_lock() {
    let Some(machine) = Machine::start("the forgetful file system's locks") else { return };
    let lock = |file: &File| rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    let (one, other) = (write(&machine.path("lock"), b""), write(&machine.path("lock"), b""));
    lock(&one).unwrap();
    assert!(lock(&other).is_err());
    // The program ends its locks in this way too. A close would leave the lock with a child process
    // that another test is just starting.
    rustix::fs::flock(&one, rustix::fs::FlockOperation::Unlock).unwrap();
    lock(&other).unwrap();
}
