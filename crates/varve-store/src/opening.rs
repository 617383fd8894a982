//! Opens a store: reads the part of the log that the saved index does not cover, and prepares the
//! log's end for a writer. After a crash the steps are the same.
//!
//! It owns the findings of one opening: the scans of arenas without a seal, and the places that the
//! disk did not return. It depends on the vault, the finder and the tail's notes, and returns the
//! notes for the tail and the writer's appender.
//!
//! Always true:
//! - An arena that has lost its seal, or that the disk does not return in full, is never written
//!   to.
//! - A page counts as durable only if a mark of durability follows it, or if its arena has a seal
//!   that a ledger counts, or has parity.
//! - A reader changes nothing, whatever it finds.

mod finish_replacing;
mod ledger;
mod load_index;
mod log_end;
mod never_begun;
mod sealed_arenas;
mod unsealed_scans;

pub(crate) use finish_replacing::finish_replacing;
pub use ledger::{NewestLedger, counted_before, may_be_missed, newest_ledger};
pub(crate) use load_index::load_index;
pub use never_begun::NeverBegun;
pub use unsealed_scans::UnsealedScans;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use varve_log::{Appender, ArenaId, Granule, OpenedArena, ReadLogError};

use crate::finder::Finder;
use crate::saved_index::{Coverage, CoveredParts};
use crate::tail::{FollowedLog, GrowingArena, UnreadPlaces};
use crate::vault::{OpenStoreError, Vault};
use sealed_arenas::UnsealedArenas;

/// The progress of reading directories, while an index is made from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebuildProgress {
    /// The arenas that were read.
    pub arenas_done: u64,
    /// The arenas that have to be read.
    pub arenas_total: u64,
}

/// The findings of one opening.
pub(crate) struct Opening<'a> {
    vault: &'a Vault,
    finder: &'a Finder,
    scans: UnsealedScans<'a>,
    unread: UnreadPlaces,
    /// The newest arena with damaged pages.
    newest_damaged: Option<ArenaId>,
    /// The arenas that another process has replaced while their pages were read.
    replaced: BTreeSet<ArenaId>,
    /// True if no other process can change the log.
    is_writer: bool,
}

/// The result of an opening.
pub(crate) struct OpenedLog {
    pub(crate) unread: UnreadPlaces,
    /// The position of a reader.
    pub(crate) followed: FollowedLog,
    /// The appender of a writer.
    pub(crate) appender: Option<Appender>,
}

impl<'a> Opening<'a> {
    pub(crate) fn new(
        vault: &'a Vault,
        finder: &'a Finder,
        scans: UnsealedScans<'a>,
        is_writer: bool,
    ) -> Self {
        let (unread, replaced) = (UnreadPlaces::default(), BTreeSet::new());
        Self { vault, finder, scans, unread, newest_damaged: None, replaced, is_writer }
    }

    /// Reads the part of the log that the checkpoint does not cover. For a writer, also prepares
    /// the log's end.
    pub(crate) fn catch_up(
        mut self,
        coverage: Coverage,
        progress: &mut dyn FnMut(RebuildProgress),
    ) -> Result<OpenedLog, OpenStoreError> {
        let log = self.vault.log();
        if self.is_writer {
            log.remove_never_begun()?;
        }
        let ids = log.arenas()?;
        let (mut seals, covered) = coverage.into_seals_and_parts();
        let mut to_read: Vec<_> = ids.iter().copied().filter(|id| !seals.contains(*id)).collect();
        if self.finder.has_no_index() {
            to_read.reverse();
        }
        let left = self.read_sealed(&to_read, &covered, &mut seals, progress)?;
        let (followed, appender) = if self.is_writer {
            (FollowedLog::default(), Some(self.take_log_end(&ids, left, seals, &covered)?))
        } else {
            let UnsealedArenas { unsealed, .. } = left;
            let growing = self.read_unsealed(unsealed, &covered)?;
            (FollowedLog::new(&seals, growing), None)
        };
        Ok(OpenedLog { unread: self.unread, followed, appender })
    }

    /// Reads the pages of arenas without a seal, and leaves the arenas as they are. Returns the
    /// positions in them from which a reader follows a writer.
    fn read_unsealed(
        &mut self,
        unsealed: Vec<Arc<OpenedArena>>,
        covered: &CoveredParts,
    ) -> Result<BTreeMap<ArenaId, GrowingArena>, OpenStoreError> {
        let mut growing = BTreeMap::new();
        for arena in unsealed {
            let id = arena.id();
            let mut found = self.scans.take(&arena)?;
            let is_followed =
                |error: &ReadLogError| error.is_damage() && self.vault.log().is_replaced(&arena);
            match self.finder.leave_out_lost_roots(&arena, &mut found) {
                Err(error) if is_followed(&error) => continue,
                other => other?,
            }
            // It was sealed and replaced meanwhile. The reader follows that.
            if !self.is_writer && self.vault.log().is_replaced(&arena) {
                continue;
            }
            // A writer may have appended to the arena since.
            let file_bytes = found.log_bytes;
            if !self.is_writer {
                // The next writer cuts off the durable marks at the end.
                found.drop_mark();
            }
            self.unread.note_scan(id, &found);
            if found.gap.is_some() || found.hidden.is_some() {
                self.note_damaged(id);
            }
            self.finder.take_in(&arena, &found, covered.end_in(id))?;
            let taken = found.pages.last().map_or(Granule::default(), |(row, _)| row.after());
            growing.insert(id, GrowingArena::new(file_bytes, taken));
        }
        Ok(growing)
    }

    /// Records that not all pages of an arena can be read.
    fn note_damaged(&mut self, arena: ArenaId) {
        self.newest_damaged = self.newest_damaged.max(Some(arena));
    }
}
