//! Writes the successor of one arena: its live blocks, in their order.
//!
//! The successor is read back and checked before it may be committed. Every live name of the old
//! pages must be in the new ones: a mistake is found here, while nothing is lost.

use std::collections::BTreeSet;
use std::sync::Arc;

use varve_block::{BlockName, BlockType};
use varve_log::{
    AppendedPage, ArenaId, ArenaState, ArenaVersion, ArenaWindow, Granule, OpenedArena, PageRow,
    ReadLogError, ReplacedArena, Replacement, Seal, Successor,
};
use varve_store::{Intake, LogNote, ReadySuccessor, Store, UnfinishedFile};

use super::live_clump::{IsLive, NamedClump};
use super::reclaim_error::ReclaimError;
use crate::generation::next_generation;

/// The bytes of an arena that are read at a time.
const AHEAD_BYTES: usize = 4 << 20;

/// Writes the successor of one arena.
pub(super) struct SuccessorWriter<'a> {
    pub(super) store: &'a Store,
    pub(super) intake: &'a Intake,
    pub(super) is_live: IsLive<'a>,
    /// Returns true once the work should stop.
    pub(super) should_stop: &'a (dyn Fn() -> bool + Sync),
    /// True if all live blocks were copied to other arenas, except for notes.
    pub(super) keeps_only_notes: bool,
}

/// A sealed arena that is to be replaced.
pub(super) struct OldArena {
    pub(super) arena: OpenedArena,
    seal: Seal,
    pub(super) pages: Vec<PageRow>,
}

impl OldArena {
    /// Opens an arena, which must have the seal that the writer knows.
    ///
    /// # Errors
    /// [`ReclaimError::NotSealed`] or [`ReclaimError::Read`].
    pub(super) fn open(store: &Store, intake: &Intake, id: ArenaId) -> Result<Self, ReclaimError> {
        let log = store.vault().log();
        let failed = |source| ReclaimError::Read { arena: id, source };
        let arena = log.open_arena(id).map_err(failed)?;
        let ArenaState::Sealed { footer, pages } = log.state(&arena).map_err(failed)? else {
            return Err(ReclaimError::NotSealed { arena: id });
        };
        let seal = Seal::of(arena.header(), &footer);
        if intake.known_seal(id) != Some(seal) {
            return Err(ReclaimError::NotSealed { arena: id });
        }
        Ok(Self { arena, seal, pages })
    }
}

impl SuccessorWriter<'_> {
    /// Writes, seals and checks the successor. `None` if it was stopped before the end. Except for
    /// a success, its file is removed.
    ///
    /// # Errors
    /// [`ReclaimError`]; the arena is unchanged.
    pub(super) fn write(&self, id: ArenaId) -> Result<Option<ReadySuccessor>, ReclaimError> {
        let written = self.write_file(id);
        if !matches!(written, Ok(Some(_))) {
            let file = id.successor_file_name();
            if let Err(error) = self.store.vault().storage().remove_if_there(&file) {
                tracing::warn!(%file, %error, "the unfinished successor of an arena could not be removed");
            }
        }
        written
    }

    fn write_file(&self, id: ArenaId) -> Result<Option<ReadySuccessor>, ReclaimError> {
        let old = OldArena::open(self.store, self.intake, id)?;
        let mut replacement = self.begin(id, &old)?;
        let mut expected = BTreeSet::new();
        // Each arena is read once, and another lane works while this one waits for the disk.
        let window = self.store.vault().log().window(&old.arena, AHEAD_BYTES);
        let mut window = window.with_bases(self.store).uncached();
        for row in &old.pages {
            if !self.copy_page(&old.arena, row, &mut window, &mut replacement, &mut expected)? {
                return Ok(None);
            }
        }
        drop(window);
        let new = replacement.seal().map_err(|source| ReclaimError::Write { arena: id, source })?;
        self.check(id, &new, expected)?;
        Ok(Some(ReadySuccessor { arena: id, old: old.seal, new }))
    }

    fn begin(&self, id: ArenaId, old: &OldArena) -> Result<Replacement, ReclaimError> {
        let generation = next_generation(self.store, self.intake, id, Some(&old.arena))
            .map_err(|source| ReclaimError::ListParity { source })?;
        let version = old.arena.header().version().max(ArenaVersion::Notes);
        let successor = Successor { arena: id, generation, ordinal: old.seal.ordinal, version };
        let random = self.store.world().random.as_ref();
        let (log, ledger) = (self.store.vault().log(), self.intake.ledger());
        Replacement::begin(log, random, successor, ledger, id.successor_file_name())
            .map_err(|source| ReclaimError::Write { arena: id, source })
    }

    /// Copies the live clumps that a page names, and adds the live names to `expected`. Returns
    /// false if the work should stop.
    fn copy_page(
        &self,
        arena: &OpenedArena,
        row: &PageRow,
        window: &mut ArenaWindow<'_>,
        replacement: &mut Replacement,
        expected: &mut BTreeSet<BlockName>,
    ) -> Result<bool, ReclaimError> {
        let id = arena.id();
        let read_failed = |source| ReclaimError::Read { arena: id, source };
        let write_failed = |source| ReclaimError::Write { arena: id, source };
        let log = self.store.vault().log();
        let level = self.store.config().compression_level;
        let page = log.read_page(arena, row).map_err(read_failed)?;
        let is_write_only = arena.header().is_write_only();
        if is_write_only && self.keeps_only_notes {
            return Ok(!(self.should_stop)());
        }
        let is_live = |name: &BlockName| self.is_kept(name, is_write_only);
        // A writer that cannot read may have named blocks that it never stored. The blocks that it
        // did store are named again.
        if !is_write_only {
            let names = page.blocks().map(|block| block.name);
            expected.extend(names.filter(|name| name.block_type != BlockType::NOTE && is_live(name)));
        }
        for clump in page.clumps() {
            if (self.should_stop)() {
                return Ok(false);
            }
            let blocks: Vec<_> = page.blocks_of(clump.granule).collect();
            let has_note = blocks.iter().any(|block| block.name.block_type == BlockType::NOTE);
            if has_note
                && !is_write_only
                && !self.is_note_needed(window, clump.granule).map_err(read_failed)?
            {
                continue;
            }
            let named = NamedClump { row: *clump, blocks, is_live: &is_live, goes_elsewhere: false };
            let taken = named.take(window, self.store.namer(), is_write_only, level).map_err(read_failed)?;
            if taken.misnamed_count > 0 {
                tracing::error!(arena = %id, count = taken.misnamed_count, "a key that cannot read has named blocks that it has not stored");
            }
            let Some(packed) = taken.packed else { continue };
            if !replacement.has_room() {
                return Err(ReclaimError::NoRoom { arena: id });
            }
            replacement.append(packed).map_err(write_failed)?;
        }
        Ok(true)
    }

    /// Returns true if a block goes to the successor. The newest catalog lies behind all arenas
    /// that are replaced, and an old root behind it would hide snapshots, so no root goes. Notes of
    /// a writer that cannot read count nowhere, and must not begin to.
    fn is_kept(&self, name: &BlockName, is_write_only: bool) -> bool {
        match name.block_type {
            BlockType::CATALOG => false,
            BlockType::NOTE => !is_write_only,
            _ => !self.keeps_only_notes && (self.is_live)(name),
        }
    }

    /// Returns true if a clump holds a note that is still of use: any but a list of barren blocks,
    /// since a newer list replaces it.
    fn is_note_needed(&self, window: &mut ArenaWindow<'_>, granule: Granule) -> Result<bool, ReadLogError> {
        let (_, content) = window.clump(granule)?;
        let is_replaceable = |bytes: &[u8]| matches!(LogNote::decode(bytes), Some(LogNote::Barren(_)));
        Ok(content
            .blocks()
            .any(|(block_type, bytes)| block_type != BlockType::NOTE || !is_replaceable(&bytes)))
    }

    /// Reads the successor back, checks every code in it, and checks that no name of `expected` is
    /// missing.
    fn check(
        &self,
        id: ArenaId,
        new: &ReplacedArena,
        mut expected: BTreeSet<BlockName>,
    ) -> Result<(), ReclaimError> {
        let storage = Arc::clone(&self.store.world().storage);
        let view = UnfinishedFile { storage, arena: id, file: id.successor_file_name() };
        let log = self.store.vault().log();
        let whole = log.over(Arc::new(view)).check_whole(id);
        let whole = whole.map_err(|source| ReclaimError::NotWhole { arena: id, source })?;
        if Seal::of(whole.arena.header(), &whole.footer) != new.seal {
            return Err(ReclaimError::Incomplete { arena: id });
        }
        for block in new.pages.iter().flat_map(|page: &AppendedPage| page.page.blocks()) {
            expected.remove(&block.name);
        }
        if expected.is_empty() { Ok(()) } else { Err(ReclaimError::Incomplete { arena: id }) }
    }
}
