//! The arguments of `varve drill`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use super::SnapshotFilterArgs;
use super::value::parse_duration;

pub const DRILL_HELP: &str = "\
Restores files of a snapshot that are chosen at random, one after the other, into a scratch folder; reads each back from the disk, \
compares it with the archive, and removes it. Of a disk whose files cannot be read, it takes pieces of 1 MiB in place of files. The \
drill is recorded in the store, where `varve status` finds it.

Exit status: 0 everything is as archived, 1 something is not, 5 something is damaged in the archive.

Examples:
  varve -s /backup/store drill home                    50 files of the newest snapshot
  varve -s /backup/store drill vm --files 10 --boot    ... and start the machine from its disk";

#[derive(Debug, Clone, Args)]
pub struct DrillArgs {
    /// The snapshot
    #[arg(value_name = "SNAPSHOT")]
    pub snapshot: String,

    /// The number of files
    #[arg(long, value_name = "COUNT", default_value = "50", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub files: u32,

    /// Also start a machine from the archived disk, and wait until it has started, as `varve boot
    /// --check` does
    #[arg(long)]
    pub boot: bool,

    /// The time that --boot waits
    #[arg(long, value_name = "TIME", default_value = "10m", requires = "boot", value_parser = parse_duration)]
    pub timeout: Duration,

    /// The folder for the restored files [default: the one for temporary files]
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub scratch: Option<PathBuf>,

    #[command(flatten)]
    pub which: SnapshotFilterArgs,
}
