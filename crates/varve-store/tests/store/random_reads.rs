//! The cost of reading one block of a disk, counted in reads and bytes. These are the same on every
//! machine.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use varve_block::{Block, BlockName, BlockStore, BlockType};
use varve_store::{PassphraseCost, Secret, Store, StoreAccess, StoreConfig};
use varve_world::{FileName, MemoryStorage, Random, SeededRandom, Storage, World, forward_storage};
use zeroize::Zeroizing;

const BLOCK_BYTES: usize = 8 << 10;

/// Storage that counts the reads.
#[derive(Default)]
struct Counted {
    storage: MemoryStorage,
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl Counted {
    /// The number of reads, and of bytes read, since the last call.
    fn take(&self) -> (u64, u64) {
        (self.reads.swap(0, Ordering::Relaxed), self.bytes.swap(0, Ordering::Relaxed))
    }
}

impl Storage for Counted {
    forward_storage!(
        storage: create, append, length, truncate, sync_soon, sync, sync_folder, rename, remove, list, lock
    );

    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(into.len() as u64, Ordering::Relaxed);
        self.storage.read_at(file, offset, into)
    }
}

fn open(storage: &Arc<Counted>, seed: u64, access: StoreAccess<'_>) -> Store {
    let world = World::deterministic(Arc::clone(storage) as Arc<dyn Storage>, seed);
    let secret = Secret::KeyFile(Zeroizing::new(vec![7; 32]));
    Store::open(world, Some(&secret), access, &mut |_| {}).unwrap()
}

/// A store with blocks of a disk, opened anew for reading. Every second byte of a block is noise.
fn filled(block_count: u64) -> (Arc<Counted>, Store, Vec<BlockName>) {
    let storage = Arc::new(Counted::default());
    let world = World::deterministic(Arc::clone(&storage) as Arc<dyn Storage>, 1);
    let secret = Secret::KeyFile(Zeroizing::new(vec![7; 32]));
    Store::create(&world, &StoreConfig::new([5; 16]), Some(&secret), PassphraseCost::default()).unwrap();
    let store = open(&storage, 2, StoreAccess::Write { holder: "a test" });
    store.expect_reads_in_pieces(true);
    let put = |number| {
        let mut bytes = vec![0; BLOCK_BYTES];
        SeededRandom::new(number).fill(&mut bytes).unwrap();
        bytes.iter_mut().step_by(2).for_each(|byte| *byte = 0);
        let block_type = BlockType::DATA;
        BlockName { score: store.put(Block { block_type, bytes: &bytes }).unwrap(), block_type }
    };
    let names: Vec<_> = (0..block_count).map(put).collect();
    store.sync().unwrap();
    drop(store);
    let reader = open(&storage, 3, StoreAccess::Read);
    // The arena's header is read once.
    reader.get(&names[0]).unwrap();
    storage.take();
    (storage, reader, names)
}

#[test]
fn a_block_that_is_expected_costs_one_read_of_one_frame() {
    // A clump has 192 of them: blocks 192, 384, … begin the next ones.
    let (storage, reader, names) = filled(6 * 192);
    reader.get(&names[200]).unwrap();
    let (reads, bytes) = storage.take();
    assert_eq!(reads, 2, "where it is in its clump, and its frame");
    assert!(bytes <= (4 << 10) + (32 << 10), "{bytes}");

    reader.expect(&names);
    let (reads, bytes) = storage.take();
    assert_eq!((reads, bytes), (4, 4 * (4 << 10)), "the tables of the other four clumps");
    reader.expect(&names);
    assert_eq!(storage.take(), (0, 0));

    for place in [390, 600, 800, 1000] {
        reader.get(&names[place]).unwrap();
        let (reads, bytes) = storage.take();
        assert_eq!(reads, 1, "block {place}");
        assert!(bytes <= 32 << 10, "block {place}: {bytes}");
    }
}

#[test]
fn who_expects_what_is_not_there_is_not_told() {
    let (storage, reader, names) = filled(10);
    let mut absent = names[3];
    absent.block_type = BlockType::DIRECTORY;
    reader.expect(&[absent]);
    assert_eq!(storage.take(), (0, 0));
    reader.get(&names[3]).unwrap();
}
