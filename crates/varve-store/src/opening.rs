//! Opening a store: what the log has beyond the saved index is read, and a writer takes the log's end. After a crash too,
//! which needs no other step.
//!
//! It owns what one opening learns on its way: the scans of arenas without a seal, and the places that the disk did not
//! give. It stands on the vault, the finder and the tail's notes, and hands the tail and the writer's appender back.
//!
//! Always true:
//! - An arena that has lost its seal, or that the disk does not give in full, is never written to.
//! - A page is believed durable only behind a mark of durability, a seal that a ledger counts, or parity.
//! - A reader changes nothing, whatever it finds.

mod ledger;
mod load_index;
mod log_end;
mod never_begun;
mod sealed_arenas;
mod unsealed_scans;

pub use ledger::{NewestLedger, counted_before, may_be_missed, newest_ledger};
pub(crate) use load_index::load_index;
pub use never_begun::NeverBegun;
pub use unsealed_scans::UnsealedScans;

use std::collections::BTreeMap;
use std::sync::Arc;

use varve_log::{Appender, ArenaId, OpenedArena};

use crate::finder::Finder;
use crate::saved_index::{Coverage, CoveredPart};
use crate::tail::{Followed, UnreadPlaces};
use crate::vault::{OpenError, Vault};
use sealed_arenas::NotSealed;

/// How far the reading of directories has come, while an index is made from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebuildProgress {
    /// Arenas read.
    pub arenas_done: u64,
    /// Arenas to be read.
    pub arenas_total: u64,
}

/// What one opening has learnt on its way.
pub(crate) struct Opening<'a> {
    vault: &'a Vault,
    finder: &'a Finder,
    scans: UnsealedScans<'a>,
    unread: UnreadPlaces,
}

/// The outcome of an opening.
pub(crate) struct Opened {
    pub(crate) unread: UnreadPlaces,
    /// How far a reader has come.
    pub(crate) followed: Followed,
    /// Where a writer goes on.
    pub(crate) appender: Option<Appender>,
}

impl<'a> Opening<'a> {
    pub(crate) fn new(vault: &'a Vault, finder: &'a Finder, scans: UnsealedScans<'a>) -> Self {
        Self { vault, finder, scans, unread: UnreadPlaces::default() }
    }

    /// Reads what the log has beyond the checkpoint, and takes the log's end if the store is to be written.
    pub(crate) fn catch_up(
        mut self,
        mut coverage: Coverage,
        is_writer: bool,
        progress: &mut dyn FnMut(RebuildProgress),
    ) -> Result<Opened, OpenError> {
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
            (Followed::default(), Some(self.take_log_end(&ids, left, coverage)?))
        } else {
            let followed = Followed::new(&coverage.sealed);
            let NotSealed { unsealed, .. } = left;
            self.read_unsealed(unsealed, &coverage.part)?;
            (followed, None)
        };
        Ok(Opened { unread: self.unread, followed, appender })
    }

    /// Reads the pages of arenas without a seal, and leaves the arenas as they are.
    fn read_unsealed(
        &mut self,
        unsealed: Vec<Arc<OpenedArena>>,
        covered: &BTreeMap<ArenaId, CoveredPart>,
    ) -> Result<(), OpenError> {
        for arena in unsealed {
            let mut found = self.scans.take(&arena)?;
            self.unread.note_scan(arena.id(), &found);
            self.finder.leave_out_lost_roots(&arena, &mut found)?;
            self.finder.take_in(&arena, &found, covered.get(&arena.id()).map(|part| part.end))?;
        }
        Ok(())
    }
}
