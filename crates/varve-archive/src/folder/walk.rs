//! The walk over a source: one step at a time, depth first, names in the order of their bytes.
//!
//! ```text
//!   folder ── names, one status each ──> known from before ──────────────> sequence ──> folders' content
//!                                   └──> to be read ── jobs ── pipeline ──────┘
//! ```

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_block::BlockStore;
use varve_tree::{Visit, walk};

use super::excludes::{CACHE_TAG_NAME, is_cache};
use super::options::FolderOptions;
use super::outcome::{ArchiveFolderError, ArchivedFolder};
use super::pipeline::Pipeline;
use super::previous::PreviousFolder;
use super::read::{FileToRead, Job, JoinName, ReadFiles, SMALL_FILE_BYTES_MAX, SourceFolder};
use super::sequence::{Event, FolderCounts, Sequence};
use super::status::{Description, FileId, Names, Status, open_folder};
use super::watch::Watch;
use super::xattrs::XattrPlace;
use crate::last_night::LastNight;
use crate::node::{DeviceNumber, Node, NodeKind, NodeProblem};

/// How many files are read by one job, at most.
const JOB_FILE_COUNT_MAX: usize = 256;
/// How many bytes the files of a job have, but for the last.
const JOB_BYTES: u64 = 1 << 20;
/// How many events may wait for the file at the front.
const WAITING_COUNT_MAX: usize = 16 << 10;
/// How many folders may be open for jobs, besides those that the walker is in.
const OPEN_FOLDER_COUNT_MAX: usize = 256;

pub(super) type FilePipeline<'p> = Pipeline<'p, Job, Result<ReadFiles, ArchiveFolderError>>;

/// What a walk is given, and does not change.
pub(super) struct WalkSetting<'a> {
    pub(super) blocks: &'a dyn BlockStore,
    pub(super) pipeline: &'a FilePipeline<'a>,
    pub(super) options: &'a FolderOptions,
    pub(super) watch: Watch<'a>,
    pub(super) description: Description,
    pub(super) root_id: FileId,
    pub(super) store_folder: Option<FileId>,
    /// The devices of mounted archives.
    pub(super) mounted_archives: Vec<DeviceNumber>,
}

pub(super) struct Walker<'a> {
    setting: WalkSetting<'a>,
    sequence: Sequence<'a>,
    /// The folders from the root to where the walk is.
    stack: Vec<Frame<'a>>,
    /// Files for the next job.
    job: Job,
    job_bytes: u64,
    /// Link groups, and the files that they stand for.
    link_groups: BTreeMap<u64, FileId>,
    last_night: Option<LastNight>,
    folder_token: Arc<()>,
    unchanged_count: u64,
    read: ReadFiles,
}

struct Frame<'a> {
    folder: Arc<SourceFolder>,
    names: Names,
    previous: PreviousFolder<'a>,
}

/// A name that the walk has come to.
struct Found {
    node: Node,
    status: Status,
    previous: Option<Node>,
}

impl<'a> Walker<'a> {
    pub(super) fn new(setting: WalkSetting<'a>) -> Self {
        Self {
            sequence: Sequence::new(setting.blocks, None, None),
            last_night: None,
            setting,
            stack: Vec::new(),
            job: Job::new(),
            job_bytes: 0,
            link_groups: BTreeMap::new(),
            folder_token: Arc::new(()),
            unchanged_count: 0,
            read: ReadFiles::default(),
        }
    }

    /// With what is remembered of the last night, which is to remember this one.
    pub(super) fn remembering(self, last_night: Option<LastNight>) -> Self {
        let vac = self.setting.options.vac.as_ref();
        Self { sequence: Sequence::new(self.setting.blocks, last_night.clone(), vac), last_night, ..self }
    }

    /// Walks from the root to the end.
    pub(super) fn walk(
        mut self,
        root: Node,
        descriptor: OwnedFd,
        previous: Option<&Node>,
    ) -> Result<ArchivedFolder, ArchiveFolderError> {
        self.enter(root, descriptor, PathBuf::new(), previous);
        while let Some(frame) = self.stack.last_mut() {
            if self.setting.watch.progress.is_cancelled() {
                return Err(ArchiveFolderError::Cancelled);
            }
            match frame.names.next() {
                Some((name, kind)) => {
                    let name = name.to_vec();
                    let folder = Arc::clone(&frame.folder);
                    let previous = frame.previous.take(&name);
                    self.visit(name, kind, &folder, previous);
                }
                None => {
                    self.stack.pop();
                    self.sequence.push(Event::Close);
                }
            }
            self.advance()?;
        }
        self.submit_job();
        while self.sequence.len() > 0 {
            self.setting.pipeline.help_or_wait();
            self.advance()?;
        }
        let only = self.setting.options.only.clone();
        let Self { sequence, read, unchanged_count, .. } = self;
        let (root, counts, vac) = sequence.finish();
        let ReadFiles { read_count, read_bytes, .. } = read;
        Ok(ArchivedFolder {
            root,
            counts: FolderCounts { unchanged_count, read_count, read_bytes, ..counts },
            vac,
            only,
        })
    }

    /// Writes what is known, and waits while too much is not.
    fn advance(&mut self) -> Result<(), ArchiveFolderError> {
        loop {
            for read in self.setting.pipeline.take_done() {
                let ReadFiles { nodes, read_count, read_bytes } = read?;
                self.read.read_count += read_count;
                self.read.read_bytes += read_bytes;
                for (number, node) in nodes {
                    self.sequence.settle(number, node);
                }
            }
            self.sequence.advance()?;
            let open_count = Arc::strong_count(&self.folder_token) - 1;
            let is_much = self.sequence.len() > WAITING_COUNT_MAX
                || open_count > self.stack.len() + OPEN_FOLDER_COUNT_MAX;
            if !is_much {
                return Ok(());
            }
            self.submit_job();
            if !self.setting.pipeline.help_or_wait() {
                return Ok(());
            }
        }
    }

    fn visit(
        &mut self,
        name: Vec<u8>,
        listed_kind: Option<NodeKind>,
        folder: &Arc<SourceFolder>,
        previous: Option<Node>,
    ) {
        let status = match Status::of_name(&folder.descriptor, &name) {
            Ok(status) => status,
            Err(error) => {
                let node = Node::new(name, listed_kind.unwrap_or(NodeKind::File));
                return self.give_up(node, folder, error);
            }
        };
        let Some(kind) = status.kind else { return };
        if self.is_left_out(folder, &name, kind, &status) {
            return;
        }
        let mut node = Node::new(name, kind);
        status.describe(&mut node, self.setting.description);
        let last_night = self.last_night.as_ref();
        let previous = previous.or_else(|| {
            let path = folder.path.join_name(&node.name);
            last_night?.recall(path.as_os_str().as_bytes(), &node)
        });
        let is_known = |known: &Node| {
            let state = |node: &Node| (node.kind, node.size, node.mtime, node.ctime, node.inode);
            state(known) == state(&node) && known.ctime.is_some() && known.problem.is_none()
        };
        let vac = self.setting.options.vac.as_ref();
        // One that was cut by content is read once more, and is then as vac's tools want it.
        let is_expressed = |known: &Node| {
            kind != NodeKind::File || vac.is_none_or(|vac| vac.can_express(known.content.as_ref()))
        };
        let known = previous.as_ref().is_some_and(|known| is_known(known) && is_expressed(known));
        let found = Found { node, status, previous };
        match kind {
            NodeKind::Folder => self.visit_folder(found, known, folder),
            _ => self.visit_leaf(found, known, folder),
        }
    }

    fn is_left_out(&self, folder: &SourceFolder, name: &[u8], kind: NodeKind, status: &Status) -> bool {
        let is_folder = kind == NodeKind::Folder;
        if is_folder && self.setting.store_folder == Some(status.id) {
            return true;
        }
        if self.setting.options.one_file_system && !is_folder && self.is_elsewhere(status) {
            return true;
        }
        let excludes = &self.setting.options.excludes;
        !excludes.is_empty() && excludes.leave_out(&folder.path.join_name(name), is_folder)
    }

    /// Whether something is on another file system than the root.
    fn is_elsewhere(&self, status: &Status) -> bool {
        status.id.file_system != self.setting.root_id.file_system
    }

    fn visit_folder(&mut self, found: Found, is_known: bool, parent: &Arc<SourceFolder>) {
        let Found { mut node, status, previous } = found;
        let is_archive = self.setting.mounted_archives.contains(&status.id.file_system);
        if (self.setting.options.one_file_system || is_archive) && self.is_elsewhere(&status) {
            self.sequence.push(Event::Node(node));
            return;
        }
        match open_folder(&parent.descriptor, &node.name) {
            Ok(descriptor) => {
                let path = parent.path.join_name(&node.name);
                if let Some(known) = previous.as_ref().filter(|_| is_known) {
                    node.xattrs.clone_from(&known.xattrs);
                } else {
                    self.read_xattrs(&mut node, &XattrPlace::open(&descriptor), &path);
                }
                self.enter(node, descriptor, path, previous.as_ref());
            }
            Err(error) => self.give_up(node, parent, error),
        }
    }

    /// Opens a folder for the walk. The root is read with its attributes here.
    fn enter(&mut self, mut node: Node, descriptor: OwnedFd, path: PathBuf, previous: Option<&Node>) {
        self.setting.watch.progress.set_current(&path);
        self.setting.watch.progress.add_files_done(1);
        let only = self.setting.options.only.as_deref().filter(|_| self.stack.is_empty());
        if self.stack.is_empty() && only.is_none() {
            self.read_xattrs(&mut node, &XattrPlace::open(&descriptor), &path);
        }
        let (mut names, read) = match only {
            Some(name) => (Names::one(name), Ok(())),
            None => Names::read(&descriptor),
        };
        if let Err(error) = read {
            node.problem = Some(NodeProblem::Unreadable);
            self.setting.watch.report(&path, error);
        }
        if self.setting.options.exclude_caches && names.contain(CACHE_TAG_NAME) && is_cache(&descriptor) {
            names.retain_only(CACHE_TAG_NAME);
        }
        self.sequence.push(Event::Open(node));
        let folder = Arc::new(SourceFolder { descriptor, path, _token: Arc::clone(&self.folder_token) });
        let previous = PreviousFolder::new(self.setting.blocks, previous);
        self.stack.push(Frame { folder, names, previous });
    }

    fn visit_leaf(&mut self, found: Found, is_known: bool, folder: &Arc<SourceFolder>) {
        let Found { mut node, status, previous } = found;
        let is_another_name = self.join_link_group(&mut node, &status);
        if is_another_name {
            self.setting.watch.progress.add_files_done(1);
            self.sequence.push(Event::Link(node));
            return;
        }
        if let Some(known) = previous.filter(|known| is_known && !self.has_lost_blocks(known)) {
            // All that the system says of it is in its node already, but for what belongs to this snapshot.
            self.unchanged_count += u64::from(node.kind == NodeKind::File);
            self.setting.watch.progress.add_files_done(1);
            self.setting.watch.progress.add_bytes_done(node.size);
            let Node { content, target, xattrs, .. } = known;
            self.sequence.push(Event::Node(Node { content, target, xattrs, ..node }));
            return;
        }
        if node.kind == NodeKind::File {
            self.queue_file(node, status, folder);
        } else {
            self.read_special(node, folder);
        }
    }

    /// Whether a file's content needs a block that is known to be lost.
    fn has_lost_blocks(&self, node: &Node) -> bool {
        let lost = &self.setting.options.lost;
        let Some(content) = node.content.filter(|_| !lost.is_empty()) else { return false };
        let mut found = false;
        walk(self.setting.blocks, &content, &mut |block| {
            found |= block.damage.is_some() || lost.contains(&block.name);
            if found { Visit::Skip } else { Visit::Descend }
        });
        found
    }

    /// Gives a file with several names its link group. Returns whether one of the names came before.
    fn join_link_group(&mut self, node: &mut Node, status: &Status) -> bool {
        if status.link_count < 2 {
            return false;
        }
        // The inode's number, so that it stays the same from day to day; unless another file system has taken it.
        let mut group = status.id.inode;
        while self.link_groups.get(&group).is_some_and(|id| *id != status.id) {
            group = group.wrapping_add(1 << 32 | 1);
        }
        node.link_group = Some(group);
        self.link_groups.insert(group, status.id).is_some()
    }

    fn queue_file(&mut self, node: Node, status: Status, folder: &Arc<SourceFolder>) {
        let number = self.sequence.push(Event::Awaited);
        let file = FileToRead { number, folder: Arc::clone(folder), node, seen: status };
        if status.size > SMALL_FILE_BYTES_MAX {
            self.submit_job();
            self.setting.pipeline.submit(vec![file]);
            return;
        }
        self.job.push(file);
        self.job_bytes += status.size;
        if self.job.len() >= JOB_FILE_COUNT_MAX || self.job_bytes >= JOB_BYTES {
            self.submit_job();
        }
    }

    fn submit_job(&mut self) {
        self.job_bytes = 0;
        if !self.job.is_empty() {
            self.setting.pipeline.submit(std::mem::take(&mut self.job));
        }
    }

    /// What is neither a file nor a folder is not opened: its name is enough.
    fn read_special(&mut self, mut node: Node, folder: &SourceFolder) {
        if node.kind == NodeKind::SymbolicLink {
            match rustix::fs::readlinkat(&folder.descriptor, node.name.as_slice(), Vec::new()) {
                Ok(target) if !target.is_empty() => node.target = target.into_bytes(),
                Ok(_) => return self.give_up(node, folder, io::Error::other("it points nowhere")),
                Err(error) => return self.give_up(node, folder, error.into()),
            }
        }
        let path = folder.path.join_name(&node.name);
        let place = XattrPlace::named(&folder.descriptor, &node.name);
        self.read_xattrs(&mut node, &place, &path);
        self.setting.watch.progress.add_files_done(1);
        self.sequence.push(Event::Node(node));
    }

    fn read_xattrs(&self, node: &mut Node, place: &XattrPlace<'_>, path: &Path) {
        match place.read() {
            Ok(xattrs) => node.xattrs = xattrs,
            Err(error) => {
                node.problem = Some(NodeProblem::Unreadable);
                self.setting.watch.report(path, error);
            }
        }
    }

    /// Something that cannot be archived: its node says so.
    fn give_up(&mut self, mut node: Node, folder: &SourceFolder, error: io::Error) {
        let is_gone = error.kind() == io::ErrorKind::NotFound;
        node.problem = Some(if is_gone { NodeProblem::Vanished } else { NodeProblem::Unreadable });
        self.setting.watch.report(&folder.path.join(OsStr::from_bytes(&node.name)), error);
        self.setting.watch.progress.add_files_done(1);
        self.sequence.push(Event::Node(node));
    }
}
