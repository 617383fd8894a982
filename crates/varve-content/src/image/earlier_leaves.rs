//! The leaves of an earlier image, which are taken where the image has not changed.

use std::ops::Range;

use varve_block::BlockStore;
use varve_tree::{ContentBuilder, CutLeaf, Entry, Extent, ReadPointerError, TreeReader};

use super::archive::ArchiveImageError;

/// The leaves of an earlier image that was cut where its files began.
pub(super) struct EarlierLeaves<'a> {
    tree: TreeReader<'a>,
}

impl<'a> EarlierLeaves<'a> {
    pub(super) fn new(blocks: &'a dyn BlockStore, entry: &Entry) -> Self {
        Self { tree: TreeReader::new(blocks, entry) }
    }

    /// The largest part of a range that is whole leaves and holes; `None` if there is none. Only
    /// the leaves at both ends are looked at.
    pub(super) fn whole_leaves(&self, range: Range<u64>) -> Result<Option<Range<u64>>, ReadPointerError> {
        let is_inside = |extent: &Extent| extent.offset >= range.start && extent.range().end <= range.end;
        let Some(first) = self.tree.extents(range.clone()).next().transpose()? else { return Ok(None) };
        let start = if first.offset >= range.start { first.offset } else { first.range().end };
        let Some(last) = self.tree.extents(range.end - 1..range.end).next().transpose()? else {
            return Ok(None);
        };
        let end = if is_inside(&last) || last.leaf.is_none() { range.end } else { last.offset };
        Ok((start < end).then_some(start..end))
    }

    /// Appends the leaves of a range of [`whole_leaves`](Self::whole_leaves).
    pub(super) fn push(
        &self,
        tree: &mut ContentBuilder<'_>,
        range: &Range<u64>,
    ) -> Result<(), ArchiveImageError> {
        for extent in self.tree.extents(range.clone()) {
            let Extent { length, leaf, .. } = extent?;
            match leaf {
                Some(score) => tree.push(&[CutLeaf { bytes: length, score }])?,
                None => tree.push_zeros(length)?,
            }
        }
        Ok(())
    }
}
