//! What the disk did not give when the store was opened, and what follows from it.
//!
//! It may come back: a loose cable gives the same errors as a sector that is gone. So what is there is left alone, and the next arena is
//! begun. That is right only if the new one hides nothing and is built on nothing that power loss may take:
//!
//! - Somewhere in what cannot be read there may be a page that names a newer catalog than any that is known. The next snapshot's
//!   catalog would then be without the snapshots in that one. It is certain that there is none if a catalog of somebody who could read
//!   lies behind that place: whoever wrote it knew what was before.
//! - What follows the last mark of durability may be in the page cache only. Mostly an opening writes it anew; that needs all of it.
//!
//! If one of the two cannot be excluded the store takes nothing until `repair` has settled the matter. Whoever only reads may be shown a
//! catalog without the newest snapshots then, and has to be told.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};

use varve_block::LogAddress;
use varve_log::{ArenaId, Granule, ReadLogError, Recovered};

use crate::vault::Vault;

/// Why a store takes nothing. What was stored before can be read as far as the disk gives it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "arena {arena}, offset {offset}: the disk does not give what is there, and the newest snapshots may need it; nothing is added \
     before that is repaired"
)]
pub struct WithheldError {
    /// Which arena.
    pub arena: ArenaId,
    /// Where in it, in bytes.
    pub offset: u64,
}

/// Where in an arena there may be pages that nobody has seen: from the first place to the last, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Hidden {
    arena: ArenaId,
    last: u64,
    first: u64,
}

/// Places that the disk did not give.
#[derive(Debug, Default)]
pub(crate) struct UnreadPlaces {
    /// Of the places where there may be pages that nobody has seen, those that reach furthest.
    hidden: Option<Hidden>,
    /// Where something begins that may not be durable, and could not be made so.
    not_durable: Option<(ArenaId, u64)>,
    /// Why nothing is taken.
    reason: Option<WithheldError>,
    /// Whether what cannot be read counts as lost from now on.
    is_accepted: AtomicBool,
}

impl UnreadPlaces {
    /// Notes an error, if it is that the disk does not give something: there may be pages at these places.
    pub(crate) fn note_error(&mut self, error: &ReadLogError, places: RangeInclusive<u64>) {
        if error.is_unreadable() {
            self.note_hidden(error.arena(), &places);
        }
    }

    fn note_hidden(&mut self, arena: ArenaId, places: &RangeInclusive<u64>) {
        let hidden = Hidden { arena, last: *places.end(), first: *places.start() };
        self.hidden = self.hidden.max(Some(hidden));
    }

    pub(crate) fn note_not_durable(&mut self, arena: ArenaId, offset: u64) {
        self.not_durable.get_or_insert((arena, offset));
    }

    /// Notes what a scan of an arena without a seal has met, as far as that is left as it is.
    pub(crate) fn note_scan(&mut self, arena: ArenaId, found: &Recovered) {
        if let Some(hidden) = &found.hidden {
            self.note_hidden(arena, hidden);
        }
    }

    /// Notes an arena that could not be recovered because the disk does not give all of it.
    pub(crate) fn note_left(&mut self, arena: ArenaId, found: &Recovered) {
        let durable = found.durable();
        let is_after = |granule: Granule| granule >= durable;
        let after =
            found.pages.iter().flat_map(|(_, page)| page.clumps()).find(|clump| is_after(clump.granule));
        if let Some(clump) = after {
            self.note_not_durable(arena, clump.granule.byte_offset());
        }
    }

    /// Whether anything was met: then what was read is not all that there is, and must not be kept as such.
    pub(super) fn is_any(&self) -> bool {
        self.hidden.is_some() || self.not_durable.is_some()
    }

    /// Decides, once all is read, whether anything may be added, and whether what is listed may lack the newest.
    /// `newest`: the newest catalog root of a writer that could read the one before it.
    pub(super) fn judge(&mut self, vault: &Vault, newest: Option<LogAddress>) {
        let newest = newest.map(|address| vault.map().locate(address));
        let is_behind = |hidden: &Hidden| {
            newest
                .is_none_or(|(newest, granule)| (newest, granule.byte_offset()) < (hidden.arena, hidden.last))
        };
        // A key that may not read hides no catalog by what it adds.
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
