//! Compares two trees, without reading the parts that they are known to share.

use std::cmp::Ordering;
use std::error::Error;
use std::io;
use std::iter::Peekable;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use varve_block::{BlockStore, to_usize};
use varve_tree::ReadPointerError;

use super::list::{ListEvent, ListNext, list};
use crate::files::{ContentKey, Nodes, Tree};
use crate::folder::archiving::read::JoinName;
use crate::image::ImagePart;
use crate::reading_content::ReadContentError;
use crate::records::node::{Node, NodeKind};
use crate::records::node_list::ReadFolderError;

/// Bytes of two files that are compared at a time.
const COMPARED_BYTES: u64 = 1 << 20;
/// Upper bound on separate changed ranges of a volume. Beyond it, the last range is extended to the
/// newest change.
const CHANGE_COUNT_MAX: usize = 1 << 20;

/// A difference of a path between an old tree and a new one.
#[derive(Debug)]
pub enum PathChange<'a> {
    /// Only the new tree has it. The contents of a new folder follow.
    Added(&'a Node),
    /// Only the old tree has it. The contents of a removed folder follow.
    Removed(&'a Node),
    /// Both trees have it, with the same kind, but with differences.
    Changed {
        old: &'a Node,
        new: &'a Node,
        /// True if the bytes of a file, the target of a link or the device number differ. Always
        /// false for a folder, whose differences follow.
        content: bool,
        /// True if owner, permissions, times or attributes differ.
        metadata: bool,
    },
    /// Both trees have the file or folder, but one of them is unreadable, at least from some point
    /// on. The comparison continues after it.
    Unreadable(Box<dyn Error + Send + Sync>),
}

/// Receives each difference, and decides whether the comparison goes on.
pub type ChangeVisitor<'a> = dyn FnMut(&Path, PathChange<'_>) -> ControlFlow<()> + 'a;

/// Reports each path in which `new` differs from `old`, depth first, names in the order of their
/// bytes. Files and folders that are known to have the same content are not read. A node whose kind
/// has changed is reported as removed and added. The comparison ends when the visitor breaks off.
pub fn compare_folders(old: Tree<'_>, new: Tree<'_>, visitor: &mut ChangeVisitor<'_>) {
    let mut comparison = Comparison {
        old,
        new,
        visitor,
        is_ended: false,
        open: Vec::new(),
        path: PathBuf::new(),
        volumes: VolumeChanges::default(),
    };
    comparison.compare(Path::new(""), old.root, new.root);
    comparison.run();
}

struct Comparison<'a, 'v> {
    old: Tree<'a>,
    new: Tree<'a>,
    visitor: &'v mut ChangeVisitor<'v>,
    is_ended: bool,
    open: Vec<(PeekableNodes<'a>, PeekableNodes<'a>)>,
    path: PathBuf,
    volumes: VolumeChanges,
}

/// The differences of the last requested volume between two snapshots.
#[derive(Default)]
struct VolumeChanges {
    of: Option<(ImagePart, ImagePart)>,
    /// In ascending order.
    ranges: Vec<Range<u64>>,
}

impl VolumeChanges {
    fn changes(
        &mut self,
        blocks: &dyn BlockStore,
        one: &ImagePart,
        other: &ImagePart,
    ) -> Result<&[Range<u64>], ReadPointerError> {
        if self.of.as_ref().is_none_or(|(known, known_other)| (known, known_other) != (one, other)) {
            *self = Self::default();
            one.differences(blocks, other, &mut |range| {
                let is_much = self.ranges.len() == CHANGE_COUNT_MAX;
                match self.ranges.last_mut() {
                    Some(last) if is_much => last.end = range.end,
                    _ => self.ranges.push(range),
                }
            })?;
            self.of = Some((one.clone(), other.clone()));
        }
        Ok(&self.ranges)
    }

    /// Returns whether these ranges of a volume are known to have the same bytes in both snapshots,
    /// without reading them.
    fn is_untouched(
        &mut self,
        blocks: &dyn BlockStore,
        one: &ImagePart,
        other: &ImagePart,
        places: &[Range<u64>],
    ) -> bool {
        let Ok(changes) = self.changes(blocks, one, other) else { return false };
        places.iter().all(|place| {
            let next = changes.partition_point(|change| change.end <= place.start);
            changes.get(next).is_none_or(|change| change.start >= place.end)
        })
    }
}

/// An iterator over the nodes of a folder that can look at the next one.
type PeekableNodes<'a> = Peekable<Nodes<'a>>;

impl Comparison<'_, '_> {
    fn run(&mut self) {
        while !self.is_ended
            && let Some((old, new)) = self.open.last_mut()
        {
            let name = |side: Option<&Result<Node, ReadFolderError>>| {
                side.map(|node| node.as_ref().map(|node| node.name.clone()).unwrap_or_default())
            };
            // An error has no name, and sorts first.
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
                    let path = self.path.clone();
                    self.tell(&path, PathChange::Unreadable(error.into()));
                    self.leave();
                }
            }
        }
    }

    fn tell(&mut self, path: &Path, change: PathChange<'_>) {
        if !self.is_ended {
            self.is_ended = (self.visitor)(path, change).is_break();
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
            (Some(old), None) => self.tell_all(&path, self.old.at(old), &|node| PathChange::Removed(node)),
            (None, Some(new)) => self.tell_all(&path, self.new.at(new), &|node| PathChange::Added(node)),
            (None, None) => {}
        }
    }

    fn compare(&mut self, path: &Path, old: &Node, new: &Node) {
        if old.kind != new.kind {
            self.tell_all(path, self.old.at(old), &|node| PathChange::Removed(node));
            self.tell_all(path, self.new.at(new), &|node| PathChange::Added(node));
            return;
        }
        let differs = match self.differs(self.old.at(old), self.new.at(new)) {
            Ok(differs) => differs,
            Err(error) => return self.tell(path, PathChange::Unreadable(error)),
        };
        let is_folder = old.kind == NodeKind::Folder;
        let bytes_differ = !is_folder && differs;
        let content = bytes_differ || old.target != new.target || old.device != new.device;
        let metadata = metadata_differs(old, new);
        if content || metadata {
            self.tell(path, PathChange::Changed { old, new, content, metadata });
        }
        if is_folder && differs {
            self.open.push((self.old.files.nodes(old).peekable(), self.new.files.nodes(new).peekable()));
            self.path = path.to_path_buf();
        }
    }

    /// Returns whether the contents of two nodes of the same kind differ. For folders, whether they
    /// may differ.
    fn differs(&mut self, old: Tree<'_>, new: Tree<'_>) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let is_folder = old.root.kind == NodeKind::Folder;
        match (old.files.content_key(old.root), new.files.content_key(new.root)) {
            (ContentKey::Lost, _) | (_, ContentKey::Lost) => {
                let trouble = old.files.problem(old.root).or_else(|| new.files.problem(new.root));
                Err(trouble.map_or_else(|| "it cannot be read".into(), |trouble| trouble.error))
            }
            _ if !is_folder && old.root.size != new.root.size => Ok(true),
            (ContentKey::Stored(old), ContentKey::Stored(new)) => Ok(old != new),
            (one @ ContentKey::Foreign { .. }, other @ ContentKey::Foreign { .. }) if one == other => {
                Ok(false)
            }
            (ContentKey::Image(one), ContentKey::Image(other)) => {
                Ok(!self.volumes.changes(old.files.blocks(), &one, &other)?.is_empty())
            }
            (
                ContentKey::Placed { volume: one, places, changed },
                ContentKey::Placed { volume: other, places: others, changed: other_changed },
            ) if places == others
                && changed == other_changed
                && self.volumes.is_untouched(old.files.blocks(), &one, &other, &places) =>
            {
                Ok(false)
            }
            _ if is_folder => Ok(true),
            _ => Ok(bytes_differ(old, new)?),
        }
    }

    fn tell_all(&mut self, path: &Path, tree: Tree<'_>, change: &dyn for<'n> Fn(&'n Node) -> PathChange<'n>) {
        list(tree.files, tree.root, &mut |listed| {
            match listed {
                ListEvent::Node { path: below, node } => self.tell(&join(path, below), change(node)),
                ListEvent::Unreadable { path: below, error } => {
                    self.tell(&join(path, below), PathChange::Unreadable(error));
                }
            }
            if self.is_ended { ListNext::Stop } else { ListNext::Descend }
        });
    }
}

fn bytes_differ(old: Tree<'_>, new: Tree<'_>) -> Result<bool, ReadContentError> {
    let size = old.root.size;
    let (mut one, mut other) = (Vec::new(), Vec::new());
    let mut start = 0;
    while start < size {
        let end = size.min(start.saturating_add(COMPARED_BYTES));
        read_whole(old, start..end, &mut one)?;
        read_whole(new, start..end, &mut other)?;
        if one != other {
            return Ok(true);
        }
        start = end;
    }
    Ok(false)
}

/// Fills `into` with a range of a file, including its holes.
fn read_whole(file: Tree<'_>, range: Range<u64>, into: &mut Vec<u8>) -> Result<(), ReadContentError> {
    into.clear();
    into.resize(to_usize(range.end - range.start), 0);
    file.files.read(file.root, range.clone(), &mut |offset, bytes| {
        let begin = to_usize(offset - range.start);
        let place = into.get_mut(begin..begin.saturating_add(bytes.len()));
        place.ok_or(io::ErrorKind::InvalidData)?.copy_from_slice(bytes);
        Ok(())
    })
}

/// Joins two paths. An empty path below adds no `/`.
fn join(path: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { path.to_path_buf() } else { path.join(below) }
}

fn metadata_differs(old: &Node, new: &Node) -> bool {
    let metadata = |node: &Node| (node.mode, node.uid, node.gid, node.mtime, node.inode_flags);
    metadata(old) != metadata(new) || old.xattrs != new.xattrs
}
