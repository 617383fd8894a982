//! The arguments of `varve snapshots` and `varve tag`, and the form of a snapshot.

use clap::{Args, ValueEnum};

use super::value::{parse_comment, parse_filter_tag, parse_tag};
use super::which::Which;

pub const SNAPSHOT_HELP: &str = "\
A snapshot is called what its source is called: /dev/vda becomes vda, ~/work becomes work, notes.txt stays notes.txt. Of a link it is the \
link's own name. A series that an earlier version began under a name without its ending goes on under that one. Two sources of one call that \
have the same name are refused, and so is a name whose newest snapshot came from another host or another path: --name says that it is meant.

A regular file is archived as a disk image if it holds a partition table or a file system, is in a known format of disk images, or was one \
the night before; else as a file, with its owner, mode, times and attributes. --as image and --as file decide otherwise.

Examples:
  varve -s /backup/store snapshot /etc --name web1-etc                   another name, where several machines share a store
  varve -s /backup/store snapshot --command db.sql -- pg_dump mydb       what a program writes; nothing, if it fails
  mysqldump --all-databases | varve -s /backup/store snapshot - --as file --name db.sql";

pub const TAG_HELP: &str = "\
--remove comes first, then --set, then --add. A key that may not remove snapshots may not change tags either. The catalog as it was stays \
in the log.

Examples:
  varve -s /backup/store tag web@2026-05-01 --add keep=always --comment 'before the upgrade'
  varve -s /backup/store tag 7cbf837f --remove keep";

/// What a regular file or a stream is archived as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AsChoice {
    /// A disk image: it can be looked into, served and booted
    Image,
    /// A file, with owner, mode, times and attributes
    File,
}

#[derive(Debug, Clone, Args)]
pub struct Snapshots {
    /// Only those of this name: NAME, HOST:NAME, or any other way to name a snapshot
    #[arg(value_name = "SNAPSHOT")]
    pub name: Option<String>,

    /// Show them in groups by these, in this order
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    pub group_by: Vec<GroupBy>,

    #[command(flatten)]
    pub which: Which,
}

/// What snapshots are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GroupBy {
    /// The machine that they were made on
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
pub struct Tag {
    /// Which snapshots
    #[arg(required = true, value_name = "SNAPSHOT")]
    pub snapshots: Vec<String>,

    /// Give this tag, beside others of the same key; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_tag)]
    pub add: Vec<String>,

    /// Take this tag away, or all of this key; may be given several times
    #[arg(long, value_name = "KEY[=VALUE]", value_parser = parse_filter_tag)]
    pub remove: Vec<String>,

    /// Give this tag, in the place of others of the same key; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_tag)]
    pub set: Vec<String>,

    /// A line about them, in the place of the one before; an empty one removes it
    #[arg(long, value_name = "TEXT", value_parser = parse_comment)]
    pub comment: Option<String>,

    #[command(flatten)]
    pub which: Which,
}
