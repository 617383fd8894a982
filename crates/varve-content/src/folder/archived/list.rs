//! Lists a tree.

use std::error::Error;
use std::path::{Path, PathBuf};

use crate::files::Files;
use crate::folder::archiving::read::JoinName;
use crate::records::node::{Node, NodeKind};

/// An event of a listing. Paths are relative to the listed node, whose own path is empty.
#[derive(Debug)]
pub enum ListEvent<'a> {
    /// A node. A folder comes before its contents.
    Node { path: &'a Path, node: &'a Node },
    /// A part of this node, or the rest of the folder, is unreadable. The listing continues after
    /// it.
    Unreadable {
        /// The path of the node.
        path: &'a Path,
        error: Box<dyn Error + Send + Sync>,
    },
}

/// The next step of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListNext {
    /// List the contents of the folder, if it is one, and then its siblings.
    Descend,
    /// List only its siblings.
    Skip,
    /// End the listing.
    Stop,
}

/// Lists `root` and everything below it, depth first, names in the order of their bytes. Holds one
/// node and one list per level.
pub fn list(files: &dyn Files, root: &Node, visitor: &mut dyn FnMut(ListEvent<'_>) -> ListNext) {
    let mut path = PathBuf::new();
    let mut open = match visitor(ListEvent::Node { path: &path, node: root }) {
        ListNext::Descend => vec![files.nodes(root)],
        ListNext::Skip | ListNext::Stop => return,
    };
    while let Some(nodes) = open.last_mut() {
        match nodes.next() {
            None => {
                open.pop();
                path.pop();
            }
            Some(Err(error)) => {
                if visitor(ListEvent::Unreadable { path: &path, error: error.into() }) == ListNext::Stop {
                    return;
                }
            }
            Some(Ok(node)) => {
                let node_path = path.join_name(&node.name);
                let next = visitor(ListEvent::Node { path: &node_path, node: &node });
                // Problems that the snapshot records are not reported again.
                let damage = files.problem(&node).filter(|trouble| trouble.is_damage);
                if let (Some(damage), false) = (damage, next == ListNext::Stop) {
                    let unreadable = ListEvent::Unreadable { path: &node_path, error: damage.error };
                    if visitor(unreadable) == ListNext::Stop {
                        return;
                    }
                    if damage.lacks_all {
                        continue;
                    }
                }
                match next {
                    ListNext::Stop => return,
                    ListNext::Descend if node.kind == NodeKind::Folder => {
                        open.push(files.nodes(&node));
                        path = node_path;
                    }
                    ListNext::Descend | ListNext::Skip => {}
                }
            }
        }
    }
}
