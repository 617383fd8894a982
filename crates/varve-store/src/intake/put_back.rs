//! Putting back: blocks are stored under the names that they have had.

use bytes::Bytes;
use varve_block::{Block, BlockName, BlockType, PutError};

use super::Intake;
use crate::config::CompareMode;

impl Intake {
    /// Stores blocks under the names that they have had, which they have lost their places for, and says how many it has
    /// stored. `blocks` come from a copy of this very store: in a by-value store, a name says too little of the bytes to
    /// believe anybody else.
    ///
    /// Roots of the catalog are passed over, but for the newest if it is alone. The last one in the log is the newest one:
    /// an old one that comes after it would hide what was listed since. A caller that misses one writes the catalog again,
    /// as a whole.
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

    /// Stores blocks in the arena that is being written that lose their place in another one.
    ///
    /// # Errors
    /// [`PutError`]; some may have been stored.
    pub fn put_elsewhere(&self, blocks: &[(BlockName, Bytes)]) -> Result<(), PutError> {
        let kept: Vec<_> = blocks.iter().filter(|(name, _)| self.hides_nothing(name)).cloned().collect();
        for (name, _) in &kept {
            // Where the directory says that it is, it is not for long.
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

    /// Whether a block may be stored once more, at the end of the log: anything but a root of the catalog, and that too if
    /// there is no other that counts.
    fn hides_nothing(&self, name: &BlockName) -> bool {
        name.block_type != BlockType::CATALOG || self.finder.catalogs().into_values().eq([*name])
    }
}
