//! Restoring: a tree of a snapshot is made at a new place, or merged into a folder that is there.
//!
//! ```text
//! new place      parent/ ─┬─ .NAME.varve-partial-0   <─ everything is made here; an interrupted run is continued here
//!                         └─ NAME                    <─ renamed to this once it is whole and durable
//! empty folder   NAME/ ───── .NAME.varve-partial-0   <─ made here, and then moved up
//! merge          NAME/… ──┬─ .FILE.varve-partial-0   <─ one file at a time
//!                         └─ FILE                    <─ renamed to this once it is whole and durable
//! ```
//!
//! All three take the same [steps], which are decided by the same [rules](decision). A plan shows them.

mod apply;
mod attributes;
mod beside;
mod decision;
mod delete;
mod destination;
mod entry;
mod files;
mod flag_giver;
mod guards;
mod locked;
mod noting;
mod options;
mod plan;
mod read_back;
mod steps;
mod tree;

use std::error::Error;
use std::io;
use std::path::PathBuf;

pub use self::apply::restore_folder;
pub use self::decision::{Action, Reason};
pub use self::locked::Locked;
pub use self::options::{Overwrite, RestoreFilter, RestoreOptions};
pub use self::plan::{PlanCounts, PlannedEntry, plan_restore};
pub use self::read_back::read_back;
use crate::records::node::NodeKind;

/// How much was restored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RestoreCounts {
    /// Everything that was written and is not a folder.
    pub file_count: u64,
    /// Folders, those that were there before too.
    pub folder_count: u64,
    /// Bytes in files that were written, those in holes too; those of a file with several names once.
    pub bytes: u64,
    /// Files, links and the like that were there and have stayed as they were.
    pub kept_count: u64,
    /// Those that were there and have got owner, mode, times or attributes.
    pub attributes_count: u64,
    /// What was removed because the snapshot does not have it.
    pub deleted_count: u64,
    /// How many files or folders are missing, or lack something, or should be gone and are not.
    pub problem_count: u64,
    /// How many files and folders lack a flag that `chattr` sets. This is no problem.
    pub lacking_flags_count: u64,
    /// Whether nothing was removed, because not everything was restored.
    pub is_delete_withheld: bool,
}

/// Why nothing was restored, or not to where it should be.
#[derive(Debug, thiserror::Error)]
pub enum RestoreFolderError {
    /// There is something already.
    #[error("{} exists", path.display())]
    Exists {
        /// The destination.
        path: PathBuf,
    },
    /// What is there cannot be written into or replaced: it is, or holds, something that must stay.
    #[error("{} cannot be written to or replaced: {} must stay", path.display(), kept.display())]
    Holds {
        /// The destination.
        path: PathBuf,
        /// What must stay.
        kept: PathBuf,
    },
    /// Another store is there.
    #[error("{} is a Varve store, and nothing is restored into one", path.display())]
    Store {
        /// The store.
        path: PathBuf,
    },
    /// What is there cannot be replaced: its removal would go on in another file system.
    #[error("{} cannot be replaced: a file system is mounted at {}; unmount it first, or restore elsewhere", path.display(), at.display())]
    Mounted {
        /// The destination.
        path: PathBuf,
        /// Where the other one begins.
        at: PathBuf,
    },
    /// Something of another kind is there.
    #[error("{} is a {there}, which is not replaced by a {kind}", path.display())]
    OtherKind {
        /// The destination.
        path: PathBuf,
        /// What it is.
        there: NodeKind,
        /// What was to be restored.
        kind: NodeKind,
    },
    /// Everything is restored, but for what was reported, and could not get its name.
    #[error("what was restored cannot come to {}; it is complete, and stays at {}", path.display(), finished.display())]
    Unplaced {
        /// The destination.
        path: PathBuf,
        /// Where all of it is.
        finished: PathBuf,
        /// What kept it from its place.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A path such as `/` or `..`, that names nothing in a folder.
    #[error("{} is not a name that can be made", path.display())]
    NoName {
        /// The destination.
        path: PathBuf,
    },
    /// The destination cannot be made.
    #[error("{} cannot be restored to", path.display())]
    Destination {
        /// The destination.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The disk was full, or gone. What was done so far serves the next run.
    #[error("{}{}", not_written(path), unfinished_note(unfinished.as_ref()))]
    Stopped {
        /// The file at which it was; empty if it is all that is restored.
        path: PathBuf,
        /// Where the unfinished restore lies; `None`: each file of the destination is the old or the new one.
        unfinished: Option<PathBuf>,
        /// What the system says.
        source: io::Error,
    },
    /// [`Progress::cancel`](crate::Progress::cancel) was called.
    #[error("interrupted{}", unfinished_note(unfinished.as_ref()))]
    Cancelled {
        /// Where the unfinished restore lies; `None`: each file of the destination is the old or the new one.
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
            ": the restore is not finished; what is done is kept at {}, and the same command goes on from there",
            path.display()
        ),
        None => ": the restore is not finished; every file is either the old or the new one".into(),
    }
}
