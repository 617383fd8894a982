//! The real program is killed at random moments of its work, on a real file system.
//!
//! `VARVE_KILLS` sets the number of kills, and `VARVE_SEED` the random choices. The moments also
//! depend on the machine.
#![allow(clippy::disallowed_methods, reason = "waits for a moment, and stops in good time")]
#![allow(clippy::print_stderr, reason = "says what was done")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::crash_runs::{ARENAS_OF_A_PROOF, Dice, Kind, Ordeal, Tally, asked_for, reported_snapshot, seed};
use crate::sandbox::Sandbox;

/// The default number of kills for each kind of source. With this default, a test stops after
/// `TIME_MAX`.
const KILLS: u64 = 120;
const TIME_MAX: Duration = Duration::from_secs(40);

const INIT: [&str; 3] = ["init", "--arena-size", "1M"];

/// The moment at which the program is killed.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// At this time after its start.
    After(Duration),
    /// At this time after the store has this many arenas.
    Arenas(u64, Duration),
    /// At this time after it has reported its snapshot.
    Reported(Duration),
    /// As soon as a file exists that is to replace another.
    Successor,
}

impl Moment {
    /// `usual` is the duration of an undisturbed run, and `arenas` the number of arenas before it.
    /// With `aim_late`, half of the kills come when much data is kept. Left to chance, one of fifty
    /// tests would have no such kill.
    fn draw(dice: &mut Dice, usual: Duration, arenas: u64, aim_late: bool) -> Self {
        let mut soon =
            |most: Duration| Duration::from_nanos(dice.below(u64::try_from(most.as_nanos()).unwrap().max(1)));
        let (early, late, shortly) = (soon(usual), soon(usual / 6), soon(usual / 20));
        if aim_late && dice.percent(50) {
            return Self::Arenas(arenas + ARENAS_OF_A_PROOF, shortly);
        }
        match dice.below(10) {
            0..=4 => Self::After(early),
            5 | 6 => Self::Arenas(arenas + 1 + dice.below(4), late),
            7 | 8 => Self::Reported(shortly),
            _ => Self::Successor,
        }
    }
}

/// The output of a killed run, and a flag that it ended before the kill.
struct Killed {
    output: String,
    was_done: bool,
}

/// Starts a command and kills it at its moment.
fn kill_at(mut command: Command, store: &Path, moment: Moment) -> Killed {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    match moment {
        Moment::After(time) => sleep(time),
        Moment::Arenas(count, then) => {
            wait_until(&mut child, Duration::from_micros(100), || {
                fs::read_dir(store.join("arenas")).is_ok_and(|all| all.count() as u64 >= count)
            });
            sleep(then);
        }
        Moment::Reported(then) => {
            stdout.read_line(&mut output).unwrap();
            sleep(then);
        }
        Moment::Successor => wait_until(&mut child, Duration::ZERO, || {
            ["index/newest.new", "index/checkpoint.new"].iter().any(|file| store.join(file).exists())
        }),
    }
    // A process that ended before the kill must have succeeded.
    let ended = child.try_wait().unwrap();
    if ended.is_none() {
        child.kill().unwrap();
    }
    stdout.read_to_string(&mut output).unwrap();
    let status = child.wait().unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(status.success() || status.code().is_none(), "{output}{stderr}");
    Killed { output, was_done: status.success() }
}

/// Waits until `seen` returns true, or the program has ended.
fn wait_until(child: &mut Child, pause: Duration, mut seen: impl FnMut() -> bool) {
    while !seen() && child.try_wait().unwrap().is_none() {
        sleep(pause);
    }
}

/// The names and lengths of a store's arenas, which show how far a killed run had come.
#[derive(PartialEq, Eq)]
struct Look {
    arenas: Vec<(String, u64)>,
}

impl Look {
    fn at(store: &Path) -> Self {
        let Ok(listed) = fs::read_dir(store.join("arenas")) else { return Self { arenas: Vec::new() } };
        let mut arenas: Vec<_> = listed
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.metadata().unwrap().len()))
            .collect();
        arenas.sort();
        Self { arenas }
    }
}

/// Returns the step of the program at which it was killed.
fn phase(ordeal: &Ordeal, before: &Look, killed: &Killed) -> &'static str {
    let store = ordeal.sandbox.store();
    let now = Look::at(store);
    if store.join("index/checkpoint.new").exists() {
        "while the checkpoint was written"
    } else if store.join("index/newest.new").exists() {
        "while the end of the log was noted"
    } else if reported_snapshot(&killed.output).is_some() {
        "closing, after the snapshot was reported"
    } else if now == *before {
        "before anything was written"
    } else if ordeal.unreported() > 0 {
        "after the snapshot was finished, before it was reported"
    } else if now.arenas.iter().any(|(_, length)| *length < 256) {
        "while an arena was begun"
    } else if now.arenas.len() > before.arenas.len() + 1 {
        "writing, some arenas later"
    } else {
        "writing, in its first arenas"
    }
}

/// Kills snapshots of one kind of source, again and again.
fn kill_snapshots(kind: Kind) {
    let seed = seed() + kind as u64;
    let wanted = asked_for("VARVE_KILLS");
    let started = Instant::now();
    let mut tally = Tally::default();
    let (mut lives, mut finished, mut proofs) = (0, 0, 0);
    let goes_on = |tally: &Tally| match wanted {
        Some(wanted) => tally.total() < wanted,
        None => tally.total() < KILLS && started.elapsed() < TIME_MAX,
    };
    while goes_on(&tally) {
        let mut ordeal = Ordeal::new(kind, seed + 1000 * lives, None);
        lives += 1;
        ordeal.sandbox.ok(ordeal.init());
        let mut usual = Duration::from_millis(150);
        while goes_on(&tally) && !ordeal.is_old() {
            let arenas = ordeal.arena_count();
            let aim_late = proofs + ordeal.proofs == 0;
            let moment = Moment::draw(&mut ordeal.dice, usual, arenas, aim_late);
            let situation =
                format!("seed {seed}, life {lives}, {:?}, kill {}, {moment:?}", ordeal.init(), tally.total());
            let before = Look::at(ordeal.sandbox.store());
            ordeal.begin();
            let mut command = ordeal.sandbox.command();
            command.args(ordeal.snapshot());
            let killed = kill_at(command, ordeal.sandbox.store(), moment);
            if killed.was_done {
                finished += 1;
            } else {
                tally.add(phase(&ordeal, &before, &killed));
            }
            if let Some(snapshot) = reported_snapshot(&killed.output) {
                ordeal.note_done(&snapshot);
            }
            if ordeal.dice.percent(20) {
                // The next run is killed too, before anybody has read the store.
                continue;
            }
            let reads_first = ordeal.dice.percent(70);
            if reads_first {
                ordeal.reads_well(&situation);
            }
            let begun = Instant::now();
            ordeal.goes_on(&situation);
            usual = (usual + begun.elapsed()) / 2;
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
        "{} kills of snapshots of {kind:?}s in {lives} stores, {elapsed:.0} s, seed {seed}; {proofs} times much was kept; \
         {finished} runs were done before they could be killed",
        tally.total()
    ));
    assert!(
        proofs > 0 || tally.total() < 60,
        "no kill came late enough to show that nothing is stored twice"
    );
}

#[test]
fn killed_snapshots_of_images_cost_nothing_that_was_done() {
    kill_snapshots(Kind::Image);
}

#[test]
fn killed_snapshots_of_folders_cost_nothing_that_was_done() {
    kill_snapshots(Kind::Folder);
}

/// The store has so many blocks that each session writes a checkpoint, if there is none.
#[test]
fn a_killed_checkpoint_is_written_by_the_next_session() {
    let kills = asked_for("VARVE_KILLS").unwrap_or(KILLS).div_ceil(60);
    let sandbox = Sandbox::made_with(&["--plaintext", "--block-size", "512"]);
    let mut image: Vec<u8> = (0..102_000_u32).flat_map(|n| format!("{n:0512}").into_bytes()).collect();
    let path = sandbox.path("disk.img");
    fs::write(&path, &image).unwrap();
    sandbox.ok(["snapshot", "--as", "image", path.to_str().unwrap()]);
    let checkpoint = sandbox.store().join("index/checkpoint");
    assert!(checkpoint.exists(), "the store is too small to have a checkpoint");
    let mut dice = Dice::new(seed());
    let mut tally = Tally::default();
    while tally.total() < kills {
        fs::remove_file(&checkpoint).unwrap();
        image[dice.index(1 << 20)] ^= 1;
        fs::write(&path, &image).unwrap();
        let mut command = sandbox.command();
        command.args(["--json", "snapshot", "--as", "image", path.to_str().unwrap()]);
        let killed = kill_at(command, sandbox.store(), Moment::Successor);
        let unfinished = sandbox.store().join("index/checkpoint.new").exists();
        tally.add(match (killed.was_done, unfinished) {
            (true, _) => "was done before it could be killed",
            (false, true) => "while the checkpoint was written",
            (false, false) => "after the checkpoint was written",
        });
        sandbox.ok(["snapshot", "--as", "image", path.to_str().unwrap()]);
        assert!(checkpoint.exists(), "the session after a kill writes the checkpoint");
        assert!(!sandbox.store().join("index/checkpoint.new").exists());
    }
    let restored = sandbox.path("back");
    sandbox.ok(["restore", "disk.img", restored.to_str().unwrap()]);
    assert!(fs::read(&restored).unwrap() == image, "other bytes");
    tally.print(&format!("{} kills at a checkpoint, seed {}", tally.total(), seed()));
}

#[test]
fn a_killed_init_leaves_no_store_or_a_whole_one() {
    let kills = asked_for("VARVE_KILLS").unwrap_or(KILLS);
    let mut dice = Dice::new(seed());
    let mut tally = Tally::default();
    let undisturbed = Instant::now();
    Sandbox::empty().ok(INIT);
    let usual = undisturbed.elapsed();
    while tally.total() < kills {
        let sandbox = Sandbox::empty();
        let time = Duration::from_nanos(dice.below(u64::try_from(usual.as_nanos()).unwrap()));
        let situation = format!("seed {}, kill {}, after {time:?}", seed(), tally.total());
        let mut command = sandbox.command();
        command.args(INIT);
        kill_at(command, sandbox.store(), Moment::After(time));
        let there = |file: &str| sandbox.store().join(file).exists();
        tally.add(match () {
            () if there("config.toml") => "a whole store",
            () if there("config.toml.new") || there("FORMAT.md") => "all but its configuration",
            () if there("keys") => "keys",
            () => "nothing",
        });
        if there("config.toml") {
            sandbox.ok(["verify"]);
        } else {
            let said = sandbox.fails(10, ["verify"]);
            assert!(said.contains("not a store"), "{situation}: {said}");
            let run = sandbox.run(INIT);
            assert_eq!(run.code, Some(0), "{situation}: {}", run.stderr);
        }
        let file = sandbox.path("file");
        fs::write(&file, "Dear archive,\n").unwrap();
        sandbox.ok(["snapshot", file.to_str().unwrap()]);
        assert_eq!(sandbox.ok(["cat", "file"]), "Dear archive,\n", "{situation}");
    }
    tally.print(&format!("{} kills of init, seed {}; each has left", tally.total(), seed()));
}
