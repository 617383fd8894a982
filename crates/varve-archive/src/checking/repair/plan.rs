//! The plan of a repair, and its result.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use varve_block::{BlockName, PutError, SyncError};
use varve_content::Progress;
use varve_log::{ArenaId, OpenLogError};
use varve_store::Store;
use varve_upkeep::{AuditShare, Damage, DamageKind, MendPlan, MendWay, RepairError, Repaired};

use crate::catalog::catalog_root::{Catalog, SaveCatalogError};
use crate::catalog::losses::Losses;
use crate::checking::verify::{Harm, Verified, VerifyError, check_known, check_log};

/// The extent of the search for damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairScope {
    /// Only at places with recorded suspicions; everywhere, if there are none.
    Known,
    /// Everywhere: every byte is read.
    All,
}

/// The plan of a repair: everything that it may change, in this order.
///
/// Mended arenas may bring back what the later steps are for, and may name further arenas. After
/// mending, a repair therefore plans the rest again, by the same functions. After writing arenas
/// anew it checks their order once more, and repairs what that shows in the same way.
#[derive(Debug, Default)]
pub struct RepairPlan {
    /// The damage, and the harm that it does.
    pub before: Verified,
    /// True if every byte was read to find the damage.
    pub is_all_checked: bool,
    /// The arenas to be mended or written anew.
    pub log: MendPlan,
    /// True if the newest catalog is lost, and is put together from older ones.
    pub catalog_was_lost: bool,
    /// True if the end of the log is gone, and with it snapshots that only a copy can name.
    pub end_was_lost: bool,
    /// Snapshots that only a copy knows.
    pub brought_back_count: u64,
    /// The lost blocks that copies have, by the number of the copy.
    pub fetches: BTreeMap<usize, BTreeSet<BlockName>>,
    /// The open losses that the repair leaves, whether or not a snapshot needs them.
    pub losses: Losses,
}

/// The result of a repair.
#[derive(Debug, Default)]
pub struct RepairReport {
    /// The plan of the log before its first arena was mended.
    pub first: MendPlan,
    /// The plan for everything that mending left. All of it was carried out.
    pub plan: RepairPlan,
    /// The sealed arenas that somebody had put in place, and that were taken in.
    pub replaced: Vec<ArenaId>,
    /// The arenas that were mended as a whole, each with the way that succeeded.
    pub mended: BTreeMap<ArenaId, MendWay>,
    /// The arenas that the last check of their order has added. They were written anew.
    pub late: MendPlan,
    /// Snapshots that were found only in a copy, or in a catalog that no page named any more.
    pub brought_back_count: u64,
    /// Blocks that were fetched from copies.
    pub fetched_block_count: u64,
    /// The arenas that were written anew.
    pub repaired: Repaired,
    /// The harm to snapshots that remains.
    pub harm_left: Vec<Harm>,
}

/// Why a repair stopped. The parts of the store that it had not reached are unchanged.
#[derive(Debug, thiserror::Error)]
pub enum RepairArchiveError {
    #[error("{0}")]
    Verify(#[from] VerifyError),
    #[error("{0}")]
    List(#[from] OpenLogError),
    /// A fetched block could not be stored.
    #[error("a fetched block cannot be stored")]
    Put(#[from] PutError),
    /// The fetched blocks could not be made durable.
    #[error("the fetched blocks cannot be made durable")]
    Sync(#[from] SyncError),
    #[error("{0}")]
    Log(#[from] RepairError),
    /// The catalog could not be written anew.
    #[error("the catalog cannot be written again")]
    Catalog(#[from] SaveCatalogError),
    /// The system provided no random bytes.
    #[error("the system provides no random bytes")]
    Random(#[source] io::Error),
}

impl RepairPlan {
    /// Begins a plan: finds the damage, and the ways to mend the damaged arenas.
    pub(super) fn begin(
        store: &Store,
        copies: &[&Store],
        scope: RepairScope,
        progress: &Progress,
    ) -> Result<Self, RepairArchiveError> {
        let (before, is_all_checked) = check(store, scope, progress)?;
        let mut log = MendPlan::with_ways(store, &before.damage, copies).map_err(RepairError::ListParity)?;
        log.parity.extend(&before.without_parity);
        Ok(Self { before, is_all_checked, log, ..Self::default() })
    }

    /// Returns true if there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let is_log_kept = self.log.is_empty() && !self.log.accepts_end && !self.log.takes_in_replaced;
        is_log_kept && self.is_catalog_whole() && self.fetches.is_empty()
    }

    fn is_catalog_whole(&self) -> bool {
        !self.catalog_was_lost && !self.end_was_lost && self.brought_back_count == 0
    }

    /// Returns whether all damage names the blocks that it destroyed. If the ledger differs from
    /// the existing seals, an arena may be from another history, and its missing blocks are
    /// unknown.
    pub(super) fn is_named(&self) -> bool {
        let is_named = |damage: &Damage| match damage.kind {
            DamageKind::Parity(_) | DamageKind::TornEnd => true,
            _ => !damage.blocks.is_empty(),
        };
        !self.is_all_checked && self.is_catalog_whole() && self.before.damage.iter().all(is_named)
    }
}

impl RepairReport {
    /// The report of a repair that is only planned.
    #[must_use]
    pub fn of_plan(plan: RepairPlan) -> Self {
        let (first, brought_back_count) = (plan.log.clone(), plan.brought_back_count);
        Self { first, brought_back_count, plan, ..Self::default() }
    }

    /// Returns true if there was nothing to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_log_kept = self.plan.log.is_empty() && self.mended.is_empty() && self.late.is_empty();
        is_log_kept
            && self.replaced.is_empty()
            && !self.plan.catalog_was_lost
            && self.brought_back_count == 0
            && self.fetched_block_count == 0
    }
}

/// Looks for damage. Returns the findings, and whether every byte was read.
fn check(store: &Store, scope: RepairScope, progress: &Progress) -> Result<(Verified, bool), VerifyError> {
    if scope == RepairScope::Known
        && let Some(known) = check_known(store, !noted_losses(store).is_empty(), progress)?
    {
        return Ok((known, false));
    }
    Ok((check_log(store, Some(AuditShare::ALL), progress)?, true))
}

/// The recorded losses that are not accepted; none if the catalog is unreadable.
fn noted_losses(store: &Store) -> Losses {
    Catalog::load_of(store, store).map(|catalog| catalog.losses(store).unaccepted()).unwrap_or_default()
}
