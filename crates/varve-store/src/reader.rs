//! The reader: blocks leave the store here, each named again by its own bytes.
//!
//! It owns the cache of opened frames and the list of blocks that are known to be lost. It stands on the vault, the drafts
//! and the finder.
//!
//! Always true:
//! - Only a block whose bytes have the name that was asked for leaves. In a by-value store the clump's own table vouches
//!   for the place, and the name's fingerprint for the bytes.
//! - A block that was found damaged is remembered as lost, so that the next one who puts it stores it again.

mod attempts;
mod frames;
mod lost_blocks;
mod read_clumps;
mod search;

pub(crate) use lost_blocks::LostBlocks;

use std::collections::BTreeSet;
use std::sync::Arc;

use varve_block::{BlockName, GetError};
use varve_log::ArenaId;

use crate::drafts::Drafts;
use crate::finder::Finder;
use crate::vault::Vault;
use frames::FrameCache;

/// Reads blocks.
pub(crate) struct Reader {
    vault: Arc<Vault>,
    drafts: Arc<Drafts>,
    finder: Arc<Finder>,
    frames: FrameCache,
    lost: LostBlocks,
}

impl Reader {
    pub(crate) fn new(vault: Arc<Vault>, drafts: Arc<Drafts>, finder: Arc<Finder>) -> Self {
        let lost = LostBlocks::load(Arc::clone(&vault));
        Self { vault, drafts, finder, frames: FrameCache::new(), lost }
    }

    /// The blocks that are known to be lost.
    pub(crate) fn lost(&self) -> &LostBlocks {
        &self.lost
    }

    /// Bounds the memory that frames and directories take.
    pub(crate) fn bound_caches(&self, bytes: u64) {
        self.frames.bound(bytes - bytes / 4);
        self.vault.directory().bound(bytes / 4);
    }

    /// Forgets what was read of an arena that is another one now.
    pub(crate) fn forget(&self, arena: ArenaId) {
        self.vault.directory().forget(arena);
        self.frames.forget(self.vault.map(), arena);
    }

    /// Whether a block is stored, by the directories.
    pub(crate) fn has(&self, name: &BlockName) -> Result<bool, GetError> {
        if self.vault.namer().is_everywhere(&name.score) {
            return Ok(true);
        }
        // Looked at first: a page that is written in between takes the block to the index, never back.
        if self.drafts.contains(name) {
            return Ok(true);
        }
        self.has_elsewhere(name, &BTreeSet::new())
    }

    /// Whether a block is named anywhere but in these places, given by arena and offset in bytes.
    ///
    /// # Errors
    /// [`GetError::Failed`] when a directory could not be read for a reason that is no damage.
    pub(crate) fn has_elsewhere(
        &self,
        name: &BlockName,
        damaged: &BTreeSet<(ArenaId, u64)>,
    ) -> Result<bool, GetError> {
        self.finder.is_at_any_place(name, |address| {
            let (arena, granule) = self.vault.map().locate(address);
            if damaged.contains(&(arena, granule.byte_offset())) {
                return Ok(false);
            }
            match self.vault.directory().find(address, name) {
                Ok(found) => Ok(found.is_some()),
                Err(error) if error.is_damage() => Ok(false),
                Err(error) => Err(GetError::Failed { name: *name, source: error.into() }),
            }
        })
    }
}
