//! Views from LVM: a snapshot volume, which is mounted if the source is a folder in it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::mount_table::MountTable;
use super::{FreezeOrder, FrozenView, UndoStep, tool};

/// The room for changes while a volume is frozen, unless it is thin. A snapshot that overflows
/// gives errors, and the archive of it fails.
const ROOM: &str = "20%ORIGIN";

/// A logical volume.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LogicalVolume {
    group: String,
    name: String,
    is_thin: bool,
}

pub(super) fn freeze_disk(
    order: &FreezeOrder<'_>,
    disk: &Path,
    note: &mut dyn FnMut(&[UndoStep]) -> Result<()>,
) -> Result<FrozenView> {
    let path = freeze_volume(order, disk, &mut |step| note(std::slice::from_ref(step)))?;
    Ok(FrozenView { path })
}

pub(super) fn freeze_folder(
    order: &FreezeOrder<'_>,
    source: &Path,
    mounts: &MountTable,
    note: &mut dyn FnMut(&[UndoStep]) -> Result<()>,
) -> Result<FrozenView> {
    let mount = mounts.of(source).with_context(|| format!("{} is on no mounted volume", source.display()))?;
    if mount.kind == "btrfs" {
        bail!("{} is on Btrfs: use freeze = \"btrfs\"", source.display());
    }
    let unmount = UndoStep::Mount(order.mount_at.clone());
    unmount.apply()?;
    let mut note_volume = |step: &UndoStep| note(&[unmount.clone(), step.clone()]);
    let device = freeze_volume(order, &mount.device, &mut note_volume)?;
    fs::create_dir_all(&order.mount_at).with_context(|| order.mount_at.display().to_string())?;
    // A second file system with the same identity is refused by XFS.
    let options = if mount.kind == "xfs" { "ro,nosuid,nodev,nouuid" } else { "ro,nosuid,nodev" };
    let words = ["-t".as_ref(), mount.kind.as_ref(), "-o".as_ref(), options.as_ref()];
    tool::run("mount", words.into_iter().chain([device.as_os_str(), order.mount_at.as_os_str()]))?;
    let inside = source.strip_prefix(&mount.at).unwrap_or(Path::new(""));
    let root = mount.root.strip_prefix("/").unwrap_or(Path::new(""));
    let path = [root, inside].into_iter().filter(|part| !part.as_os_str().is_empty());
    let path = path.fold(order.mount_at.clone(), |path, part| path.join(part));
    Ok(FrozenView { path })
}

/// Makes a snapshot volume. Returns its device.
fn freeze_volume(
    order: &FreezeOrder<'_>,
    device: &Path,
    note: &mut dyn FnMut(&UndoStep) -> Result<()>,
) -> Result<PathBuf> {
    const COLUMNS: [&str; 5] = ["--noheadings", "--separator", "|", "-o", "vg_name,lv_name,pool_lv"];
    let shown = tool::run("lvs", COLUMNS.iter().map(AsRef::as_ref).chain([device.as_os_str()]))
        .with_context(|| {
            format!("{} is not a logical volume, so freeze = \"lvm\" cannot be used", device.display())
        })?;
    let volume = LogicalVolume::parse(&shown)
        .with_context(|| format!("lvs describes {} in an unknown form", device.display()))?;
    let step = UndoStep::Volume(format!("{}/{}", volume.group, order.name));
    // A run whose note is lost may have left it.
    step.apply()?;
    note(&step)?;
    tool::run("lvcreate", volume.snapshot_arguments(&order.name))?;
    Ok(Path::new("/dev").join(&volume.group).join(&order.name))
}

impl LogicalVolume {
    /// Parses a line of `lvs`.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find(|line| !line.trim().is_empty())?;
        let mut fields = line.trim().split('|');
        let (group, name) = (fields.next()?.to_owned(), fields.next()?.to_owned());
        let is_thin = fields.next().is_some_and(|pool| !pool.is_empty());
        (!group.is_empty() && !name.is_empty()).then_some(Self { group, name, is_thin })
    }

    fn snapshot_arguments(&self, name: &str) -> Vec<String> {
        let room: &[&str] = match self.is_thin {
            true => &["--setactivationskip", "n", "--activate", "y"],
            false => &["--extents", ROOM],
        };
        let words = [&["--yes", "--snapshot", "--name", name][..], room].concat();
        let own = format!("{}/{}", self.group, self.name);
        words.into_iter().map(str::to_owned).chain([own]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_told_apart() {
        let thick = LogicalVolume::parse("  group|data|\n").unwrap();
        assert!(!thick.is_thin);
        assert_eq!(
            thick.snapshot_arguments("view").join(" "),
            "--yes --snapshot --name view --extents 20%ORIGIN group/data"
        );
        let thin = LogicalVolume::parse("group|data|pool").unwrap();
        assert_eq!(
            thin.snapshot_arguments("view").join(" "),
            "--yes --snapshot --name view --setactivationskip n --activate y group/data"
        );
        for text in ["", "\n", "|data|", "group"] {
            assert_eq!(LogicalVolume::parse(text), None, "{text:?}");
        }
    }
}
