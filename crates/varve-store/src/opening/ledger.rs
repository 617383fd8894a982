//! The ledger that counts: how many arenas were sealed, as the last page that can be read has seen it.

use varve_log::{ArenaId, ArenaState, Ledger, Log, OpenedArena, ReadLogError, Recovered, Seals};

use super::never_begun::NeverBegun;
use super::unsealed_scans::UnsealedScans;
use crate::vault::Vault;

/// The newest ledger that can be read.
pub struct NewestLedger {
    /// The ledger, if any page could be read.
    pub ledger: Option<Ledger>,
    /// The arena whose page has it, or that was looked at last.
    pub arena: Option<ArenaId>,
    /// Whether it is surely the newest one that there is.
    pub is_certain: bool,
}

/// The ledger that holds: that of the last page in the last arena that has one. An arena that cannot be read, a second time neither,
/// is passed over: the ledger before it holds, too, and counts fewer seals.
pub fn newest_ledger(vault: &Vault, ids: &[ArenaId], scans: &mut UnsealedScans<'_>) -> NewestLedger {
    let (mut is_certain, mut never_begun) = (true, NeverBegun::default());
    for id in ids.iter().rev() {
        let mut look = || last_ledger(vault.log(), &*vault.directory().arena(*id)?, scans);
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

/// The ledger of an arena's last page.
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
            // What the disk does not give after the last page may be a later one.
            let is_certain = found.hidden.as_ref().is_none_or(|hidden| *hidden.end() < after);
            NewestLedger { ledger: last.map(|(_, page)| page.ledger()), arena: id, is_certain }
        }
        // A seal that a power cut has torn counts as none. That no page was lost with it has to be seen.
        Err(error @ ReadLogError::Seal { .. }) => match scans.of(arena)? {
            found if found.ends_at_seal() => certain(found.pages.last().map(|(_, page)| page.ledger())),
            _ => return Err(error),
        },
        Err(error) => return Err(error),
    })
}

/// How many places in the order of seals surely come before that of an arena without a seal: those that its last page has counted, unless
/// it was written anew, in a place that had been counted before.
#[must_use]
pub fn counted_before(arena: &OpenedArena, found: &Recovered) -> u64 {
    match found.pages.last() {
        Some((_, page)) if arena.header().generation == 0 => page.ledger().arena_count,
        _ => 0,
    }
}

/// Whether an arena without a seal may be one of those that are missed among the first `counted`. It is not if all of those are among the
/// places [`counted_before`] its own.
#[must_use]
pub fn may_be_missed(seals: &Seals, counted: u64, before: u64) -> bool {
    seals.missing_count(counted) > seals.missing_count(before.min(counted))
}
