//! A restore as a whole: which way it goes, and how it ends.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use varve_world::Workers;

use super::super::pipeline;
use super::super::watch::Watch;
use super::attributes::Attributes;
use super::beside::Over;
use super::decision::{Action, Policy, Reason};
use super::delete::delete_extras;
use super::destination::{Destination, New, Situation};
use super::files::FileWriter;
use super::guards::Guards;
use super::options::Overwrite;
use super::steps::Rules;
use super::tree::{Stopped, TreeTarget, TreeWriter};
use super::{RestoreCounts, RestoreFolderError, RestoreOptions};
use crate::files::Files;
use crate::node::{Node, NodeKind};
use crate::unfinished::{Made, Unfinished};

/// Restores a node, and all below it, to `destination`; its own name does not matter.
///
/// A new destination comes into being whole and durable, or not at all: an interrupted restore, or one that met a full disk, leaves what it
/// has made beside it, and the next one from the same [source](RestoreOptions::source) goes on with that. A folder that is there
/// gets what the snapshot has, one file at a time, each replaced in one step; what the snapshot does not have stays unless
/// [`delete`](RestoreOptions::delete) says otherwise, and nothing is removed if anything could not be restored.
///
/// What is missing in the store, what cannot be read in a file system, and what the system refuses, is reported and left out; the rest is
/// restored. Holes come back as holes. Holds a bounded number of files whatever their size, and a path for each file that has several names.
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
    let restore = Restore { files, workers, root, options, watch, guards: &guards };
    let destination = Destination::open(destination)?;
    match destination.look(root, &options, &guards)? {
        Situation::Free if root.kind == NodeKind::Folder => {
            restore.make_folder(destination.begin(Made::Folder, options.source, Over::Nothing)?)
        }
        Situation::Empty(folder) => restore.make_folder(destination.begin_below(folder, options.source)?),
        Situation::Folder(folder) => match options.overwrite {
            None => Err(destination.refused(root, Reason::Exists)),
            Some(overwrite) => restore.merge(folder, overwrite),
        },
        Situation::Free => restore.make_one(destination, Over::Nothing),
        Situation::Entry((Action::Replace, Reason::OtherKind(NodeKind::Folder))) => {
            restore.make_one(destination, Over::Tree)
        }
        Situation::Entry((Action::Replace, _)) if root.kind == NodeKind::Folder => {
            restore.make_folder(destination.begin(Made::Folder, options.source, Over::Tree)?)
        }
        Situation::Entry((Action::Replace, _)) => restore.make_one(destination, Over::File),
        Situation::Entry((Action::Attributes, _)) => {
            let given = destination.give_attributes(root, restore.attributes(true));
            given.map_err(|error| destination.failed(error))?;
            Ok(RestoreCounts { attributes_count: 1, ..RestoreCounts::default() })
        }
        Situation::Entry((Action::Keep, _)) => {
            Ok(RestoreCounts { kept_count: 1, ..RestoreCounts::default() })
        }
        Situation::Entry((_, reason)) => Err(destination.refused(root, reason)),
    }
}

/// What is restored, and how.
struct Restore<'a> {
    files: &'a dyn Files,
    workers: &'a dyn Workers,
    root: &'a Node,
    options: RestoreOptions<'a>,
    watch: Watch<'a>,
    guards: &'a Guards,
}

impl<'a> Restore<'a> {
    fn attributes(&self, may_inherit: bool) -> Attributes {
        Attributes { owners: self.options.owners, may_inherit }
    }

    fn rules<'r>(&'r self, policy: Policy, attributes: Attributes, trusted: Option<&'r Path>) -> Rules<'r> {
        let RestoreOptions { replace_types, filter, .. } = self.options;
        Rules { policy, replace_types, filter, guards: self.guards, attributes, trusted }
    }

    fn writer(&self, attributes: Attributes) -> FileWriter<'_> {
        FileWriter::new(self.files, self.watch, attributes, self.guards, self.options.damaged)
    }

    /// Makes a folder that is new, and puts it in its place.
    fn make_folder(&self, new: New) -> Result<RestoreCounts, RestoreFolderError> {
        let attributes = self.attributes(false);
        if new.is_made() {
            return self.go_on_placing(new, attributes);
        }
        let unfinished = new.unfinished();
        let trusted = unfinished.noted().after.clone();
        let is_new = !unfinished.is_continued();
        let rules = self.rules(Policy::Continue, attributes, trusted.as_deref());
        let descriptor = new.open_folder()?;
        let counts = self.write_tree(rules, Some(unfinished), (descriptor, is_new, Action::Create));
        self.place(new, counts, attributes)
    }

    /// An earlier run has made everything, and was about to move it to its place. What it could not restore is missing there.
    fn go_on_placing(&self, new: New, attributes: Attributes) -> Result<RestoreCounts, RestoreFolderError> {
        let folder = new.put_in_place(self.root, attributes, self.guards)?.1;
        match folder {
            Some(folder) => self.merge(folder, Overwrite::Never),
            None => Ok(RestoreCounts::default()),
        }
    }

    /// Makes something that is not a folder.
    fn make_one(&self, destination: Destination, over: Over) -> Result<RestoreCounts, RestoreFolderError> {
        let attributes = self.attributes(true);
        if self.root.kind == NodeKind::File {
            let new = destination.begin(Made::File, self.options.source, over)?;
            let unfinished = new.unfinished();
            let rules = self.rules(Policy::Continue, attributes, None);
            let target =
                TreeTarget { rules, unfinished: Some(unfinished), note_bytes: self.options.note_bytes };
            let writer = self.writer(attributes);
            let written = pipeline::run(self.workers, &|job| writer.write(job), |pipeline| {
                TreeWriter::new(&writer, pipeline, self.watch, target).write_file(self.root, unfinished)
            });
            let counts = end(written, writer);
            return self.place(new, counts, attributes);
        }
        let writer = self.writer(attributes);
        let rules = self.rules(Policy::Continue, attributes, None);
        let target = TreeTarget { rules, unfinished: None, note_bytes: u64::MAX };
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

    /// Merges a folder into one that is there.
    fn merge(&self, folder: OwnedFd, overwrite: Overwrite) -> Result<RestoreCounts, RestoreFolderError> {
        let rules = self.rules(Policy::Merge(overwrite), self.attributes(true), None);
        let for_deletion = rustix::io::dup(&folder).ok().filter(|_| self.options.delete);
        let synced = rustix::io::dup(&folder).ok();
        let mut counts = self.write_tree(rules, None, (folder, false, Action::Keep))?;
        if let Some(folder) = for_deletion {
            counts.is_delete_withheld = counts.problem_count > 0;
            if !counts.is_delete_withheld {
                delete_extras(self.files, rules, self.root, folder, self.watch, &mut counts)?;
            }
        }
        if let Some(folder) = synced {
            let synced = rustix::fs::syncfs(&folder);
            synced.map_err(|error| RestoreFolderError::Destination {
                path: PathBuf::new(),
                source: error.into(),
            })?;
        }
        Ok(counts)
    }

    fn write_tree(
        &self,
        rules: Rules<'_>,
        unfinished: Option<&Unfinished>,
        root: (OwnedFd, bool, Action),
    ) -> Result<RestoreCounts, RestoreFolderError> {
        let writer = self.writer(rules.attributes);
        let target = TreeTarget { rules, unfinished, note_bytes: self.options.note_bytes };
        let written = pipeline::run(self.workers, &|job| writer.write(job), |pipeline| {
            TreeWriter::new(&writer, pipeline, self.watch, target).write_folder(self.root, root)
        });
        end(written, writer)
    }

    /// Puts what was made in its place. An unfinished restore stays, and its place is named.
    fn place(
        &self,
        new: New,
        counts: Result<RestoreCounts, RestoreFolderError>,
        attributes: Attributes,
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
        if let (Some(not_removed), _) = new.put_in_place(self.root, attributes, self.guards)? {
            self.watch.report(Path::new(""), not_removed);
            counts.problem_count += 1;
        }
        Ok(counts)
    }
}

/// Why the work ended early, if it did.
fn end(
    written: Result<RestoreCounts, Stopped>,
    writer: FileWriter<'_>,
) -> Result<RestoreCounts, RestoreFolderError> {
    written.map_err(|Stopped| match writer.into_stopped_by() {
        Some((path, source)) => RestoreFolderError::Stopped { path, unfinished: None, source },
        None => RestoreFolderError::Cancelled { unfinished: None },
    })
}
