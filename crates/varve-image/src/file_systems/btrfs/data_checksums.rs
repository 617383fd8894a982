//! The checksums of data: one for each sector, in order, under the address of the first sector.

use std::ops::Range;

use varve_block::to_usize;

use super::key::{TreeKey, kind, object};
use super::tree_root::TreeRoot;
use super::trees::Trees;
use crate::file_systems::file_system::FileSystemError;

/// The trees with the checksums of data.
pub(super) struct DataChecksums {
    /// The tree of all checksums, if there is one, and then the logs, which have newer ones.
    roots: Vec<TreeRoot>,
}

impl DataChecksums {
    pub(super) fn new(root: Option<TreeRoot>, logs: Vec<TreeRoot>) -> Self {
        Self { roots: root.into_iter().chain(logs).collect() }
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
        let count = range.end.saturating_sub(range.start).checked_div(sector_bytes);
        let mut sums = vec![None; count.map_or(0, to_usize)];
        for root in &self.roots {
            read_sums(trees, root, range, &mut sums)?;
        }
        Ok(sums)
    }
}

/// Reads the checksums that one tree has.
fn read_sums(
    trees: &Trees,
    root: &TreeRoot,
    range: &Range<u64>,
    sums: &mut [Option<Vec<u8>>],
) -> Result<(), FileSystemError> {
    let sector_bytes = u64::from(trees.superblock().sector_bytes).max(1);
    let key = |logical| TreeKey::new(object::CHECKSUMS, kind::CHECKSUMS, logical);
    // The item with the first sums may begin before the range.
    let before = trees.last_up_to(root, &key(range.start))?;
    let before = before.filter(|item| item.key().is_beside(&key(0)));
    let first = before.map_or(range.start, |item| item.key().offset);
    for item in trees.range(root, key(first), key(range.end.saturating_sub(1))) {
        let item = item?;
        let start = item.key().offset;
        let skipped = range.start.saturating_sub(start).checked_div(sector_bytes).unwrap_or(0);
        let place = start.saturating_sub(range.start).checked_div(sector_bytes).unwrap_or(0);
        let stored = item.data().chunks_exact(trees.superblock().checksum.bytes());
        let stored = stored.skip(to_usize(skipped));
        for (sum, stored) in sums.iter_mut().skip(to_usize(place)).zip(stored) {
            *sum = Some(stored.to_vec());
        }
    }
    Ok(())
}
