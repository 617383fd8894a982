//! The checksums of data: one for each sector, in order, under the address of the first sector.

use std::ops::Range;

use super::key::{TreeKey, kind, object};
use super::tree_root::TreeRoot;
use super::trees::Trees;
use crate::FileSystemError;

/// The tree with the checksums of data.
pub(super) struct DataChecksums {
    /// `None` if there is no such tree.
    root: Option<TreeRoot>,
}

impl DataChecksums {
    pub(super) fn new(root: Option<TreeRoot>) -> Self {
        Self { root }
    }

    /// Returns the checksum of each sector of a range, in order, as far as there are any.
    ///
    /// # Errors
    /// [`FileSystemError`] if the tree cannot be read.
    pub(super) fn of(
        &self,
        trees: &Trees,
        range: &Range<u64>,
    ) -> Result<Vec<Option<Vec<u8>>>, FileSystemError> {
        let sector_bytes = u64::from(trees.superblock().sector_bytes).max(1);
        let number_of = |logical: u64| logical.saturating_sub(range.start).checked_div(sector_bytes);
        let count = number_of(range.end).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
        let mut sums = vec![None; count];
        let Some(root) = &self.root else { return Ok(sums) };
        let key = |logical| TreeKey::new(object::CHECKSUMS, kind::CHECKSUMS, logical);
        // The item with the first sums may begin before the range.
        let before = trees.last_up_to(root, &key(range.start))?;
        let before = before.filter(|item| item.key().is_beside(&key(0)));
        let first = before.map_or(range.start, |item| item.key().offset);
        for item in trees.range(root, key(first), key(range.end.saturating_sub(1))) {
            let item = item?;
            let start = item.key().offset;
            let skipped = range.start.saturating_sub(start).checked_div(sector_bytes).unwrap_or(0);
            let place = usize::try_from(number_of(start).unwrap_or(0)).unwrap_or(usize::MAX);
            let stored = item.data().chunks_exact(trees.superblock().checksum.bytes());
            let stored = stored.skip(usize::try_from(skipped).unwrap_or(usize::MAX));
            for (sum, stored) in sums.iter_mut().skip(place).zip(stored) {
                *sum = Some(stored.to_vec());
            }
        }
        Ok(sums)
    }
}
