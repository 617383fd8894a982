//! Finding the node at a path.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::browsing::files::Files;
use crate::records::node::{Node, NodeKind};
use crate::records::node_list::ReadFolderError;

/// Why there is no node at a path.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// A folder on the way does not have the name.
    #[error("there is no {}", path.display())]
    NotFound {
        /// The path up to the name that is missing.
        path: PathBuf,
    },
    /// Something on the way is not a folder.
    #[error("{} is a {kind}, not a folder", path.display())]
    NotAFolder {
        /// The path up to it.
        path: PathBuf,
        /// What it is.
        kind: NodeKind,
    },
    /// A path with `..` in it: a snapshot does not say what lies above it.
    #[error("{}: `..` leads out of a snapshot", path.display())]
    Upward {
        /// The whole path.
        path: PathBuf,
    },
    /// A folder on the way cannot be read.
    #[error("the folder {} cannot be read", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<ReadFolderError>,
    },
}

/// The node at `path`, from the node `root` on; `root` itself for an empty path or `/`. No symbolic link is followed.
///
/// # Errors
/// [`LookupError`] says how far the path leads.
pub fn lookup(files: &dyn Files, root: &Node, path: &Path) -> Result<Node, LookupError> {
    let mut node = root.clone();
    let mut passed = PathBuf::new();
    for component in path.components() {
        let name = match component {
            Component::Normal(name) => name,
            Component::ParentDir => return Err(LookupError::Upward { path: path.to_path_buf() }),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => continue,
        };
        if node.kind != NodeKind::Folder {
            return Err(LookupError::NotAFolder { path: passed, kind: node.kind });
        }
        let found = match files.find(&node, name.as_bytes()) {
            Ok(found) => found,
            Err(source) => return Err(LookupError::Folder { path: passed, source: Box::new(source) }),
        };
        passed.push(name);
        node = found.ok_or_else(|| LookupError::NotFound { path: passed.clone() })?;
    }
    Ok(node)
}
