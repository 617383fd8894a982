//! The walk over a source: one step at a time, depth first, names in the order of their bytes.
//!
//! ```text
//!   folder ── names, one status each ──> unchanged ──────────────> sequence ──> folders' content
//!     ^                             └──> to be read ── jobs ── pipeline ──┘
//!     └────── next folders: names, statuses ── jobs ── pipeline
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

use super::left_out::LeftOutOfFolder;
use super::list_ahead::{FolderListing, FolderToList, FoldersAhead, ListedFolder};
use super::news::EarlierEntry;
use super::options::FolderOptions;
use super::outcome::{ArchiveFolderError, ArchivedFolder};
use super::path_limit::PathLimit;
use super::pipeline::Pipeline;
use super::previous::PreviousFolder;
use super::read::{FileToRead, JoinName, ReadFiles, ReadJob, SMALL_FILE_BYTES_MAX, SourceFolder};
use super::remembered::RememberedFiles;
use super::sequence::{FolderCounts, NodeSequence, WalkEvent};
use crate::folder::source::flags;
use crate::folder::source::listed_paths::ListedPaths;
use crate::folder::source::selection::{Selection, empty, marked};
use crate::folder::source::status::{
    FolderNames, HostFileId, NameWithStatus, NodeSettings, Status, open_folder,
};
use crate::folder::source::xattrs::XattrPlace;
use crate::folder::watch::Watch;
use crate::records::node::{Node, NodeKind, NodeProblem};
use varve_image::DeviceNumber;

/// Upper bound on the files in one job.
const JOB_FILE_COUNT_MAX: usize = 256;
/// A job ends once its files have this many bytes.
const JOB_BYTES: u64 = 1 << 20;
/// Upper bound on the events that wait for the file at the front.
const WAITING_COUNT_MAX: usize = 16 << 10;
/// Upper bound on the folders that are open for jobs, besides those that the walker is in.
const OPEN_FOLDER_COUNT_MAX: usize = 256;

/// Folders that are listed ahead of the walk at the same time, each with an open descriptor.
const LISTED_COUNT_MAX: u64 = 64;

pub(super) type WalkPipeline<'p> = Pipeline<'p, WalkJob, DoneWalkJob>;

/// A job of the workers.
pub(super) enum WalkJob {
    List(FolderToList),
    Read(ReadJob),
}

/// A job that is done.
pub(super) enum DoneWalkJob {
    Listed(ListedFolder),
    Read(Result<ReadFiles, ArchiveFolderError>),
}

/// The fixed settings of a walk.
pub(super) struct WalkSetting<'a> {
    pub(super) blocks: &'a dyn BlockStore,
    pub(super) pipeline: &'a WalkPipeline<'a>,
    pub(super) options: &'a FolderOptions,
    pub(super) watch: Watch<'a>,
    pub(super) description: NodeSettings,
    pub(super) selection: Selection<'a>,
    /// The device of the source.
    pub(super) device: DeviceNumber,
}

pub(super) struct FolderWalker<'a> {
    setting: WalkSetting<'a>,
    sequence: NodeSequence<'a>,
    /// The folders from the root to the current one.
    stack: Vec<WalkedFolder<'a>>,
    /// Files for the next job.
    job: ReadJob,
    job_bytes: u64,
    /// Link groups, and the files to which they belong.
    link_groups: BTreeMap<u64, HostFileId>,
    /// The folders that were listed ahead, and that the walk has not reached yet.
    listings: BTreeMap<u64, Option<FolderListing>>,
    /// The number of folders that were given to the workers to be listed, and of those that the
    /// walk has reached since.
    listed_count: u64,
    reached_count: u64,
    remembered: Option<&'a dyn RememberedFiles>,
    folder_token: Arc<()>,
    path_limit: PathLimit,
    unchanged_count: u64,
    read: ReadFiles,
    left_out: LeftOutOfFolder,
}

struct WalkedFolder<'a> {
    folder: Arc<SourceFolder>,
    names: FolderNames,
    ahead: FoldersAhead,
    previous: PreviousFolder<'a>,
    /// The paths that are archived; `None` for everything.
    listed: Option<&'a ListedPaths>,
}

/// A name that the walk has reached.
struct WalkedEntry {
    node: Node,
    status: Status,
    previous: Option<Node>,
    /// Set if it is a folder that was listed ahead.
    listing: Option<FolderListing>,
}

impl<'a> FolderWalker<'a> {
    pub(crate) fn new(setting: WalkSetting<'a>) -> Self {
        Self {
            sequence: NodeSequence::new(setting.blocks, setting.watch, None, None),
            remembered: None,
            setting,
            stack: Vec::new(),
            job: ReadJob::new(),
            job_bytes: 0,
            link_groups: BTreeMap::new(),
            listings: BTreeMap::new(),
            listed_count: 0,
            reached_count: 0,
            folder_token: Arc::new(()),
            path_limit: PathLimit::of_process(),
            unchanged_count: 0,
            read: ReadFiles::default(),
            left_out: LeftOutOfFolder::default(),
        }
    }

    /// Uses the remembered files of the last snapshot, and remembers those of this one.
    pub(super) fn remembering(self, remembered: Option<&'a dyn RememberedFiles>) -> Self {
        let vac = self.setting.options.vac.as_ref();
        Self {
            sequence: NodeSequence::new(self.setting.blocks, self.setting.watch, remembered, vac),
            remembered,
            ..self
        }
    }

    /// Walks from the root to the end.
    pub(crate) fn walk(
        mut self,
        root: Node,
        descriptor: OwnedFd,
        previous: Option<&Node>,
    ) -> Result<ArchivedFolder, ArchiveFolderError> {
        let (virtual_name, _) = self.setting.selection.virtual_file_system(None, &descriptor);
        let folder = self.source_folder(descriptor, PathBuf::new(), self.setting.device, virtual_name);
        self.enter(root, folder, None, self.setting.selection.listed(), previous);
        while let Some(frame) = self.stack.last_mut() {
            if self.setting.watch.progress.is_cancelled() {
                return Err(ArchiveFolderError::Cancelled);
            }
            match frame.names.next_with_status(&frame.folder.descriptor) {
                Some(entry) => {
                    let folder = Arc::clone(&frame.folder);
                    let previous = frame.previous.take(&entry.name);
                    let listed = frame.listed.and_then(|listed| listed.below(&entry.name));
                    let ahead = frame.ahead.take(entry.place);
                    self.list_ahead();
                    let listing = ahead.map(|number| self.wait_for_listing(number)).transpose()?.flatten();
                    self.visit(entry, listing, &folder, listed, previous);
                }
                None => {
                    self.stack.pop();
                    self.sequence.push(WalkEvent::Close);
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
        let Self { sequence, read, unchanged_count, left_out, .. } = self;
        let (root, counts, vac) = sequence.finish();
        let ReadFiles { read_count, read_bytes, news, .. } = read;
        Ok(ArchivedFolder {
            root,
            counts: FolderCounts { unchanged_count, read_count, read_bytes, news, ..counts },
            left_out,
            vac,
            only,
        })
    }

    /// Writes complete events, and waits while too many are incomplete.
    fn advance(&mut self) -> Result<(), ArchiveFolderError> {
        loop {
            self.take_done()?;
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

    fn take_done(&mut self) -> Result<(), ArchiveFolderError> {
        for done in self.setting.pipeline.take_done() {
            match done {
                DoneWalkJob::Listed(ListedFolder { number, listing }) => {
                    self.listings.insert(number, listing);
                }
                DoneWalkJob::Read(read) => {
                    let ReadFiles { nodes, read_count, read_bytes, news } = read?;
                    self.read.news.merge(news);
                    self.read.read_count += read_count;
                    self.read.read_bytes += read_bytes;
                    for (number, node) in nodes {
                        self.sequence.settle(number, node);
                    }
                }
            }
        }
        Ok(())
    }

    /// Lets the workers list the next folders in the current one.
    fn list_ahead(&mut self) {
        let Some(frame) = self.stack.last_mut() else { return };
        while frame.listed.is_none()
            && self.listed_count - self.reached_count < LISTED_COUNT_MAX
            && let WalkedFolder { folder, names, ahead, .. } = &mut *frame
            && let Some(next) = ahead.next(names, folder, &self.setting.selection, self.listed_count)
        {
            self.listed_count += 1;
            self.setting.pipeline.submit_first(WalkJob::List(next));
        }
    }

    /// Returns the listing with this number. `None` if the folder must be listed by the walk.
    fn wait_for_listing(&mut self, number: u64) -> Result<Option<FolderListing>, ArchiveFolderError> {
        self.reached_count += 1;
        loop {
            self.take_done()?;
            if let Some(listing) = self.listings.remove(&number) {
                return Ok(listing);
            }
            if !self.setting.pipeline.help_or_wait() {
                return Ok(None);
            }
        }
    }

    fn visit(
        &mut self,
        entry: NameWithStatus,
        listing: Option<FolderListing>,
        folder: &Arc<SourceFolder>,
        listed: Option<&'a ListedPaths>,
        previous: Option<Node>,
    ) {
        let NameWithStatus { name, kind: listed_kind, status, .. } = entry;
        let status = match status {
            Ok(status) => status,
            Err(error) => {
                let node = Node::new(name, listed_kind.unwrap_or(NodeKind::File));
                return self.give_up(node, folder, error);
            }
        };
        let Some(kind) = status.kind else { return };
        if let Err(error) = self.path_limit.check(&folder.path, self.stack.len(), &name, kind) {
            return self.give_up(Node::new(name, kind), folder, io::Error::other(error));
        }
        if let Some(entry) = self.setting.selection.leaves_out(folder, &name, kind, &status) {
            self.left_out.add(entry);
            return;
        }
        let mut node = Node::new(name, kind);
        status.describe(&mut node, self.setting.description);
        if let Some(reason) = self.setting.selection.leaves_empty(folder, &node.name, kind, &status) {
            self.left_out.add(empty(&folder.path.join_name(&node.name), kind, reason));
            node.size = 0;
            self.sequence.push(WalkEvent::Node(node));
            return;
        }
        if listed.is_some() && kind != NodeKind::Folder {
            let error = io::Error::other("the list names paths below it, but it is not a folder");
            return self.give_up(node, folder, error);
        }
        let remembered = self.remembered;
        let previous = previous.or_else(|| {
            let path = folder.path.join_name(&node.name);
            remembered?.recall(path.as_os_str().as_bytes(), &node)
        });
        let is_known = |known: &Node| {
            let state = |node: &Node| (node.kind, node.size, node.mtime, node.ctime, node.inode);
            state(known) == state(&node)
                && known.ctime.is_some()
                && known.problem.is_none()
                && (kind != NodeKind::File || flags::may_be_those(&status, &folder.descriptor, known))
        };
        let vac = self.setting.options.vac.as_ref();
        // A file that was cut by content is read once more, and then cut as vac does.
        let is_expressed = |known: &Node| {
            kind != NodeKind::File || vac.is_none_or(|vac| vac.can_express(known.content.as_ref()))
        };
        let is_kept = |known: &Node| is_known(known) && is_expressed(known) && !self.setting.options.reread;
        let known = previous.as_ref().is_some_and(is_kept);
        let found = WalkedEntry { node, status, previous, listing };
        match kind {
            NodeKind::Folder => self.visit_folder(found, known, folder, listed),
            _ => self.visit_leaf(found, known, folder),
        }
    }

    fn visit_folder(
        &mut self,
        found: WalkedEntry,
        is_known: bool,
        parent: &Arc<SourceFolder>,
        listed: Option<&'a ListedPaths>,
    ) {
        let WalkedEntry { mut node, status, previous, listing } = found;
        let (descriptor, names) = match listing {
            Some(FolderListing { descriptor, names, read }) => (descriptor, Some((names, read))),
            None => match open_folder(&parent.descriptor, &node.name) {
                Ok(descriptor) => (descriptor, None),
                Err(error) => return self.give_up(node, parent, error),
            },
        };
        let path = parent.path.join_name(&node.name);
        let (virtual_name, left_empty) =
            self.setting.selection.virtual_file_system(Some(parent), &descriptor);
        if let Some(reason) = left_empty {
            self.left_out.add(empty(&path, node.kind, reason));
            self.sequence.push(WalkEvent::Node(node));
            return;
        }
        if let Some(known) = previous.as_ref().filter(|_| is_known) {
            node.xattrs.clone_from(&known.xattrs);
        } else {
            self.read_xattrs(&mut node, &XattrPlace::open(&descriptor), &path);
        }
        let folder = self.source_folder(descriptor, path, status.id.file_system, virtual_name);
        self.enter(node, folder, names, listed, previous.as_ref());
    }

    fn source_folder(
        &self,
        descriptor: OwnedFd,
        path: PathBuf,
        device: DeviceNumber,
        virtual_name: Option<&'static str>,
    ) -> SourceFolder {
        SourceFolder { descriptor, path, device, virtual_name, _token: Arc::clone(&self.folder_token) }
    }

    /// Opens a folder for the walk. Reads the attributes of the root here. `names` are those that
    /// were listed ahead.
    fn enter(
        &mut self,
        mut node: Node,
        folder: SourceFolder,
        names: Option<(FolderNames, io::Result<()>)>,
        listed: Option<&'a ListedPaths>,
        previous: Option<&Node>,
    ) {
        let SourceFolder { descriptor, path, .. } = &folder;
        if folder.virtual_name.is_none() {
            node.inode_flags = flags::read(descriptor);
            (self.setting.description.adjust)(&mut node);
        }
        self.setting.watch.progress.set_current(path);
        self.setting.watch.progress.add_files_done(1);
        let only = self.setting.options.only.as_deref().filter(|_| self.stack.is_empty());
        if self.stack.is_empty() && only.is_none() {
            self.read_xattrs(&mut node, &XattrPlace::open(descriptor), path);
        }
        let names = match (only, listed) {
            (Some(name), _) => FolderNames::one(name),
            (None, Some(listed)) => FolderNames::listed(listed.names()),
            (None, None) => {
                let names = names.unwrap_or_else(|| FolderNames::read(&folder.descriptor));
                self.select_names(&mut node, &folder, names)
            }
        };
        self.sequence.push(WalkEvent::Open(node));
        let previous = PreviousFolder::new(self.setting.blocks, previous);
        let ahead = FoldersAhead::default();
        self.stack.push(WalkedFolder { folder: Arc::new(folder), names, ahead, previous, listed });
    }

    fn select_names(
        &mut self,
        node: &mut Node,
        folder: &SourceFolder,
        (mut names, read): (FolderNames, io::Result<()>),
    ) -> FolderNames {
        if let Err(error) = read {
            node.problem = Some(NodeProblem::Unreadable);
            self.setting.watch.report(&folder.path, error);
        }
        if let Some(only) = self.setting.selection.keeps_only(&folder.descriptor, &names) {
            if names.len() > 1 {
                self.left_out.add(marked(&folder.path, only.clone()));
            }
            names.retain_only(&only);
        }
        names
    }

    fn visit_leaf(&mut self, found: WalkedEntry, is_known: bool, folder: &Arc<SourceFolder>) {
        let WalkedEntry { mut node, status, previous, .. } = found;
        let is_another_name = self.join_link_group(&mut node, &status);
        if is_another_name {
            self.setting.watch.progress.add_files_done(1);
            // Its file was compared under the first name.
            let (content, xattrs, inode_flags) = previous
                .as_ref()
                .map(|known| (known.content, known.xattrs.clone(), known.inode_flags))
                .unwrap_or_default();
            let compared = Node { content, xattrs, inode_flags, ..node.clone() };
            self.note(&compared, &self.earlier(previous), folder);
            self.sequence.push(WalkEvent::Link(node));
            return;
        }
        let earlier = self.earlier(previous);
        if let Some(known) = earlier.known().filter(|known| is_known && !self.has_lost_blocks(known)) {
            // The node has the current status already. The rest is taken from the previous
            // snapshot.
            self.unchanged_count += u64::from(node.kind == NodeKind::File);
            self.setting.watch.progress.add_files_done(1);
            self.setting.watch.progress.add_bytes_done(node.size);
            let Node { content, target, xattrs, inode_flags, .. } = known.clone();
            let node = Node { content, target, xattrs, inode_flags, ..node };
            self.note(&node, &earlier, folder);
            self.sequence.push(WalkEvent::Unchanged(node));
            return;
        }
        if node.kind == NodeKind::File {
            self.queue_file(node, status, folder, earlier);
        } else {
            self.read_special(node, folder, &earlier);
        }
    }

    /// Returns whether a file's content needs a block that is known to be lost.
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

    /// Sets the link group of a file with several names. Returns whether another of its names came
    /// before.
    fn join_link_group(&mut self, node: &mut Node, status: &Status) -> bool {
        if status.link_count < 2 {
            return false;
        }
        // The inode number, so that it stays the same in each snapshot, unless a file on another
        // file system has it already.
        let mut group = status.id.inode;
        while self.link_groups.get(&group).is_some_and(|id| *id != status.id) {
            group = group.wrapping_add(1 << 32 | 1);
        }
        node.link_group = Some(group);
        self.link_groups.insert(group, status.id).is_some()
    }

    fn earlier(&self, previous: Option<Node>) -> EarlierEntry {
        match previous {
            Some(node) => EarlierEntry::Known(Box::new(node)),
            None if self.remembered.is_some() => EarlierEntry::Unknown,
            None => EarlierEntry::Absent,
        }
    }

    /// Counts an entry that no job reads.
    fn note(&mut self, node: &Node, earlier: &EarlierEntry, folder: &SourceFolder) {
        let note = self.setting.options.note;
        self.read.news.add(node, earlier, |news| note(news, &folder.path.join_name(&node.name)));
    }

    fn queue_file(&mut self, node: Node, status: Status, folder: &Arc<SourceFolder>, earlier: EarlierEntry) {
        let number = self.sequence.push(WalkEvent::Awaited);
        let file = FileToRead { number, folder: Arc::clone(folder), node, seen: status, earlier };
        if status.size > SMALL_FILE_BYTES_MAX {
            self.submit_job();
            self.setting.pipeline.submit(WalkJob::Read(vec![file]));
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
            self.setting.pipeline.submit(WalkJob::Read(std::mem::take(&mut self.job)));
        }
    }

    /// A node that is neither a file nor a folder is not opened: its name suffices.
    fn read_special(&mut self, mut node: Node, folder: &SourceFolder, earlier: &EarlierEntry) {
        if node.kind == NodeKind::SymbolicLink {
            match rustix::fs::readlinkat(&folder.descriptor, node.name.as_slice(), Vec::new()) {
                Ok(target) if !target.is_empty() => node.target = target.into_bytes(),
                Ok(_) => return self.give_up(node, folder, io::Error::other("its target is empty")),
                Err(error) => return self.give_up(node, folder, error.into()),
            }
        }
        let path = folder.path.join_name(&node.name);
        let place = XattrPlace::named(&folder.descriptor, &node.name);
        self.read_xattrs(&mut node, &place, &path);
        self.setting.watch.progress.add_files_done(1);
        self.note(&node, earlier, folder);
        self.sequence.push(WalkEvent::Node(node));
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

    /// Records the problem of a node that cannot be archived.
    fn give_up(&mut self, mut node: Node, folder: &SourceFolder, error: io::Error) {
        let is_gone = error.kind() == io::ErrorKind::NotFound;
        node.problem = Some(if is_gone { NodeProblem::Vanished } else { NodeProblem::Unreadable });
        self.setting.watch.report(&folder.path.join(OsStr::from_bytes(&node.name)), error);
        self.setting.watch.progress.add_files_done(1);
        self.sequence.push(WalkEvent::Node(node));
    }
}
