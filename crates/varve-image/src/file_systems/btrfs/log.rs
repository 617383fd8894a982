//! Logs: changes that `fsync` wrote after the last commit, in a tree for each subvolume. A mount
//! applies them, and this reader shows them as if they were applied.

use std::collections::BTreeMap;

use super::key::{TreeKey, kind, object};
use super::replay::LogReplay;
use super::subvolumes::{Subvolumes, root_of};
use super::tree_patch::TreePatch;
use super::tree_root::TreeRoot;
use super::trees::{TreeItem, Trees};
use crate::file_systems::file_system::FileSystemError;

/// More files than this are not counted.
const FILES_MAX: usize = 100_000;
/// The most memory that the changes of all logs may need.
const PATCH_BYTES_MAX: u64 = 256 << 20;

/// The changes of all logs.
#[derive(Default)]
pub(super) struct ReplayedLogs {
    /// By the address of the root of the subvolume.
    pub(super) patches: BTreeMap<u64, TreePatch>,
    /// Logs with checksums of data.
    pub(super) checksums: Vec<TreeRoot>,
    /// A message for each log that is not shown.
    pub(super) warnings: Vec<String>,
}

impl ReplayedLogs {
    /// Replays all logs in memory.
    pub(super) fn of(trees: &Trees) -> Self {
        let mut logs = Self::default();
        let Some(log_root) = trees.superblock().log_root else { return logs };
        let key = |subvolume| TreeKey::new(object::LOGS, kind::ROOT, subvolume);
        let mut room = PATCH_BYTES_MAX;
        for item in trees.range(&log_root, key(0), key(u64::MAX)) {
            match item.and_then(|item| logs.add(trees, &item, room)) {
                Ok(bytes) => room = room.saturating_sub(bytes),
                Err(error) => logs.warnings.push(format!(
                    "it was in use, and a log with changes that fsync wrote after the last commit \
                     cannot be read, so they are not shown: {error}"
                )),
            }
            // More of them say no more.
            if logs.warnings.len() > 3 {
                break;
            }
        }
        logs
    }

    /// Replays a log. Returns the memory that its changes need.
    fn add(&mut self, trees: &Trees, item: &TreeItem, room: u64) -> Result<u64, FileSystemError> {
        let id = item.key().offset;
        let (log, _) = root_of(item, id)?;
        let subvolume = match Subvolumes::new().get(trees, id) {
            // The subvolume is being deleted.
            Err(FileSystemError::Absent { .. }) => return Ok(0),
            found => found?,
        };
        match LogReplay::run(trees, &subvolume, log, room) {
            Ok(patch) => {
                let bytes = patch.bytes();
                self.patches.insert(subvolume.root.logical, patch);
                let key = |logical| TreeKey::new(object::CHECKSUMS, kind::CHECKSUMS, logical);
                if trees.range(&log, key(0), key(u64::MAX)).next().is_some() {
                    self.checksums.push(log);
                }
                Ok(bytes)
            }
            Err(error) => {
                let files = match count_files(trees, &log) {
                    Ok(1) => "1 file".to_owned(),
                    Ok(count) if count < FILES_MAX => format!("{count} files and folders"),
                    _ => "an unknown number of files and folders".to_owned(),
                };
                self.warnings.push(format!(
                    "it was in use: changes of {files} that fsync wrote after the last commit are not \
                     shown: {error}"
                ));
                Ok(0)
            }
        }
    }
}

/// Returns the number of inodes in a log.
fn count_files(trees: &Trees, log: &TreeRoot) -> Result<usize, FileSystemError> {
    let mut count = 0_usize;
    for item in trees.items(log) {
        count = count.saturating_add(usize::from(item?.key().kind == kind::INODE));
        if count >= FILES_MAX {
            break;
        }
    }
    Ok(count)
}
