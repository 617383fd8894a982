//! Restoring: creates a tree of a snapshot at a new place, or merges it into an existing folder.
//!
//! ```text
//! new place      parent/ ─┬─ .NAME.varve-partial-0   <─ created here; the next run continues here
//!                         └─ NAME                    <─ renamed once complete and durable
//! empty folder   NAME/ ───── .NAME.varve-partial-0   <─ created here, and then moved up
//! merge          NAME/… ──┬─ .FILE.varve-partial-0   <─ one file at a time
//!                         └─ FILE                    <─ renamed once complete and durable
//! ```
//!
//! All three take the same [steps], which follow the same [rules](decision). A plan shows the
//! steps.

mod apply;
mod attributes;
mod decision;
mod delete;
mod destination;
mod entry;
mod files;
mod flag_giver;
mod guards;
mod locked;
mod move_into_place;
mod options;
mod plan;
mod read_back;
mod steps;
mod tree;
mod walk_progress;

use std::error::Error;
use std::io;
use std::path::PathBuf;

pub use self::apply::restore_folder;
pub use self::decision::{RestoreAction, RestoreReason};
pub use self::locked::LockedEntry;
pub use self::options::{Overwrite, RestoreFilter, RestoreOptions};
pub use self::plan::{PlanCounts, PlannedEntry, plan_restore};
pub use self::read_back::read_back;
use crate::records::node::NodeKind;

/// The counts of a restore.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RestoreCounts {
    /// Nodes that were written and are not folders.
    pub file_count: u64,
    /// Folders, including those that existed before.
    pub folder_count: u64,
    /// Bytes in files that were written, including holes. A file with several names counts once.
    pub bytes: u64,
    /// Files, links and special files that existed and stayed unchanged.
    pub kept_count: u64,
    /// Existing nodes whose owner, mode, times or attributes were set.
    pub attributes_count: u64,
    /// Nodes that were removed because the snapshot does not have them.
    pub deleted_count: u64,
    /// Files and folders that are missing or incomplete, or that should have been removed and were
    /// not.
    pub problem_count: u64,
    /// Files and folders that lack a flag that `chattr` sets. This is no problem.
    pub lacking_flags_count: u64,
    /// True if nothing was removed, because the restore was incomplete.
    pub is_delete_withheld: bool,
}

/// Why nothing was restored, or not at its place.
#[derive(Debug, thiserror::Error)]
pub enum RestoreFolderError {
    /// The destination exists.
    #[error("{} exists", path.display())]
    Exists { path: PathBuf },
    /// The destination cannot be written into or replaced: it is, or contains, a path that must
    /// stay.
    #[error("{} cannot be written to or replaced: {} must stay", path.display(), kept.display())]
    Holds {
        path: PathBuf,
        /// The path that must stay.
        kept: PathBuf,
    },
    /// The destination holds another store.
    #[error("{} is a Varve store: restore elsewhere", path.display())]
    Store {
        /// The path of the store.
        path: PathBuf,
    },
    /// The destination cannot be replaced: its removal would cross into another file system.
    #[error("{} cannot be replaced: a file system is mounted at {}; unmount it first, or restore elsewhere", path.display(), at.display())]
    Mounted {
        path: PathBuf,
        /// The mount point of the other file system.
        at: PathBuf,
    },
    /// The destination is a node of another kind.
    #[error("{} is a {there}, and is not replaced by a {kind}", path.display())]
    OtherKind {
        path: PathBuf,
        /// The kind of the destination.
        there: NodeKind,
        /// The kind of the node in the snapshot.
        kind: NodeKind,
    },
    /// The restore is complete except for reported problems, but could not be moved to its final
    /// name.
    #[error("the result cannot be moved to {}; it is complete, and stays at {}", path.display(), finished.display())]
    Unplaced {
        path: PathBuf,
        /// The path of the result.
        finished: PathBuf,
        source: Box<dyn Error + Send + Sync>,
    },
    /// The path does not name an entry of a folder, for example `/` or `..`.
    #[error("{} is not a name that can be created", path.display())]
    NoName { path: PathBuf },
    /// The destination cannot be created.
    #[error("{} cannot be restored to", path.display())]
    Destination { path: PathBuf, source: io::Error },
    /// The disk is full or gone. The next run continues from the work done.
    #[error("{}{}", not_written(path), unfinished_note(unfinished.as_ref()))]
    Stopped {
        /// The file that was being written. Empty if the restore is of a single file.
        path: PathBuf,
        /// The path of the unfinished restore. `None` if each file of the destination is the old or
        /// the new one.
        unfinished: Option<PathBuf>,
        source: io::Error,
    },
    /// [`Progress::cancel`](crate::Progress::cancel) was called.
    #[error("interrupted{}", unfinished_note(unfinished.as_ref()))]
    Cancelled {
        /// The path of the unfinished restore. `None` if each file of the destination is the old or
        /// the new one.
        unfinished: Option<PathBuf>,
    },
}

fn not_written(path: &std::path::Path) -> String {
    match path.as_os_str().is_empty() {
        true => "it cannot be written".into(),
        false => format!("{} cannot be written", path.display()),
    }
}

fn unfinished_note(unfinished: Option<&PathBuf>) -> String {
    match unfinished {
        Some(path) => format!(
            ": the restore is not finished; the finished part is kept at {}, and the same command continues from there",
            path.display()
        ),
        None => ": the restore is not finished; every file is either the old or the new one".into(),
    }
}
