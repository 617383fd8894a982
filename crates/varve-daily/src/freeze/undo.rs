//! The removal of frozen views.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::mount_table::MountTable;
use super::tool;
use crate::config::FROZEN_PREFIX;

/// The inode number of the top of each Btrfs subvolume.
pub(super) const SUBVOLUME_INODE: u64 = 256;

/// A step that removes a part of a frozen view. A part that is gone needs no step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoStep {
    /// Deletes a Btrfs snapshot.
    Subvolume(PathBuf),
    /// Unmounts a volume, and removes its mount point.
    Mount(PathBuf),
    /// Removes a snapshot volume: `GROUP/NAME`.
    Volume(String),
}

impl UndoStep {
    /// Does the step.
    ///
    /// # Errors
    /// When a program fails. The step may be repeated.
    pub fn apply(&self) -> Result<()> {
        self.require_own()?;
        match self {
            Self::Subvolume(path) => delete_subvolume(path),
            Self::Mount(path) => unmount(path),
            Self::Volume(name) => remove_volume(name),
        }
        .with_context(|| format!("the frozen view {} was not removed", self.place()))
    }

    /// Returns the reason why the view is no longer whole: a snapshot volume has a limited room for
    /// changes of its origin, and gives errors once it is used up.
    #[must_use]
    pub fn fault(&self) -> Option<&'static str> {
        let Self::Volume(name) = self else { return None };
        let shown = tool::run("lvs", ["--noheadings", "-o", "lv_attr", name]).ok()?;
        has_overflowed(&shown).then_some(
            "too much of the volume was changed while its frozen view was read: the room of the view was used up",
        )
    }

    fn place(&self) -> String {
        match self {
            Self::Subvolume(path) | Self::Mount(path) => path.display().to_string(),
            Self::Volume(name) => name.clone(),
        }
    }

    /// Refuses anything that has not the name of a view, whatever a damaged note says.
    fn require_own(&self) -> Result<()> {
        let place = self.place();
        let last = place.rsplit('/').next().unwrap_or_default();
        if !last.trim_start_matches('.').starts_with(FROZEN_PREFIX) {
            bail!("{place} is not the name of a frozen view");
        }
        Ok(())
    }

    /// Returns the form in the note.
    #[must_use]
    pub fn as_json(&self) -> Value {
        match self {
            Self::Subvolume(path) => json!({ "subvolume": path.to_str() }),
            Self::Mount(path) => json!({ "mount": path.to_str() }),
            Self::Volume(name) => json!({ "volume": name }),
        }
    }

    /// Reads the form in the note; `None` if it is not understood.
    #[must_use]
    pub fn from_json(value: &Value) -> Option<Self> {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let subvolume = text("subvolume").map(|path| Self::Subvolume(path.into()));
        let mount = text("mount").map(|path| Self::Mount(path.into()));
        subvolume.or(mount).or(text("volume").map(Self::Volume))
    }
}

fn delete_subvolume(path: &Path) -> Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.is_dir() || found.ino() != SUBVOLUME_INODE {
        bail!("it is not a Btrfs subvolume");
    }
    tool::run("btrfs", ["subvolume".as_ref(), "delete".as_ref(), path.as_os_str()]).map(drop)
}

fn unmount(path: &Path) -> Result<()> {
    if MountTable::read()?.is_point(path) {
        tool::run("umount", [path])?;
    }
    match fs::remove_dir(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn remove_volume(name: &str) -> Result<()> {
    // Without the volume, there is nothing to remove.
    if tool::run("lvs", ["--noheadings", "-o", "lv_name", name]).is_err() {
        return Ok(());
    }
    tool::run("lvremove", ["--yes", name]).map(drop)
}

/// Parses the attributes of a snapshot volume. The fifth letter is its state: `I` and `S` are those
/// of an invalid one.
fn has_overflowed(attributes: &str) -> bool {
    matches!(attributes.trim().as_bytes().get(4), Some(b'I' | b'S'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overflow_is_in_the_attributes() {
        for (attributes, is_over) in [
            ("  swi-I-s---\n", true),
            ("swi-S-s---", true),
            ("swi-a-s---", false),
            ("Vwi-a-tz--", false),
            ("", false),
        ] {
            assert_eq!(has_overflowed(attributes), is_over, "{attributes:?}");
        }
    }

    #[test]
    fn steps_come_back_as_they_were_noted_and_are_only_for_views() {
        let steps = [
            UndoStep::Subvolume("/home/.varve-frozen-1".into()),
            UndoStep::Mount("/var/lib/varve/varve-frozen-1".into()),
            UndoStep::Volume("group/varve-frozen-1".into()),
        ];
        for step in steps {
            assert_eq!(UndoStep::from_json(&step.as_json()), Some(step));
        }
        assert_eq!(UndoStep::from_json(&json!({ "folder": "/" })), None);
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join(".varve-frozen-1");
        UndoStep::Subvolume(inside.clone()).apply().unwrap();
        fs::create_dir(&inside).unwrap();
        let refused = UndoStep::Subvolume(inside.clone()).apply().unwrap_err();
        assert!(format!("{refused:#}").contains("not a Btrfs subvolume"), "{refused:#}");
        UndoStep::Mount(inside.clone()).apply().unwrap();
        assert!(!inside.exists());
        for step in [UndoStep::Subvolume("/home".into()), UndoStep::Volume("group/home".into())] {
            assert!(step.apply().unwrap_err().to_string().contains("not the name of a frozen view"));
        }
    }
}
