//! Repair: mends damaged arenas, fetches lost blocks from intact copies, and writes anew the arenas
//! that nothing can mend.
//!
//! ```text
//! check ─▶ mend from parity or a copy ─▶ find the catalog ─▶ fetch lost blocks ─▶ note the losses
//!       ─▶ write damaged arenas anew ─▶ check their order again ─▶ report the remaining harm
//! ```
//!
//! [`plan_repair`] and [`repair`] call the same steps. A plan leaves out those that write, and only
//! looks at the blocks that a repair would fetch.
//!
//! If the lost blocks are known, the cost of a repair is in proportion to the loss. They are known
//! from the log itself, from a read that failed, or from an earlier check. The trees of all
//! snapshots are walked only if nothing tells which blocks a damaged place held.

mod accept;
mod barren;
mod fetching_store;
mod find_catalog;
mod losses;
mod plan;

use std::collections::BTreeSet;

use varve_block::{BlockName, BlockStore};
use varve_content::Progress;
use varve_log::OpenLogError;
use varve_store::{CatalogRoot, Permission, Store};
use varve_upkeep::{Checker, DamageKind, MendPlan, Mender, RepairError};

pub use self::accept::{AcceptLossError, AcceptPlan, accept_losses, plan_to_accept};
use self::barren::note_barren_again;
use self::fetching_store::{FetchingStore, SuppliedBlocks};
use self::find_catalog::{FoundCatalog, add_found_again, find_catalog, lists_all};
use self::losses::LossRecorder;
pub use self::plan::{RepairArchiveError, RepairPlan, RepairReport, RepairScope};
use crate::catalog::catalog_root::Catalog;
use crate::checking::verify::{VerifyError, WalkFindings, blocks_without_copy, walk_snapshots};

/// Plans what [`repair`] would do, and changes nothing. It reads from `copies` all that the repair
/// would fetch, so it says what they really have.
///
/// # Errors
/// [`RepairArchiveError`].
pub fn plan_repair(
    store: &Store,
    copies: &[&Store],
    scope: RepairScope,
    progress: &Progress,
) -> Result<RepairPlan, RepairArchiveError> {
    require(store, Permission::Read, copies)?;
    let plan = RepairPlan::begin(store, copies, scope, progress)?;
    let (copies, roots) = (FetchingStore::new(store, copies, false), store.catalog_roots()?);
    let mut repair = RepairRun::find_catalog(store, &copies, RepairReport::of_plan(plan), &roots, progress)?;
    repair.find_lost_blocks()?;
    repair.fetch_blocks();
    repair.foresee_losses()?;
    repair.recording.drop_readable()?;
    let supplied = copies.take_supplied()?;
    repair.recording.drop_blocks(supplied.by_copy.values().flatten());
    Ok(repair.into_report(supplied).plan)
}

/// Repairs a store. `copies` of it supply arenas and blocks that are damaged or missing, and the
/// catalog if the newest one is lost.
///
/// # Errors
/// [`RepairArchiveError`].
pub fn repair(
    store: &Store,
    copies: &[&Store],
    scope: RepairScope,
    progress: &Progress,
) -> Result<RepairReport, RepairArchiveError> {
    require(store, Permission::Destroy, copies)?;
    let mender = Mender::of(store)?;
    mender.accept_withheld();
    let mut plan = RepairPlan::begin(store, copies, scope, progress)?;
    let mut replaced = Vec::new();
    if plan.log.takes_in_replaced {
        replaced = mender.take_in_replaced()?;
        if !replaced.is_empty() {
            plan = RepairPlan::begin(store, copies, scope, progress)?;
        }
    }
    let mut report = RepairReport { replaced, ..RepairReport::of_plan(plan) };
    // Mended arenas may name snapshots that nothing else names. Those names were unknown when the
    // store was opened.
    let roots = store.catalog_roots()?;
    let RepairPlan { log, before, .. } = &mut report.plan;
    report.mended = mender.mend(log, &mut before.damage, copies)?;
    let copies = FetchingStore::new(store, copies, true);
    let mut repair = RepairRun::find_catalog(store, &copies, report, &roots, progress)?;
    repair.find_lost_blocks()?;
    repair.fetch_blocks();
    repair.foresee_losses()?;
    let supplied = copies.take_supplied()?;
    repair.save_catalog()?;
    repair.note_barren_blocks(&repair.report.plan.log)?;
    repair.rewrite(mender)?;
    repair.save_catalog_again()?;
    repair.rewrite_late(mender)?;
    repair.find_harm_left()?;
    Ok(repair.into_report(supplied))
}

/// Requires a permission of the store, and that the copies can be read.
fn require(store: &Store, permission: Permission, copies: &[&Store]) -> Result<(), RepairError> {
    store.role().require(permission)?;
    Ok(copies.iter().try_for_each(|copy| copy.role().require(Permission::Read))?)
}

/// A repair after whole arenas were mended, or a plan of it.
struct RepairRun<'a> {
    store: &'a Store,
    copies: &'a FetchingStore<'a>,
    progress: &'a Progress,
    report: RepairReport,
    catalog: Catalog,
    /// The number of the newest final root that the catalog was read from.
    sequence: u64,
    recording: LossRecorder<'a>,
    /// The roots of catalogs that were read.
    known_roots: BTreeSet<BlockName>,
    /// The blocks to look for in the copies.
    wanted: BTreeSet<BlockName>,
    /// True if only wanted blocks can be lost, so that no snapshot need be walked.
    is_all_named: bool,
    /// True if every wanted block is readable.
    is_all_back: bool,
    /// True if arenas, seals or the list of snapshots have changed. The order of the arenas is then
    /// checked again.
    is_changed: bool,
}

impl<'a> RepairRun<'a> {
    /// Finds the newest catalog, or puts it together. `roots` are those that the log named before
    /// arenas were mended.
    fn find_catalog(
        store: &'a Store,
        copies: &'a FetchingStore<'a>,
        mut report: RepairReport,
        roots: &[CatalogRoot],
        progress: &'a Progress,
    ) -> Result<Self, OpenLogError> {
        let is_end = |kind: &DamageKind| matches!(kind, DamageKind::EndLost);
        let plan = &mut report.plan;
        plan.end_was_lost = plan.before.damage.iter().any(|damage| is_end(&damage.kind));
        let may_lack_page = plan.end_was_lost || !plan.log.arenas.is_empty();
        let found = find_catalog(store, copies, may_lack_page)?;
        let FoundCatalog { catalog, was_lost, brought_back_count, sequence } = found;
        (plan.catalog_was_lost, plan.brought_back_count) = (was_lost, brought_back_count);
        report.brought_back_count = brought_back_count;
        plan.log.accepts_end |= was_lost;
        // If the catalog was lost, the blocks below a known root may be intact even if the page
        // that named the root is lost. So all roots are read again.
        let known_roots =
            if was_lost { BTreeSet::new() } else { roots.iter().map(|root| root.name).collect() };
        let recording = LossRecorder::begin(store, copies, &catalog, was_lost, roots);
        Ok(Self {
            store,
            copies,
            progress,
            is_all_named: copies.keeps() && plan.is_named(),
            is_changed: plan.log.takes_in_replaced || was_lost || brought_back_count > 0,
            report,
            catalog,
            sequence,
            recording,
            known_roots,
            wanted: BTreeSet::new(),
            is_all_back: true,
        })
    }

    /// Finds the blocks that are lost. If the damage names them all, no snapshot is walked. A plan
    /// always walks the snapshots, to show their harm.
    fn find_lost_blocks(&mut self) -> Result<(), VerifyError> {
        let (store, before) = (self.store, &mut self.report.plan.before);
        let kept = self.catalog.kept_snapshots();
        let snapshots = &*kept;
        if self.is_all_named {
            before.snapshot_count = snapshots.len() as u64;
            before.lost = blocks_without_copy(store, &before.damage)?;
            before.lost.extend(store.lost_blocks().into_iter().filter(|name| store.get(name).is_err()));
        } else {
            let walked = walk_snapshots(store, store, snapshots, &before.damage, self.progress)?;
            before.note_walk(snapshots, walked);
        }
        if self.copies.keeps() {
            store.remember_lost(&before.lost);
        }
        self.wanted = &before.lost | &self.recording.names();
        if !self.is_all_named && !self.copies.all().is_empty() {
            // This walk reads through the copies, so that it also finds losses below a pointer
            // block that was lost.
            let reached = walk_snapshots(store, self.copies, snapshots, &before.damage, self.progress)?;
            self.wanted.extend(reached.lost);
        }
        Ok(())
    }

    /// Reads the lost blocks from the copies. A block that no copy has stays lost, and is reported.
    fn fetch_blocks(&mut self) {
        for name in &self.wanted {
            self.is_all_back &= self.copies.get(name).is_ok();
        }
    }

    /// Adds to the recorded losses those that remain, and those that writing arenas anew causes.
    fn foresee_losses(&mut self) -> Result<(), RepairArchiveError> {
        self.recording.drop_readable()?;
        self.recording.foresee(&self.report.plan.log)?;
        self.recording.note_lost_roots(self.copies);
        if self.report.plan.end_was_lost {
            self.recording.note_lost_end();
        }
        self.recording.settle_places(self.copies.all(), self.copies);
        Ok(())
    }

    /// Saves the catalog with the losses, if that is needed, and makes all durable. Before a block
    /// that leads to the catalog is written elsewhere, the catalog must be complete and at the end
    /// of the log. A lost end alone does not demand this: with the root that it has, this log is
    /// still recognised as an older state of its copies.
    fn save_catalog(&mut self) -> Result<(), RepairArchiveError> {
        let plan = &self.report.plan;
        let has_changed = self.recording.set(&mut self.catalog)?;
        let is_due = plan.catalog_was_lost || plan.brought_back_count > 0 || !plan.log.arenas.is_empty();
        if has_changed || is_due || !lists_all(self.store, &self.catalog)? {
            self.catalog.write_again(self.store)?;
        }
        Ok(self.store.sync()?)
    }

    /// Records the barren blocks again, if one of these arenas may have the list of them.
    fn note_barren_blocks(&self, rewritten: &MendPlan) -> Result<(), RepairArchiveError> {
        if rewritten.arenas.is_empty() {
            return Ok(());
        }
        note_barren_again(self.store, self.copies, &self.catalog, self.progress)
    }

    /// Accepts a lost end, and writes anew the arenas that are still damaged.
    fn rewrite(&mut self, mender: Mender<'_>) -> Result<(), RepairError> {
        self.report.repaired = mender.rewrite(&self.report.plan.log)?;
        self.is_changed |= self.report.repaired.arena_count > 0;
        Ok(())
    }

    /// Adds the snapshots that only a rediscovered catalog names. Saves the catalog again if
    /// anything has changed.
    fn save_catalog_again(&mut self) -> Result<(), RepairArchiveError> {
        let found_again_count =
            add_found_again(self.store, &self.known_roots, &mut self.catalog, self.sequence)?;
        self.report.brought_back_count += found_again_count;
        self.is_changed |= found_again_count > 0;
        self.recording.drop_readable()?;
        if self.recording.set(&mut self.catalog)? || self.is_changed {
            // The page that recorded the new seals names no blocks, and a crash removes it. This
            // page stays, and keeps its ledger.
            self.catalog.write_again(self.store)?;
        }
        Ok(())
    }

    /// Checks the order of the arenas again, and writes anew those that it adds. If the end of the
    /// log was gone, only the ledger of the new pages tells how many arenas there were.
    fn rewrite_late(&mut self, mender: Mender<'_>) -> Result<(), RepairArchiveError> {
        if !self.is_changed && !self.report.plan.end_was_lost {
            return Ok(());
        }
        let late = MendPlan { accepts_end: false, ..MendPlan::new(&Checker::of(self.store).check_order()?) };
        if late.is_empty() {
            return Ok(());
        }
        self.recording.foresee(&late)?;
        if self.recording.set(&mut self.catalog)? {
            self.catalog.write_again(self.store)?;
        }
        self.note_barren_blocks(&late)?;
        self.report.repaired += mender.rewrite(&late)?;
        self.recording.drop_readable()?;
        self.recording.set(&mut self.catalog)?;
        self.catalog.write_again(self.store)?;
        self.report.late = late;
        Ok(())
    }

    /// Finds the harm that remains.
    fn find_harm_left(&mut self) -> Result<(), VerifyError> {
        let is_none_found_again = self.report.brought_back_count == self.report.plan.brought_back_count;
        let after = if self.is_all_named && self.is_all_back && is_none_found_again {
            WalkFindings::default()
        } else {
            walk_snapshots(self.store, self.store, &self.catalog.kept_snapshots(), &[], self.progress)?
        };
        self.store.remember_lost(&after.lost);
        self.report.harm_left = after.harm;
        Ok(())
    }

    fn into_report(mut self, supplied: SuppliedBlocks) -> RepairReport {
        self.report.fetched_block_count = supplied.stored_count;
        self.report.plan.fetches = supplied.by_copy;
        self.report.plan.losses = self.recording.into_unaccepted();
        self.report
    }
}
