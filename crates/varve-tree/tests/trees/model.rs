//! Trees against a plain vector of bytes.

use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::{
    Just, ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use proptest::test_runner::TestCaseError;
use varve_block::{BlockKind, BlockStore, MemoryBlockStore};
use varve_tree::{ContentWriter, Cutting, Entry, FixedBuilder, Shape, TreeReader, put_leaves, put_whole};

use crate::sample::{TINY, noise, put_cut, put_fixed, read_all, shape};

/// A run of bytes in a file.
#[derive(Debug, Clone)]
enum Run {
    Noise(u64, usize),
    Zeros(usize),
}

/// Sizes at the borders: nothing, one byte, whole blocks, and one byte less or more.
fn length() -> impl Strategy<Value = usize> {
    let border = (prop_oneof![Just(64usize), Just(512), Just(1024), Just(8192), Just(12_288)], 0..5usize);
    prop_oneof![
        border.prop_flat_map(|(block, count)| {
            let border = block * count;
            border.saturating_sub(1)..border + 2
        }),
        0..30_000usize,
    ]
}

fn file() -> impl Strategy<Value = Vec<u8>> {
    let run = prop_oneof![
        (any::<u64>(), length()).prop_map(|(seed, length)| Run::Noise(seed, length)),
        length().prop_map(Run::Zeros),
    ];
    vec(run, 0..6).prop_map(|runs| {
        let bytes = runs.iter().map(|run| match run {
            Run::Noise(seed, length) => noise(*seed, *length),
            Run::Zeros(length) => vec![0; *length],
        });
        bytes.flatten().collect()
    })
}

fn any_shape() -> impl Strategy<Value = Shape> {
    let leaf_bytes = prop_oneof![Just(512), Just(1000), Just(4096), Just(1 << 20)];
    let pointer_bytes = prop_oneof![Just(64), Just(100), Just(512), Just(8192)];
    (leaf_bytes, pointer_bytes).prop_map(|(leaf, pointer)| shape(leaf, pointer))
}

fn any_cutting() -> impl Strategy<Value = Cutting> {
    prop_oneof![Just(TINY), Just(Cutting::DIRECTORY), Just(Cutting::FILE)]
}

/// Cuts a file into slices of the given lengths, used in a cycle.
fn slices<'a>(mut bytes: &'a [u8], lengths: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    lengths.iter().cycle().map_while(move |length| {
        let (slice, rest) = bytes.split_at((*length).min(bytes.len()));
        bytes = rest;
        (!slice.is_empty()).then_some(slice)
    })
}

fn zeros_or_bytes(slice: &[u8]) -> Option<u64> {
    slice.iter().all(|byte| *byte == 0).then_some(slice.len() as u64)
}

fn check_reading(
    store: &dyn BlockStore,
    entry: &Entry,
    file: &[u8],
    ranges: &[(usize, usize)],
) -> Result<(), TestCaseError> {
    prop_assert_eq!(Entry::decode(&entry.encode(), 32), Ok(*entry));
    prop_assert_eq!(entry.size(), file.len() as u64);
    prop_assert_eq!(read_all(store, entry), file);
    let reader = TreeReader::new(store, entry);
    check_extents(&reader, file, 0..file.len())?;
    for (from, to) in ranges {
        let (from, to) = (from % (file.len() + 1), to % (file.len() + 1));
        let range = from.min(to)..from.max(to);
        let mut into = vec![0xaa; range.len()];
        reader.read_at(range.start as u64, &mut into).unwrap();
        prop_assert_eq!(&into, &file[range.clone()]);
        check_extents(&reader, file, range)?;
    }
    prop_assert!(reader.read_at(file.len() as u64, &mut [0]).is_err());
    prop_assert!(reader.read_at(u64::MAX, &mut [0]).is_err());
    Ok(())
}

/// The extents of a range follow each other, cover it and give its bytes. No two holes touch.
fn check_extents(reader: &TreeReader<'_>, file: &[u8], range: Range<usize>) -> Result<(), TestCaseError> {
    let extents: Vec<_> =
        reader.extents(range.start as u64..range.end as u64).collect::<Result<_, _>>().unwrap();
    let mut at = extents.first().map_or(range.start as u64, |first| first.offset);
    prop_assert!(at <= range.start as u64);
    for (extent, bytes) in extents.iter().zip(reader.read_extents(&extents)) {
        prop_assert_eq!(extent.offset, at);
        prop_assert!(extent.length > 0);
        at += extent.length;
        let mut bytes = bytes.unwrap().to_vec();
        bytes.resize(usize::try_from(extent.length).unwrap(), 0);
        prop_assert_eq!(&bytes, &file[usize::try_from(extent.offset).unwrap()..][..bytes.len()]);
    }
    prop_assert!(at >= range.end as u64);
    prop_assert!(extents.windows(2).all(|pair| pair[0].leaf.is_some() || pair[1].leaf.is_some()));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_fixed_tree_is_its_file(
        file in file(),
        shape in any_shape(),
        counts in vec(1..9usize, 1..4),
        ranges in vec(any::<(usize, usize)>(), 4),
    ) {
        let store = MemoryBlockStore::new();
        let entry = put_fixed(&store, shape, &file);
        check_reading(&store, &entry, &file, &ranges)?;

        let mut builder = FixedBuilder::new(&store, shape);
        let lengths: Vec<usize> = counts.iter().map(|count| count * shape.leaf_bytes as usize).collect();
        for slice in slices(&file, &lengths) {
            match zeros_or_bytes(slice) {
                Some(zeros) => builder.push_zeros(zeros.div_ceil(u64::from(shape.leaf_bytes))).unwrap(),
                None => builder.push(&put_leaves(&store, &shape, slice).unwrap()).unwrap(),
            }
        }
        prop_assert_eq!(builder.finish(file.len() as u64).unwrap(), entry);
    }

    #[test]
    fn a_tree_that_is_cut_by_content_is_its_file(
        file in file(),
        cutting in any_cutting(),
        lengths in vec(1..20_000usize, 1..5),
        ranges in vec(any::<(usize, usize)>(), 4),
    ) {
        let store = MemoryBlockStore::new();
        let entry = put_cut(&store, cutting, &file);
        check_reading(&store, &entry, &file, &ranges)?;

        let mut writer = ContentWriter::new(&store, BlockKind::Data, cutting);
        for slice in slices(&file, &lengths) {
            writer.write(slice).unwrap();
        }
        prop_assert_eq!(writer.bytes_written(), file.len() as u64);
        prop_assert_eq!(writer.finish().unwrap(), entry);
    }

    #[test]
    fn holes_are_read_as_zeros(
        file in file(),
        cutting in any_cutting(),
        lengths in vec(1..5000usize, 1..5),
        ranges in vec(any::<(usize, usize)>(), 4),
    ) {
        let store = MemoryBlockStore::new();
        let mut writer = ContentWriter::new(&store, BlockKind::Data, cutting);
        for slice in slices(&file, &lengths) {
            match zeros_or_bytes(slice) {
                Some(zeros) => writer.write_zeros(zeros).unwrap(),
                None => writer.write(slice).unwrap(),
            }
        }
        check_reading(&store, &writer.finish().unwrap(), &file, &ranges)?;
    }

    #[test]
    fn small_files_are_what_a_writer_makes_of_them(lengths in vec(0..=64usize, 0..20), zeros in 0..64usize) {
        let store = MemoryBlockStore::new();
        let mut files: Vec<Vec<u8>> = lengths.iter().map(|length| noise(*length as u64, *length)).collect();
        files.push(vec![0; zeros]);
        let slices: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
        let entries = put_whole(&store, BlockKind::Data, TINY, &slices).unwrap();
        prop_assert_eq!(entries.len(), files.len());
        for (file, entry) in files.iter().zip(entries) {
            prop_assert_eq!(entry, put_cut(&store, TINY, file));
            prop_assert_eq!(&read_all(&store, &entry), file);
        }
    }
}

/// Longer than one batch and one part of a write, so that every path of the writer is taken.
#[test]
fn long_writes_in_any_slicing_give_one_entry() {
    let store = MemoryBlockStore::new();
    let file = noise(11, 11_000_000);
    let entry = put_cut(&store, Cutting::FILE, &file);
    for length in [4097, 70_000, 1 << 20, (1 << 20) - 1, 3_000_000, 5_000_000] {
        let mut writer = ContentWriter::new(&store, BlockKind::Data, Cutting::FILE);
        file.chunks(length).for_each(|slice| writer.write(slice).unwrap());
        assert_eq!(writer.finish().unwrap(), entry, "in slices of {length}");
    }
    assert_eq!(read_all(&store, &entry), file);
    let mut middle = vec![0; 5_000_000];
    TreeReader::new(&store, &entry).read_at(3_333_333, &mut middle).unwrap();
    assert_eq!(middle, file[3_333_333..8_333_333]);
}

#[test]
fn a_deep_tree_is_read_back() {
    let store = MemoryBlockStore::new();
    let file = noise(3, 300_000);
    let entry = put_fixed(&store, crate::sample::DEEP, &file);
    assert_eq!(entry.depth(), 10);
    assert_eq!(read_all(&store, &entry), file);
    let entry = put_cut(&store, TINY, &noise(4, 3 << 20));
    assert!(entry.depth() >= 3, "{entry:?}");
    assert_eq!(read_all(&store, &entry), noise(4, 3 << 20));
}

#[test]
fn an_empty_file_has_no_blocks() {
    let store = MemoryBlockStore::new();
    for entry in [put_fixed(&store, crate::sample::IMAGE, &[]), put_cut(&store, Cutting::FILE, &[])] {
        assert_eq!((entry.size(), entry.depth(), entry.root()), (0, 0, store.empty_score()));
        assert_eq!(read_all(&store, &entry), []);
        assert_eq!(TreeReader::new(&store, &entry).extents(0..9).count(), 0);
    }
    assert_eq!(store.block_count(), 0);
}

#[test]
fn an_empty_range_has_no_extents() {
    let store = MemoryBlockStore::new();
    for file in [vec![0; 5000], noise(5, 5000)] {
        for entry in [put_fixed(&store, crate::sample::IMAGE, &file), put_cut(&store, TINY, &file)] {
            let reader = TreeReader::new(&store, &entry);
            for offset in [0, 1, 2500, 4999, 5000, 9000] {
                assert_eq!(reader.extents(offset..offset).count(), 0, "at {offset} of {entry:?}");
            }
        }
    }
}
