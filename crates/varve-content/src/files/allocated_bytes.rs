//! Finds the holes and the allocated bytes of an archived file without reading its data.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;

use varve_block::BlockStore;
use varve_tree::{Entry, ReadTreeError, TreeReader, Visit, walk};

/// Upper bound on the pointer blocks that are read to count allocated bytes.
const POINTERS_MAX: u32 = 64;
/// A smaller file counts as fully allocated. A listing contains many small files, and their holes
/// do not matter.
const SMALL_BYTES: u64 = 1 << 20;
/// Upper bound on the length of a reported data range. Finding the end of a range reads every
/// pointer block above it.
const DATA_BYTES_MAX: u64 = 1 << 30;

/// The number of bytes of a file that are not in holes. Ranges beyond [`POINTERS_MAX`] pointer
/// blocks count as allocated.
pub(crate) fn allocated_bytes(blocks: &dyn BlockStore, content: &Entry) -> u64 {
    allocated_bytes_in(blocks, content, std::slice::from_ref(&(0..content.size())))
}

/// The number of allocated bytes in some disjoint pieces of a file.
#[must_use]
pub fn allocated_bytes_in(blocks: &dyn BlockStore, content: &Entry, pieces: &[Range<u64>]) -> u64 {
    let overlap = |range: &Range<u64>| {
        let shared =
            |piece: &Range<u64>| piece.end.min(range.end).saturating_sub(piece.start.max(range.start));
        pieces.iter().map(shared).fold(0, u64::saturating_add)
    };
    let all = overlap(&(0..content.size()));
    if all < SMALL_BYTES {
        return all;
    }
    let (mut allocated, mut pointers) = (0u64, 0u32);
    walk(blocks, content, &mut |node| {
        let length = overlap(&node.range);
        if node.damage.is_none() && node.level > 0 && pointers < POINTERS_MAX && length > 0 {
            pointers = pointers.saturating_add(1);
            return Visit::Descend;
        }
        allocated = allocated.saturating_add(length);
        Visit::Skip
    });
    allocated
}

/// The first data range at or after `offset`. A long range may be reported in parts.
pub(crate) fn next_data(
    blocks: &dyn BlockStore,
    content: &Entry,
    offset: u64,
) -> Result<Option<Range<u64>>, ReadTreeError> {
    let mut data: Option<Range<u64>> = None;
    for extent in TreeReader::new(blocks, content).extents(offset..content.size()) {
        let extent = extent?;
        match &mut data {
            None if extent.leaf.is_none() => {}
            None => data = Some(extent.offset.max(offset)..extent.range().end),
            Some(data) if extent.leaf.is_none() || data.end.saturating_sub(data.start) >= DATA_BYTES_MAX => {
                break;
            }
            Some(data) => data.end = extent.range().end,
        }
    }
    Ok(data)
}
