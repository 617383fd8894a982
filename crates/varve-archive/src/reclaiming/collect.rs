//! Collects garbage: frees the space of blocks that no snapshot needs.
//!
//! ```text
//! without the lock   mark ─▶ measure ─▶ plan
//! with the lock      end undo, write the catalog, note barren blocks   (first batch)
//!                    mark the difference ─▶ rewrite a batch of arenas   (each batch)
//! ```
//!
//! Between batches other processes take snapshots. Their snapshots are marked under the lock before
//! anything is rewritten: a new snapshot may need blocks that nothing needed before.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use varve_block::{BlockName, GetError, has_kind, to_usize};
use varve_content::Progress;
use varve_log::{ArenaId, OpenLogError, ReadLogError};
use varve_store::{
    CompareMode, FindLeasesError, Intake, LeasedSnapshots, NotPermitted, Permission, ScoreAlgorithm, Store,
    held_leases, note_fingerprint,
};
use varve_upkeep::{
    ArenaMeter, ArenaObstacle, ArenaUse, BatchLimits, LiveBlocks, PricedTarget, ReclaimBatch, ReclaimBudget,
    ReclaimError, ReclaimPlan, ReclaimPrices, ReclaimedBatch, Reclaimer, RewrittenArena, TargetPrices,
};
use varve_world::{Timestamp, read_each};

use super::mark::mark;
use super::mark_error::MarkError;
use super::price_file::PriceFile;
use super::roots::{FindRootsError, ForeignRoots, LiveRoots, arenas_sealed_since, young_arenas};
use super::snapshot_walk::MarkReport;
use crate::archive::Archive;
use crate::catalog::catalog_root::SaveCatalogError;
use crate::catalog::snapshot_id::SnapshotId;
use crate::forgetting::expiry::{ExpireTrashError, ExpiryPlan};

const DAY: Duration = Duration::from_hours(24);
/// The number of arenas that are measured together.
const MEASURED_COUNT: usize = 64;
/// The memory for the list of dead blocks that lead to others is not bounded below this.
const BARREN_BYTES_LEAST: u64 = 16 << 20;
/// Arenas shorter than this part of a full one are merged.
const MERGED_PART: u64 = 8;

/// The settings of a collection.
#[derive(Debug, Clone)]
pub struct CollectOptions {
    /// The limits of the run. The list of young arenas, the prices, and the size below which arenas
    /// are merged, are filled in here.
    pub budget: ReclaimBudget,
    /// The bound on the memory for the set of live leaves.
    pub filter_bytes: u64,
    /// Arenas that were begun after this time stay as they are.
    pub young_since: Option<Timestamp>,
    /// The prices of the targets that have copies of the arenas.
    pub prices: PriceFile,
    /// The roots of archives that no snapshot names; `None` if nobody has said.
    pub foreign: Option<ForeignRoots>,
    /// True if the clock alone decides that undo has ended.
    pub trusts_clock: bool,
}

/// Space was not freed, or not all of it. No live block is lost.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    #[error("{0}")]
    NotPermitted(#[from] NotPermitted),
    /// Clients of Venti know roots that no catalog leads to.
    #[error("other programs may keep the scores of archives in this store, and no snapshot names them")]
    ForeignRoots,
    #[error("the snapshots of the store cannot all be found")]
    Roots(#[from] FindRootsError),
    #[error("what the snapshots need is not certain")]
    Mark(#[from] MarkError),
    #[error("cannot find out which snapshots are in use")]
    Leases(#[from] FindLeasesError),
    #[error("{0}")]
    List(#[from] OpenLogError),
    #[error("an arena cannot be measured")]
    Measure(#[from] ReadLogError),
    #[error("the system provides no random bytes")]
    Random(#[source] io::Error),
    #[error("the undo of forgotten snapshots cannot be ended")]
    Expire(#[from] ExpireTrashError),
    #[error("the catalog cannot be written at the end of the log")]
    Catalog(#[from] SaveCatalogError),
    #[error("it is not certain which of the lost blocks are readable again")]
    Losses(#[from] GetError),
    #[error("{0}")]
    Reclaim(#[from] ReclaimError),
    /// All of them have to be listed before the first arena is written anew.
    #[error(
        "more than {count} dead blocks lead to others: their list does not fit in {bytes} bytes of memory"
    )]
    Barren { count: usize, bytes: u64 },
}

has_kind!(CollectError:
    Self::NotPermitted(_) => NeedsFullKey,
);

impl CollectError {
    /// Returns true if the log could not be read as it should. Another process may have changed it
    /// meanwhile.
    fn is_doubt(&self) -> bool {
        match self {
            Self::Roots(_) | Self::Measure(_) | Self::List(_) => true,
            Self::Mark(error) => error.is_doubt(),
            _ => false,
        }
    }
}

/// A collection that was planned.
pub struct Collection {
    options: CollectOptions,
    live: LiveBlocks,
    barren: DeadStructure,
    /// The snapshots in the trash whose undo has ended, and those which are forgotten without undo.
    expired: BTreeSet<SnapshotId>,
    report: CollectionReport,
    /// The arenas that are not rewritten yet, in batches.
    left: Vec<ReclaimBatch>,
}

/// The blocks that lead to others and are dead, as far as the log was measured.
struct DeadStructure {
    /// Sorted.
    names: Vec<BlockName>,
    /// There may not be more of them.
    names_max: BarrenMax,
    /// The first arena that may have been written to since it was measured.
    next_arena: ArenaId,
    /// True if the log has a note of them all.
    is_noted: bool,
}

/// The findings of a plan.
#[derive(Debug, Clone)]
pub struct CollectionReport {
    pub plan: ReclaimPlan,
    /// The use of each arena, in the order of their numbers.
    pub uses: Vec<ArenaUse>,
    pub marked: MarkReport,
    /// The snapshots in the trash whose undo has ended, and those which are forgotten without undo.
    /// They are gone once the plan is begun.
    pub expired: Vec<SnapshotId>,
    /// The snapshots in the trash that are kept, each with the end of its undo.
    pub in_trash: Vec<(SnapshotId, Timestamp)>,
    /// The number of those that would be freed if the clock were trusted: nights of work are
    /// missing.
    pub lacking_nights: usize,
    /// The readers whose snapshots are in the trash and past their undo: nothing of it is freed.
    pub in_use_count: usize,
}

impl Collection {
    /// Marks what is live, measures the arenas and plans. Changes nothing and needs no lock.
    ///
    /// # Errors
    /// [`CollectError`]: it is not certain what is live.
    pub fn plan(
        archive: &Archive,
        options: CollectOptions,
        progress: &Progress,
    ) -> Result<Self, CollectError> {
        Self::plan_after_forgetting(archive, &BTreeSet::new(), options, progress)
    }

    /// Does the same for the state after the snapshots in `forgotten` were forgotten without undo.
    /// Forgetting them, before the plan is carried out, is left to the caller. If that is not done,
    /// carrying out the plan keeps all that they need.
    ///
    /// # Errors
    /// As for [`plan`](Self::plan).
    pub fn plan_after_forgetting(
        archive: &Archive,
        forgotten: &BTreeSet<SnapshotId>,
        options: CollectOptions,
        progress: &Progress,
    ) -> Result<Self, CollectError> {
        archive.store().role().require(Permission::Destroy)?;
        Self::find(archive, forgotten, options, progress)
    }

    /// Returns what a plan would find. A key that may read is enough.
    ///
    /// # Errors
    /// [`CollectError`]: it is not certain what is live.
    pub fn look(
        archive: &Archive,
        options: CollectOptions,
        progress: &Progress,
    ) -> Result<CollectionReport, CollectError> {
        archive.store().role().require(Permission::Read)?;
        Ok(Self::find(archive, &BTreeSet::new(), options, progress)?.report)
    }

    fn find(
        archive: &Archive,
        forgotten: &BTreeSet<SnapshotId>,
        options: CollectOptions,
        progress: &Progress,
    ) -> Result<Self, CollectError> {
        let block_count = archive.store().stats()?.block_count;
        let random = archive.store().world().random.as_ref();
        // A second look goes on with the set of the first one.
        let mut live =
            LiveBlocks::new(random, block_count, options.filter_bytes).map_err(CollectError::Random)?;
        let look = |archive: &Archive| Self::look_at(archive, forgotten, &options, &mut live, progress);
        let (report, expired, barren) = archive.with_second_look(CollectError::is_doubt, look)?;
        let left = report.plan.batches.clone();
        Ok(Self { options, live, barren, expired, report, left })
    }

    fn look_at(
        archive: &Archive,
        forgotten: &BTreeSet<SnapshotId>,
        options: &CollectOptions,
        live: &mut LiveBlocks,
        progress: &Progress,
    ) -> Result<(CollectionReport, BTreeSet<SnapshotId>, DeadStructure), CollectError> {
        let store = archive.store();
        let foreign = foreign_roots(store, options)?;
        let now = store.world().clock.now();
        let expiry = ExpiryPlan::new(archive.catalog(), now, options.trusts_clock);
        let mut expired: BTreeSet<_> = expiry.expired.iter().map(|trashed| trashed.snapshot.id).collect();
        expired.extend(forgotten);
        let in_use_count = in_use_count(store, &expired)?;
        if in_use_count > 0 {
            expired.clear();
        }
        let roots = LiveRoots::of(store, foreign, &expired)?;
        let marked = mark(store, &roots, live, progress)?;
        let names_max = BarrenMax::of(options);
        let (uses, names) = measure(store, live, &store.arenas()?, names_max, progress)?;
        let plan = plan_of(store, &uses, options)?;
        let next_arena = next_arena(&uses).unwrap_or(ArenaId(0));
        let barren = DeadStructure { names, names_max, next_arena, is_noted: false };
        let report = CollectionReport {
            plan,
            uses,
            marked,
            expired: expired.iter().copied().collect(),
            in_trash: expiry.left.iter().map(|trashed| (trashed.snapshot.id, trashed.undo_until)).collect(),
            lacking_nights: expiry.lacking_nights,
            in_use_count,
        };
        Ok((report, expired, barren))
    }

    /// Returns the findings.
    #[must_use]
    pub fn report(&self) -> &CollectionReport {
        &self.report
    }

    /// Returns true if no arena is left to rewrite.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.left.is_empty()
    }

    /// Rewrites the next batch, in a store that is open for writing. Arenas that this batch has no
    /// time for are left for the next one.
    ///
    /// # Errors
    /// [`CollectError`]; the arenas are as they were, or replaced.
    pub fn apply(
        &mut self,
        archive: &mut Archive,
        until: Timestamp,
        progress: &Progress,
    ) -> Result<ReclaimedBatch, CollectError> {
        archive.store().role().require(Permission::Destroy)?;
        if !self.barren.is_noted {
            self.begin(archive)?;
        }
        drop_readable_losses(archive)?;
        // A snapshot that was brought back meanwhile is live again.
        let foreign = foreign_roots(archive.store(), &self.options)?;
        let roots = LiveRoots::of(archive.store(), foreign, &BTreeSet::new())?;
        mark(archive.store(), &roots, &mut self.live, progress)?;
        let reclaimer = Reclaimer::of(archive.store())?;
        // A session that added no snapshot since the last batch may have stored pointer blocks over
        // blocks that are dead.
        self.barren.measure_rest(archive.store(), &self.live, progress)?;
        if !self.barren.is_noted {
            reclaimer.note_barren(&self.barren.fingerprints(&self.live))?;
            self.barren.is_noted = true;
        }
        let Some(batch) = self.left.first_mut() else { return Ok(ReclaimedBatch::default()) };
        let arenas: Vec<ArenaId> = batch
            .arenas
            .iter()
            .filter(|arena| is_as_planned(archive.store(), arena))
            .map(|arena| arena.arena)
            .collect();
        let limits = BatchLimits { written_bytes: self.options.budget.batch_bytes, until };
        let live = &self.live;
        let should_stop = || progress.is_cancelled();
        let is_live = |name: &BlockName| live.contains(name);
        let done = if batch.is_merge {
            reclaimer.merge(&arenas, &is_live, limits, &should_stop)?
        } else {
            reclaimer.replace(&arenas, &is_live, limits, &should_stop)?
        };
        let is_handled = |arena: &RewrittenArena| {
            !arenas.contains(&arena.arena)
                || done.replaced.iter().any(|replaced| replaced.arena == arena.arena)
                || done.failed.iter().any(|(failed, _)| *failed == arena.arena)
        };
        batch.arenas.retain(|arena| !is_handled(arena));
        if batch.arenas.is_empty() {
            self.left.remove(0);
        }
        Ok(done)
    }

    /// Ends the undo of the snapshots that the plan has found to be expired, and writes the catalog
    /// at the end of the log: no arena that is rewritten keeps a root of it. Other snapshots wait
    /// for the next plan, even if they have expired meanwhile: nobody has looked who uses them.
    fn begin(&self, archive: &mut Archive) -> Result<(), CollectError> {
        if in_use_count(archive.store(), &self.expired)? == 0 {
            let now = archive.store().world().clock.now();
            archive.expire_in_trash(now, self.options.trusts_clock, |id| self.expired.contains(id))?;
        }
        archive.write_root()?;
        Ok(())
    }
}

impl DeadStructure {
    /// Measures the arenas that were written to since the last time.
    fn measure_rest(
        &mut self,
        store: &Store,
        live: &LiveBlocks,
        progress: &Progress,
    ) -> Result<(), CollectError> {
        let rest: Vec<_> = store.arenas()?.into_iter().filter(|arena| *arena >= self.next_arena).collect();
        let (uses, more) = measure(store, live, &rest, self.names_max, progress)?;
        self.next_arena = next_arena(&uses).unwrap_or(self.next_arena);
        let known_count = self.names.len();
        let is_known = |names: &[BlockName], name: &BlockName| names.binary_search(name).is_ok();
        let more: Vec<_> = more.into_iter().filter(|name| !is_known(&self.names, name)).collect();
        self.names.extend(more);
        self.names_max.check(&self.names)?;
        self.names.sort_unstable();
        self.is_noted &= self.names.len() == known_count;
        Ok(())
    }

    /// Returns the fingerprints of the blocks, sorted. A snapshot that was added since a block was
    /// measured may lead to it again, and was marked. That block is barren no more.
    fn fingerprints(&self, live: &LiveBlocks) -> Vec<u64> {
        let barren = self.names.iter().filter(|name| !live.contains(name));
        let mut fingerprints: Vec<_> = barren.map(note_fingerprint).collect();
        fingerprints.sort_unstable();
        fingerprints.dedup();
        fingerprints
    }
}

/// The bound on the memory for the list of dead blocks that lead to others, in bytes.
#[derive(Debug, Clone, Copy)]
struct BarrenMax(u64);

impl BarrenMax {
    /// As much as for the filter.
    fn of(options: &CollectOptions) -> Self {
        Self(options.filter_bytes.max(BARREN_BYTES_LEAST))
    }

    fn check(self, names: &[BlockName]) -> Result<(), CollectError> {
        let count = to_usize(self.0) / size_of::<BlockName>();
        if names.len() > count { Err(CollectError::Barren { count, bytes: self.0 }) } else { Ok(()) }
    }
}

/// Removes the blocks that are readable again from the recorded losses. If such a block is freed,
/// it would count as lost again.
fn drop_readable_losses(archive: &mut Archive) -> Result<(), CollectError> {
    let mut losses = archive.losses();
    if losses.is_cut() {
        // A list that is written now would lack what could not be read of it.
        return Ok(());
    }
    losses.drop_readable(archive.store())?;
    let mut next = archive.catalog().clone();
    let is_changed = {
        let _reserve = archive.store().intake().map(Intake::use_reserve);
        next.set_losses(archive.store(), &losses)?
    };
    if is_changed {
        archive.write_catalog(next)?;
    }
    Ok(())
}

/// Returns the first arena of these that may still grow, or the one after the last; `None` if there
/// is no arena.
fn next_arena(uses: &[ArenaUse]) -> Option<ArenaId> {
    let growing = uses.iter().find(|usage| usage.obstacle == Some(ArenaObstacle::Unsealed));
    let growing = growing.map(|usage| usage.arena);
    growing.or_else(|| uses.last().map(|usage| ArenaId(usage.arena.0.saturating_add(1))))
}

/// Returns the roots that no catalog leads to. A store whose scores are those of Venti may have
/// some, so somebody has to say.
fn foreign_roots(store: &Store, options: &CollectOptions) -> Result<ForeignRoots, CollectError> {
    match &options.foreign {
        Some(foreign) => Ok(foreign.clone()),
        None if store.config().score == ScoreAlgorithm::Sha1 => Err(CollectError::ForeignRoots),
        None => Ok(ForeignRoots::None),
    }
}

/// Returns the number of running readers that use one of these snapshots.
fn in_use_count(store: &Store, snapshots: &BTreeSet<SnapshotId>) -> Result<usize, CollectError> {
    if snapshots.is_empty() {
        return Ok(0);
    }
    let uses = |leased: &LeasedSnapshots| match leased {
        LeasedSnapshots::All => true,
        LeasedSnapshots::Ids(ids) => snapshots.iter().any(|id| ids.contains(&id.0)),
    };
    Ok(held_leases(store.vault().storage())?.iter().filter(|lease| uses(&lease.snapshots)).count())
}

/// Measures arenas. Also returns the dead blocks in them that lead to others, sorted.
fn measure(
    store: &Store,
    live: &LiveBlocks,
    arenas: &[ArenaId],
    names_max: BarrenMax,
    progress: &Progress,
) -> Result<(Vec<ArenaUse>, Vec<BlockName>), CollectError> {
    let meter = ArenaMeter::new(store, live);
    let (mut uses, mut barren) = (Vec::new(), Vec::new());
    // Some arenas at a time, so that a cancellation does not wait for all.
    for ids in arenas.chunks(MEASURED_COUNT) {
        if progress.is_cancelled() {
            return Err(MarkError::Cancelled.into());
        }
        let workers = store.world().workers.as_ref();
        for measured in read_each(workers, ids, |id| meter.measure(*id)) {
            let measured = measured?;
            uses.push(measured.usage);
            barren.extend(measured.barren);
        }
        names_max.check(&barren)?;
    }
    barren.sort_unstable();
    barren.dedup();
    Ok((uses, barren))
}

fn plan_of(store: &Store, uses: &[ArenaUse], options: &CollectOptions) -> Result<ReclaimPlan, CollectError> {
    let young = match options.young_since {
        Some(since) => young_arenas(store, since)?,
        None => BTreeSet::new(),
    };
    let prices = prices_now(store, &options.prices)?;
    // Each target is sent what is written.
    let upload_price = options.budget.upload_price + prices.targets.len() as f64;
    let config = store.config();
    let budget = ReclaimBudget {
        young,
        prices,
        upload_price,
        merge_below: config.arena_map.arena_bytes() / MERGED_PART,
        can_move: config.compare == CompareMode::Hash,
        ..options.budget.clone()
    };
    Ok(ReclaimPlan::new(uses, &budget))
}

/// Finds the objects at each target that are younger than its minimum time.
fn prices_now(store: &Store, prices: &PriceFile) -> Result<ReclaimPrices, CollectError> {
    let now = store.world().clock.now();
    let priced = |prices: &TargetPrices| -> Result<_, CollectError> {
        let since = now.minus(DAY * prices.minimum_days);
        let within_minimum = match prices.minimum_days {
            0 => BTreeSet::new(),
            _ => arenas_sealed_since(store, since)?,
        };
        Ok(PricedTarget { prices: prices.clone(), within_minimum })
    };
    let targets = prices.targets.iter().map(priced).collect::<Result<_, _>>()?;
    Ok(ReclaimPrices { targets, horizon_days: prices.horizon_days })
}

/// Returns true if an arena has the generation that was measured.
fn is_as_planned(store: &Store, planned: &RewrittenArena) -> bool {
    store.vault().arena(planned.arena).is_ok_and(|arena| arena.header().generation == planned.generation)
}
