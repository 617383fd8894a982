//! The newest ledger: the number of sealed arenas according to the last readable page.

use varve_log::{ArenaId, ArenaState, Ledger, Log, OpenedArena, ReadLogError, RecoveredArena, Seals};

use super::never_begun::NeverBegun;
use super::unsealed_scans::UnsealedScans;
use crate::vault::Vault;

/// The newest ledger that can be read.
pub struct NewestLedger {
    /// `None` if no page could be read.
    pub ledger: Option<Ledger>,
    /// The arena whose page has the ledger; without a ledger, the last arena that was searched.
    pub arena: Option<ArenaId>,
    /// True if no newer ledger can exist.
    pub is_certain: bool,
}

/// Finds the ledger that is in force: that of the last page in the last arena that has a page. An
/// arena that cannot be read twice in a row is skipped. The ledger before it is valid too, and
/// counts fewer seals.
pub fn newest_ledger(vault: &Vault, ids: &[ArenaId], scans: &mut UnsealedScans<'_>) -> NewestLedger {
    let (mut is_certain, mut never_begun) = (true, NeverBegun::default());
    for id in ids.iter().rev() {
        // Not from the cached header: another process may have replaced the arena.
        let mut look = || vault.log().read_arena(*id, |arena| last_ledger(vault.log(), &arena, scans));
        match look().or_else(|_| look()) {
            Ok(last) => {
                is_certain &= last.is_certain;
                if last.ledger.is_some() {
                    return NewestLedger { is_certain, ..last };
                }
            }
            Err(_) if never_begun.has(vault.log(), *id) => {}
            Err(error) => {
                tracing::warn!(arena = %id, %error, "an arena's last page cannot be read");
                is_certain = false;
            }
        }
    }
    NewestLedger { ledger: None, arena: ids.first().copied(), is_certain }
}

/// Returns the ledger of an arena's last page.
pub(super) fn last_ledger(
    log: &Log,
    arena: &OpenedArena,
    scans: &mut UnsealedScans<'_>,
) -> Result<NewestLedger, ReadLogError> {
    let id = Some(arena.id());
    let certain = |ledger| NewestLedger { ledger, arena: id, is_certain: true };
    Ok(match log.state(arena) {
        Ok(ArenaState::Sealed { pages, .. }) => match pages.last() {
            Some(row) => certain(Some(log.read_page(arena, row)?.ledger())),
            None => certain(None),
        },
        Ok(ArenaState::Unsealed) => {
            let found = scans.of(arena)?;
            let last = found.pages.last();
            let after = last.map_or(0, |(row, _)| row.granule.byte_offset());
            // A part that the disk does not return, behind the last page, may hold a later page.
            let is_certain = found.hidden.as_ref().is_none_or(|hidden| *hidden.end() < after);
            NewestLedger { ledger: last.map(|(_, page)| page.ledger()), arena: id, is_certain }
        }
        // A seal that a power cut has torn counts as none. The scan has to show that no page was
        // lost with it.
        Err(error) if error.is_broken_seal() => match scans.of(arena)? {
            found if found.ends_at_seal() => certain(found.pages.last().map(|(_, page)| page.ledger())),
            _ => return Err(error),
        },
        Err(error) => return Err(error),
    })
}

/// Returns the number of places in the order of seals that surely come before that of an arena
/// without a seal: the places that its last page has counted. For an arena that was written anew it
/// is 0, since its place may have been counted before.
#[must_use]
pub fn counted_before(arena: &OpenedArena, found: &RecoveredArena) -> u64 {
    match found.pages.last() {
        Some((_, page)) if arena.header().generation == 0 => page.ledger().arena_count,
        _ => 0,
    }
}

/// Returns true if an arena without a seal may be one of those whose seals are missing among the
/// first `counted`. It cannot be one if all missing seals are among the places [`counted_before`]
/// its own.
#[must_use]
pub fn may_be_missed(seals: &Seals, counted: u64, before: u64) -> bool {
    seals.missing_count(counted) > seals.missing_count(before.min(counted))
}
