//! Comparing two stored trees, without reading what they share.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::path::{Path, PathBuf};

use varve_block::BlockStore;

use super::list::{ListNext, Listed, list};
use super::read::JoinName;
use crate::node::{Node, NodeKind};
use crate::node_list::{NodeList, ReadFolderError};

/// How a path differs between an old tree and a new one.
#[derive(Debug)]
pub enum Change<'a> {
    /// Only the new one has it. What a new folder holds comes after it.
    Added(&'a Node),
    /// Only the old one has it. What a removed folder held comes after it.
    Removed(&'a Node),
    /// Both have it, of the same kind, but not the same.
    Changed {
        /// What it was.
        old: &'a Node,
        /// What it is.
        new: &'a Node,
        /// Whether the bytes of a file differ, or where a link points, or which device it is. A folder's content does not
        /// count: what differs in it comes after it.
        content: bool,
        /// Whether owner, permissions, times or attributes differ.
        metadata: bool,
    },
    /// A folder that both have, but of which one cannot be read further. The comparison goes on after it.
    Unreadable(ReadFolderError),
}

/// Tells of each path in which `new` differs from `old`, two nodes of one store, depth first, names in the order of their
/// bytes. Folders with the same content are not read. Something that is of another kind is removed, and added.
pub fn compare_folders(
    blocks: &dyn BlockStore,
    old: &Node,
    new: &Node,
    visitor: &mut dyn FnMut(&Path, Change<'_>),
) {
    let mut comparison = Comparison { blocks, visitor, open: Vec::new(), path: PathBuf::new() };
    comparison.compare(Path::new(""), old, new);
    comparison.run();
}

struct Comparison<'a, 'v> {
    blocks: &'a dyn BlockStore,
    visitor: &'v mut dyn FnMut(&Path, Change<'_>),
    open: Vec<(Side<'a>, Side<'a>)>,
    path: PathBuf,
}

/// A folder's nodes, the next one looked at.
type Side<'a> = Peekable<NodeList<'a>>;

impl Comparison<'_, '_> {
    fn run(&mut self) {
        while let Some((old, new)) = self.open.last_mut() {
            let name = |side: Option<&Result<Node, ReadFolderError>>| {
                side.map(|node| node.as_ref().map(|node| node.name.clone()).unwrap_or_default())
            };
            // What cannot be read has no name, and comes first.
            let order = match (name(old.peek()), name(new.peek())) {
                (None, None) => {
                    self.leave();
                    continue;
                }
                (Some(old), Some(new)) => old.cmp(&new),
                (old, _) => {
                    if old.is_some() {
                        Ordering::Less
                    } else {
                        Ordering::Greater
                    }
                }
            };
            let old = if order.is_le() { old.next() } else { None };
            let new = if order.is_ge() { new.next() } else { None };
            match (old.transpose(), new.transpose()) {
                (Ok(old), Ok(new)) => self.step(old.as_ref(), new.as_ref()),
                (Err(error), _) | (_, Err(error)) => {
                    (self.visitor)(&self.path, Change::Unreadable(error));
                    self.leave();
                }
            }
        }
    }

    fn leave(&mut self) {
        self.open.pop();
        self.path.pop();
    }

    fn step(&mut self, old: Option<&Node>, new: Option<&Node>) {
        let Some(node) = old.or(new) else { return };
        let path = self.path.join_name(&node.name);
        match (old, new) {
            (Some(old), Some(new)) => self.compare(&path, old, new),
            (Some(old), None) => self.tell_all(&path, old, &|node| Change::Removed(node)),
            (None, Some(new)) => self.tell_all(&path, new, &|node| Change::Added(node)),
            (None, None) => {}
        }
    }

    fn compare(&mut self, path: &Path, old: &Node, new: &Node) {
        if old.kind != new.kind {
            self.tell_all(path, old, &|node| Change::Removed(node));
            self.tell_all(path, new, &|node| Change::Added(node));
            return;
        }
        let is_folder = old.kind == NodeKind::Folder;
        let shown = |node: &Node| (node.content, node.size);
        let bytes_differ = !is_folder && shown(old) != shown(new);
        let content = bytes_differ || old.target != new.target || old.device != new.device;
        let metadata = metadata_differs(old, new);
        if content || metadata {
            (self.visitor)(path, Change::Changed { old, new, content, metadata });
        }
        if is_folder && old.content != new.content {
            let nodes = |folder| NodeList::new(self.blocks, folder).peekable();
            self.open.push((nodes(old), nodes(new)));
            self.path = path.to_path_buf();
        }
    }

    fn tell_all(&mut self, path: &Path, node: &Node, change: &dyn for<'n> Fn(&'n Node) -> Change<'n>) {
        list(self.blocks, node, &mut |listed| {
            match listed {
                Listed::Node { path: below, node } => (self.visitor)(&join(path, below), change(node)),
                Listed::Unreadable { path: below, error } => {
                    (self.visitor)(&join(path, below), Change::Unreadable(error));
                }
            }
            ListNext::Descend
        });
    }
}

/// An empty path below adds no `/`.
fn join(path: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { path.to_path_buf() } else { path.join(below) }
}

fn metadata_differs(old: &Node, new: &Node) -> bool {
    let metadata = |node: &Node| (node.mode, node.uid, node.gid, node.mtime);
    metadata(old) != metadata(new) || old.xattrs != new.xattrs
}
