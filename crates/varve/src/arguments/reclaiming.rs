//! The arguments of `varve gc`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use super::value::{parse_age, parse_any_share, parse_duration, parse_size};

pub const GC_HELP: &str = "\
Frees the space of blocks that no snapshot needs. Snapshots in the trash need theirs until their undo has ended (`forget \
--undo-days`); this command then ends it, and they are gone. Arenas are written anew without the dead blocks, in batches: other \
programs can read all the time, and take snapshots between two batches. If it is interrupted, what was done counts, and the next \
run continues.

A store with SHA-1 scores may hold archives that other programs know by their scores. Say which with --roots, --keep-all-roots or \
--no-foreign-roots.

Examples:
  varve -s /backup/store gc --dry-run
  varve -s /backup/store gc
  varve -s /backup/store gc --max-time 10m --least-dead 25%";

/// `varve gc`
#[derive(Debug, Clone, Args)]
pub struct GcArgs {
    /// Print the plan, and change nothing
    #[arg(long)]
    pub dry_run: bool,

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

    /// Use at most this much memory for the set of live blocks
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    pub memory: u64,

    /// End undo by the clock alone; otherwise it ends at the time of the newest snapshot if that is
    /// earlier
    #[arg(long)]
    pub trust_clock: bool,

    /// Keep the archives whose scores are in this file: one a line, or a .vac file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["keep_all_roots", "no_foreign_roots"])]
    pub roots: Vec<PathBuf>,

    /// Keep every archive of another program
    #[arg(long, conflicts_with = "no_foreign_roots")]
    pub keep_all_roots: bool,

    /// No other program keeps scores of this store: keep only what snapshots need
    #[arg(long)]
    pub no_foreign_roots: bool,
}
