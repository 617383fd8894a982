use parking_lot::Mutex;
use varve_sim::SimDisk;
use varve_world::{FixedClock, MemoryStorage, RealStorage};

use super::*;

fn world(storage: Arc<dyn Storage>, seed: u64) -> World {
    World { clock: Arc::new(FixedClock(Timestamp(5))), ..World::deterministic(storage, seed) }
}

fn ids(numbers: &[u8]) -> LeasedSnapshots {
    LeasedSnapshots::of(numbers.iter().map(|number| [*number; 16]))
}

fn holder() -> LeaseHolder {
    LeaseHolder::new("backup.example.org/1", 12)
}

/// The protected ids below 10.
fn protected(storage: &dyn Storage) -> Vec<u8> {
    let leases = held_leases(storage).unwrap();
    (0..10).filter(|number| leases.iter().any(|lease| lease.snapshots.protects(&[*number; 16]))).collect()
}

#[test]
fn a_lease_protects_until_it_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let storages: [Arc<dyn Storage>; 3] = [
        Arc::new(MemoryStorage::new()),
        Arc::new(SimDisk::new(1)),
        Arc::new(RealStorage::new(folder.path())),
    ];
    for storage in storages {
        assert_eq!(protected(&*storage), [], "there is no folder yet");
        let first = take_lease(&world(Arc::clone(&storage), 1), &holder(), &ids(&[1, 2])).unwrap();
        let second = take_lease(&world(Arc::clone(&storage), 2), &holder(), &ids(&[2, 3])).unwrap();
        assert_eq!(protected(&*storage), [1, 2, 3]);
        let found = held_leases(&*storage).unwrap();
        assert_eq!(found[0].holder, Some(LeaseHolder::new("backup.example.org/1", 12)));
        assert_eq!((found[0].started, &found[0].doubt), (Some(Timestamp(5)), &None));
        assert!(found[0].file.as_str().starts_with("leases/backup_example_org_1-12-"), "{}", found[0].file);
        drop(first);
        assert_eq!(protected(&*storage), [2, 3]);
        let all = take_lease(&world(Arc::clone(&storage), 3), &holder(), &LeasedSnapshots::All).unwrap();
        assert_eq!(protected(&*storage).len(), 10);
        drop((second, all));
        assert_eq!(protected(&*storage), []);
        assert_eq!(storage.list(FOLDER).unwrap(), []);
    }
}

#[test]
fn the_lease_of_a_dead_reader_protects_nothing_and_is_removed() {
    let disk = SimDisk::new(3);
    let lease = take_lease(&world(Arc::new(disk.clone()), 1), &holder(), &ids(&[1])).unwrap();
    disk.sync(&lease.file).unwrap();
    disk.sync_folder(FOLDER).unwrap();
    disk.cut_power();
    disk.restart();
    assert_eq!(disk.list(FOLDER).unwrap().len(), 1);
    remove_stale_leases(&disk);
    assert_eq!(disk.list(FOLDER).unwrap(), []);
    assert_eq!(protected(&disk), []);
}

#[test]
fn a_held_file_that_is_not_understood_protects_everything() {
    let storage = MemoryStorage::new();
    let lease = take_lease(&world(Arc::new(storage.clone()), 1), &holder(), &ids(&[1])).unwrap();
    let whole = storage.contents(&lease.file).unwrap();
    for contents in [Vec::new(), whole[..whole.len() - 1].to_vec(), b"varve lease 2\nend\n".to_vec()] {
        storage.set_contents(&lease.file, contents);
        let found = held_leases(&storage).unwrap();
        assert_eq!((found.len(), &found[0].snapshots), (1, &LeasedSnapshots::All));
        assert!(found[0].doubt.is_some());
    }
    storage.set_contents(&lease.file, whole);
    assert_eq!(protected(&storage), [1]);
}

#[test]
fn too_many_leases_protect_everything() {
    let storage = MemoryStorage::new();
    let take = |seed| take_lease(&world(Arc::new(storage.clone()), seed), &holder(), &ids(&[1])).unwrap();
    let mut leases: Vec<_> = (0..LEASES_MAX as u64).map(take).collect();
    assert_eq!(protected(&storage), [1]);
    leases.push(take(LEASES_MAX as u64));
    assert_eq!(protected(&storage).len(), 10);
}

#[test]
fn a_reader_that_cannot_write_goes_without() {
    let disk = SimDisk::new(1);
    disk.cut_power();
    assert!(take_lease(&world(Arc::new(disk), 1), &holder(), &ids(&[1])).is_none());
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("leases"), "not a folder").unwrap();
    let storage = Arc::new(RealStorage::new(folder.path()));
    assert!(take_lease(&world(storage.clone(), 1), &holder(), &ids(&[1])).is_none());
    assert!(held_leases(&*storage).is_err(), "nothing may be collected");
}

type Act = Box<dyn FnMut() + Send>;

/// Acts before some of its calls, as another process would.
struct InterruptedStorage {
    below: MemoryStorage,
    call_count: Mutex<usize>,
    at: Vec<usize>,
    act: Mutex<Act>,
}

impl InterruptedStorage {
    fn new(below: &MemoryStorage, at: &[usize], act: impl FnMut() + Send + 'static) -> Self {
        let (below, act) = (below.clone(), Mutex::new(Box::new(act) as Act));
        Self { below, call_count: Mutex::new(0), at: at.to_vec(), act }
    }

    fn count(&self) -> &MemoryStorage {
        let mut count = self.call_count.lock();
        if self.at.contains(&*count) {
            (self.act.lock())();
        }
        *count += 1;
        &self.below
    }

    fn calls(&self) -> usize {
        *self.call_count.lock()
    }
}

impl Storage for InterruptedStorage {
    fn create(&self, file: &FileName) -> io::Result<()> {
        self.count().create(file)
    }

    fn append(&self, file: &FileName, bytes: &[u8]) -> io::Result<u64> {
        self.count().append(file, bytes)
    }

    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.count().read_at(file, offset, into)
    }

    fn length(&self, file: &FileName) -> io::Result<u64> {
        self.count().length(file)
    }

    fn truncate(&self, file: &FileName, length: u64) -> io::Result<()> {
        self.count().truncate(file, length)
    }

    fn sync_soon(&self, file: &FileName) {
        self.count().sync_soon(file);
    }

    fn sync(&self, file: &FileName) -> io::Result<()> {
        self.count().sync(file)
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.count().sync_folder(folder)
    }

    fn rename(&self, from: &FileName, to: &FileName) -> io::Result<()> {
        self.count().rename(from, to)
    }

    fn remove(&self, file: &FileName) -> io::Result<()> {
        self.count().remove(file)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<FileName>> {
        self.count().list(folder)
    }

    fn lock(&self, file: &FileName, holder: &str) -> Result<Box<dyn FileLock>, LockError> {
        self.count().lock(file, holder)
    }
}

#[test]
fn a_collector_between_two_steps_of_a_reader_does_not_void_its_lease() {
    let mut reached = 0;
    for at in 0.. {
        let memory = MemoryStorage::new();
        let seen = memory.clone();
        let storage = Arc::new(InterruptedStorage::new(&memory, &[at], move || remove_stale_leases(&seen)));
        let lease = take_lease(&world(Arc::clone(&storage) as _, 1), &holder(), &ids(&[1])).unwrap();
        assert_eq!(protected(&memory), [1], "a collector before call {at}");
        if at >= storage.calls() {
            break;
        }
        drop(lease);
        assert_eq!(memory.list(FOLDER).unwrap(), []);
        reached = at;
    }
    assert!(reached >= 3);
}

#[test]
fn a_lease_that_changes_while_a_collector_looks_is_seen() {
    for first in 0..12 {
        for second in first..12 {
            let memory = MemoryStorage::new();
            let own = memory.clone();
            let mut seed = 1;
            let mut lease = take_lease(&world(Arc::new(memory.clone()), seed), &holder(), &ids(&[1]));
            let another = take_lease(&world(Arc::new(memory.clone()), 99), &holder(), &ids(&[5]));
            let change = move || {
                seed += 1;
                let next = take_lease(&world(Arc::new(own.clone()), seed), &holder(), &ids(&[1, 2]));
                assert!(next.is_some());
                drop(std::mem::replace(&mut lease, next));
            };
            let storage = InterruptedStorage::new(&memory, &[first, second], change);
            let seen = protected(&storage);
            assert!(seen.contains(&1) && seen.contains(&5), "{seen:?} with changes at {first} and {second}");
            drop(another);
        }
    }
}
