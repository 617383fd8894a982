//! Copies the live blocks of small arenas to the end of the log, where they share arenas. Their old
//! arenas then have nothing live.
//!
//! Each block is named from its bytes before it is copied. So its old copy may go: another was
//! opened and named in this run, and stays. Whole frames are copied, and not compressed again.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use varve_block::{BlockName, BlockType};
use varve_log::{ArenaId, ArenaWindow, Granule, PageBlock, PageRow};
use varve_store::{Intake, Store};

use super::live_clump::{IsLive, NamedClump};
use super::reclaim_error::ReclaimError;
use super::successor::OldArena;

/// The bytes of an arena that are read at a time.
const AHEAD_BYTES: usize = 1 << 20;

/// Copies the live blocks of small arenas.
pub(super) struct ArenaMerger<'a> {
    store: &'a Store,
    intake: &'a Intake,
    is_live: IsLive<'a>,
    should_stop: &'a (dyn Fn() -> bool + Sync),
    copied: Mutex<CopiedBlocks>,
}

/// The blocks that were copied to the end of the log, and the places of their new clumps.
#[derive(Default)]
struct CopiedBlocks {
    names: BTreeSet<BlockName>,
    /// Those of them that were copied whole. A delta does not stand in for a whole block: other
    /// deltas may need that, and in the end two blocks might need each other.
    whole: BTreeSet<BlockName>,
    clumps: BTreeMap<ArenaId, Vec<Granule>>,
}

impl<'a> ArenaMerger<'a> {
    pub(super) fn new(
        store: &'a Store,
        intake: &'a Intake,
        is_live: IsLive<'a>,
        should_stop: &'a (dyn Fn() -> bool + Sync),
    ) -> Self {
        Self { store, intake, is_live, should_stop, copied: Mutex::default() }
    }

    /// Copies the live blocks of an arena, except for those that were copied from another one.
    /// Returns the number of appended bytes; `None` if the work should stop.
    ///
    /// # Errors
    /// [`ReclaimError`]. The arena must stay as it is then, as after a stop.
    pub(super) fn copy(&self, id: ArenaId) -> Result<Option<u64>, ReclaimError> {
        let old = OldArena::open(self.store, self.intake, id)?;
        let window = self.store.vault().log().window(&old.arena, AHEAD_BYTES);
        let mut window = window.with_bases(self.store);
        let (mut expected, mut copied_bytes) = (BTreeSet::new(), 0);
        for row in &old.pages {
            let Some(bytes) = self.copy_page(&old, row, &mut window, &mut expected)? else { return Ok(None) };
            copied_bytes += bytes;
        }
        // A writer that can read has named its own blocks, so each is where its page says.
        if !old.arena.header().is_write_only() && !expected.is_subset(&self.copied.lock().names) {
            return Err(ReclaimError::Incomplete { arena: id });
        }
        Ok(Some(copied_bytes))
    }

    fn copy_page(
        &self,
        old: &OldArena,
        row: &PageRow,
        window: &mut ArenaWindow<'_>,
        expected: &mut BTreeSet<BlockName>,
    ) -> Result<Option<u64>, ReclaimError> {
        let id = old.arena.id();
        let failed = |source| ReclaimError::Read { arena: id, source };
        let is_write_only = old.arena.header().is_write_only();
        let level = self.store.config().compression_level;
        let page = self.store.vault().log().read_page(&old.arena, row).map_err(failed)?;
        expected.extend(page.blocks().map(|block| block.name).filter(|name| self.is_moved(name)));
        let mut copied_bytes = 0;
        for clump in page.clumps() {
            if (self.should_stop)() {
                return Ok(None);
            }
            let blocks: Vec<_> = page.blocks_of(clump.granule).collect();
            // The answer for a block stays the same while its clump is taken, whatever other lanes
            // copy meanwhile. They may copy a block twice.
            let copied_before = self.copied_of(&blocks);
            let is_live = |name: &BlockName| self.is_moved(name) && !copied_before.contains(name);
            let named = NamedClump { row: *clump, blocks, is_live: &is_live, goes_elsewhere: true };
            let taken = named.take(window, self.store.namer(), is_write_only, level).map_err(failed)?;
            if taken.misnamed_count > 0 {
                tracing::error!(arena = %id, count = taken.misnamed_count, "a page names blocks that are not there");
            }
            let Some(packed) = taken.packed else { continue };
            let names: Vec<BlockName> = packed.names().copied().collect();
            let whole: Vec<BlockName> = packed.whole_names().copied().collect();
            copied_bytes += packed.record_bytes();
            let address =
                self.intake.append_copy(packed).map_err(|source| ReclaimError::Copy { arena: id, source })?;
            let (arena, granule) = self.store.vault().map().locate(address);
            let mut copied = self.copied.lock();
            copied.names.extend(names);
            copied.whole.extend(whole);
            copied.clumps.entry(arena).or_default().push(granule);
        }
        Ok(Some(copied_bytes))
    }

    fn copied_of(&self, blocks: &[PageBlock]) -> BTreeSet<BlockName> {
        let copied = self.copied.lock();
        blocks.iter().map(|block| block.name).filter(|name| copied.whole.contains(name)).collect()
    }

    /// Returns true if a block goes with the others. A root of the catalog or a note means
    /// something by its place.
    fn is_moved(&self, name: &BlockName) -> bool {
        !matches!(name.block_type, BlockType::CATALOG | BlockType::NOTE) && (self.is_live)(name)
    }

    /// Makes the copies durable, reads them back, and checks every code, and that pages name them.
    ///
    /// # Errors
    /// [`ReclaimError`]; the old arenas must stay as they are.
    pub(super) fn finish(&self) -> Result<(), ReclaimError> {
        self.intake.make_copies_durable()?;
        let copied = self.copied.lock();
        let mut missing = copied.names.clone();
        let mut last = None;
        for (id, granules) in &copied.clumps {
            let not_whole = |source| ReclaimError::NotWhole { arena: *id, source };
            let arena = self.store.vault().log().open_arena(*id).map_err(not_whole)?;
            let mut window = self.store.vault().log().window(&arena, AHEAD_BYTES);
            let mut granules = granules.clone();
            granules.sort_unstable();
            for granule in granules {
                window.authenticate(granule).map_err(not_whole)?;
            }
            let named = self.store.names_in_arena(*id).map_err(not_whole)?;
            named.names.iter().for_each(|name| {
                missing.remove(name);
            });
            last = Some(*id);
        }
        match last {
            Some(arena) if !missing.is_empty() => Err(ReclaimError::Incomplete { arena }),
            _ => Ok(()),
        }
    }
}
