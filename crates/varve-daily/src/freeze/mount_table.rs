//! The mounted file systems of this process.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const TABLE: &str = "/proc/self/mountinfo";

/// The mounted file systems.
pub(super) struct MountTable(Vec<MountEntry>);

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MountEntry {
    /// The folder of the file system that is shown at `at`.
    pub(super) root: PathBuf,
    pub(super) at: PathBuf,
    /// Its kind, such as `ext4`.
    pub(super) kind: String,
    pub(super) device: PathBuf,
}

impl MountTable {
    pub(super) fn read() -> Result<Self> {
        Ok(Self::parse(&std::fs::read_to_string(TABLE).context(TABLE)?))
    }

    fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(MountEntry::parse).collect())
    }

    /// Returns the mount points below a folder, without itself.
    pub(super) fn below(&self, folder: &Path) -> impl Iterator<Item = &Path> {
        let points = self.0.iter().map(|mount| mount.at.as_path());
        points.filter(move |at| *at != folder && at.starts_with(folder))
    }

    /// Returns the file system that a path is on. Of several mounts at one place, the last one is
    /// visible.
    pub(super) fn of(&self, path: &Path) -> Option<&MountEntry> {
        let holding = self.0.iter().filter(|mount| path.starts_with(&mount.at));
        holding.max_by_key(|mount| mount.at.components().count())
    }

    /// Reports whether something is mounted at a folder.
    pub(super) fn is_point(&self, folder: &Path) -> bool {
        self.0.iter().any(|mount| mount.at == folder)
    }
}

impl MountEntry {
    /// Parses a line: `36 35 98:0 /root /at rw,noatime master:1 - ext3 /dev/root rw`.
    fn parse(line: &str) -> Option<Self> {
        let (own, other) = line.split_once(" - ")?;
        let mut own = own.split(' ').skip(3);
        let mut other = other.split(' ');
        Some(Self {
            root: unescape(own.next()?),
            at: unescape(own.next()?),
            kind: other.next()?.to_owned(),
            device: unescape(other.next()?),
        })
    }
}

/// Replaces the octal escapes of blanks, tabs, line ends and backslashes.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits =
            after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        30 22 0:30 /@home /home rw shared:1 - btrfs /dev/vdb rw,subvol=/@home\n\
        31 30 0:31 / /home/my\\040disk rw - ext4 /dev/mapper/vg-data rw\n\
        nonsense\n";

    #[test]
    fn the_innermost_file_system_is_found() {
        let table = MountTable::parse(TEXT);
        let of = |path: &str| table.of(Path::new(path)).unwrap().clone();
        assert_eq!((of("/etc").kind.as_str(), of("/home/x").root.as_path()), ("ext4", Path::new("/@home")));
        assert_eq!(of("/home/my disk/letters").device, Path::new("/dev/mapper/vg-data"));
        assert_eq!(of("/homes").at, Path::new("/"));
        assert_eq!(table.below(Path::new("/home")).collect::<Vec<_>>(), [Path::new("/home/my disk")]);
        assert!(table.is_point(Path::new("/home")) && !table.is_point(Path::new("/home/x")));
    }

    #[test]
    fn escapes_that_are_none_stay() {
        for (text, path) in
            [("/a\\134b", "/a\\b"), ("/a\\9", "/a\\9"), ("/a\\", "/a\\"), ("/\\777", "/\\777")]
        {
            assert_eq!(unescape(text), Path::new(path), "{text}");
        }
    }
}
