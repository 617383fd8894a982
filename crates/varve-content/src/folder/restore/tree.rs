//! Creates the tree of a destination: folders on the way down, and their attributes on the way up.
//!
//! The times of a folder are set once everything in it is done, and a further name of a file is
//! created once the file is done. These later steps wait in a queue behind the files that are still
//! being written:
//!
//! ```text
//! front │ Awaited │ Link e │ Awaited │ Close d/ │ …   <─ the stored tree, depth first
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode};
use varve_block::to_usize;

use super::super::watch::Watch;
use super::RestoreCounts;
use super::decision::{Decision, Policy, RestoreAction, RestoreReason};
use super::entry::{can_be_copied, make_node, open_beneath, open_folder, remove_inherited};
use super::files::{
    AttributesLacking, FileToWrite, FileWriter, LargeFile, PlacementMode, TargetFolder, WriteFileError,
    WriteJob, WrittenFile, part_bytes,
};
use super::move_into_place::{self, MoveIntoPlaceError, ReplacedEntry};
use super::options::Overwrite;
use super::steps::{DestinationFolder, RestoreRules, RestoreStep, RestoreSteps, StepKinds, comes_after};
use super::walk_progress::WalkProgressRecorder;
use crate::folder::archiving::pipeline::Pipeline;
use crate::folder::source::status::{Status, open_file};
use crate::records::node::{Node, NodeKind};
use crate::restoring::unfinished_restore::UnfinishedRestore;

/// Upper bound on the files in one job.
const JOB_FILE_COUNT_MAX: usize = 64;
/// A job ends once its files have this many bytes.
const JOB_BYTES: u64 = 1 << 20;
/// Upper bound on the events that wait for the file at the front.
const WAITING_COUNT_MAX: usize = 16 << 10;
/// Upper bound on the folders that are open for waiting events, besides those that the walk is in.
const OPEN_FOLDER_COUNT_MAX: usize = 256;
/// The permissions that the owner of a folder needs to create entries in it.
const OWNER_BITS: u16 = 0o700;

pub(super) type WritePipeline<'p> = Pipeline<'p, WriteJob, Vec<WrittenFile>>;

enum WriteEvent {
    /// A file that is being written, and the link group of which it is the first.
    Awaited { path: PathBuf, link_group: Option<u64>, large: Option<Arc<LargeFile>> },
    /// A file that is written or left out.
    Done { path: PathBuf },
    /// Another name of an earlier file.
    Link { folder: Arc<TargetFolder>, path: PathBuf, node: Box<Node>, over: ReplacedEntry },
    /// The end of a folder.
    Close { at: DestinationFolder, node: Box<Node>, action: RestoreAction },
}

/// The report of a folder that is partly unreadable.
#[derive(Debug, thiserror::Error)]
#[error("the remaining entries are unreadable, and are left out")]
struct FolderCutShort {
    source: crate::records::node_list::ReadFolderError,
}

/// The report of a name that became a separate file, because the system refused the link.
#[derive(Debug, thiserror::Error)]
#[error("it is a copy of {}, and no longer a hard link to it", first.display())]
struct NotLinked {
    first: PathBuf,
    source: io::Error,
}

/// The report of an entry that was not restored because of an existing entry.
#[derive(Debug, thiserror::Error)]
#[error("it is not restored: {reason}")]
struct SkippedEntry {
    reason: RestoreReason,
}

/// The restore ended early: it was cancelled, or no more can be written.
pub(super) struct RestoreStopped;

/// The settings for writing a tree.
#[derive(Clone, Copy)]
pub(super) struct TreeTarget<'a> {
    pub(super) rules: RestoreRules<'a>,
    /// The place where progress is recorded. If set, the tree is not in use until it is done.
    pub(super) unfinished: Option<&'a UnfinishedRestore>,
    pub(super) note_bytes: u64,
    /// True if an earlier run moved the complete tree to its place, and was interrupted before it
    /// set the last flags.
    pub(super) is_placed: bool,
}

pub(super) struct TreeWriter<'a> {
    writer: &'a FileWriter<'a>,
    pipeline: &'a WritePipeline<'a>,
    watch: Watch<'a>,
    target: TreeTarget<'a>,
    noting: Option<WalkProgressRecorder<'a>>,
    events: VecDeque<WriteEvent>,
    /// The number of events that have left the queue.
    passed_count: u64,
    job: Vec<FileToWrite>,
    job_bytes: u64,
    /// The path of the first file in each link group.
    linked: BTreeMap<u64, PathBuf>,
    root: Option<Arc<TargetFolder>>,
    folder_token: Arc<()>,
    depth: usize,
    counts: RestoreCounts,
}

impl<'a> TreeWriter<'a> {
    pub(super) fn new(
        writer: &'a FileWriter<'a>,
        pipeline: &'a WritePipeline<'a>,
        watch: Watch<'a>,
        target: TreeTarget<'a>,
    ) -> Self {
        Self {
            writer,
            pipeline,
            watch,
            target,
            noting: target
                .unfinished
                .map(|unfinished| WalkProgressRecorder::new(unfinished, target.note_bytes, watch.progress)),
            events: VecDeque::new(),
            passed_count: 0,
            job: Vec::new(),
            job_bytes: 0,
            linked: BTreeMap::new(),
            root: None,
            folder_token: Arc::new(()),
            depth: 0,
            counts: RestoreCounts::default(),
        }
    }

    /// Writes a folder with everything in it. `action` is the action for the folder itself.
    pub(super) fn write_folder(
        mut self,
        root: &Node,
        descriptor: OwnedFd,
        is_new: bool,
        action: RestoreAction,
    ) -> Result<RestoreCounts, RestoreStopped> {
        if is_new {
            remove_inherited(&descriptor);
        }
        let folder = self.target_folder(descriptor, PathBuf::new());
        self.root = Some(Arc::clone(&folder));
        let at = if is_new { DestinationFolder::New(folder) } else { DestinationFolder::There(folder) };
        let mut steps =
            RestoreSteps::new(self.writer.files, self.target.rules, StepKinds::Writes, root, at, action);
        while let Some(step) = steps.next_step() {
            if self.writer.is_stopped() {
                break;
            }
            self.depth = steps.depth();
            match step {
                RestoreStep::Entry { at, path, node, decision } => {
                    if let Some(entered) = self.visit(&at, path, *node, decision) {
                        steps.enter(entered);
                    }
                }
                RestoreStep::CutShort { path, source } => self.report(&path, FolderCutShort { source }),
                RestoreStep::Leave { at, node, action } => {
                    self.events.push_back(WriteEvent::Close { at, node, action });
                }
                RestoreStep::Extra { .. } => {}
            }
            self.advance();
        }
        self.finish()
    }

    /// Writes a file under the partial name.
    pub(super) fn write_file(
        mut self,
        root: &Node,
        unfinished: &UnfinishedRestore,
    ) -> Result<RestoreCounts, RestoreStopped> {
        let Ok(parent) = rustix::io::dup(unfinished.folder()) else { return Err(RestoreStopped) };
        let folder = self.target_folder(parent, PathBuf::new());
        let bytes = unfinished.noted().large.as_ref().map_or(0, |(_, bytes)| *bytes);
        let node = Node { link_group: None, name: unfinished.name().to_vec(), ..root.clone() };
        if !self.report_problem(Path::new(""), root) {
            self.make_file(folder, PathBuf::new(), node, PlacementMode::GoOn { bytes });
        }
        self.finish()
    }

    /// Creates a node other than a file or a folder under this name.
    pub(super) fn write_special(mut self, root: &Node, parent: OwnedFd, name: &[u8]) -> RestoreCounts {
        let folder = self.target_folder(parent, PathBuf::new());
        let node = Node { link_group: None, name: name.to_vec(), ..root.clone() };
        if !self.report_problem(Path::new(""), root) {
            self.make_special(&folder, Path::new(""), &node, None);
        }
        self.counts
    }

    fn finish(mut self) -> Result<RestoreCounts, RestoreStopped> {
        self.submit_job();
        self.advance();
        // If the writer stops, some parts of a large file are never submitted, so their file never
        // completes.
        while !self.events.is_empty() && !self.writer.is_stopped() {
            self.pipeline.help_or_wait();
            self.advance();
        }
        if !self.writer.is_stopped() {
            return Ok(self.counts);
        }
        // The queued jobs end at once now.
        while self.pipeline.help_or_wait() {}
        for written in self.pipeline.take_done().into_iter().flatten() {
            self.settle(&written);
        }
        self.pass_front();
        self.note();
        Err(RestoreStopped)
    }

    /// Runs the events at the front of the queue that need not wait. Blocks while too many events
    /// wait.
    fn advance(&mut self) {
        loop {
            for written in self.pipeline.take_done().into_iter().flatten() {
                self.settle(&written);
            }
            self.pass_front();
            self.note_if_due();
            let open_count = Arc::strong_count(&self.folder_token) - 1;
            let is_much =
                self.events.len() > WAITING_COUNT_MAX || open_count > self.depth + OPEN_FOLDER_COUNT_MAX;
            if !is_much || self.writer.is_stopped() {
                return;
            }
            self.submit_job();
            if !self.pipeline.help_or_wait() {
                return;
            }
        }
    }

    fn pass_front(&mut self) {
        while self.events.front().is_some_and(|event| !matches!(event, WriteEvent::Awaited { .. })) {
            self.passed_count += 1;
            match self.events.pop_front() {
                Some(WriteEvent::Link { folder, path, node, over }) => {
                    self.link(folder, &path, *node, over);
                    self.pass(path);
                }
                Some(WriteEvent::Done { path }) => self.pass(path),
                Some(WriteEvent::Close { at, node, action }) => self.close(&at, &node, action),
                Some(WriteEvent::Awaited { .. }) | None => {}
            }
        }
    }

    fn pass(&mut self, path: PathBuf) {
        if let Some(noting) = &mut self.noting {
            noting.pass(path);
        }
    }

    fn note_if_due(&mut self) {
        if self.noting.as_mut().is_some_and(|noting| noting.is_due(self.watch.progress)) {
            self.note();
        }
    }

    fn note(&self) {
        let large = match self.events.front() {
            Some(WriteEvent::Awaited { large: Some(large), .. }) => {
                Some((large.path().to_path_buf(), large.written_bytes()))
            }
            _ => None,
        };
        if let Some(noting) = &self.noting {
            noting.note(large);
        }
    }

    fn settle(&mut self, written: &WrittenFile) {
        let place = to_usize(written.number - self.passed_count);
        if written.bytes.is_none() && self.writer.is_stopped() {
            // The file may not have been started. The next run writes it.
            return;
        }
        self.count(written);
        let event = &mut self.events[place];
        let WriteEvent::Awaited { path, link_group, .. } = event else { return };
        let (path, link_group) = (std::mem::take(path), *link_group);
        *event = WriteEvent::Done { path };
        if let (None, Some(group)) = (written.bytes, link_group) {
            // The next name of the file is created as a separate file.
            self.linked.remove(&group);
        }
    }

    fn count(&mut self, written: &WrittenFile) {
        self.counts.problem_count += u64::from(written.has_problem);
        if let Some(bytes) = written.bytes {
            self.counts.file_count += 1;
            self.counts.bytes += bytes;
        }
    }

    /// Executes a step. Returns the folder that the walk must enter.
    fn visit(
        &mut self,
        at: &DestinationFolder,
        path: PathBuf,
        node: Node,
        (action, reason): Decision,
    ) -> Option<DestinationFolder> {
        self.report_problem(&path, &node);
        let parent = Arc::clone(at.folder()?);
        match (action, reason) {
            (RestoreAction::Skip, RestoreReason::NotArchived) => None,
            (RestoreAction::Skip | RestoreAction::Delete, reason) => {
                self.report(&path, SkippedEntry { reason });
                None
            }
            (action, reason) if node.kind == NodeKind::Folder => {
                self.visit_folder(&parent, &path, &node, (action, reason))
            }
            (RestoreAction::Keep, reason) => {
                self.counts.kept_count += 1;
                self.watch.progress.add_files_done(1);
                if reason == RestoreReason::Equal || self.target.is_placed {
                    self.give_flags(&parent, &path, &node);
                }
                if let (RestoreReason::Equal, Some(group)) = (reason, node.link_group) {
                    self.linked.entry(group).or_insert(path);
                }
                None
            }
            (RestoreAction::Attributes, _) => {
                self.give_existing(&parent, &path, &node);
                if let Some(group) = node.link_group {
                    self.linked.entry(group).or_insert(path);
                }
                None
            }
            (RestoreAction::Create | RestoreAction::Replace, reason) => {
                self.visit_file(parent, path, node, &reason);
                None
            }
        }
    }

    fn visit_file(&mut self, parent: Arc<TargetFolder>, path: PathBuf, node: Node, reason: &RestoreReason) {
        let over = match reason {
            RestoreReason::Missing => ReplacedEntry::Nothing,
            RestoreReason::OtherKind(NodeKind::Folder) => ReplacedEntry::Tree,
            _ => ReplacedEntry::File,
        };
        let placing = match self.placing(&parent, &path, &node, over) {
            Ok(placing) => placing,
            Err(error) => return self.report_system(&path, error),
        };
        if let Some(group) = node.link_group {
            if self.linked.contains_key(&group) {
                let over =
                    if let PlacementMode::Beside(over) = placing { over } else { ReplacedEntry::Nothing };
                let node = Box::new(node);
                self.events.push_back(WriteEvent::Link { folder: parent, path, node, over });
                return;
            }
            self.linked.insert(group, path.clone());
        }
        match node.kind {
            NodeKind::File => self.make_file(parent, path, node, placing),
            _ => {
                let over = if let PlacementMode::Beside(over) = placing { Some(over) } else { None };
                self.make_special(&parent, &path, &node, over);
            }
        }
    }

    /// Chooses the way in which an entry gets to its place. The remains of an unfinished run are
    /// removed or continued.
    fn placing(
        &self,
        parent: &TargetFolder,
        path: &Path,
        node: &Node,
        over: ReplacedEntry,
    ) -> Result<PlacementMode, io::Error> {
        let rules = self.target.rules;
        if rules.policy != Policy::Continue {
            return Ok(PlacementMode::Beside(over));
        }
        let Some(unfinished) = self.target.unfinished else { return Ok(PlacementMode::Direct) };
        if let Some((large, bytes)) = &unfinished.noted().large
            && large == path
            && node.kind == NodeKind::File
            && over == ReplacedEntry::File
        {
            return Ok(PlacementMode::GoOn { bytes: (*bytes).min(node.size) });
        }
        if over != ReplacedEntry::Nothing {
            rules.guards.remove(&parent.descriptor, &node.name, path).map_err(io::Error::other)?;
        }
        // The record of an earlier run claims that this entry is durable. The entry must be durable
        // again before it has its name.
        let is_noted = rules.trusted.is_some_and(|trusted| !comes_after(path, trusted));
        Ok(if is_noted { PlacementMode::Beside(ReplacedEntry::Nothing) } else { PlacementMode::Direct })
    }

    fn visit_folder(
        &mut self,
        parent: &Arc<TargetFolder>,
        path: &Path,
        node: &Node,
        (action, reason): Decision,
    ) -> Option<DestinationFolder> {
        let made = match (action, reason) {
            (RestoreAction::Create, _) => self.make_folder(parent, node),
            (RestoreAction::Replace, _) => self.replace_by_folder(parent, path, node),
            _ => return self.open_existing(parent, path, node),
        };
        match made {
            Ok(descriptor) => {
                self.watch.progress.set_current(path);
                Some(DestinationFolder::New(self.target_folder(descriptor, path.to_path_buf())))
            }
            Err(error) => {
                self.report_system(path, error);
                None
            }
        }
    }

    fn make_folder(&self, parent: &TargetFolder, node: &Node) -> io::Result<OwnedFd> {
        rustix::fs::mkdirat(&parent.descriptor, node.name.as_slice(), Mode::RWXU)?;
        let descriptor = open_folder(&parent.descriptor, &node.name)?;
        if self.target.unfinished.is_none() {
            self.begin_folder(&descriptor, node);
        }
        Ok(descriptor)
    }

    /// Sets the attributes of a new folder in a merge, except its time, before it has entries. If
    /// the restore is interrupted, the next run takes it for an existing folder. Errors occur again
    /// at the end of the folder, and are reported there.
    fn begin_folder(&self, descriptor: &OwnedFd, node: &Node) {
        remove_inherited(descriptor);
        let open_to_owner = Node { mode: node.mode | OWNER_BITS, ..node.clone() };
        let _ = self.writer.attributes.give_open(descriptor, &open_to_owner, false);
    }

    fn replace_by_folder(&mut self, parent: &TargetFolder, path: &Path, node: &Node) -> io::Result<OwnedFd> {
        let (folder, guards) = (&parent.descriptor, self.target.rules.guards);
        let partial =
            move_into_place::make(&node.name, |name| rustix::fs::mkdirat(folder, name, Mode::RWXU))?;
        match move_into_place::place(folder, &partial, &node.name, ReplacedEntry::Tree, guards, path) {
            Ok(()) => {}
            Err(error @ MoveIntoPlaceError::NotRemoved(_)) => self.report(path, error),
            Err(error) => {
                let _ = rustix::fs::unlinkat(folder, partial.as_slice(), AtFlags::REMOVEDIR);
                return Err(io::Error::other(error));
            }
        }
        let descriptor = open_folder(folder, &node.name)?;
        self.begin_folder(&descriptor, node);
        Ok(descriptor)
    }

    fn open_existing(
        &mut self,
        parent: &TargetFolder,
        path: &Path,
        node: &Node,
    ) -> Option<DestinationFolder> {
        let (folder, rules) = (&parent.descriptor, self.target.rules);
        let opened = match rules.policy {
            Policy::Merge(_) => rules.guards.enter(folder, &node.name, path).map_err(|hindrance| {
                let reason = hindrance.reason();
                self.report(path, SkippedEntry { reason });
            }),
            // The run that created it may have removed all permissions.
            Policy::Continue => {
                rustix::fs::chmodat(folder, node.name.as_slice(), Mode::RWXU, AtFlags::empty())
                    .and_then(|()| open_folder(folder, &node.name))
                    .map_err(|error| self.report_system(path, error.into()))
            }
        };
        let descriptor = opened.ok()?;
        self.watch.progress.set_current(path);
        Some(DestinationFolder::There(self.target_folder(descriptor, path.to_path_buf())))
    }

    fn target_folder(&self, descriptor: OwnedFd, path: PathBuf) -> Arc<TargetFolder> {
        Arc::new(TargetFolder { descriptor, path, _token: Arc::clone(&self.folder_token) })
    }

    fn make_file(&mut self, folder: Arc<TargetFolder>, path: PathBuf, node: Node, placing: PlacementMode) {
        let number = self.passed_count + self.events.len() as u64;
        let awaited = WriteEvent::Awaited { path: path.clone(), link_group: node.link_group, large: None };
        self.events.push_back(awaited);
        let file = FileToWrite { number, folder, node, placing, path };
        let size = file.node.size;
        if size > part_bytes(size) || matches!(placing, PlacementMode::GoOn { bytes: 1.. }) {
            self.submit_job();
            match self.writer.open_large(file) {
                Ok(large) => self.submit_parts(large, size),
                Err(written) => self.settle(&written),
            }
            return;
        }
        self.job_bytes += size;
        self.job.push(file);
        if self.job.len() >= JOB_FILE_COUNT_MAX || self.job_bytes >= JOB_BYTES {
            self.submit_job();
        }
    }

    fn submit_parts(&mut self, large: LargeFile, size: u64) {
        let file = Arc::new(large);
        if let Some(WriteEvent::Awaited { large, .. }) = self.events.back_mut() {
            *large = Some(Arc::clone(&file));
        }
        let (part_bytes, mut start) = (part_bytes(size), file.start().min(size));
        if start == size {
            let written = self.writer.end_large(&file);
            return self.settle(&written);
        }
        while start < size && !self.writer.is_stopped() {
            let end = size.min(start.saturating_add(part_bytes));
            self.pipeline.submit(WriteJob::Part { file: Arc::clone(&file), range: start..end });
            start = end;
            for written in self.pipeline.take_done().into_iter().flatten() {
                self.settle(&written);
            }
            self.note_if_due();
        }
    }

    fn submit_job(&mut self) {
        self.job_bytes = 0;
        if !self.job.is_empty() {
            self.pipeline.submit(WriteJob::Files(std::mem::take(&mut self.job)));
        }
    }

    /// Creates a node other than a file or a folder. It gets its final name at once, or a partial
    /// name first if the destination is in use.
    fn make_special(&mut self, folder: &TargetFolder, path: &Path, node: &Node, over: Option<ReplacedEntry>) {
        let parent = &folder.descriptor;
        let made = match over {
            None => make_node(parent, &node.name, node).map(|()| node.name.clone()),
            Some(_) => move_into_place::make(&node.name, |name| make_node(parent, name, node)),
        };
        let name = match made {
            Ok(name) => name,
            Err(error) => {
                if let Some(group) = node.link_group {
                    self.linked.remove(&group);
                }
                return self.report_system(path, error.into());
            }
        };
        let given = self.writer.attributes.give_named(parent, &name, node);
        if self.place(folder, path, &name, &node.name, over) {
            self.count_file();
        } else if let Some(group) = node.link_group {
            self.linked.remove(&group);
        }
        if let Err(source) = given {
            self.report(path, AttributesLacking { source });
        }
    }

    /// Renames an entry from its partial name to its final name. Returns whether it has the final
    /// name.
    fn place(
        &mut self,
        folder: &TargetFolder,
        path: &Path,
        partial: &[u8],
        name: &[u8],
        over: Option<ReplacedEntry>,
    ) -> bool {
        let Some(over) = over else { return true };
        let guards = self.target.rules.guards;
        match move_into_place::place(&folder.descriptor, partial, name, over, guards, path) {
            Ok(()) => true,
            Err(error @ MoveIntoPlaceError::NotRemoved(_)) => {
                self.report(path, error);
                true
            }
            Err(error) => {
                let _ = rustix::fs::unlinkat(&folder.descriptor, partial, AtFlags::empty());
                self.report(path, WriteFileError::Place(error));
                false
            }
        }
    }

    /// Creates another name of a file. If the first one was left out, creates the file.
    fn link(&mut self, folder: Arc<TargetFolder>, path: &Path, node: Node, over: ReplacedEntry) {
        let first = node.link_group.and_then(|group| self.linked.get(&group)).cloned();
        let (Some(first), Some(root)) = (first, self.root.clone()) else {
            if let Some(group) = node.link_group {
                self.linked.insert(group, path.to_path_buf());
            }
            return self.make_now(folder, path, node, over);
        };
        let over_any = self.is_beside().then_some(over);
        let linked = open_beneath(&root.descriptor, first.parent().unwrap_or(Path::new(""))).and_then(
            |first_folder| {
                let first_name = first.file_name().unwrap_or_default();
                let link = |name: &[u8]| {
                    rustix::fs::linkat(&first_folder, first_name, &folder.descriptor, name, AtFlags::empty())
                };
                match over_any {
                    None => link(&node.name).map(|()| node.name.clone()),
                    Some(_) => move_into_place::make(&node.name, link),
                }
            },
        );
        match linked {
            Ok(name) => {
                if self.place(&folder, path, &name, &node.name, over_any) {
                    self.count_file();
                }
            }
            Err(error) if can_be_copied(error) => {
                self.report(path, NotLinked { first: first.clone(), source: error.into() });
                // Further names are links to this file where possible, since the first may have
                // reached its limit.
                node.link_group.map(|group| self.linked.insert(group, path.to_path_buf()));
                self.make_now(folder, path, node, over);
            }
            Err(error) => self.report_system(path, error.into()),
        }
    }

    /// Returns whether new entries are moved to their place by a rename.
    fn is_beside(&self) -> bool {
        self.target.rules.policy != Policy::Continue
    }

    /// Creates an entry immediately, without a place in the queue.
    fn make_now(&mut self, folder: Arc<TargetFolder>, path: &Path, node: Node, over: ReplacedEntry) {
        let over = self.is_beside().then_some(over);
        if node.kind != NodeKind::File {
            return self.make_special(&folder, path, &node, over);
        }
        let link_group = node.link_group;
        let placing = over.map_or(PlacementMode::Direct, PlacementMode::Beside);
        let file = FileToWrite { number: 0, folder, node, placing, path: path.to_path_buf() };
        for written in self.writer.write(WriteJob::Files(vec![file])) {
            self.count(&written);
            if written.bytes.is_none() {
                link_group.map(|group| self.linked.remove(&group));
            }
        }
    }

    /// Sets the flags of an unchanged file that an interrupted run did not set.
    fn give_flags(&self, parent: &TargetFolder, path: &Path, node: &Node) {
        let is_other_name = node.link_group.is_some_and(|group| self.linked.contains_key(&group));
        if node.inode_flags.is_empty() || node.kind != NodeKind::File || is_other_name {
            return;
        }
        let Ok(file) = open_file(&parent.descriptor, &node.name) else {
            return self.writer.flags.cannot_give(node);
        };
        let is_same = |status: Status| status.size == node.size && status.mtime == node.mtime;
        if Status::of_open(&file).is_ok_and(is_same) {
            self.writer.flags.give(&file, path, node);
        }
    }

    /// Sets the missing attributes of an existing file.
    fn give_existing(&mut self, parent: &TargetFolder, path: &Path, node: &Node) {
        let (folder, attributes) = (&parent.descriptor, self.writer.attributes);
        let given = match node.kind {
            NodeKind::File => open_file(folder, &node.name).and_then(|file| {
                attributes.give_existing(&file, node)?;
                self.writer.flags.give(&file, path, node);
                Ok(())
            }),
            _ => attributes.give_named(folder, &node.name, node),
        };
        match given {
            Ok(()) => self.counts.attributes_count += 1,
            Err(source) => self.report(path, AttributesLacking { source }),
        }
        self.watch.progress.add_files_done(1);
    }

    fn close(&mut self, at: &DestinationFolder, node: &Node, action: RestoreAction) {
        self.counts.folder_count += 1;
        self.watch.progress.add_files_done(1);
        let Some(folder) = at.folder() else { return };
        let attributes = self.writer.attributes;
        let is_left_alone =
            matches!(self.target.rules.policy, Policy::Merge(Overwrite::IfNewer | Overwrite::Never));
        let given = match at {
            DestinationFolder::New(_) => attributes.give_open(&folder.descriptor, node, true),
            _ if is_left_alone && action == RestoreAction::Keep && !self.target.is_placed => return,
            _ if is_left_alone && action == RestoreAction::Keep => Ok(()),
            _ => attributes.give_existing(&folder.descriptor, node),
        };
        // The flags of the root are set once it is in its place.
        if !folder.path.as_os_str().is_empty() {
            self.writer.flags.give(&folder.descriptor, &folder.path, node);
        }
        if let Err(source) = given {
            self.report(&folder.path, AttributesLacking { source });
        }
    }

    fn count_file(&mut self) {
        self.counts.file_count += 1;
        self.watch.progress.add_files_done(1);
    }

    /// Reports the problem that the snapshot has with a node. Returns whether the node has no data
    /// at all.
    fn report_problem(&mut self, path: &Path, node: &Node) -> bool {
        let Some(trouble) = self.writer.files.problem(node) else { return false };
        self.report(path, trouble.error);
        trouble.lacks_all
    }

    /// Reports an error of the system, unless the error stops the whole restore.
    fn report_system(&mut self, path: &Path, error: io::Error) {
        if let Some(source) = self.writer.goes_on_after(path, error) {
            self.report(path, WriteFileError::System { source });
        }
    }

    fn report(&mut self, path: &Path, error: impl Into<Box<dyn Error + Send + Sync>>) {
        self.counts.problem_count += 1;
        self.watch.report(path, error);
    }
}
