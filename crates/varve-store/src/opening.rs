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

use std::collections::BTreeMap;
use std::sync::Arc;

use varve_log::{Appender, ArenaId, OpenedArena};

use crate::finder::Finder;
use crate::saved_index::{Coverage, CoveredPart};
use crate::tail::{FollowedLog, UnreadPlaces};
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
    pub(crate) fn new(vault: &'a Vault, finder: &'a Finder, scans: UnsealedScans<'a>) -> Self {
        Self { vault, finder, scans, unread: UnreadPlaces::default(), newest_damaged: None }
    }

    /// Reads the part of the log that the checkpoint does not cover. For a writer, also prepares
    /// the log's end.
    pub(crate) fn catch_up(
        mut self,
        mut coverage: Coverage,
        is_writer: bool,
        progress: &mut dyn FnMut(RebuildProgress),
    ) -> Result<OpenedLog, OpenStoreError> {
        let log = self.vault.log();
        if is_writer {
            log.remove_never_begun()?;
        }
        let ids = log.arenas()?;
        let mut to_read: Vec<_> = ids.iter().copied().filter(|id| !coverage.sealed.contains(*id)).collect();
        if self.finder.has_no_index() {
            to_read.reverse();
        }
        let left = self.read_sealed(&to_read, &coverage.part, &mut coverage.sealed, progress)?;
        let (followed, appender) = if is_writer {
            (FollowedLog::default(), Some(self.take_log_end(&ids, left, coverage)?))
        } else {
            let followed = FollowedLog::new(&coverage.sealed);
            let UnsealedArenas { unsealed, .. } = left;
            self.read_unsealed(unsealed, &coverage.part)?;
            (followed, None)
        };
        Ok(OpenedLog { unread: self.unread, followed, appender })
    }

    /// Reads the pages of arenas without a seal, and leaves the arenas as they are.
    fn read_unsealed(
        &mut self,
        unsealed: Vec<Arc<OpenedArena>>,
        covered: &BTreeMap<ArenaId, CoveredPart>,
    ) -> Result<(), OpenStoreError> {
        for arena in unsealed {
            let mut found = self.scans.take(&arena)?;
            self.unread.note_scan(arena.id(), &found);
            if found.gap.is_some() || found.hidden.is_some() {
                self.note_damaged(arena.id());
            }
            self.finder.leave_out_lost_roots(&arena, &mut found)?;
            self.finder.take_in(&arena, &found, covered.get(&arena.id()).map(|part| part.end))?;
        }
        Ok(())
    }

    /// Records that not all pages of an arena can be read.
    fn note_damaged(&mut self, arena: ArenaId) {
        self.newest_damaged = self.newest_damaged.max(Some(arena));
    }
}
