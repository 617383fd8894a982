//! The arguments of `varve restore`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use varve_archive::Overwrite;
use varve_machine::ImageFormat;

use super::Which;
use super::value::{parse_exclude, parse_format};

#[derive(Debug, Clone, Args)]
pub struct Restore {
    /// What to restore: snapshots, or paths in them; several go into the folder DEST, each under
    /// its own name
    #[arg(required = true, value_name = "SNAPSHOT[:PATH]")]
    pub snapshots: Vec<OsString>,

    /// Where to: a file, a folder or a block device; `there/` or `.` for its own name in that
    /// folder; `-` for standard output
    #[arg(value_name = "DEST", value_hint = ValueHint::AnyPath)]
    pub destination: PathBuf,

    /// Merge into what is there, and replace a file always, if it differs in size or time, if the
    /// snapshot's is newer, or never
    ///
    /// Files that the snapshot does not have stay. Each file is replaced in one step, so it needs
    /// room for itself twice. Without this option the destination must be new, or an empty folder.
    /// Images are compared byte by byte with if-changed, and are as new as their snapshot. A block
    /// device is written to only with always.
    #[arg(long, value_name = "MODE", value_enum)]
    pub overwrite: Option<OverwriteChoice>,

    /// Show what would be done, and do nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Restore only what matches this pattern, as in a .gitignore file at the root of what is
    /// restored; may be given several times
    #[arg(long = "include", value_name = "PATTERN", value_parser = parse_exclude)]
    pub includes: Vec<String>,

    /// Leave out what matches this pattern; may be given several times
    #[arg(long = "exclude", value_name = "PATTERN", value_parser = parse_exclude)]
    pub excludes: Vec<String>,

    /// Also remove what the restored folder has and the snapshot does not; what --exclude matches
    /// stays
    ///
    /// First prints what goes, and asks. Nothing is removed before everything is restored.
    #[arg(long, requires = "overwrite")]
    pub delete: bool,

    /// Do not ask before anything is removed
    #[arg(long)]
    pub yes: bool,

    /// Allow a file to take the place of a folder with all that is in it, and a folder that of a
    /// file
    #[arg(long, requires = "overwrite")]
    pub replace_types: bool,

    /// Read everything back from the disk, and compare it
    #[arg(long)]
    pub verify: bool,

    /// Restore files and images that are damaged in the archive too, with zeros for the bytes that
    /// cannot be read
    ///
    /// The ranges are listed, also in a file DEST.damaged. The exit status is then 5.
    #[arg(long)]
    pub keep_damaged: bool,

    /// The format of the file that a disk image becomes: raw, qcow2, vmdk, vhdx, vdi or vhd; all
    /// but raw are made with QEMU's tools
    #[arg(long, value_name = "FORMAT", default_value = "raw", value_parser = parse_format)]
    pub format: ImageFormat,

    #[command(flatten)]
    pub which: Which,
}

/// When a file that is there is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OverwriteChoice {
    /// Write every file anew
    Always,
    /// Replace files that differ in kind, size or time of change
    IfChanged,
    /// Replace files that the snapshot has in a newer state
    IfNewer,
    /// Add what is missing, and replace nothing
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
