//! Trees that no writer made cause errors, but never a panic, a loop, or unbounded memory.

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_oneof, proptest};
use varve_block::{Block, BlockKind, BlockStore, BlockType, MemoryBlockStore, Score};
use varve_tree::{
    Entry, Extent, MalformedPointer, ReadPointerError, ReadTreeError, TreeReader, Visit, difference, walk,
};

const LEAF_BYTES: u32 = 1024;
const POINTER_BYTES: u32 = 400;

fn entry(layout: u8, depth: u8, size: u64, root: Score) -> Entry {
    let sizes =
        [&[0, layout, depth, 0][..], &LEAF_BYTES.to_le_bytes(), &POINTER_BYTES.to_le_bytes()].concat();
    Entry::decode(&[&sizes, &size.to_le_bytes()[..], root.as_bytes()].concat(), 32).unwrap()
}

fn put(store: &MemoryBlockStore, depth: u8, bytes: &[u8]) -> Score {
    let block_type = BlockType::at_depth(BlockKind::Data, depth).unwrap();
    store.put(Block { block_type, bytes }).unwrap()
}

fn rows(rows: &[(u64, Score)]) -> Vec<u8> {
    rows.iter().flat_map(|(length, score)| [&length.to_le_bytes()[..], score.as_bytes()].concat()).collect()
}

/// The error found in a root of depth `depth`.
fn malformed(layout: u8, depth: u8, size: u64, root: &[u8]) -> MalformedPointer {
    let store = MemoryBlockStore::new();
    let entry = entry(layout, depth, size, put(&store, depth, root));
    let mut extents: Vec<_> = TreeReader::new(&store, &entry).extents(0..size).collect();
    assert_eq!(extents.len(), 1);
    match extents.remove(0) {
        Err(ReadPointerError::Malformed { range, name, source }) => {
            assert_eq!((range, name.block_type.depth(), name.score), (0..size, depth, entry.root()));
            source
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn pointer_blocks_are_checked_against_their_parents() {
    let leaf = Score::from([7; 32]);
    let whole = rows(&[(1000, leaf), (500, leaf)]);
    let length = |actual, pointer| MalformedPointer::Length { actual, pointer, most: 400 };
    assert_eq!(malformed(1, 1, 1500, &whole[..79]), length(79, 40));
    assert_eq!(malformed(1, 1, 440, &rows(&[(40, leaf); 11])), length(440, 40));
    assert_eq!(malformed(0, 1, 1500, &whole[..63]), length(63, 32));
    assert_eq!(malformed(0, 1, 2048, &[7; 96]), MalformedPointer::TooMany { actual: 3, needed: 2 });
    assert_eq!(malformed(1, 1, 1499, &whole), MalformedPointer::Sum { expected: 1499, actual: 1500 });
    assert_eq!(malformed(1, 1, 1501, &whole), MalformedPointer::Sum { expected: 1501, actual: 1500 });
    let empty_row = rows(&[(1500, leaf), (0, leaf)]);
    assert_eq!(malformed(1, 2, 1500, &empty_row), MalformedPointer::EmptyRow { row: 1 });
    let long_leaf = rows(&[(475, leaf), (1025, leaf)]);
    assert_eq!(
        malformed(1, 1, 1500, &long_leaf),
        MalformedPointer::LongLeaf { row: 1, length: 1025, most: 1024 }
    );
    let overflow = rows(&[(u64::MAX, leaf), (2, leaf)]);
    assert_eq!(malformed(1, 2, 1, &overflow), MalformedPointer::Sum { expected: 1, actual: (1 << 64) + 1 });
}

#[test]
fn a_missing_subtree_of_any_size_is_one_error() {
    let store = MemoryBlockStore::new();
    let missing = Score::from([9; 32]);
    let leaf = put(&store, 0, b"here");
    let below = put(&store, 1, &rows(&[(1000, leaf), (4, leaf)]));
    let root = put(&store, 2, &rows(&[(1 << 60, missing), (1004, below), (1 << 61, missing)]));
    let entry = entry(1, 2, 1004 + (3 << 60), root);
    let extents: Vec<_> = TreeReader::new(&store, &entry).extents(0..u64::MAX).collect();
    assert_eq!(extents[0].as_ref().unwrap_err().range(), 0..1 << 60);
    assert_eq!(extents[1].as_ref().unwrap(), &Extent { offset: 1 << 60, length: 1000, leaf: Some(leaf) });
    assert_eq!(extents[3].as_ref().unwrap_err().range(), (1 << 60) + 1004..(3 << 60) + 1004);
    let mut bytes = [1; 1004];
    TreeReader::new(&store, &entry).read_at(1 << 60, &mut bytes).unwrap();
    assert_eq!(&bytes[996..], b"\0\0\0\0here");
}

#[test]
fn a_leaf_longer_than_its_place_is_damage() {
    let store = MemoryBlockStore::new();
    let leaf = put(&store, 0, &[5; 600]);
    let root = put(&store, 1, &rows(&[(600, leaf), (599, leaf)]));
    let reader_entry = entry(1, 1, 1199, root);
    let reader = TreeReader::new(&store, &reader_entry);
    reader.read_at(0, &mut [0; 600]).unwrap();
    match reader.read_at(600, &mut [0]) {
        Err(ReadTreeError::LeafLength { range, name, actual }) => {
            assert_eq!((range, name.score, actual), (600..1199, leaf, 600));
        }
        other => panic!("{other:?}"),
    }
    let huge = entry(1, 0, 1 << 60, leaf);
    let read = TreeReader::new(&store, &huge).read_at(1 << 50, &mut [0]);
    assert!(matches!(read, Err(ReadTreeError::LeafLength { .. })), "{read:?}");
}

#[test]
fn the_deepest_tree_is_read() {
    let store = MemoryBlockStore::new();
    let mut score = put(&store, 0, b"deep");
    for depth in 1..=BlockType::DEPTH_MAX {
        score = put(&store, depth, &rows(&[(4, score)]));
    }
    let entry = entry(1, BlockType::DEPTH_MAX, 4, score);
    assert_eq!(crate::sample::read_all(&store, &entry), b"deep");
    let mut count = 0;
    walk(&store, &entry, &mut |_| {
        count += 1;
        Visit::Descend
    });
    assert_eq!(count, 32);
}

/// Blocks of plausible and implausible rows, each at a level, which may point to any earlier block.
fn random_tree() -> impl Strategy<Value = (Vec<(u8, Vec<u8>)>, u8, u8, u64)> {
    let block = (0..4u8, vec((0..8u64, 0..12usize), 0..6), 0..9usize);
    let size = prop_oneof![0..40u64, Just(u64::MAX), any::<u64>()];
    let blocks = vec(block, 1..12).prop_map(|blocks| {
        let store = MemoryBlockStore::new();
        let mut made: Vec<(u8, Vec<u8>)> = Vec::new();
        for (depth, pointers, cut) in blocks {
            let scores: Vec<Score> = made.iter().map(|(depth, bytes)| put(&store, *depth, bytes)).collect();
            let pick = |choice: usize| scores.get(choice).copied().unwrap_or_else(|| store.empty_score());
            let mut bytes =
                rows(&pointers.iter().map(|(length, to)| (*length, pick(*to))).collect::<Vec<_>>());
            bytes.truncate(bytes.len().saturating_sub(cut.saturating_sub(7)));
            made.push((depth, bytes));
        }
        made
    });
    (blocks, 0..2u8, 0..4u8, size)
}

proptest! {
    #[test]
    fn no_tree_makes_a_reader_panic((blocks, layout, depth, size) in random_tree()) {
        let store = MemoryBlockStore::new();
        let scores: Vec<Score> = blocks.iter().map(|(depth, bytes)| put(&store, *depth, bytes)).collect();
        let header = [&[0, layout, depth, 0][..], &8u32.to_le_bytes(), &POINTER_BYTES.to_le_bytes()].concat();
        let encoded = [&header, &size.to_le_bytes()[..], scores[scores.len() - 1].as_bytes()].concat();
        if let Ok(entry) = Entry::decode(&encoded, 32) {
            let reader = TreeReader::new(&store, &entry);
            let mut end = 0;
            for extent in reader.extents(0..size) {
                let range = match extent {
                    Ok(extent) => {
                        let _ = reader.read_extents(&[extent]);
                        extent.range()
                    }
                    Err(damage) => damage.range(),
                };
                prop_assert!(range.start == end && range.end > end, "{range:?} after {end}");
                end = range.end;
            }
            prop_assert!(end == size);
            let _ = reader.read_at(size / 2, &mut [0; 20]);
            walk(&store, &entry, &mut |_| Visit::Descend);
            let mut other = encoded;
            other[12] ^= 1;
            if let Ok(other) = Entry::decode(&other, 32) {
                let _ = difference(&store, &entry, &other).count();
            }
        }
    }
}
