//! Decides the action for one entry of a restore, with the reason. Pure.

use std::path::PathBuf;

use super::locked::LockedEntry;
use super::options::Overwrite;
use crate::folder::source::status::Status;
use crate::records::node::{Node, NodeKind};

/// The action of a restore for an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RestoreAction {
    /// The entry does not exist, and is created.
    Create,
    /// The entry replaces the existing one.
    Replace,
    /// The existing entry has the content already, and gets owner, mode, times and attributes.
    Attributes,
    /// The existing entry stays unchanged.
    Keep,
    /// The existing entry is removed.
    Delete,
    /// The entry should be restored or removed, and is not.
    Skip,
}

impl std::fmt::Display for RestoreAction {
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

/// The reason for an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreReason {
    /// Nothing exists there.
    Missing,
    /// Every file is written anew.
    Always,
    /// The size, modification time, target or device differs.
    Differs,
    /// The snapshot has a later modification time.
    Newer,
    /// The existing entry is of another kind.
    OtherKind(NodeKind),
    /// The existing file has other names that are not in the snapshot.
    Linked,
    /// Owner, mode, extended attributes or flags differ.
    AttributesDiffer,
    Equal,
    /// The snapshot has no later modification time.
    NotNewer,
    /// An entry exists, and nothing is replaced.
    Exists,
    NotInSnapshot,
    /// An exclude matches it, or no include does.
    Excluded,
    /// It contains an entry that is kept.
    NotEmptied,
    /// It is the store itself, or another path that must stay.
    MustStay(PathBuf),
    /// Another file system is mounted there.
    Mount,
    /// It is a Varve store.
    Store,
    /// The entry, or its folder, has a flag that refuses changes.
    Locked(LockedEntry),
    /// The snapshot has only its name.
    NotArchived,
    /// The existing entry is unreadable.
    Unreadable(String),
}

impl std::fmt::Display for RestoreReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing => f.write_str("it is missing"),
            Self::Always => f.write_str("everything is replaced"),
            Self::Differs => f.write_str("it differs"),
            Self::Newer => f.write_str("the one in the snapshot is newer"),
            Self::OtherKind(kind) => write!(f, "a {kind} is there"),
            Self::Linked => f.write_str("it is linked to another file"),
            Self::AttributesDiffer => f.write_str("owner, mode, times or attributes differ"),
            Self::Equal => f.write_str("nothing differs"),
            Self::NotNewer => f.write_str("the one in the snapshot is not newer"),
            Self::Exists => f.write_str("it exists"),
            Self::NotInSnapshot => f.write_str("it is not in the snapshot"),
            Self::Excluded => f.write_str("it is excluded"),
            Self::NotEmptied => f.write_str("something in it is kept"),
            Self::MustStay(what) => write!(f, "{} must stay", what.display()),
            Self::Mount => f.write_str("a file system is mounted there"),
            Self::Store => f.write_str("it is a Varve store"),
            Self::Locked(locked) => locked.fmt(f),
            Self::NotArchived => f.write_str("the snapshot has only its name"),
            Self::Unreadable(error) => write!(f, "it cannot be examined: {error}"),
        }
    }
}

/// An action with its reason.
pub(super) type Decision = (RestoreAction, RestoreReason);

/// The rules for existing entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    /// Existing entries belong to the user.
    Merge(Overwrite),
    /// Existing entries are from an earlier run of this restore.
    Continue,
}

/// The existing entry.
pub(super) struct ExistingEntry<'t> {
    pub(super) status: &'t Status,
    /// True if it is known to be complete once its size and times match.
    pub(super) is_trusted: bool,
    /// Tells whether a symbolic link has the right target.
    pub(super) has_target: &'t dyn Fn() -> bool,
    /// Tells whether owner, mode, extended attributes and flags are right.
    pub(super) has_attributes: &'t dyn Fn() -> bool,
}

/// Decides the action for an entry with its own name. [`decide_link`] decides for further names of
/// a file.
pub(super) fn decide(
    policy: Policy,
    replace_types: bool,
    node: &Node,
    there: Option<&ExistingEntry<'_>>,
) -> Decision {
    let Some(there) = there else { return (RestoreAction::Create, RestoreReason::Missing) };
    let status = there.status;
    if policy == Policy::Merge(Overwrite::Never) {
        return match (group(status.kind), group(Some(node.kind))) {
            (Some(KindGroup::Folder), Some(KindGroup::Folder)) => {
                (RestoreAction::Keep, RestoreReason::Exists)
            }
            (_, Some(KindGroup::Folder)) => (RestoreAction::Skip, other_kind(status)),
            _ => (RestoreAction::Keep, RestoreReason::Exists),
        };
    }
    if group(status.kind) != group(Some(node.kind)) {
        let action = if replace_types || policy == Policy::Continue {
            RestoreAction::Replace
        } else {
            RestoreAction::Skip
        };
        return (action, other_kind(status));
    }
    let attributes = || match (there.has_attributes)() {
        true => (RestoreAction::Keep, RestoreReason::Equal),
        false => (RestoreAction::Attributes, RestoreReason::AttributesDiffer),
    };
    if node.kind == NodeKind::Folder {
        return match policy {
            Policy::Merge(Overwrite::IfNewer | Overwrite::Never) => {
                (RestoreAction::Keep, RestoreReason::Exists)
            }
            // The time of a folder is set once everything in it is done, and is no difference by
            // itself.
            Policy::Merge(_) | Policy::Continue => attributes(),
        };
    }
    match policy {
        Policy::Merge(Overwrite::Always) => (RestoreAction::Replace, RestoreReason::Always),
        Policy::Merge(Overwrite::IfNewer) => if_newer(node, status),
        Policy::Merge(Overwrite::IfChanged) if is_linked_elsewhere(node, status) => {
            (RestoreAction::Replace, RestoreReason::Linked)
        }
        Policy::Continue if !there.is_trusted => (RestoreAction::Replace, RestoreReason::Differs),
        _ if is_equal(node, there) => attributes(),
        _ => (RestoreAction::Replace, RestoreReason::Differs),
    }
}

/// Decides the action for a further name of a file whose first name is decided. `is_same` is set if
/// both names already lead to one file, which stays.
pub(super) fn decide_link(
    policy: Policy,
    replace_types: bool,
    node: &Node,
    status: &Status,
    is_same: bool,
) -> Decision {
    if is_same {
        return (RestoreAction::Keep, RestoreReason::Equal);
    }
    if group(status.kind) != group(Some(node.kind)) && policy != Policy::Merge(Overwrite::Never) {
        let action = if replace_types || policy == Policy::Continue {
            RestoreAction::Replace
        } else {
            RestoreAction::Skip
        };
        return (action, other_kind(status));
    }
    match policy {
        Policy::Merge(Overwrite::Never) => (RestoreAction::Keep, RestoreReason::Exists),
        Policy::Merge(Overwrite::IfNewer) => if_newer(node, status),
        Policy::Merge(Overwrite::Always) => (RestoreAction::Replace, RestoreReason::Always),
        Policy::Merge(Overwrite::IfChanged) | Policy::Continue => {
            (RestoreAction::Replace, RestoreReason::Differs)
        }
    }
}

fn if_newer(node: &Node, status: &Status) -> Decision {
    if node.mtime > status.mtime {
        (RestoreAction::Replace, RestoreReason::Newer)
    } else {
        (RestoreAction::Keep, RestoreReason::NotNewer)
    }
}

/// A change to the existing file would change another file, and keeping it would keep the two
/// linked.
fn is_linked_elsewhere(node: &Node, status: &Status) -> bool {
    node.link_group.is_none() && status.link_count > 1
}

fn is_equal(node: &Node, there: &ExistingEntry<'_>) -> bool {
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

/// Kinds that may replace each other. A device that the user named by mistake is not replaced by a
/// file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KindGroup {
    Folder,
    FileOrLink,
    Special(NodeKind),
}

fn group(kind: Option<NodeKind>) -> Option<KindGroup> {
    Some(match kind? {
        NodeKind::Folder => KindGroup::Folder,
        NodeKind::File | NodeKind::SymbolicLink => KindGroup::FileOrLink,
        special => KindGroup::Special(special),
    })
}

fn other_kind(status: &Status) -> RestoreReason {
    RestoreReason::OtherKind(status.kind.unwrap_or(NodeKind::CharacterDevice))
}
