//! The folders that a walk is in, from the root to the current one. A walk over folders uses it
//! instead of recursion: Linux can make folders of any depth, and a call stack has an end.
//!
//! Memory: a few hundred bytes a level, and the read parts of the innermost lists.

use super::node::Node;
use super::node_list::{NodeList, ReadFolderError};

/// Lists that keep the part that they have read. The lists above them read it again when the walk
/// is back: folders that are deep and large would fill the memory.
const READ_COUNT_MAX: usize = 64;
/// Upper bound on the folders inside each other. The archive of a folder has far less
/// ([`PATH_BYTES_MAX`](crate::folder::PATH_BYTES_MAX)), but older programs had no bound.
const DEPTH_MAX: usize = 1 << 20;

/// Open folders, each with a value of the walk.
pub struct FolderStack<'a, T> {
    open: Vec<OpenFolder<'a, T>>,
    path: Vec<u8>,
}

struct OpenFolder<'a, T> {
    list: NodeList<'a>,
    path_bytes: usize,
    value: T,
}

/// A step of a walk through open folders.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub enum FolderStep<T> {
    /// The next node of the innermost folder. After an error, no more nodes of it come.
    Node(Result<Node, ReadFolderError>),
    /// The innermost folder has no more nodes, and was left.
    Left(T),
}

/// Folders are nested deeper than any program archives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("folders are nested more than {DEPTH_MAX} deep")]
pub struct TooDeep;

impl<T> Default for FolderStack<'_, T> {
    fn default() -> Self {
        Self { open: Vec::new(), path: Vec::new() }
    }
}

impl<'a, T> FolderStack<'a, T> {
    /// Enters the root, or the folder that was returned last.
    ///
    /// # Errors
    /// [`TooDeep`].
    pub fn enter(&mut self, list: NodeList<'a>, value: T) -> Result<(), TooDeep> {
        if self.open.len() >= DEPTH_MAX {
            return Err(TooDeep);
        }
        self.open.push(OpenFolder { list, path_bytes: self.path.len(), value });
        let far = self.open.len().checked_sub(READ_COUNT_MAX + 1);
        if let Some(folder) = far.and_then(|place| self.open.get_mut(place)) {
            folder.list.drop_buffer();
        }
        Ok(())
    }

    /// Returns the next step; `None` after the root was left.
    #[expect(clippy::should_implement_trait, reason = "folders are entered between two steps")]
    pub fn next(&mut self) -> Option<FolderStep<T>> {
        let last = self.open.last_mut()?;
        self.path.truncate(last.path_bytes);
        let Some(node) = last.list.next() else {
            return self.open.pop().map(|left| FolderStep::Left(left.value));
        };
        if let Ok(node) = &node {
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&node.name);
        }
        Some(FolderStep::Node(node))
    }

    /// The path of the node that was returned last, or of the folder that was left last.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The value of the innermost folder.
    #[must_use]
    pub fn value(&self) -> Option<&T> {
        self.open.last().map(|last| &last.value)
    }

    /// The value of the innermost folder, to change it.
    pub fn value_mut(&mut self) -> Option<&mut T> {
        self.open.last_mut().map(|last| &mut last.value)
    }
}

#[cfg(test)]
mod tests {
    use varve_block::{BlockStore, MemoryBlockStore};

    use super::*;
    use crate::records::node::NodeKind;
    use crate::records::node_list_writer::NodeListWriter;

    fn folder(blocks: &dyn BlockStore, nodes: &[Node]) -> Node {
        let mut writer = NodeListWriter::new(blocks);
        nodes.iter().for_each(|node| writer.push(node).unwrap());
        Node { content: writer.finish().unwrap(), ..Node::new(b"m".to_vec(), NodeKind::Folder) }
    }

    /// The lists far above are read anew, from their places.
    #[test]
    fn a_deep_tree_is_walked_in_order() {
        let blocks = MemoryBlockStore::new();
        let file = |name: &str| Node::new(name.into(), NodeKind::File);
        let depth = 3 * READ_COUNT_MAX;
        let mut root = folder(&blocks, &[file("a")]);
        for _ in 1..depth {
            root = folder(&blocks, &[file("a"), root, file("z")]);
        }
        let mut stack = FolderStack::default();
        stack.enter(NodeList::new(&blocks, &root), 0).unwrap();
        let (mut names, mut left) = (Vec::new(), Vec::new());
        while let Some(step) = stack.next() {
            match step {
                FolderStep::Left(level) => left.push(level),
                FolderStep::Node(node) => {
                    let node = node.unwrap();
                    let level = *stack.value().unwrap();
                    assert_eq!(stack.path(), [b"m/".repeat(level), node.name.clone()].concat());
                    names.push(node.name[0]);
                    if node.kind == NodeKind::Folder {
                        stack.enter(NodeList::new(&blocks, &node), level + 1).unwrap();
                    }
                }
            }
        }
        let expected = [b"am".repeat(depth - 1), b"a".to_vec(), b"z".repeat(depth - 1)].concat();
        assert_eq!(names, expected);
        assert_eq!(left, (0..depth).rev().collect::<Vec<_>>());
    }
}
