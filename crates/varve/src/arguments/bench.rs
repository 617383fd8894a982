//! The arguments of `varve-plan bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use varve_block::to_usize;
use varve_venti::Address;

use super::value::{parse_share, parse_size};

/// The measurements.
#[derive(Debug, Clone, Subcommand)]
pub enum BenchCommand {
    /// Read from or write to any Venti server, and print its speed
    ///
    /// The same seed means the same blocks, so written blocks can be read later.
    Venti(BenchVentiArgs),
    /// Read and write in a folder, sequentially and at random, and print the speed of its disk
    ///
    /// Makes a file there, and removes it. `predict --device` reads the output of --json.
    Device(BenchDeviceArgs),
    /// Read disks or folders, and print the space that each block size would take
    ///
    /// Reads pieces of 4 KiB, and merges them to larger blocks: at fixed places, as images are cut,
    /// and by content, as files are. If a source is a disk with files, all are read again: the
    /// disks are cut in blocks of the default size, and where their files begin.
    Chunks(BenchChunksArgs),
}

#[derive(Debug, Clone, Args)]
pub struct BenchChunksArgs {
    /// Disk images, devices, files or folders
    #[arg(required = true, value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub sources: Vec<PathBuf>,

    /// The memory for fingerprints; if it is too small, the counts are estimates
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_size)]
    pub memory: u64,

    /// The share of a block that remains after compression
    #[arg(long, value_name = "SHARE", default_value = "60%", value_parser = parse_share)]
    pub stored: f64,
}

#[derive(Debug, Clone, Args)]
pub struct BenchDeviceArgs {
    /// A folder on the disk
    #[arg(value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,

    /// The size of the file: more than the disk's own cache
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = parse_size)]
    pub size: u64,

    /// The duration of each measurement
    #[arg(long, default_value_t = 2.0, value_parser = parse_seconds)]
    pub seconds: f64,
}

#[derive(Debug, Clone, Args)]
pub struct BenchVentiArgs {
    /// The server: HOST, HOST:PORT, tcp!HOST!PORT, unix!PATH or venti://HOST
    pub address: Address,

    /// The operation on the blocks
    #[arg(long, value_enum, default_value = "write")]
    pub action: ActionChoice,

    /// The order of the blocks
    #[arg(long, value_enum, default_value = "sequential")]
    pub order: OrderChoice,

    /// The size of each block, from 16 to 1M
    #[arg(long, value_name = "BYTES", default_value = "8K", value_parser = parse_block)]
    pub block_size: usize,

    /// The number of blocks
    #[arg(long, default_value_t = 65_536, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub count: u64,

    /// The number of blocks from which these are chosen, in a pseudo-random order [default: the
    /// number of blocks]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub among: Option<u64>,

    /// The number of requests in flight
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub depth: u16,

    /// The seed of the blocks
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The operation on the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ActionChoice {
    /// Write them, then sync
    Write,
    /// Read them, and check the answers
    Read,
}

/// In which order the blocks come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OrderChoice {
    /// One after the other
    Sequential,
    /// Each once, in no order
    Permuted,
    /// Any, some of them more than once
    Random,
    /// Always the same
    Same,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "write a number of seconds from 0.01 to 3600".into())
}

fn parse_block(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text)?;
    let good = Some(to_usize(bytes)).filter(|bytes| (16..=1 << 20).contains(bytes));
    good.ok_or_else(|| "write a size from 16 to 1M".into())
}
