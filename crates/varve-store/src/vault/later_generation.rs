//! Confirms that a collector or a repair has rewritten an arena, from the rest of the log: an arena
//! by itself does not show that its present generation belongs there.

use varve_block::BlockType;
use varve_log::{ArenaId, ArenaState, ArenaVersion, Ledger, OpenedArena, ReadLogError, Seal, Seals};

use super::Vault;
use crate::notes::{LogNote, ReplacedSeal};

impl Vault {
    /// Returns true if the log says that this generation of an arena is in place: the ledger of the
    /// last page counts its seal, or a note names it. Either was written after the last record of
    /// every earlier generation.
    ///
    /// A write-only key rewrites no arena, so it confirms none.
    pub(super) fn confirms(&self, arena: &OpenedArena, seal: &Seal) -> bool {
        !arena.header().is_write_only() && (self.counts(arena.id()) || self.notes(arena.id(), seal))
    }

    /// Returns true if the seals of this log, with that of `arena`, are those which the last page
    /// has counted.
    fn counts(&self, arena: ArenaId) -> bool {
        let Ok(Some(ledger)) = self.last_page_ledger() else { return false };
        let mut seals = Seals::default();
        for id in self.log.arenas().unwrap_or_default() {
            let seal = self.log.read_arena(id, |arena| Ok((self.log.state(&arena)?, arena)));
            if let Ok((ArenaState::Sealed { footer, .. }, arena)) = seal {
                seals.insert(id, Seal::of(arena.header(), &footer));
            }
        }
        let is_among = seals.places().any(|(place, id, _)| id == arena && place < ledger.arena_count);
        is_among && seals.ledger(self.log.keys(), ledger.arena_count) == ledger
    }

    /// Returns the ledger of the last page of the log; `None` if there is no page.
    fn last_page_ledger(&self) -> Result<Option<Ledger>, ReadLogError> {
        for id in self.log.arenas().unwrap_or_default().into_iter().rev() {
            if let Some(row) = self.directory.all_rows(id)?.last() {
                let page = self.log.read_page(&*self.directory.arena(id)?, row)?;
                return Ok(Some(page.ledger()));
            }
        }
        Ok(None)
    }

    /// Returns true if a note names this seal as the new one of an arena. A key that cannot read
    /// knows no notes.
    fn notes(&self, arena: ArenaId, seal: &Seal) -> bool {
        let is_this = |row: &ReplacedSeal| row.arena == arena && row.is_new(seal);
        let ids = self.log.arenas().unwrap_or_default();
        self.log.keys().can_read() && ids.into_iter().rev().any(|id| self.replaced_in(id).iter().any(is_this))
    }

    /// Returns the replaced arenas according to the readable notes in one arena.
    #[must_use]
    pub fn replaced_in(&self, id: ArenaId) -> Vec<ReplacedSeal> {
        let Ok(arena) = self.directory.arena(id) else { return Vec::new() };
        let header = arena.header();
        if header.version() < ArenaVersion::Notes || header.is_write_only() {
            return Vec::new();
        }
        let Ok(pages) = self.directory.pages(id) else { return Vec::new() };
        let mut found = Vec::new();
        for page in pages.filter_map(Result::ok) {
            let notes = page.blocks().filter(|block| block.name.block_type == BlockType::NOTE);
            let mut clumps: Vec<_> = notes.map(|block| block.granule).collect();
            clumps.dedup();
            for granule in clumps {
                let Ok((_, content)) = self.log.window(&arena, 0).clump(granule) else { continue };
                let notes = content.blocks().filter(|(block_type, _)| *block_type == BlockType::NOTE);
                for note in notes.filter_map(|(_, bytes)| LogNote::decode(&bytes)) {
                    if let LogNote::Replaced { arenas, .. } = note {
                        found.extend(arenas);
                    }
                }
            }
        }
        found
    }
}
