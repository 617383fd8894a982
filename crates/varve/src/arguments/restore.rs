//! The arguments of `varve restore`.

use std::ffi::OsString;
use std::path::Path;

use clap::{ArgGroup, Args, ValueEnum, ValueHint};
use varve_content::folder::Overwrite;
use varve_machine::ImageFormat;

use super::SnapshotFilterArgs;
use super::value::{parse_exclude, parse_format};

#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("merge").args(["overwrite", "in_place"]).multiple(true)))]
pub struct RestoreArgs {
    /// The snapshots, or paths in them, and at the end the destination: a file, a folder or a block
    /// device; `-` for standard output
    ///
    /// Several snapshots go into the folder DEST, each under its own name. A destination that ends
    /// with a slash, or is `.`, is a folder into which the snapshot goes under its own name.
    #[arg(required = true, value_name = "SNAPSHOT[:PATH]... DEST", value_hint = ValueHint::AnyPath)]
    operands: Vec<OsString>,

    /// Restore to where it came from, on the same host, and name no DEST
    ///
    /// First lists the changes, and asks. Files that differ are replaced (--overwrite if-changed);
    /// files that the snapshot does not have stay.
    #[arg(long)]
    pub in_place: bool,

    /// Merge into an existing destination, and replace a file always, if it differs in size or
    /// time, if the snapshot's is newer, or never
    ///
    /// Files that the snapshot does not have stay. Each file is replaced in one step, which needs
    /// space for both files. Without this option the destination must be new, or an empty folder.
    /// Images are compared byte by byte with if-changed, and are as new as their snapshot. A block
    /// device is written to only with always.
    #[arg(long, value_name = "MODE", value_enum)]
    overwrite: Option<OverwriteChoice>,

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
    #[arg(long, requires = "merge")]
    pub delete: bool,

    /// Do not ask before entries are removed, or changed in place
    #[arg(long)]
    pub yes: bool,

    /// Allow a file to replace a folder with all its contents, and a folder to replace a file
    #[arg(long, requires = "merge")]
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

impl RestoreArgs {
    /// Returns the arguments that write a snapshot, or a file in it, to standard output.
    pub fn to_output(snapshot: OsString, which: SnapshotFilterArgs) -> Self {
        Self {
            operands: vec![snapshot, OUTPUT.into()],
            in_place: false,
            overwrite: None,
            dry_run: false,
            includes: Vec::new(),
            excludes: Vec::new(),
            delete: false,
            yes: false,
            replace_types: false,
            verify: false,
            keep_damaged: false,
            format: ImageFormat::Raw,
            which,
        }
    }

    /// Returns the named snapshots, and paths in them.
    pub fn snapshots(&self) -> &[OsString] {
        let count = if self.in_place { self.operands.len() } else { self.operands.len().saturating_sub(1) };
        self.operands.get(..count).unwrap_or_default()
    }

    /// Returns the named destination; `None` with `--in-place`.
    pub fn destination(&self) -> Option<&Path> {
        self.operands.last().filter(|_| !self.in_place).map(Path::new)
    }

    /// Returns the condition under which existing files are replaced.
    pub fn overwrite(&self) -> Option<Overwrite> {
        let usual = self.in_place.then_some(Overwrite::IfChanged);
        self.overwrite.map(Overwrite::from).or(usual)
    }
}

/// The destination that means standard output.
pub const OUTPUT: &str = "-";

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
