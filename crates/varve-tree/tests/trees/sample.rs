//! Files to store, and the ways to store them.

use varve_block::{BlockKind, BlockStore};
use varve_tree::{ContentWriter, Cutting, Entry, FixedBuilder, Shape, StreamPiece, TreeReader, put_leaves};

/// The smallest cutting allowed: a small file has many leaves.
pub(crate) const TINY: Cutting = Cutting::new(64, 256, 1024).unwrap();
/// Two pointers in a block: trees have the greatest depth.
pub(crate) const DEEP: Shape = shape(512, 64);
/// The shape of a disk image.
pub(crate) const IMAGE: Shape = shape(8192, 8192);

pub(crate) const fn shape(leaf_bytes: u32, pointer_bytes: u32) -> Shape {
    Shape { leaf_kind: BlockKind::Data, leaf_bytes, pointer_bytes }
}

/// Bytes without a pattern. None of them is zero.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[7].max(1)
    };
    (0..length).map(|_| next()).collect()
}

pub(crate) fn put_fixed(store: &dyn BlockStore, shape: Shape, bytes: &[u8]) -> Entry {
    let mut builder = FixedBuilder::new(store, shape);
    builder.push(&put_leaves(store, &shape, bytes).unwrap()).unwrap();
    builder.finish(bytes.len() as u64).unwrap()
}

pub(crate) fn put_cut(store: &dyn BlockStore, cutting: Cutting, bytes: &[u8]) -> Entry {
    let mut writer = ContentWriter::new(store, BlockKind::Data, cutting);
    writer.write(bytes).unwrap();
    writer.finish().unwrap()
}

pub(crate) fn read_all(store: &dyn BlockStore, entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut append = |piece: StreamPiece<'_>| {
        match piece {
            StreamPiece::Bytes(piece) => bytes.extend_from_slice(piece),
            StreamPiece::Zeros(count) => bytes.resize(bytes.len() + usize::try_from(count).unwrap(), 0),
        }
        Ok(())
    };
    TreeReader::new(store, entry).stream(&mut append).unwrap();
    bytes
}
