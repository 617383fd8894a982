//! The arguments of `varve-plan predict`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use varve_plan::{EndowmentRuns, Example};

use super::value::{
    Sizes, parse_any_share, parse_block_sizes, parse_index_memory, parse_interval, parse_share, parse_size,
    parse_sizes,
};

/// Shown after `varve-plan predict --help`.
pub const PLAN_HELP: &str = "\
Examples:
  varve-plan bench device /backup --json > disk.json         measure the disk
  varve-plan predict --disk-size 4T --memory 2G --device disk.json
  varve-plan predict --disk-size 500G --stored 40% --duplicates 98%
  varve-plan predict --disk-size 1T..8T --block-size 8K,16K,64K --memory 2G
                                                        a table of all these settings, the least memory first
  varve-plan predict --disk-size 32G --block-size 4K --collision-interval 1000 --empty-memory 1M
  varve-plan predict --example workload > workload.toml         files to start from
  varve-plan predict --workload workload.toml --devices devices.toml --sla sla.toml
                                                        the cheapest hardware that is fast enough
  varve-plan predict --endowment 100 --costs costs.toml         the money that keeps an archive for a century";

/// The requirements for the store.
#[derive(Debug, Clone, Args)]
pub struct PlanArgs {
    /// The disk space for the store; several sizes (1T,3T) or a range that doubles (1T..8T) give a
    /// table
    #[arg(long, value_name = "BYTES", value_parser = parse_sizes, required_unless_present_any = ["workload", "endowment", "example"])]
    pub disk_size: Option<Sizes>,

    /// The average block size; also several (4K,8K), or a range (4K..64K)
    #[arg(long, value_name = "BYTES", default_value = "16K", value_parser = parse_block_sizes)]
    pub block_size: Sizes,

    /// The share of a block that remains after compression
    #[arg(long, value_name = "SHARE", default_value = "60%", value_parser = parse_share)]
    pub stored: f64,

    /// The share of duplicates in each day's data
    #[arg(long, value_name = "SHARE", default_value = "95%", value_parser = parse_any_share)]
    pub duplicates: f64,

    /// The maximum memory of the process
    #[arg(long, value_name = "BYTES", default_value = "2G", value_parser = parse_size)]
    pub memory: u64,

    /// The part of that memory for an index on disk, beside its filter
    #[arg(long, value_name = "BYTES", default_value = "192M", value_parser = parse_index_memory)]
    pub index_memory: u64,

    /// The minimum collision interval: at most one block in COUNT shares its fingerprint with an
    /// earlier one
    #[arg(long, value_name = "COUNT", value_parser = parse_interval)]
    pub collision_interval: Option<u64>,

    /// The maximum memory of the index of an empty store
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub empty_memory: Option<u64>,

    /// A file with the output of `varve-plan bench device --json` for the disk
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["read_rate", "write_rate", "places"])]
    pub device: Option<PathBuf>,

    /// Without --device: the sequential read rate of the disk, in bytes a second
    #[arg(long, value_name = "BYTES", default_value = "150M", value_parser = parse_size)]
    pub read_rate: u64,

    /// Without --device: the sequential write rate of the disk, in bytes a second
    #[arg(long, value_name = "BYTES", default_value = "140M", value_parser = parse_size)]
    pub write_rate: u64,

    /// Without --device: the number of random reads that the disk does in a second
    #[arg(long, value_name = "COUNT", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..))]
    pub places: u32,

    /// Find the cheapest hardware that keeps this workload; with --devices and --sla
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires_all = ["devices", "sla"], conflicts_with_all = OF_ONE_DISK, help_heading = HARDWARE)]
    pub workload: Option<PathBuf>,

    /// The hardware to choose from, with its prices
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "workload", help_heading = HARDWARE)]
    pub devices: Option<PathBuf>,

    /// The required speed, and the number of years
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "workload", help_heading = HARDWARE)]
    pub sla: Option<PathBuf>,

    /// Draw the costs into this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = OF_ONE_DISK, help_heading = HARDWARE)]
    pub svg: Option<PathBuf>,

    /// Print an example of an input file
    #[arg(long, value_name = "FILE", value_enum, conflicts_with_all = OF_ONE_DISK, conflicts_with_all = ["workload", "endowment", "svg"], help_heading = HARDWARE)]
    pub example: Option<ExampleChoice>,

    /// Simulate so many years of an archive, and print the money that is needed now; with --costs
    #[arg(long, value_name = "YEARS", requires = "costs", conflicts_with = "workload", conflicts_with_all = OF_ONE_DISK, value_parser = clap::value_parser!(u32).range(1..=i64::from(EndowmentRuns::YEARS_MAX)), help_heading = FOR_EVER)]
    pub endowment: Option<u32>,

    /// The costs, the places for copies, and the schemes to compare
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "endowment", help_heading = FOR_EVER)]
    pub costs: Option<PathBuf>,

    /// The number of simulated histories of each scheme
    #[arg(long, value_name = "COUNT", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=i64::from(EndowmentRuns::RUNS_MAX)), help_heading = FOR_EVER)]
    pub runs: u32,

    /// The seed of the simulation
    #[arg(long, default_value_t = 1, help_heading = FOR_EVER)]
    pub seed: u64,
}

/// The heading of the arguments that choose hardware.
const HARDWARE: &str = "Choosing hardware";
/// The heading of the arguments for the cost of many years.
const FOR_EVER: &str = "Keeping an archive for ever";

/// The arguments of a plan for one disk.
const OF_ONE_DISK: [&str; 12] = [
    "disk_size",
    "block_size",
    "stored",
    "duplicates",
    "memory",
    "index_memory",
    "collision_interval",
    "empty_memory",
    "device",
    "read_rate",
    "write_rate",
    "places",
];

/// An input file to start from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExampleChoice {
    /// The data, its changes and its uses
    Workload,
    /// Hardware of 2026 with prices
    Devices,
    /// The hardware of scc's article, 2012
    #[value(name = "devices-2012")]
    Devices2012,
    /// The required speed, and the number of years
    Sla,
    /// The costs of keeping an archive, and the places for copies
    Endowment,
}

impl ExampleChoice {
    pub fn example(self) -> Example {
        match self {
            Self::Workload => Example::Workload,
            Self::Devices => Example::Devices,
            Self::Devices2012 => Example::Devices2012,
            Self::Sla => Example::Sla,
            Self::Endowment => Example::Endowment,
        }
    }
}
