//! Views from Btrfs: a read-only snapshot of the subvolume, beside its contents.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::undo::SUBVOLUME_INODE;
use super::{FreezeOrder, FrozenView, UndoStep, refuse_other, tool};
use crate::config::FROZEN_PREFIX;

/// The number of Btrfs in the kernel.
const BTRFS: u64 = 0x9123_683e;

pub(super) fn freeze(
    order: &FreezeOrder<'_>,
    source: &Path,
    note: &mut dyn FnMut(&[UndoStep]) -> Result<()>,
) -> Result<FrozenView> {
    let subvolume = subvolume_of(source)?;
    if !order.has_one_file_system {
        refuse_other(nested(&subvolume, source)?.as_deref())?;
    }
    let view = subvolume.join(format!(".{}", order.name));
    let step = UndoStep::Subvolume(view.clone());
    // A run whose note is lost may have left it.
    step.apply()?;
    note(std::slice::from_ref(&step))?;
    let words = ["subvolume", "snapshot", "-r"].map(AsRef::as_ref);
    tool::run("btrfs", words.into_iter().chain([subvolume.as_os_str(), view.as_os_str()]))?;
    let inside = source.strip_prefix(&subvolume).unwrap_or(Path::new(""));
    let path = if inside.as_os_str().is_empty() { view } else { view.join(inside) };
    Ok(FrozenView { path })
}

/// Returns the top of the subvolume that a path is in.
fn subvolume_of(source: &Path) -> Result<PathBuf> {
    let kind = rustix::fs::statfs(source).with_context(|| source.display().to_string())?.f_type;
    #[expect(clippy::cast_sign_loss, reason = "the number is a bit pattern")]
    if kind as u64 != BTRFS {
        bail!("{} is not on Btrfs, so freeze = \"btrfs\" cannot be used", source.display());
    }
    let device = fs::metadata(source)?.dev();
    for folder in source.ancestors() {
        let found = fs::metadata(folder)?;
        if found.dev() != device {
            break;
        }
        if found.is_dir() && found.ino() == SUBVOLUME_INODE {
            return Ok(folder.to_owned());
        }
    }
    bail!("the subvolume of {} is not mounted as a whole, so it cannot be frozen", source.display())
}

/// Returns a subvolume below the source. A snapshot has an empty folder in its place.
fn nested(subvolume: &Path, source: &Path) -> Result<Option<PathBuf>> {
    let words = |verb| ["subvolume".as_ref(), verb, subvolume.as_os_str()];
    let shown = tool::run("btrfs", words("show".as_ref()))?;
    let own = shown.lines().next().unwrap_or_default().trim().trim_matches('/').to_owned();
    let listed =
        tool::run("btrfs", ["subvolume".as_ref(), "list".as_ref(), "-o".as_ref(), subvolume.as_os_str()])?;
    let paths = listed.lines().filter_map(|line| line.split_once(" path ").map(|(_, path)| Path::new(path)));
    // The paths begin at the top of the whole file system.
    let below = paths.filter_map(|path| path.strip_prefix(&own).ok()).map(|path| subvolume.join(path));
    let is_view = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&format!(".{FROZEN_PREFIX}"))
    };
    Ok(below.into_iter().find(|path| path.starts_with(source) && !is_view(path)))
}
