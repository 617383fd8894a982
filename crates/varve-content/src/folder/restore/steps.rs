//! The steps of a restore, in order: walks the tree of the snapshot and the destination together,
//! one entry after the other.
//!
//! A plan shows the steps, and a restore executes them, so both follow the same decisions. Memory
//! holds only the folders that the walk is in, the names of their entries if entries may be
//! removed, and an id for each file with several names.
//!
//! ```text
//! snapshot  a/   a/one   a/two            b
//! there     a/           a/two   a/three  b
//! steps     keep create  replace delete   keep  (and a leave step at the end of each folder)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::attributes::Attributes;
use super::decision::{Decision, ExistingEntry, Policy, RestoreAction, RestoreReason, decide, decide_link};
use super::files::TargetFolder;
use super::guards::Guards;
use super::locked::LockedEntry;
use super::options::RestoreFilter;
use crate::files::{Files, Nodes};
use crate::folder::archiving::read::JoinName;
use crate::folder::source::status::{FolderNames, HostFileId, Status};
use crate::records::node::{Node, NodeKind};
use crate::records::node_list::ReadFolderError;

/// The kinds of steps that are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepKinds {
    /// Only writes.
    Writes,
    /// Writes and removals.
    WritesAndDeletes,
}

/// The settings of all decisions.
#[derive(Clone, Copy)]
pub(super) struct RestoreRules<'a> {
    pub(super) policy: Policy,
    pub(super) replace_types: bool,
    pub(super) filter: &'a RestoreFilter,
    pub(super) guards: &'a Guards,
    pub(super) attributes: Attributes,
    /// The last path that an earlier run has made durable. For [`Policy::Continue`].
    pub(super) trusted: Option<&'a Path>,
}

/// A folder of the destination during the walk.
#[derive(Clone)]
pub(super) enum DestinationFolder {
    /// It does not exist, and has no contents.
    Absent,
    /// This run created it, and it is empty.
    New(Arc<TargetFolder>),
    /// It existed before.
    There(Arc<TargetFolder>),
}

impl DestinationFolder {
    pub(super) fn folder(&self) -> Option<&Arc<TargetFolder>> {
        match self {
            Self::Absent => None,
            Self::New(folder) | Self::There(folder) => Some(folder),
        }
    }

    /// The folder, if it may hold older entries.
    fn there(&self) -> Option<&Arc<TargetFolder>> {
        match self {
            Self::There(folder) => Some(folder),
            _ => None,
        }
    }
}

/// A step of a restore.
pub(super) enum RestoreStep {
    /// An entry of the snapshot. The caller must [enter](RestoreSteps::enter) a folder that is not
    /// skipped, or everything below it is omitted.
    Entry { at: DestinationFolder, path: PathBuf, node: Box<Node>, decision: Decision },
    /// An entry that exists only at the destination. A folder comes after its contents.
    Extra { folder: Arc<TargetFolder>, path: PathBuf, kind: Option<NodeKind>, decision: Decision },
    /// A part of a folder is unreadable.
    CutShort { path: PathBuf, source: ReadFolderError },
    /// The end of a folder that was entered.
    Leave { at: DestinationFolder, node: Box<Node>, action: RestoreAction },
}

pub(super) struct RestoreSteps<'a> {
    files: &'a dyn Files,
    rules: RestoreRules<'a>,
    wanted: StepKinds,
    frames: Vec<FolderToRestore<'a>>,
    /// An included entry that waits until the folders above it are entered.
    held: Option<Box<Node>>,
    /// A folder that was returned, and may be entered.
    offered: Option<OfferedNode>,
    /// For each link group, the id of its file if that existed and stays.
    groups: BTreeMap<u64, Option<HostFileId>>,
    /// The ids of those files.
    claimed: BTreeSet<HostFileId>,
}

enum OfferedNode {
    /// The folder is not on the stack yet.
    New { node: Box<Node>, path: PathBuf, is_included: bool, action: RestoreAction },
    /// The folder is on the stack already.
    Pending { index: usize, action: RestoreAction },
}

/// A folder that the walk is in.
struct FolderToRestore<'a> {
    node: Box<Node>,
    path: PathBuf,
    nodes: Nodes<'a>,
    /// `None` while no entry in it is known to be included.
    at: Option<DestinationFolder>,
    action: RestoreAction,
    /// True if everything below it is included.
    is_included: bool,
    extras: ExtraEntries,
}

/// The entries of a folder that the snapshot's folder does not have.
enum ExtraEntries {
    /// They are not requested.
    Ignored,
    /// The snapshot's entries are still being passed.
    Collecting {
        names: FolderNames,
        found: Vec<(Vec<u8>, Option<NodeKind>)>,
        peeked: Option<(Vec<u8>, Option<NodeKind>)>,
    },
    /// They are returned one by one. `keeps` is set if one of them stays.
    Returning { found: std::vec::IntoIter<(Vec<u8>, Option<NodeKind>)>, is_extra: bool, keeps: bool },
}

impl<'a> RestoreSteps<'a> {
    /// Starts at `root`, which is created or opened already, at `at`.
    pub(super) fn new(
        files: &'a dyn Files,
        rules: RestoreRules<'a>,
        wanted: StepKinds,
        root: &Node,
        at: DestinationFolder,
        action: RestoreAction,
    ) -> Self {
        let mut steps = Self {
            files,
            rules,
            wanted,
            frames: Vec::new(),
            held: None,
            offered: None,
            groups: BTreeMap::new(),
            claimed: BTreeSet::new(),
        };
        let is_included = rules.filter.is_all();
        steps.push(Box::new(root.clone()), PathBuf::new(), Some(at), is_included, action);
        steps
    }

    /// The number of folders that the walk is in.
    pub(super) fn depth(&self) -> usize {
        self.frames.len()
    }

    /// Enters the folder that was returned last.
    pub(super) fn enter(&mut self, at: DestinationFolder) {
        match self.offered.take() {
            Some(OfferedNode::New { node, path, is_included, action }) => {
                self.push(node, path, Some(at), is_included, action);
            }
            Some(OfferedNode::Pending { index, action }) => {
                self.frames[index].extras = self.extras_of(&at);
                self.frames[index].at = Some(at);
                self.frames[index].action = action;
            }
            None => unreachable!("only a folder that was returned is entered"),
        }
    }

    pub(super) fn next_step(&mut self) -> Option<RestoreStep> {
        match self.offered.take() {
            Some(OfferedNode::Pending { index, .. }) => {
                // The caller did not enter it, so everything below it is omitted.
                self.frames.truncate(index);
                self.held = None;
            }
            Some(OfferedNode::New { .. }) | None => {}
        }
        loop {
            if let Some(held) = self.held.take() {
                match self.frames.iter().position(|frame| frame.at.is_none()) {
                    Some(index) => {
                        self.held = Some(held);
                        return Some(self.offer_pending(index));
                    }
                    None => match self.entry(held) {
                        Some(step) => return Some(step),
                        None => continue,
                    },
                }
            }
            let frame = self.frames.last_mut()?;
            match frame.nodes.next() {
                Some(Ok(node)) => {
                    frame.extras.pass(&node.name);
                    if self.takes_part(&node) {
                        self.held = Some(Box::new(node));
                    }
                }
                Some(Err(source)) => {
                    // An existing entry may be in the unreadable part, so nothing is removed.
                    frame.extras = ExtraEntries::Ignored;
                    let path = frame.path.clone();
                    return Some(RestoreStep::CutShort { path, source });
                }
                None => {
                    if let Some(step) = self.next_extra() {
                        return Some(step);
                    }
                }
            }
        }
    }

    /// Returns whether an entry of the innermost folder takes part. A folder that is not included
    /// waits, because it may contain an included entry.
    fn takes_part(&mut self, node: &Node) -> bool {
        let Some(frame) = self.frames.last() else { return false };
        let (path, is_folder) = (frame.path.join_name(&node.name), node.kind == NodeKind::Folder);
        let filter = self.rules.filter;
        if filter.excludes(&path, is_folder) {
            return false;
        }
        if frame.is_included || filter.includes(&path, is_folder) {
            return true;
        }
        if is_folder {
            self.push(Box::new(node.clone()), path, None, false, RestoreAction::Keep);
        }
        false
    }

    fn push(
        &mut self,
        node: Box<Node>,
        path: PathBuf,
        at: Option<DestinationFolder>,
        is_included: bool,
        action: RestoreAction,
    ) {
        let nodes = self.files.nodes(&node);
        let extras = at.as_ref().map_or(ExtraEntries::Ignored, |at| self.extras_of(at));
        self.frames.push(FolderToRestore { node, path, nodes, at, action, is_included, extras });
    }

    fn extras_of(&self, at: &DestinationFolder) -> ExtraEntries {
        let Some(folder) = at.there().filter(|_| self.wanted == StepKinds::WritesAndDeletes) else {
            return ExtraEntries::Ignored;
        };
        // Names that are unreadable are not removed.
        let (names, _) = FolderNames::read(&folder.descriptor);
        ExtraEntries::Collecting { names, found: Vec::new(), peeked: None }
    }

    /// Returns a folder that waited for an included entry.
    fn offer_pending(&mut self, index: usize) -> RestoreStep {
        let at = self.frames[index - 1].at.clone().unwrap_or(DestinationFolder::Absent);
        let node = self.frames[index].node.clone();
        let path = self.frames[index].path.clone();
        let decision = self.decide(&at, &path, &node);
        self.offered = Some(OfferedNode::Pending { index, action: decision.0 });
        RestoreStep::Entry { at, path, node, decision }
    }

    fn entry(&mut self, node: Box<Node>) -> Option<RestoreStep> {
        let frame = self.frames.last()?;
        let (at, path) = (frame.at.clone()?, frame.path.join_name(&node.name));
        let is_included =
            frame.is_included || self.rules.filter.includes(&path, node.kind == NodeKind::Folder);
        let decision = self.decide(&at, &path, &node);
        if node.kind == NodeKind::Folder && decision.0 != RestoreAction::Skip {
            self.offered = Some(OfferedNode::New {
                node: node.clone(),
                path: path.clone(),
                is_included,
                action: decision.0,
            });
        }
        Some(RestoreStep::Entry { at, path, node, decision })
    }

    fn decide(&mut self, at: &DestinationFolder, path: &Path, node: &Node) -> Decision {
        let rules = self.rules;
        if self.files.problem(node).is_some_and(|trouble| trouble.lacks_all) {
            return (RestoreAction::Skip, RestoreReason::NotArchived);
        }
        let status = match at.there().map(|folder| Status::of_name(&folder.descriptor, &node.name)) {
            None => None,
            Some(Ok(status)) => Some(status),
            Some(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => None,
            Some(Err(error)) => return (RestoreAction::Skip, RestoreReason::Unreadable(error.to_string())),
        };
        let decision = match (at.there(), &status) {
            (Some(folder), Some(status)) => self.decide_there(folder, path, node, status),
            _ => decide(rules.policy, rules.replace_types, node, None),
        };
        let decision = unless_locked(at, node, status.as_ref(), decision);
        self.note_group(node, &decision, status.as_ref());
        decision
    }

    fn decide_there(&self, folder: &TargetFolder, path: &Path, node: &Node, status: &Status) -> Decision {
        let rules = self.rules;
        if rules.policy != Policy::Continue
            && let Some(kept) = rules.guards.find(number(status.id))
        {
            return (RestoreAction::Skip, RestoreReason::MustStay(kept.to_path_buf()));
        }
        let known = node.link_group.and_then(|group| self.groups.get(&group));
        let decision = match known {
            Some(first) => {
                let is_same = *first == Some(status.id);
                decide_link(rules.policy, rules.replace_types, node, status, is_same)
            }
            None => {
                let target = || rustix::fs::readlinkat(&folder.descriptor, node.name.as_slice(), Vec::new());
                let there = ExistingEntry {
                    status,
                    is_trusted: rules.trusted.is_some_and(|trusted| !comes_after(path, trusted)),
                    has_target: &|| target().is_ok_and(|target| target.to_bytes() == node.target),
                    has_attributes: &|| {
                        rules.attributes.are_given(&folder.descriptor, &node.name, node, status)
                    },
                };
                decide(rules.policy, rules.replace_types, node, Some(&there))
            }
        };
        match decision {
            (
                RestoreAction::Keep | RestoreAction::Attributes,
                RestoreReason::Equal | RestoreReason::AttributesDiffer,
            ) if known.is_none() && node.link_group.is_some() && self.claimed.contains(&status.id) => {
                (RestoreAction::Replace, RestoreReason::Linked)
            }
            // A change would also affect its other names.
            (RestoreAction::Attributes, _)
                if node.kind != NodeKind::Folder
                    && status.link_count > 1
                    && rules.policy != Policy::Continue =>
            {
                (RestoreAction::Replace, RestoreReason::Linked)
            }
            (RestoreAction::Replace, RestoreReason::OtherKind(NodeKind::Folder)) => {
                let excluded = |path: &Path, is_folder: bool| !self.may_go(path, is_folder);
                let looked = rules.guards.look_through(&folder.descriptor, &node.name, path, &excluded);
                looked.map_or_else(|hindrance| (RestoreAction::Skip, hindrance.reason()), |()| decision)
            }
            (RestoreAction::Keep | RestoreAction::Attributes, _) if node.kind == NodeKind::Folder => {
                let entered = match rules.policy {
                    Policy::Continue => Ok(()),
                    Policy::Merge(_) => rules.guards.enter(&folder.descriptor, &node.name, path).map(drop),
                };
                entered.map_or_else(|hindrance| (RestoreAction::Skip, hindrance.reason()), |()| decision)
            }
            decision => decision,
        }
    }

    /// Returns whether an entry of a folder that is replaced may be removed.
    fn may_go(&self, path: &Path, is_folder: bool) -> bool {
        let filter = self.rules.filter;
        let mut ancestors = path.ancestors();
        let is_included = filter.includes(path, is_folder)
            || ancestors.any(|path| !path.as_os_str().is_empty() && filter.includes(path, true));
        !filter.excludes(path, is_folder) && is_included
    }

    /// Records the file to which the first name of a link group leads.
    fn note_group(&mut self, node: &Node, (action, reason): &Decision, status: Option<&Status>) {
        let Some(group) = node.link_group.filter(|_| node.kind != NodeKind::Folder) else { return };
        match (action, reason) {
            (RestoreAction::Create | RestoreAction::Replace, _) => {
                self.groups.entry(group).or_insert(None);
            }
            (
                RestoreAction::Keep | RestoreAction::Attributes,
                RestoreReason::Equal | RestoreReason::AttributesDiffer,
            ) => {
                let id = status.map(|status| status.id);
                if let std::collections::btree_map::Entry::Vacant(vacant) = self.groups.entry(group) {
                    vacant.insert(id);
                    self.claimed.extend(id);
                }
            }
            // That file differs from the snapshot, so no further name may lead to it.
            _ => {}
        }
    }

    /// The step after the last entry of the innermost folder.
    fn next_extra(&mut self) -> Option<RestoreStep> {
        let frame = self.frames.last_mut()?;
        frame.extras.end_of_entries();
        let next = match &mut frame.extras {
            ExtraEntries::Returning { found, .. } => found.next(),
            _ => None,
        };
        match (next, frame.at.as_ref().and_then(DestinationFolder::there).cloned()) {
            (Some((name, kind)), Some(folder)) => self.extra(&folder, &name, kind),
            _ => self.leave(),
        }
    }

    /// The step for an entry that the snapshot does not have. `None` if it is a folder, which was
    /// entered.
    fn extra(
        &mut self,
        folder: &Arc<TargetFolder>,
        name: &[u8],
        kind: Option<NodeKind>,
    ) -> Option<RestoreStep> {
        let frame = self.frames.last()?;
        let path = frame.path.join_name(name);
        let kept = |steps: &mut Self, reason| {
            steps.keep_above();
            let (folder, path) = (Arc::clone(folder), path.clone());
            let action =
                if reason == RestoreReason::Excluded { RestoreAction::Keep } else { RestoreAction::Skip };
            Some(RestoreStep::Extra { folder, path, kind, decision: (action, reason) })
        };
        let status = match Status::of_name(&folder.descriptor, name) {
            Ok(status) => status,
            Err(error) => return kept(self, RestoreReason::Unreadable(error.to_string())),
        };
        let is_folder = status.kind == Some(NodeKind::Folder);
        let filter = self.rules.filter;
        let is_included = frame.is_included || filter.includes(&path, is_folder);
        if filter.excludes(&path, is_folder) || (!is_included && !is_folder) {
            return kept(self, RestoreReason::Excluded);
        }
        if let Some(stays) = self.rules.guards.find(number(status.id)) {
            let reason = RestoreReason::MustStay(stays.to_path_buf());
            return kept(self, reason);
        }
        if let Some(locked) = locked(folder, Some(&status)) {
            return kept(self, RestoreReason::Locked(locked));
        }
        if !is_folder {
            let decision = (RestoreAction::Delete, RestoreReason::NotInSnapshot);
            return Some(RestoreStep::Extra {
                folder: Arc::clone(folder),
                path,
                kind: status.kind,
                decision,
            });
        }
        match self.rules.guards.enter(&folder.descriptor, name, &path) {
            Ok(descriptor) => {
                self.push_extra(descriptor, name, path, is_included);
                None
            }
            Err(hindrance) => {
                let reason = hindrance.reason();
                kept(self, reason)
            }
        }
    }

    fn push_extra(&mut self, descriptor: OwnedFd, name: &[u8], path: PathBuf, is_included: bool) {
        let (mut names, read) = FolderNames::read(&descriptor);
        let mut found = Vec::new();
        while let Some((name, kind)) = names.next() {
            found.push((name.to_vec(), kind));
        }
        let folder = Arc::new(TargetFolder { descriptor, path: path.clone(), _token: Arc::new(()) });
        self.frames.push(FolderToRestore {
            node: Box::new(Node::new(name.to_vec(), NodeKind::Folder)),
            path,
            nodes: Box::new(std::iter::empty()),
            at: Some(DestinationFolder::There(folder)),
            action: RestoreAction::Delete,
            is_included,
            extras: ExtraEntries::Returning {
                found: found.into_iter(),
                is_extra: true,
                keeps: read.is_err() || !is_included,
            },
        });
    }

    /// Marks the current folder as one that cannot be removed.
    fn keep_above(&mut self) {
        if let Some(FolderToRestore { extras: ExtraEntries::Returning { keeps, .. }, .. }) =
            self.frames.last_mut()
        {
            *keeps = true;
        }
    }

    fn leave(&mut self) -> Option<RestoreStep> {
        let frame = self.frames.pop()?;
        let ExtraEntries::Returning { is_extra: true, keeps, .. } = frame.extras else {
            let at = frame.at?;
            return Some(RestoreStep::Leave { at, node: frame.node, action: frame.action });
        };
        let parent = self.frames.last()?.at.as_ref().and_then(DestinationFolder::there).cloned()?;
        let decision = if keeps {
            self.keep_above();
            (
                RestoreAction::Keep,
                if frame.is_included { RestoreReason::NotEmptied } else { RestoreReason::Excluded },
            )
        } else {
            (RestoreAction::Delete, RestoreReason::NotInSnapshot)
        };
        Some(RestoreStep::Extra { folder: parent, path: frame.path, kind: Some(NodeKind::Folder), decision })
    }
}

impl ExtraEntries {
    /// Passes an entry of the snapshot. The names before it exist only at the destination.
    fn pass(&mut self, name: &[u8]) {
        let Self::Collecting { names, found, peeked } = self else { return };
        loop {
            let next = peeked.take().or_else(|| names.next().map(|(name, kind)| (name.to_vec(), kind)));
            match next {
                Some(next) if next.0.as_slice() < name => found.push(next),
                Some(next) if next.0.as_slice() == name => return,
                next => {
                    *peeked = next;
                    return;
                }
            }
        }
    }

    /// The remaining names exist only at the destination.
    fn end_of_entries(&mut self) {
        if let Self::Collecting { names, found, peeked } = self {
            found.extend(peeked.take());
            while let Some((name, kind)) = names.next() {
                found.push((name.to_vec(), kind));
            }
            let found = std::mem::take(found).into_iter();
            *self = Self::Returning { found, is_extra: false, keeps: false };
        }
    }
}

/// The lock on an entry, or on the folder in which it would be created, renamed or removed.
fn locked(folder: &TargetFolder, status: Option<&Status>) -> Option<LockedEntry> {
    status.and_then(LockedEntry::entry).or_else(|| LockedEntry::open(&folder.descriptor, &folder.path))
}

/// Replaces a decision that the system is known to refuse. A locked folder is entered nevertheless.
fn unless_locked(
    at: &DestinationFolder,
    node: &Node,
    status: Option<&Status>,
    decision: Decision,
) -> Decision {
    let Some(folder) = at.there() else { return decision };
    let found = match decision.0 {
        RestoreAction::Create | RestoreAction::Replace => locked(folder, status),
        RestoreAction::Attributes if node.kind != NodeKind::Folder => status.and_then(LockedEntry::entry),
        _ => None,
    };
    found.map_or(decision, |locked| (RestoreAction::Skip, RestoreReason::Locked(locked)))
}

/// Returns whether a path comes after another one in the order of the walk: compared name by name,
/// with the contents of a folder after the folder.
pub(super) fn comes_after(path: &Path, other: &Path) -> bool {
    let names = |path: &Path| path.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
    names(path) > names(other)
}

/// The device and inode as `stat` reports them.
fn number(id: HostFileId) -> (u64, u64) {
    (rustix::fs::makedev(id.file_system.major, id.file_system.minor), id.inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_in_the_order_of_the_walk() {
        let ordered = ["", "a", "a/b", "a/b/c", "a/b c", "a b", "b"];
        for (place, path) in ordered.iter().enumerate() {
            for (other_place, other) in ordered.iter().enumerate() {
                assert_eq!(
                    comes_after(Path::new(path), Path::new(other)),
                    place > other_place,
                    "{path} {other}"
                );
            }
        }
    }
}
