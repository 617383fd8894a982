//! Making the tree of a destination: folders on the way down, their attributes on the way up.
//!
//! A folder gets its times once all that is in it is done, and a further name of a file is made once the file is. So what is to
//! be done later waits in a queue behind the files that are still being written:
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

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::super::pipeline::Pipeline;
use super::super::read::JoinName;
use super::super::watch::Watch;
use super::attributes::INHERITED_BY_ALL;
use super::destination::Destination;
use super::files::{
    AttributesLacking, FileToWrite, FileWriter, Job, TargetFolder, WriteFileError, Written, part_bytes,
};
use super::{RestoreCounts, RestoreFolderError};
use crate::files::{Files, Nodes};
use crate::node::{Node, NodeKind};

/// How many files are written by one job, at most.
const JOB_FILE_COUNT_MAX: usize = 128;
/// How many bytes the files of a job have, but for the last.
const JOB_BYTES: u64 = 2 << 20;
/// How many events may wait for the file at the front.
const WAITING_COUNT_MAX: usize = 16 << 10;
/// How many folders may be open for what waits, besides those that the walk is in.
const OPEN_FOLDER_COUNT_MAX: usize = 256;
/// What a folder may hand down to what is made in it.
const INHERITED_XATTRS: [&str; 2] = ["system.posix_acl_default", INHERITED_BY_ALL];

pub(super) type FilePipeline<'p> = Pipeline<'p, Job, Vec<Written>>;

enum Event {
    /// A file that is being written, and the group that it is the first of.
    Awaited { link_group: Option<u64> },
    /// A file that is written, or left out.
    Done,
    /// Another name of a file that came before.
    Link { folder: Arc<TargetFolder>, node: Node },
    /// The end of a folder.
    Close { folder: Arc<TargetFolder>, node: Node },
}

/// A folder of which some is left out.
#[derive(Debug, thiserror::Error)]
#[error("what else it held cannot be read, and is left out")]
struct FolderCutShort {
    source: crate::node_list::ReadFolderError,
}

/// A name that is a file of its own now, as the system makes no link there.
#[derive(Debug, thiserror::Error)]
#[error("it is a copy of {}, and no longer another name of it", first.display())]
struct NotLinked {
    first: PathBuf,
    source: io::Error,
}

pub(super) struct TreeWriter<'a> {
    files: &'a dyn Files,
    writer: &'a FileWriter<'a>,
    pipeline: &'a FilePipeline<'a>,
    watch: Watch<'a>,
    stack: Vec<(Arc<TargetFolder>, Node, Nodes<'a>)>,
    events: VecDeque<Event>,
    /// How many events have left the queue.
    passed_count: u64,
    job: Vec<FileToWrite>,
    job_bytes: u64,
    /// Where the first file of each link group is.
    linked: BTreeMap<u64, PathBuf>,
    root: Option<Arc<TargetFolder>>,
    folder_token: Arc<()>,
    counts: RestoreCounts,
}

impl<'a> TreeWriter<'a> {
    pub(super) fn new(
        files: &'a dyn Files,
        writer: &'a FileWriter<'a>,
        pipeline: &'a FilePipeline<'a>,
        watch: Watch<'a>,
    ) -> Self {
        Self {
            files,
            writer,
            pipeline,
            watch,
            stack: Vec::new(),
            events: VecDeque::new(),
            passed_count: 0,
            job: Vec::new(),
            job_bytes: 0,
            linked: BTreeMap::new(),
            root: None,
            folder_token: Arc::new(()),
            counts: RestoreCounts::default(),
        }
    }

    /// Makes everything under the destination's unfinished name.
    pub(super) fn write(
        mut self,
        root: &Node,
        destination: &Destination,
    ) -> Result<RestoreCounts, RestoreFolderError> {
        let root = Node { name: destination.partial_name().to_vec(), ..root.clone() };
        let parent = destination.parent();
        if root.kind == NodeKind::Folder {
            let descriptor =
                open_folder(parent, &root.name).map_err(|error| destination.failed(error.into()))?;
            for name in INHERITED_XATTRS {
                // Most have none, and some file systems know of none.
                let _ = rustix::fs::fremovexattr(&descriptor, name);
            }
            let folder = self.enter(root, descriptor, PathBuf::new());
            self.root = Some(folder);
        } else {
            let parent = rustix::io::dup(parent).map_err(|error| destination.failed(error.into()))?;
            let folder = self.target_folder(parent, PathBuf::new());
            self.visit(&folder, Node { link_group: None, ..root });
        }
        while let Some((folder, _, nodes)) = self.stack.last_mut() {
            if self.watch.progress.is_cancelled() {
                return Err(RestoreFolderError::Cancelled);
            }
            let folder = Arc::clone(folder);
            match nodes.next() {
                Some(Ok(node)) => self.visit(&folder, node),
                Some(Err(source)) => self.report(&folder.path, FolderCutShort { source }),
                None => {
                    if let Some((folder, node, _)) = self.stack.pop() {
                        self.events.push_back(Event::Close { folder, node });
                    }
                }
            }
            self.advance();
        }
        self.submit_job();
        self.advance();
        // The parts of a large file that were never handed out are never done.
        while !self.events.is_empty() && !self.watch.progress.is_cancelled() {
            self.pipeline.help_or_wait();
            self.advance();
        }
        if self.watch.progress.is_cancelled() { Err(RestoreFolderError::Cancelled) } else { Ok(self.counts) }
    }

    /// Does what is no longer waited for, and waits while too much is.
    fn advance(&mut self) {
        loop {
            for written in self.pipeline.take_done().into_iter().flatten() {
                self.settle(&written);
            }
            self.pass_front();
            let open_count = Arc::strong_count(&self.folder_token) - 1;
            let is_much = self.events.len() > WAITING_COUNT_MAX
                || open_count > self.stack.len() + OPEN_FOLDER_COUNT_MAX;
            if !is_much {
                return;
            }
            self.submit_job();
            if !self.pipeline.help_or_wait() {
                return;
            }
        }
    }

    fn pass_front(&mut self) {
        while self.events.front().is_some_and(|event| !matches!(event, Event::Awaited { .. })) {
            self.passed_count += 1;
            match self.events.pop_front() {
                Some(Event::Link { folder, node }) => self.link(folder, node),
                Some(Event::Close { folder, node }) => self.close(&folder, &node),
                _ => {}
            }
        }
    }

    fn settle(&mut self, written: &Written) {
        self.counts.problem_count += u64::from(written.has_problem);
        if let Some(bytes) = written.bytes {
            self.counts.file_count += 1;
            self.counts.bytes += bytes;
        }
        let place =
            usize::try_from(written.number - self.passed_count).expect("an awaited event is in the queue");
        let event = std::mem::replace(&mut self.events[place], Event::Done);
        if let (None, Event::Awaited { link_group: Some(group) }) = (written.bytes, event) {
            // The next name of the file is made by itself.
            self.linked.remove(&group);
        }
    }

    fn visit(&mut self, folder: &Arc<TargetFolder>, node: Node) {
        let path = folder.path.join_name(&node.name);
        if let Some(trouble) = self.files.trouble(&node) {
            self.report(&path, trouble.error);
            if trouble.lacks_all {
                return;
            }
        }
        if node.kind == NodeKind::Folder {
            return self.visit_folder(folder, node, path);
        }
        if let Some(group) = node.link_group {
            if self.linked.contains_key(&group) {
                self.events.push_back(Event::Link { folder: Arc::clone(folder), node });
                return;
            }
            self.linked.insert(group, path);
        }
        self.make(Arc::clone(folder), node);
    }

    fn visit_folder(&mut self, parent: &Arc<TargetFolder>, node: Node, path: PathBuf) {
        let made = rustix::fs::mkdirat(&parent.descriptor, node.name.as_slice(), Mode::RWXU)
            .and_then(|()| open_folder(&parent.descriptor, &node.name));
        match made {
            Ok(descriptor) => {
                self.enter(node, descriptor, path);
            }
            Err(error) => self.report(&path, WriteFileError::from(error)),
        }
    }

    fn enter(&mut self, node: Node, descriptor: OwnedFd, path: PathBuf) -> Arc<TargetFolder> {
        self.watch.progress.set_current(&path);
        let folder = self.target_folder(descriptor, path);
        let nodes = self.files.nodes(&node);
        self.stack.push((Arc::clone(&folder), node, nodes));
        folder
    }

    fn target_folder(&self, descriptor: OwnedFd, path: PathBuf) -> Arc<TargetFolder> {
        Arc::new(TargetFolder { descriptor, path, _token: Arc::clone(&self.folder_token) })
    }

    /// Makes anything but a folder.
    fn make(&mut self, folder: Arc<TargetFolder>, node: Node) {
        if node.kind != NodeKind::File {
            return self.make_special(&folder, &node);
        }
        let number = self.passed_count + self.events.len() as u64;
        self.events.push_back(Event::Awaited { link_group: node.link_group });
        let file = FileToWrite { number, folder, node };
        let size = file.node.size;
        if size > part_bytes(size) {
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

    fn submit_parts(&mut self, large: super::files::LargeFile, size: u64) {
        let file = Arc::new(large);
        let (part_bytes, mut start) = (part_bytes(size), 0);
        while start < size && !self.watch.progress.is_cancelled() {
            let end = size.min(start.saturating_add(part_bytes));
            self.pipeline.submit(Job::Part { file: Arc::clone(&file), range: start..end });
            start = end;
            for written in self.pipeline.take_done().into_iter().flatten() {
                self.settle(&written);
            }
        }
    }

    fn submit_job(&mut self) {
        self.job_bytes = 0;
        if !self.job.is_empty() {
            self.pipeline.submit(Job::Files(std::mem::take(&mut self.job)));
        }
    }

    fn make_special(&mut self, folder: &TargetFolder, node: &Node) {
        let (parent, name) = (&folder.descriptor, node.name.as_slice());
        let device = node.device.map_or(0, |device| rustix::fs::makedev(device.major, device.minor));
        let mknod = |file_type| rustix::fs::mknodat(parent, name, file_type, Mode::RUSR | Mode::WUSR, device);
        let made = match node.kind {
            NodeKind::SymbolicLink => rustix::fs::symlinkat(node.target.as_slice(), parent, name),
            NodeKind::CharacterDevice => mknod(FileType::CharacterDevice),
            NodeKind::BlockDevice => mknod(FileType::BlockDevice),
            NodeKind::Fifo => mknod(FileType::Fifo),
            NodeKind::Socket => mknod(FileType::Socket),
            NodeKind::File | NodeKind::Folder => unreachable!("these are made elsewhere"),
        };
        if let Err(error) = made {
            if let Some(group) = node.link_group {
                self.linked.remove(&group);
            }
            return self.report(&folder.path.join_name(name), WriteFileError::from(error));
        }
        self.count_file();
        if let Err(source) = self.writer.attributes.give_named(parent, name, node) {
            self.report(&folder.path.join_name(name), AttributesLacking { source });
        }
    }

    /// Gives a file another name; makes it, where the one that came before it is left out.
    fn link(&mut self, folder: Arc<TargetFolder>, node: Node) {
        let first = node.link_group.and_then(|group| self.linked.get(&group)).cloned();
        let (Some(first), Some(root)) = (first, &self.root) else {
            if let Some(group) = node.link_group {
                self.linked.insert(group, folder.path.join_name(&node.name));
            }
            return self.make_now(folder, node);
        };
        let linked = open_beneath(root, first.parent().unwrap_or(Path::new(""))).and_then(|first_folder| {
            let name = first.file_name().unwrap_or_default();
            rustix::fs::linkat(
                &first_folder,
                name,
                &folder.descriptor,
                node.name.as_slice(),
                AtFlags::empty(),
            )
        });
        match linked {
            Ok(()) => self.count_file(),
            Err(error) if can_be_copied(error) => {
                let path = folder.path.join_name(&node.name);
                self.report(&path, NotLinked { first: first.clone(), source: error.into() });
                // Those that come after it are names of this one, where that can be had: the first may have as many as it can.
                node.link_group.map(|group| self.linked.insert(group, path));
                self.make_now(folder, node);
            }
            Err(error) => self.report(&folder.path.join_name(&node.name), WriteFileError::from(error)),
        }
    }

    /// Makes something whose turn is now: those that come after it do not wait for it.
    fn make_now(&mut self, folder: Arc<TargetFolder>, node: Node) {
        if node.kind != NodeKind::File {
            return self.make_special(&folder, &node);
        }
        let link_group = node.link_group;
        for written in self.writer.write(Job::Files(vec![FileToWrite { number: 0, folder, node }])) {
            self.counts.problem_count += u64::from(written.has_problem);
            match written.bytes {
                Some(bytes) => {
                    self.counts.file_count += 1;
                    self.counts.bytes += bytes;
                }
                None => {
                    link_group.map(|group| self.linked.remove(&group));
                }
            }
        }
    }

    fn close(&mut self, folder: &TargetFolder, node: &Node) {
        self.counts.folder_count += 1;
        self.watch.progress.add_files_done(1);
        if let Err(source) = self.writer.attributes.give_open(&folder.descriptor, node) {
            self.report(&folder.path, AttributesLacking { source });
        }
    }

    fn count_file(&mut self) {
        self.counts.file_count += 1;
        self.watch.progress.add_files_done(1);
    }

    fn report(&mut self, path: &Path, error: impl Into<Box<dyn Error + Send + Sync>>) {
        self.counts.problem_count += 1;
        self.watch.report(path, error);
    }
}

fn open_folder(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// Whether a link that was refused leaves a way to have the file: it has too many names, or the first one cannot be reached any more,
/// in a folder that is closed already and lets nobody through, or the file system has no links.
fn can_be_copied(error: Errno) -> bool {
    matches!(
        error,
        Errno::ACCESS | Errno::MLINK | Errno::PERM | Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS
    )
}

/// Opens a folder step by step, through no symbolic link.
fn open_beneath(root: &TargetFolder, path: &Path) -> Result<OwnedFd, Errno> {
    let mut folder = rustix::io::dup(&root.descriptor)?;
    for name in path {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        folder = rustix::fs::openat(&folder, name, flags, Mode::empty())?;
    }
    Ok(folder)
}
