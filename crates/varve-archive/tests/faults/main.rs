//! Runs the whole engine on the simulated disk of `varve-sim`, together with a model of all
//! acknowledged data.
//!
//! New here? Start with `every_call.rs`: the same idea in one short file, with power cuts only.
//!
//! A seed draws a [`Schedule`](schedule::Schedule): a list of actions on an archive, and the faults
//! with their calls. [`run`](run::run) executes it and checks that the archive keeps its promises:
//!
//! - Everything that a sync has acknowledged exists after every power cut, with the bytes that were
//!   put. So does every snapshot that was reported.
//! - No snapshot is incomplete: an interrupted one is absent or complete.
//! - Wrong bytes are never returned as data. A read that fails or returns wrong data gives an error
//!   or the right bytes, and the right bytes when it is repeated.
//! - Opening after a crash needs no other step, and succeeds as soon as the disk works.
//! - A full disk loses nothing, and the archive works again once there is space.
//! - After a failed write or sync the store refuses more until it is opened again.
//! - `verify` finds nothing on a disk that has only crashed. Nothing panics.
//! - A lost block that was acknowledged is reported by every `verify` until it is stored again,
//!   even if no catalog leads to it.
//! - A forgotten snapshot is whole as long as it can come back. One that is gone is never listed
//!   again, unless the catalog is lost. A hold stays until it is released.
//! - A collection frees nothing that a snapshot needs, whatever happens between its batches.
//!
//! **Replaying.** A failure prints its seed and the smallest schedule that still fails.
//! `VARVE_FAULT_SEED=81172 cargo test -p varve-archive --test faults replay` runs that seed again,
//! call by call as before. With `VARVE_FAULT_TELL=1` the smallest failing schedule prints each of
//! its events. A seed that failed once is added to `failed-seeds.txt`, whose seeds run first.
//!
//! **Adding an action**, such as a step of maintenance: add a variant of
//! [`Action`](schedule::Action), a line in `Action::draw` with its frequency, and an arm in
//! `Case::act` (`run.rs`). The arm makes the call, and passes an error to `Case::excused`, which
//! fails the run unless a fault has struck. Then it adds the acknowledged data to the model, and
//! `Case::check_all` checks it like all other data. A new action changes the draws of all seeds:
//! note in `failed-seeds.txt` the seeds that are older, or keep their schedules as tests.
#![allow(clippy::cast_possible_truncation)]

mod action;
mod beside;
mod case;
mod contents;
mod every_call;
mod every_call_of_gc;
mod folder;
mod model;
mod quiet;
mod report;
mod run;
mod schedule;
mod session;
mod shrink;
mod steps;
mod target;

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use report::Report;
use run::run;
use schedule::{Schedule, Seed};

const FAILED_SEEDS: &str = include_str!("failed-seeds.txt");

/// The number of seeds that a plain `cargo test` runs.
const FEW_SEEDS: u64 = 40;

fn failed_seeds() -> Vec<Seed> {
    let lines = FAILED_SEEDS.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    lines.filter(|line| !line.is_empty()).map(|line| line.parse().expect("a seed a line")).collect()
}

fn setting<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number is wanted")))
}

/// Runs a seed, and fails with its smallest schedule if it fails.
fn must_survive(seed: Seed) -> report::Outcome {
    let schedule = Schedule::draw(seed);
    match quiet::run(&schedule) {
        Ok(outcome) => outcome,
        Err(failure) => panic!("{}", shrink::explain(&schedule, &failure)),
    }
}

#[test]
fn seeds_that_failed_once() {
    for seed in failed_seeds() {
        must_survive(seed);
    }
}

fn few_seeds() -> Vec<Seed> {
    let each = |number| [Seed::new(number), Seed::old(number).with_disk_index()];
    let some = |number| {
        let seed = Seed::new(number);
        let by_value = [seed.by_value(), Seed::new(number + 1).with_disk_index().by_value()];
        let by_others = [seed.filled_by_others(), Seed::short(number).filled_by_others()];
        let collecting = [seed, Seed::short(number), Seed::new(number + 1).with_disk_index(), by_value[0]];
        let with_deltas =
            [seed.with_deltas(), seed.collecting().with_deltas(), seed.putting_back().with_deltas()];
        by_value.into_iter().chain(by_others).chain(collecting.map(Seed::collecting)).chain(with_deltas)
    };
    (0..FEW_SEEDS).flat_map(each).chain((0..FEW_SEEDS).step_by(2).flat_map(some)).collect()
}

#[test]
fn a_few_seeds() {
    few_seeds().into_iter().for_each(|seed| drop(must_survive(seed)));
}

/// The few seeds cover every combination of score, comparison, encryption and index.
#[test]
fn the_few_seeds_have_stores_of_every_kind() {
    let kind_of = |seed| {
        let config = Schedule::draw(seed).config();
        format!("{:?} {:?} {:?} {:?}", config.score, config.compare, config.encryption, config.index)
    };
    let kinds: BTreeSet<_> = few_seeds().into_iter().map(kind_of).collect();
    // SHA-1 exists only for comparing by hash.
    assert_eq!(kinds.len(), (2 + 1) * 2 * 2, "{kinds:#?}");
}

#[test]
fn a_seed_replays_call_by_call() {
    let on_disk = [5, 6].map(|number| Seed::new(number).with_disk_index());
    let by_value = [Seed::new(9).by_value(), Seed::new(10).with_disk_index().by_value()];
    let collecting = [11, 12].map(|number| Seed::new(number).collecting());
    let plain = [3, 4, 5, 6, 7, 8].map(Seed::new);
    for seed in plain.into_iter().chain(on_disk).chain(by_value).chain(collecting) {
        let once = run(&Schedule::draw(seed)).unwrap();
        let again = run(&Schedule::draw(seed)).unwrap();
        assert!(once.tally.operations > 50);
        assert_eq!(once, again, "seed {seed}");
    }
}

/// The model detects a disk that pretends to sync. On such a disk the engine loses acknowledged
/// data, and the run reports the loss with a short schedule.
#[test]
fn a_disk_that_only_pretends_to_sync_is_caught() {
    let schedules =
        (0..50).map(|number| Schedule { pretends_to_sync: true, ..Schedule::draw(Seed::new(number)) });
    let (schedule, failure) = schedules
        .filter_map(|schedule| quiet::run(&schedule).err().map(|failure| (schedule, failure)))
        .find(|(_, failure)| failure.is_loss)
        .expect("acknowledged data was lost, and nobody noticed");
    let (smallest, _) = shrink::shrink(&schedule, failure);
    assert!(smallest.steps.len() <= 4, "{smallest:#?}");
}

/// Replays `VARVE_FAULT_SEED`. Without it the test does nothing.
#[test]
fn replay() {
    if let Some(seed) = setting::<Seed>("VARVE_FAULT_SEED") {
        println!("{}", Schedule::draw(seed));
        must_survive(seed);
        println!("seed {seed} survives");
    }
}

/// Runs as many seeds as time allows. `VARVE_FAULT_SECONDS` and `VARVE_FAULT_SEEDS` bound the fresh
/// ones, and `VARVE_FAULT_FIRST` is the first of them. Seeds that failed once run before all
/// others. `VARVE_FAULT_SHORT` short seeds follow, then seeds without damage and replicas:
/// `VARVE_FAULT_DISK` with the index on disk, and `VARVE_FAULT_OLD` with it in memory. One of every
/// `VARVE_FAULT_VALUE` fresh seeds also runs by value, each fourth seed with the index on disk. One
/// of every `VARVE_FAULT_FRESH_DISK` fresh seeds has its index on disk. One of every
/// `VARVE_FAULT_BACK` fresh seeds runs once more with files that are put back to an earlier state,
/// one of every `VARVE_FAULT_VAC` once more on a store that is filled without snapshots, and one of
/// every `VARVE_FAULT_GC` once more with snapshots that are forgotten and collected. One of every
/// `VARVE_FAULT_DELTA` fresh seeds runs once more on a store that makes deltas, and so does each of
/// them that is collected.
/// `VARVE_FAULT_HANDS` is the number of the engine's threads; with more than one, a seed does not
/// decide everything. Prints the table of faults survived.
#[test]
#[ignore = "takes minutes: script/test faults, script/soak MINUTES"]
#[expect(
    clippy::disallowed_methods,
    reason = "seeds are independent: each runs on one thread, several at a time; bounded by time"
)]
fn many_seeds() {
    let began = std::time::Instant::now();
    let seconds = setting("VARVE_FAULT_SECONDS").unwrap_or(100);
    let first: u64 = setting("VARVE_FAULT_FIRST").unwrap_or(0);
    let count = setting("VARVE_FAULT_SEEDS").unwrap_or(u64::MAX);
    let each_on_disk = setting::<u64>("VARVE_FAULT_FRESH_DISK");
    let is_on_disk = |seed: &Seed| each_on_disk.is_some_and(|each| seed.number.is_multiple_of(each.max(1)));
    let of_index = |seed: Seed| if is_on_disk(&seed) { seed.with_disk_index() } else { seed };
    let fresh = (first..first.saturating_add(count)).map(Seed::new).map(of_index);
    let each_puts_back = setting::<u64>("VARVE_FAULT_BACK");
    let each_by_value = setting::<u64>("VARVE_FAULT_VALUE");
    let each_collects = setting::<u64>("VARVE_FAULT_GC");
    let each_makes_deltas = setting::<u64>("VARVE_FAULT_DELTA");
    let each_of_others = setting::<u64>("VARVE_FAULT_VAC");
    let and_by_value = |seed: Seed| {
        let is_one = each_by_value.is_some_and(|each| seed.number.is_multiple_of(each.max(1)));
        let by_value = if seed.number.is_multiple_of(4) { seed.with_disk_index() } else { seed }.by_value();
        let puts_back = each_puts_back.is_some_and(|each| seed.number.is_multiple_of(each.max(1)));
        let back = puts_back.then_some(if is_one { by_value } else { seed }.putting_back());
        let of_others = each_of_others.is_some_and(|each| seed.number.is_multiple_of(each.max(1)));
        let of_others = of_others.then(|| seed.filled_by_others());
        let collects = each_collects.is_some_and(|each| seed.number.is_multiple_of(each.max(1)));
        let collecting = collects.then_some(if is_one { by_value } else { seed }.collecting());
        let deltas = each_makes_deltas.is_some_and(|each| seed.number.is_multiple_of(each.max(1)));
        let with_deltas = deltas.then(|| seed.with_deltas());
        let collecting_deltas = (deltas && collects).then(|| seed.collecting().with_deltas());
        let plain = [Some(seed), is_one.then_some(by_value), back, of_others, collecting];
        plain.into_iter().chain([with_deltas, collecting_deltas]).flatten()
    };
    let fresh = fresh.flat_map(and_by_value);
    let counted = |name: &str| 0..setting::<u64>(name).unwrap_or(0);
    let short = counted("VARVE_FAULT_SHORT").map(|number| match number % 4 {
        1 => Seed::short(number).with_disk_index(),
        3 => Seed::short(number).by_value(),
        _ => Seed::short(number),
    });
    let on_disk = counted("VARVE_FAULT_DISK").map(|number| Seed::old(number).with_disk_index());
    let old = counted("VARVE_FAULT_OLD").map(Seed::old);
    let seeds = Mutex::new(failed_seeds().into_iter().chain(fresh).chain(short).chain(on_disk).chain(old));
    let report = Mutex::new(Report::default());
    let failures = Mutex::new(Vec::new());
    let (is_over, told) = (AtomicBool::new(false), AtomicU64::new(0));
    let work = || {
        while !is_over.load(Ordering::Relaxed) && began.elapsed().as_secs() < seconds {
            let Some(seed) = seeds.lock().next() else { return };
            let schedule = Schedule::draw(seed);
            let outcome = quiet::run(&schedule);
            let mut report = report.lock();
            report.add(outcome.as_ref());
            drop(report);
            if let Err(failure) = outcome {
                is_over.store(true, Ordering::Relaxed);
                failures.lock().push((schedule, failure));
            }
            let minutes = began.elapsed().as_secs() / 60;
            if told.fetch_max(minutes, Ordering::Relaxed) < minutes {
                println!("after {minutes} minutes: seed {seed}");
            }
        }
    };
    let width = setting("VARVE_FAULT_THREADS")
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    std::thread::scope(|scope| (0..width).for_each(|_| drop(scope.spawn(work))));
    let report = report.into_inner();
    println!("\n{}", report.text(began.elapsed()));
    let failures = failures.into_inner();
    if let Some((schedule, failure)) = failures.first() {
        panic!("{}", shrink::explain(schedule, failure));
    }
}
