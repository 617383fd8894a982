//! A tree of nodes that came in any order, in memory, as steps in the order of their names.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;

use varve_content::folder::{FOLDER_DEPTH_MAX, TreeStep};
use varve_content::{Node, NodeKind};

/// Upper bound on the memory of the nodes, in bytes, roughly.
const TREE_BYTES_MAX: usize = 2 << 30;
/// The memory of a node without its name, target and attributes, in bytes, roughly.
const NODE_BYTES: usize = 500;
/// A path as a key. The names are separated by zero bytes, which no name contains, so keys in
/// ascending order are in the order of a walk.
type PathKey = Vec<u8>;

/// Nodes by their paths.
#[derive(Debug, Default)]
pub(crate) struct SortedTree {
    nodes: BTreeMap<PathKey, Node>,
    bytes: usize,
}

/// Why a node has no place in the tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TreePathError {
    #[error("its path leads out of the archive")]
    LeadsOut,
    #[error("its path is malformed")]
    Malformed,
    #[error("it is more than {FOLDER_DEPTH_MAX} folders deep")]
    TooDeep,
    #[error("the archive has too many files: their names need more than {} GiB of memory", TREE_BYTES_MAX >> 30)]
    TooMany,
}

/// The key of a path. A leading `/` and components `.` are ignored; the root has an empty key.
pub(crate) fn path_key(path: &[u8]) -> Result<PathKey, TreePathError> {
    let mut key = Vec::with_capacity(path.len());
    let mut depth = 0_usize;
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => continue,
            b".." => return Err(TreePathError::LeadsOut),
            part if part.contains(&0) => return Err(TreePathError::Malformed),
            part => {
                depth = depth.saturating_add(1);
                if !key.is_empty() {
                    key.push(0);
                }
                key.extend_from_slice(part);
            }
        }
    }
    if depth > FOLDER_DEPTH_MAX { Err(TreePathError::TooDeep) } else { Ok(key) }
}

impl SortedTree {
    /// Sets the node at a path. A later node replaces an earlier one.
    pub(crate) fn set(&mut self, path: &[u8], node: Node) -> Result<(), TreePathError> {
        let key = path_key(path)?;
        let last = key.rsplit(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        if key.is_empty() && node.kind != NodeKind::Folder {
            return Err(TreePathError::Malformed);
        }
        let xattrs = node.xattrs.iter().map(|xattr| xattr.name.len().saturating_add(xattr.value.len()));
        let own = key.len().saturating_mul(2).saturating_add(node.target.len());
        let bytes = xattrs.fold(own, usize::saturating_add).saturating_add(NODE_BYTES);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > TREE_BYTES_MAX {
            return Err(TreePathError::TooMany);
        }
        self.nodes.insert(key, Node { name: last, ..node });
        Ok(())
    }

    pub(crate) fn get_mut(&mut self, path: &[u8]) -> Option<&mut Node> {
        self.nodes.get_mut(&path_key(path).ok()?)
    }

    pub(crate) fn has(&self, path: &[u8]) -> bool {
        path_key(path).is_ok_and(|key| self.nodes.contains_key(&key))
    }

    /// The steps of the tree. A folder that was not set, but holds nodes, is like `missing`. A node
    /// below one that is not a folder is lost.
    pub(crate) fn into_steps(mut self, missing: &Node) -> TreeSteps {
        let root = self.nodes.remove(&Vec::new()).unwrap_or_else(|| missing.clone());
        TreeSteps {
            root: Some(Node { name: Vec::new(), ..root }),
            nodes: self.nodes.into_iter().peekable(),
            open: Vec::new(),
            over: None,
            missing: missing.clone(),
            is_open: false,
        }
    }
}

/// The steps of a [`SortedTree`].
pub(crate) struct TreeSteps {
    root: Option<Node>,
    nodes: std::iter::Peekable<std::collections::btree_map::IntoIter<PathKey, Node>>,
    /// The names of the open folders below the root.
    open: Vec<Vec<u8>>,
    /// The last node, if it is not a folder: a later entry of the archive may have replaced one.
    over: Option<PathKey>,
    missing: Node,
    is_open: bool,
}

impl Iterator for TreeSteps {
    type Item = TreeStep;

    fn next(&mut self) -> Option<TreeStep> {
        if let Some(root) = self.root.take() {
            self.is_open = true;
            return Some(TreeStep::Open(root));
        }
        if !self.is_open {
            return None;
        }
        if let Some(lost) = self.lost() {
            return Some(lost);
        }
        let Some((key, _)) = self.nodes.peek() else { return self.close() };
        let parts: Vec<&[u8]> = key.split(|byte| *byte == 0).collect();
        let is_inside = parts.len() > self.open.len()
            && self.open.iter().zip(&parts).all(|(open, part)| open.as_slice() == *part);
        if !is_inside {
            return self.close();
        }
        let next = self.open.len();
        let name = parts.get(next).map(|part| part.to_vec()).unwrap_or_default();
        if parts.len() > next.saturating_add(1) {
            self.open.push(name.clone());
            return Some(TreeStep::Open(Node { name, ..self.missing.clone() }));
        }
        let (key, node) = self.nodes.next()?;
        if node.kind == NodeKind::Folder {
            self.open.push(name);
            return Some(TreeStep::Open(node));
        }
        self.over = Some(key);
        Some(TreeStep::Entry(node))
    }
}

impl TreeSteps {
    fn close(&mut self) -> Option<TreeStep> {
        if self.open.pop().is_none() {
            self.is_open = false;
        }
        Some(TreeStep::Close)
    }

    /// The next node below one that is not a folder.
    fn lost(&mut self) -> Option<TreeStep> {
        let over = self.over.take()?;
        let is_below =
            |key: &PathKey| key.strip_prefix(over.as_slice()).is_some_and(|rest| rest.starts_with(&[0]));
        let (key, _) = self.nodes.next_if(|(key, _)| is_below(key))?;
        let parts: Vec<&[u8]> = key.split(|byte| *byte == 0).skip(self.open.len()).collect();
        self.over = Some(over);
        let error = "a later entry of the archive is in place of its folder".into();
        Some(TreeStep::Lost { name: parts.join(&b'/'), error })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    fn steps(paths: &[(&str, NodeKind)]) -> String {
        let mut tree = SortedTree::default();
        for (path, kind) in paths {
            tree.set(path.as_bytes(), Node::new(Vec::new(), *kind)).unwrap();
        }
        let missing = Node::new(Vec::new(), NodeKind::Folder);
        let name = |node: &Node| String::from_utf8(node.name.clone()).unwrap();
        let step = |step| match step {
            TreeStep::Open(node) => format!("{}(", name(&node)),
            TreeStep::Close => ")".into(),
            TreeStep::Entry(node) => format!("{} ", name(&node)),
            TreeStep::Lost { name, .. } => format!("[{}] ", String::from_utf8_lossy(&name)),
            _ => unreachable!(),
        };
        tree.into_steps(&missing).map(step).collect()
    }

    #[test]
    fn steps_are_in_the_order_of_a_walk() {
        use NodeKind::{Fifo, Folder};
        assert_eq!(steps(&[]), "()");
        let mixed =
            [("b", Fifo), ("a.txt", Fifo), ("./a/x", Fifo), ("/a", Folder), ("c/d/e", Fifo), ("f", Folder)];
        assert_eq!(steps(&mixed), "(a(x )a.txt b c(d(e ))f())");
        assert_eq!(steps(&[("a/b", Fifo), ("a", Fifo), ("a.c", Fifo)]), "(a [a/b] a.c )");
        assert_eq!(steps(&[("x/a/b/c", Fifo), ("x/a", Fifo), ("x/b", Fifo)]), "(x(a [a/b/c] b ))");
        assert_eq!(steps(&[("a", Fifo), ("a", Folder)]), "(a())");
    }

    #[test]
    fn no_path_leads_out() {
        let file = || Node::new(Vec::new(), NodeKind::File);
        let mut tree = SortedTree::default();
        assert_eq!(tree.set(b"../x", file()), Err(TreePathError::LeadsOut));
        assert_eq!(tree.set(b"a/../../x", file()), Err(TreePathError::LeadsOut));
        assert_eq!(tree.set(b"a\0b", file()), Err(TreePathError::Malformed));
        assert_eq!(tree.set(b"/", file()), Err(TreePathError::Malformed));
        assert_eq!(tree.set(&b"a/".repeat(FOLDER_DEPTH_MAX + 1), file()), Err(TreePathError::TooDeep));
    }
}
