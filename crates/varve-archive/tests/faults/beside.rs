//! Nobody reports damage in a sound store, whatever else works on it at the same time.
//!
//! Three processes use one disk: one takes and forgets snapshots, and opens and closes the store
//! for each; one collects, one arena in each batch; one opens, lists, reads, verifies, plans a
//! collection and measures. [`Turns`] cuts all of them into steps at each call to the disk, so that
//! an opening sees half a batch, and a verification sees an arena before and after it is replaced.
//! A seed decides the order, and replays it.
//!
//! Asked for is safety and liveness:
//!
//! 1. Every snapshot that is kept is listed and reads back as it was taken, also by a reader that
//!    was opened long before.
//! 2. No opening, verification, plan or measurement finds damage, and nothing is noted.
//! 3. Every process comes to its end. Then everybody calls the store sound, and the next
//!    collection completes.
//!
//! `VARVE_BESIDE_FIRST` and `VARVE_BESIDE_SEEDS` choose the seeds.

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use varve_archive::{
    Archive, CollectOptions, Collection, ForeignRoots, PriceFile, SnapshotId, SnapshotRequest, SpaceNeeds,
};
use varve_block::with_causes;
use varve_content::Progress;
use varve_content::image::ImageSource;
use varve_sim::{SeededDraw, SimDisk, TurnSchedule, Turns};
use varve_store::{PassphraseCost, Store, StoreAccess, StoreConfig};
use varve_upkeep::{Checker, FILTER_BYTES_DEFAULT, ReclaimBudget};
use varve_world::{Storage, Timestamp};

use crate::every_call_of_gc::{BLOCK_BYTES, StoreKind, image, image_of_deltas};
use crate::model::Taken;
use crate::session::{self, WRITER, complaints};

const KINDS: [StoreKind; 6] = [
    StoreKind::Plain,
    StoreKind::EncryptedWithParity,
    StoreKind::DiskIndex,
    StoreKind::ByValue,
    StoreKind::Sha1,
    StoreKind::Deltas,
];
/// The seeds of a plain `cargo test`.
const FEW_SEEDS: u64 = 24;
/// The snapshots that are there at the beginning.
const FIRST_COUNT: u64 = 5;
const NIGHT_COUNT: u64 = 6;
const COLLECTION_COUNT: u64 = 3;
const LOOK_COUNT: u64 = 8;
/// The most tries to get the lock of the writer. Each lets others go on.
const TRIES_MAX: u64 = 1_000_000;

/// Snapshots with these numbers are never forgotten.
fn is_kept(number: u64) -> bool {
    number.is_multiple_of(3)
}

/// One process: its view of the disk, and what it has found wrong.
struct Process<'a> {
    name: &'static str,
    storage: Arc<dyn Storage>,
    config: &'a StoreConfig,
    draw: SeededDraw,
    found: &'a Mutex<Vec<String>>,
}

impl Process<'_> {
    fn open(&mut self, access: StoreAccess<'_>) -> Result<Archive, String> {
        let world = session::world_of(Arc::clone(&self.storage), self.draw.number());
        session::open(world, session::secret(self.config).as_ref(), access)
    }

    /// Opens the store for writing, as soon as no other process has it.
    fn open_to_write(&mut self) -> Result<Archive, String> {
        for _ in 0..TRIES_MAX {
            match self.open(WRITER) {
                Err(error) if error.contains("in use by") => {}
                other => return other,
            }
        }
        Err("the lock was never free".into())
    }

    fn image(&self, number: u64) -> Vec<u8> {
        if self.config.deltas { image_of_deltas(number) } else { image(number) }
    }

    fn take(&mut self, number: u64) -> Result<(), String> {
        let mut archive = self.open_to_write()?;
        let source = ImageSource::stream(Box::new(Cursor::new(self.image(number))), Path::new("image"));
        let request = SnapshotRequest {
            name: number.to_string(),
            source: b"image".to_vec(),
            ..SnapshotRequest::default()
        };
        let taken = archive.take_image(&source, BLOCK_BYTES, request, &Progress::new());
        taken.map_err(|error| with_causes(&error))?;
        archive.close().map_err(|error| with_causes(&error))
    }

    fn forget_some(&mut self) -> Result<(), String> {
        let mut archive = self.open_to_write()?;
        let is_due = |name: &str| name.parse().is_ok_and(|number| !is_kept(number));
        let ids: Vec<SnapshotId> = archive
            .snapshots()
            .iter()
            .filter(|snapshot| is_due(&snapshot.name))
            .map(|snapshot| snapshot.id)
            .collect();
        let now = archive.store().world().clock.now();
        archive.forget(&ids, now, Duration::ZERO, "a test").map_err(|error| with_causes(&error))?;
        archive.close().map_err(|error| with_causes(&error))
    }

    fn options() -> CollectOptions {
        let budget =
            ReclaimBudget { least_dead: 0.0, batch_bytes: 1, merge_least: 2, ..ReclaimBudget::default() };
        CollectOptions {
            budget,
            filter_bytes: FILTER_BYTES_DEFAULT,
            young_since: None,
            prices: PriceFile::default(),
            foreign: Some(ForeignRoots::None),
            trusts_clock: true,
        }
    }

    fn collect(&mut self) -> Result<(), String> {
        let progress = Progress::new();
        let reader = self.open(StoreAccess::Read)?;
        let planned = Collection::plan(&reader, Self::options(), &progress);
        let mut collection = planned.map_err(|error| with_causes(&error))?;
        drop(reader);
        while !collection.is_done() {
            let mut archive = self.open_to_write()?;
            let applied = collection.apply(&mut archive, Timestamp(i64::MAX), &progress);
            let batch = applied.map_err(|error| with_causes(&error))?;
            if let Some((arena, error)) = batch.failed.first() {
                return Err(format!("arena {arena}: {}", with_causes(error)));
            }
            archive.close().map_err(|error| with_causes(&error))?;
        }
        Ok(())
    }

    /// Reads the snapshots that are kept.
    fn read(&self, archive: &Archive) -> Result<(), String> {
        if archive.store().end_is_lost() {
            return Err("the end of the log is lost".into());
        }
        for number in (0..FIRST_COUNT).filter(|number| is_kept(*number)) {
            let name = number.to_string();
            let listed = archive.snapshots().iter().find(|snapshot| snapshot.name == name);
            let Some(snapshot) = listed else { return Err(format!("snapshot {number} is not listed")) };
            let taken = Taken::Image(self.image(number).into());
            if !session::is_right(archive.store(), snapshot, &taken)? {
                return Err(format!("snapshot {number} has other contents"));
            }
        }
        Ok(())
    }

    /// Does one of the things that a reader does.
    fn look(&mut self, old: &mut Option<Archive>) -> Result<(), String> {
        let progress = Progress::new();
        if old.is_none() {
            *old = Some(self.open(StoreAccess::Read)?);
        }
        let none = |found: Vec<String>| match found.first() {
            None => Ok(()),
            Some(first) => Err(format!("verify: {first}")),
        };
        match self.draw.below(8) {
            0 => none(complaints(&self.open(StoreAccess::Read)?, false)?),
            1 => none(complaints(&self.open(StoreAccess::Read)?, true)?),
            2 => none(complaints(old.as_ref().expect("it was opened"), self.draw.once_in(2))?),
            3 => {
                let reader = self.open(StoreAccess::Read)?;
                let found = Collection::look(&reader, Self::options(), &progress);
                found.map(drop).map_err(|error| format!("a dry run: {}", with_causes(&error)))
            }
            4 => {
                let reader = self.open(StoreAccess::Read)?;
                let found = SpaceNeeds::of(&reader, 1 << 24, &progress);
                found.map(drop).map_err(|error| format!("stats: {}", with_causes(&error)))
            }
            5 => {
                let archive = old.as_mut().expect("it was opened");
                archive.follow().map_err(|error| format!("follow: {}", with_causes(&error)))?;
                self.read(old.as_ref().expect("it was opened"))
            }
            6 => self.read(old.as_ref().expect("it was opened")),
            _ => {
                let reader = self.open(StoreAccess::Read)?;
                self.read(&reader)
            }
        }
    }

    /// Runs the steps of a process, up to the first that fails.
    fn run(mut self, count: u64, mut step: impl FnMut(&mut Self, u64) -> Result<(), String>) {
        for number in 0..count {
            if let Err(error) = step(&mut self, number) {
                self.found.lock().push(format!("{}, step {number}: {error}", self.name));
                return;
            }
        }
    }
}

/// Runs a seed. Returns the number of calls of each process.
fn run(seed: u64) -> Result<Vec<u64>, String> {
    let mut draw = SeededDraw::new(seed);
    let kind = KINDS[draw.index(KINDS.len())];
    // A few calls in a row, some dozens, or some hundreds.
    let each = [1, 3, 10, 40, 200][draw.index(5)];
    let (disk, config) = (SimDisk::new(seed), kind.config());
    let secret = session::secret(&config);
    let world = session::world(&disk, seed);
    Store::create(&world, &config, secret.as_ref(), PassphraseCost::default()).unwrap();
    let found = Mutex::new(Vec::new());
    let numbers: Vec<u64> = (0..4).map(|_| draw.number()).collect();
    let process = |name, storage, number: usize| Process {
        name,
        storage,
        config: &config,
        draw: SeededDraw::new(numbers[number]),
        found: &found,
    };
    process("before", Arc::new(disk.clone()), 3).run(FIRST_COUNT, |process, number| process.take(number));
    let turns = Turns::new(3, TurnSchedule::Drawn { draw, each });
    let process = |name, number| process(name, turns.storage(number, Arc::new(disk.clone())), number);
    let (nights, collector, reader) =
        (process("the writer", 0), process("the collector", 1), process("the reader", 2));
    let calls = turns.run(vec![
        Box::new(move || {
            nights.run(NIGHT_COUNT, |process, night| {
                process.take(FIRST_COUNT + night)?;
                if night % 2 == 1 { process.forget_some() } else { Ok(()) }
            });
        }),
        Box::new(move || collector.run(COLLECTION_COUNT, |process, _| process.collect())),
        Box::new(move || {
            let mut old = None;
            reader.run(LOOK_COUNT, |process, _| process.look(&mut old));
        }),
    ]);
    let mut after = Process {
        name: "afterwards",
        storage: Arc::new(disk.clone()),
        config: &config,
        draw: SeededDraw::new(numbers[3]),
        found: &found,
    };
    let reader = after.open(StoreAccess::Read)?;
    after.read(&reader)?;
    found.lock().extend(complaints(&reader, true)?);
    let noted = Checker::of(reader.store()).damaged_arenas();
    if !noted.is_empty() || !reader.store().lost_blocks().is_empty() {
        found.lock().push(format!("noted: arenas {noted:?}, blocks {:?}", reader.store().lost_blocks()));
    }
    drop(reader);
    after.run(1, |process, _| process.collect());
    match found.into_inner().first() {
        None => Ok(calls),
        Some(first) => Err(format!("{kind:?}, one change in {each} calls: {first}")),
    }
}

#[test]
fn nobody_reports_damage_that_is_none() {
    let first = crate::setting("VARVE_BESIDE_FIRST").unwrap_or(0);
    let count = crate::setting("VARVE_BESIDE_SEEDS").unwrap_or(FEW_SEEDS);
    for seed in first..first + count {
        if let Err(broken) = run(seed) {
            panic!("VARVE_BESIDE_FIRST={seed}: {broken}");
        }
    }
}

#[test]
fn a_seed_of_several_processes_replays_call_by_call() {
    for seed in 0..3 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

/// One complete use of the store by a reader.
type Look = fn(&mut Process<'_>) -> Result<(), String>;

/// A whole collection, and two nights, come between any two calls of each look.
fn looks_survive_a_collection_at_any_call(kind: StoreKind, step_count: u64) {
    let looks: [(&str, Look); 4] = [
        ("an opening and a restore", |process| {
            let reader = process.open(StoreAccess::Read)?;
            process.read(&reader)
        }),
        ("verify --data", |process| {
            let reader = process.open(StoreAccess::Read)?;
            match complaints(&reader, true)?.first() {
                None => Ok(()),
                Some(first) => Err(first.clone()),
            }
        }),
        ("a dry run", |process| {
            let reader = process.open(StoreAccess::Read)?;
            let found = Collection::look(&reader, Process::options(), &Progress::new());
            found.map(drop).map_err(|error| with_causes(&error))
        }),
        ("stats", |process| {
            let reader = process.open(StoreAccess::Read)?;
            let found = SpaceNeeds::of(&reader, 1 << 24, &Progress::new());
            found.map(drop).map_err(|error| with_causes(&error))
        }),
    ];
    let (whole, config) = (SimDisk::new(1), kind.config());
    let secret = session::secret(&config);
    Store::create(&session::world(&whole, 1), &config, secret.as_ref(), PassphraseCost::default()).unwrap();
    let found = Mutex::new(Vec::new());
    let process = |name, storage: Arc<dyn Storage>, seed| Process {
        name,
        storage,
        config: &config,
        draw: SeededDraw::new(seed),
        found: &found,
    };
    process("before", Arc::new(whole.clone()), 1).run(FIRST_COUNT, |process, number| process.take(number));
    process("before", Arc::new(whole.clone()), 2).run(1, |process, _| process.forget_some());
    let try_at = |look: Look, call: u64| {
        let disk = whole.fork(call);
        let turns = Turns::new(2, TurnSchedule::Cut(vec![(0, call), (1, u64::MAX)]));
        let of =
            |name, number| process(name, turns.storage(number, Arc::new(disk.clone())), call.wrapping_add(3));
        let (reader, others) = (of("the reader", 0), of("the others", 1));
        let calls = turns.run(vec![
            Box::new(move || reader.run(1, |process, _| look(process))),
            Box::new(move || {
                others.run(1, |process, _| {
                    process.take(FIRST_COUNT)?;
                    process.collect()?;
                    process.take(FIRST_COUNT + 1)
                });
            }),
        ]);
        calls[0]
    };
    for (name, look) in looks {
        let calls = try_at(look, u64::MAX);
        let step = (calls / step_count).max(1);
        for call in (1..calls).step_by(usize::try_from(step).unwrap()) {
            try_at(look, call);
            if let Some(first) = found.lock().first() {
                panic!("{kind:?}, {name}, others at call {call} of {calls}: {first}");
            }
        }
    }
}

/// `VARVE_BESIDE_STEPS` is the number of places in each look; there are some hundreds of calls.
#[test]
fn no_look_takes_a_collection_for_damage() {
    let steps = crate::setting("VARVE_BESIDE_STEPS").unwrap_or(8);
    for kind in KINDS {
        looks_survive_a_collection_at_any_call(kind, steps);
    }
}
