//! Restoring: what can be asked for, and what comes of it.
//!
//! ```text
//! parent/ ─┬─ .NAME.varve-partial-0   <─ everything is made here, seen by its owner alone
//!          └─ NAME                    <─ renamed to this once it is complete and survives power loss
//! ```

mod attributes;
mod destination;
mod files;
mod replaced;
mod tree;

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use varve_world::Workers;

use self::attributes::Attributes;
use self::destination::Destination;
use self::files::FileWriter;
use self::tree::TreeWriter;
use super::pipeline;
use super::watch::Watch;
use crate::files::Files;
use crate::node::{Node, NodeKind};

/// How a node is restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoreOptions<'a> {
    /// Whether what is at the destination is replaced, a folder with all that it holds.
    pub overwrite: bool,
    /// Files and folders that must stay: nothing is replaced that one of them is, or is in. The store itself is such.
    pub kept: &'a [PathBuf],
    /// Whether owners and groups are restored, and the attributes that only root may set. Without, what would run as
    /// somebody else loses its setuid and setgid bits.
    pub owners: bool,
}

impl Default for RestoreOptions<'_> {
    /// Overwrites nothing, and restores owners if the process may.
    fn default() -> Self {
        Self { overwrite: false, kept: &[], owners: rustix::process::geteuid().is_root() }
    }
}

/// How much was restored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RestoreCounts {
    /// All that is not a folder.
    pub file_count: u64,
    /// Folders.
    pub folder_count: u64,
    /// Bytes in files, those in holes too; those of a file with several names once.
    pub bytes: u64,
    /// How many files or folders are missing, or lack something, or should be gone and are not.
    pub problem_count: u64,
    /// Whether what was replaced is not all removed. One of the problems, too.
    pub is_old_left: bool,
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
    /// What is there cannot be replaced: something is in it that must stay.
    #[error("{} cannot be replaced: {} would be removed with it", path.display(), kept.display())]
    Holds {
        /// The destination.
        path: PathBuf,
        /// What must stay.
        kept: PathBuf,
    },
    /// What is there cannot be replaced: its removal would go on in another file system.
    #[error("{} cannot be replaced: a file system is mounted at {}; unmount it first, or restore elsewhere", path.display(), at.display())]
    Mounted {
        /// The destination.
        path: PathBuf,
        /// Where the other one begins.
        at: PathBuf,
    },
    /// A device, fifo or socket is there, and something else was to be restored.
    #[error("{} is a {there}, which is not replaced by a {kind}", path.display())]
    OtherKind {
        /// The destination.
        path: PathBuf,
        /// What it is.
        there: NodeKind,
        /// What was to be restored.
        kind: NodeKind,
    },
    /// All is restored, as far as it was not reported, but could not get its name.
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
    /// [`Progress::cancel`](crate::Progress::cancel) was called.
    #[error("interrupted")]
    Cancelled,
}

/// Restores a node, and all below it, to `destination`; its own name does not matter.
///
/// The destination comes into being whole, and after it survives power loss, or not at all. What is missing in the store, what cannot
/// be read in a file system, and what the system refuses, is reported and left out; the rest is restored. Holes come back as holes. Holds a bounded
/// number of files whatever their size, and a path for each file that has several names.
///
/// # Errors
/// [`RestoreFolderError`]: nothing has come into being, but for what [`RestoreFolderError::Unplaced`] names.
pub fn restore_folder(
    files: &dyn Files,
    workers: &dyn Workers,
    root: &Node,
    destination: &Path,
    options: RestoreOptions<'_>,
    watch: Watch<'_>,
) -> Result<RestoreCounts, RestoreFolderError> {
    let destination = Destination::prepare(destination, root.kind, options)?;
    let attributes = Attributes { owners: options.owners, may_inherit: root.kind != NodeKind::Folder };
    let writer = FileWriter { files, watch, attributes };
    let restored = pipeline::run(workers, &|job| writer.write(job), |pipeline| {
        TreeWriter::new(files, &writer, pipeline, watch).write(root, &destination)
    });
    match restored {
        Ok(counts) => {
            let is_old_left = destination.put_in_place(counts.problem_count == 0, watch)?;
            let problem_count = counts.problem_count + u64::from(is_old_left);
            Ok(RestoreCounts { problem_count, is_old_left, ..counts })
        }
        Err(error) => {
            destination.discard();
            Err(error)
        }
    }
}
