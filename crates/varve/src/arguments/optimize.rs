//! The arguments of `varve optimize`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::snapshot_filter::UnnamedFilterArgs;
use super::value::{parse_name, parse_size};

pub const OPTIMIZE_HELP: &str = "\
The blocks of files that the profile lists move together, in the order of first access, on the ext2, ext3 and ext4 file systems of \
the disk. A start then reads them in few large requests. Nothing is changed in place: the result is a new image. Names, metadata and \
contents of all files stay equal, which is checked before the new image gets its name, by `e2fsck -fn` too if it is installed.

A file system is left as it is, with the reason, if it was not unmounted cleanly, or has a structure that this version does not know. \
The profile belongs to the old image: record a new one for the new image.

Examples:
  varve optimize disk.raw --profile start.profile --plan
  varve optimize disk.raw --profile start.profile --output faster.raw
  varve -s /backup/store optimize web --profile start.profile --name web-fast";

#[derive(Debug, Clone, Args)]
pub struct OptimizeArgs {
    /// A raw disk image; if there is no such file, the snapshot of a disk image
    #[arg(value_name = "IMAGE|SNAPSHOT", value_hint = ValueHint::FilePath)]
    pub source: String,

    /// The profile of the reads of a start
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub profile: PathBuf,

    /// The new image, which must not exist
    #[arg(
        short,
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        required_unless_present_any = ["name", "plan"],
        conflicts_with = "name"
    )]
    pub output: Option<PathBuf>,

    /// Archive the new image as a snapshot with this name, without a file
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub name: Option<String>,

    /// The unit of the disk that moved blocks do not share with others, while there is space
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = parse_size)]
    pub align: u64,

    /// Only print what would be moved
    #[arg(long)]
    pub plan: bool,

    #[command(flatten)]
    pub which: UnnamedFilterArgs,
}
