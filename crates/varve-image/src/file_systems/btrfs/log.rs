//! Logs: changes that `fsync` wrote after the last commit, in a tree for each subvolume. A mount
//! applies them. This reader shows the state of the last commit, and tells how much is newer.

use super::key::{TreeKey, kind, object};
use super::subvolumes::root_of;
use super::trees::Trees;
use crate::FileSystemError;

/// More files than this are not counted.
const FILES_MAX: usize = 100_000;

/// Returns a warning if there are logs.
pub(super) fn warning(trees: &Trees) -> Option<String> {
    let counted = count_files(trees)?;
    let files = match counted {
        Ok(1) => "1 file".to_owned(),
        Ok(count) if count < FILES_MAX => format!("{count} files and folders"),
        _ => "an unknown number of files and folders".to_owned(),
    };
    Some(format!("it was in use: changes of {files} that fsync wrote after the last commit are not shown"))
}

/// Returns the number of inodes in all logs; `None` if there are no logs.
fn count_files(trees: &Trees) -> Option<Result<usize, FileSystemError>> {
    let log_root = trees.superblock().log_root?;
    let key = |subvolume| TreeKey::new(object::LOGS, kind::ROOT, subvolume);
    let mut count = 0_usize;
    for item in trees.range(&log_root, key(0), key(u64::MAX)) {
        let counted = item.and_then(|item| {
            let (root, _) = root_of(&item, item.key().offset)?;
            let all = trees.range(&root, TreeKey::new(0, 0, 0), TreeKey::new(u64::MAX, u8::MAX, u64::MAX));
            for item in all {
                count = count.saturating_add(usize::from(item?.key().kind == kind::INODE));
                if count >= FILES_MAX {
                    break;
                }
            }
            Ok(())
        });
        if let Err(error) = counted {
            return Some(Err(error));
        }
    }
    Some(Ok(count))
}
