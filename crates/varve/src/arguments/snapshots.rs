//! The arguments of `varve snapshots` and `varve tag`, and the form of a snapshot.

use clap::{Args, ValueEnum};

use super::snapshot_filter::SnapshotFilterArgs;
use super::value::{parse_comment, parse_filter_tag, parse_tag};

pub const SNAPSHOT_HELP: &str = "\
A snapshot has the name of its source: /dev/vda becomes vda, ~/work becomes work, notes.txt stays notes.txt. A link gives its own \
name. A series that an earlier version began under a name without its ending continues under that name. Two sources with the same \
name in one command are refused, and so is a name whose newest snapshot came from another host or another path: --name confirms \
it.

A regular file is archived as a disk image if it holds a partition table or a file system, has a known format of disk images, or \
if its last snapshot is an image. Otherwise it is archived as a file, with its owner, mode, times and attributes. --as image and \
--as file override this.

Examples:
  varve -s /backup/store snapshot /etc --name web1-etc                   another name, if several machines share a store
  varve -s /backup/store snapshot --command db.sql -- pg_dump mydb       the output of a program; no snapshot if it fails
  mysqldump --all-databases | varve -s /backup/store snapshot - --as file --name db.sql";

pub const TAG_HELP: &str = "\
--remove comes first, then --set, then --add. A key that may not remove snapshots may not change tags either. The earlier catalog \
stays in the log.

Examples:
  varve -s /backup/store tag web@2026-05-01 --add keep=always --comment 'before the upgrade'
  varve -s /backup/store tag 7cbf837f --remove keep";

/// The form in which a regular file or a stream is archived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AsChoice {
    /// A disk image: it can be browsed, served and booted
    Image,
    /// A file, with owner, mode, times and attributes
    File,
}

/// The places at which a disk image is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CutChoice {
    /// Into blocks of one size, from its first byte
    Fixed,
    /// Where its files begin, so that it shares blocks with other disks and folders that have them
    Files,
}

#[derive(Debug, Clone, Args)]
pub struct ListSnapshotsArgs {
    /// Only the snapshots of this name: NAME, HOST:NAME, or any other way to name a snapshot
    #[arg(value_name = "SNAPSHOT")]
    pub name: Option<String>,

    /// Group the snapshots by these properties, in this order
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    pub group_by: Vec<GroupBy>,

    /// List the forgotten snapshots that can be brought back
    #[arg(long)]
    pub trash: bool,

    #[command(flatten)]
    pub which: SnapshotFilterArgs,
}

/// The properties for groups of snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GroupBy {
    /// The host on which they were made
    Host,
    /// Their name
    Name,
    /// Their source
    Path,
    /// All of their tags
    Tags,
}

/// `varve tag`
#[derive(Debug, Clone, Args)]
pub struct TagArgs {
    /// The snapshots
    #[arg(required = true, value_name = "SNAPSHOT")]
    pub snapshots: Vec<String>,

    /// Add this tag, beside others with the same key; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_tag)]
    pub add: Vec<String>,

    /// Remove this tag, or all tags with this key; may be given several times
    #[arg(long, value_name = "KEY[=VALUE]", value_parser = parse_filter_tag)]
    pub remove: Vec<String>,

    /// Set this tag, and remove others with the same key; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_tag)]
    pub set: Vec<String>,

    /// Set the comment, of one line; an empty one removes it
    #[arg(long, value_name = "TEXT", value_parser = parse_comment)]
    pub comment: Option<String>,

    #[command(flatten)]
    pub which: SnapshotFilterArgs,
}
