//! Finds the children of a block from its bytes, without the parts of its tree above it.
//!
//! A reader checks a pointer block against the length in its parent, and may stop at the end of the
//! file. Here every pointer counts, whatever the size in the entry. So all blocks that any entry
//! can lead to through this block are found, and one visit of the block is enough for all of them.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::{BlockKind, BlockName, BlockType, Score, has_kind};

use crate::entry::{Entry, Layout, ROW_LENGTH_BYTES};
use crate::vac::{
    DecodeVentiEntryError, DecodeVentiRootError, VENTI_ENTRY_BYTES, VENTI_SCORE_BYTES, VentiEntry, VentiRoot,
};

/// A block, and the kind of tree that it is a part of. The bytes of a block alone do not tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TreeBlock {
    pub name: BlockName,
    pub layout: Layout,
    /// The kind of the leaves below it.
    pub leaf_kind: BlockKind,
}

/// The reason why the children of a block are not known.
#[derive(Debug, thiserror::Error)]
pub enum DecodeTreeBlockError {
    /// The length of a pointer block is not a multiple of the size of a pointer.
    #[error(
        "the pointer block {name} is malformed: it has {actual} bytes, but should have a multiple of {pointer}"
    )]
    Length { name: BlockName, actual: usize, pointer: usize },
    /// The root of an archive is malformed.
    #[error("{score} is not the root of a vac archive")]
    Root { score: Score, source: DecodeVentiRootError },
    /// A block of entries has an invalid entry.
    #[error("{name} has a malformed entry")]
    Entry { name: BlockName, source: DecodeVentiEntryError },
}

has_kind!(DecodeTreeBlockError: _ => Damage);

impl TreeBlock {
    /// Returns the root of a tree; `None` if no block is stored of it. `empty` is the score of the
    /// empty block.
    #[must_use]
    pub fn of_tree(entry: &Entry, empty: Score) -> Option<Self> {
        let (layout, leaf_kind) = (entry.layout(), entry.leaf_kind());
        let is_stored = entry.size() > 0 && entry.root() != empty;
        is_stored.then(|| Self::at(entry.root(), layout, leaf_kind, entry.depth()))
    }

    /// Returns the root of an archive of a Venti client.
    #[must_use]
    pub fn of_archive(score: Score) -> Self {
        let name = BlockName { score, block_type: BlockType::ROOT };
        Self { name, layout: Layout::Venti, leaf_kind: BlockKind::Root }
    }

    fn at(score: Score, layout: Layout, leaf_kind: BlockKind, depth: u8) -> Self {
        // Venti's pointer blocks have one type for leaves of all kinds.
        let kind = if layout == Layout::Venti && depth > 0 { BlockKind::Data } else { leaf_kind };
        let block_type = BlockType::at_depth(kind, depth).unwrap_or(BlockType::leaf(leaf_kind));
        Self { name: BlockName { score, block_type }, layout, leaf_kind }
    }

    /// Returns true if it leads to no other block by itself. The entries in a list of this program
    /// may span two leaves, so its leaves do not count as leading to anything.
    #[must_use]
    pub fn is_leaf(&self) -> bool {
        let is_at_bottom = self.name.block_type.depth() == 0;
        is_at_bottom && (self.layout != Layout::Venti || self.leaf_kind == BlockKind::Data)
    }

    /// Returns the blocks to which this block leads, in order; none for a leaf. The block of the
    /// score `empty` is not stored, and is left out.
    ///
    /// # Errors
    /// [`DecodeTreeBlockError`].
    pub fn below(&self, bytes: &[u8], empty: Score) -> Result<Vec<Self>, DecodeTreeBlockError> {
        let below = match (self.name.block_type.depth().checked_sub(1), self.name.block_type.kind()) {
            (Some(depth), _) => self.pointers(bytes, depth)?,
            (None, _) if self.is_leaf() => Vec::new(),
            (None, BlockKind::Root) => vec![self.directory_of_root(bytes)?],
            (None, _) => self.entries(bytes)?,
        };
        Ok(below.into_iter().filter(|block| block.name.score != empty).collect())
    }

    fn pointers(&self, bytes: &[u8], depth: u8) -> Result<Vec<Self>, DecodeTreeBlockError> {
        let score_bytes = self.name.score.as_bytes().len();
        let length_bytes = if self.layout == Layout::ContentCut { ROW_LENGTH_BYTES } else { 0 };
        let pointer = score_bytes.saturating_add(length_bytes);
        // Venti's readers ignore a rest that is too short for a pointer.
        if self.layout != Layout::Venti && !bytes.len().is_multiple_of(pointer) {
            return Err(DecodeTreeBlockError::Length { name: self.name, actual: bytes.len(), pointer });
        }
        let scores =
            bytes.chunks_exact(pointer).filter_map(|row| Score::try_from(row.get(length_bytes..)?).ok());
        Ok(scores.map(|score| Self::at(score, self.layout, self.leaf_kind, depth)).collect())
    }

    fn directory_of_root(&self, bytes: &[u8]) -> Result<Self, DecodeTreeBlockError> {
        let score = self.name.score;
        let root = VentiRoot::decode(bytes).map_err(|source| DecodeTreeBlockError::Root { score, source })?;
        Ok(Self::at(root.score, Layout::Venti, BlockKind::Directory, 0))
    }

    /// Returns the root blocks of the trees in a block of Venti's entries.
    fn entries(&self, bytes: &[u8]) -> Result<Vec<Self>, DecodeTreeBlockError> {
        let mut below = Vec::new();
        for entry in bytes.chunks(VENTI_ENTRY_BYTES) {
            // The truncated bytes of the last entry are zeros. A rest at the end of a full block is
            // too short for an entry, and is zeros too.
            let mut whole = [0; VENTI_ENTRY_BYTES];
            whole.iter_mut().zip(entry).for_each(|(to, from)| *to = *from);
            let decoded = VentiEntry::decode(&whole)
                .map_err(|source| DecodeTreeBlockError::Entry { name: self.name, source })?;
            if let Some(VentiEntry { tree, .. }) = decoded.filter(|entry| entry.tree.size() > 0) {
                below.push(Self::at(tree.root(), Layout::Venti, tree.leaf_kind(), tree.depth()));
            }
        }
        Ok(below)
    }
}

/// Returns the score of the archive that an archive's root names as the one before it.
///
/// # Errors
/// [`DecodeTreeBlockError::Root`].
pub fn previous_archive(root: &TreeBlock, bytes: &[u8]) -> Result<Option<Score>, DecodeTreeBlockError> {
    let score = root.name.score;
    let decoded = VentiRoot::decode(bytes).map_err(|source| DecodeTreeBlockError::Root { score, source })?;
    Ok(decoded.previous.filter(|previous| previous.as_bytes().len() == VENTI_SCORE_BYTES))
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::shape::Shape;

    fn score(number: u8) -> Score {
        Score::try_from([number; 20].as_slice()).unwrap()
    }

    fn names(found: &[TreeBlock]) -> Vec<(u8, u8)> {
        found.iter().map(|block| (block.name.score.as_bytes()[0], block.name.block_type.to_byte())).collect()
    }

    fn pointer(layout: Layout, leaf_kind: BlockKind, depth: u8) -> TreeBlock {
        TreeBlock::at(score(9), layout, leaf_kind, depth)
    }

    #[test]
    fn all_pointers_count_whatever_the_size_of_the_file() {
        let empty = score(0xee);
        let bytes = [[1; 20], [0xee; 20], [2; 20]].concat();
        let fixed = pointer(Layout::Fixed, BlockKind::Data, 2);
        assert_eq!(names(&fixed.below(&bytes, empty).unwrap()), [(1, 1), (2, 1)]);
        assert!(matches!(
            fixed.below(&bytes[1..], empty),
            Err(DecodeTreeBlockError::Length { actual: 59, .. })
        ));
        let list = pointer(Layout::ContentCut, BlockKind::Directory, 1);
        assert_eq!(list.name.block_type.to_byte(), 0x21);
        let rows = [[7; 8].as_slice(), &[3; 20], &[0; 8], &[4; 20]].concat();
        let found = list.below(&rows, empty).unwrap();
        assert_eq!(names(&found), [(3, 0x20), (4, 0x20)]);
        assert!(found.iter().all(TreeBlock::is_leaf));
        assert!(list.below(&bytes, empty).is_err());
    }

    #[test]
    fn the_kind_of_the_leaves_decides_about_the_pointers_of_venti() {
        let bytes = [[1; 20], [2; 20]].concat();
        for (leaf_kind, byte, is_leaf) in [(BlockKind::Data, 0, true), (BlockKind::Directory, 0x20, false)] {
            let block = pointer(Layout::Venti, leaf_kind, 1);
            assert_eq!(block.name.block_type.to_byte(), 1, "one type for both");
            // Half a score is ignored.
            let found = block.below(&[&bytes[..], &[5; 10]].concat(), score(0)).unwrap();
            assert_eq!(names(&found), [(1, byte), (2, byte)]);
            assert!(found.iter().all(|block| block.is_leaf() == is_leaf));
        }
    }

    #[test]
    fn a_root_leads_to_entries_and_they_lead_to_trees() {
        let tree = |leaf_kind, depth, size, root| {
            let shape = Shape { leaf_kind, leaf_bytes: 8192, pointer_bytes: 8192 };
            let tree = Entry::venti(&shape, depth, size, score(root)).unwrap();
            VentiEntry { generation: 0, tree }.encode(true).unwrap()
        };
        let entries = [
            tree(BlockKind::Data, 0, 5, 1),
            tree(BlockKind::Directory, 2, 5, 2),
            tree(BlockKind::Data, 0, 0, 3),
            [0; VENTI_ENTRY_BYTES],
            tree(BlockKind::Directory, 0, 5, 4),
        ]
        .concat();
        let block = pointer(Layout::Venti, BlockKind::Directory, 0);
        let found = block.below(&entries[..199], score(0)).unwrap();
        assert_eq!(names(&found)[..2], [(1, 0), (2, 2)]);
        assert!(matches!(block.below(&[0xff; 40], score(0)), Err(DecodeTreeBlockError::Entry { .. })));
        let (name, kind, previous) = (Vec::new(), b"vac".to_vec(), Some(score(6)));
        let root = VentiRoot { name, kind, score: score(5), block_bytes: 8192, previous }.encode().unwrap();
        let archive = TreeBlock::of_archive(score(9));
        assert_eq!(names(&archive.below(&root, score(0)).unwrap()), [(5, 0x20)]);
        assert_eq!(previous_archive(&archive, &root).unwrap(), Some(score(6)));
        assert!(matches!(archive.below(&[1], score(0)), Err(DecodeTreeBlockError::Root { .. })));
    }

    #[test]
    fn a_tree_without_blocks_has_no_root() {
        let shape = Shape { leaf_kind: BlockKind::Data, leaf_bytes: 8192, pointer_bytes: 8192 };
        let entry = |size, root| Entry::fixed(&shape, 20, size, score(root)).unwrap();
        assert_eq!(TreeBlock::of_tree(&entry(0, 1), score(0)), None);
        assert_eq!(TreeBlock::of_tree(&entry(9000, 0), score(0)), None);
        let found = TreeBlock::of_tree(&entry(9000, 1), score(0)).unwrap();
        assert_eq!(names(&[found]), [(1, 1)]);
    }
}
