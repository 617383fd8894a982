//! Checking: everything that the log says of itself, and, if asked, every byte.

use std::collections::BTreeMap;
use std::mem::discriminant;

use varve_block::{BlockName, BlockType};
use varve_log::{
    ArenaEnd, ArenaId, ArenaState, DirectoryPage, OpenLogError, OpenedArena, ReadLogError, Recovered, Seal,
    Seals,
};
use varve_world::PageBuffer;

use crate::damage::{ArenaCheck, CheckArenaError, Damage, DamageKind, Unfinished, is_finding};
use crate::log_end::{counted_before, may_be_missed};
use crate::scans::Scans;
use crate::store::Store;
use crate::stretch::Stretch;

/// The root of a catalog, as a directory page names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogRoot {
    /// Its name.
    pub name: BlockName,
    /// Whether it is that of somebody who could read the one before it, and so leads to all that was there.
    pub is_final: bool,
}

/// An arena of which the outline is checked.
#[derive(Default)]
pub struct BegunCheck {
    /// What was found so far.
    pub check: ArenaCheck,
    /// What is left to read, if anything.
    pub stretches: Vec<Stretch>,
}

impl Store {
    /// The arenas that there are to check, in order. Arenas can be checked at the same time, each by another thread.
    ///
    /// # Errors
    /// [`OpenLogError`] when they cannot be listed.
    pub fn arenas(&self) -> Result<Vec<ArenaId>, OpenLogError> {
        self.log.arenas()
    }

    /// Checks that no arena is missing, that seals are where they should be, and that they are those of the newest
    /// page's ledger.
    ///
    /// # Errors
    /// [`OpenLogError`] when the arenas cannot be listed.
    pub fn check_order(&self) -> Result<Vec<Damage>, OpenLogError> {
        let mut damage = self.look_at_order()?;
        if !damage.is_empty() {
            // Believed when it is found twice: a writer may have sealed an arena, and counted that, while it was looked at.
            let again = self.look_at_order()?;
            let what = |damage: &Damage| (damage.arena, discriminant(&damage.kind));
            damage.retain(|damage| again.iter().any(|again| what(again) == what(damage)));
        }
        Ok(damage)
    }

    fn look_at_order(&self) -> Result<Vec<Damage>, OpenLogError> {
        let ids = self.log.arenas()?;
        let mut damage = Vec::new();
        let mut report = |arena, kind| damage.push(Damage { arena, offset: 0, kind, blocks: Vec::new() });
        // What cannot be read at all is reported as lost, too: its arena may be gone.
        if !self.newest_is_there().unwrap_or(false) {
            report(ids.last().copied().unwrap_or(ArenaId(0)), DamageKind::EndLost);
        }
        let (mut seals, mut unreadable_count, mut lost_by_parity) = (Seals::default(), 0_u64, Vec::new());
        let (mut scans, mut unsealed) = (Scans::new(&self.log), BTreeMap::new());
        for id in &ids {
            match self.log.open_arena(*id).and_then(|arena| Ok((self.log.state_as_left(&arena)?, arena))) {
                Ok((ArenaState::Sealed { footer, .. }, arena)) => {
                    seals.insert(*id, Seal::of(arena.header(), &footer));
                }
                // No ledger may have covered its seal yet; its parity tells of it.
                Ok((ArenaState::Unsealed, arena)) => {
                    unsealed.extend(scans.of(&arena).ok().map(|found| (*id, counted_before(&arena, found))));
                    let header = arena.header();
                    if self.was_sealed_by_parity(*id, header.generation, header.code()) {
                        lost_by_parity.push(*id);
                    }
                }
                // What cannot be opened is reported with its arena.
                Err(_) => unreadable_count += 1,
            }
        }
        lost_by_parity.iter().for_each(|id| report(*id, DamageKind::SealLost));
        // Parity is made of what is durable: an arena that has it was there.
        let gone_by_parity = self.gone_by_parity(&ids).map_err(|source| OpenLogError { source })?;
        gone_by_parity.iter().for_each(|id| report(*id, DamageKind::Missing));
        let newest = self.newest_ledger(&ids, &mut scans);
        let Some(ledger) = newest.ledger else { return Ok(damage) };
        let newest = ids.last().copied().unwrap_or(ArenaId(0));
        // A writer that has found the end of the log gone counts what it saw to be missing then: its next page will say so.
        let by_writer = self.writer.as_ref().map_or(0, |writer| writer.appender().ledger().arena_count);
        let counted = ledger.arena_count.max(by_writer);
        // A number without a file says nothing by itself: a power cut takes the name of an arena that was never acknowledged, and
        // keeps those of later ones. That a seal is missing tells that its arena was lost, and so does its parity.
        let lost_count = seals.missing_count(counted);
        let is_gone = |id: &ArenaId| ids.binary_search(id).is_err();
        let mut gone = (0..newest.0).map(ArenaId).filter(is_gone).peekable();
        let is_any_gone = gone.peek().is_some();
        if lost_count > unreadable_count {
            gone.filter(|id| !gone_by_parity.contains(id)).for_each(|id| report(id, DamageKind::Missing));
        }
        let is_as_counted = seals.ledger(self.log.keys(), ledger.arena_count) == ledger;
        if lost_count == 0 && is_as_counted {
            return Ok(damage);
        }
        if !is_any_gone {
            let is_unexplained = lost_count > unreadable_count + lost_by_parity.len() as u64;
            let lost = without_their_seal(&ids, &seals, counted, &unsealed, is_unexplained);
            let lost = lost.into_iter().filter(|id| !lost_by_parity.contains(id));
            lost.for_each(|id| report(id, DamageKind::SealLost));
        }
        if !is_as_counted {
            report(newest, DamageKind::Ledger);
        }
        Ok(damage)
    }

    /// All catalog roots that directory pages name, newest first.
    ///
    /// # Errors
    /// [`OpenLogError`] when the arenas cannot be listed. What cannot be read is passed over.
    pub fn catalog_roots(&self) -> Result<Vec<CatalogRoot>, OpenLogError> {
        let arenas = self.log.arenas()?.into_iter().rev();
        Ok(arenas.flat_map(|id| self.catalog_roots_of(id)).collect())
    }

    /// The roots from which a store that is opened now reads its catalog, the oldest first: the newest one of somebody who could read the one
    /// before it, and all after it. Unlike [`Store::catalogs`] it asks the log, and not what this session has seen.
    ///
    /// # Errors
    /// As for [`Store::catalog_roots`].
    pub fn newest_catalog_roots(&self) -> Result<Vec<BlockName>, OpenLogError> {
        let mut names = Vec::new();
        for id in self.log.arenas()?.into_iter().rev() {
            let roots = self.catalog_roots_of(id);
            let last = roots.iter().position(|root| root.is_final);
            names.extend(roots.iter().take(last.map_or(roots.len(), |last| last + 1)).map(|root| root.name));
            if last.is_some() {
                break;
            }
        }
        names.reverse();
        Ok(names)
    }

    /// Those that the pages of one arena name, newest first.
    fn catalog_roots_of(&self, id: ArenaId) -> Vec<CatalogRoot> {
        let Ok(arena) = self.log.open_arena(id) else { return Vec::new() };
        let pages: Vec<_> = match self.log.state(&arena) {
            Ok(ArenaState::Sealed { pages, .. }) => {
                pages.iter().filter_map(|row| self.log.read_page(&arena, row).ok()).collect()
            }
            _ => match self.log.scan(&arena) {
                Ok(found) => found.pages.into_iter().map(|(_, page)| page).collect(),
                Err(_) => return Vec::new(),
            },
        };
        let of_page = |page: &DirectoryPage| -> Vec<_> {
            let blocks: Vec<_> = page.blocks().map(|block| block.name).collect();
            blocks.into_iter().rev().filter(|name| name.block_type == BlockType::CATALOG).collect()
        };
        let is_final = !arena.header().is_write_only();
        let names = pages.iter().rev().flat_map(of_page);
        names.map(|name| CatalogRoot { name, is_final }).collect()
    }

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
                if self.was_never_begun(id) {
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
        let arena = self.log.open_arena(id)?;
        let can_read = self.log.keys().can_read();
        let mut pages = Vec::new();
        match self.log.state_as_left(&arena) {
            Err(error) if is_finding(&error) && !self.was_never_begun(id) => {
                check.report(id, 0, error.into(), Vec::new());
                // Its pages tell all the same what else is damaged.
                pages.extend(self.scan_behind_seal(&arena, check)?);
                data |= can_read;
            }
            Err(error) => return Err(error),
            Ok(ArenaState::Sealed { pages: rows, .. }) => {
                for row in rows {
                    match self.log.read_page(&arena, &row) {
                        Ok(page) => pages.push(page),
                        Err(error) if is_finding(&error) => {
                            check.report(id, row.granule.byte_offset(), error.into(), Vec::new());
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            Ok(ArenaState::Unsealed) => {
                let mut found = self.log.scan(&arena)?;
                let page_count = found.pages.len();
                if can_read {
                    found = self.log.judge(&arena, found)?;
                }
                if found.pages.len() < page_count && self.has_lost_seal(id) {
                    // No crash took what these pages name.
                    found = self.log.scan(&arena)?;
                    data = true;
                }
                if let Some(offset) = found.first_hidden() {
                    check.report(id, offset, DamageKind::Withheld, Vec::new());
                    data |= can_read;
                } else if let Some(offset) = found.gap.filter(|gap| can_read || *gap < found.durable_bytes) {
                    check.report(id, offset, DamageKind::Gap, Vec::new());
                    data |= can_read;
                } else if can_read {
                    match self.log.end(&arena, &found)? {
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
                pages.extend(found.pages.into_iter().map(|(_, page)| page));
            }
        }
        check.block_count += pages.iter().map(|page| page.block_count() as u64).sum::<u64>();
        Ok(if data { Stretch::all(arena, pages) } else { Vec::new() })
    }

    /// The pages of an arena whose seal says nothing any more.
    fn scan_behind_seal(
        &self,
        arena: &OpenedArena,
        check: &mut ArenaCheck,
    ) -> Result<impl Iterator<Item = DirectoryPage>, ReadLogError> {
        let found = match self.log.scan(arena) {
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

    fn has_lost_seal(&self, id: ArenaId) -> bool {
        let is_told = |damage: &Damage| damage.arena == id && matches!(damage.kind, DamageKind::SealLost);
        self.check_order().is_ok_and(|damage| damage.iter().any(is_told))
    }
}

/// Which arenas have lost one of the first `counted` seals, where no arena is gone. `unsealed` are those without one, and how many
/// seals surely come before theirs; `is_unexplained` says that more seals are missed than other damage accounts for.
fn without_their_seal(
    ids: &[ArenaId],
    seals: &Seals,
    counted: u64,
    unsealed: &BTreeMap<ArenaId, u64>,
    is_unexplained: bool,
) -> Vec<ArenaId> {
    let is_lost = |id: &ArenaId| match unsealed.get(id) {
        Some(before) => may_be_missed(seals, counted, *before),
        None => id.0 < counted && !seals.contains(*id),
    };
    let lost: Vec<_> = ids.iter().copied().filter(is_lost).collect();
    if !lost.is_empty() || !is_unexplained {
        return lost;
    }
    // One that was put back from another history counts seals, too; but those are not the ones that were counted here. The last one is
    // where this history goes on.
    let before_last = ids.split_last().map_or(&[][..], |(_, before)| before);
    let places = (0..counted).zip(before_last.iter().copied());
    places.map(|(_, id)| id).filter(|id| unsealed.contains_key(id)).collect()
}
