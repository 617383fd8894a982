//! Listing a tree.

use std::error::Error;
use std::path::{Path, PathBuf};

use super::read::JoinName;
use crate::browsing::files::Files;
use crate::records::node::{Node, NodeKind};

/// What a listing comes to. Paths begin at the node that is listed, which has the empty one.
#[derive(Debug)]
pub enum Listed<'a> {
    /// A node: a folder before what it holds.
    Node {
        /// Where it is.
        path: &'a Path,
        /// What it is.
        node: &'a Node,
    },
    /// Something of this node, or what else the folder holds, cannot be read. The listing goes on after it.
    Unreadable {
        /// The node.
        path: &'a Path,
        /// What is wrong with it.
        error: Box<dyn Error + Send + Sync>,
    },
}

/// What is wanted after a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListNext {
    /// What the folder holds, if it is one; then its neighbours.
    Descend,
    /// Only its neighbours.
    Skip,
    /// Nothing more.
    Stop,
}

/// Comes to `root` and all below it, depth first, names in the order of their bytes. Holds one node and one list a level.
pub fn list(files: &dyn Files, root: &Node, visitor: &mut dyn FnMut(Listed<'_>) -> ListNext) {
    let mut path = PathBuf::new();
    let mut open = match visitor(Listed::Node { path: &path, node: root }) {
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
                if visitor(Listed::Unreadable { path: &path, error: error.into() }) == ListNext::Stop {
                    return;
                }
            }
            Some(Ok(node)) => {
                let node_path = path.join_name(&node.name);
                let next = visitor(Listed::Node { path: &node_path, node: &node });
                // What the snapshot itself tells of a node is no news.
                let damage = files.trouble(&node).filter(|trouble| trouble.is_damage);
                if let (Some(damage), false) = (damage, next == ListNext::Stop) {
                    let unreadable = Listed::Unreadable { path: &node_path, error: damage.error };
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
