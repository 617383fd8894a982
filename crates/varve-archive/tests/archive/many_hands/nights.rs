//! Nights are archived, and the store is sometimes repaired, while other threads read it, verify it
//! and replicate it. Each of them finds all nights complete that were finished before it began, and
//! finds nothing wrong with the rest.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use varve_archive::{Archive, RepairScope, Snapshot, SnapshotContent, SnapshotRequest, repair, verify};
use varve_block::with_causes;
use varve_content::Progress;
use varve_content::image::{ImagePart, ImageSource, write_image};
use varve_remote::{MemoryTarget, Target};
use varve_replica::{
    AuditFindingKind, AuditReport, CloneOptions, ClumpShare, Replica, ReplicaStorage, ReplicaToAudit,
    ReplicateOptions, ReplicationPlan, ReplicationSource, audit, clone_replica,
};
use varve_sim::{Fault, Rot, SeededDraw, SimDisk, Strike};
use varve_store::{
    CompareMode, Encryption, Keyring, NewKey, PassphraseCost, Role, Secret, Store, StoreAccess, StoreConfig,
};
use varve_upkeep::AuditShare;
use varve_world::{Random, RealWorkers, SeededRandom, World};
use zeroize::Zeroizing;

use super::{WRITER, config, is_damage, secret, seeds, world};

const COST: PassphraseCost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };
const BLOCK_BYTES: u32 = 4096;
const IMAGE_BLOCKS: usize = 100;
const NIGHTS: usize = 12;

/// The secret of the key that may add and not read.
fn write_only_secret() -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![8; 32]))
}

/// Makes a store, with a write-only key if the settings allow one.
fn create(disk: &SimDisk, config: &StoreConfig) {
    Store::create(&world(disk, 1), config, Some(&secret()), COST).unwrap();
    if takes_write_only(config) {
        let keyring = Keyring::of(&world(disk, 2)).unwrap();
        let by = keyring.unlock(&secret()).unwrap();
        let write_only =
            NewKey { secret: &write_only_secret(), cost: COST, label: "", role: Role::WriteOnly };
        keyring.add(&by, &write_only).unwrap();
    }
}

fn takes_write_only(config: &StoreConfig) -> bool {
    config.encryption != Encryption::None && config.compare == CompareMode::Hash
}

fn open(disk: &SimDisk, seed: u64, access: StoreAccess<'_>) -> Result<Archive, String> {
    open_with(&secret(), disk, seed, access)
}

fn open_with(secret: &Secret, disk: &SimDisk, seed: u64, access: StoreAccess<'_>) -> Result<Archive, String> {
    open_in(world(disk, seed), secret, access)
}

fn open_in(world: World, secret: &Secret, access: StoreAccess<'_>) -> Result<Archive, String> {
    let store = Store::open(world, Some(secret), access, &mut |_| {});
    Archive::open(store.map_err(|error| with_causes(&error))?).map_err(|error| with_causes(&error))
}

fn audit_of(replica: &Replica, world: &World) -> Result<AuditReport, String> {
    let (_, log) = Store::unlock(world, Some(&secret())).map_err(|error| with_causes(&error))?;
    let archive = open_in(world.clone(), &secret(), StoreAccess::Read)?;
    let audited = ReplicaToAudit { replica, world, store: archive.store(), log: &log };
    audit(audited, ClumpShare::ALL, &()).map_err(|error| with_causes(&error))
}

/// Changes a part of the archived disk, as a day does between two nights.
fn change(image: &mut Vec<u8>, draw: &mut SeededDraw) {
    image.resize(IMAGE_BLOCKS * BLOCK_BYTES as usize, 0);
    for _ in 0..1 + draw.below(40) {
        let block = draw.index(IMAGE_BLOCKS) * BLOCK_BYTES as usize;
        let random = SeededRandom::new(draw.below(500));
        random.fill(&mut image[block..block + BLOCK_BYTES as usize]).unwrap();
    }
}

/// All that the test knows of the store.
#[derive(Default)]
struct Known {
    /// Every night that was ever begun, by its name.
    begun: BTreeMap<String, Arc<Vec<u8>>>,
    /// The nights that were reported as archived.
    finished: Vec<String>,
    /// The nights that were finished before a replication began that has completed.
    carried: Vec<String>,
}

struct Shared {
    seed: u64,
    disk: SimDisk,
    known: Mutex<Known>,
    /// True if damage is not mended yet. An unreadable block is then no failure, but wrong bytes
    /// are.
    is_damaged: bool,
    is_over: AtomicBool,
}

/// Sets the flag when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Shared {
    fn new(seed: u64, disk: SimDisk) -> Self {
        Self { seed, disk, known: Mutex::default(), is_damaged: false, is_over: AtomicBool::new(false) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    fn finished(&self) -> Vec<String> {
        self.known().finished.clone()
    }

    fn image(&self, snapshot: &Snapshot) -> Arc<Vec<u8>> {
        Arc::clone(&self.known().begun[&snapshot.name])
    }

    /// Fails unless `is_so`. Nothing is required while the power is gone or something is damaged.
    fn demand(&self, is_so: bool, what: impl FnOnce() -> String) {
        let is_excused = self.is_damaged || self.disk.is_down();
        assert!(is_so || is_excused, "seed {}: {}", self.seed, what());
    }

    fn given<T>(&self, result: Result<T, String>) -> Option<T> {
        if let Err(error) = &result {
            self.demand(false, || error.clone());
        }
        result.ok()
    }

    /// Takes nights until one fails.
    fn take_nights(&self, archive: &mut Archive, image: &mut Vec<u8>, draw: &mut SeededDraw) {
        for _ in 0..NIGHTS {
            change(image, draw);
            let name = format!("night-{}", self.known().begun.len());
            self.known().begun.insert(name.clone(), Arc::new(image.clone()));
            let source = ImageSource::stream(Box::new(io::Cursor::new(image.clone())), Path::new("image"));
            let request = SnapshotRequest { name: name.clone(), ..SnapshotRequest::default() };
            if archive.take_image(&source, BLOCK_BYTES, request, &Progress::new()).is_err() {
                return;
            }
            self.known().finished.push(name);
        }
    }

    /// All of these nights are listed, in order, and the data that is read is right.
    fn check(&self, archive: &Archive, finished: &[String], who: &str, draw: &mut SeededDraw) {
        let listed: Vec<_> = archive.snapshots().iter().map(|snapshot| snapshot.name.clone()).collect();
        let mut wanted = finished.iter().peekable();
        for name in &listed {
            wanted.next_if_eq(&name);
        }
        let missing = wanted.next();
        self.demand(missing.is_none(), || {
            format!("{who}: {missing:?} is finished, and not listed: {listed:?}")
        });
        for _ in 0..listed.len().min(2) {
            let snapshot = &archive.snapshots()[draw.index(listed.len())];
            let SnapshotContent::Image(entry) = &snapshot.content else { panic!("it is an image") };
            let mut bytes = Vec::new();
            let workers = RealWorkers::new(2);
            let part = ImagePart::whole(entry);
            let read = write_image(archive.store(), &workers, &part, &mut bytes, &Progress::new());
            if self
                .given(read.map_err(|error| format!("{who}: {}: {}", snapshot.name, with_causes(&error))))
                .is_some()
            {
                assert!(
                    bytes == *self.image(snapshot),
                    "seed {}: {who}: {} is another",
                    self.seed,
                    snapshot.name
                );
            }
        }
        let data = draw.once_in(2).then_some(AuditShare::ALL);
        let verified = verify(archive, data, &Progress::new());
        let Some(mut verified) =
            self.given(verified.map_err(|error| format!("{who}: {}", with_causes(&error))))
        else {
            return;
        };
        verified.damage.retain(is_damage);
        let is_whole = verified.damage.is_empty() && verified.harm.is_empty();
        self.demand(is_whole, || format!("{who}: verify: {:?} {:?}", verified.damage, verified.harm));
    }

    /// Opens the store again and again while it has a writer.
    fn look(&self, mut seed: u64) {
        let mut draw = SeededDraw::new(seed);
        while !self.is_over.load(Ordering::Acquire) {
            seed += 1;
            let finished = self.finished();
            let opened =
                open(&self.disk, seed, StoreAccess::Read).map_err(|error| format!("a reader: {error}"));
            let Some(mut archive) = self.given(opened) else { continue };
            self.check(&archive, &finished, "a reader", &mut draw);
            let finished = self.finished();
            let followed =
                archive.follow().map_err(|error| format!("a reader that follows: {}", with_causes(&error)));
            if self.given(followed).is_some() {
                self.check(&archive, &finished, "a reader that follows", &mut draw);
            }
        }
    }

    /// Replicates the store again and again, and sometimes clones it.
    fn carry(&self, target: &Arc<dyn Target>, mut seed: u64) {
        let mut draw = SeededDraw::new(seed);
        while !self.is_over.load(Ordering::Acquire) {
            seed += 10;
            let finished = self.finished();
            if self.given(self.replicate(target, seed)).is_some() {
                self.known().carried.clone_from(&finished);
                if draw.once_in(3) {
                    self.come_back(target, &finished, seed, &mut draw);
                }
            }
        }
    }

    /// Reads the replica at its target while it grows, and audits it.
    fn look_there(&self, target: &Arc<dyn Target>, mut seed: u64) {
        let mut draw = SeededDraw::new(seed);
        while !self.is_over.load(Ordering::Acquire) {
            seed += 1;
            let carried = self.known().carried.clone();
            if carried.is_empty() {
                std::thread::yield_now();
                continue;
            }
            let replica = Replica::open(Arc::clone(target)).map_err(|error| with_causes(&error));
            let Some(replica) = self.given(replica).map(Arc::new) else { continue };
            let storage = ReplicaStorage::new(Arc::clone(&replica), None, None);
            let world = World {
                workers: Arc::new(RealWorkers::new(2)),
                ..World::deterministic(Arc::new(storage), seed)
            };
            if draw.once_in(2) {
                let audited = audit_of(&replica, &world);
                if let Some(mut audit) = self.given(audited) {
                    // Several objects of an arena are uploaded at a time, and may arrive in any
                    // order.
                    audit.findings.retain(|finding| !matches!(finding.kind, AuditFindingKind::Detached));
                    self.demand(audit.findings.is_empty(), || format!("an audit: {:?}", audit.findings));
                }
                continue;
            }
            let opened = open_in(world, &secret(), StoreAccess::Read)
                .map_err(|error| format!("who reads there: {error}"));
            if let Some(archive) = self.given(opened) {
                self.check(&archive, &carried, "who reads there", &mut draw);
            }
        }
    }

    fn replicate(&self, target: &Arc<dyn Target>, seed: u64) -> Result<(), String> {
        let world = world(&self.disk, seed);
        let (config, log) = Store::unlock(&world, Some(&secret()))
            .map_err(|error| format!("replicate: {}", with_causes(&error)))?;
        let source = ReplicationSource { world: &world, config: &config, log: &log };
        // All targets in memory have the same name, and a new one is empty.
        let options =
            ReplicateOptions { segment_bytes: 300 << 10, recreate: true, ..ReplicateOptions::default() };
        let plan = ReplicationPlan::new(source, target, &options);
        let plan = plan.map_err(|error| format!("replicate, planning: {}", with_causes(&error)))?;
        let wrong: Vec<_> = plan.wrong.iter().map(|wrong| wrong.object.as_str().to_owned()).collect();
        let done = plan.apply(source, target, &options, &RealWorkers::new(2), &());
        let done = done.map_err(|error| format!("replicate: {}", with_causes(&error)))?;
        if done.damaged.is_empty() && wrong.is_empty() {
            return Ok(());
        }
        let damaged: Vec<_> = done.damaged.iter().map(|damage| format!("{damage:?}")).collect();
        Err(format!("replicate: wrong {wrong:?}, damaged {damaged:?}"))
    }

    fn come_back(&self, target: &Arc<dyn Target>, finished: &[String], seed: u64, draw: &mut SeededDraw) {
        let elsewhere = SimDisk::new(seed);
        let opened = Replica::open(Arc::clone(target)).map_err(|error| with_causes(&error));
        let cloned = opened.and_then(|replica| {
            let (world, options) = (world(&elsewhere, seed + 1), CloneOptions::default());
            clone_replica(&Arc::new(replica), &world, Some(&secret()), options, &())
                .map_err(|error| with_causes(&error))
        });
        cloned.unwrap_or_else(|error| panic!("seed {}: clone: {error}", self.seed));
        let there = Self::new(self.seed, elsewhere);
        there.known().begun.clone_from(&self.known().begun);
        for access in [StoreAccess::Read, WRITER] {
            let archive = open(&there.disk, seed + 2, access)
                .unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
            there.check(&archive, finished, "who came back", draw);
        }
    }

    /// Does the work while other threads read and replicate the store.
    #[expect(clippy::disallowed_methods, reason = "this is about threads")]
    fn while_others_look(&self, number: u64, work: impl FnOnce()) {
        self.is_over.store(false, Ordering::Release);
        self.known().carried.clear();
        let target: Arc<dyn Target> = Arc::new(MemoryTarget::new());
        std::thread::scope(|threads| {
            threads.spawn(move || self.look(number + 100));
            threads.spawn(|| self.carry(&target, number + 500));
            threads.spawn(|| self.look_there(&target, number + 700));
            // The flag must be set even if the work panics, because the other threads run until
            // then.
            let _over = Over(&self.is_over);
            work();
        });
    }

    /// Archives nights until a fault strikes, and then cuts the power.
    fn survive_nights(&self, secret: &Secret, image: &mut Vec<u8>, number: u64, draw: &mut SeededDraw) {
        let mut archive = open_with(secret, &self.disk, number, WRITER).unwrap();
        let strike = match draw.below(4) {
            0 => None,
            1 => Some(Fault::WriteError),
            2 => Some(Fault::DiskFull),
            _ => Some(Fault::PowerCut),
        };
        let after = draw.below(3000);
        self.disk.arm(&strike.map(|fault| Strike { after, fault }).into_iter().collect::<Vec<_>>());
        self.while_others_look(number, || {
            self.take_nights(&mut archive, image, draw);
            if draw.once_in(2) {
                drop(archive.close());
            } else {
                drop(archive);
            }
        });
        self.disk.behave();
        if !self.disk.is_down() {
            self.disk.cut_power();
        }
        self.disk.restart();
    }

    /// Flips a bit of an arena that has parity, and repairs the store. The parity brings all data
    /// back.
    fn mend(&mut self, number: u64, draw: &mut SeededDraw) {
        let archive = open(&self.disk, number, WRITER).unwrap();
        let with_parity = archive.store().vault().parity().list().unwrap();
        if !with_parity.is_empty() {
            let (arena, _) = with_parity[draw.index(with_parity.len())];
            assert!(self.disk.rot(&arena.file_name(), Rot::FlippedBit));
            self.is_damaged = true;
            self.while_others_look(number, || {
                let report = repair(archive.store(), &[], RepairScope::All, &Progress::new()).unwrap();
                // A flip between two records damages nothing.
                let is_mended = report.mended.keys().eq([&arena]) || report.plan.before.damage.is_empty();
                assert!(is_mended, "seed {}: {report:?}", self.seed);
            });
            self.is_damaged = false;
        }
        archive.close().unwrap();
    }

    /// Every opening finds all finished nights. A reader comes first, because the writer cuts off
    /// the rest of a crash.
    fn check_all(&self, number: u64, when: &str, draw: &mut SeededDraw) {
        for access in [StoreAccess::Read, WRITER] {
            let archive = open(&self.disk, number, access).unwrap();
            self.check(&archive, &self.finished(), when, draw);
            if access == WRITER {
                archive.close().unwrap();
            }
        }
    }
}

fn survive(seed: u64) {
    let disk = SimDisk::new(seed);
    let config = config(seed);
    create(&disk, &config);
    let mut draw = SeededDraw::new(seed);
    let mut shared = Shared::new(seed, disk);
    let mut image = Vec::new();
    for session in 0..3 {
        let number = seed * 10_000 + session * 1000;
        let is_write_only = takes_write_only(&config) && draw.once_in(3);
        let secret = if is_write_only { write_only_secret() } else { secret() };
        shared.survive_nights(&secret, &mut image, number, &mut draw);
        shared.check_all(number + 900, "after a crash", &mut draw);
        if draw.once_in(2) {
            shared.mend(number + 910, &mut draw);
            shared.check_all(number + 990, "after a repair", &mut draw);
        }
    }
}

#[test]
fn nights_are_taken_while_others_look() {
    seeds().for_each(survive);
}
