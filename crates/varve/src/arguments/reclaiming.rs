//! The arguments of `varve gc` and `varve prune`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use super::forgetting::ForgetArgs;
use super::retention::RetentionArgs;
use super::snapshot_filter::SnapshotFilterArgs;
use super::value::{parse_age, parse_any_share, parse_duration, parse_size};

pub const GC_HELP: &str = "\
Frees the space of blocks that no snapshot needs. Snapshots in the trash need theirs until their undo has ended (`forget \
--undo-days`); this command then ends it, and they are gone. Arenas are written anew without the dead blocks, in batches: other \
programs can read all the time, and take snapshots between two batches. If it is interrupted, what was done counts, and the next \
run continues.

A store with SHA-1 scores may hold archives that other programs know by their scores. Say which with --keep-roots, --keep-all-roots or \
--no-foreign-roots.

Examples:
  varve -s /backup/store gc --dry-run
  varve -s /backup/store gc
  varve -s /backup/store gc --max-time 10m --least-dead 25%";

pub const PRUNE_HELP: &str = "\
Forgets snapshots by rules as `forget` does, and then frees space as `gc` does. Both plans are printed first; nothing is changed \
before both are made.

Forgotten snapshots go to the trash, and `forget --undo` brings them back until --undo-days have passed. The first `prune` or `gc` \
after that frees their space. With --undo-days 0 their space is freed at once, and nothing brings the snapshots back.

Without conditions, all snapshots are judged by the rules. Snapshots that `hold` protects stay, and so does the newest of each \
group. A store with SHA-1 scores needs --keep-roots, --keep-all-roots or --no-foreign-roots, as for `gc`.

Examples:
  varve -s /backup/store prune --keep-daily 7 --keep-weekly 5 --keep-monthly 12 --dry-run
  varve -s /backup/store prune home --keep-last 7
  varve -s /backup/store prune --policy keep.txt
  varve -s /backup/store prune --keep-last 1 --host old-server --undo-days 0";

/// `varve gc`
#[derive(Debug, Clone, Args)]
pub struct GcArgs {
    /// Print the plan, and change nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// End undo by the clock alone; otherwise it needs as many nights with snapshots as days, but
    /// at most seven
    #[arg(long)]
    pub trust_clock: bool,

    #[command(flatten)]
    pub collect: CollectArgs,
}

/// `varve prune`
#[derive(Debug, Clone, Args)]
pub struct PruneArgs {
    /// The names of the series that are judged, as with --name [default: all]
    #[arg(value_name = "SNAPSHOT")]
    pub series: Vec<String>,

    /// Print both plans, and change nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// The number of days for which the snapshots can be brought back; 0: their space is freed at
    /// once
    #[arg(long, value_name = "DAYS", default_value_t = 7, value_parser = clap::value_parser!(u32).range(0..=36_500))]
    pub undo_days: u32,

    /// Believe the clock, although the snapshots do not bear it out, and end undo by the clock
    /// alone
    #[arg(long)]
    pub trust_clock: bool,

    #[command(flatten)]
    pub collect: CollectArgs,

    #[command(flatten)]
    pub retention: RetentionArgs,

    #[command(flatten)]
    pub which: SnapshotFilterArgs,
}

impl PruneArgs {
    /// Returns the arguments of the `forget` that this is.
    pub fn forget(&self) -> ForgetArgs {
        ForgetArgs {
            snapshots: self.series.clone(),
            dry_run: self.dry_run,
            undo: false,
            undo_days: self.undo_days,
            trust_clock: self.trust_clock,
            retention: self.retention.clone(),
            which: self.which.clone(),
        }
    }

    /// Returns the arguments of the `gc` that follows.
    pub fn gc(&self) -> GcArgs {
        GcArgs { dry_run: self.dry_run, trust_clock: self.trust_clock, collect: self.collect.clone() }
    }
}

/// The limits of a collection, and the archives of other programs that it keeps.
#[derive(Debug, Clone, Args)]
pub struct CollectArgs {
    /// Write arenas anew of which at least this share is dead, such as 25%
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = parse_any_share)]
    pub least_dead: f64,

    /// Write at most this many bytes
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_written: Option<u64>,

    /// Begin no batch after this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub max_time: Option<Duration>,

    /// Free no more than this
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub free: Option<u64>,

    /// Leave arenas alone that were begun in this time
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub min_age: Option<Duration>,

    /// Free space without regard to the prices in `targets.toml`
    #[arg(long)]
    pub ignore_prices: bool,

    /// Use at most this much memory for the set of live blocks
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    pub memory: u64,

    /// Keep the archives whose scores are in this file: one a line, or a .vac file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["keep_all_roots", "no_foreign_roots"])]
    pub keep_roots: Vec<PathBuf>,

    /// Keep every archive of another program
    #[arg(long, conflicts_with = "no_foreign_roots")]
    pub keep_all_roots: bool,

    /// No other program keeps scores of this store: keep only what snapshots need
    #[arg(long)]
    pub no_foreign_roots: bool,
}
