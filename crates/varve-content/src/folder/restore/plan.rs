//! Plans a restore, entry by entry, without changing or storing anything.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::RestoreFolderError;
use super::attributes::Attributes;
use super::decision::{Decision, Policy, RestoreAction, RestoreReason};
use super::destination::{Destination, DestinationState};
use super::files::TargetFolder;
use super::guards::Guards;
use super::options::{Overwrite, RestoreOptions};
use super::steps::{DestinationFolder, RestoreRules, RestoreStep, RestoreSteps, StepKinds};
use crate::files::Files;
use crate::records::node::{Node, NodeKind};

/// An entry of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedEntry {
    /// The path from the root of the restore; empty for the root.
    pub path: PathBuf,
    /// The kind in the snapshot. If the snapshot does not have the entry, its kind at the
    /// destination.
    pub kind: Option<NodeKind>,
    /// Bytes that would be written.
    pub bytes: u64,
    pub action: RestoreAction,
    pub reason: RestoreReason,
}

/// The number of entries with each action.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlanCounts {
    /// Entries to create.
    pub create: u64,
    /// Entries that replace existing ones.
    pub replace: u64,
    /// Existing entries that only get owner, mode, times or attributes.
    pub attributes: u64,
    /// Entries that stay unchanged.
    pub keep: u64,
    /// Entries to remove.
    pub delete: u64,
    /// Entries that should be restored or removed, and are not.
    pub skip: u64,
    /// Bytes that would be written.
    pub bytes: u64,
    /// True if the destination exists and is not empty.
    pub is_merge: bool,
}

impl PlanCounts {
    /// The number of entries that change the destination.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.create + self.replace + self.attributes + self.delete
    }

    fn add(&mut self, entry: &PlannedEntry) {
        let count = match entry.action {
            RestoreAction::Create => &mut self.create,
            RestoreAction::Replace => &mut self.replace,
            RestoreAction::Attributes => &mut self.attributes,
            RestoreAction::Keep => &mut self.keep,
            RestoreAction::Delete => &mut self.delete,
            RestoreAction::Skip => &mut self.skip,
        };
        *count += 1;
        self.bytes += entry.bytes;
    }
}

/// Shows what [`restore_folder`](super::restore_folder) would do with the same arguments, in the
/// same order. Without [`overwrite`](RestoreOptions::overwrite), an existing folder is shown as
/// [`Overwrite::IfChanged`] would treat it.
///
/// # Errors
/// [`RestoreFolderError`]: nothing can be restored there.
pub fn plan_restore(
    files: &dyn Files,
    root: &Node,
    destination: &Path,
    options: RestoreOptions<'_>,
    show: &mut dyn FnMut(&PlannedEntry),
) -> Result<PlanCounts, RestoreFolderError> {
    let guards = Guards::new(options.kept);
    let destination = Destination::open(destination)?;
    let mut plan = PlanListing { counts: PlanCounts::default(), show };
    let (at, decision) = match destination.look(root, &options, &guards)? {
        DestinationState::Free | DestinationState::Empty(_) => {
            (DestinationFolder::Absent, (RestoreAction::Create, RestoreReason::Missing))
        }
        DestinationState::Folder(descriptor) => {
            plan.counts.is_merge = true;
            let folder = TargetFolder { descriptor, path: PathBuf::new(), _token: Arc::new(()) };
            (DestinationFolder::There(Arc::new(folder)), (RestoreAction::Keep, RestoreReason::Exists))
        }
        DestinationState::Entry(decision) => {
            plan.counts.is_merge = true;
            (DestinationFolder::Absent, decision)
        }
    };
    let overwrite = options.overwrite.unwrap_or(Overwrite::IfChanged);
    let rules = RestoreRules {
        policy: Policy::Merge(overwrite),
        replace_types: options.replace_types,
        filter: options.filter,
        guards: &guards,
        attributes: Attributes::new(options.owners, true),
        trusted: None,
    };
    let is_entered = root.kind == NodeKind::Folder && decision.0 != RestoreAction::Skip;
    plan.entry(PathBuf::new(), root, decision.clone());
    if is_entered {
        let wanted = if options.delete { StepKinds::WritesAndDeletes } else { StepKinds::Writes };
        plan.walk(RestoreSteps::new(files, rules, wanted, root, at, decision.0), &guards);
    }
    Ok(plan.counts)
}

struct PlanListing<'s> {
    counts: PlanCounts,
    show: &'s mut dyn FnMut(&PlannedEntry),
}

impl PlanListing<'_> {
    fn walk(&mut self, mut steps: RestoreSteps<'_>, guards: &Guards) {
        while let Some(step) = steps.next_step() {
            match step {
                RestoreStep::Entry { at, path, node, decision } => {
                    let action = decision.0;
                    if node.kind == NodeKind::Folder && action != RestoreAction::Skip {
                        let folder = match action {
                            RestoreAction::Keep | RestoreAction::Attributes => {
                                open(&at, &path, &node, guards)
                            }
                            _ => None,
                        };
                        steps.enter(folder.map_or(DestinationFolder::Absent, |folder| {
                            DestinationFolder::There(Arc::new(folder))
                        }));
                    }
                    self.entry(path, &node, decision);
                }
                RestoreStep::Extra { path, kind, decision: (action, reason), .. } => {
                    self.add(PlannedEntry { path, kind, bytes: 0, action, reason });
                }
                RestoreStep::CutShort { path, source } => {
                    let reason = RestoreReason::Unreadable(source.to_string());
                    let kind = Some(NodeKind::Folder);
                    self.add(PlannedEntry { path, kind, bytes: 0, action: RestoreAction::Skip, reason });
                }
                RestoreStep::Leave { .. } => {}
            }
        }
    }

    fn entry(&mut self, path: PathBuf, node: &Node, (action, reason): Decision) {
        let is_written = matches!(action, RestoreAction::Create | RestoreAction::Replace);
        let bytes = if is_written { node.size } else { 0 };
        self.add(PlannedEntry { path, kind: Some(node.kind), bytes, action, reason });
    }

    fn add(&mut self, entry: PlannedEntry) {
        self.counts.add(&entry);
        (self.show)(&entry);
    }
}

fn open(at: &DestinationFolder, path: &Path, node: &Node, guards: &Guards) -> Option<TargetFolder> {
    let descriptor = guards.enter(&at.folder()?.descriptor, &node.name, path).ok()?;
    Some(TargetFolder { descriptor, path: path.to_path_buf(), _token: Arc::new(()) })
}
