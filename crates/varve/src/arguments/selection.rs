//! The options that select the contents of a folder snapshot.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::value::{parse_exclude, parse_size};

/// Contents of a folder.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Contents of a folder")]
pub struct SelectionArgs {
    /// Leave out entries that match this pattern, as in a .gitignore file; may be given several
    /// times
    ///
    /// The last matching pattern decides, and a pattern with `!` includes again. A pattern with a
    /// `/` at its front or in its middle is relative to the source. A pattern that begins with the
    /// absolute path of a source applies to that source alone.
    #[arg(long = "exclude", value_name = "PATTERN", value_parser = parse_exclude)]
    pub excludes: Vec<String>,

    /// The same, ignoring the case of letters; comes after all --exclude
    #[arg(long = "iexclude", value_name = "PATTERN", value_parser = parse_exclude)]
    pub iexcludes: Vec<String>,

    /// Leave out entries that match the patterns in this file, one on each line; comes before all
    /// --exclude
    #[arg(long = "exclude-file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub exclude_files: Vec<PathBuf>,

    /// Leave out files of more bytes than this, such as 4G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub exclude_larger_than: Option<u64>,

    /// Archive nothing else of a folder that contains this name, such as .nobackup; may be given
    /// several times
    #[arg(long, value_name = "NAME", value_parser = parse_tag_name)]
    pub exclude_if_present: Vec<String>,

    /// Leave out folders that another program has marked as a cache (CACHEDIR.TAG)
    #[arg(long)]
    pub exclude_caches: bool,

    /// Archive only the paths in this list, one on each line; `-` reads the list from standard
    /// input
    ///
    /// Paths are relative to the source, or absolute and below it, and are not patterns. A folder
    /// in the list is archived with all its contents. A path that does not exist counts as a file
    /// that could not be read.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "files_from0")]
    pub files_from: Option<PathBuf>,

    /// The same, with a zero byte after each path, as `find -print0` writes them
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files_from0: Option<PathBuf>,

    /// Stay on the file system of the source
    #[arg(long)]
    pub one_file_system: bool,

    /// Also archive virtual file systems of the kernel, such as a mounted proc or sysfs, which are
    /// left empty otherwise
    ///
    /// A source that is itself on one of them is always archived.
    #[arg(long)]
    pub include_virtual: bool,

    /// List the entries that would be archived or left out, and archive nothing
    ///
    /// The store is not opened.
    #[arg(long, short = 'n', conflicts_with = "qmp")]
    pub dry_run: bool,
}

/// Parses the name of a file that may lie in a folder.
fn parse_tag_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains('/') || matches!(text, "." | "..") {
        return Err("write the name of a file, without a folder".into());
    }
    Ok(text.into())
}
