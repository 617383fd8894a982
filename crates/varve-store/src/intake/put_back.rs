//! Puts blocks back: they are stored under the names that they had.

use bytes::Bytes;
use varve_block::{Block, BlockName, BlockType, PutError};

use super::Intake;
use crate::config::CompareMode;

impl Intake {
    /// Stores blocks that have lost their places under the names that they had, and returns the
    /// number of stored blocks. `blocks` must come from a copy of this very store: in a by-value
    /// store a name says too little about the bytes to trust any other source.
    ///
    /// Catalog roots are skipped, except the newest if it is alone. The last root in the log is the
    /// newest one: an old root after it would hide the snapshots that were listed since. A caller
    /// that misses a root writes the whole catalog again.
    ///
    /// # Errors
    /// [`PutError`]; some may have been stored.
    pub fn put_back(&self, blocks: &[(BlockName, Bytes)]) -> Result<u64, PutError> {
        let blocks: Vec<_> = blocks.iter().filter(|(name, _)| self.hides_nothing(name)).cloned().collect();
        if !blocks.is_empty() {
            self.put_named(&blocks)?;
        }
        Ok(blocks.len() as u64)
    }

    /// Stores blocks in the arena that is being written, since they lose their place in another
    /// one.
    ///
    /// # Errors
    /// [`PutError`]; some may have been stored.
    pub fn put_elsewhere(&self, blocks: &[(BlockName, Bytes)]) -> Result<(), PutError> {
        let kept: Vec<_> = blocks.iter().filter(|(name, _)| self.hides_nothing(name)).cloned().collect();
        for (name, _) in &kept {
            // The place that the directory names for the block will soon be gone.
            self.reader.lost().add(*name);
        }
        self.put_named(&kept)
    }

    fn put_named(&self, blocks: &[(BlockName, Bytes)]) -> Result<(), PutError> {
        match self.vault.config().compare {
            CompareMode::Hash => {
                let blocks: Vec<_> =
                    blocks.iter().map(|(name, bytes)| Block { block_type: name.block_type, bytes }).collect();
                self.put_blocks(&blocks).map(drop)
            }
            CompareMode::Value => {
                let blocks: Vec<_> = blocks.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
                self.put_again(&blocks)
            }
        }
    }

    /// Returns true if a block may be stored once more at the end of the log. That is any block but
    /// a catalog root, and a catalog root if no other root counts.
    fn hides_nothing(&self, name: &BlockName) -> bool {
        name.block_type != BlockType::CATALOG || self.finder.catalogs().into_values().eq([*name])
    }
}
