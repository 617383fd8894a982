//! A store whose index is spread over folders on other disks. If these are gone, damaged, full, or
//! belong to another store, every block is still found: more slowly, but never wrongly.

use std::sync::Arc;

use varve_block::{Block, BlockName, BlockStore, BlockType};
use varve_store::{
    ChoosePlacesError, DiskIndexConfig, Encryption, IndexKind, PassphraseCost, Store, StoreAccess,
    StoreConfig,
};
use varve_world::{FileName, MemoryStorage, Storage, World};

use crate::memory_store::WRITER;

const COUNT: u64 = 40_000;
/// A change to a file.
type Harm = fn(&mut Vec<u8>);

/// A store's folder, and two more on other disks.
struct Machine {
    own: MemoryStorage,
    disks: [MemoryStorage; 2],
}

const PATHS: [&str; 2] = ["/ssd1/index", "/ssd2/index"];

fn paths() -> [String; 2] {
    PATHS.map(str::to_owned)
}

impl Machine {
    fn new(id: u8) -> Self {
        let machine = Self { own: MemoryStorage::new(), disks: [MemoryStorage::new(), MemoryStorage::new()] };
        machine.mount();
        let mut config = StoreConfig::new([id; 16]);
        config.arena_map = varve_log::ArenaMap::new(1 << 20).unwrap();
        config.encryption = Encryption::None;
        config.index = IndexKind::Disk;
        config.disk_index =
            DiskIndexConfig { memory_bytes: 256 << 10, expected_blocks: 1000, ..DiskIndexConfig::default() };
        Store::create(&machine.world(1), &config, None, PassphraseCost::default()).unwrap();
        machine
    }

    /// A machine whose store has all blocks, and an index in both folders.
    fn filled() -> (Self, Vec<BlockName>) {
        let machine = Self::new(5);
        varve_store::choose_index_places(&machine.world(2), &paths(), "test").unwrap();
        let store = machine.open(3, WRITER);
        let names = put(&store, COUNT);
        store.save_checkpoint().unwrap();
        store.close().unwrap();
        (machine, names)
    }

    fn mount(&self) {
        for (path, disk) in PATHS.into_iter().zip(&self.disks) {
            self.own.set_other_folder(path, Some(disk.clone()));
        }
    }

    /// An independent copy of all files, to be damaged.
    fn fork(&self) -> Self {
        let disks = self.disks.each_ref().map(MemoryStorage::fork);
        let forked = Self { own: self.own.fork(), disks };
        forked.mount();
        forked
    }

    fn world(&self, seed: u64) -> World {
        World::deterministic(Arc::new(self.own.clone()), seed)
    }

    fn open(&self, seed: u64, access: StoreAccess<'_>) -> Store {
        Store::open(self.world(seed), None, access, &mut |_| {}).unwrap()
    }

    /// Readers and a writer find every block, and nothing is stored again. A second round checks
    /// the files left by the first.
    fn is_as_ever(&self, names: &[BlockName], what: &str) {
        check(&self.open(10, StoreAccess::Read), names);
        for seed in [11, 12] {
            let store = self.open(seed, WRITER);
            assert_eq!(put(&store, 3000), names[..3000], "{what}");
            check(&store, names);
            assert_eq!(store.session_growth().0, 0, "{what}");
            store.close().unwrap();
        }
        check(&self.open(13, StoreAccess::Read), names);
    }
}

fn bytes_of(number: u64) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    bytes
}

fn put(store: &Store, count: u64) -> Vec<BlockName> {
    let mut names = Vec::new();
    for first in (0..count).step_by(100) {
        let contents: Vec<_> = (first..first + 100).map(bytes_of).collect();
        let blocks: Vec<_> =
            contents.iter().map(|bytes| Block { block_type: BlockType::DATA, bytes }).collect();
        let scores = store.put_batch(&blocks).unwrap();
        names.extend(scores.into_iter().map(|score| BlockName { score, block_type: BlockType::DATA }));
        if first % 5000 == 0 {
            store.sync().unwrap();
        }
    }
    store.sync().unwrap();
    names
}

/// Checks a sample of blocks from everywhere.
fn check(store: &Store, names: &[BlockName]) {
    for (first, names) in (0..).step_by(100).zip(names.chunks(100)).step_by(9) {
        for (number, found) in (first..).zip(store.get_batch(names)) {
            assert_eq!(&found.unwrap()[..], bytes_of(number), "block {number}");
        }
    }
}

/// The files of entries in a folder.
fn entries(storage: &MemoryStorage) -> Vec<FileName> {
    let files = storage.names().into_iter();
    files.filter(|file| file.as_str().starts_with("index/disk-")).collect()
}

fn troubles(store: &Store) -> Vec<bool> {
    store.index_places().iter().map(|place| place.trouble.is_some()).collect()
}

#[test]
fn entries_lie_in_the_folders_that_were_chosen_and_are_used_as_they_are() {
    let (machine, names) = Machine::filled();
    assert_eq!(entries(&machine.own), []);
    let sizes = machine.disks.each_ref().map(|disk| {
        let [file] = &entries(disk)[..] else { panic!("{:?}", disk.names()) };
        disk.contents(file).unwrap().len()
    });
    assert!(sizes[0] > 100_000 && sizes[1] > 50_000, "{sizes:?}");
    let mut is_read_again = false;
    let told = &mut |progress: varve_store::RebuildProgress| is_read_again |= progress.arenas_total > 1;
    let store = Store::open(machine.world(4), None, WRITER, told).unwrap();
    let disk = store.stats().unwrap().disk_index.unwrap();
    assert_eq!((disk.file_blocks, troubles(&store)), (COUNT, vec![false; 2]));
    assert!(!is_read_again);
    drop(store);
    machine.is_as_ever(&names, "nothing happened");
}

#[test]
fn a_crash_loses_nothing() {
    let machine = Machine::new(5);
    varve_store::choose_index_places(&machine.world(2), &paths(), "test").unwrap();
    let store = machine.open(3, WRITER);
    let names = put(&store, COUNT);
    drop(store);
    machine.is_as_ever(&names, "not closed");
}

#[test]
fn a_folder_that_is_gone_makes_it_slower_and_no_less() {
    let (whole, names) = Machine::filled();
    for gone in [&PATHS[..1], &PATHS[1..], &PATHS[..]] {
        let machine = whole.fork();
        gone.iter().for_each(|path| machine.own.set_other_folder(path, None));
        let expected: Vec<_> = PATHS.iter().map(|path| gone.contains(path)).collect();
        assert_eq!(troubles(&machine.open(9, StoreAccess::Read)), expected);
        machine.is_as_ever(&names, "gone");
        // The folder comes back with its old contents.
        machine.mount();
        machine.is_as_ever(&names, "back");
        assert_eq!(entries(&machine.own), []);
        let left = machine.disks.each_ref().map(|disk| entries(disk).len());
        assert_eq!(left, [1, 1], "nothing is left over");
    }
}

/// The disk is not mounted: its mount point is an empty folder.
#[test]
fn an_empty_folder_is_not_written_to() {
    let (machine, names) = Machine::filled();
    let empty = MemoryStorage::new();
    machine.own.set_other_folder(PATHS[1], Some(empty.clone()));
    machine.is_as_ever(&names, "an empty folder");
    assert!(empty.names().is_empty(), "{:?}", empty.names());
}

#[test]
fn parts_that_are_harmed_or_foreign_are_found_out() {
    let (whole, names) = Machine::filled();
    let other = {
        let (machine, _) = Machine::filled();
        machine.disks[1].contents(&entries(&machine.disks[1])[0]).unwrap()
    };
    let harms: [(&str, Harm); 4] = [
        ("cut", |bytes| bytes.truncate(bytes.len() / 2)),
        ("emptied", Vec::clear),
        ("zeroed", |bytes| bytes.fill(0)),
        ("longer", |bytes| bytes.extend([0; 4096])),
    ];
    for (number, disk) in whole.disks.iter().enumerate() {
        let file = &entries(disk)[0];
        for (what, harm) in harms {
            let machine = whole.fork();
            let mut bytes = disk.contents(file).unwrap();
            harm(&mut bytes);
            machine.disks[number].set_contents(file, bytes);
            machine.is_as_ever(&names, what);
        }
        let machine = whole.fork();
        machine.disks[number].remove(file).unwrap();
        machine.is_as_ever(&names, "gone");
        let machine = whole.fork();
        let mut bytes = other.clone();
        bytes.resize(disk.contents(file).unwrap().len(), 0);
        machine.disks[number].set_contents(file, bytes);
        machine.is_as_ever(&names, "another session's");
    }
    let machine = whole.fork();
    let [first, second] = machine.disks.each_ref().map(|disk| disk.contents(&entries(disk)[0]).unwrap());
    machine.disks[0].set_contents(&entries(&whole.disks[0])[0], second);
    machine.disks[1].set_contents(&entries(&whole.disks[1])[0], first);
    machine.is_as_ever(&names, "swapped");
}

/// The folder is older than the last night, as if from a backup of that disk.
#[test]
fn a_folder_from_an_older_moment_is_found_out() {
    let machine = Machine::new(5);
    varve_store::choose_index_places(&machine.world(2), &paths(), "test").unwrap();
    let store = machine.open(3, WRITER);
    put(&store, COUNT / 2);
    store.save_checkpoint().unwrap();
    store.close().unwrap();
    let older = machine.disks[1].fork();
    let store = machine.open(4, WRITER);
    let names = put(&store, COUNT);
    store.save_checkpoint().unwrap();
    store.close().unwrap();
    machine.own.set_other_folder(PATHS[1], Some(older));
    machine.is_as_ever(&names, "older");
}

#[test]
fn a_full_disk_among_them_makes_it_slower_and_no_less() {
    let machine = Machine::new(5);
    varve_store::choose_index_places(&machine.world(2), &paths(), "test").unwrap();
    machine.disks[1].set_bytes_max(Some(5000));
    let store = machine.open(3, WRITER);
    let names = put(&store, COUNT);
    check(&store, &names[..500]);
    assert!(store.stats().unwrap().disk_index.unwrap().trouble.is_some());
    store.close().unwrap();
    machine.disks[1].set_bytes_max(None);
    machine.is_as_ever(&names, "space again");
}

/// A disk of the index fails while the store is written. The store continues with its directory
/// pages, finds everything, and reports the failure.
#[test]
fn a_disk_that_goes_while_the_store_is_open_stops_nobody() {
    let (machine, names) = Machine::filled();
    let store = machine.open(9, WRITER);
    machine.disks[1].remove(&entries(&machine.disks[1])[0]).unwrap();
    machine.disks[1].set_bytes_max(Some(0));
    for first in (0..COUNT).step_by(7001) {
        let name = names[usize::try_from(first).unwrap()];
        assert_eq!(&store.get(&name).unwrap()[..], bytes_of(first));
    }
    assert_eq!(put(&store, 9000), names[..9000]);
    assert_eq!(store.session_growth().0, 0);
    assert!(store.stats().unwrap().disk_index.unwrap().trouble.is_some());
    store.close().unwrap();
    machine.disks[1].set_bytes_max(None);
    machine.is_as_ever(&names, "a disk that went");
}

#[test]
fn a_folder_of_another_store_is_refused_and_left_alone() {
    let (machine, _) = Machine::filled();
    let other = Machine::new(6);
    for (path, disk) in PATHS.into_iter().zip(&machine.disks) {
        other.own.set_other_folder(path, Some(disk.clone()));
    }
    let before = machine.disks.each_ref().map(entries);
    let refused = varve_store::choose_index_places(&other.world(2), &paths(), "test").unwrap_err();
    assert!(
        matches!(&refused, ChoosePlacesError::Taken { store, .. } if *store == "05".repeat(16)),
        "{refused}"
    );
    // Writing the list by hand does not help either.
    let list = FileName::new("index/places").unwrap();
    other.own.set_contents(&list, machine.own.contents(&list).unwrap());
    let store = other.open(3, WRITER);
    assert_eq!(troubles(&store), [true, true]);
    put(&store, COUNT);
    store.close().unwrap();
    assert_eq!(machine.disks.each_ref().map(entries), before);
}

#[test]
fn the_folders_change_and_what_was_in_them_goes() {
    let (machine, names) = Machine::filled();
    let third = MemoryStorage::new();
    machine.own.set_other_folder("/ssd3", Some(third.clone()));
    varve_store::choose_index_places(&machine.world(5), &["/ssd3".to_owned()], "test").unwrap();
    machine.is_as_ever(&names, "moved");
    assert!(machine.disks.iter().all(|disk| disk.names().is_empty()), "{:?}", machine.disks[0].names());
    assert!(!entries(&third).is_empty());
    varve_store::choose_index_places(&machine.world(6), &[], "test").unwrap();
    machine.is_as_ever(&names, "in its own folder again");
    assert!(third.names().is_empty() && !entries(&machine.own).is_empty());
    assert_eq!(machine.open(7, StoreAccess::Read).index_places(), []);
}

#[test]
fn a_list_that_makes_no_sense_is_none() {
    let (whole, names) = Machine::filled();
    let file = FileName::new("index/places").unwrap();
    let list = whole.own.contents(&file).unwrap();
    for harmed in [list[..list.len() - 5].to_vec(), Vec::new(), vec![0xFF; 200], vec![b'\n'; 70_000]] {
        let machine = whole.fork();
        machine.own.set_contents(&file, harmed);
        assert_eq!(machine.open(9, StoreAccess::Read).index_places(), []);
        machine.is_as_ever(&names, "no list");
    }
    for paths in [vec!["a\nb"], vec![""], vec!["end"], vec!["/x", "/x"]] {
        let paths: Vec<_> = paths.into_iter().map(str::to_owned).collect();
        whole.own.set_other_folder("/x", Some(MemoryStorage::new()));
        let refused = varve_store::choose_index_places(&whole.world(8), &paths, "test").unwrap_err();
        assert!(matches!(refused, ChoosePlacesError::Path { .. }), "{refused}");
    }
}
