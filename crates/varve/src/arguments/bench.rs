//! The words of `varve bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use varve_venti::Address;

use super::value::{parse_any_share, parse_block_size, parse_blocks, parse_index_memory, parse_size};

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
    /// Ask each kind of store in the six ways of Foundation's paper, and tell how fast it was and what it asked of its disk
    ///
    /// Makes stores in a folder, and removes them. Venti's own algorithm is measured beside them, on the same index on disk. Before each of the six the store is opened anew, and what the
    /// system remembers of its files is forgotten; reads go past that memory, where the file system lets them.
    Foundation(BenchFoundation),
    /// Repeat the seven measurements of memventi's thesis, and show how full and how exact the index in memory is
    ///
    /// Makes a store in a folder, serves it to itself by Venti's protocol, and removes it. Then an index is filled with as many blocks as each --index-blocks says, without a store: what its parts
    /// hold, how many slots a search looks at, and how often two blocks look alike to it.
    Memventi(BenchMemventi),
}

#[derive(Debug, Clone, Args)]
pub struct BenchMemventi {
    /// A folder on the disk
    #[arg(value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,

    /// How much is written and read by each measurement
    #[arg(long, value_name = "BYTES", default_value = "2G", value_parser = parse_size)]
    pub size: u64,

    /// How large each block is, from 16 to 1M
    #[arg(long, value_name = "BYTES", default_value = "8K", value_parser = parse_block)]
    pub block_size: usize,

    /// How many requests are in flight at a time; the thesis's program had one
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub depth: u16,

    /// How many blocks an index has whose inside is shown, and how large they are; several are shown one after the other
    #[arg(long, value_name = "BLOCKS:BYTES", value_delimiter = ',', default_value = "262144:8K,35651584:2K", value_parser = parse_index)]
    pub index_blocks: Vec<(u64, u64)>,

    /// Which blocks
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
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
pub struct BenchFoundation {
    /// A folder on the disk
    #[arg(value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,

    /// How large blocks are; several sizes are measured one after the other
    #[arg(long = "block-size", value_name = "BYTES", value_delimiter = ',', default_value = "512,4096,8192", value_parser = parse_block_size)]
    pub block_sizes: Vec<u32>,

    /// How many blocks there are in a store
    #[arg(long, value_name = "BLOCKS", default_value = "200K", value_parser = parse_blocks)]
    pub blocks: u64,

    /// How many of them are asked for one by one
    #[arg(long, value_name = "BLOCKS", default_value = "2000", value_parser = parse_blocks)]
    pub sample: u64,

    /// Which engines; all if none is named
    #[arg(long = "engine", value_name = "ENGINE", value_delimiter = ',', value_enum)]
    pub engines: Vec<EngineChoice>,

    /// How much of a block does not compress
    #[arg(long, value_name = "SHARE", default_value = "50%", value_parser = parse_any_share)]
    pub incompressible: f64,

    /// The memory of an index on disk, beside its filter
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = parse_index_memory)]
    pub index_memory: u64,

    /// Which blocks
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
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

/// What is put through the six cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineChoice {
    /// Venti's own algorithm
    Venti,
    /// By hash, with the index in memory
    HashMemory,
    /// By hash, with the index on disk
    HashDisk,
    /// By value, with the index in memory
    ValueMemory,
    /// By value, with the index on disk
    ValueDisk,
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

fn parse_index(text: &str) -> Result<(u64, u64), String> {
    let (count, bytes) = text.split_once(':').ok_or("write BLOCKS:BYTES, like 262144:8K")?;
    let count = parse_blocks(count)?;
    if count > 1 << 32 {
        return Err("an index has 4294967296 blocks at most".into());
    }
    Ok((count, parse_block(bytes)? as u64))
}
