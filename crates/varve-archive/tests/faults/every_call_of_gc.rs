//! The power is cut at every call to the disk while snapshots are forgotten and their space is
//! freed, and a new snapshot is taken between two batches.
//!
//! After any crash:
//!
//! 1. Every snapshot that was not forgotten is listed and reads back as it was taken.
//! 2. The forgotten snapshots are listed, all or none, or they are in the trash. As long as they
//!    are there, they can be brought back, and are whole.
//! 3. `verify`, which reads every byte, finds no damage.
//! 4. The next collection completes, and what was forgotten can be taken again.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::path::Path;
use std::time::Duration;

use varve_archive::{
    Archive, CollectOptions, Collection, ForeignRoots, PriceFile, SnapshotId, SnapshotRequest,
};
use varve_block::with_causes;
use varve_content::Progress;
use varve_content::image::ImageSource;
use varve_log::{ArenaMap, ClumpBytes, ParityPercent};
use varve_sim::{Fault, OutcomeCount, SimDisk, Strike};
use varve_store::{
    CompareMode, DiskIndexConfig, Encryption, IndexKind, Keyring, NewKey, PassphraseCost, Role,
    ScoreAlgorithm, Secret, Store, StoreAccess, StoreConfig,
};
use varve_upkeep::{FILTER_BYTES_DEFAULT, ReclaimBudget};
use varve_world::{Random, SeededRandom, Timestamp};

use crate::model::Taken;
use crate::session::{self, WRITER, complaints, world};

pub const BLOCK_BYTES: u32 = 16 << 10;
const BLOCK_COUNT: u64 = 30;
/// The snapshots that are there at the beginning. They fill two arenas.
const FIRST: [u64; 6] = [0, 1, 2, 3, 4, 5];
const FORGOTTEN: [u64; 3] = [0, 2, 3];
/// The snapshot that is taken between two batches. It has the contents of a forgotten one.
const BETWEEN: u64 = 12;

/// The disk image of a snapshot. A third of its blocks are those of all images, so that clumps are
/// partly live. The numbers from 10 on have the contents of those from 0 on.
pub fn image(number: u64) -> Vec<u8> {
    let block = |place: u64| {
        let seed = if place.is_multiple_of(3) { place } else { 100 * (number % 10 + 1) + place };
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        SeededRandom::new(seed).fill(&mut bytes).unwrap();
        bytes
    };
    (0..BLOCK_COUNT).flat_map(block).collect()
}

/// The same for a store that makes deltas: all blocks of one place differ in a few bytes. So the
/// blocks of the first image are the bases of the others, and it is forgotten.
pub fn image_of_deltas(number: u64) -> Vec<u8> {
    let mut image = Vec::new();
    for place in 0..BLOCK_COUNT {
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        SeededRandom::new(place).fill(&mut bytes).unwrap();
        if !place.is_multiple_of(3) {
            bytes[1000..1008].copy_from_slice(&(number % 10).to_le_bytes());
        }
        image.extend(bytes);
    }
    image
}

/// The kind of the store.
#[derive(Debug, Clone, Copy)]
pub enum StoreKind {
    Plain,
    EncryptedWithParity,
    DiskIndex,
    ByValue,
    Sha1,
    /// Each snapshot is taken with a key that cannot read, and is a small arena of its own.
    WriteOnlyNights,
    Deltas,
}

impl StoreKind {
    pub fn config(self) -> StoreConfig {
        let mut config = StoreConfig {
            encryption: Encryption::None,
            arena_map: ArenaMap::new(ArenaMap::ARENA_BYTES_MIN).unwrap(),
            clump_bytes: ClumpBytes::new(64 << 10).unwrap(),
            ..StoreConfig::new([7; 16])
        };
        match self {
            Self::Plain => {}
            Self::EncryptedWithParity => {
                config.encryption = Encryption::Aes256Gcm;
                config.parity_percent = ParityPercent::new(5);
            }
            Self::DiskIndex => {
                config.index = IndexKind::Disk;
                config.disk_index = DiskIndexConfig {
                    memory_bytes: DiskIndexConfig::MEMORY_BYTES_MIN,
                    expected_blocks: 100,
                    ..DiskIndexConfig::default()
                };
            }
            Self::WriteOnlyNights => {
                config.encryption = Encryption::Aes256Gcm;
                config.arena_map = ArenaMap::new(4 * ArenaMap::ARENA_BYTES_MIN).unwrap();
            }
            Self::ByValue => config.compare = CompareMode::Value,
            Self::Sha1 => config.score = ScoreAlgorithm::Sha1,
            Self::Deltas => config.deltas = true,
        }
        config
    }
}

/// A store on a disk that may crash, and the results that were acknowledged.
struct CollectedStore {
    disk: SimDisk,
    config: StoreConfig,
    /// The secret with which snapshots are taken.
    taker: Option<Secret>,
    sessions: u64,
    has_forgotten: bool,
    has_taken_between: bool,
}

impl CollectedStore {
    fn create(kind: StoreKind) -> Self {
        let (disk, config) = (SimDisk::new(1), kind.config());
        let secret = session::secret(&config);
        Store::create(&world(&disk, 1), &config, secret.as_ref(), PassphraseCost::default()).unwrap();
        let taker = match kind {
            StoreKind::WriteOnlyNights => Some(add_write_only_key(&disk, secret.as_ref().unwrap())),
            _ => secret,
        };
        let (has_forgotten, has_taken_between) = (false, false);
        let mut store = Self { disk, config, taker, sessions: 1, has_forgotten, has_taken_between };
        for number in FIRST {
            store.take(number).unwrap();
        }
        store
    }

    /// A second store in the same state. `seed` determines the outcome of later faults.
    fn fork(&self, seed: u64) -> Self {
        Self { disk: self.disk.fork(seed), config: self.config.clone(), taker: self.taker.clone(), ..*self }
    }

    fn open(&mut self, access: StoreAccess<'_>) -> Result<Archive, String> {
        self.sessions += 1;
        session::open(world(&self.disk, self.sessions), session::secret(&self.config).as_ref(), access)
    }

    fn image(&self, number: u64) -> Vec<u8> {
        if self.config.deltas { image_of_deltas(number) } else { image(number) }
    }

    fn take(&mut self, number: u64) -> Result<(), String> {
        self.sessions += 1;
        let mut archive = session::open(world(&self.disk, self.sessions), self.taker.as_ref(), WRITER)?;
        let source = ImageSource::stream(Box::new(Cursor::new(self.image(number))), Path::new("image"));
        let (name, source_name) = (number.to_string(), b"image".to_vec());
        let request = SnapshotRequest { name, source: source_name, ..SnapshotRequest::default() };
        let taken = archive.take_image(&source, BLOCK_BYTES, request, &Progress::new());
        taken.map_err(|error| with_causes(&error))?;
        archive.close().map_err(|error| with_causes(&error))
    }

    fn forget(&mut self) -> Result<(), String> {
        let mut archive = self.open(WRITER)?;
        let ids = ids_of(&archive, &FORGOTTEN);
        let now = archive.store().world().clock.now();
        archive.forget(&ids, now, Duration::ZERO, "a test").map_err(|error| with_causes(&error))?;
        self.has_forgotten = true;
        archive.close().map_err(|error| with_causes(&error))
    }

    /// Collects, one arena in each batch. `between` takes a snapshot after the first batch.
    fn collect(&mut self, takes_between: bool) -> Result<(), String> {
        let options = CollectOptions {
            budget: ReclaimBudget {
                least_dead: 0.0,
                batch_bytes: 1,
                merge_least: 2,
                ..ReclaimBudget::default()
            },
            filter_bytes: FILTER_BYTES_DEFAULT,
            young_since: None,
            prices: PriceFile::default(),
            foreign: Some(ForeignRoots::None),
            trusts_clock: true,
        };
        let progress = Progress::new();
        let reader = self.open(StoreAccess::Read)?;
        let planned = Collection::plan(&reader, options, &progress).map_err(|error| with_causes(&error));
        let mut collection = planned?;
        drop(reader);
        let mut batch_count = 0;
        while !collection.is_done() {
            let mut archive = self.open(WRITER)?;
            let until = Timestamp(i64::MAX);
            let applied = collection.apply(&mut archive, until, &progress);
            let batch = applied.map_err(|error| with_causes(&error))?;
            if let Some((arena, error)) = batch.failed.first() {
                return Err(format!("arena {arena}: {}", with_causes(error)));
            }
            archive.close().map_err(|error| with_causes(&error))?;
            batch_count += 1;
            if batch_count == 1 && takes_between {
                self.take(BETWEEN)?;
                self.has_taken_between = true;
            }
        }
        Ok(())
    }

    /// The work that a crash interrupts.
    fn forget_and_collect(&mut self) -> Result<(), String> {
        self.forget()?;
        self.collect(true)
    }

    /// Points 1 to 3 of the promise. Returns the numbers of the listed snapshots.
    fn check(&self, archive: &Archive) -> Result<BTreeSet<u64>, String> {
        let listed: BTreeSet<u64> =
            archive.snapshots().iter().map(|snapshot| snapshot.name.parse().unwrap()).collect();
        for snapshot in archive.snapshots() {
            let taken = Taken::Image(self.image(snapshot.name.parse().unwrap()).into());
            if !session::is_right(archive.store(), snapshot, &taken)? {
                return Err(format!("snapshot {} has other contents", snapshot.name));
            }
        }
        let is_kept = |number: &&u64| !FORGOTTEN.contains(number);
        if let Some(gone) = FIRST.iter().filter(is_kept).find(|number| !listed.contains(number)) {
            return Err(format!("snapshot {gone} is not listed: {listed:?}"));
        }
        let listed_count = FORGOTTEN.iter().filter(|number| listed.contains(number)).count();
        if listed_count != 0 && (self.has_forgotten || listed_count != FORGOTTEN.len()) {
            return Err(format!("snapshots were forgotten, and are listed: {listed:?}"));
        }
        if self.has_taken_between && !listed.contains(&BETWEEN) {
            return Err(format!("the snapshot between two batches is not listed: {listed:?}"));
        }
        match complaints(archive, true)? {
            none if none.is_empty() => Ok(listed),
            found => Err(format!("verify finds damage: {found:?}")),
        }
    }

    /// Acts as a machine does after a crash. `undoes` brings back what is in the trash.
    fn look_and_continue(&mut self, undoes: bool) -> Result<(), String> {
        let reader = self.open(StoreAccess::Read)?;
        let listed = self.check(&reader)?;
        drop(reader);
        let mut archive = self.open(WRITER)?;
        if self.check(&archive)? != listed {
            return Err("a writer lists other snapshots than a reader".into());
        }
        let trash: Vec<SnapshotId> =
            archive.catalog().trash().iter().map(|trashed| trashed.snapshot.id).collect();
        if undoes && !trash.is_empty() {
            archive.undo_forget(&trash).map_err(|error| with_causes(&error))?;
            self.has_forgotten = false;
            let listed = self.check(&archive)?;
            if !FORGOTTEN.iter().all(|number| listed.contains(number)) {
                return Err(format!("brought back, and not listed: {listed:?}"));
            }
        }
        archive.close().map_err(|error| with_causes(&error))?;
        self.collect(false)?;
        // Forgotten contents are taken once more: some of their blocks are there, and some are not.
        self.take(10)?;
        self.take(13)?;
        let reader = self.open(StoreAccess::Read)?;
        let listed = self.check(&reader)?;
        drop(reader);
        // Everything was synced: another power cut takes nothing.
        self.disk.cut_power();
        self.disk.restart();
        let reader = self.open(StoreAccess::Read)?;
        match self.check(&reader)? == listed && listed.contains(&13) {
            true => Ok(()),
            false => Err(format!("before another power cut these were listed: {listed:?}")),
        }
    }
}

fn add_write_only_key(disk: &SimDisk, full: &Secret) -> Secret {
    let keyring = Keyring::of(&world(disk, 2)).unwrap();
    let by = keyring.unlock(full).unwrap();
    let secret = session::write_only_secret();
    let cost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };
    keyring.add(&by, &NewKey { secret: &secret, cost, label: "", role: Role::WriteOnly }).unwrap();
    secret
}

fn ids_of(archive: &Archive, numbers: &[u64]) -> Vec<SnapshotId> {
    let is_one = |name: &str| numbers.iter().any(|number| name == number.to_string());
    let found = archive.snapshots().iter().filter(|snapshot| is_one(&snapshot.name));
    found.map(|snapshot| snapshot.id).collect()
}

/// The states in which a crash has left a store, each with what was acknowledged.
#[derive(Default)]
struct SeenStates(BTreeSet<(u64, bool, bool, bool)>);

impl SeenStates {
    /// Cuts the power at the `call`th call. Returns false if the work came to its end before that.
    fn crash_at(&mut self, whole: &CollectedStore, call: u64, count: OutcomeCount) -> Result<bool, String> {
        for hit in 0..count.hits {
            let seed = count.first_seed(call, hit);
            let mut store = whole.fork(seed);
            store.disk.arm(&[Strike { after: call, fault: Fault::PowerCut }]);
            let done = store.forget_and_collect();
            if !store.disk.is_down() {
                store.disk.behave();
                return done.and_then(|()| store.look_and_continue(call.is_multiple_of(2))).map(|()| false);
            }
            for restart in 0..count.restarts {
                let mut left = store.fork(seed + restart);
                left.disk.restart();
                let undoes = (call + hit + restart).is_multiple_of(2);
                // Another crash may have left the same bytes. The same would follow.
                let state = (left.disk.contents_hash(), left.has_forgotten, left.has_taken_between, undoes);
                if self.0.insert(state) {
                    let went_on = left.look_and_continue(undoes);
                    went_on.map_err(|error| format!("seed {}: {error}", seed + restart))?;
                }
            }
        }
        Ok(true)
    }
}

/// Tries every `step`th call. Returns the number of calls.
fn crash_everywhere(kind: StoreKind, step: usize, count: OutcomeCount) -> u64 {
    let whole = CollectedStore::create(kind);
    let mut seen = SeenStates::default();
    for call in (0..).step_by(step) {
        match seen.crash_at(&whole, call, count) {
            Ok(true) => {}
            Ok(false) => return call,
            Err(broken) => panic!("{kind:?}, power cut at call {call}, {broken}"),
        }
    }
    unreachable!("the work ends")
}

/// `VARVE_FAULT_OUTCOMES` tries every call with so many outcomes. Without it most calls are left
/// out.
fn loses_no_snapshot(kind: StoreKind) {
    let outcomes: Option<u64> = crate::setting("VARVE_FAULT_OUTCOMES");
    let step = if outcomes.is_some() { 1 } else { 29 };
    let calls = crash_everywhere(kind, step, outcomes.map_or(OutcomeCount::ONE, OutcomeCount::of));
    assert!(calls > 200, "{kind:?}: only {calls} calls");
}

#[test]
fn a_power_cut_while_space_is_freed_loses_no_snapshot() {
    loses_no_snapshot(StoreKind::Plain);
}

#[test]
fn a_power_cut_while_space_is_freed_loses_no_snapshot_with_parity() {
    loses_no_snapshot(StoreKind::EncryptedWithParity);
}

#[test]
fn a_power_cut_while_space_is_freed_loses_no_snapshot_with_an_index_on_disk() {
    loses_no_snapshot(StoreKind::DiskIndex);
}

#[test]
fn a_power_cut_while_space_is_freed_loses_no_snapshot_by_value() {
    loses_no_snapshot(StoreKind::ByValue);
}

#[test]
fn a_power_cut_while_space_is_freed_loses_no_snapshot_of_sha1() {
    loses_no_snapshot(StoreKind::Sha1);
}

#[test]
fn a_power_cut_while_space_is_freed_loses_no_snapshot_of_deltas() {
    loses_no_snapshot(StoreKind::Deltas);
}

#[test]
fn a_power_cut_while_small_arenas_are_merged_loses_no_snapshot() {
    loses_no_snapshot(StoreKind::WriteOnlyNights);
}
