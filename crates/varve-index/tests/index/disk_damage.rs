//! The files of an index on disk, damaged in every way: either a correct index is opened, or none.
//! An unreadable entry is reported as unknown. Disks that fail or are full.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use varve_block::{Fingerprint, LogAddress};
use varve_index::{DiskIndex, DiskIndexSettings, NearAddresses, OpenDiskIndexError};
use varve_world::{FileName, MemoryStorage, Storage, forward_storage};

const KEY: [u8; 32] = [1; 32];
const SETTINGS: DiskIndexSettings =
    DiskIndexSettings { memory_bytes: 64 << 10, expected_blocks: 1000, fingerprint_bits: 48 };
const WRITER: Option<[u8; 16]> = Some([7; 16]);
const COUNT: u64 = 20_000;

fn entry(number: u64) -> (Fingerprint, LogAddress) {
    let fingerprint = Fingerprint(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (fingerprint, LogAddress::new(number * 3).unwrap())
}

fn insert(index: &DiskIndex, numbers: std::ops::Range<u64>) {
    for page in numbers.map(entry).collect::<Vec<_>>().chunks(500) {
        index.insert_all(page);
        if index.is_due() {
            index.begin(None);
        }
    }
}

fn name(text: &str) -> FileName {
    FileName::new(text).unwrap()
}

/// An index of `COUNT` entries, saved.
fn saved(key: [u8; 32], session: u8) -> MemoryStorage {
    let storage = MemoryStorage::new();
    let index = DiskIndex::new(Arc::new(storage.clone()), key, SETTINGS, Some([session; 16]));
    insert(&index, 0..COUNT);
    index.save(b"note".to_vec()).unwrap();
    storage
}

fn open(storage: &MemoryStorage) -> Result<DiskIndex, OpenDiskIndexError> {
    let (index, note) = DiskIndex::open(Arc::new(storage.clone()), KEY, SETTINGS, WRITER)?;
    assert_eq!(note, b"note");
    Ok(index)
}

/// The number of entries found. All others must be reported as unknown, not as absent.
fn check(index: &DiskIndex) -> u64 {
    let mut found_count = 0;
    for number in 0..COUNT {
        let (fingerprint, address) = entry(number);
        let found = index.candidates(fingerprint);
        if found.addresses.contains(&address) {
            found_count += 1;
        } else {
            assert!(!found.is_complete, "{number} is said to be nowhere");
            assert!(matches!(index.near(fingerprint), NearAddresses::Some(_)));
        }
    }
    found_count
}

fn run_file(storage: &MemoryStorage) -> FileName {
    storage.list("index").unwrap().into_iter().find(|file| file.as_str().starts_with("index/disk-")).unwrap()
}

fn contents(storage: &MemoryStorage, file: &FileName) -> Vec<u8> {
    let storage: &dyn Storage = storage;
    storage.read_whole(file, 1 << 30).unwrap()
}

#[test]
fn an_index_opens_as_it_was_saved_and_takes_little_room() {
    let storage = saved(KEY, 1);
    let index = open(&storage).unwrap();
    assert_eq!((check(&index), index.len(), index.unsaved()), (COUNT, COUNT, 0));
    let stats = index.stats();
    assert!(stats.file_bytes <= 11 * COUNT, "{stats:?}");
    assert!(stats.page_reads <= COUNT + COUNT / 50, "one page a look-up, seldom two: {stats:?}");
}

#[test]
fn a_harmed_summary_is_refused_but_for_its_filter() {
    let storage = saved(KEY, 1);
    let summary = name("index/disk");
    let whole = contents(&storage, &summary);
    let mut harms: Vec<(usize, Vec<u8>)> = Vec::new();
    for at in (0..whole.len()).step_by(97).chain([whole.len() - 1]) {
        let mut flipped = whole.clone();
        flipped[at] ^= 4;
        harms.push((at, flipped));
        harms.push((at, whole[..at].to_vec()));
        let mut zeroed = whole.clone();
        zeroed[at..].fill(0);
        harms.push((at, zeroed));
    }
    let (mut opened, mut refused) = (0, 0);
    for (at, harmed) in harms {
        if harmed == whole {
            continue;
        }
        let storage = storage.fork();
        storage.set_contents(&summary, harmed);
        match open(&storage) {
            Ok(index) => {
                opened += 1;
                // A whole check each time would be slow.
                if opened % 40 == 1 {
                    assert_eq!(check(&index), COUNT, "harmed at {at}");
                }
            }
            Err(error) => {
                refused += 1;
                assert!(matches!(error, OpenDiskIndexError::Damaged { .. }), "at {at}: {error}");
            }
        }
    }
    assert!(opened > 50 && refused > 3, "{opened} opened, {refused} refused");
}

#[test]
fn a_harmed_run_is_noticed() {
    let storage = saved(KEY, 1);
    let file = run_file(&storage);
    let whole = contents(&storage, &file);
    for length in [0, 1, 4095, whole.len() - 4096, whole.len() + 4096] {
        let storage = storage.fork();
        let mut harmed = whole.clone();
        harmed.resize(length, 0);
        storage.set_contents(&file, harmed);
        let error = open(&storage).err().expect("another length");
        assert!(matches!(error, OpenDiskIndexError::Length { .. }), "{error}");
    }
    let page = 4096;
    let mut zeroed = whole.clone();
    zeroed[2 * page..4 * page].fill(0);
    let mut swapped = whole.clone();
    let (first, second) = swapped.split_at_mut(page);
    first.swap_with_slice(&mut second[..page]);
    let foreign = contents(&saved([9; 32], 1), &file);
    let of_another_moment = contents(&saved(KEY, 2), &file);
    for (what, harmed) in [
        ("zeroed", zeroed),
        ("swapped", swapped),
        ("foreign", foreign),
        ("of another moment", of_another_moment),
    ] {
        let storage = storage.fork();
        storage.set_contents(&file, harmed);
        let index = open(&storage).unwrap();
        assert!(check(&index) < COUNT, "{what}");
        assert!(index.failure().is_some_and(|trouble| trouble.contains("damaged")), "{what}");
        // The next opening makes the index anew.
        assert!(matches!(open(&storage).err(), Some(OpenDiskIndexError::Missing)), "{what}");
        assert!(index.save(Vec::new()).is_err(), "{what}");
    }
    storage.remove(&file).unwrap();
    assert!(matches!(open(&storage).err(), Some(OpenDiskIndexError::Storage { .. })));
}

#[test]
fn another_stores_index_is_refused() {
    let error = open(&saved([9; 32], 1)).err().unwrap();
    assert!(matches!(error, OpenDiskIndexError::Damaged { .. }), "{error}");
}

/// Storage that fails on demand.
struct Failing {
    inner: MemoryStorage,
    writes_fail: AtomicBool,
    reads_fail: AtomicBool,
    /// The number of coming reads that fail.
    failing_reads: AtomicU64,
    /// A bit flips in the next read.
    a_bit_flips: AtomicBool,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    /// The greatest number of bytes that a caller has waited to be removed.
    most_removed: AtomicU64,
}

impl Failing {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryStorage::new(),
            writes_fail: AtomicBool::new(false),
            reads_fail: AtomicBool::new(false),
            failing_reads: AtomicU64::new(0),
            a_bit_flips: AtomicBool::new(false),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            most_removed: AtomicU64::new(0),
        })
    }

    fn note_removed(&self, bytes: u64) {
        self.most_removed.fetch_max(bytes, Ordering::Relaxed);
    }

    fn write(&self) -> io::Result<()> {
        if self.writes_fail.load(Ordering::Relaxed) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Storage for Failing {
    forward_storage!(inner: length, sync_soon, sync_folder, list, lock);

    fn create(&self, file: &FileName) -> io::Result<()> {
        self.write()?;
        self.inner.create(file)
    }

    fn append(&self, file: &FileName, bytes: &[u8]) -> io::Result<u64> {
        self.write()?;
        self.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.inner.append(file, bytes)
    }

    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let left =
            self.failing_reads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if self.reads_fail.load(Ordering::Relaxed) || left.is_ok() {
            return Err(io::Error::other("no such sector"));
        }
        self.read_bytes.fetch_add(into.len() as u64, Ordering::Relaxed);
        self.inner.read_at(file, offset, into)?;
        if self.a_bit_flips.swap(false, Ordering::Relaxed) {
            into[into.len() / 3] ^= 8;
        }
        Ok(())
    }

    fn truncate(&self, file: &FileName, length: u64) -> io::Result<()> {
        self.note_removed(self.inner.length(file)? - length);
        self.inner.truncate(file, length)
    }

    fn sync(&self, file: &FileName) -> io::Result<()> {
        self.write()?;
        self.inner.sync(file)
    }

    fn rename(&self, from: &FileName, to: &FileName) -> io::Result<()> {
        self.write()?;
        self.inner.rename(from, to)
    }

    fn remove(&self, file: &FileName) -> io::Result<()> {
        self.note_removed(self.inner.length(file)?);
        self.inner.remove(file)
    }

    fn remove_and_free_soon(&self, file: &FileName) -> io::Result<()> {
        self.inner.remove(file)
    }
}

#[test]
fn a_full_disk_costs_nothing_once_there_is_space_again() {
    let storage = Failing::new();
    let index = DiskIndex::new(storage.clone(), KEY, SETTINGS, WRITER);
    insert(&index, 0..3000);
    storage.writes_fail.store(true, Ordering::Relaxed);
    insert(&index, 3000..6000);
    assert!(index.failure().is_some_and(|trouble| trouble.contains("cannot write")));
    assert!((0..6000).all(|number| index.candidates(entry(number).0).addresses.contains(&entry(number).1)));
    assert!(index.save(Vec::new()).is_err());
    storage.writes_fail.store(false, Ordering::Relaxed);
    insert(&index, 6000..COUNT);
    index.save(b"note".to_vec()).unwrap();
    assert_eq!((check(&index), index.failure()), (COUNT, None));
    assert_eq!(check(&open(&storage.inner).unwrap()), COUNT);
}

#[test]
fn a_disk_that_stays_full_bounds_memory_and_says_what_is_unknown() {
    let storage = Failing::new();
    let index = DiskIndex::new(storage.clone(), KEY, SETTINGS, WRITER);
    storage.writes_fail.store(true, Ordering::Relaxed);
    insert(&index, 0..200_000);
    assert!(index.stats().memory_bytes < 1 << 20, "{:?}", index.stats());
    assert!(check(&index) < COUNT);
    assert!(index.save(Vec::new()).is_err());
    storage.writes_fail.store(false, Ordering::Relaxed);
    assert!(index.save(Vec::new()).is_err(), "what was let go is in the log only");
    assert!(matches!(open(&storage.inner).err(), Some(OpenDiskIndexError::Missing)));
}

#[test]
fn a_disk_that_cannot_be_read_for_a_while_harms_nothing() {
    let storage = Failing::new();
    let index = DiskIndex::new(storage.clone(), KEY, SETTINGS, WRITER);
    insert(&index, 0..COUNT);
    index.save(b"note".to_vec()).unwrap();
    storage.reads_fail.store(true, Ordering::Relaxed);
    assert_eq!(check(&index), 0);
    assert!(index.failure().is_some_and(|trouble| trouble.contains("no such sector")));
    storage.reads_fail.store(false, Ordering::Relaxed);
    assert_eq!(check(&index), COUNT);
}

#[test]
fn what_cannot_be_read_twice_is_made_anew_by_the_next_opening() {
    let storage = Failing::new();
    let index = DiskIndex::new(storage.clone(), KEY, SETTINGS, WRITER);
    insert(&index, 0..COUNT);
    index.save(b"note".to_vec()).unwrap();
    insert(&index, COUNT..COUNT + 10);
    storage.failing_reads.store(1, Ordering::Relaxed);
    index.save(b"note".to_vec()).unwrap();
    assert_eq!(check(&open(&storage.inner).unwrap()), COUNT);
    insert(&index, COUNT + 10..COUNT + 20);
    storage.failing_reads.store(2, Ordering::Relaxed);
    let error = index.save(b"note".to_vec()).unwrap_err();
    assert!(error.to_string().contains("no such sector"), "{error}");
    assert!(matches!(open(&storage.inner).err(), Some(OpenDiskIndexError::Missing)));
    assert_eq!(check(&index), COUNT, "it is used all the same");
}

#[test]
fn a_bad_reading_in_a_pass_is_no_damage() {
    let storage = Failing::new();
    let index = DiskIndex::new(storage.clone(), KEY, SETTINGS, WRITER);
    insert(&index, 0..COUNT / 2);
    index.save(b"note".to_vec()).unwrap();
    for first in (COUNT / 2..COUNT).step_by(1000) {
        storage.a_bit_flips.store(true, Ordering::Relaxed);
        insert(&index, first..first + 1000);
        index.save(b"note".to_vec()).unwrap();
        assert!(!storage.a_bit_flips.load(Ordering::Relaxed), "a bit was flipped");
    }
    assert_eq!((check(&index), index.failure()), (COUNT, None));
    assert_eq!(check(&open(&storage.inner).unwrap()), COUNT);
}

/// A client that chooses the blocks of a plain store may make many whose fingerprints crowd one
/// place, or are all the same.
#[test]
fn an_enemys_fingerprints_cost_a_bounded_amount_and_harm_nobody() {
    for enemy in [
        |number: u64| Fingerprint((0x1234_5678 << 32) + (number << 4)),
        |_: u64| Fingerprint(0x1234_5678_9abc_def0),
    ] {
        let storage = Failing::new();
        let index = DiskIndex::new(storage.clone(), KEY, SETTINGS, WRITER);
        insert(&index, 0..COUNT);
        let enemies: Vec<_> =
            (0..COUNT).map(|number| (enemy(number), LogAddress::new(1 << 30 | number).unwrap())).collect();
        for page in enemies.chunks(500) {
            let before = storage.written_bytes.load(Ordering::Relaxed);
            index.insert_all(page);
            if index.is_due() {
                index.begin(None);
            }
            let written = storage.written_bytes.load(Ordering::Relaxed) - before;
            assert!(written <= 2 << 20, "a step wrote {written} bytes");
        }
        assert_eq!(check(&index), COUNT, "nobody else is harmed");
        for (fingerprint, address) in enemies.iter().step_by(501) {
            let before = storage.read_bytes.load(Ordering::Relaxed);
            let found = index.candidates(*fingerprint);
            assert!(found.addresses.contains(address) || !found.is_complete);
            let read = storage.read_bytes.load(Ordering::Relaxed) - before;
            assert!(read <= 16 * 4096, "a look-up read {read} bytes");
        }
        assert!(index.stats().memory_bytes < 1 << 20, "{:?}", index.stats());
    }
}

#[test]
fn no_insertion_waits_for_a_whole_pass() {
    let storage = Failing::new();
    let settings = DiskIndexSettings { memory_bytes: 1 << 20, ..SETTINGS };
    let index = DiskIndex::new(storage.clone(), KEY, settings, WRITER);
    let mut most = 0;
    for start in (0..400_000).step_by(500) {
        let before = storage.written_bytes.load(Ordering::Relaxed);
        insert(&index, start..start + 500);
        most = most.max(storage.written_bytes.load(Ordering::Relaxed) - before);
    }
    let file_bytes = index.stats().file_bytes;
    assert!(file_bytes > 3_000_000, "{file_bytes}");
    assert!(most <= file_bytes / 8, "{most} of {file_bytes} bytes in one step");
    let removed = storage.most_removed.load(Ordering::Relaxed);
    assert_eq!(removed, 0, "nobody waits for the disk to have its space again");
    let files = storage.list("index").unwrap();
    assert!(files.len() <= 2, "a run, and the next one: {files:?}");
    index.save(Vec::new()).unwrap();
    assert_eq!(storage.list("index").unwrap().len(), 2, "the summary and its run");
}
