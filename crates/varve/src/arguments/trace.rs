//! The arguments of `varve-plan trace`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

pub const PROFILE_HELP: &str = "\
A profile has histograms of the snapshots, and nothing else: their sizes, the lengths of stretches of new, known and repeated \
blocks, the gaps between changes, the sizes of blocks, and how well they compress. `varve-lab generate` makes traces from the output \
of --json.

Examples:
  varve-plan trace profile work.vtrace
  varve-plan -s /backup/store --json trace profile > store.profile.json        all snapshots of a store";

pub const WORKLOAD_HELP: &str = "\
The output is a file for `varve-plan predict --workload`, with a comment on each line. Edit the lines that say so: a store cannot know how many \
single reads there will be, or how long snapshots will be kept.

Example:
  varve-plan -s /backup/store trace workload > workload.toml
  varve-plan predict --workload workload.toml --devices devices.toml --sla sla.toml";

/// The operations on traces.
#[derive(Debug, Clone, Subcommand)]
pub enum TraceCommand {
    /// Print the records of a trace
    Show(TraceFileArgs),
    /// Print the profile of a trace, or of all snapshots of the store
    #[command(after_help = PROFILE_HELP)]
    Profile(TraceProfileArgs),
    /// Print the workload of the store's snapshots, for `varve-plan predict --workload`
    #[command(after_help = WORKLOAD_HELP)]
    Workload(TraceWorkloadArgs),
    /// Write a trace of all snapshots of the store, in the order of their times
    ///
    /// Each snapshot is a sequence of puts, with the places of all blocks in the disk or in the
    /// files. Blocks of structure are left out.
    FromStore(StoreTraceArgs),
}

#[derive(Debug, Clone, Args)]
pub struct TraceFileArgs {
    /// The trace
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub struct TraceProfileArgs {
    /// The trace [default: all snapshots of the store]
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,

    /// Read each block of the store once, to find how well it compresses
    #[arg(long, conflicts_with = "file")]
    pub read: bool,
}

#[derive(Debug, Clone, Args)]
pub struct TraceWorkloadArgs {
    /// Read each block of the store once, to find how well it compresses. Otherwise the size of the
    /// store says so
    #[arg(long)]
    pub read: bool,
}

#[derive(Debug, Clone, Args)]
pub struct StoreTraceArgs {
    /// The new file
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,

    /// Read each block once, to find how well it compresses
    #[arg(long)]
    pub read: bool,
}
