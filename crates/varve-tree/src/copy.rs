//! Copies a tree into another store, which may use other scores: the leaves keep their cuts, and
//! the pointer blocks above them are built anew with the scores of the other store.

use std::ops::Range;

use bytes::Bytes;
use varve_block::{BlockStore, PutError, Score};

use crate::cursor::ReadPointerError;
use crate::difference::difference;
use crate::entry::{Entry, Layout};
use crate::extents::Extent;
use crate::fixed::FixedBuilder;
use crate::leaves::put_truncated;
use crate::read::{ReadTreeError, TreeReader};
use crate::rows::RowWriter;
use crate::shape::Shape;
use crate::unchanged::{EarlierTree, PushUnchangedError};

/// The bytes of leaves that are read and put at a time.
const BATCH_BYTES: u64 = 4 << 20;
/// The size of pointer blocks if those of the tree are too small for the other store's scores.
const POINTER_BYTES: u32 = 16 << 10;

/// The reason why a tree was not copied. No block refers to the blocks that were already put.
#[derive(Debug, thiserror::Error)]
pub enum CopyTreeError {
    /// The tree cannot be read.
    #[error("{0}")]
    Read(#[from] ReadTreeError),
    /// A block cannot be written.
    #[error("{0}")]
    Put(#[from] PutError),
    /// The earlier copy, whose subtrees are to be shared, cannot be read.
    #[error("the earlier copy at the destination cannot be read")]
    Shared(#[source] ReadPointerError),
    /// Trees of Venti clients are copied together with their archive.
    #[error("a Venti client wrote this tree: it can only be copied together with its archive")]
    Foreign,
    /// The caller cancelled the copy.
    #[error("interrupted")]
    Cancelled,
}

/// Copies the tree of `entry`, and returns the entry of the copy.
///
/// `before` is a tree that was copied earlier, and the entry of its copy. If both trees are fixed,
/// the subtrees that they share are neither read nor put. `watch` is called with the number of
/// bytes copied, and returns false to cancel.
///
/// Holds one pointer block a level and a batch of leaves.
///
/// # Errors
/// [`CopyTreeError`].
pub fn copy_tree(
    from: &dyn BlockStore,
    entry: &Entry,
    to: &dyn BlockStore,
    before: Option<(&Entry, &Entry)>,
    watch: &mut dyn FnMut(u64) -> bool,
) -> Result<Entry, CopyTreeError> {
    let mut copier = TreeCopier { reader: TreeReader::new(from, entry), entry, to, watch };
    match entry.layout() {
        Layout::ContentCut => copier.copy_cut(),
        Layout::Fixed => copier.copy_fixed(from, before),
        Layout::Venti => Err(CopyTreeError::Foreign),
    }
}

/// Receives each extent, and the score of its leaf in the other store.
type TakeLeaf<'f> = dyn FnMut(&Extent, Option<Score>) -> Result<(), CopyTreeError> + 'f;

struct TreeCopier<'a> {
    reader: TreeReader<'a>,
    entry: &'a Entry,
    to: &'a dyn BlockStore,
    watch: &'a mut dyn FnMut(u64) -> bool,
}

impl TreeCopier<'_> {
    fn copy_cut(&mut self) -> Result<Entry, CopyTreeError> {
        let mut rows = RowWriter::new(self.to, self.entry.leaf_kind());
        let empty = self.to.empty_score();
        self.copy_leaves(0..self.entry.size(), &mut |extent, score| {
            Ok(rows.push(extent.length, &score.unwrap_or(empty))?)
        })?;
        let (depth, root) = rows.finish()?;
        let pointer_bytes = RowWriter::pointer_bytes(self.to.score_bytes());
        let (kind, leaf_bytes) = (self.entry.leaf_kind(), self.entry.leaf_bytes());
        Ok(Entry::content_cut(kind, leaf_bytes, pointer_bytes, depth, self.entry.size(), root))
    }

    fn copy_fixed(
        &mut self,
        from: &dyn BlockStore,
        before: Option<(&Entry, &Entry)>,
    ) -> Result<Entry, CopyTreeError> {
        let shape = self.shape();
        let mut builder = FixedBuilder::new(self.to, shape);
        let shared =
            before.and_then(|(there, copied)| Some((there, EarlierTree::new(self.to, copied, &shape)?)));
        match shared {
            Some((there, mut earlier)) => {
                for range in difference(from, there, self.entry) {
                    let range = range.map_err(ReadTreeError::from)?;
                    self.share_until(&mut builder, &mut earlier, range.start)?;
                    self.copy_range(&mut builder, range)?;
                }
                self.share_until(&mut builder, &mut earlier, self.entry.size())?;
            }
            None => self.copy_range(&mut builder, 0..self.entry.size())?,
        }
        Ok(builder.finish(self.entry.size())?)
    }

    /// Returns the sizes of the copy: those of the tree, if the other store's scores fit into its
    /// pointer blocks.
    fn shape(&self) -> Shape {
        let (leaf_kind, leaf_bytes) = (self.entry.leaf_kind(), self.entry.leaf_bytes());
        let shape = |pointer_bytes| Shape { leaf_kind, leaf_bytes, pointer_bytes };
        let own = shape(self.entry.pointer_bytes());
        let fits = own.pointer_bytes as usize >= 2 * self.to.score_bytes()
            && Entry::fixed(&own, self.to.score_bytes(), self.entry.size(), self.to.empty_score()).is_some();
        if fits { own } else { shape(POINTER_BYTES.max(own.pointer_bytes)) }
    }

    /// Takes all leaves that begin before `offset` from the earlier copy.
    fn share_until(
        &mut self,
        builder: &mut FixedBuilder<'_>,
        earlier: &mut EarlierTree<'_>,
        offset: u64,
    ) -> Result<(), CopyTreeError> {
        let leaf_bytes = u64::from(self.entry.leaf_bytes());
        let end = offset.min(self.entry.size());
        // The last leaf of the file may be short.
        let count = if end == self.entry.size() { end.div_ceil(leaf_bytes) } else { end / leaf_bytes };
        let missing = count.saturating_sub(builder.leaf_count());
        builder.push_unchanged(earlier, missing).map_err(|error| match error {
            PushUnchangedError::Read(error) => CopyTreeError::Shared(error),
            PushUnchangedError::Put(error) => CopyTreeError::Put(error),
        })?;
        self.tell(missing.saturating_mul(leaf_bytes))
    }

    /// Copies the leaves that overlap `range` and were not copied yet.
    fn copy_range(&mut self, builder: &mut FixedBuilder<'_>, range: Range<u64>) -> Result<(), CopyTreeError> {
        let leaf_bytes = u64::from(self.entry.leaf_bytes());
        let start = builder.leaf_count().saturating_mul(leaf_bytes);
        let end = range.end.div_ceil(leaf_bytes).saturating_mul(leaf_bytes).min(self.entry.size());
        self.copy_leaves(start..end, &mut |extent, score| match score {
            Some(score) => Ok(builder.push(&[score])?),
            None => Ok(builder.push_zeros(extent.length.div_ceil(leaf_bytes))?),
        })
    }

    /// Puts the leaves of a range. Passes each extent to `take` with the score of its leaf in the
    /// other store.
    fn copy_leaves(&mut self, range: Range<u64>, take: &mut TakeLeaf<'_>) -> Result<(), CopyTreeError> {
        let mut extents = self.reader.extents(range);
        loop {
            let (batch, end) = extents.batch(BATCH_BYTES);
            let read: Result<Vec<Bytes>, _> = self.reader.read_extents(&batch).into_iter().collect();
            let read = read?;
            let leaves = || batch.iter().zip(&read).filter(|(extent, _)| extent.leaf.is_some());
            let bytes = leaves().map(|(_, bytes)| &bytes[..]);
            let mut scores = put_truncated(self.to, self.entry.leaf_kind(), bytes)?.into_iter();
            for extent in &batch {
                let score = extent.leaf.and_then(|_| scores.next());
                take(extent, score)?;
                self.tell(extent.length)?;
            }
            end.map_err(ReadTreeError::from)?;
            if batch.is_empty() {
                return Ok(());
            }
        }
    }

    fn tell(&mut self, bytes: u64) -> Result<(), CopyTreeError> {
        if (self.watch)(bytes) { Ok(()) } else { Err(CopyTreeError::Cancelled) }
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
mod tests {
    use std::collections::BTreeMap;

    use parking_lot::Mutex;
    use proptest::prelude::*;
    use varve_block::to_usize;
    use varve_block::{
        Block, BlockKind, BlockName, BlockType, GetError, MemoryBlockStore, PlacedName, SyncError,
    };

    use super::*;
    use crate::content::ContentWriter;
    use crate::cut::Cutting;
    use crate::fixed_writer::FixedWriter;
    use crate::read::StreamPiece;

    /// A store with numbers as scores, so that a copy shares only its content with the tree.
    #[derive(Default)]
    struct Numbered(Mutex<BTreeMap<Score, Bytes>>);

    impl BlockStore for Numbered {
        fn score_bytes(&self) -> usize {
            24
        }

        fn empty_score(&self) -> Score {
            Score::try_from(PlacedName::EMPTY.as_slice()).unwrap()
        }

        fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
            let mut blocks = self.0.lock();
            let mut name = [block.block_type.to_byte(); 24];
            name[..8].copy_from_slice(&(blocks.len() as u64).to_le_bytes());
            let score = Score::try_from(name.as_slice()).unwrap();
            blocks.insert(score, Bytes::copy_from_slice(block.bytes));
            Ok(score)
        }

        fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
            self.0.lock().get(&name.score).cloned().ok_or(GetError::NotFound { name: *name })
        }

        fn sync(&self) -> Result<(), SyncError> {
            Ok(())
        }
    }

    fn bytes_of(store: &dyn BlockStore, entry: &Entry) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut take = |piece: StreamPiece<'_>| {
            match piece {
                StreamPiece::Bytes(piece) => bytes.extend_from_slice(piece),
                StreamPiece::Zeros(count) => bytes.resize(bytes.len() + to_usize(count), 0),
            }
            Ok(())
        };
        TreeReader::new(store, entry).stream(&mut take).unwrap();
        bytes
    }

    fn fixed(store: &dyn BlockStore, bytes: &[u8]) -> Entry {
        let shape = Shape { leaf_kind: BlockKind::Data, leaf_bytes: 512, pointer_bytes: 256 };
        let mut writer = FixedWriter::new(store, shape);
        writer.write(bytes).unwrap();
        writer.finish().unwrap()
    }

    fn copied(from: &dyn BlockStore, entry: &Entry, to: &dyn BlockStore) -> Entry {
        copy_tree(from, entry, to, None, &mut |_| true).unwrap()
    }

    fn content(pieces: &[(bool, usize, u8)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (is_hole, length, seed) in pieces {
            let noise = (0..*length).map(|at| {
                if *is_hole { 0 } else { ((at as u64).wrapping_mul(2_654_435_761) >> 7) as u8 ^ seed }
            });
            bytes.extend(noise);
        }
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn a_copy_has_the_same_bytes_and_comes_back_as_the_same_tree(
            pieces in prop::collection::vec((any::<bool>(), 0..40_000_usize, any::<u8>()), 0..5),
            is_fixed in any::<bool>(),
        ) {
            let (from, to, back) = (MemoryBlockStore::new(), Numbered::default(), MemoryBlockStore::new());
            let bytes = content(&pieces);
            let entry = if is_fixed {
                fixed(&from, &bytes)
            } else {
                let mut writer = ContentWriter::new(&from, BlockKind::Data, Cutting::DIRECTORY);
                writer.write(&bytes).unwrap();
                writer.finish().unwrap()
            };
            let there = copied(&from, &entry, &to);
            prop_assert_eq!(bytes_of(&to, &there), bytes);
            prop_assert_eq!(copied(&to, &there, &back), entry, "cut as it was");
        }

        #[test]
        fn what_was_copied_before_is_shared(
            pieces in prop::collection::vec((any::<bool>(), 0..60_000_usize, any::<u8>()), 1..4),
            at in any::<prop::sample::Index>(),
            change in 1..3000_usize,
            length in 0..200_000_usize,
        ) {
            let (from, to) = (MemoryBlockStore::new(), Numbered::default());
            let mut bytes = content(&pieces);
            let first = fixed(&from, &bytes);
            let first_copy = copied(&from, &first, &to);
            if !bytes.is_empty() {
                let start = at.index(bytes.len());
                let end = (start + change).min(bytes.len());
                bytes[start..end].iter_mut().for_each(|byte| *byte ^= 0x5a);
            }
            bytes.resize(length, 7);
            let second = fixed(&from, &bytes);
            let second_copy =
                copy_tree(&from, &second, &to, Some((&first, &first_copy)), &mut |_| true).unwrap();
            prop_assert_eq!(bytes_of(&to, &second_copy), bytes);
        }
    }

    #[test]
    fn what_is_shared_is_not_read() {
        let (from, to) = (MemoryBlockStore::new(), Numbered::default());
        let mut bytes = content(&[(false, 600_000, 3)]);
        let first = fixed(&from, &bytes);
        let first_copy = copied(&from, &first, &to);
        let (all, block_count) = (from.get_count(), to.0.lock().len());
        assert!(all > 1000);
        bytes[300_000] ^= 1;
        let second = fixed(&from, &bytes);
        copy_tree(&from, &second, &to, Some((&first, &first_copy)), &mut |_| true).unwrap();
        assert!(from.get_count() - all < 30, "{}", from.get_count() - all);
        assert!(to.0.lock().len() - block_count < 10);
    }

    #[test]
    fn a_leaf_that_is_lost_is_named_and_a_copy_can_be_stopped() {
        let (from, to) = (MemoryBlockStore::new(), Numbered::default());
        let entry = fixed(&from, &content(&[(false, 90_000, 3)]));
        let stopped = copy_tree(&from, &entry, &to, None, &mut |_| false);
        assert!(matches!(stopped, Err(CopyTreeError::Cancelled)));
        let leaf = from.names().into_iter().find(|name| name.block_type == BlockType::DATA).unwrap();
        from.lose(&leaf);
        let error = copy_tree(&from, &entry, &to, None, &mut |_| true).unwrap_err();
        assert!(matches!(error, CopyTreeError::Read(error) if error.name() == Some(leaf)));
    }
}
