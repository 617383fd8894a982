//! Frozen views of sources: the state of one moment, from Btrfs or LVM, which a snapshot reads
//! while the source goes on changing.
//!
//! A view has a name that follows from the configuration and the source, so a run that was killed
//! leaves a view that the next run recognises. Each step is noted in the state folder before it is
//! done, and the next run undoes the noted ones.

mod btrfs;
mod lvm;
mod mount_table;
mod tool;
mod undo;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use self::mount_table::MountTable;
pub use self::undo::UndoStep;
use crate::config::FreezeKind;

/// A frozen view.
pub struct FrozenView {
    /// The path that has the contents of the source.
    pub path: PathBuf,
}

/// The order for a frozen view.
pub struct FreezeOrder<'a> {
    pub kind: FreezeKind,
    /// The folder, file or disk.
    pub source: &'a Path,
    pub is_disk: bool,
    /// True if other file systems below the source are left out.
    pub has_one_file_system: bool,
    /// The name of the view.
    pub name: String,
    /// The folder at which a volume is mounted.
    pub mount_at: PathBuf,
}

/// Makes a frozen view. Before each step, `note` gets all steps that remove the view.
///
/// # Errors
/// When the source is not on such a file system or volume, a part of it would be missing in the
/// view, or a program fails.
pub fn freeze(
    order: &FreezeOrder<'_>,
    note: &mut dyn FnMut(&[UndoStep]) -> Result<()>,
) -> Result<FrozenView> {
    let source = fs::canonicalize(order.source).with_context(|| order.source.display().to_string())?;
    let mounts = MountTable::read()?;
    if !order.is_disk && !order.has_one_file_system {
        let other = mounts.below(&source).map(Path::to_owned).next();
        refuse_other(other.as_deref())?;
    }
    match order.kind {
        FreezeKind::Btrfs => btrfs::freeze(order, &source, note),
        FreezeKind::Lvm if order.is_disk => lvm::freeze_disk(order, order.source, note),
        FreezeKind::Lvm => lvm::freeze_folder(order, &source, &mounts, note),
    }
}

/// Refuses a source with another file system in it, whose contents the view would lack.
fn refuse_other(other: Option<&Path>) -> Result<()> {
    let Some(other) = other else { return Ok(()) };
    bail!(
        "{} is a file system of its own, which the frozen view lacks: set one-file-system = true, and write a source for it",
        other.display()
    )
}
