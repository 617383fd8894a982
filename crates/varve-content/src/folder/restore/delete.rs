//! Removes the entries of a folder that the snapshot does not have, once everything is restored.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::AtFlags;

use super::super::watch::Watch;
use super::decision::{Policy, RestoreAction, RestoreReason};
use super::files::TargetFolder;
use super::options::Overwrite;
use super::steps::{DestinationFolder, RestoreRules, RestoreStep, RestoreSteps, StepKinds};
use super::{RestoreCounts, RestoreFolderError};
use crate::files::Files;
use crate::records::node::{Node, NodeKind};

/// The report of an entry that could not be removed.
#[derive(Debug, thiserror::Error)]
#[error("it is not in the snapshot, but cannot be removed")]
struct NotRemoved {
    source: std::io::Error,
}

/// The report of an entry that must not be removed.
#[derive(Debug, thiserror::Error)]
#[error("it is not in the snapshot, but is not removed: {reason}")]
struct MustStay {
    reason: RestoreReason,
}

/// Removes the entries that the snapshot does not have, as the plan shows them.
pub(super) fn delete_extras(
    files: &dyn Files,
    rules: RestoreRules<'_>,
    root: &Node,
    folder: OwnedFd,
    watch: Watch<'_>,
    counts: &mut RestoreCounts,
) -> Result<(), RestoreFolderError> {
    let at = |descriptor, path| {
        DestinationFolder::There(Arc::new(TargetFolder { descriptor, path, _token: Arc::new(()) }))
    };
    // This pass writes nothing. It keeps existing entries, and enters their folders.
    let going_through = RestoreRules { policy: Policy::Merge(Overwrite::Never), ..rules };
    let at_root = at(folder, PathBuf::new());
    let wanted = StepKinds::WritesAndDeletes;
    let mut steps = RestoreSteps::new(files, going_through, wanted, root, at_root, RestoreAction::Keep);
    while let Some(step) = steps.next_step() {
        if watch.progress.is_cancelled() {
            return Err(RestoreFolderError::Cancelled { unfinished: None });
        }
        match step {
            RestoreStep::Entry { at: parent, path, node, decision: (RestoreAction::Keep, _) }
                if node.kind == NodeKind::Folder =>
            {
                let parent = parent.folder();
                let entered =
                    parent.and_then(|parent| rules.guards.enter(&parent.descriptor, &node.name, &path).ok());
                if let Some(descriptor) = entered {
                    steps.enter(at(descriptor, path));
                }
            }
            RestoreStep::Extra { folder, path, kind, decision: (RestoreAction::Delete, _) } => {
                let is_folder = kind == Some(NodeKind::Folder);
                let flags = if is_folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                let name = path.file_name().unwrap_or_default().as_bytes();
                match rustix::fs::unlinkat(&folder.descriptor, name, flags) {
                    Ok(()) => counts.deleted_count += 1,
                    Err(error) => {
                        counts.problem_count += 1;
                        watch.report(&path, NotRemoved { source: error.into() });
                    }
                }
            }
            RestoreStep::Extra { path, decision: (RestoreAction::Skip, reason), .. } => {
                counts.problem_count += 1;
                watch.report(&path, MustStay { reason });
            }
            RestoreStep::Leave { at: DestinationFolder::There(folder), node, action: _ } => {
                give_back_times(&folder, &node, rules);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Sets the time of a folder again, because removing an entry changed it.
fn give_back_times(folder: &TargetFolder, node: &Node, rules: RestoreRules<'_>) {
    if let Policy::Merge(Overwrite::Always | Overwrite::IfChanged) = rules.policy {
        // A failure was reported at the first attempt.
        let _ = rules.attributes.give_existing(&folder.descriptor, node);
    }
}
