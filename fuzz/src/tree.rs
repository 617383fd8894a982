//! Hash trees: entries and pointer blocks.

use std::io;

use varve_block::{Block, BlockKind, BlockStore, BlockType, MemoryBlockStore, Score};
use varve_tree::{
    ContentWriter, Cutting, Entry, FixedBuilder, Shape, StreamPiece, TreeReader, Visit, difference,
    put_leaves, walk,
};

use crate::input::Input;

/// At most this number of steps in a tree. A hostile tree can have more blocks than anybody can
/// read.
const STEPS_MAX: usize = 2000;

/// An entry.
pub fn entry(bytes: &[u8]) {
    let store = MemoryBlockStore::new();
    for score_bytes in [32, 20] {
        if let Ok(entry) = Entry::decode(bytes, score_bytes) {
            assert_eq!(entry.encode(), bytes, "one entry has one spelling");
            if score_bytes == store.score_bytes() {
                read(&store, &entry);
            }
        }
    }
}

/// Entries of small trees.
#[must_use]
pub fn entry_seeds() -> Vec<Vec<u8>> {
    let store = MemoryBlockStore::new();
    let mut seeds =
        vec![fixed(&store, &[7; 5000]).encode(), cut(&store, &[7; 5000]).encode(), cut(&store, &[]).encode()];
    let narrow = seeds[0][..seeds[0].len() - 12].to_vec();
    seeds.push(narrow);
    seeds
}

fn fixed(store: &MemoryBlockStore, bytes: &[u8]) -> Entry {
    let shape = Shape { leaf_kind: BlockKind::Data, leaf_bytes: 512, pointer_bytes: 256 };
    let mut builder = FixedBuilder::new(store, shape);
    builder.push(&put_leaves(store, &shape, bytes).expect("in memory")).expect("in memory");
    builder.finish(bytes.len() as u64).expect("in memory")
}

fn cut(store: &MemoryBlockStore, bytes: &[u8]) -> Entry {
    let mut writer = ContentWriter::new(store, BlockKind::Data, Cutting::DIRECTORY);
    writer.write(bytes).expect("in memory");
    writer.finish().expect("in memory")
}

/// A tree of any shape, built from the leaves up. Its pointers lead to existing blocks, and its
/// entry to the last block.
///
/// The tree is small on purpose: if its pointers repeat one block, a deep tree has too many leaves
/// to visit.
pub fn pointer_block(bytes: &[u8]) {
    let store = MemoryBlockStore::new();
    let mut input = Input(bytes);
    let header: [u8; 20] = input.array();
    let layout_is_cut = header[1] == 1;
    let put = |block_type, bytes: &[u8]| store.put(Block { block_type, bytes }).expect("small");
    let mut blocks: Vec<Score> =
        [&[][..], &[1], &[2; 512], &[3; 600]].into_iter().map(|leaf| put(BlockType::DATA, leaf)).collect();
    let deepest = (header[2] & 3).max(1);
    for depth in 1..=deepest {
        for _ in 0..=input.below(2) {
            let mut pointers = Vec::new();
            for _ in 0..input.below(9) {
                if layout_is_cut {
                    let length = if input.byte() & 1 == 0 {
                        u64::from(input.byte())
                    } else {
                        u64::from_le_bytes(input.array())
                    };
                    pointers.extend(length.to_le_bytes());
                }
                pointers.extend(blocks[input.below(blocks.len())].as_bytes());
            }
            pointers.extend(input.take(usize::from(input.0.first().is_some_and(|byte| *byte == 255))));
            let block_type = BlockType::at_depth(BlockKind::Data, depth).expect("shallow");
            blocks.push(put(block_type, &pointers));
        }
    }
    let root = blocks.last().expect("some").as_bytes();
    let Ok(entry) = Entry::decode(&[&header[..], root].concat(), store.score_bytes()) else { return };
    read(&store, &entry);
    let other = cut(&store, &[5; 3000]);
    assert!(difference(&store, &entry, &other).take(STEPS_MAX).count() <= STEPS_MAX);
}

/// Headers of small trees, each with one or two pointer blocks.
#[must_use]
pub fn pointer_block_seeds() -> Vec<Vec<u8>> {
    let store = MemoryBlockStore::new();
    let fixed = fixed(&store, &[7; 1500]).encode();
    let cut_entry = {
        let mut header = fixed[..20].to_vec();
        header[1] = 1;
        header
    };
    let three_leaves = [0, 0, 3, 0, 2, 0, 2, 0, 2, 0];
    let three_rows = [0, 0, 3, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 2, 0, 0, 200, 1, 0, 0, 5, 0, 0];
    vec![[&fixed[..20], &three_leaves].concat(), [&cut_entry[..], &three_rows].concat()]
}

fn read(store: &MemoryBlockStore, entry: &Entry) {
    let reader = TreeReader::new(store, entry);
    let mut end = 0;
    for extent in reader.extents(0..entry.size()).take(STEPS_MAX) {
        let Ok(extent) = extent else { continue };
        assert!(extent.length > 0 && extent.offset >= end, "extents ascend");
        end = extent.range().end;
        assert!(end <= entry.size(), "and end with the file");
    }
    let mut position = 0;
    let mut pieces = 0;
    let streamed = reader.stream(&mut |piece| {
        position += match piece {
            StreamPiece::Bytes(bytes) => bytes.len() as u64,
            StreamPiece::Zeros(count) => count,
        };
        pieces += 1;
        if pieces > STEPS_MAX { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    });
    assert!(streamed.is_err() || position == entry.size(), "a stream that ends well is whole");
    let length = usize::try_from(entry.size().min(2000)).expect("at most 2000");
    let mut buffer = vec![0; length];
    for offset in [0, entry.size() / 2, entry.size() - length as u64] {
        drop(reader.read_at(offset, &mut buffer));
    }
    let mut steps = 0;
    walk(store, entry, &mut |_| {
        steps += 1;
        if steps > STEPS_MAX { Visit::Skip } else { Visit::Descend }
    });
}
