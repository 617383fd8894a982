//! Finds the children of a block from its bytes and its type alone, without knowledge of its tree.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::{BlockKind, BlockName, BlockType, Score};

use super::VENTI_SCORE_BYTES;
use super::entry::{VENTI_ENTRY_BYTES, VentiEntry};
use super::root::VentiRoot;

/// Returns the names of the blocks to which a Venti block leads: the children of a pointer block,
/// the trees of a directory's entries, or the directory of a root. Other bytes lead to nothing, or
/// to blocks that do not exist.
///
/// A pointer block does not tell the kind of its leaves: below a pointer block of type data, the
/// leaves may be data or directories.
#[must_use]
pub fn leads_to(name: &BlockName, bytes: &[u8]) -> Vec<BlockName> {
    let kind = name.block_type.kind();
    match (name.block_type.depth().checked_sub(1), kind) {
        (Some(depth), _) => {
            let Some(block_type) = BlockType::at_depth(kind, depth) else { return Vec::new() };
            let scores =
                bytes.chunks_exact(VENTI_SCORE_BYTES).filter_map(|score| Score::try_from(score).ok());
            scores.map(|score| BlockName { score, block_type }).collect()
        }
        (None, BlockKind::Directory) => {
            let entries = bytes.chunks_exact(VENTI_ENTRY_BYTES).map(VentiEntry::decode);
            entries.filter_map(|entry| tree_root(&entry.ok()??)).collect()
        }
        (None, BlockKind::Root) => VentiRoot::decode(bytes)
            .map(|root| vec![BlockName { score: root.score, block_type: BlockType::DIRECTORY }])
            .unwrap_or_default(),
        (None, BlockKind::Data | BlockKind::Catalog | BlockKind::Note) => Vec::new(),
    }
}

fn tree_root(entry: &VentiEntry) -> Option<BlockName> {
    let block_type = match entry.tree.depth() {
        0 => BlockType::leaf(entry.tree.leaf_kind()),
        // Pointers to directories are stored as pointers to data.
        depth => BlockType::at_depth(BlockKind::Data, depth)?,
    };
    Some(BlockName { score: entry.tree.root(), block_type })
}

#[cfg(test)]
mod tests {
    use crate::Entry;
    use crate::shape::Shape;

    use super::*;

    fn score(number: u8) -> Score {
        Score::try_from([number; VENTI_SCORE_BYTES].as_slice()).unwrap()
    }

    fn named(number: u8, block_type: BlockType) -> BlockName {
        BlockName { score: score(number), block_type }
    }

    fn pointer(depth: u8) -> BlockType {
        BlockType::at_depth(BlockKind::Data, depth).unwrap()
    }

    fn entry(leaf_kind: BlockKind, depth: u8, root: u8) -> [u8; VENTI_ENTRY_BYTES] {
        let shape = Shape { leaf_kind, leaf_bytes: 8192, pointer_bytes: 8192 };
        let tree = Entry::venti(&shape, depth, 5000, score(root)).unwrap();
        VentiEntry { generation: 0, tree }.encode(true).unwrap()
    }

    #[test]
    fn a_pointer_block_leads_to_what_is_one_level_below() {
        let bytes = [[1; 20], [2; 20]].concat();
        for (depth, below) in [(1, BlockType::DATA), (2, pointer(1))] {
            let found = leads_to(&named(9, pointer(depth)), &bytes);
            assert_eq!(found, [named(1, below), named(2, below)]);
        }
        // Half a score is ignored.
        assert_eq!(leads_to(&named(9, pointer(1)), &bytes[..39]), [named(1, BlockType::DATA)]);
    }

    #[test]
    fn entries_lead_to_their_trees_and_a_root_to_its_directory() {
        let unused = [0; VENTI_ENTRY_BYTES];
        let bytes = [
            entry(BlockKind::Data, 0, 1),
            unused,
            entry(BlockKind::Directory, 0, 2),
            entry(BlockKind::Directory, 2, 3),
            [0xff; VENTI_ENTRY_BYTES],
        ]
        .concat();
        let found = leads_to(&named(9, BlockType::DIRECTORY), &bytes);
        let expected = [named(1, BlockType::DATA), named(2, BlockType::DIRECTORY), named(3, pointer(2))];
        assert_eq!(found[..3], expected);
        let root = VentiRoot {
            name: Vec::new(),
            kind: b"vac".to_vec(),
            score: score(4),
            block_bytes: 8192,
            previous: Some(score(5)),
        };
        let found = leads_to(&named(9, BlockType::ROOT), &root.encode().unwrap());
        assert_eq!(found, [named(4, BlockType::DIRECTORY)]);
    }

    #[test]
    fn bytes_that_make_no_sense_lead_to_nothing() {
        for block_type in [BlockType::ROOT, BlockType::DATA, BlockType::CATALOG, BlockType::DIRECTORY] {
            assert_eq!(leads_to(&named(9, block_type), b"no words of any client's"), [], "{block_type}");
        }
    }
}
