//! The options that select the snapshots that a command considers.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use varve_archive::SnapshotFilter;
use varve_world::Timestamp;

use super::value::{parse_filter_tag, parse_name, parse_since, parse_until};

/// Only the snapshots that meet all of these are considered, by every command that has them.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Conditions for snapshots")]
pub struct SnapshotFilterArgs {
    /// Only snapshots of this name; may be given several times
    #[arg(long = "name", value_name = "NAME", value_parser = parse_name)]
    pub names: Vec<String>,

    #[command(flatten)]
    pub others: UnnamedFilterArgs,
}

/// The conditions besides the name, for commands with an option `--name` of another meaning.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Conditions for snapshots")]
pub struct UnnamedFilterArgs {
    /// Only snapshots of this host; may be given several times
    #[arg(long = "host", value_name = "HOST")]
    pub hosts: Vec<String>,

    /// Only snapshots of this source path, as `snapshots` shows it; may be given several times
    #[arg(long = "path", value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,

    /// Only snapshots with this tag, or with any value of this key; may be given several times, and
    /// all must match
    #[arg(long = "tag", value_name = "KEY[=VALUE]", value_parser = parse_filter_tag)]
    pub tags: Vec<String>,

    /// Only snapshots of this time or later, such as 2026-05-01, yesterday or 3d
    #[arg(long, value_name = "WHEN", value_parser = parse_since)]
    pub since: Option<Timestamp>,

    /// Only snapshots of this time or earlier; a day includes its end
    #[arg(long, value_name = "WHEN", value_parser = parse_until)]
    pub until: Option<Timestamp>,

    /// Only the newest COUNT of each series, which is a name on a host; counted after all other
    /// conditions
    #[arg(long, value_name = "COUNT")]
    pub latest: Option<usize>,
}

impl SnapshotFilterArgs {
    /// Returns the filter of these conditions.
    pub fn filter(&self) -> SnapshotFilter {
        let UnnamedFilterArgs { hosts, paths, tags, since, until, latest } = &self.others;
        SnapshotFilter {
            names: self.names.clone(),
            hosts: hosts.clone(),
            paths: paths.iter().map(|path| whole(path)).collect(),
            tags: tags.clone(),
            since: *since,
            until: *until,
            latest: *latest,
        }
    }
}

/// Returns a path in the form in which a snapshot records it. Sources that are no paths are
/// unchanged.
fn whole(path: &Path) -> PathBuf {
    match path.to_str() {
        Some(text) if text == "-" || text.starts_with("command:") => path.into(),
        _ => std::path::absolute(path).unwrap_or_else(|_| path.into()),
    }
}
