//! Runs a whole restore: chooses the way that it takes, and ends it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use varve_world::Workers;

use super::super::watch::Watch;
use super::attributes::Attributes;
use super::decision::{Policy, RestoreAction, RestoreReason};
use super::delete::delete_extras;
use super::destination::{Destination, DestinationState, PartialResult};
use super::files::FileWriter;
use super::flag_giver::FlagGiver;
use super::guards::Guards;
use super::move_into_place::ReplacedEntry;
use super::options::Overwrite;
use super::steps::RestoreRules;
use super::tree::{RestoreStopped, TreeTarget, TreeWriter};
use super::{RestoreCounts, RestoreFolderError, RestoreOptions};
use crate::files::Files;
use crate::folder::archiving::pipeline;
use crate::folder::source::status::open_file;
use crate::records::node::{Node, NodeKind};
use crate::restoring::unfinished_restore::{PartialKind, UnfinishedRestore};

/// Restores a node, and everything below it, to `destination`. The node's own name does not matter.
///
/// A new destination appears complete and durable, or not at all. A restore that was interrupted,
/// or that filled the disk, leaves its partial result beside the destination, and the next one from
/// the same [source](RestoreOptions::source) continues from it. An existing folder receives the
/// snapshot's files one at a time, each replaced in one step. Files that the snapshot does not have
/// stay, unless [`delete`](RestoreOptions::delete) is set. Nothing is removed if the restore has a
/// problem.
///
/// Blocks that the store lacks, unreadable file systems and refusals of the system are reported,
/// and the files are left out. The rest is restored. Holes are restored as holes. Memory holds a
/// bounded number of files whatever their size, and a path for each file that has several names or
/// is locked by its flags.
///
/// # Errors
/// [`RestoreFolderError`].
pub fn restore_folder(
    files: &dyn Files,
    workers: &dyn Workers,
    root: &Node,
    destination: &Path,
    options: RestoreOptions<'_>,
    watch: Watch<'_>,
) -> Result<RestoreCounts, RestoreFolderError> {
    let guards = Guards::new(options.kept);
    let flags = FlagGiver::default();
    let restore = FolderRestore { files, workers, root, options, watch, guards: &guards, flags: &flags };
    let destination = Destination::open(destination)?;
    let state = destination.look(root, &options, &guards)?;
    if !matches!(state, DestinationState::Free) {
        destination.forget_completed();
    }
    match state {
        DestinationState::Free if root.kind == NodeKind::Folder => restore.make_folder(destination.begin(
            PartialKind::Folder,
            options.source,
            ReplacedEntry::Nothing,
        )?),
        DestinationState::Empty(folder) => {
            restore.make_folder(destination.begin_below(folder, options.source)?)
        }
        DestinationState::Folder(folder) => match options.overwrite {
            None => Err(destination.refused(root, RestoreReason::Exists)),
            Some(overwrite) => restore.merge(folder, overwrite, false),
        },
        DestinationState::Free => restore.make_one(destination, ReplacedEntry::Nothing),
        DestinationState::Entry((RestoreAction::Replace, RestoreReason::OtherKind(NodeKind::Folder))) => {
            restore.make_one(destination, ReplacedEntry::Tree)
        }
        DestinationState::Entry((RestoreAction::Replace, _)) if root.kind == NodeKind::Folder => restore
            .make_folder(destination.begin(PartialKind::Folder, options.source, ReplacedEntry::Tree)?),
        DestinationState::Entry((RestoreAction::Replace, _)) => {
            restore.make_one(destination, ReplacedEntry::File)
        }
        DestinationState::Entry((RestoreAction::Attributes, _)) => {
            let given = destination.give_attributes(root, restore.attributes(true), &flags);
            let file = given.map_err(|error| destination.failed(error))?;
            let mut counts = RestoreCounts { attributes_count: 1, ..RestoreCounts::default() };
            restore.lock(file.as_ref(), &mut counts)?;
            Ok(counts)
        }
        DestinationState::Entry((RestoreAction::Keep, _)) => {
            Ok(RestoreCounts { kept_count: 1, ..RestoreCounts::default() })
        }
        DestinationState::Entry((_, reason)) => Err(destination.refused(root, reason)),
    }
}

/// The source and the settings of a restore.
struct FolderRestore<'a> {
    files: &'a dyn Files,
    workers: &'a dyn Workers,
    root: &'a Node,
    options: RestoreOptions<'a>,
    watch: Watch<'a>,
    guards: &'a Guards,
    flags: &'a FlagGiver,
}

impl<'a> FolderRestore<'a> {
    fn attributes(&self, may_inherit: bool) -> Attributes {
        Attributes::new(self.options.owners, may_inherit)
    }

    fn rules<'r>(
        &'r self,
        policy: Policy,
        attributes: Attributes,
        trusted: Option<&'r Path>,
    ) -> RestoreRules<'r> {
        let RestoreOptions { replace_types, filter, .. } = self.options;
        RestoreRules { policy, replace_types, filter, guards: self.guards, attributes, trusted }
    }

    fn writer(&self, attributes: Attributes) -> FileWriter<'_> {
        FileWriter::new(self.files, self.watch, (attributes, self.flags), self.guards, self.options.damaged)
    }

    /// Creates a new folder, and moves it to its place.
    fn make_folder(&self, new: PartialResult) -> Result<RestoreCounts, RestoreFolderError> {
        let attributes = self.attributes(false);
        if new.is_made() {
            return self.go_on_placing(new, attributes);
        }
        let unfinished = new.unfinished();
        let trusted = unfinished.noted().after.clone();
        let is_new = !unfinished.is_continued();
        let rules = self.rules(Policy::Continue, attributes, trusted.as_deref());
        let descriptor = new.open_folder()?;
        let made = rustix::io::dup(&descriptor).map_err(|error| new.failed(error.into()))?;
        let target = self.target(rules, Some(unfinished));
        let counts = self.write_tree(target, descriptor, is_new, RestoreAction::Create);
        self.place(new, counts, attributes, Some(made))
    }

    /// Finishes a restore for which an earlier run created everything, and had begun to move it to
    /// its place. Nodes that the earlier run could not restore stay missing.
    fn go_on_placing(
        &self,
        new: PartialResult,
        attributes: Attributes,
    ) -> Result<RestoreCounts, RestoreFolderError> {
        let folder = new.put_in_place(self.root, attributes, self.guards)?.1;
        match folder {
            Some(folder) => self.merge(folder, Overwrite::Never, true),
            None => Ok(RestoreCounts::default()),
        }
    }

    /// Creates a node that is not a folder.
    fn make_one(
        &self,
        destination: Destination,
        over: ReplacedEntry,
    ) -> Result<RestoreCounts, RestoreFolderError> {
        let attributes = self.attributes(true);
        if self.root.kind == NodeKind::File {
            let new = destination.begin(PartialKind::File, self.options.source, over)?;
            let unfinished = new.unfinished();
            let rules = self.rules(Policy::Continue, attributes, None);
            let target = self.target(rules, Some(unfinished));
            let writer = self.writer(attributes);
            let written = pipeline::run(self.workers, &|job| writer.write(job), |pipeline| {
                TreeWriter::new(&writer, pipeline, self.watch, target).write_file(self.root, unfinished)
            });
            let counts = end(written, writer);
            let made = open_file(unfinished.folder(), unfinished.name()).ok();
            return self.place(new, counts, attributes, made);
        }
        let writer = self.writer(attributes);
        let rules = self.rules(Policy::Continue, attributes, None);
        let target = self.target(rules, None);
        let mut counts = RestoreCounts::default();
        let make = |parent: OwnedFd, name: &[u8]| {
            counts = pipeline::run(self.workers, &|job| writer.write(job), |pipeline| {
                TreeWriter::new(&writer, pipeline, self.watch, target).write_special(self.root, parent, name)
            });
            counts.file_count > 0
        };
        if let Some(not_removed) = destination.make_at_once(make, over, self.guards)? {
            self.watch.report(Path::new(""), not_removed);
            counts.problem_count += 1;
        }
        Ok(counts)
    }

    /// Merges a folder into an existing one. `is_placed`: see [`TreeTarget::is_placed`].
    fn merge(
        &self,
        folder: OwnedFd,
        overwrite: Overwrite,
        is_placed: bool,
    ) -> Result<RestoreCounts, RestoreFolderError> {
        let rules = self.rules(Policy::Merge(overwrite), self.attributes(true), None);
        let for_deletion = rustix::io::dup(&folder).ok().filter(|_| self.options.delete);
        let root = rustix::io::dup(&folder).ok();
        let target = TreeTarget { is_placed, ..self.target(rules, None) };
        let mut counts = self.write_tree(target, folder, false, RestoreAction::Keep)?;
        if let Some(folder) = for_deletion {
            counts.is_delete_withheld = counts.problem_count > 0;
            if !counts.is_delete_withheld {
                delete_extras(self.files, rules, self.root, folder, self.watch, &mut counts)?;
            }
        }
        if is_placed || matches!(overwrite, Overwrite::Always | Overwrite::IfChanged) {
            self.give_root_flags(root.as_ref());
        }
        self.lock(root.as_ref(), &mut counts)?;
        if let Some(folder) = root {
            let synced = rustix::fs::syncfs(&folder);
            synced.map_err(|error| RestoreFolderError::Destination {
                path: PathBuf::new(),
                source: error.into(),
            })?;
        }
        Ok(counts)
    }

    /// Sets the flags of the destination folder.
    fn give_root_flags(&self, root: Option<&OwnedFd>) {
        if let Some(root) = root.filter(|_| !self.root.inode_flags.is_empty()) {
            self.flags.give(root, Path::new(""), self.root);
        }
    }

    /// Sets the flags that refuse changes. This must be the last step.
    fn lock(&self, root: Option<&OwnedFd>, counts: &mut RestoreCounts) -> Result<(), RestoreFolderError> {
        counts.lacking_flags_count = self
            .flags
            .finish(root)
            .map_err(|source| RestoreFolderError::Destination { path: PathBuf::new(), source })?;
        Ok(())
    }

    fn target<'r>(
        &self,
        rules: RestoreRules<'r>,
        unfinished: Option<&'r UnfinishedRestore>,
    ) -> TreeTarget<'r> {
        TreeTarget { rules, unfinished, note_bytes: self.options.note_bytes, is_placed: false }
    }

    fn write_tree(
        &self,
        target: TreeTarget<'_>,
        folder: OwnedFd,
        is_new: bool,
        action: RestoreAction,
    ) -> Result<RestoreCounts, RestoreFolderError> {
        let writer = self.writer(target.rules.attributes);
        // A worker waits for the disk of the store, and for the folder that another one writes to.
        let written = pipeline::run_reading(self.workers, &|job| writer.write(job), |pipeline| {
            TreeWriter::new(&writer, pipeline, self.watch, target)
                .write_folder(self.root, folder, is_new, action)
        });
        end(written, writer)
    }

    /// Moves the partial result to its place. `made` is an open descriptor of it. After an error
    /// the partial result stays, and the error has its path.
    fn place(
        &self,
        new: PartialResult,
        counts: Result<RestoreCounts, RestoreFolderError>,
        attributes: Attributes,
        made: Option<OwnedFd>,
    ) -> Result<RestoreCounts, RestoreFolderError> {
        let at = Some(new.partial_path());
        let mut counts = counts.map_err(|error| match error {
            RestoreFolderError::Stopped { path, source, .. } => {
                RestoreFolderError::Stopped { path, source, unfinished: at }
            }
            RestoreFolderError::Cancelled { .. } => RestoreFolderError::Cancelled { unfinished: at },
            error => error,
        })?;
        if self.root.kind != NodeKind::Folder && counts.file_count == 0 {
            new.discard(self.guards);
            return Err(new.failed(io::ErrorKind::NotFound.into()));
        }
        let (not_removed, into) = new.put_in_place(self.root, attributes, self.guards)?;
        if let Some(not_removed) = not_removed {
            self.watch.report(Path::new(""), not_removed);
            counts.problem_count += 1;
        }
        let root = into.or(made);
        if self.root.kind == NodeKind::Folder {
            self.give_root_flags(root.as_ref());
        }
        self.lock(root.as_ref(), &mut counts)?;
        Ok(counts)
    }
}

/// Adds the reason to a restore that stopped early.
fn end(
    written: Result<RestoreCounts, RestoreStopped>,
    writer: FileWriter<'_>,
) -> Result<RestoreCounts, RestoreFolderError> {
    written.map_err(|RestoreStopped| match writer.into_stopped_by() {
        Some((path, source)) => RestoreFolderError::Stopped { path, unfinished: None, source },
        None => RestoreFolderError::Cancelled { unfinished: None },
    })
}
