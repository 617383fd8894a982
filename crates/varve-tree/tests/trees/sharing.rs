//! The blocks that trees read, store and share, counted.

use varve_block::{BlockKind, BlockStore, MemoryBlockStore};
use varve_tree::{ContentWriter, Cutting, Entry, Extent, FixedBuilder, StreamPiece, TreeReader, put_leaves};

use crate::sample::{DEEP, IMAGE, TINY, noise, put_cut, put_fixed, shape};

const TIB: u64 = 1 << 40;

/// The number of blocks that `put` adds to the store.
fn blocks_added(store: &MemoryBlockStore, put: impl FnOnce() -> Entry) -> usize {
    let before = store.block_count();
    let _ = put();
    store.block_count() - before
}

#[test]
fn a_read_reads_only_what_is_on_its_way() {
    let store = MemoryBlockStore::new();
    let file = noise(1, 8 << 20);
    let fixed = put_fixed(&store, IMAGE, &file);
    let cut = put_cut(&store, Cutting::DIRECTORY, &file);
    for entry in [fixed, cut] {
        let reader = TreeReader::new(&store, &entry);
        for offset in [0, 5_000_000, (8 << 20) - 1] {
            let before = store.get_count();
            reader.read_at(offset, &mut [0]).unwrap();
            assert_eq!(store.get_count() - before, u64::from(entry.depth()) + 1, "{entry:?}");
        }
        let before = store.get_count();
        reader.read_at(3 << 20, &mut [0; 8192]).unwrap();
        let reads = store.get_count() - before;
        assert!(reads <= u64::from(entry.depth()) * 2 + 6, "{reads} reads for {entry:?}");
    }
}

#[test]
fn extents_read_no_leaves() {
    let store = MemoryBlockStore::new();
    let entry = put_fixed(&store, IMAGE, &noise(2, 1 << 20));
    let before = store.get_count();
    assert_eq!(TreeReader::new(&store, &entry).extents(0..1 << 20).count(), 128);
    assert_eq!(store.get_count() - before, 1, "one pointer block");
}

#[test]
fn a_hole_costs_a_few_blocks() {
    let file = noise(3, 100_000);
    let store = MemoryBlockStore::new();
    for shape in [IMAGE, shape(512, 128)] {
        let mut builder = FixedBuilder::new(&store, shape);
        let scores = put_leaves(&store, &shape, &file).unwrap();
        let leaf_count = scores.len() as u64;
        builder.push(&scores).unwrap();
        builder.push_zeros(TIB / u64::from(shape.leaf_bytes) - leaf_count).unwrap();
        builder.push(&scores).unwrap();
        let size = TIB + file.len() as u64;
        let before = store.block_count();
        let entry = builder.finish(size).unwrap();
        let added = store.block_count() - before;
        assert!(added <= 2 * usize::from(entry.depth()) + 12, "{added} blocks for {entry:?}");
        check_hole(&store, &entry, &file, u64::from(shape.leaf_bytes));
    }
    let mut writer = ContentWriter::new(&store, BlockKind::Data, Cutting::FILE);
    writer.write(&file).unwrap();
    writer.write_zeros(TIB - file.len() as u64 - 5).unwrap();
    writer.write_zeros(5).unwrap();
    writer.write(&file).unwrap();
    let entry = writer.finish().unwrap();
    assert_eq!(entry.depth(), 1);
    check_hole(&store, &entry, &file, 1);
}

/// A file that begins and ends with the same bytes, 1 TiB apart.
fn check_hole(store: &MemoryBlockStore, entry: &Entry, file: &[u8], leaf_bytes: u64) {
    let reader = TreeReader::new(store, entry);
    let extents: Vec<Extent> = reader.extents(0..reader.size()).collect::<Result<_, _>>().unwrap();
    let holes: Vec<&Extent> = extents.iter().filter(|extent| extent.leaf.is_none()).collect();
    assert_eq!(holes.len(), 1, "one hole is one extent");
    let hole = holes[0].range();
    assert_eq!(hole, (file.len() as u64).next_multiple_of(leaf_bytes)..TIB);
    let middle: Vec<_> = reader.extents(12_345_678..22_345_678).collect::<Result<_, _>>().unwrap();
    assert_eq!(middle, [Extent { offset: 12_345_678, length: 10_000_000, leaf: None }]);
    let mut end = vec![1; file.len() + 9];
    reader.read_at(TIB - 9, &mut end).unwrap();
    assert_eq!(end, [&[0; 9], file].concat());
    let mut sums = (0, 0);
    let mut sum = |piece: StreamPiece<'_>| {
        match piece {
            StreamPiece::Bytes(bytes) => sums.0 += bytes.len(),
            StreamPiece::Zeros(count) => sums.1 += count,
        }
        Ok(())
    };
    reader.stream(&mut sum).unwrap();
    assert_eq!(sums, (2 * file.len(), TIB - file.len() as u64));
}

#[test]
fn nothing_but_zeros_is_one_score() {
    let store = MemoryBlockStore::new();
    let mut builder = FixedBuilder::new(&store, IMAGE);
    builder.push_zeros((1 << 50) / 8192).unwrap();
    let fixed = builder.finish(1 << 50).unwrap();
    let mut writer = ContentWriter::new(&store, BlockKind::Data, Cutting::FILE);
    writer.write_zeros(1 << 50).unwrap();
    writer.write(&[0; 3_000_000]).unwrap();
    let cut = writer.finish().unwrap();
    assert_eq!((fixed.root(), cut.root(), cut.depth()), (store.empty_score(), store.empty_score(), 0));
    assert_eq!(put_fixed(&store, IMAGE, &[0; 100_000]).root(), store.empty_score());
    assert_eq!(store.block_count(), 0);
}

#[test]
fn what_is_missing_at_the_end_is_zeros() {
    let store = MemoryBlockStore::new();
    let mut builder = FixedBuilder::new(&store, DEEP);
    builder.push(&put_leaves(&store, &DEEP, &noise(4, 1024)).unwrap()).unwrap();
    let entry = builder.finish(100_000).unwrap();
    let full = [noise(4, 1024), vec![0; 98_976]].concat();
    assert_eq!(entry, put_fixed(&store, DEEP, &full));
    assert_eq!(crate::sample::read_all(&store, &entry), full);
}

#[test]
fn a_change_costs_a_path() {
    let store = MemoryBlockStore::new();
    let mut file = noise(5, 4 << 20);
    let deep = usize::from(put_fixed(&store, DEEP, &file).depth());
    let cut = usize::from(put_cut(&store, TINY, &file).depth());
    for offset in [0, 2_000_000, (4 << 20) - 1] {
        file[offset] ^= 0x55;
        let added = blocks_added(&store, || put_fixed(&store, DEEP, &file));
        assert_eq!(added, deep + 1, "a byte at {offset} of a fixed tree");
        let added = blocks_added(&store, || put_cut(&store, TINY, &file));
        assert!(added <= 4 * (cut + 1), "{added} blocks for a byte at {offset} of a tree cut by content");
    }
    file.push(1);
    let added = blocks_added(&store, || put_fixed(&store, DEEP, &file));
    assert!(added <= deep + 3, "{added} blocks for a byte at the end");
    let added = blocks_added(&store, || put_cut(&store, TINY, &file));
    assert!(added <= 3 * (cut + 1), "{added} blocks for a byte at the end, cut by content");
}

#[test]
fn an_insertion_at_the_front_shares_nearly_all() {
    for (cutting, seed) in [(Cutting::FILE, 6), (Cutting::DIRECTORY, 7), (TINY, 8)] {
        let store = MemoryBlockStore::new();
        let file = noise(seed, 8 << 20);
        let entry = put_cut(&store, cutting, &file);
        let before = store.block_count();
        let longer = put_cut(&store, cutting, &[&[9], file.as_slice()].concat());
        let added = store.block_count() - before;
        let most = 6 * (usize::from(entry.depth().max(longer.depth())) + 1);
        assert!(added <= most, "{added} of {before} blocks are new");
    }
}

/// If a pointer block ends just before a hole at the end of the file, the hole needs no block of
/// its own.
#[test]
fn no_pointer_block_is_all_hole() {
    let bytes = noise(9, 600);
    for count in 1..=bytes.len() {
        let store = MemoryBlockStore::new();
        let mut writer = ContentWriter::new(&store, BlockKind::Data, TINY);
        for byte in &bytes[..count] {
            writer.write(&[*byte]).unwrap();
            writer.write_zeros(1000).unwrap();
        }
        let entry = writer.finish().unwrap();
        assert_eq!(crate::sample::read_all(&store, &entry).len(), count * 1001);
        let hole = [&1000u64.to_le_bytes()[..], store.empty_score().as_bytes()].concat();
        assert!(store.names().iter().all(|name| store.get(name).unwrap() != hole), "{count} bytes and holes");
    }
}
