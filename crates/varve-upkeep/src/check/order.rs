//! Checks the order of the arenas: none is missing, seals are where they should be, and they are
//! those that were counted.

use std::collections::BTreeMap;
use std::mem::discriminant;

use varve_log::{ArenaId, ArenaState, Ledger, OpenLogError, Seal, Seals};
use varve_store::{NotedPage, UnsealedScans, counted_before, may_be_missed, newest_ledger};

use super::Checker;
use crate::damage::{Damage, DamageKind};

/// At most this many missing arenas are named: an arena file that somebody has added may have any
/// number.
const MISSING_NAMED_MAX: usize = 1 << 16;

/// The most looks until two in a row have seen the same log.
const LOOKS_MAX: usize = 16;

/// One look at the order of the arenas.
struct OrderLook {
    damage: Vec<Damage>,
    seen: SeenOrder,
}

/// The part of the log that such a look has seen.
#[derive(PartialEq)]
struct SeenOrder {
    ids: Vec<ArenaId>,
    arenas: ExistingArenas,
    ledger: Option<Ledger>,
    noted: Option<NotedPage>,
}

/// The state of the arenas that exist.
#[derive(Default, PartialEq)]
struct ExistingArenas {
    seals: Seals,
    /// The arenas without a seal, each with the number of seals that surely come before its own.
    unsealed: BTreeMap<ArenaId, u64>,
    /// The arenas without a seal that have parity. Parity is made of sealed arenas only, so they
    /// were sealed. No ledger may have covered their seals yet.
    lost_by_parity: Vec<ArenaId>,
    /// The number of arenas that cannot be opened. Each is reported with its arena.
    unreadable_count: u64,
}

impl Checker<'_> {
    /// Checks that no arena is missing, that seals are where they should be, and that they are
    /// those of the newest page's ledger.
    ///
    /// Damage counts if two looks in a row have seen the same log, and found the same in it: a
    /// writer may have sealed an arena and counted the seal during a look, or a collector may have
    /// replaced arenas.
    ///
    /// # Errors
    /// [`OpenLogError`] when the arenas cannot be listed.
    pub fn check_order(&self) -> Result<Vec<Damage>, OpenLogError> {
        let mut last = self.look_at_order()?;
        for _ in 1..LOOKS_MAX {
            if last.damage.is_empty() {
                break;
            }
            let mut again = self.look_at_order()?;
            let is_same = again.seen == last.seen;
            let what = |damage: &Damage| (damage.arena, discriminant(&damage.kind));
            again.damage.retain(|damage| last.damage.iter().any(|last| what(last) == what(damage)));
            last = again;
            if is_same {
                break;
            }
        }
        Ok(last.damage)
    }

    fn look_at_order(&self) -> Result<OrderLook, OpenLogError> {
        let ids = self.log().arenas()?;
        let noted = self.vault().noted_page();
        // An unreadable noted page is reported as lost too, since its arena may be gone.
        let is_end_lost = !self.vault().newest_is_there().unwrap_or(false);
        let mut scans = UnsealedScans::new(self.log());
        let arenas = self.see_arenas(&ids, &mut scans);
        let ledger = newest_ledger(self.vault(), &ids, &mut scans).ledger;
        let mut damage = Vec::new();
        if is_end_lost {
            let arena = ids.last().copied().unwrap_or(ArenaId(0));
            damage.push(Damage { arena, offset: 0, kind: DamageKind::EndLost, blocks: Vec::new() });
        }
        damage.extend(self.damage_of(&ids, &arenas, ledger)?);
        Ok(OrderLook { damage, seen: SeenOrder { ids, arenas, ledger, noted } })
    }

    fn damage_of(
        &self,
        ids: &[ArenaId],
        seen: &ExistingArenas,
        ledger: Option<Ledger>,
    ) -> Result<Vec<Damage>, OpenLogError> {
        let mut damage = Vec::new();
        let mut report = |arena, kind| damage.push(Damage { arena, offset: 0, kind, blocks: Vec::new() });
        seen.lost_by_parity.iter().for_each(|id| report(*id, DamageKind::SealLost));
        // Parity is made of durable arenas, so an arena that has it existed.
        let gone_by_parity = self.vault().parity().gone(ids).map_err(|source| OpenLogError { source })?;
        gone_by_parity.iter().for_each(|id| report(*id, DamageKind::Missing));
        let Some(ledger) = ledger else { return Ok(damage) };
        let newest = ids.last().copied().unwrap_or(ArenaId(0));
        // A writer that has found the end of the log gone counts the seals that it saw missing. Its
        // next page will carry that count.
        let by_writer = self.store.intake().map_or(0, |intake| intake.ledger().arena_count);
        let counted = ledger.arena_count.max(by_writer);
        // A number without a file proves nothing by itself: a power cut takes the name of an arena
        // that was never acknowledged, and keeps those of later arenas. A missing seal proves that
        // its arena was lost, and so does its parity.
        let lost_count = seen.seals.missing_count(counted);
        let is_gone = |id: &ArenaId| ids.binary_search(id).is_err();
        let mut gone = (0..newest.0).map(ArenaId).filter(is_gone).peekable();
        let is_any_gone = gone.peek().is_some();
        if lost_count > seen.unreadable_count {
            let gone = gone.filter(|id| !gone_by_parity.contains(id)).take(MISSING_NAMED_MAX);
            gone.for_each(|id| report(id, DamageKind::Missing));
        }
        let is_counted = |seals: &Seals| seals.ledger(self.log().keys(), ledger.arena_count) == ledger;
        let is_as_counted = is_counted(&seen.seals) || is_counted(&self.with_successors(&seen.seals));
        if lost_count == 0 && is_as_counted {
            return Ok(damage);
        }
        if !is_any_gone {
            seen.without_their_seal(ids, counted).into_iter().for_each(|id| report(id, DamageKind::SealLost));
        }
        if !is_as_counted {
            report(newest, DamageKind::Ledger);
        }
        Ok(damage)
    }

    /// Returns the seals as they are once the successors that a collector has committed are in
    /// place. A crash may have come between, and the next writer puts them there.
    fn with_successors(&self, seals: &Seals) -> Seals {
        let mut with = seals.clone();
        for id in self.vault().successors().unwrap_or_default() {
            if let Some(seal) = self.vault().successor_seal(id) {
                with.replace(id, seal);
            }
        }
        with
    }

    fn see_arenas(&self, ids: &[ArenaId], scans: &mut UnsealedScans<'_>) -> ExistingArenas {
        let mut seen = ExistingArenas::default();
        for id in ids {
            match self.log().read_arena(*id, |arena| Ok((self.log().state_as_left(&arena)?, arena))) {
                Ok((ArenaState::Sealed { footer, .. }, arena)) => {
                    seen.seals.insert(*id, Seal::of(arena.header(), &footer));
                }
                Ok((ArenaState::Unsealed, arena)) => {
                    let before = scans.of(&arena).ok().map(|found| (*id, counted_before(&arena, found)));
                    seen.unsealed.extend(before);
                    let header = arena.header();
                    if self.vault().parity().was_sealed(*id, header.generation, header.code()) {
                        seen.lost_by_parity.push(*id);
                    }
                }
                // A writer has removed an arena that was never begun.
                Err(_) if self.log().is_gone(*id) => {}
                Err(_) => seen.unreadable_count += 1,
            }
        }
        seen
    }
}

impl ExistingArenas {
    /// Returns the arenas that have lost one of the first `counted` seals, if no arena is gone.
    /// Omits those whose loss their parity shows.
    fn without_their_seal(&self, ids: &[ArenaId], counted: u64) -> Vec<ArenaId> {
        let is_lost = |id: &ArenaId| match self.unsealed.get(id) {
            Some(before) => may_be_missed(&self.seals, counted, *before),
            None => id.0 < counted && !self.seals.contains(*id),
        };
        let mut lost: Vec<_> = ids.iter().copied().filter(is_lost).collect();
        let explained = self.unreadable_count + self.lost_by_parity.len() as u64;
        if lost.is_empty() && self.seals.missing_count(counted) > explained {
            // An arena that was put back from another history counts seals too, but those are not
            // the ones that were counted here. The last arena is where this history continues.
            let before_last = ids.split_last().map_or(&[][..], |(_, before)| before);
            let places = (0..counted).zip(before_last.iter().copied());
            lost.extend(places.map(|(_, id)| id).filter(|id| self.unsealed.contains_key(id)));
        }
        lost.retain(|id| !self.lost_by_parity.contains(id));
        lost
    }
}
