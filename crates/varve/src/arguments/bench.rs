//! The arguments of `varve bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use varve_venti::Address;

use super::value::parse_size;

/// What to measure.
#[derive(Debug, Clone, Subcommand)]
pub enum Bench {
    /// Read from or write to any Venti server, and tell how fast it was
    ///
    /// The same seed means the same blocks, so what was written can be read later.
    Venti(BenchVenti),
    /// Read and write in a folder, in order and here and there, and tell what its disk can do
    ///
    /// Makes a file there, and removes it. `varve plan --device` takes what --json prints.
    Device(BenchDevice),
}

#[derive(Debug, Clone, Args)]
pub struct BenchDevice {
    /// A folder on the disk
    #[arg(value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,

    /// How large the file is: more than the disk itself remembers
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = parse_size)]
    pub size: u64,

    /// How long each measurement takes
    #[arg(long, default_value_t = 2.0, value_parser = parse_seconds)]
    pub seconds: f64,
}

#[derive(Debug, Clone, Args)]
pub struct BenchVenti {
    /// The server: HOST, HOST:PORT, tcp!HOST!PORT, unix!PATH or venti://HOST
    pub address: Address,

    /// What to do with the blocks
    #[arg(long, value_enum, default_value = "write")]
    pub action: ActionChoice,

    /// In which order
    #[arg(long, value_enum, default_value = "sequential")]
    pub order: OrderChoice,

    /// How large each block is, from 16 to 1M
    #[arg(long, value_name = "BYTES", default_value = "8K", value_parser = parse_block)]
    pub block_size: usize,

    /// How many blocks
    #[arg(long, default_value_t = 65_536, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub count: u64,

    /// Of how many blocks these are some, in an order that looks like chance [default: of as many]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub among: Option<u64>,

    /// How many requests are in flight at a time
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub depth: u16,

    /// Which blocks
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// What to do with the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ActionChoice {
    /// Write them, then sync
    Write,
    /// Read them, and check what comes
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
    let good = usize::try_from(bytes).ok().filter(|bytes| (16..=1 << 20).contains(bytes));
    good.ok_or_else(|| "write a size from 16 to 1M".into())
}
