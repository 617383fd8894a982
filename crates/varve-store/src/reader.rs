//! The reader: returns blocks, and computes the name of each again from its bytes.
//!
//! It owns the cache of opened frames and the list of blocks that are known to be lost. It depends
//! on the vault, the drafts and the finder.
//!
//! Always true:
//! - A block is returned only if its bytes have the requested name. In a by-value store the clump's
//!   own table confirms the place, and the name's fingerprint confirms the bytes.
//! - A block that was found damaged is remembered as lost, so that it is stored again when it is
//!   put again.

mod attempts;
mod frames;
mod lost_blocks;
mod read_clumps;
mod search;
mod whole_blocks;

pub(crate) use lost_blocks::LostBlocks;
pub(crate) use search::LossNotes;
pub(crate) use whole_blocks::WholeBlocks;

use std::collections::BTreeSet;
use std::sync::Arc;

use varve_block::{BlockName, GetError};
use varve_log::ArenaId;

use crate::cache::CacheBytes;
use crate::directory::ClumpPlace;
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

    /// Returns the blocks that are known to be lost.
    pub(crate) fn lost(&self) -> &LostBlocks {
        &self.lost
    }

    /// Bounds the memory for frames and directories.
    pub(crate) fn set_cache_bytes(&self, bytes: CacheBytes) {
        self.frames.bound(bytes);
        self.vault.directory().bound(bytes);
    }

    /// Drops everything that was read of an arena that was replaced.
    pub(crate) fn forget(&self, arena: ArenaId) {
        self.vault.directory().forget(arena);
        self.frames.forget(self.vault.map(), arena);
    }

    /// Returns true if the directories say that a block is stored.
    pub(crate) fn has(&self, name: &BlockName) -> Result<bool, GetError> {
        if self.vault.namer().is_everywhere(&name.score) {
            return Ok(true);
        }
        // The drafts are asked first: a page that is written in between moves the block to the
        // index, never back.
        if self.drafts.contains(name) {
            return Ok(true);
        }
        self.has_elsewhere(name, &BTreeSet::new())
    }

    /// Returns true if the list of barren blocks has this one.
    pub(crate) fn is_listed_as_barren(&self, name: &BlockName) -> bool {
        self.finder.is_listed_as_barren(name)
    }

    /// Returns true if a page outside the given places names the block. The places are arenas and
    /// byte offsets.
    ///
    /// # Errors
    /// [`GetError::Failed`] when a directory could not be read for a reason other than damage.
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

    /// Returns the clump in which the directories name a block; `None` if they do not name it.
    ///
    /// # Errors
    /// As for [`has_elsewhere`](Self::has_elsewhere).
    pub(crate) fn clump_of(&self, name: &BlockName) -> Result<Option<ClumpPlace>, GetError> {
        let mut clump = None;
        self.finder.is_at_any_place(name, |address| {
            match self.vault.directory().clump_with(address, name) {
                Ok(found) => clump = found,
                Err(error) if error.is_damage() => {}
                Err(error) => return Err(GetError::Failed { name: *name, source: error.into() }),
            }
            Ok(clump.is_some())
        })?;
        Ok(clump)
    }
}
