//! The structure of a file system: all blocks in use except the contents of files.

use std::collections::BTreeMap;
use std::ops::Range;

use super::super::ExtFileSystem;
use super::RelocationError;
use super::claims::BlockClaims;
use super::untouchable::{has_plain_content, inode_of};
use crate::bytes::ranges::Ranges;

/// Returns the ranges of bytes that another program needs to check the file system.
pub(crate) fn ranges(files: &ExtFileSystem) -> Result<Vec<Range<u64>>, RelocationError> {
    let claims = BlockClaims::scan(files)?;
    let mut is_content = BTreeMap::new();
    let mut contents = Ranges::default();
    for (blocks, claim) in claims.within(0..files.block_count()) {
        let is_content = match is_content.get(&claim.inode) {
            Some(known) => *known,
            None => {
                let inode = inode_of(files, claim.inode)?;
                *is_content.entry(claim.inode).or_insert(has_plain_content(files, &inode))
            }
        };
        if is_content && claim.logical.is_some() {
            contents.add(blocks);
        }
    }
    let all: Ranges = std::iter::once(0..files.block_count()).collect();
    let bytes = |block: u64| block.saturating_mul(u64::from(files.block_bytes()));
    let kept = all.without(&contents).without(&claims.free);
    Ok(kept.into_iter().map(|blocks| bytes(blocks.start)..bytes(blocks.end)).collect())
}
