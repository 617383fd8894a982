//! A part of a folder's list, compared with the same folder in the snapshot before.

use std::cmp::Ordering;
use std::iter::Peekable;

use varve_block::with_causes;
use varve_content::{ContentKey, Files, Node, NodeKind, Nodes};

/// A difference of a name from the snapshot before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowChange {
    New,
    Changed,
    Removed,
    Same,
    /// There is nothing to compare it with.
    Unknown,
}

/// A name in a folder.
pub(crate) struct FolderRow {
    pub(crate) node: Node,
    pub(crate) change: RowChange,
}

/// Some names of a folder, in the order of their bytes.
pub(crate) struct FolderPart {
    pub(crate) rows: Vec<FolderRow>,
    /// The first name that did not fit.
    pub(crate) next: Option<Vec<u8>>,
    /// The reason why names are missing.
    pub(crate) problem: Option<String>,
}

/// A folder and the files that it belongs to.
#[derive(Clone, Copy)]
pub(crate) struct FolderOf<'a> {
    pub(crate) files: &'a dyn Files,
    pub(crate) node: &'a Node,
}

/// The names of a folder from `first` on, at most `count`. `before` is the same folder in the
/// snapshot before.
pub(crate) fn folder_part(
    now: FolderOf<'_>,
    before: Option<FolderOf<'_>>,
    first: &[u8],
    count: usize,
) -> FolderPart {
    let is_same = before.is_some_and(|before| is_same_content(now, before));
    let mut part = FolderPart { rows: Vec::new(), next: None, problem: None };
    let mut old = before.filter(|_| !is_same).map(|before| from(before, first));
    let mut new = from(now, first);
    loop {
        let new_name = peek(&mut new, &mut part.problem);
        // An unreadable old folder only ends the comparison.
        let old_name = old.as_mut().and_then(|old| peek(old, &mut None));
        let order = match (&new_name, &old_name) {
            (None, None) => return part,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(new), Some(old)) => new.cmp(old),
        };
        if part.rows.len() == count {
            part.next = new_name.into_iter().chain(old_name).min();
            return part;
        }
        let new_node = if order.is_le() { take(&mut new) } else { None };
        let old_node = if order.is_ge() { old.as_mut().and_then(take) } else { None };
        let (node, change) = match (new_node, old_node) {
            (Some(new), Some(was)) => {
                let is_same = before.is_some_and(|before| {
                    is_same_file(FolderOf { node: &new, ..now }, FolderOf { node: &was, ..before })
                });
                (new, if is_same { RowChange::Same } else { RowChange::Changed })
            }
            (Some(new), None) if is_same => (new, RowChange::Same),
            (Some(new), None) if before.is_none() => (new, RowChange::Unknown),
            (Some(new), None) => (new, RowChange::New),
            (None, Some(was)) => (was, RowChange::Removed),
            (None, None) => return part,
        };
        part.rows.push(FolderRow { node, change });
    }
}

/// Reports whether two files or folders have the same content and, for links, the same target.
pub(crate) fn is_same_file(one: FolderOf<'_>, other: FolderOf<'_>) -> bool {
    one.node.kind == other.node.kind
        && one.node.target == other.node.target
        && one.node.device == other.node.device
        && (is_same_content(one, other)
            || one.node.kind != NodeKind::File && one.node.kind != NodeKind::Folder)
}

fn is_same_content(one: FolderOf<'_>, other: FolderOf<'_>) -> bool {
    match (one.files.content_key(one.node), other.files.content_key(other.node)) {
        (ContentKey::Stored(one), ContentKey::Stored(other)) => one == other,
        // The bytes inside a disk are not compared. Size and time show a change.
        _ => {
            let look = |node: &Node| (node.size, node.mtime, node.ctime);
            look(one.node) == look(other.node)
        }
    }
}

type Names<'a> = Peekable<Nodes<'a>>;

fn from<'a>(folder: FolderOf<'a>, first: &[u8]) -> Names<'a> {
    let mut nodes = folder.files.nodes(folder.node).peekable();
    while nodes.next_if(|node| node.as_ref().is_ok_and(|node| node.name.as_slice() < first)).is_some() {}
    nodes
}

/// The name of the next node. At an error the list ends, and the error is noted.
fn peek(nodes: &mut Names<'_>, problem: &mut Option<String>) -> Option<Vec<u8>> {
    match nodes.peek()? {
        Ok(node) => Some(node.name.clone()),
        Err(error) => {
            problem.get_or_insert_with(|| with_causes(error));
            None
        }
    }
}

fn take(nodes: &mut Names<'_>) -> Option<Node> {
    nodes.next()?.ok()
}
