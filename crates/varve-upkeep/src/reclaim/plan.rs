//! The plan of a run that frees space: which arenas are written anew or merged, in which order, and
//! why the others are left alone. Pure: it can be printed, stored, and compared with what a run
//! did.

use std::collections::BTreeSet;
use std::time::Duration;

use varve_log::ArenaId;

use super::arena_use::{ArenaObstacle, ArenaUse, EMPTY_ARENA_BYTES};
use super::prices::ReclaimPrices;

/// The default of [`ReclaimBudget::batch_bytes`].
const BATCH_BYTES: u64 = 1 << 30;
/// The default of [`ReclaimBudget::merge_least`].
const MERGE_LEAST: usize = 16;
/// The most blocks in the arenas of a batch that are written anew. Their names are in memory, and
/// the index is changed for each of them while the batch holds the lock. Arenas have fewer as a
/// rule: only very small blocks, or those that compress to almost nothing, come to so many.
const REWRITTEN_BLOCKS_MAX: u64 = 1 << 20;
/// The bounds of a batch of merged arenas. Each becomes a file that is synced, and the names of all
/// copied blocks are in memory.
const MERGED_ARENAS_MAX: usize = 512;
const MERGED_BLOCKS_MAX: u64 = 1 << 18;
const MERGED_BYTES_MAX: u64 = 256 << 20;

/// The limits of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct ReclaimBudget {
    /// An arena is written anew if this share of it is dead, from 0 to 1.
    pub least_dead: f64,
    /// The most bytes that are written.
    pub max_written: Option<u64>,
    /// The most time that reading and writing take, at `bytes_per_second`.
    pub max_time: Option<Duration>,
    /// The expected rate at which bytes are read or written.
    pub bytes_per_second: f64,
    /// No more is freed than this, up to the next arena.
    pub free_goal: Option<u64>,
    /// The cost of uploading a byte to the replicas, compared with writing it here.
    pub upload_price: f64,
    /// The prices of the targets that have copies of the arenas.
    pub prices: ReclaimPrices,
    /// The most bytes that are written in one batch. A larger arena is a batch of its own.
    pub batch_bytes: u64,
    /// Arenas that are too young: nights that may still be forgotten are in them.
    pub young: BTreeSet<ArenaId>,
    /// Sealed arenas that are shorter than this are merged, however much of them is dead.
    pub merge_below: u64,
    /// Nothing is merged if there are fewer small arenas than this.
    pub merge_least: usize,
    /// False in a store that names blocks by their places: they stay in their arenas.
    pub can_move: bool,
}

impl Default for ReclaimBudget {
    /// All arenas of which a tenth is dead.
    fn default() -> Self {
        Self {
            least_dead: 0.1,
            max_written: None,
            max_time: None,
            bytes_per_second: 100e6,
            free_goal: None,
            upload_price: 0.0,
            prices: ReclaimPrices::default(),
            batch_bytes: BATCH_BYTES,
            young: BTreeSet::new(),
            merge_below: 0,
            merge_least: MERGE_LEAST,
            can_move: true,
        }
    }
}

/// The arenas that are written anew or merged, and those that are left alone. Each arena is in one
/// of the lists.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReclaimPlan {
    /// Each batch is committed by itself. The first batches free most for their cost. Those that
    /// merge arenas are the last ones.
    pub batches: Vec<ReclaimBatch>,
    /// The arenas that are left alone, in the order of their numbers.
    pub spared: Vec<SparedArena>,
    /// Small arenas that are not merged, because the store names blocks by their places. They are
    /// also in one of the other lists.
    pub immovable: Vec<ArenaId>,
    pub totals: ReclaimTotals,
}

/// Arenas that are written anew together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReclaimBatch {
    /// True if the live blocks of the arenas are copied to the end of the log. Otherwise each arena
    /// is written anew in its place.
    pub is_merge: bool,
    /// In the order of their numbers.
    pub arenas: Vec<RewrittenArena>,
    pub written_bytes: u64,
    pub freed_bytes: u64,
}

/// An arena that is written anew or merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RewrittenArena {
    pub arena: ArenaId,
    /// Its generation before.
    pub generation: u32,
    pub file_bytes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub freed_bytes: u64,
    pub block_count: u64,
    pub live_count: u64,
}

/// An arena that is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SparedArena {
    pub arena: ArenaId,
    pub dead_bytes: u64,
    pub reason: SparedReason,
}

/// The reason why an arena is left alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SparedReason {
    Obstacle(ArenaObstacle),
    Young,
    /// Too little of it is dead.
    MostlyLive,
    /// A target is paid for its objects for a minimum time that has not passed.
    MinimumDays,
    /// At the targets it costs more than it saves.
    WouldNotPay,
    /// The budget for written bytes is spent.
    MaxWritten,
    /// The time is spent.
    MaxTime,
    /// The arenas before it free enough.
    GoalReached,
}

/// The sums of a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ReclaimTotals {
    /// The arenas of the log.
    pub arena_count: u64,
    /// Their length.
    pub file_bytes: u64,
    /// The bytes that would be freed if all arenas were written anew. The bytes of arenas with an
    /// obstacle do not count.
    pub dead_bytes: u64,
    /// The arenas that are written anew in their places.
    pub rewritten_count: u64,
    /// The arenas that are merged.
    pub merged_count: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub freed_bytes: u64,
    /// The free space that the run needs at a time.
    pub largest_batch_bytes: u64,
    /// The estimated time of reading and writing.
    pub time: Duration,
}

impl ReclaimTotals {
    /// Returns the dead bytes that are left afterwards.
    #[must_use]
    pub fn left_bytes(&self) -> u64 {
        self.dead_bytes.saturating_sub(self.freed_bytes)
    }
}

impl ReclaimPlan {
    /// Chooses the arenas that free most for their cost, until the budget is spent. The order does
    /// not depend on the budget, so a larger budget never frees less.
    #[must_use]
    pub fn new(arenas: &[ArenaUse], budget: &ReclaimBudget) -> Self {
        let mut plan = Self::default();
        let small: Vec<_> = arenas.iter().filter(|arena| is_small(arena, budget)).collect();
        let is_worth = small.len() >= budget.merge_least.max(2);
        if is_worth && !budget.can_move {
            plan.immovable = small.iter().map(|arena| arena.arena).collect();
        }
        let merges = is_worth && budget.can_move;
        let (mut candidates, mut merged) = (Vec::new(), Vec::new());
        for arena in arenas {
            plan.totals.arena_count += 1;
            plan.totals.file_bytes += arena.file_bytes;
            plan.totals.dead_bytes += arena.dead_bytes();
            if merges && is_small(arena, budget) {
                merged.push(arena);
                continue;
            }
            match reason_against(arena, budget) {
                Some(reason) => plan.spare(arena, reason),
                None => candidates.push(arena),
            }
        }
        candidates.sort_by(|one, other| {
            let by_gain = gain(other, budget).total_cmp(&gain(one, budget));
            by_gain.then(one.arena.cmp(&other.arena))
        });
        let mut spent = None;
        let candidates = candidates.into_iter().map(|arena| (arena, false));
        for (arena, is_merge) in candidates.chain(merged.into_iter().map(|arena| (arena, true))) {
            // The first arena beyond the budget ends the plan: a smaller one after it frees less
            // for its cost.
            spent = spent.or_else(|| plan.reason_to_stop(arena, budget));
            match &spent {
                Some(reason) => plan.spare(arena, reason.clone()),
                None => plan.rewrite(arena, is_merge, budget),
            }
        }
        plan.finish();
        plan
    }

    /// Returns the arenas that are written anew in their places, batch by batch.
    pub fn rewritten(&self) -> impl Iterator<Item = &RewrittenArena> {
        self.batches.iter().filter(|batch| !batch.is_merge).flat_map(|batch| &batch.arenas)
    }

    /// Returns the arenas that are merged, batch by batch.
    pub fn merged(&self) -> impl Iterator<Item = &RewrittenArena> {
        self.batches.iter().filter(|batch| batch.is_merge).flat_map(|batch| &batch.arenas)
    }

    fn reason_to_stop(&self, next: &ArenaUse, budget: &ReclaimBudget) -> Option<SparedReason> {
        let ReclaimTotals { written_bytes, read_bytes, freed_bytes, .. } = self.totals;
        let written_bytes = written_bytes.saturating_add(next.kept_bytes);
        let moved_bytes = written_bytes.saturating_add(read_bytes).saturating_add(next.read_bytes);
        if budget.free_goal.is_some_and(|goal| freed_bytes >= goal) {
            Some(SparedReason::GoalReached)
        } else if budget.max_written.is_some_and(|most| written_bytes > most) {
            Some(SparedReason::MaxWritten)
        } else if budget.max_time.is_some_and(|most| time_of(moved_bytes, budget) > most) {
            Some(SparedReason::MaxTime)
        } else {
            None
        }
    }

    fn spare(&mut self, arena: &ArenaUse, reason: SparedReason) {
        self.spared.push(SparedArena { arena: arena.arena, dead_bytes: arena.dead_bytes(), reason });
    }

    fn rewrite(&mut self, arena: &ArenaUse, is_merge: bool, budget: &ReclaimBudget) {
        let rewritten = RewrittenArena {
            arena: arena.arena,
            generation: arena.generation,
            file_bytes: arena.file_bytes,
            read_bytes: arena.read_bytes,
            written_bytes: arena.kept_bytes,
            freed_bytes: arena.dead_bytes(),
            block_count: arena.block_count,
            live_count: arena.live_count,
        };
        let has_room =
            |batch: &&mut ReclaimBatch| batch.is_merge == is_merge && batch.has_room(&rewritten, budget);
        match self.batches.last_mut().filter(has_room) {
            Some(batch) => batch.push(rewritten),
            None => {
                let mut batch = ReclaimBatch { is_merge, ..ReclaimBatch::default() };
                batch.push(rewritten);
                self.batches.push(batch);
            }
        }
        let totals = &mut self.totals;
        if is_merge {
            totals.merged_count += 1;
        } else {
            totals.rewritten_count += 1;
        }
        totals.read_bytes += rewritten.read_bytes;
        totals.written_bytes += rewritten.written_bytes;
        totals.freed_bytes += rewritten.freed_bytes;
        totals.time = time_of(totals.read_bytes.saturating_add(totals.written_bytes), budget);
    }

    fn finish(&mut self) {
        self.spared.sort_by_key(|spared| spared.arena);
        for batch in &mut self.batches {
            batch.arenas.sort_by_key(|rewritten| rewritten.arena);
        }
        let largest = self.batches.iter().map(|batch| batch.written_bytes).max();
        self.totals.largest_batch_bytes = largest.unwrap_or(0);
    }
}

impl ReclaimBatch {
    fn has_room(&self, next: &RewrittenArena, budget: &ReclaimBudget) -> bool {
        let written_bytes = self.written_bytes.saturating_add(next.written_bytes);
        if !self.is_merge {
            let block_count: u64 = self.arenas.iter().map(|arena| arena.block_count).sum();
            return written_bytes <= budget.batch_bytes
                && block_count.saturating_add(next.block_count) <= REWRITTEN_BLOCKS_MAX;
        }
        let copied_count: u64 = self.arenas.iter().map(|arena| arena.live_count).sum();
        written_bytes <= budget.batch_bytes.min(MERGED_BYTES_MAX)
            && self.arenas.len() < MERGED_ARENAS_MAX
            && copied_count.saturating_add(next.live_count) <= MERGED_BLOCKS_MAX
    }

    fn push(&mut self, rewritten: RewrittenArena) {
        self.written_bytes += rewritten.written_bytes;
        self.freed_bytes += rewritten.freed_bytes;
        self.arenas.push(rewritten);
    }
}

fn reason_against(arena: &ArenaUse, budget: &ReclaimBudget) -> Option<SparedReason> {
    if let Some(obstacle) = &arena.obstacle {
        return Some(SparedReason::Obstacle(obstacle.clone()));
    }
    if budget.young.contains(&arena.arena) {
        return Some(SparedReason::Young);
    }
    let (dead, all) = (arena.dead_bytes() as f64, arena.file_bytes as f64);
    if arena.dead_bytes() == 0 || dead < budget.least_dead * all {
        return Some(SparedReason::MostlyLive);
    }
    if budget.prices.is_within_minimum(arena.arena) {
        return Some(SparedReason::MinimumDays);
    }
    (!budget.prices.pays(arena)).then_some(SparedReason::WouldNotPay)
}

/// Returns true if an arena is so small that others should have its blocks. An arena without live
/// blocks is written anew: it cannot become shorter.
fn is_small(arena: &ArenaUse, budget: &ReclaimBudget) -> bool {
    arena.obstacle.is_none()
        && !budget.young.contains(&arena.arena)
        && !budget.prices.is_within_minimum(arena.arena)
        && arena.file_bytes < budget.merge_below
        && arena.kept_bytes > EMPTY_ARENA_BYTES
}

/// Returns the bytes that an arena frees for each byte that it costs.
fn gain(arena: &ArenaUse, budget: &ReclaimBudget) -> f64 {
    let moved = arena.read_bytes.saturating_add(arena.kept_bytes) as f64;
    let uploaded = arena.kept_bytes as f64 * budget.upload_price.max(0.0);
    arena.dead_bytes() as f64 / (moved + uploaded).max(1.0)
}

fn time_of(bytes: u64, budget: &ReclaimBudget) -> Duration {
    let seconds = bytes as f64 / budget.bytes_per_second.max(1.0);
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::prices::{PricedTarget, TargetPrices};
    use super::*;

    const MIB: u64 = 1 << 20;

    fn arena(number: u64, file_bytes: u64, kept_bytes: u64) -> ArenaUse {
        ArenaUse {
            arena: ArenaId(number),
            generation: 0,
            file_bytes,
            block_count: 100,
            block_bytes: 2 * file_bytes,
            live_count: 50,
            live_bytes: 2 * kept_bytes,
            kept_bytes,
            read_bytes: kept_bytes.saturating_sub(1024),
            mixed_count: 0,
            dead_structure_count: 0,
            is_write_only: false,
            obstacle: None,
        }
    }

    fn numbers(plan: &ReclaimPlan) -> Vec<Vec<u64>> {
        let of_batch = |batch: &ReclaimBatch| batch.arenas.iter().map(|one| one.arena.0).collect();
        plan.batches.iter().map(of_batch).collect()
    }

    fn reasons(plan: &ReclaimPlan) -> Vec<(u64, SparedReason)> {
        plan.spared.iter().map(|spared| (spared.arena.0, spared.reason.clone())).collect()
    }

    #[test]
    fn the_arenas_that_free_most_for_their_cost_come_first() {
        let arenas = [
            arena(0, 64 * MIB, 60 * MIB),
            arena(1, 64 * MIB, 30 * MIB),
            arena(2, 64 * MIB, 1024),
            arena(3, 64 * MIB, 50 * MIB),
        ];
        let budget = ReclaimBudget { batch_bytes: 30 * MIB, ..ReclaimBudget::default() };
        let plan = ReclaimPlan::new(&arenas, &budget);
        assert_eq!(numbers(&plan), [vec![2], vec![1], vec![3]]);
        assert_eq!(reasons(&plan), [(0, SparedReason::MostlyLive)]);
        let totals = plan.totals;
        assert_eq!((totals.arena_count, totals.rewritten_count), (4, 3));
        assert_eq!(totals.dead_bytes, (4 + 34 + 64 + 14) * MIB - 1024);
        assert_eq!(totals.left_bytes(), 4 * MIB);
        assert_eq!(totals.written_bytes, 80 * MIB + 1024);
        assert_eq!(totals.largest_batch_bytes, 50 * MIB);
        assert_eq!(numbers(&ReclaimPlan::new(&arenas, &ReclaimBudget::default())), [[1, 2, 3]]);
    }

    #[test]
    fn a_batch_has_a_bounded_number_of_blocks() {
        let counts = [REWRITTEN_BLOCKS_MAX / 2, REWRITTEN_BLOCKS_MAX / 2, 1, 2 * REWRITTEN_BLOCKS_MAX, 1];
        let with_blocks =
            |(number, block_count)| ArenaUse { block_count, ..arena(number, 64 * MIB, 30 * MIB) };
        let arenas: Vec<_> = (0..).zip(counts).map(with_blocks).collect();
        let plan = ReclaimPlan::new(&arenas, &ReclaimBudget::default());
        assert_eq!(numbers(&plan), [vec![0, 1], vec![2], vec![3], vec![4]]);
    }

    #[test]
    fn a_plan_stops_where_the_budget_ends() {
        let arenas: Vec<_> = (0..4).map(|number| arena(number, 64 * MIB, (10 + number) * MIB)).collect();
        let of = |budget: ReclaimBudget| {
            let plan = ReclaimPlan::new(&arenas, &budget);
            let reasons: BTreeSet<_> = plan.spared.iter().map(|spared| spared.reason.clone()).collect();
            (plan.totals.rewritten_count, reasons.into_iter().next())
        };
        let budget = ReclaimBudget { max_written: Some(21 * MIB), ..ReclaimBudget::default() };
        assert_eq!(of(budget.clone()), (2, Some(SparedReason::MaxWritten)));
        assert_eq!(of(ReclaimBudget { max_written: Some(0), ..budget }), (0, Some(SparedReason::MaxWritten)));
        let time = ReclaimBudget {
            max_time: Some(Duration::from_secs(42)),
            bytes_per_second: 1_048_576.0,
            ..ReclaimBudget::default()
        };
        assert_eq!(of(time), (2, Some(SparedReason::MaxTime)));
        let goal = ReclaimBudget { free_goal: Some(60 * MIB), ..ReclaimBudget::default() };
        assert_eq!(of(goal.clone()), (2, Some(SparedReason::GoalReached)));
        assert_eq!(of(ReclaimBudget { free_goal: Some(0), ..goal }), (0, Some(SparedReason::GoalReached)));
        assert_eq!(of(ReclaimBudget::default()), (4, None));
    }

    #[test]
    fn each_obstacle_is_named() {
        let mut arenas: Vec<_> = (0..5).map(|number| arena(number, 10 * MIB, MIB)).collect();
        let obstacles = [
            ArenaObstacle::Unsealed,
            ArenaObstacle::Damaged,
            ArenaObstacle::Unreadable { reason: "a page is damaged".into() },
        ];
        for (arena, obstacle) in arenas.iter_mut().zip(&obstacles) {
            arena.obstacle = Some(obstacle.clone());
            arena.is_write_only = true;
        }
        arenas[4].is_write_only = true;
        let budget = ReclaimBudget {
            young: BTreeSet::from([ArenaId(0), ArenaId(3)]),
            merge_below: 16 * MIB,
            merge_least: 1,
            ..ReclaimBudget::default()
        };
        let plan = ReclaimPlan::new(&arenas, &budget);
        assert_eq!(numbers(&plan), [[4]]);
        assert!(!plan.batches[0].is_merge, "one arena alone is not merged");
        let [one, two, three] = obstacles.map(SparedReason::Obstacle);
        assert_eq!(reasons(&plan), [(0, one), (1, two), (2, three), (3, SparedReason::Young)]);
    }

    #[test]
    fn small_arenas_are_merged_if_there_are_enough() {
        let mut arenas: Vec<_> = (0..20).map(|number| arena(number, MIB, MIB - 2048)).collect();
        arenas.push(arena(20, 64 * MIB, 30 * MIB));
        // Nothing in it is live: it cannot become shorter than it would be if it were merged.
        arenas.push(arena(21, MIB, EMPTY_ARENA_BYTES));
        let budget = ReclaimBudget { merge_below: 8 * MIB, ..ReclaimBudget::default() };
        let plan = ReclaimPlan::new(&arenas, &budget);
        assert_eq!(plan.batches.iter().map(|batch| batch.is_merge).collect::<Vec<_>>(), [false, true]);
        assert_eq!(plan.rewritten().map(|one| one.arena.0).collect::<Vec<_>>(), [20, 21]);
        assert_eq!(plan.merged().map(|one| one.arena.0).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
        assert_eq!((plan.totals.rewritten_count, plan.totals.merged_count), (2, 20));
        assert_eq!(plan.totals.written_bytes, 30 * MIB + EMPTY_ARENA_BYTES + 20 * (MIB - 2048));
        assert!(plan.spared.is_empty() && plan.immovable.is_empty());

        let few = ReclaimPlan::new(&arenas[10..], &budget);
        assert_eq!((few.totals.merged_count, few.spared.len()), (0, 10));
        // The budgets hold for both.
        let narrow = ReclaimBudget { max_written: Some(35 * MIB), ..budget.clone() };
        let plan = ReclaimPlan::new(&arenas, &narrow);
        assert_eq!((plan.totals.rewritten_count, plan.totals.merged_count), (2, 5));
        assert!(plan.spared.iter().all(|spared| spared.reason == SparedReason::MaxWritten));
        let batched = ReclaimPlan::new(&arenas, &ReclaimBudget { batch_bytes: 5 * MIB, ..budget.clone() });
        assert_eq!(batched.batches.iter().filter(|batch| batch.is_merge).count(), 4);

        let by_value = ReclaimBudget { can_move: false, ..budget };
        let plan = ReclaimPlan::new(&arenas, &by_value);
        assert_eq!((plan.totals.merged_count, plan.immovable.len(), plan.spared.len()), (0, 20, 20));
    }

    #[test]
    fn the_cost_of_uploads_changes_the_order() {
        // The second one frees a little more for what is read and written, and uploads more.
        let mut arenas = [arena(0, 100 * MIB, 40 * MIB), arena(1, 150 * MIB, 60 * MIB)];
        arenas[1].read_bytes = 50 * MIB;
        let first = |price| {
            let budget = ReclaimBudget {
                upload_price: price,
                max_written: Some(60 * MIB),
                ..ReclaimBudget::default()
            };
            numbers(&ReclaimPlan::new(&arenas, &budget))
        };
        assert_eq!(first(0.0), [[1]]);
        arenas[1].kept_bytes += 8 * MIB;
        arenas[1].file_bytes += 8 * MIB;
        arenas[1].read_bytes -= 12 * MIB;
        let first = |price| {
            let budget = ReclaimBudget { upload_price: price, batch_bytes: 1, ..ReclaimBudget::default() };
            numbers(&ReclaimPlan::new(&arenas, &budget))[0][0]
        };
        assert_eq!((first(0.0), first(100.0)), (1, 0));
    }

    fn priced(prices: TargetPrices, within_minimum: &[u64]) -> ReclaimBudget {
        let within_minimum = within_minimum.iter().copied().map(ArenaId).collect();
        let targets = vec![PricedTarget { prices, within_minimum }];
        ReclaimBudget { prices: ReclaimPrices { targets, horizon_days: 360 }, ..ReclaimBudget::default() }
    }

    #[test]
    fn an_arena_is_written_anew_if_it_pays_at_the_target() {
        // 1 GB, of which a fifth is dead: for a year that costs 2.40 at 1.00 for a GB and a month.
        let arenas = [arena(0, 1_000_000_000, 800_000_000)];
        let rewrites = |prices: TargetPrices| {
            let plan = ReclaimPlan::new(&arenas, &priced(prices, &[]));
            assert!(plan.spared.iter().all(|spared| spared.reason == SparedReason::WouldNotPay));
            plan.totals.rewritten_count == 1
        };
        let storage = TargetPrices { storage_gb_month: 1.0, ..TargetPrices::default() };
        assert!(rewrites(storage.clone()));
        // 48 objects and one for the seal are uploaded and read back.
        let put = |put_1000| TargetPrices { put_1000, ..storage.clone() };
        assert!(rewrites(put(48.9)) && !rewrites(put(49.0)));
        let get = |get_1000| TargetPrices { get_1000, ..storage.clone() };
        assert!(rewrites(get(48.9)) && !rewrites(get(49.0)));
        let read = |read_gb| TargetPrices { read_gb, ..storage.clone() };
        assert!(rewrites(read(2.99)) && !rewrites(read(3.01)));
        // Storage for nothing: nothing is saved.
        assert!(!rewrites(TargetPrices::default()));
    }

    #[test]
    fn what_a_second_target_saves_counts_as_well() {
        let arenas = [arena(0, 1_000_000_000, 800_000_000)];
        let mut budget =
            priced(TargetPrices { read_gb: 3.5, storage_gb_month: 1.0, ..TargetPrices::default() }, &[]);
        assert_eq!(reasons(&ReclaimPlan::new(&arenas, &budget)), [(0, SparedReason::WouldNotPay)]);
        let cheap = TargetPrices { storage_gb_month: 1.0, ..TargetPrices::default() };
        budget.prices.targets.push(PricedTarget { prices: cheap, ..PricedTarget::default() });
        assert_eq!(numbers(&ReclaimPlan::new(&arenas, &budget)), [[0]]);
    }

    #[test]
    fn objects_stay_for_their_minimum_time() {
        let arenas = [arena(0, 64 * MIB, MIB), arena(1, 64 * MIB, 63 * MIB), arena(2, 64 * MIB, MIB)];
        let prices = TargetPrices { storage_gb_month: 1.0, ..TargetPrices::default() };
        let plan = ReclaimPlan::new(&arenas, &priced(prices, &[0, 1]));
        assert_eq!(reasons(&plan), [(0, SparedReason::MinimumDays), (1, SparedReason::MostlyLive)]);
        assert_eq!(numbers(&plan), [[2]]);
    }

    fn any_arenas() -> impl Strategy<Value = Vec<ArenaUse>> {
        let obstacle = prop_oneof![
            4 => Just(None),
            1 => Just(Some(ArenaObstacle::Unsealed)),
            1 => Just(Some(ArenaObstacle::Damaged)),
        ];
        let one = (0..200 * MIB, 0.0..1.2_f64, obstacle, any::<bool>());
        prop::collection::vec(one, 0..40).prop_map(|rows| {
            let arenas = (0_u64..).zip(rows).map(|(number, (bytes, kept, obstacle, is_write_only))| {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
                let kept_bytes = (bytes as f64 * kept) as u64;
                ArenaUse { obstacle, is_write_only, ..arena(number, bytes, kept_bytes) }
            });
            arenas.collect()
        })
    }

    fn any_budget() -> impl Strategy<Value = ReclaimBudget> {
        let limit = || prop::option::of(0..3000 * MIB);
        let numbers = prop::collection::btree_set(0_u64..40, 0..5);
        let merge = (0..60 * MIB, 0_usize..12, any::<bool>());
        (0.0..1.0_f64, limit(), limit(), limit(), 1..400 * MIB, numbers, merge).prop_map(
            |(least_dead, written, time, goal, batch_bytes, young, (merge_below, merge_least, can_move))| {
                ReclaimBudget {
                    merge_below,
                    merge_least,
                    can_move,
                    least_dead,
                    max_written: written,
                    max_time: time.map(|bytes| Duration::from_millis(bytes / 100_000)),
                    free_goal: goal,
                    batch_bytes,
                    young: young.into_iter().map(ArenaId).collect(),
                    ..ReclaimBudget::default()
                }
            },
        )
    }

    fn any_prices() -> impl Strategy<Value = TargetPrices> {
        (0.0..2.0_f64, 0.0..20.0_f64, 0.0..20.0_f64, 0.0..2.0_f64).prop_map(|(storage, put, get, read)| {
            TargetPrices {
                storage_gb_month: storage,
                put_1000: put,
                get_1000: get,
                read_gb: read,
                ..TargetPrices::default()
            }
        })
    }

    proptest! {
        #[test]
        fn dearer_requests_never_write_more(
            arenas in any_arenas(),
            prices in any_prices(),
            dearer in any_prices(),
            within in prop::collection::btree_set(0_u64..40, 0..9),
            more in prop::collection::btree_set(0_u64..40, 0..9),
        ) {
            let rewritten = |prices: &TargetPrices, within: &BTreeSet<u64>| -> BTreeSet<ArenaId> {
                let within: Vec<u64> = within.iter().copied().collect();
                let plan = ReclaimPlan::new(&arenas, &priced(prices.clone(), &within));
                plan.rewritten().map(|one| one.arena).collect()
            };
            let all: BTreeSet<_> = ReclaimPlan::new(&arenas, &ReclaimBudget::default())
                .rewritten()
                .map(|one| one.arena)
                .collect();
            let dear = TargetPrices {
                put_1000: prices.put_1000 + dearer.put_1000,
                get_1000: prices.get_1000 + dearer.get_1000,
                read_gb: prices.read_gb + dearer.read_gb,
                ..prices.clone()
            };
            let some = rewritten(&prices, &within);
            prop_assert!(some.is_subset(&all));
            prop_assert!(rewritten(&dear, &within).is_subset(&some));
            prop_assert!(rewritten(&prices, &(&within | &more)).is_subset(&some));
            // Dear storage makes it pay.
            let storage = TargetPrices {
                storage_gb_month: prices.storage_gb_month + dearer.storage_gb_month,
                ..prices.clone()
            };
            prop_assert!(some.is_subset(&rewritten(&storage, &within)));
        }

        #[test]
        fn each_arena_is_in_one_list_and_the_budget_is_kept(arenas in any_arenas(), budget in any_budget()) {
            let plan = ReclaimPlan::new(&arenas, &budget);
            let mut all: Vec<_> = plan.rewritten().chain(plan.merged()).map(|one| one.arena).collect();
            all.extend(plan.spared.iter().map(|spared| spared.arena));
            all.sort_unstable();
            prop_assert_eq!(all, arenas.iter().map(|arena| arena.arena).collect::<Vec<_>>());
            let totals = plan.totals;
            prop_assert!(budget.max_written.is_none_or(|most| totals.written_bytes <= most));
            prop_assert!(budget.max_time.is_none_or(|most| totals.time <= most));
            let freed: u64 = plan.rewritten().chain(plan.merged()).map(|one| one.freed_bytes).sum();
            prop_assert_eq!(freed, totals.freed_bytes);
            prop_assert_eq!(freed, plan.batches.iter().map(|batch| batch.freed_bytes).sum::<u64>());
            // Without the last arena the goal was not reached yet.
            let all = plan.rewritten().chain(plan.merged());
            let largest = all.map(|one| one.freed_bytes).max().unwrap_or(0);
            prop_assert!(budget.free_goal.is_none_or(|goal| freed < goal.saturating_add(largest.max(1))));
            for batch in &plan.batches {
                prop_assert!(!batch.arenas.is_empty());
                prop_assert!(batch.arenas.len() == 1 || batch.written_bytes <= budget.batch_bytes);
            }
            for one in plan.merged() {
                let arena = arenas.iter().find(|arena| arena.arena == one.arena).unwrap();
                prop_assert!(arena.obstacle.is_none() && !budget.young.contains(&one.arena));
                prop_assert!(budget.can_move && arena.file_bytes < budget.merge_below);
            }
            for one in plan.rewritten() {
                let arena = arenas.iter().find(|arena| arena.arena == one.arena).unwrap();
                prop_assert!(arena.obstacle.is_none() && !budget.young.contains(&one.arena));
                prop_assert!(one.freed_bytes > 0);
            }
        }

        #[test]
        fn more_budget_never_frees_less(
            arenas in any_arenas(),
            budget in any_budget(),
            more in (0..500 * MIB, 0_u64..5000, 0..500 * MIB),
        ) {
            let larger = ReclaimBudget {
                max_written: budget.max_written.map(|bytes| bytes + more.0),
                max_time: budget.max_time.map(|time| time + Duration::from_millis(more.1)),
                free_goal: budget.free_goal.map(|bytes| bytes + more.2),
                ..budget.clone()
            };
            let (plan, larger) = (ReclaimPlan::new(&arenas, &budget), ReclaimPlan::new(&arenas, &larger));
            prop_assert!(larger.totals.freed_bytes >= plan.totals.freed_bytes);
            let unlimited = ReclaimBudget { max_written: None, max_time: None, free_goal: None, ..budget };
            let unlimited = ReclaimPlan::new(&arenas, &unlimited);
            prop_assert!(unlimited.totals.freed_bytes >= plan.totals.freed_bytes);
        }
    }
}
