//! Restoring: what can be asked for, and what comes of it.
//!
//! ```text
//! parent/ ─┬─ .NAME.varve-partial-0   <─ everything is made here, seen by its owner alone
//!          └─ NAME                    <─ renamed to this once it is complete and survives power loss
//! ```

mod attributes;
mod destination;
mod files;
mod tree;

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
use crate::node::Node;

/// How a node is restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoreOptions {
    /// Whether what is at the destination is replaced, a folder with all that it holds.
    pub overwrite: bool,
    /// Whether owners and groups are restored, and the attributes that only root may set. Without, what would run as
    /// somebody else loses its setuid and setgid bits.
    pub owners: bool,
}

impl Default for RestoreOptions {
    /// Overwrites nothing, and restores owners if the process may.
    fn default() -> Self {
        Self { overwrite: false, owners: rustix::process::geteuid().is_root() }
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
    /// How many files or folders are missing, or lack something.
    pub problem_count: u64,
}

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreFolderError {
    /// There is something already.
    #[error("{} exists", path.display())]
    Exists {
        /// The destination.
        path: PathBuf,
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
    #[error("cancelled before the end")]
    Cancelled,
}

/// Restores a node, and all below it, to `destination`; its own name does not matter.
///
/// The destination comes into being whole, and after it survives power loss, or not at all. What is missing in the store, what cannot
/// be read in a file system, and what the system refuses, is reported and left out; the rest is restored. Holes come back as holes. Holds a bounded
/// number of files whatever their size, and a path for each file that has several names.
///
/// # Errors
/// [`RestoreFolderError`]: nothing has come into being.
pub fn restore_folder(
    files: &dyn Files,
    workers: &dyn Workers,
    root: &Node,
    destination: &Path,
    options: RestoreOptions,
    watch: Watch<'_>,
) -> Result<RestoreCounts, RestoreFolderError> {
    let destination = Destination::prepare(destination, root.kind, options.overwrite)?;
    let attributes = Attributes { owners: options.owners };
    let writer = FileWriter { files, watch, attributes };
    let restored = pipeline::run(workers, &|job| writer.write(job), |pipeline| {
        TreeWriter::new(files, &writer, pipeline, watch).write(root, &destination)
    });
    match restored {
        Ok(counts) => {
            destination.put_in_place(watch)?;
            Ok(counts)
        }
        Err(error) => {
            destination.discard();
            Err(error)
        }
    }
}
