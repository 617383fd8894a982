//! What becomes of one entry of a restore, and why. Pure.

use std::path::PathBuf;

use super::super::status::Status;
use super::locked::Locked;
use super::options::Overwrite;
use crate::records::node::{Node, NodeKind};

/// What a restore does with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Nothing is there: it is made.
    Create,
    /// It takes the place of what is there.
    Replace,
    /// What is there has the content, and gets owner, mode, times and attributes.
    Attributes,
    /// What is there stays as it is.
    Keep,
    /// What is there is removed.
    Delete,
    /// It should be restored or removed, and is not.
    Skip,
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Attributes => "attributes",
            Self::Keep => "keep",
            Self::Delete => "delete",
            Self::Skip => "skip",
        })
    }
}

/// Why a restore does something with an entry, or does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Nothing is there.
    Missing,
    /// Everything is to be written anew.
    Always,
    /// Its size, time of change, target or device differs.
    Differs,
    /// The snapshot has a later time of change.
    Newer,
    /// It is another kind of thing.
    OtherKind(NodeKind),
    /// The same file has other names, which the snapshot does not know of.
    Linked,
    /// Owner, mode, extended attributes or flags differ.
    AttributesDiffer,
    /// Nothing differs.
    Equal,
    /// The snapshot has no later time of change.
    NotNewer,
    /// Something is there, and nothing is replaced.
    Exists,
    /// The snapshot does not have it.
    NotInSnapshot,
    /// An exclude matches it, or no include does.
    Excluded,
    /// Something that is kept lies in it.
    NotEmptied,
    /// It is the store itself, or something else that must stay.
    MustStay(PathBuf),
    /// Another file system is mounted there.
    Mount,
    /// It is a Varve store.
    Store,
    /// It, or the folder that it is in, has a flag that refuses changes.
    Locked(Locked),
    /// The snapshot has nothing of it but the name.
    NotArchived,
    /// What is there cannot be looked at.
    Unreadable(String),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing => f.write_str("it is missing"),
            Self::Always => f.write_str("everything is written anew"),
            Self::Differs => f.write_str("it differs"),
            Self::Newer => f.write_str("the snapshot's is newer"),
            Self::OtherKind(kind) => write!(f, "a {kind} is there"),
            Self::Linked => f.write_str("it is linked to another file"),
            Self::AttributesDiffer => f.write_str("owner, mode, times or attributes differ"),
            Self::Equal => f.write_str("nothing differs"),
            Self::NotNewer => f.write_str("the snapshot's is not newer"),
            Self::Exists => f.write_str("it exists"),
            Self::NotInSnapshot => f.write_str("it is not in the snapshot"),
            Self::Excluded => f.write_str("it is excluded"),
            Self::NotEmptied => f.write_str("something in it is kept"),
            Self::MustStay(what) => write!(f, "{} must stay", what.display()),
            Self::Mount => f.write_str("a file system is mounted there"),
            Self::Store => f.write_str("it is a Varve store"),
            Self::Locked(locked) => locked.fmt(f),
            Self::NotArchived => f.write_str("the snapshot has only its name"),
            Self::Unreadable(error) => write!(f, "it cannot be looked at: {error}"),
        }
    }
}

/// An action, and why.
pub(super) type Decision = (Action, Reason);

/// How entries are decided upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    /// What is there is somebody's.
    Merge(Overwrite),
    /// What is there was made by an earlier run of this restore.
    Continue,
}

/// What is there already.
pub(super) struct There<'t> {
    pub(super) status: &'t Status,
    /// Whether it is known to be whole, if its size and times say so.
    pub(super) is_trusted: bool,
    /// Whether a symbolic link leads where it should.
    pub(super) has_target: &'t dyn Fn() -> bool,
    /// Whether owner, mode, extended attributes and flags are as they should be.
    pub(super) has_attributes: &'t dyn Fn() -> bool,
}

/// What becomes of an entry that is a name of its own; further names of a file are [`decide_link`]'s.
pub(super) fn decide(
    policy: Policy,
    replace_types: bool,
    node: &Node,
    there: Option<&There<'_>>,
) -> Decision {
    let Some(there) = there else { return (Action::Create, Reason::Missing) };
    let status = there.status;
    if policy == Policy::Merge(Overwrite::Never) {
        return match (group(status.kind), group(Some(node.kind))) {
            (Some(Group::Folder), Some(Group::Folder)) => (Action::Keep, Reason::Exists),
            (_, Some(Group::Folder)) => (Action::Skip, other_kind(status)),
            _ => (Action::Keep, Reason::Exists),
        };
    }
    if group(status.kind) != group(Some(node.kind)) {
        let action = if replace_types || policy == Policy::Continue { Action::Replace } else { Action::Skip };
        return (action, other_kind(status));
    }
    let attributes = || match (there.has_attributes)() {
        true => (Action::Keep, Reason::Equal),
        false => (Action::Attributes, Reason::AttributesDiffer),
    };
    if node.kind == NodeKind::Folder {
        return match policy {
            Policy::Merge(Overwrite::IfNewer | Overwrite::Never) => (Action::Keep, Reason::Exists),
            // Its time is given once everything in it is done, and is no difference of its own.
            Policy::Merge(_) | Policy::Continue => attributes(),
        };
    }
    match policy {
        Policy::Merge(Overwrite::Always) => (Action::Replace, Reason::Always),
        Policy::Merge(Overwrite::IfNewer) => if_newer(node, status),
        Policy::Merge(Overwrite::IfChanged) if is_linked_elsewhere(node, status) => {
            (Action::Replace, Reason::Linked)
        }
        Policy::Continue if !there.is_trusted => (Action::Replace, Reason::Differs),
        _ if is_equal(node, there) => attributes(),
        _ => (Action::Replace, Reason::Differs),
    }
}

/// What becomes of a further name of a file, of which the first name has been decided upon. `is_same`: the two are names of one
/// file already, and it stays.
pub(super) fn decide_link(
    policy: Policy,
    replace_types: bool,
    node: &Node,
    status: &Status,
    is_same: bool,
) -> Decision {
    if is_same {
        return (Action::Keep, Reason::Equal);
    }
    if group(status.kind) != group(Some(node.kind)) && policy != Policy::Merge(Overwrite::Never) {
        let action = if replace_types || policy == Policy::Continue { Action::Replace } else { Action::Skip };
        return (action, other_kind(status));
    }
    match policy {
        Policy::Merge(Overwrite::Never) => (Action::Keep, Reason::Exists),
        Policy::Merge(Overwrite::IfNewer) => if_newer(node, status),
        Policy::Merge(Overwrite::Always) => (Action::Replace, Reason::Always),
        Policy::Merge(Overwrite::IfChanged) | Policy::Continue => (Action::Replace, Reason::Differs),
    }
}

fn if_newer(node: &Node, status: &Status) -> Decision {
    if node.mtime > status.mtime {
        (Action::Replace, Reason::Newer)
    } else {
        (Action::Keep, Reason::NotNewer)
    }
}

/// Changing what is there would change another file, and keeping it would keep the two linked.
fn is_linked_elsewhere(node: &Node, status: &Status) -> bool {
    node.link_group.is_none() && status.link_count > 1
}

fn is_equal(node: &Node, there: &There<'_>) -> bool {
    let status = there.status;
    let is_same = status.kind == Some(node.kind) && status.mtime == node.mtime;
    is_same
        && match node.kind {
            NodeKind::File => status.size == node.size,
            NodeKind::SymbolicLink => (there.has_target)(),
            NodeKind::CharacterDevice | NodeKind::BlockDevice => Some(status.device) == node.device,
            NodeKind::Folder | NodeKind::Fifo | NodeKind::Socket => true,
        }
}

/// Kinds that may take each other's place. A device that somebody has named by mistake is not replaced by a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Folder,
    FileOrLink,
    Special(NodeKind),
}

fn group(kind: Option<NodeKind>) -> Option<Group> {
    Some(match kind? {
        NodeKind::Folder => Group::Folder,
        NodeKind::File | NodeKind::SymbolicLink => Group::FileOrLink,
        special => Group::Special(special),
    })
}

fn other_kind(status: &Status) -> Reason {
    Reason::OtherKind(status.kind.unwrap_or(NodeKind::CharacterDevice))
}
