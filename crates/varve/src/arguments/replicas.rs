//! The arguments of `varve replicate` and `varve clone`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use varve_daily::UploadRates;

use super::value::{parse_age, parse_size};

pub const REPLICATE_HELP: &str = "\
A replica holds the whole log, encrypted as in the store, with keys and settings. Only new data is uploaded, and nothing at the \
target is changed or removed without one of the options for that: object lock and write-once buckets work. An interrupted \
replication continues with the same command. The store's key also opens the replica: read it in place (varve -s TARGET ls ...), \
audit it (varve verify --replica TARGET) and restore the store (varve clone TARGET DIR).

Two copies of a store never mix in one replica: if both are written, each needs a target of its own.

Examples:
  varve -s /backup/store replicate /mnt/usb/replica --remember    make a replica, and remember its target
  varve -s /backup/store replicate                                each day: all remembered targets
  varve -s /backup/store replicate /mnt/usb/replica --dry-run     list the objects that would be uploaded";

pub const CLONE_HELP: &str = "\
Every record is checked with the store's key before it is put in place, and the folder becomes a store only when it is complete. \
If it is interrupted, the same command continues where it stopped.

Examples:
  varve clone /mnt/usb/replica /backup/store    restore the store to a new disk";

#[derive(Debug, Clone, Args)]
pub struct ReplicateArgs {
    /// The targets: folders or URLs [default: all remembered ones, or else those of the
    /// configuration]
    #[arg(value_name = "TARGET", value_hint = ValueHint::AnyPath)]
    pub targets: Vec<String>,

    /// Remember these targets in the store's replicas.toml
    #[arg(long)]
    pub remember: bool,

    /// Only list the objects that would be uploaded
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// The number of objects that are uploaded at the same time
    #[arg(short, long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,

    /// The maximum upload rate, in bytes a second, also by times of the week
    ///
    /// Examples are 20M, and "mon..fri 08:00-18:00=2M,else=unlimited". The times are those of this
    /// machine's zone. Where periods overlap, the lowest rate holds.
    #[arg(long, value_name = "RATE")]
    pub limit_rate: Option<UploadRates>,

    /// The maximum size of objects, from 1M to 1G; each job holds one in memory
    #[arg(long, value_name = "BYTES", default_value = "16M", value_parser = parse_size)]
    pub segment_size: u64,

    /// Replace this object at the target, by the name that `verify --replica` prints; may be given
    /// several times
    #[arg(long = "replace", value_name = "OBJECT")]
    pub replaced: Vec<String>,

    /// Remove keys at the target that the store no longer has
    ///
    /// Until then they still open the replica.
    #[arg(long)]
    pub delete_extra_keys: bool,

    /// Make a new copy at a target that had one before and has none now
    ///
    /// Without this option it is refused, because an empty mount point looks the same.
    #[arg(long)]
    pub recreate: bool,

    /// Remove the earlier generations of arenas that `gc` has written anew, at once or once they
    /// were not needed for this time
    ///
    /// Each present generation is read back first. Without this option they stay there for ever.
    #[arg(long, value_name = "AGE", num_args = 0..=1, require_equals = true, default_missing_value = "0h", value_parser = parse_age)]
    pub drop_superseded: Option<Duration>,
}

#[derive(Debug, Clone, Args)]
pub struct CloneArgs {
    /// The replica: a folder or a URL
    #[arg(value_hint = ValueHint::AnyPath)]
    pub target: String,

    /// An empty or new folder
    #[arg(value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,

    /// Check nothing, and need no key: the clone is then only as good as the target
    #[arg(long)]
    pub unchecked: bool,

    /// Also copy arenas that are damaged or incomplete at the replica
    #[arg(long, conflicts_with = "unchecked")]
    pub keep_damaged: bool,

    /// The number of arenas that are fetched at the same time [default: 8, and 4 from an FTP
    /// server]
    #[arg(short, long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: Option<u16>,
}
