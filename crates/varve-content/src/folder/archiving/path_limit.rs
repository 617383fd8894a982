//! The limit on the paths that are archived.
//!
//! Linux makes folders of any depth, and its own limit of 4,096 bytes is only that of a path in one
//! call. Each folder that the walk is in takes a descriptor and its path, and so does a restore.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use varve_block::to_usize;

use crate::records::node::NodeKind;

/// The longest path in a snapshot, in bytes: four times as long as a path in one call can be. So
/// folders are at most half as many inside each other.
pub const PATH_BYTES_MAX: usize = 16 << 10;
/// The most folders inside each other.
pub const FOLDER_DEPTH_MAX: usize = PATH_BYTES_MAX / 2;
/// The longest name on Linux, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// The longest target of a symbolic link on Linux, in bytes.
pub const TARGET_BYTES_MAX: usize = 4095;

/// The limits of a walk.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathLimit {
    /// The most folders inside each other, by the files that this process may open.
    open_count_max: usize,
}

/// A path is longer than this version archives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathTooLong {
    #[error("its path has {bytes} bytes, and those that are archived have at most {bytes_max}")]
    Bytes { bytes: usize, bytes_max: usize },
    #[error("it is {depth} folders deep, and this process may open too few files for that (`ulimit -n`)")]
    OpenFiles { depth: usize },
}

impl PathLimit {
    /// The limits of this process. Half of the files that it may open are for other uses.
    pub(super) fn of_process() -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self { open_count_max: to_usize(limit / 2) }
    }

    /// Checks the path of a name in a folder, which is inside of `depth` folders.
    pub(super) fn check(
        self,
        folder: &Path,
        depth: usize,
        name: &[u8],
        kind: NodeKind,
    ) -> Result<(), PathTooLong> {
        check_path_bytes(folder, name, kind)?;
        if kind == NodeKind::Folder && depth >= self.open_count_max {
            return Err(PathTooLong::OpenFiles { depth });
        }
        Ok(())
    }
}

/// Checks the length of the path of a name in a folder. The path of a folder leaves room for the
/// names in it, so that they are not reported one by one.
pub(super) fn check_path_bytes(folder: &Path, name: &[u8], kind: NodeKind) -> Result<(), PathTooLong> {
    let room = if kind == NodeKind::Folder { NAME_BYTES_MAX + 1 } else { 0 };
    let (bytes, bytes_max) = (folder.as_os_str().as_bytes().len() + 1 + name.len(), PATH_BYTES_MAX - room);
    if bytes > bytes_max { Err(PathTooLong::Bytes { bytes, bytes_max }) } else { Ok(()) }
}
