//! The arguments of `varve hold`, `varve release` and `varve forget`.

use clap::{ArgGroup, Args};
use varve_world::Timestamp;

use super::retention::RetentionArgs;
use super::snapshot_filter::SnapshotFilterArgs;
use super::value::{parse_end, parse_label};

pub const HOLD_HELP: &str = "\
A snapshot with a hold cannot be forgotten until each of its holds is released. A snapshot with --keep-until cannot be forgotten \
before that time. A key that may only add can hold snapshots and make them be kept for longer; only a full key can undo that.

Examples:
  varve -s /backup/store hold web@2026-05-01 --label audit
  varve -s /backup/store hold latest --keep-until 2027-12-31";

pub const RELEASE_HELP: &str = "\
Examples:
  varve -s /backup/store release web@2026-05-01 --label audit";

pub const FORGET_HELP: &str = "\
A forgotten snapshot goes to the trash: it is no longer listed, and all of its data is kept. Until --undo-days have passed, `forget \
--undo` brings it back. Forgetting frees no space by itself.

Snapshots that are named are forgotten, or nothing is if one of them is protected by `hold`. Without names, all snapshots that meet \
the conditions are forgotten, except the protected ones, and except those that a rule keeps. With rules, a name is that of a series, \
as with --name, and the newest snapshot of each group always stays. A policy file can have more rules: keep_within_daily and the like, and count_like, for rules that count as \
those of borg or Proxmox Backup Server do.

Examples:
  varve -s /backup/store forget web@2026-05-01 --dry-run
  varve -s /backup/store forget --keep-daily 7 --keep-weekly 5 --keep-monthly 12 --dry-run
  varve -s /backup/store forget home --keep-last 2
  varve -s /backup/store forget --host old-server --until 2025-12-31
  varve -s /backup/store snapshots --trash
  varve -s /backup/store forget --undo                      what the last one took
  varve -s /backup/store forget --undo web@2026-05-01";

/// `varve hold`
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("protection").required(true).multiple(true).args(["label", "keep_until"])))]
pub struct HoldArgs {
    /// The snapshots
    #[arg(required = true, value_name = "SNAPSHOT")]
    pub snapshots: Vec<String>,

    /// Add a hold with this reason
    #[arg(long, value_name = "TEXT", value_parser = parse_label)]
    pub label: Option<String>,

    /// Keep the snapshots until this time; a day includes its end
    #[arg(long, value_name = "WHEN", value_parser = parse_end)]
    pub keep_until: Option<Timestamp>,

    #[command(flatten)]
    pub which: SnapshotFilterArgs,
}

/// `varve release`
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("protection").required(true).multiple(true).args(["label", "keep_until"])))]
pub struct ReleaseArgs {
    /// The snapshots
    #[arg(required = true, value_name = "SNAPSHOT")]
    pub snapshots: Vec<String>,

    /// Remove the hold with this reason
    #[arg(long, value_name = "TEXT", value_parser = parse_label)]
    pub label: Option<String>,

    /// Remove the time until which the snapshots are kept
    #[arg(long)]
    pub keep_until: bool,

    #[command(flatten)]
    pub which: SnapshotFilterArgs,
}

/// `varve forget`
#[derive(Debug, Clone, Args)]
pub struct ForgetArgs {
    /// The snapshots; without names, all that meet the conditions; with rules, the names of series
    #[arg(value_name = "SNAPSHOT")]
    pub snapshots: Vec<String>,

    /// List the snapshots that would be forgotten, and change nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Bring snapshots back from the trash; without names and conditions, those that the last
    /// `forget` or `prune` took
    #[arg(long, conflicts_with = "undo_days")]
    pub undo: bool,

    /// The number of days for which the snapshots can be brought back; 0: the next `gc` frees their
    /// space
    #[arg(long, value_name = "DAYS", default_value_t = 7, value_parser = clap::value_parser!(u32).range(0..=36_500))]
    pub undo_days: u32,

    /// Believe the clock, although the snapshots do not bear it out
    #[arg(long)]
    pub trust_clock: bool,

    #[command(flatten)]
    pub retention: RetentionArgs,

    #[command(flatten)]
    pub which: SnapshotFilterArgs,
}
