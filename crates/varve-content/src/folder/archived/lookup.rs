//! Finds the node at a path.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::files::Files;
use crate::records::node::{Node, NodeKind};
use crate::records::node_list::ReadFolderError;

/// Why there is no node at a path.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// A folder on the path does not have the next name.
    #[error("there is no {}{}", path.display(), meant_text(meant.as_deref()))]
    NotFound {
        /// The path up to and including the missing name.
        path: PathBuf,
        /// A path that exists and may have been meant, if a caller has looked for one.
        meant: Option<PathBuf>,
    },
    /// A node on the path is not a folder.
    #[error("{} is a {kind}, not a folder", path.display())]
    NotAFolder {
        /// The path up to that node.
        path: PathBuf,
        kind: NodeKind,
    },
    /// The path contains `..`: the parent of a snapshot's root is unknown.
    #[error("{}: `..` cannot be used in a snapshot", path.display())]
    Upward { path: PathBuf },
    /// A folder on the path is unreadable.
    #[error("the folder {} cannot be read", path.display())]
    Folder { path: PathBuf, source: Box<ReadFolderError> },
}

fn meant_text(meant: Option<&Path>) -> String {
    meant.map(|meant| format!("; did you mean {}?", meant.display())).unwrap_or_default()
}

/// Finds the node at `path`, relative to the node `root`. An empty path or `/` is `root` itself.
/// Symbolic links are not followed.
///
/// # Errors
/// [`LookupError`] tells how far the path leads.
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
        node = found.ok_or_else(|| LookupError::NotFound { path: passed.clone(), meant: None })?;
    }
    Ok(node)
}
