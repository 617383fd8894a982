//! The words of `varve plan`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::value::{parse_any_share, parse_block_size, parse_index_memory, parse_share, parse_size};

/// Shown after `varve plan --help`.
pub const PLAN_HELP: &str = "\
Examples:
  varve bench device /backup --json > disk.json         what the disk can do
  varve plan --disk-size 4T --memory 2G --device disk.json
  varve plan --disk-size 500G --stored 40% --duplicates 98%";

/// What the store is to be for.
#[derive(Debug, Clone, Args)]
pub struct MakePlan {
    /// How much room the store gets
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub disk_size: u64,

    /// How large a block is, on average
    #[arg(long, value_name = "BYTES", default_value = "16K", value_parser = parse_block_size)]
    pub block_size: u32,

    /// What compression leaves of a block
    #[arg(long, value_name = "SHARE", default_value = "60%", value_parser = parse_share)]
    pub stored: f64,

    /// The share of what is archived each night that is there already
    #[arg(long, value_name = "SHARE", default_value = "95%", value_parser = parse_any_share)]
    pub duplicates: f64,

    /// How much memory the process may take
    #[arg(long, value_name = "BYTES", default_value = "2G", value_parser = parse_size)]
    pub memory: u64,

    /// How much of it an index on disk would take, beside its filter
    #[arg(long, value_name = "BYTES", default_value = "192M", value_parser = parse_index_memory)]
    pub index_memory: u64,

    /// What `varve bench device --json` has printed of the disk
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["read_rate", "write_rate", "places"])]
    pub device: Option<PathBuf>,

    /// Without --device: what the disk reads in a row, in bytes a second
    #[arg(long, value_name = "BYTES", default_value = "150M", value_parser = parse_size)]
    pub read_rate: u64,

    /// Without --device: what the disk writes in a row, in bytes a second
    #[arg(long, value_name = "BYTES", default_value = "140M", value_parser = parse_size)]
    pub write_rate: u64,

    /// Without --device: how many places the disk finds in a second
    #[arg(long, value_name = "COUNT", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..))]
    pub places: u32,
}
