//! Removing what a folder has and the snapshot has not: after everything is restored, and only then.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::AtFlags;

use super::super::watch::Watch;
use super::decision::{Action, Policy, Reason};
use super::files::TargetFolder;
use super::options::Overwrite;
use super::steps::{At, Rules, Step, Steps, Wanted};
use super::{RestoreCounts, RestoreFolderError};
use crate::browsing::files::Files;
use crate::records::node::{Node, NodeKind};

/// Something that should be gone.
#[derive(Debug, thiserror::Error)]
#[error("it is not in the snapshot, and cannot be removed")]
struct NotRemoved {
    source: std::io::Error,
}

/// Something that should be gone, and must not be removed.
#[derive(Debug, thiserror::Error)]
#[error("it is not in the snapshot, and is not removed: {reason}")]
struct MustStay {
    reason: Reason,
}

/// Removes what the snapshot does not have, as a plan shows it.
pub(super) fn delete_extras(
    files: &dyn Files,
    rules: Rules<'_>,
    root: &Node,
    folder: OwnedFd,
    watch: Watch<'_>,
    counts: &mut RestoreCounts,
) -> Result<(), RestoreFolderError> {
    let at = |descriptor, path| At::There(Arc::new(TargetFolder { descriptor, path, _token: Arc::new(()) }));
    // Nothing is written any more: what is there stays, and its folders are gone through.
    let going_through = Rules { policy: Policy::Merge(Overwrite::Never), ..rules };
    let at_root = at(folder, PathBuf::new());
    let wanted = Wanted::WritesAndDeletes;
    let mut steps = Steps::new(files, going_through, wanted, root, at_root, Action::Keep);
    while let Some(step) = steps.next_step() {
        if watch.progress.is_cancelled() {
            return Err(RestoreFolderError::Cancelled { unfinished: None });
        }
        match step {
            Step::Entry { at: parent, path, node, decision: (Action::Keep, _) }
                if node.kind == NodeKind::Folder =>
            {
                let parent = parent.folder();
                let entered =
                    parent.and_then(|parent| rules.guards.enter(&parent.descriptor, &node.name, &path).ok());
                if let Some(descriptor) = entered {
                    steps.enter(at(descriptor, path));
                }
            }
            Step::Extra { folder, path, kind, decision: (Action::Delete, _) } => {
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
            Step::Extra { path, decision: (Action::Skip, reason), .. } => {
                counts.problem_count += 1;
                watch.report(&path, MustStay { reason });
            }
            Step::Leave { at: At::There(folder), node, action: _ } => {
                give_back_times(&folder, &node, rules);
            }
            _ => {}
        }
    }
    Ok(())
}

/// What is removed changes the time of the folder that it was in.
fn give_back_times(folder: &TargetFolder, node: &Node, rules: Rules<'_>) {
    if let Policy::Merge(Overwrite::Always | Overwrite::IfChanged) = rules.policy {
        // That it cannot be given was reported when it was tried first.
        let _ = rules.attributes.give_existing(&folder.descriptor, node);
    }
}
