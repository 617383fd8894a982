//! Snapshots are forgotten, brought back and held, by keys of all roles, beside a simple model.
//! A snapshot that is forgotten is not listed, no matter what a write-only key adds.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use varve_archive::{
    Archive, Catalog, ExpireTrashError, ExpiryPlan, ForgetError, ProtectError, RepairScope, Snapshot,
    SnapshotCopier, SnapshotId, SnapshotRequest, UndoForgetError, repair, verify,
};
use varve_block::BlockName;
use varve_content::Progress;
use varve_content::image::ImageSource;
use varve_log::{ArenaMap, ClumpBytes};
use varve_sim::{Fault, SimDisk, Strike};
use varve_store::{
    Encryption, Keyring, NewKey, PassphraseCost, Role, Secret, Store, StoreAccess, StoreConfig,
};
use varve_upkeep::AuditShare;
use varve_world::{FixedClock, InlineWorkers, MemoryStorage, SeededRandom, Storage, Timestamp, World};
use zeroize::Zeroizing;

const COST: PassphraseCost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };
const WRITER: StoreAccess<'_> = StoreAccess::Write { holder: "a test" };
const FULL: u8 = 1;
const APPEND_ONLY: u8 = 2;
const WRITE_ONLY: u8 = 3;
/// The time for which an undo stays possible, in nanoseconds.
const UNDO: i64 = 10;

fn world(storage: Arc<dyn Storage>, seed: u64, now: i64) -> World {
    World {
        storage,
        clock: Arc::new(FixedClock(Timestamp(now))),
        random: Arc::new(SeededRandom::new(seed)),
        workers: Arc::new(InlineWorkers),
    }
}

fn key(byte: u8) -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![byte; 32]))
}

/// A store with a key of each role.
struct SharedStore {
    storage: MemoryStorage,
    sessions: u64,
    now: i64,
}

impl SharedStore {
    fn new() -> Self {
        let storage = MemoryStorage::new();
        let at = |seed| world(Arc::new(storage.clone()), seed, 0);
        Store::create(&at(1), &StoreConfig::new([5; 16]), Some(&key(FULL)), COST).unwrap();
        let keyring = Keyring::of(&at(2)).unwrap();
        let by = keyring.unlock(&key(FULL)).unwrap();
        for (byte, role) in [(APPEND_ONLY, Role::AppendOnly), (WRITE_ONLY, Role::WriteOnly)] {
            keyring.add(&by, &NewKey { secret: &key(byte), cost: COST, label: "", role }).unwrap();
        }
        Self { storage, sessions: 10, now: 100 }
    }

    fn store(&mut self, byte: u8, access: StoreAccess<'_>) -> Store {
        self.sessions += 1;
        let world = world(Arc::new(self.storage.clone()), self.sessions, self.now);
        Store::open(world, Some(&key(byte)), access, &mut |_| {}).unwrap()
    }

    fn open(&mut self, byte: u8) -> Archive {
        Archive::open(self.store(byte, WRITER)).unwrap()
    }

    fn read(&mut self) -> Archive {
        Archive::open(self.store(FULL, StoreAccess::Read)).unwrap()
    }

    fn take(&mut self, byte: u8, name: &str) -> Snapshot {
        let mut archive = self.open(byte);
        let taken = take(&mut archive, name);
        archive.close().unwrap();
        taken
    }

    /// The newest root that a page names.
    fn newest_root(&mut self) -> Option<BlockName> {
        self.store(FULL, StoreAccess::Read).last_catalog()
    }

    /// Adds a root of a write-only key. It lists a snapshot, and names these roots as the ones
    /// before.
    fn add_after(&mut self, previous: &[BlockName], snapshot: Snapshot) {
        let store = self.store(WRITE_ONLY, WRITER);
        Catalog::unread(previous).add(&store, snapshot).unwrap();
        store.close().unwrap();
    }
}

fn take(archive: &mut Archive, name: &str) -> Snapshot {
    let source = ImageSource::stream(Box::new(Cursor::new(name.as_bytes().to_vec())), Path::new("image"));
    let request = SnapshotRequest { name: name.into(), ..SnapshotRequest::default() };
    archive.take_image(&source, 4096, request, &Progress::new()).unwrap().snapshot
}

fn undo() -> Duration {
    Duration::from_nanos(UNDO.unsigned_abs())
}

fn ids<'a>(snapshots: impl IntoIterator<Item = &'a Snapshot>) -> BTreeSet<SnapshotId> {
    snapshots.into_iter().map(|snapshot| snapshot.id).collect()
}

#[test]
fn each_key_may_do_what_its_role_says() {
    let mut shared = SharedStore::new();
    let one = [shared.take(FULL, "one").id];
    let now = Timestamp(100);
    for byte in [APPEND_ONLY, WRITE_ONLY] {
        let mut archive = shared.open(byte);
        assert!(matches!(archive.forget(&one, now, undo(), ""), Err(ForgetError::NotPermitted(_))));
        assert!(matches!(archive.undo_forget(&one), Err(UndoForgetError::NotPermitted(_))));
        assert!(matches!(archive.expire_trash(now, true), Err(ExpireTrashError::NotPermitted(_))));
        assert!(matches!(archive.release(&one, "audit"), Err(ProtectError::NotPermitted(_))));
        let held = archive.hold(&one, "audit", now);
        let kept = archive.keep_until(&one, Some(Timestamp(500)));
        if byte == WRITE_ONLY {
            assert!(matches!(held, Err(ProtectError::NotPermitted(_))));
            assert!(matches!(kept, Err(ProtectError::NotPermitted(_))));
        } else {
            assert_eq!((held.unwrap().len(), kept.unwrap().len()), (1, 1));
            assert_eq!(archive.hold(&one, "audit", Timestamp(101)).unwrap(), [], "it is held already");
            assert_eq!(archive.keep_until(&one, Some(Timestamp(600))).unwrap().len(), 1);
            for earlier in [Some(Timestamp(599)), None] {
                let refused = archive.keep_until(&one, earlier);
                assert!(matches!(refused, Err(ProtectError::NotPermitted(_))));
            }
        }
        archive.close().unwrap();
    }
    let mut archive = shared.open(FULL);
    let refused = archive.forget(&one, now, undo(), "").unwrap_err().to_string();
    assert!(refused.contains("is held: audit"), "{refused}");
    archive.release(&one, "audit").unwrap();
    let refused = archive.forget(&one, now, undo(), "").unwrap_err().to_string();
    assert!(refused.contains("kept until a later day"), "{refused}");
    assert_eq!(archive.keep_until(&one, None).unwrap().len(), 1);
    archive.forget(&one, now, undo(), "0123").unwrap();
    assert_eq!(archive.trash()[0].forgotten_by, "0123");
    assert!(matches!(archive.hold(&one, "audit", now), Err(ProtectError::Unknown(_))));
    assert!(matches!(archive.forget(&one, now, undo(), ""), Err(ForgetError::Unknown(_))));
    archive.close().unwrap();
}

#[test]
fn a_clock_that_is_set_forward_ends_no_undo() {
    const DAY: i64 = 86_400_000_000_000;
    let mut shared = SharedStore::new();
    let night = |shared: &mut SharedStore, day: i64| {
        shared.now = day * DAY;
        shared.take(FULL, &day.to_string());
    };
    shared.now = 90 * DAY;
    let one = [shared.take(FULL, "one").id];
    (91..=100).for_each(|day| night(&mut shared, day));
    let mut archive = shared.open(FULL);
    archive.forget(&one, Timestamp(100 * DAY + 1), Duration::from_secs(7 * 86_400), "").unwrap();
    archive.close().unwrap();
    // A run with a wrong clock takes its snapshot before it empties the trash.
    let expired_at = |shared: &mut SharedStore, at: i64, trust_clock| {
        let mut archive = shared.open(FULL);
        let plan = ExpiryPlan::new(archive.catalog(), Timestamp(at), trust_clock);
        let expired = archive.expire_trash(Timestamp(at), trust_clock).unwrap();
        assert_eq!(plan.expired.len(), expired.len());
        archive.close().unwrap();
        (expired, plan.lacking_nights)
    };
    for day in 500..=506 {
        night(&mut shared, day);
        assert_eq!(expired_at(&mut shared, day * DAY + 1, false), (vec![], 1), "{day}");
    }
    assert_eq!(expired_at(&mut shared, 107 * DAY, true).0, [], "the days are counted, too");
    night(&mut shared, 507);
    assert_eq!(expired_at(&mut shared, 107 * DAY, false), (vec![], 0), "the clock counts if it is earlier");
    assert_eq!(expired_at(&mut shared, 507 * DAY + 1, false), (one.to_vec(), 0));
    let mut archive = shared.open(FULL);
    assert!(matches!(archive.undo_forget(&one), Err(UndoForgetError::Gone { .. })));
    assert_eq!((archive.trash().len(), archive.gone_count()), (0, 1));
    archive.close().unwrap();
}

#[test]
fn a_copy_brings_back_only_when_asked() {
    let (mut from, mut to) = (SharedStore::new(), SharedStore::new());
    let one = from.take(FULL, "one");
    let from = from.read();
    let progress = Progress::new();
    let mut archive = to.open(FULL);
    let mut copier = SnapshotCopier::new(from.store(), &progress);
    assert!(copier.copy(&one, &mut archive).unwrap().is_some());
    archive.forget(&[one.id], Timestamp(100), undo(), "").unwrap();
    for is_gone in [false, true] {
        if is_gone {
            archive.forget(&[one.id], Timestamp(100), undo(), "").unwrap();
            assert_eq!(archive.expire_trash(Timestamp(110), true).unwrap(), [one.id]);
        }
        assert!(copier.copy(&one, &mut archive).unwrap().is_none());
        let mut explicit = SnapshotCopier::new(from.store(), &progress).bringing_back();
        assert!(explicit.copy(&one, &mut archive).unwrap().is_some());
        assert_eq!((archive.snapshots().len(), archive.trash().len(), archive.gone_count()), (1, 0, 0));
    }
    archive.close().unwrap();
    assert_eq!(to.read().snapshots().len(), 1);
}

#[test]
fn a_repair_keeps_what_is_forgotten() {
    let mut shared = SharedStore::new();
    let (one, two) = (shared.take(FULL, "one"), shared.take(FULL, "two"));
    shared.take(FULL, "three");
    let mut archive = shared.open(FULL);
    archive.forget(&[one.id, two.id], Timestamp(100), undo(), "").unwrap();
    archive.close().unwrap();
    let old = shared.newest_root().unwrap();
    let mut archive = shared.open(FULL);
    archive.undo_forget(&[two.id]).unwrap();
    archive.close().unwrap();
    shared.add_after(&[old], Snapshot { id: SnapshotId([9; 16]), ..one.clone() });
    let store = shared.store(FULL, WRITER);
    repair(&store, &[], RepairScope::All, &Progress::new()).unwrap();
    store.close().unwrap();
    let archive = shared.read();
    assert_eq!((archive.snapshots().len(), archive.trash().len()), (3, 1));
    let verified = verify(&archive, Some(AuditShare::ALL), &Progress::new()).unwrap();
    assert!(verified.damage.is_empty() && verified.harm.is_empty(), "{verified:?}");
    assert_eq!(verified.snapshot_count, 4, "those in the trash are checked too");
}

#[derive(Debug, Clone)]
enum Step {
    Take,
    AddTaken,
    /// A write-only key lists a new snapshot, and names an older root.
    AddAfter(prop::sample::Index),
    /// A write-only key lists a snapshot that there was.
    AddAgain(prop::sample::Index),
    Forget(prop::sample::Index),
    Undo(prop::sample::Index),
    Hold(prop::sample::Index),
    Release(prop::sample::Index),
    Expire,
    Wait(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = any::<prop::sample::Index>;
    let step = prop_oneof![
        2 => Just(Step::Take),
        1 => Just(Step::AddTaken),
        2 => one().prop_map(Step::AddAfter),
        2 => one().prop_map(Step::AddAgain),
        4 => one().prop_map(Step::Forget),
        2 => one().prop_map(Step::Undo),
        1 => one().prop_map(Step::Hold),
        1 => one().prop_map(Step::Release),
        2 => Just(Step::Expire),
        2 => (0..15i64).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..25)
}

/// The state of all snapshots.
#[derive(Default)]
struct Model {
    all: Vec<Snapshot>,
    listed: BTreeSet<SnapshotId>,
    held: BTreeSet<SnapshotId>,
    /// With the end of the undo.
    trash: BTreeMap<SnapshotId, i64>,
    gone: BTreeSet<SnapshotId>,
}

impl Model {
    fn list(&mut self, snapshot: Snapshot) {
        self.listed.insert(snapshot.id);
        self.all.push(snapshot);
    }
}

fn apply(step: &Step, shared: &mut SharedStore, model: &mut Model, roots: &mut [BlockName]) {
    let number = model.all.len();
    let chosen = |index: &prop::sample::Index| index.get(&model.all).clone();
    match step {
        Step::Wait(time) => shared.now += time,
        Step::Take | Step::AddTaken => {
            let byte = if matches!(step, Step::Take) { FULL } else { WRITE_ONLY };
            model.list(shared.take(byte, &number.to_string()));
        }
        _ if model.all.is_empty() => {}
        Step::AddAfter(index) => {
            let id = SnapshotId([u8::try_from(number).unwrap(); 16]);
            let snapshot = Snapshot { id, time: Timestamp(shared.now), ..model.all[0].clone() };
            shared.add_after(&[*index.get(roots)], snapshot.clone());
            model.list(snapshot);
        }
        Step::AddAgain(index) => shared.add_after(&[], chosen(index)),
        Step::Forget(index) => {
            let (id, now) = (chosen(index).id, shared.now);
            let mut archive = shared.open(FULL);
            match archive.forget(&[id], Timestamp(now), undo(), "") {
                Ok(plan) => {
                    assert!(model.listed.remove(&id) && !model.held.contains(&id));
                    assert_eq!(plan.undo_until, Timestamp(now + UNDO));
                    model.trash.insert(id, now + UNDO);
                }
                Err(ForgetError::Unknown(_)) => assert!(!model.listed.contains(&id)),
                Err(ForgetError::Protected { .. }) => assert!(model.held.contains(&id)),
                Err(error) => panic!("{error}"),
            }
            archive.close().unwrap();
        }
        Step::Undo(index) => {
            let id = chosen(index).id;
            let mut archive = shared.open(FULL);
            match archive.undo_forget(&[id]) {
                Ok(_) => {
                    assert!(model.trash.remove(&id).is_some());
                    model.listed.insert(id);
                }
                Err(UndoForgetError::Gone { .. }) => assert!(model.gone.contains(&id)),
                Err(UndoForgetError::Unknown(_)) => assert!(model.listed.contains(&id)),
                Err(error) => panic!("{error}"),
            }
            archive.close().unwrap();
        }
        Step::Hold(index) | Step::Release(index) => {
            let (id, now) = (chosen(index).id, Timestamp(shared.now));
            let is_hold = matches!(step, Step::Hold(_));
            let mut archive = shared.open(if is_hold { APPEND_ONLY } else { FULL });
            let changed = if is_hold { archive.hold(&[id], "x", now) } else { archive.release(&[id], "x") };
            match changed {
                Ok(changed) if is_hold => assert_eq!(changed.len() == 1, model.held.insert(id)),
                Ok(changed) => assert_eq!(changed.len() == 1, model.held.remove(&id)),
                Err(ProtectError::Unknown(_)) => assert!(!model.listed.contains(&id)),
                Err(error) => panic!("{error}"),
            }
            archive.close().unwrap();
        }
        Step::Expire => {
            let mut archive = shared.open(FULL);
            let now = shared.now;
            let expired = archive.expire_trash(Timestamp(now), true).unwrap();
            let expected: BTreeSet<_> =
                model.trash.iter().filter(|(_, until)| **until <= now).map(|(id, _)| *id).collect();
            assert_eq!(expired.into_iter().collect::<BTreeSet<_>>(), expected);
            model.trash.retain(|id, _| !expected.contains(id));
            model.gone.extend(expected);
            archive.close().unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_forgotten_snapshot_is_not_listed_whoever_lists_it(steps in steps()) {
        let (mut shared, mut model, mut roots) = (SharedStore::new(), Model::default(), Vec::new());
        for step in &steps {
            apply(step, &mut shared, &mut model, &mut roots);
            roots.extend(shared.newest_root());
            let archive = shared.read();
            prop_assert_eq!(ids(archive.snapshots()), model.listed.clone(), "after {:?}", step);
            prop_assert_eq!(archive.snapshots().len(), model.listed.len(), "each once");
            let trash = ids(archive.trash().iter().map(|trashed| &trashed.snapshot));
            prop_assert_eq!(trash, model.trash.keys().copied().collect());
            prop_assert_eq!(archive.gone_count(), model.gone.len());
            let held = |snapshot: &&Snapshot| !snapshot.holds.is_empty();
            prop_assert_eq!(ids(archive.snapshots().iter().filter(held)), model.held.clone());
        }
    }
}

// ---- crashes

/// The listed snapshots of a catalog, those in the trash, and the number of those that are gone.
type CatalogState = (BTreeSet<SnapshotId>, BTreeSet<SnapshotId>, usize);

fn open_disk(disk: &SimDisk, seed: u64) -> Archive {
    let world = world(Arc::new(disk.clone()), seed, 100);
    Archive::open(Store::open(world, None, WRITER, &mut |_| {}).unwrap()).unwrap()
}

fn state(archive: &Archive) -> CatalogState {
    let trash = ids(archive.trash().iter().map(|trashed| &trashed.snapshot));
    (ids(archive.snapshots()), trash, archive.gone_count())
}

/// Carries out one change of the catalog on an archive with three snapshots, of which the first is
/// in the trash. Returns whether it succeeded.
fn change(archive: &mut Archive, number: usize) -> bool {
    let (trashed, listed) = ([archive.trash()[0].snapshot.id], [archive.snapshots()[0].id]);
    match number {
        0 => archive.forget(&listed, Timestamp(100), undo(), "").is_ok(),
        1 => archive.undo_forget(&trashed).is_ok(),
        2 => archive.expire_trash(Timestamp(200), true).is_ok(),
        _ => archive.hold(&listed, "audit", Timestamp(100)).is_ok(),
    }
}

/// Cuts the power at a call. Returns false if the change came to its end before.
fn crash_at(call: u64, number: usize) -> bool {
    let disk = SimDisk::new(call);
    let config = StoreConfig {
        encryption: Encryption::None,
        arena_map: ArenaMap::new(ArenaMap::ARENA_BYTES_MIN).unwrap(),
        clump_bytes: ClumpBytes::new(64 << 10).unwrap(),
        ..StoreConfig::new([7; 16])
    };
    Store::create(&world(Arc::new(disk.clone()), 1, 100), &config, None, COST).unwrap();
    let mut archive = open_disk(&disk, 2);
    let first = take(&mut archive, "0").id;
    take(&mut archive, "1");
    take(&mut archive, "2");
    archive.forget(&[first], Timestamp(100), undo(), "").unwrap();
    archive.close().unwrap();

    let mut archive = open_disk(&disk, 3);
    let before = (state(&archive), archive.snapshots()[0].holds.len());
    disk.arm(&[Strike { after: call, fault: Fault::PowerCut }]);
    let is_done = change(&mut archive, number);
    let is_down = disk.is_down();
    drop(archive);
    disk.behave();
    disk.restart();
    let mut archive = open_disk(&disk, 4);
    let found = (state(&archive), archive.snapshots()[0].holds.len());
    if found == before {
        assert!(!is_done, "call {call}: change {number} was acknowledged, and is lost");
        assert!(change(&mut archive, number));
    }
    let after = (state(&archive), archive.snapshots()[0].holds.len());
    assert_ne!(after, before);
    assert!(found == before || found == after);
    let verified = verify(&archive, Some(AuditShare::ALL), &Progress::new()).unwrap();
    assert!(verified.damage.is_empty() && verified.harm.is_empty(), "{verified:?}");
    archive.close().unwrap();
    is_down
}

#[test]
fn a_crash_leaves_the_old_catalog_or_the_new_one() {
    for number in 0..4 {
        let calls = (0..).take_while(|call| crash_at(*call, number)).count();
        assert!(calls > 4, "change {number} was cut at {calls} calls");
    }
}
