//! The arguments of `varve restore`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use varve_content::folder::Overwrite;
use varve_machine::ImageFormat;

use super::SnapshotFilterArgs;
use super::value::{parse_exclude, parse_format};

#[derive(Debug, Clone, Args)]
pub struct RestoreArgs {
    /// The snapshots, or paths in them; several go into the folder DEST, each under its own name
    #[arg(required = true, value_name = "SNAPSHOT[:PATH]")]
    pub snapshots: Vec<OsString>,

    /// The destination: a file, a folder or a block device; `-` for standard output
    ///
    /// A destination that ends with a slash, or is `.`, is a folder into which the snapshot goes
    /// under its own name.
    #[arg(value_name = "DEST", value_hint = ValueHint::AnyPath)]
    pub destination: PathBuf,

    /// Merge into an existing destination, and replace a file always, if it differs in size or
    /// time, if the snapshot's is newer, or never
    ///
    /// Files that the snapshot does not have stay. Each file is replaced in one step, which needs
    /// space for both files. Without this option the destination must be new, or an empty folder.
    /// Images are compared byte by byte with if-changed, and are as new as their snapshot. A block
    /// device is written to only with always.
    #[arg(long, value_name = "MODE", value_enum)]
    pub overwrite: Option<OverwriteChoice>,

    /// Show the changes, and make none
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Restore only entries that match this pattern, as in a .gitignore file at the root of the
    /// restored folder; may be given several times
    #[arg(long = "include", value_name = "PATTERN", value_parser = parse_exclude)]
    pub includes: Vec<String>,

    /// Leave out entries that match this pattern; may be given several times
    #[arg(long = "exclude", value_name = "PATTERN", value_parser = parse_exclude)]
    pub excludes: Vec<String>,

    /// Also remove entries of the destination that the snapshot does not have, except those that
    /// --exclude matches
    ///
    /// First lists the entries to be removed, and asks. Nothing is removed before everything is
    /// restored.
    #[arg(long, requires = "overwrite")]
    pub delete: bool,

    /// Do not ask before entries are removed
    #[arg(long)]
    pub yes: bool,

    /// Allow a file to replace a folder with all its contents, and a folder to replace a file
    #[arg(long, requires = "overwrite")]
    pub replace_types: bool,

    /// Read everything back from the disk, and compare it
    #[arg(long)]
    pub verify: bool,

    /// Also restore files and images that are damaged in the archive, with zeros for unreadable
    /// bytes
    ///
    /// The ranges are listed, also in a file DEST.damaged. The exit status is then 5.
    #[arg(long)]
    pub keep_damaged: bool,

    /// The format of the restored disk image: raw, qcow2, vmdk, vhdx, vdi or vhd
    ///
    /// All formats but raw need QEMU's tools.
    #[arg(long, value_name = "FORMAT", default_value = "raw", value_parser = parse_format)]
    pub format: ImageFormat,

    #[command(flatten)]
    pub which: SnapshotFilterArgs,
}

/// The condition for the replacement of an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OverwriteChoice {
    /// Replace every file
    Always,
    /// Replace files that differ in kind, size or time of change
    IfChanged,
    /// Replace files that are newer in the snapshot
    IfNewer,
    /// Add missing files, and replace nothing
    Never,
}

impl From<OverwriteChoice> for Overwrite {
    fn from(choice: OverwriteChoice) -> Self {
        match choice {
            OverwriteChoice::Always => Self::Always,
            OverwriteChoice::IfChanged => Self::IfChanged,
            OverwriteChoice::IfNewer => Self::IfNewer,
            OverwriteChoice::Never => Self::Never,
        }
    }
}
