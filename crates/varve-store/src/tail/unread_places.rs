//! The places that the disk did not return when the store was opened, and the consequences.
//!
//! The data may come back: a loose cable gives the same errors as a lost sector. So the damaged
//! arena is left as it is, and the next arena is begun. That is right only if the new arena hides
//! nothing, and depends on nothing that a power loss may take:
//!
//! - An unreadable place may hold a page that names a newer catalog than any that is known. The
//!   catalog of the next snapshot would then lack the snapshots of the newer one. There is
//!   certainly no such page if a catalog of a writer that could read lies behind that place, since
//!   that writer knew all earlier snapshots.
//! - Records after the last mark of durability may be in the page cache only. Usually an opening
//!   writes them anew, which needs all of them.
//!
//! If one of the two cannot be excluded, the store accepts no blocks until `repair` has settled the
//! matter. A reader may then see a catalog without the newest snapshots, and has to be told.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};

use varve_block::LogAddress;
use varve_log::{ArenaId, Granule, ReadLogError, RecoveredArena};

use crate::vault::Vault;

/// The reason why a store accepts no blocks. Earlier blocks can be read as far as the disk returns
/// them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "arena {arena}, offset {offset}: the disk cannot read this place, and the newest snapshots may need it; the store takes no new data until it is repaired"
)]
pub struct WithheldError {
    pub arena: ArenaId,
    /// The place in the arena, in bytes.
    pub offset: u64,
}

/// A part of an arena that may hold unseen pages: from the first place to the last, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct WithheldRange {
    arena: ArenaId,
    last: u64,
    first: u64,
}

/// The places that the disk did not return.
#[derive(Debug, Default)]
pub(crate) struct UnreadPlaces {
    /// Of the places that may hold unseen pages, those that reach furthest in the log.
    hidden: Option<WithheldRange>,
    /// The start of records that may not be durable, and could not be made so.
    not_durable: Option<(ArenaId, u64)>,
    /// The reason why no blocks are accepted.
    reason: Option<WithheldError>,
    /// True if unreadable data counts as lost from now on.
    is_accepted: AtomicBool,
}

impl UnreadPlaces {
    /// Records an error if the disk did not return data. There may be pages at these places.
    pub(crate) fn note_error(&mut self, error: &ReadLogError, places: RangeInclusive<u64>) {
        if error.is_unreadable() {
            self.note_hidden(error.arena(), &places);
        }
    }

    fn note_hidden(&mut self, arena: ArenaId, places: &RangeInclusive<u64>) {
        let hidden = WithheldRange { arena, last: *places.end(), first: *places.start() };
        self.hidden = self.hidden.max(Some(hidden));
    }

    pub(crate) fn note_not_durable(&mut self, arena: ArenaId, offset: u64) {
        self.not_durable.get_or_insert((arena, offset));
    }

    /// Records the part of an arena without a seal that a scan could not read, and that is left as
    /// it is.
    pub(crate) fn note_scan(&mut self, arena: ArenaId, found: &RecoveredArena) {
        if let Some(hidden) = &found.hidden {
            self.note_hidden(arena, hidden);
        }
    }

    /// Records an arena that could not be recovered because the disk does not return all of it.
    pub(crate) fn note_left(&mut self, arena: ArenaId, found: &RecoveredArena) {
        let durable = found.durable();
        let is_after = |granule: Granule| granule >= durable;
        let after =
            found.pages.iter().flat_map(|(_, page)| page.clumps()).find(|clump| is_after(clump.granule));
        if let Some(clump) = after {
            self.note_not_durable(arena, clump.granule.byte_offset());
        }
    }

    /// Returns true if any place was recorded. The part that was read is then incomplete, and must
    /// not be saved as complete.
    pub(super) fn is_any(&self) -> bool {
        self.hidden.is_some() || self.not_durable.is_some()
    }

    /// Decides, once the log has been read, whether blocks may be added, and whether the newest
    /// snapshots may be missing. `newest`: the newest catalog root of a writer that could read its
    /// predecessor.
    pub(super) fn judge(&mut self, vault: &Vault, newest: Option<LogAddress>) {
        let newest = newest.map(|address| vault.map().locate(address));
        let is_behind = |hidden: &WithheldRange| {
            newest
                .is_none_or(|(newest, granule)| (newest, granule.byte_offset()) < (hidden.arena, hidden.last))
        };
        // The arenas that a key without read permission adds hide no catalog.
        let hidden = self.hidden.filter(|hidden| vault.log().keys().can_read() && is_behind(hidden));
        let place = hidden.map(|hidden| (hidden.arena, hidden.first)).or(self.not_durable);
        self.reason = place.map(|(arena, offset)| WithheldError { arena, offset });
        if let Some(reason) = &self.reason {
            tracing::error!(%reason, "the newest snapshots may be missing");
        }
    }

    pub(super) fn check(&self) -> Result<(), WithheldError> {
        match &self.reason {
            Some(reason) if !self.is_accepted.load(Ordering::Relaxed) => Err(reason.clone()),
            _ => Ok(()),
        }
    }

    pub(super) fn accept(&self) {
        self.is_accepted.store(true, Ordering::Relaxed);
    }
}
