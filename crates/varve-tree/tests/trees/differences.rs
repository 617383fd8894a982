//! Differences against a comparison of bytes.

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use varve_block::{BlockKind, BlockStore, MemoryBlockStore};
use varve_tree::{ContentWriter, Cutting, Entry, difference};

use crate::sample::{DEEP, IMAGE, TINY, noise, put_cut, put_fixed, shape};

/// The start and the end of each range in which two trees differ.
fn ranges(store: &dyn BlockStore, a: &Entry, b: &Entry) -> Vec<(u64, u64)> {
    let ranges: Vec<(u64, u64)> =
        difference(store, a, b).map(|range| range.map(|range| (range.start, range.end)).unwrap()).collect();
    assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "{ranges:?}");
    assert!(ranges.iter().all(|(start, end)| start < end));
    ranges
}

#[test]
fn a_changed_byte_is_found_by_its_path() {
    let store = MemoryBlockStore::new();
    let file = noise(1, 4 << 20);
    let mut changed = file.clone();
    changed[2_000_000] ^= 1;
    let (a, b) = (put_fixed(&store, DEEP, &file), put_fixed(&store, DEEP, &changed));
    let before = store.get_count();
    assert_eq!(ranges(&store, &a, &b), [(1_999_872, 2_000_384)]);
    assert_eq!(store.get_count() - before, 2 * u64::from(a.depth()));
    let before = store.get_count();
    assert_eq!(ranges(&store, &a, &a), []);
    assert_eq!(store.get_count(), before, "equal trees are not read");

    let (a, b) = (put_cut(&store, TINY, &file), put_cut(&store, TINY, &changed));
    let before = store.get_count();
    let found = ranges(&store, &a, &b);
    assert!(
        found.len() == 1 && (found[0].0..found[0].1).contains(&2_000_000) && found[0].1 - found[0].0 < 5000
    );
    assert!(store.get_count() - before <= 4 * u64::from(a.depth()));
}

#[test]
fn trees_of_other_sizes_share_what_they_can() {
    let store = MemoryBlockStore::new();
    let file = noise(2, 1 << 20);
    let grown = [file.clone(), noise(3, 3 << 20)].concat();
    let (a, b) = (put_fixed(&store, DEEP, &file), put_fixed(&store, DEEP, &grown));
    let before = store.get_count();
    assert_eq!(ranges(&store, &a, &b), [(1 << 20, 4 << 20)]);
    assert_eq!(store.get_count() - before, 2, "the pointers above the shared root");
    assert_eq!(ranges(&store, &put_cut(&store, TINY, &[]), &a), [(0, 1 << 20)]);
}

#[test]
fn holes_of_any_size_are_compared_at_once() {
    let store = MemoryBlockStore::new();
    let sparse = |hole: u64, bytes: &[u8]| {
        let mut writer = ContentWriter::new(&store, BlockKind::Data, Cutting::FILE);
        writer.write_zeros(hole).unwrap();
        writer.write(bytes).unwrap();
        writer.write_zeros(1 << 50).unwrap();
        writer.finish().unwrap()
    };
    let (a, b) = (sparse(1 << 40, b"a"), sparse(1 << 40, b"b"));
    assert_eq!(ranges(&store, &a, &b), [(1 << 40, (1 << 40) + 1)]);
    let moved = ranges(&store, &a, &sparse(1 << 41, b"a"));
    let (first, second, end) = (1 << 40, 1 << 41, 1 << 50);
    assert_eq!(moved, [(first, first + 1), (second, second + 1), (end + first + 1, end + second + 1)]);
}

#[test]
fn what_cannot_be_read_counts_as_different() {
    let store = MemoryBlockStore::new();
    let file = noise(4, 100_000);
    let mut changed = file.clone();
    changed[0] ^= 1;
    let (a, b) = (put_fixed(&store, DEEP, &file), put_fixed(&store, DEEP, &changed));
    let pointer = varve_block::BlockName {
        score: b.root(),
        block_type: varve_block::BlockType::at_depth(BlockKind::Data, b.depth()).unwrap(),
    };
    assert!(store.lose(&pointer));
    let found: Vec<_> = difference(&store, &a, &b).collect();
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].as_ref().unwrap_err().range(), 0..100_000);
    assert_eq!(found[1].as_ref().unwrap(), &(0..100_000));
}

/// A block's name does not tell its place in a tree.
#[test]
fn one_name_in_two_roles_is_two_files() {
    let store = MemoryBlockStore::new();
    let pointers = put_fixed(&store, DEEP, &noise(6, 1024));
    let leaf_scores = varve_tree::put_leaves(&store, &DEEP, &noise(6, 1024)).unwrap();
    let bytes: Vec<u8> = leaf_scores.iter().flat_map(|score| score.as_bytes().to_vec()).collect();
    let leaf = put_fixed(&store, DEEP, &bytes);
    assert_eq!(leaf.root(), pointers.root());
    assert_eq!(ranges(&store, &leaf, &pointers), [(0, 1024)]);

    let padded = |leaf_bytes: usize| {
        let mut file = vec![0; 700];
        file[..100].copy_from_slice(&noise(7, 100));
        file[leaf_bytes..leaf_bytes + 50].copy_from_slice(&noise(8, 50));
        file
    };
    let (a, b) = (put_fixed(&store, DEEP, &padded(512)), put_fixed(&store, shape(600, 64), &padded(600)));
    assert_eq!(a.root(), b.root());
    assert_eq!(ranges(&store, &a, &b), [(512, 700)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Nothing outside of the ranges differs, in any layout. Equal contents that were written in
    /// the same way have no ranges.
    #[test]
    fn no_difference_is_missed(
        length in 0..60_000usize,
        other_length in 0..60_000usize,
        changes in vec(any::<(usize, bool)>(), 0..4),
    ) {
        let store = MemoryBlockStore::new();
        let file = noise(5, length);
        let mut other = noise(5, other_length);
        for (offset, zeros) in changes {
            let from = offset % (other_length + 1);
            let to = other_length.min(from + if zeros { 3000 } else { 1 });
            other[from..to].iter_mut().for_each(|byte| *byte = if zeros { 0 } else { 255 - *byte });
        }
        let put = |bytes: &[u8]| [
            put_fixed(&store, DEEP, bytes),
            put_fixed(&store, IMAGE, bytes),
            put_fixed(&store, shape(512, 512), bytes),
            put_cut(&store, TINY, bytes),
            put_cut(&store, Cutting::DIRECTORY, bytes),
        ];
        let (entries, others) = (put(&file), put(&other));
        for (i, a) in entries.iter().enumerate() {
            prop_assert_eq!(ranges(&store, a, a), []);
            for (j, b) in others.iter().enumerate() {
                let found = ranges(&store, a, b);
                prop_assert_eq!(&found, &ranges(&store, b, a));
                let shared = length.min(other_length);
                let within = |offset: u64| usize::try_from(offset).unwrap().min(shared);
                let mut at = 0;
                for (start, end) in found.iter().copied().chain([(shared as u64, 0)]) {
                    prop_assert_eq!(&file[at..within(start).max(at)], &other[at..within(start).max(at)]);
                    at = within(end);
                }
                if length != other_length {
                    let last = found.last().unwrap();
                    prop_assert!(last.0 <= shared as u64 && last.1 == length.max(other_length) as u64);
                }
                prop_assert!(i != j || file != other || found.is_empty());
            }
        }
    }
}
