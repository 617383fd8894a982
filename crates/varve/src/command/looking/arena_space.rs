//! `varve stats --arenas`: how much of each arena is needed, and how much is dead.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde_json::{Value, json};
use varve_archive::{CollectOptions, Collection, CollectionReport, ForeignRoots, PriceFile};
use varve_log::ArenaId;
use varve_session::WithHint;
use varve_store::{ScoreAlgorithm, Store};
use varve_upkeep::{ArenaObstacle, ArenaUse, ReclaimBudget, SparedReason};

use crate::arguments::StatsArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::signals::cancellable_progress;
use crate::{say, show};

const HEADINGS: [&str; 5] = ["arena", "bytes", "needed", "dead", "gc"];
/// The columns with numbers.
const NUMBERS: [usize; 4] = [0, 1, 2, 3];
/// The hint for a store in which other programs may need more.
const FOREIGN_HINT: &str = "--no-foreign-roots or --keep-all-roots decides it here, and `varve gc --dry-run --keep-roots FILE` for archives whose scores you know";

/// The rows of the table, and what they do not show.
struct ArenaTable<'a> {
    rows: Vec<ArenaRow<'a>>,
    report: &'a CollectionReport,
    /// False if archives of other programs may need more.
    knows_roots: bool,
}

/// One arena.
struct ArenaRow<'a> {
    usage: &'a ArenaUse,
    /// `None` if it is not known.
    dead_bytes: Option<u64>,
    /// The answer to whether a `gc` without options writes it anew.
    verdict: &'static str,
}

pub fn run(invocation: &Invocation, args: &StatsArgs) -> Result<CommandOutcome> {
    let progress = cancellable_progress()?;
    let archive = invocation.session.read()?;
    let foreign = foreign_roots(args, archive.store());
    let options = CollectOptions {
        budget: ReclaimBudget::default(),
        filter_bytes: args.memory,
        young_since: None,
        prices: PriceFile::read(archive.store().vault().storage())?,
        foreign: Some(foreign.clone().unwrap_or_default()),
        trusts_clock: false,
    };
    let shown = ShownProgress::start("finding live blocks", &progress, invocation.quiet || invocation.json);
    let found = Collection::look(&archive, options, &progress);
    drop(shown);
    let report = found.with_hint(|_| Some("`varve verify` shows the damage, if there is any"))?;
    let table = ArenaTable::new(&report, foreign.is_some());
    if invocation.json {
        table.print_json()
    } else {
        table.print()
    }
    Ok(CommandOutcome::Done)
}

/// Returns the roots that no catalog leads to; `None` if nobody has said, and there may be some.
fn foreign_roots(args: &StatsArgs, store: &Store) -> Option<ForeignRoots> {
    if args.keep_all_roots {
        return Some(ForeignRoots::All);
    }
    let has_none = args.no_foreign_roots || store.config().score != ScoreAlgorithm::Sha1;
    has_none.then_some(ForeignRoots::None)
}

impl<'a> ArenaTable<'a> {
    fn new(report: &'a CollectionReport, knows_roots: bool) -> Self {
        let spared: BTreeMap<ArenaId, &SparedReason> =
            report.plan.spared.iter().map(|spared| (spared.arena, &spared.reason)).collect();
        let merged: BTreeSet<ArenaId> = report.plan.merged().map(|arena| arena.arena).collect();
        let row = |usage: &'a ArenaUse| {
            let is_known = knows_roots && usage.obstacle.is_none();
            let verdict = match spared.get(&usage.arena) {
                Some(reason) if usage.obstacle.is_some() || knows_roots => left_as(reason),
                _ if knows_roots && merged.contains(&usage.arena) => "merges it",
                _ if knows_roots => "writes it anew",
                _ => "",
            };
            ArenaRow { usage, dead_bytes: is_known.then(|| usage.dead_bytes()), verdict }
        };
        Self { rows: report.uses.iter().map(row).collect(), report, knows_roots }
    }

    /// Returns the bytes of all arenas, and the dead ones among them; `None` if none are known.
    fn sums(&self) -> (u64, Option<u64>) {
        let dead = self.rows.iter().filter_map(|row| row.dead_bytes).reduce(|one, other| one + other);
        (self.rows.iter().map(|row| row.usage.file_bytes).sum(), dead)
    }

    fn print(&self) {
        let mut table = show::table(&HEADINGS, &NUMBERS);
        let known = |bytes: Option<u64>| bytes.map_or_else(|| "-".into(), show::bytes);
        for row in &self.rows {
            let needed = row.needed_bytes();
            table.add_row([
                row.usage.arena.to_string(),
                show::bytes(row.usage.file_bytes),
                known(needed),
                known(row.dead_bytes),
                row.verdict.into(),
            ]);
        }
        let (all, dead) = self.sums();
        let needed = self.rows.iter().filter_map(ArenaRow::needed_bytes).sum();
        table.add_row(["all".into(), show::bytes(all), show::bytes(needed), known(dead), String::new()]);
        say!("{}", table.trim_fmt());
        if !self.knows_roots {
            say!(
                "what is dead is not known: other programs may keep the scores of archives in this store, and no snapshot names them"
            );
            hint!("{FOREIGN_HINT}");
        }
        let trash = self.report.in_trash.len();
        if trash > 0 {
            say!("needed until their undo ends: {}", show::count(trash, "forgotten snapshot"));
        }
        if self.report.in_use_count > 0 {
            let readers = show::count(self.report.in_use_count, "reader");
            say!("forgotten snapshots are in use by {readers}, and count as needed");
        }
    }

    fn print_json(&self) {
        self.rows.iter().for_each(|row| say::item("arena_use", row.as_json()));
        let (bytes, dead) = self.sums();
        say::record(
            "arena_use_sum",
            json!({
                "arenas": self.rows.len(),
                "bytes": bytes,
                "dead_bytes": dead,
                "foreign_roots_known": self.knows_roots,
                "snapshots": self.report.marked.snapshot_count,
                "in_trash": self.report.in_trash.len(),
            }),
        );
    }
}

impl ArenaRow<'_> {
    /// Returns the bytes that are needed; `None` if they were not measured.
    fn needed_bytes(&self) -> Option<u64> {
        self.usage.obstacle.is_none().then_some(self.usage.kept_bytes.min(self.usage.file_bytes))
    }

    fn as_json(&self) -> Value {
        json!({
            "arena": self.usage.arena.0,
            "bytes": self.usage.file_bytes,
            "needed_bytes": self.needed_bytes(),
            "dead_bytes": self.dead_bytes,
            "blocks": self.usage.block_count,
            "needed_blocks": self.usage.live_count,
            "gc": self.verdict,
        })
    }
}

fn left_as(reason: &SparedReason) -> &'static str {
    match reason {
        SparedReason::Obstacle(ArenaObstacle::Unsealed) => "leaves it: still growing",
        SparedReason::Obstacle(ArenaObstacle::Damaged | ArenaObstacle::Unreadable { .. }) => {
            "leaves it: damaged"
        }
        SparedReason::MostlyLive => "leaves it: less than 10 % dead",
        SparedReason::Young => "leaves it: young",
        SparedReason::MinimumDays => "leaves it: paid for a minimum time anyway",
        SparedReason::WouldNotPay => "leaves it: would not pay at the targets",
        SparedReason::MaxWritten | SparedReason::MaxTime | SparedReason::GoalReached => {
            "leaves it: beyond the budget"
        }
    }
}
