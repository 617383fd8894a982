//! The arguments of `varve plan`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::value::{
    parse_any_share, parse_block_sizes, parse_index_memory, parse_interval, parse_share, parse_size,
    parse_sizes,
};

/// Shown after `varve plan --help`.
pub const PLAN_HELP: &str = "\
Examples:
  varve bench device /backup --json > disk.json         what the disk can do
  varve plan --disk-size 4T --memory 2G --device disk.json
  varve plan --disk-size 500G --stored 40% --duplicates 98%
  varve plan --disk-size 1T..8T --block-size 8K,16K,64K --memory 2G
                                                        a table of all these settings, the least memory first
  varve plan --disk-size 32G --block-size 4K --collision-interval 1000 --empty-memory 1M";

/// Sizes for which plans are made one after the other.
#[derive(Debug, Clone)]
pub struct Sizes(pub Vec<u64>);

/// What the store is to be for.
#[derive(Debug, Clone, Args)]
pub struct MakePlan {
    /// How much room the store gets; several sizes (1T,3T) or a range that doubles (1T..8T) give a
    /// table
    #[arg(long, value_name = "BYTES", value_parser = parse_sizes)]
    pub disk_size: Sizes,

    /// How large a block is, on average; also several (4K,8K), or a range (4K..64K)
    #[arg(long, value_name = "BYTES", default_value = "16K", value_parser = parse_block_sizes)]
    pub block_size: Sizes,

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

    /// Only indexes in which at most one block in COUNT shares its fingerprint with an earlier
    /// block
    #[arg(long, value_name = "COUNT", value_parser = parse_interval)]
    pub collision_interval: Option<u64>,

    /// Only indexes that take no more memory than this while the store is empty
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub empty_memory: Option<u64>,

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
