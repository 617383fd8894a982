//! Checks an arena: its outline and its parity, and, if requested, every byte.

use varve_log::{ArenaEnd, ArenaId, ArenaState, DirectoryPage, OpenedArena, ReadLogError, RecoveredArena};
use varve_world::PageBuffer;

use super::Checker;
use super::clumps::ClumpGroup;
use crate::damage::{ArenaCheck, CheckArenaError, Damage, DamageKind, UnfinishedEnd, is_finding};

/// The most looks at an arena that other processes change all the time.
const LOOKS_MAX: usize = 16;

/// An arena whose outline has been checked.
#[derive(Default)]
pub struct StartedCheck {
    /// The findings so far.
    pub check: ArenaCheck,
    /// The parts that are left to be read.
    pub groups: Vec<ClumpGroup>,
}

impl Checker<'_> {
    /// Checks one arena: header, seal, pages, and its parity. With `data`, also checks every clump
    /// and every block in it, which takes a key that can read.
    ///
    /// # Errors
    /// [`CheckArenaError`] when it cannot be read for a reason other than damage.
    pub fn check_arena(&self, id: ArenaId, data: bool) -> Result<ArenaCheck, CheckArenaError> {
        let mut memory = PageBuffer::default();
        let mut check = ArenaCheck::default();
        for _ in 0..LOOKS_MAX {
            let begun = self.begin_check(id, data)?;
            check = begun.check;
            for group in &begun.groups {
                check.add(self.check_group(group, &mut memory)?);
            }
            if !check.is_outdated {
                check.add(self.finish_check(id, data)?);
                break;
            }
        }
        Ok(check)
    }

    /// Does the first part of [`check_arena`](Self::check_arena): header, seal and pages. Returns
    /// the groups that are left to be read in their order on the disk. Each of them may be read
    /// by another thread.
    ///
    /// # Errors
    /// As for [`check_arena`](Self::check_arena).
    pub fn begin_check(&self, id: ArenaId, data: bool) -> Result<StartedCheck, CheckArenaError> {
        let mut begun = self.look_at_outline(id, data)?;
        // Damage must be found twice in the same file: another process may have sealed, replaced or
        // removed it while it was checked.
        for _ in 1..LOOKS_MAX {
            if begun.check.damage.is_empty() {
                break;
            }
            let before = self.log().arena_file(id);
            let mut again = self.look_at_outline(id, data)?;
            again.check.keep_found_again(&begun.check);
            begun = again;
            if before == self.log().arena_file(id) {
                break;
            }
        }
        Ok(begun)
    }

    fn look_at_outline(&self, id: ArenaId, data: bool) -> Result<StartedCheck, CheckArenaError> {
        let mut begun = StartedCheck::default();
        match self.check_opened(id, data, &mut begun.check) {
            Ok(groups) => begun.groups = groups,
            Err(error) if is_finding(&error) => {
                if self.log().is_gone(id) && !self.log().arenas().is_ok_and(|ids| ids.contains(&id)) {
                    // A writer has removed an arena that was never begun. If it was begun, the
                    // order of the arenas shows that it is missing.
                } else if self.log().was_never_begun(id).unwrap_or(false) {
                    begun.check.unfinished = Some(UnfinishedEnd { arena: id, offset: 0 });
                } else {
                    begun.check.report(id, 0, error.into(), Vec::new());
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(begun)
    }

    /// Does the last part of [`check_arena`](Self::check_arena): the arena's parity.
    ///
    /// # Errors
    /// As for [`check_arena`](Self::check_arena).
    pub fn finish_check(&self, id: ArenaId, data: bool) -> Result<ArenaCheck, CheckArenaError> {
        let mut check = ArenaCheck::default();
        let mut found = self.check_parity(id, data)?;
        // A collector removes the parity of the arenas that it replaces.
        for _ in 1..LOOKS_MAX {
            if found.is_none() {
                break;
            }
            let before = self.log().arena_file(id);
            found = self.check_parity(id, data)?;
            if before == self.log().arena_file(id) {
                break;
            }
        }
        if let Some(damage) = found {
            check.report(id, 0, damage.into(), Vec::new());
        }
        Ok(check)
    }

    fn check_opened(
        &self,
        id: ArenaId,
        mut data: bool,
        check: &mut ArenaCheck,
    ) -> Result<Vec<ClumpGroup>, ReadLogError> {
        let arena = self.log().open_arena(id)?;
        let can_read = self.log().keys().can_read();
        let mut pages = Vec::new();
        match self.log().state_as_left(&arena) {
            Err(error) if is_finding(&error) && !self.log().was_never_begun(id).unwrap_or(false) => {
                check.report(id, 0, error.into(), Vec::new());
                // The pages still show which other parts are damaged.
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
        Ok(if data { ClumpGroup::all(arena, pages) } else { Vec::new() })
    }

    /// Checks the end of an arena that is not sealed, and returns its pages. Sets `data` if the end
    /// is damaged, so that all clumps are read.
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
            // The arena was sealed, so no crash took the blocks that these pages name.
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
                    check.unfinished = Some(UnfinishedEnd { arena: id, offset: found.log_bytes });
                }
                ArenaEnd::Damaged => {
                    check.report(id, found.log_bytes, DamageKind::TornEnd, Vec::new());
                }
            }
        } else if found.gap.is_some() || found.cut_bytes > 0 {
            // A key that cannot read cannot find out more.
            check.unfinished = Some(UnfinishedEnd { arena: id, offset: found.log_bytes });
        }
        Ok(found.pages.into_iter().map(|(_, page)| page))
    }

    /// Returns the pages of an arena whose seal is useless.
    fn scan_behind_seal(
        &self,
        arena: &OpenedArena,
        check: &mut ArenaCheck,
    ) -> Result<impl Iterator<Item = DirectoryPage>, ReadLogError> {
        let found = match self.log().scan(arena) {
            Err(error) if is_finding(&error) => RecoveredArena::default(),
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
        let is_reported = |damage: &Damage| damage.arena == id && matches!(damage.kind, DamageKind::SealLost);
        self.check_order().is_ok_and(|damage| damage.iter().any(is_reported))
    }
}
