//! Checking an arena: everything that it says of itself, and, if asked, every byte.

use varve_log::{ArenaEnd, ArenaId, ArenaState, DirectoryPage, OpenedArena, ReadLogError, Recovered};
use varve_world::PageBuffer;

use super::Checker;
use super::clumps::Stretch;
use crate::damage::{ArenaCheck, CheckArenaError, Damage, DamageKind, Unfinished, is_finding};

/// An arena of which the outline is checked.
#[derive(Default)]
pub struct BegunCheck {
    /// What was found so far.
    pub check: ArenaCheck,
    /// What is left to read, if anything.
    pub stretches: Vec<Stretch>,
}

impl Checker<'_> {
    /// Checks one arena: header, seal, pages, and with `data` every clump and every block in it, for which the store's key
    /// must be able to read; and its parity.
    ///
    /// # Errors
    /// [`CheckArenaError`] when it cannot be read for a reason that is no damage.
    pub fn check_arena(&self, id: ArenaId, data: bool) -> Result<ArenaCheck, CheckArenaError> {
        let begun = self.begin_check(id, data)?;
        let (mut check, mut memory) = (begun.check, PageBuffer::default());
        for stretch in &begun.stretches {
            check.add(self.check_stretch(stretch, &mut memory)?);
        }
        check.add(self.finish_check(id, data)?);
        Ok(check)
    }

    /// The first part of [`check_arena`](Self::check_arena): header, seal and pages. What is left to read comes in the order in which the
    /// disk has it; each stretch of it may be read by another thread.
    ///
    /// # Errors
    /// As for [`check_arena`](Self::check_arena).
    pub fn begin_check(&self, id: ArenaId, data: bool) -> Result<BegunCheck, CheckArenaError> {
        let begun = self.look_at_outline(id, data)?;
        // Believed when it is found twice: a writer may have sealed the arena while it was looked at.
        if begun.check.damage.is_empty() { Ok(begun) } else { self.look_at_outline(id, data) }
    }

    fn look_at_outline(&self, id: ArenaId, data: bool) -> Result<BegunCheck, CheckArenaError> {
        let mut begun = BegunCheck::default();
        match self.check_opened(id, data, &mut begun.check) {
            Ok(stretches) => begun.stretches = stretches,
            Err(error) if is_finding(&error) => {
                if self.log().was_never_begun(id).unwrap_or(false) {
                    begun.check.unfinished = Some(Unfinished { arena: id, offset: 0 });
                } else {
                    begun.check.report(id, 0, error.into(), Vec::new());
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(begun)
    }

    /// The last part of [`check_arena`](Self::check_arena): the arena's parity.
    ///
    /// # Errors
    /// As for [`check_arena`](Self::check_arena).
    pub fn finish_check(&self, id: ArenaId, data: bool) -> Result<ArenaCheck, CheckArenaError> {
        let mut check = ArenaCheck::default();
        if let Some(damage) = self.check_parity(id, data)? {
            check.report(id, 0, damage.into(), Vec::new());
        }
        Ok(check)
    }

    fn check_opened(
        &self,
        id: ArenaId,
        mut data: bool,
        check: &mut ArenaCheck,
    ) -> Result<Vec<Stretch>, ReadLogError> {
        let arena = self.log().open_arena(id)?;
        let can_read = self.log().keys().can_read();
        let mut pages = Vec::new();
        match self.log().state_as_left(&arena) {
            Err(error) if is_finding(&error) && !self.log().was_never_begun(id).unwrap_or(false) => {
                check.report(id, 0, error.into(), Vec::new());
                // Its pages tell all the same what else is damaged.
                pages.extend(self.scan_behind_seal(&arena, check)?);
                data |= can_read;
            }
            Err(error) => return Err(error),
            Ok(ArenaState::Sealed { pages: rows, .. }) => {
                for row in rows {
                    match self.log().read_page(&arena, &row) {
                        Ok(page) => pages.push(page),
                        Err(error) if is_finding(&error) => {
                            check.report(id, row.granule.byte_offset(), error.into(), Vec::new());
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            Ok(ArenaState::Unsealed) => pages.extend(self.check_unsealed(&arena, &mut data, check)?),
        }
        check.block_count += pages.iter().map(|page| page.block_count() as u64).sum::<u64>();
        Ok(if data { Stretch::all(arena, pages) } else { Vec::new() })
    }

    /// The pages of an arena that is not sealed, after a look at its end. Where that is damaged, all of its `data` is to be read.
    fn check_unsealed(
        &self,
        arena: &OpenedArena,
        data: &mut bool,
        check: &mut ArenaCheck,
    ) -> Result<impl Iterator<Item = DirectoryPage> + use<>, ReadLogError> {
        let id = arena.id();
        let can_read = self.log().keys().can_read();
        let mut found = self.log().scan(arena)?;
        let page_count = found.pages.len();
        if can_read {
            found = self.log().judge(arena, found)?;
        }
        if found.pages.len() < page_count && self.has_lost_seal(id) {
            // No crash took what these pages name.
            found = self.log().scan(arena)?;
            *data = true;
        }
        if let Some(offset) = found.first_hidden() {
            check.report(id, offset, DamageKind::Withheld, Vec::new());
            *data |= can_read;
        } else if let Some(offset) = found.gap.filter(|gap| can_read || *gap < found.durable_bytes) {
            check.report(id, offset, DamageKind::Gap, Vec::new());
            *data |= can_read;
        } else if can_read {
            match self.log().end(arena, &found)? {
                ArenaEnd::Whole => {}
                ArenaEnd::Torn => {
                    check.unfinished = Some(Unfinished { arena: id, offset: found.log_bytes });
                }
                ArenaEnd::Damaged => {
                    check.report(id, found.log_bytes, DamageKind::TornEnd, Vec::new());
                }
            }
        } else if found.gap.is_some() || found.cut_bytes > 0 {
            // Who cannot read cannot tell more of it.
            check.unfinished = Some(Unfinished { arena: id, offset: found.log_bytes });
        }
        Ok(found.pages.into_iter().map(|(_, page)| page))
    }

    /// The pages of an arena whose seal says nothing any more.
    fn scan_behind_seal(
        &self,
        arena: &OpenedArena,
        check: &mut ArenaCheck,
    ) -> Result<impl Iterator<Item = DirectoryPage>, ReadLogError> {
        let found = match self.log().scan(arena) {
            Err(error) if is_finding(&error) => Recovered::default(),
            other => other?,
        };
        if let Some(offset) = found.first_hidden() {
            check.report(arena.id(), offset, DamageKind::Withheld, Vec::new());
        } else if let Some(offset) = found.gap {
            check.report(arena.id(), offset, DamageKind::Gap, Vec::new());
        }
        Ok(found.pages.into_iter().map(|(_, page)| page))
    }

    pub(super) fn has_lost_seal(&self, id: ArenaId) -> bool {
        let is_told = |damage: &Damage| damage.arena == id && matches!(damage.kind, DamageKind::SealLost);
        self.check_order().is_ok_and(|damage| damage.iter().any(is_told))
    }
}
