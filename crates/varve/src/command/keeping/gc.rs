//! `varve gc`

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_archive::{
    Archive, CollectError, CollectOptions, Collection, CollectionReport, ForeignRoots, MarkError, PriceFile,
    SnapshotId,
};
use varve_block::{Score, with_causes};
use varve_content::Progress;
use varve_content::vac::VacLine;
use varve_session::{UsageError, WithHint};
use varve_store::{IndexKind, Store};
use varve_upkeep::{
    ArenaObstacle, ReclaimBudget, ReclaimedArena, ReclaimedBatch, RewrittenArena, SparedReason,
};
use varve_world::{Clock, RealClock};

use crate::arguments::{CollectArgs, GcArgs};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::signals::cancellable_progress;
use crate::{moment, say, show};

/// No arena is begun once a batch has kept other writers waiting for this long. The commit, and the
/// arenas that are being written then, take the rest of ten seconds.
const BATCH_TIME: Duration = Duration::from_secs(8);

/// The results of all batches.
#[derive(Default)]
struct Done {
    batches: Vec<DoneBatch>,
    failed_count: usize,
    is_disk_full: bool,
    is_stopped: bool,
}

/// The result of one batch.
struct DoneBatch {
    replaced: Vec<ReclaimedArena>,
    copied_bytes: u64,
    /// The time for which other writers had to wait.
    locked: Duration,
}

impl DoneBatch {
    fn written_bytes(&self) -> u64 {
        self.replaced.iter().map(|arena| arena.new_bytes).sum::<u64>() + self.copied_bytes
    }

    fn freed_bytes(&self) -> u64 {
        let old_bytes: u64 = self.replaced.iter().map(|arena| arena.old_bytes).sum();
        old_bytes.saturating_sub(self.written_bytes())
    }
}

pub fn run(invocation: &Invocation, args: &GcArgs) -> Result<CommandOutcome> {
    let progress = cancellable_progress()?;
    let archive = invocation.session.read()?;
    let mut collection = plan(invocation, args, &archive, &BTreeSet::new(), &progress)?;
    drop(archive);
    print_plan(invocation, args, collection.report());
    if args.dry_run {
        return Ok(CommandOutcome::Done);
    }
    carry_out(invocation, args, &mut collection, &progress)
}

/// Plans a collection. The snapshots in `forgotten` are those which are forgotten without undo
/// before the plan is carried out.
pub(super) fn plan(
    invocation: &Invocation,
    args: &GcArgs,
    archive: &Archive,
    forgotten: &BTreeSet<SnapshotId>,
    progress: &Arc<Progress>,
) -> Result<Collection> {
    let options = options(args, archive.store())?;
    let shown = ShownProgress::start("finding live blocks", progress, invocation.quiet || invocation.json);
    let planned = Collection::plan_after_forgetting(archive, forgotten, options, progress);
    drop(shown);
    planned.with_hint(hint_of)
}

/// Carries out a plan, and prints what was done.
pub(super) fn carry_out(
    invocation: &Invocation,
    args: &GcArgs,
    collection: &mut Collection,
    progress: &Arc<Progress>,
) -> Result<CommandOutcome> {
    if collection.is_done() && collection.report().expired.is_empty() {
        return Ok(CommandOutcome::Done);
    }
    let done = apply(invocation, args, collection, progress)?;
    print_done(invocation, &done);
    if done.is_disk_full {
        bail!("the disk is full: some arenas were not written anew; the next run continues");
    }
    if done.is_stopped {
        bail!("interrupted: what was done counts, and the next run continues");
    }
    Ok(if done.failed_count == 0 { CommandOutcome::Done } else { CommandOutcome::Gaps })
}

fn options(args: &GcArgs, store: &Store) -> Result<CollectOptions> {
    let now = store.world().clock.now();
    let before = |age| now.minus(age);
    let limits = &args.collect;
    Ok(CollectOptions {
        budget: ReclaimBudget {
            least_dead: limits.least_dead,
            max_written: limits.max_written,
            free_goal: limits.free,
            ..ReclaimBudget::default()
        },
        filter_bytes: limits.memory,
        young_since: limits.min_age.map(before),
        prices: match limits.ignore_prices {
            true => PriceFile::default(),
            false => PriceFile::read(store.vault().storage())?,
        },
        foreign: foreign_roots(limits)?,
        trusts_clock: args.trust_clock,
    })
}

fn foreign_roots(args: &CollectArgs) -> Result<Option<ForeignRoots>> {
    if args.keep_all_roots {
        return Ok(Some(ForeignRoots::All));
    }
    if args.no_foreign_roots {
        return Ok(Some(ForeignRoots::None));
    }
    if args.keep_roots.is_empty() {
        return Ok(None);
    }
    let scores: Result<Vec<Vec<Score>>> = args.keep_roots.iter().map(|file| scores_in(file)).collect();
    Ok(Some(ForeignRoots::Named(scores?.concat())))
}

/// Reads the scores in a file: that of a `.vac` file, or one a line.
fn scores_in(file: &Path) -> Result<Vec<Score>> {
    let name = file.display();
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {name}"))?;
    if let Ok(line) = VacLine::of_file(&bytes) {
        return Ok(vec![line.score]);
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let score = |line: &str| {
        let digits = line.rsplit(':').next().unwrap_or(line);
        Score::from_hex(digits).map_err(|_| UsageError(format!("{name}: {line:?} is not a score")).into())
    };
    let scores: Vec<Score> = lines.map(score).collect::<Result<_>>()?;
    if scores.is_empty() {
        bail!(UsageError(format!(
            "{name} has no score: with --no-foreign-roots no archive of another program is kept"
        )));
    }
    Ok(scores)
}

fn hint_of(error: &CollectError) -> Option<&'static str> {
    match error {
        CollectError::ForeignRoots => Some(
            "name their scores with --keep-roots FILE, keep all with --keep-all-roots, or say --no-foreign-roots if there are none",
        ),
        CollectError::Barren { .. } | CollectError::Mark(MarkError::Memory { .. }) => {
            Some("--memory allows more")
        }
        CollectError::Roots(_) | CollectError::Mark(_) => Some(
            "nothing was freed: `varve verify` shows the damage; `varve repair` mends it, or forget the snapshot that it names",
        ),
        _ => None,
    }
}

/// Carries out the plan, batch by batch. The store is opened for each: other writers get their turn
/// in between.
fn apply(
    invocation: &Invocation,
    args: &GcArgs,
    collection: &mut Collection,
    progress: &Arc<Progress>,
) -> Result<Done> {
    let shown = ShownProgress::start("rewriting arenas", progress, invocation.quiet || invocation.json);
    let (mut done, mut end) = (Done::default(), None);
    let has_disk_index = loop {
        let mut archive = invocation.session.write()?;
        let clock = Arc::clone(&archive.store().world().clock);
        let has_disk_index = archive.store().config().index == IndexKind::Disk;
        let since = archive.store().locked_since().unwrap_or_else(|| clock.now());
        let end = *end.get_or_insert_with(|| args.collect.max_time.map(|time| since.plus(time)));
        if end.is_some_and(|end| clock.now() >= end) {
            archive.close()?;
            break has_disk_index;
        }
        let batch = collection.apply(&mut archive, since.plus(BATCH_TIME), progress).with_hint(hint_of)?;
        archive.close()?;
        let locked = clock.now().since(since);
        let is_last = !note_batch(&mut done, batch, locked) || collection.is_done();
        if is_last {
            break has_disk_index;
        }
    };
    drop(shown);
    let has_replaced = done.batches.iter().any(|batch| !batch.replaced.is_empty());
    if has_disk_index && has_replaced && !done.is_stopped && !done.is_disk_full {
        // The index was removed when the first arena was replaced. This makes it anew, and saves
        // it; otherwise whoever opens the store next would have to wait for it.
        invocation.session.write()?.close()?;
    }
    Ok(done)
}

/// Adds a batch to the sums. Returns false if no further batch can be done.
fn note_batch(done: &mut Done, batch: ReclaimedBatch, locked: Duration) -> bool {
    for (arena, error) in &batch.failed {
        warning!("arena {arena} stays as it is: {}", with_causes(error));
    }
    done.failed_count += batch.failed.len();
    let has_freed = !batch.replaced.is_empty();
    done.batches.push(DoneBatch { replaced: batch.replaced, copied_bytes: batch.copied_bytes, locked });
    done.is_stopped |= batch.is_stopped;
    done.is_disk_full = batch.is_disk_full && !has_freed;
    !batch.is_stopped && !done.is_disk_full
}

pub(super) fn print_plan(invocation: &Invocation, args: &GcArgs, report: &CollectionReport) {
    let totals = &report.plan.totals;
    if invocation.json {
        return say::record("gc_plan", plan_as_json(args, report));
    }
    if invocation.quiet && !args.dry_run {
        return;
    }
    let (snapshots, arenas) =
        (show::count(report.marked.snapshot_count, "snapshot"), show::count(totals.arena_count, "arena"));
    let (dead, all) = (show::bytes(totals.dead_bytes), show::bytes(totals.file_bytes));
    let need = if report.marked.snapshot_count == 1 { "needs" } else { "need" };
    say!("{snapshots} {need} all but {dead} of {all} in {arenas}");
    if !report.expired.is_empty() {
        let count = show::count(report.expired.len(), "forgotten snapshot");
        let will = if args.dry_run { "would" } else { "will" };
        say!("{count} {will} be gone for ever: there is no undo, or it has ended");
    }
    if !report.in_trash.is_empty() {
        let count = show::count(report.in_trash.len(), "forgotten snapshot");
        let now = RealClock.now();
        let first = report.in_trash.iter().map(|(_, until)| *until).filter(|until| *until > now).min();
        let until = first.map(|first| format!(", the first until {}", moment::show(first)));
        say!("kept in the trash: {count}{}", until.unwrap_or_default());
    }
    if report.lacking_nights > 0 {
        say!(
            "by the clock the undo of {} has ended, but too few nights of work have passed: --trust-clock relies on the clock",
            show::count(report.lacking_nights, "forgotten snapshot")
        );
    }
    if report.in_use_count > 0 {
        say!(
            "forgotten snapshots are in use by {}: nothing of them is freed",
            show::count(report.in_use_count, "reader")
        );
    }
    print_rewritten(args, report);
    for (reason, (count, dead_bytes)) in spared(report) {
        say!("leaving {} with {} dead: {reason}", show::count(count, "arena"), show::bytes(dead_bytes));
    }
}

fn print_rewritten(args: &GcArgs, report: &CollectionReport) {
    let plan = &report.plan;
    let sums = |arenas: &mut dyn Iterator<Item = &RewrittenArena>| {
        arenas.fold((0, 0), |(freed, written), arena| {
            (freed + arena.freed_bytes, written + arena.written_bytes)
        })
    };
    if plan.totals.rewritten_count > 0 {
        let verb = if args.dry_run { "would write anew" } else { "writing anew" };
        let count = show::count(plan.totals.rewritten_count, "arena");
        let (freed, written) = sums(&mut plan.rewritten());
        say!("{verb} {count}: frees {}, writes {}", show::bytes(freed), show::bytes(written));
    } else {
        say!("no arena is worth writing anew");
    }
    if plan.totals.merged_count > 0 {
        let verb = if args.dry_run { "would merge" } else { "merging" };
        let count = show::count(plan.totals.merged_count, "small arena");
        let (freed, written) = sums(&mut plan.merged());
        say!("{verb} {count}: frees {}, writes {}", show::bytes(freed), show::bytes(written));
    }
    if !plan.immovable.is_empty() {
        say!(
            "not merging {}: a store that compares by value names blocks by their places",
            show::count(plan.immovable.len(), "small arena")
        );
    }
}

/// Sums up the arenas that are left alone, by reason.
fn spared(report: &CollectionReport) -> BTreeMap<&'static str, (u64, u64)> {
    let mut by_reason: BTreeMap<&'static str, (u64, u64)> = BTreeMap::new();
    for spared in &report.plan.spared {
        let sums = by_reason.entry(reason(&spared.reason)).or_default();
        sums.0 += 1;
        sums.1 += spared.dead_bytes;
    }
    by_reason
}

fn reason(reason: &SparedReason) -> &'static str {
    match reason {
        SparedReason::Obstacle(ArenaObstacle::Unsealed) => "still growing",
        SparedReason::Obstacle(ArenaObstacle::Damaged | ArenaObstacle::Unreadable { .. }) => "damaged",
        SparedReason::Young => "younger than --min-age",
        SparedReason::MostlyLive => "less dead than --least-dead",
        SparedReason::MinimumDays => "a target is paid for its objects for a minimum time anyway",
        SparedReason::WouldNotPay => "would not pay at the targets",
        SparedReason::MaxWritten => "beyond --max-written",
        SparedReason::MaxTime => "beyond --max-time",
        SparedReason::GoalReached => "beyond --free",
    }
}

fn plan_as_json(args: &GcArgs, report: &CollectionReport) -> serde_json::Value {
    let totals = &report.plan.totals;
    let row = |arena: &RewrittenArena| json!({ "arena": arena.arena.0, "bytes": arena.file_bytes, "freed_bytes": arena.freed_bytes, "written_bytes": arena.written_bytes });
    let spared = report.plan.spared.iter().map(|arena| {
        json!({ "arena": arena.arena.0, "dead_bytes": arena.dead_bytes, "reason": reason(&arena.reason) })
    });
    json!({
        "dry_run": args.dry_run,
        "snapshots": report.marked.snapshot_count,
        "arenas": totals.arena_count,
        "bytes": totals.file_bytes,
        "dead_bytes": totals.dead_bytes,
        "freed_bytes": totals.freed_bytes,
        "written_bytes": totals.written_bytes,
        "gone": report.expired.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "in_trash": report.in_trash.len(),
        "rewritten": report.plan.rewritten().map(row).collect::<Vec<_>>(),
        "merged": report.plan.merged().map(row).collect::<Vec<_>>(),
        "immovable": report.plan.immovable.len(),
        "left": spared.collect::<Vec<_>>(),
    })
}

fn print_done(invocation: &Invocation, done: &Done) {
    let freed_bytes: u64 = done.batches.iter().map(DoneBatch::freed_bytes).sum();
    let written_bytes: u64 = done.batches.iter().map(DoneBatch::written_bytes).sum();
    let arena_count: usize = done.batches.iter().map(|batch| batch.replaced.len()).sum();
    if invocation.json {
        let batches = done.batches.iter().map(|batch| {
            json!({ "arenas": batch.replaced.len(), "freed_bytes": batch.freed_bytes(), "written_bytes": batch.written_bytes(), "locked_seconds": batch.locked.as_secs_f64() })
        });
        say::record(
            "gc_done",
            json!({ "arenas": arena_count, "freed_bytes": freed_bytes, "written_bytes": written_bytes, "failed": done.failed_count, "batches": batches.collect::<Vec<_>>() }),
        );
    } else if !invocation.quiet {
        let (freed, arenas) = (show::bytes(freed_bytes), show::count(arena_count, "arena"));
        let longest = done.batches.iter().map(|batch| batch.locked).max().unwrap_or_default();
        let longest = show::duration(u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX));
        let written = show::bytes(written_bytes);
        match done.batches.len() {
            0 | 1 => say!("freed {freed} in {arenas}, wrote {written}; other writers waited for {longest}"),
            count => say!(
                "freed {freed} in {arenas}, wrote {written}; in {count} batches, other writers waited for at most {longest}"
            ),
        }
    }
}
