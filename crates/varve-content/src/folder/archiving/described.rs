//! Archives a tree of files that is described step by step, such as a snapshot of another program.
//!
//! ```text
//! next step ── folder, link, known content ───────────────────> sequence ──> folders' content
//!          └── file to read ── jobs ── pipeline ── content ──┘
//! ```
//!
//! Invariant: the steps come from outside. Steps in a wrong order are an error, and never a panic
//! or a malformed snapshot.

use std::error::Error;
use std::path::{Path, PathBuf};

use varve_block::{BlockKind, BlockStore, PutError};
use varve_tree::{ContentWriter, Cutting, Entry};
use varve_world::Workers;

use super::left_out::LeftOutOfFolder;
use super::outcome::{ArchiveFolderError, ArchivedFolder};
use super::path_limit::{NAME_BYTES_MAX, PathTooLong, TARGET_BYTES_MAX, check_path_bytes};
use super::pipeline::{Pipeline, run};
use super::read::JoinName;
use super::sequence::{FolderCounts, NodeSequence, WalkEvent};
use crate::folder::watch::Watch;
use crate::progress::Progress;
use crate::records::node::{MODE_MASK, Node, NodeKind, NodeProblem, is_component};

/// Upper bound on the files in one job.
const JOB_FILE_COUNT_MAX: usize = 128;
/// A job ends once its files have this many bytes.
const JOB_BYTES: u64 = 1 << 20;
/// Upper bound on the steps that wait for the file at the front.
const WAITING_COUNT_MAX: usize = 16 << 10;

/// Upper bound on the bytes of a node's name and extended attributes. Far below the limit of a
/// record.
const NODE_BYTES_MAX: usize = 8 << 20;

/// An error of another program's files.
pub type DescriptionError = Box<dyn Error + Send + Sync>;

/// A step through a described tree: depth first, names in ascending order of their bytes.
pub enum TreeStep {
    /// A folder. The following steps are in it, up to its `Close`. The first step opens the root,
    /// which has no name.
    Open(Node),
    /// The end of the innermost open folder.
    Close,
    /// A complete node that is not a folder. Its content is in the store already, or it has none.
    Entry(Node),
    /// A file whose content is still to be read. The size in the node is an estimate.
    File(Node, Box<dyn FileContent>),
    /// Another name of an earlier file with the same link group.
    Link(Node),
    /// A name that is left out of the snapshot, with the reason. It counts as a problem.
    Lost { name: Vec<u8>, error: DescriptionError },
    /// The reason of a problem that a node has. An empty name is that of the open folder itself.
    Harmed { name: Vec<u8>, error: DescriptionError },
}

/// A tree of files that can be archived.
pub trait DescribedTree {
    /// The next step; `None` after the root is closed.
    ///
    /// # Errors
    /// The rest of the tree is unknown. There will be no snapshot.
    fn next(&mut self, contents: &FileContents<'_>) -> Result<Option<TreeStep>, DescriptionError>;
}

/// The content of a file of a described tree.
pub trait FileContent: Send {
    /// Writes the whole content. Called once, on any thread.
    ///
    /// # Errors
    /// The file is unreadable, and is archived without content. Errors of `into` are passed on.
    fn write_to(&mut self, into: &mut ContentSink<'_>) -> Result<(), DescriptionError>;

    /// The content is in the store as a whole.
    fn stored(&mut self, content: Option<Entry>) {
        let _ = content;
    }
}

/// Receives the bytes of one file.
pub struct ContentSink<'a> {
    content: ContentWriter<'a>,
    progress: &'a Progress,
    /// The error of the store, which ends everything.
    failed: Option<SinkError>,
    lost: Option<DescriptionError>,
}

enum SinkError {
    Store(PutError),
    Cancelled,
}

/// The archive accepts no more bytes, or the operation was cancelled.
#[derive(Debug, thiserror::Error)]
#[error("the archive takes no more data")]
pub struct SinkClosed;

impl<'a> ContentSink<'a> {
    fn new(blocks: &'a dyn BlockStore, progress: &'a Progress) -> Self {
        let content = ContentWriter::new(blocks, BlockKind::Data, Cutting::FILE);
        Self { content, progress, failed: None, lost: None }
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`SinkClosed`]; the caller passes it on.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), SinkClosed> {
        self.progress.add_bytes_read(bytes.len() as u64);
        self.put(bytes.len() as u64, |content| content.write(bytes))
    }

    /// Appends a hole.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_zeros(&mut self, count: u64) -> Result<(), SinkClosed> {
        self.put(count, |content| content.write_zeros(count))
    }

    /// Appends a hole in place of bytes that are unreadable. The file then has a problem.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn lose(&mut self, count: u64, error: DescriptionError) -> Result<(), SinkClosed> {
        self.lost.get_or_insert(error);
        self.write_zeros(count)
    }

    /// The number of bytes so far, with holes.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.content.bytes_written()
    }

    fn put(
        &mut self,
        count: u64,
        write: impl FnOnce(&mut ContentWriter<'a>) -> Result<(), PutError>,
    ) -> Result<(), SinkClosed> {
        if self.failed.is_none() {
            let is_too_large = self.content.bytes_written().checked_add(count).is_none();
            self.failed = match () {
                () if self.progress.is_cancelled() || is_too_large => Some(SinkError::Cancelled),
                () => write(&mut self.content).err().map(SinkError::Store),
            };
            self.progress.add_bytes_done(count);
        }
        if self.failed.is_some() { Err(SinkClosed) } else { Ok(()) }
    }
}

/// Puts the contents of files before their place in the tree is known.
#[derive(Clone, Copy)]
pub struct FileContents<'a> {
    blocks: &'a dyn BlockStore,
    progress: &'a Progress,
}

/// The content of one file, as it was stored.
#[derive(Debug)]
pub struct StoredContent {
    /// `None` for an empty file.
    pub entry: Option<Entry>,
    /// The reason why parts of it are zeros instead.
    pub lost: Option<DescriptionError>,
}

impl FileContents<'_> {
    /// Puts the content of a file.
    ///
    /// # Errors
    /// [`ArchiveFolderError::Described`] with the error of `write`; [`ArchiveFolderError::Store`]
    /// and [`ArchiveFolderError::Cancelled`] end everything.
    pub fn put(
        &self,
        write: &mut dyn FnMut(&mut ContentSink<'_>) -> Result<(), DescriptionError>,
    ) -> Result<StoredContent, ArchiveFolderError> {
        if self.progress.is_cancelled() {
            return Err(ArchiveFolderError::Cancelled);
        }
        let mut sink = ContentSink::new(self.blocks, self.progress);
        let written = write(&mut sink);
        match sink.failed {
            Some(SinkError::Store(source)) => return Err(ArchiveFolderError::Store { source }),
            Some(SinkError::Cancelled) => return Err(ArchiveFolderError::Cancelled),
            None => written.map_err(|source| ArchiveFolderError::Described { source })?,
        }
        let entry = if sink.content.bytes_written() > 0 { Some(sink.content.finish()?) } else { None };
        Ok(StoredContent { entry, lost: sink.lost })
    }
}

/// A file whose content is to be read.
struct AwaitedFile {
    /// Its number in the sequence of events.
    number: u64,
    path: PathBuf,
    node: Node,
    content: Box<dyn FileContent>,
}

/// The result of a job.
struct TakenFiles {
    nodes: Vec<(u64, Node)>,
    bytes: u64,
}

type ReadPipeline<'p> = Pipeline<'p, Vec<AwaitedFile>, Result<TakenFiles, ArchiveFolderError>>;

/// Archives a described tree. Only the returned root leads to the result.
///
/// # Errors
/// [`ArchiveFolderError`].
pub fn archive_described(
    blocks: &dyn BlockStore,
    workers: &dyn Workers,
    tree: &mut (dyn DescribedTree + Send),
    watch: Watch<'_>,
) -> Result<ArchivedFolder, ArchiveFolderError> {
    let contents = FileContents { blocks, progress: watch.progress };
    let work = |job: Vec<AwaitedFile>| read_files(contents, watch, job);
    run(workers, &work, |pipeline| {
        let taker = TreeTaker {
            pipeline,
            watch,
            contents,
            sequence: NodeSequence::new(blocks, watch, None, None),
            open: Vec::new(),
            skipped_depth: 0,
            job: Vec::new(),
            job_bytes: 0,
            lost_count: 0,
            counts: FolderCounts::default(),
        };
        taker.take(tree)
    })
}

fn read_files(
    contents: FileContents<'_>,
    watch: Watch<'_>,
    job: Vec<AwaitedFile>,
) -> Result<TakenFiles, ArchiveFolderError> {
    let mut read = TakenFiles { nodes: Vec::with_capacity(job.len()), bytes: 0 };
    for AwaitedFile { number, path, mut node, mut content } in job {
        watch.progress.set_current(&path);
        node.content = None;
        let problem = match contents.put(&mut |sink| content.write_to(sink)) {
            Ok(StoredContent { entry, lost }) => {
                node.content = entry;
                node.size = entry.map_or(0, |entry| entry.size());
                if lost.is_none() {
                    content.stored(entry);
                }
                lost
            }
            Err(ArchiveFolderError::Described { source }) => Some(source),
            Err(error) => return Err(error),
        };
        if let Some(error) = problem {
            node.problem = Some(NodeProblem::Unreadable);
            watch.report(&path, error);
        }
        read.bytes = read.bytes.saturating_add(node.size);
        watch.progress.add_files_done(1);
        read.nodes.push((number, node));
    }
    Ok(read)
}

/// Takes the steps of a tree, one after the other.
struct TreeTaker<'a> {
    pipeline: &'a ReadPipeline<'a>,
    watch: Watch<'a>,
    contents: FileContents<'a>,
    sequence: NodeSequence<'a>,
    /// The folders from the root to the current one.
    open: Vec<OpenTreeFolder>,
    /// The folders inside each other that are left out now, because their path is too long.
    skipped_depth: usize,
    job: Vec<AwaitedFile>,
    job_bytes: u64,
    lost_count: u64,
    counts: FolderCounts,
}

struct OpenTreeFolder {
    path: PathBuf,
    /// The name of the last node in it.
    last: Vec<u8>,
}

/// Why steps do not describe a tree.
#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error("the files in {} are not in the order of their names: {:?} does not come after {:?}", path.display(), String::from_utf8_lossy(name), String::from_utf8_lossy(last))]
    Order { path: PathBuf, name: Vec<u8>, last: Vec<u8> },
    #[error("{:?} in {} is not a valid name", String::from_utf8_lossy(name), path.display())]
    Name { path: PathBuf, name: Vec<u8> },
    #[error("its name and its extended attributes have more than {NODE_BYTES_MAX} bytes")]
    Large,
    #[error("its name has {bytes} bytes: no Linux can restore names of more than {NAME_BYTES_MAX}")]
    LongName { bytes: usize },
    #[error("the target of the symbolic link has {bytes} bytes: Linux has links of up to {TARGET_BYTES_MAX}")]
    LongTarget { bytes: usize },
    #[error(
        "{count} of its extended attributes are left out: they have no valid name, or one that occurs twice"
    )]
    Xattrs { count: usize },
    #[error("{0}")]
    Path(#[from] PathTooLong),
    #[error("the description of the tree ends early, or goes on after its end")]
    Shape,
}

impl From<StepError> for ArchiveFolderError {
    fn from(error: StepError) -> Self {
        Self::Described { source: Box::new(error) }
    }
}

impl TreeTaker<'_> {
    fn take(mut self, tree: &mut (dyn DescribedTree + Send)) -> Result<ArchivedFolder, ArchiveFolderError> {
        let mut is_done = false;
        while let Some(step) =
            tree.next(&self.contents).map_err(|source| ArchiveFolderError::Described { source })?
        {
            if self.watch.progress.is_cancelled() {
                return Err(ArchiveFolderError::Cancelled);
            }
            if is_done {
                return Err(StepError::Shape.into());
            }
            is_done = self.step(step)?;
            self.advance(WAITING_COUNT_MAX)?;
        }
        if !is_done {
            return Err(StepError::Shape.into());
        }
        self.submit();
        self.advance(0)?;
        let (root, counts, _) = self.sequence.finish();
        let FolderCounts { unchanged_count, read_count, read_bytes, .. } = self.counts;
        let problem_count = counts.problem_count + self.lost_count;
        let counts = FolderCounts { unchanged_count, read_count, read_bytes, problem_count, ..counts };
        Ok(ArchivedFolder { root, counts, left_out: LeftOutOfFolder::default(), vac: None, only: None })
    }

    /// Takes one step. Returns true if it closed the root.
    fn step(&mut self, step: TreeStep) -> Result<bool, ArchiveFolderError> {
        if self.skipped_depth > 0 {
            match step {
                TreeStep::Open(_) => self.skipped_depth += 1,
                TreeStep::Close => self.skipped_depth -= 1,
                _ => {}
            }
            return Ok(false);
        }
        match step {
            TreeStep::Open(mut node) => {
                if !self.place(&node, NodeKind::Folder)? {
                    self.skipped_depth = 1;
                    return Ok(false);
                }
                let path = self.path_of(&node.name);
                if !self.tidy(&mut node) {
                    node.xattrs.clear();
                }
                self.open.push(OpenTreeFolder { path, last: Vec::new() });
                self.sequence.push(WalkEvent::Open(Node { content: None, size: 0, ..node }));
            }
            TreeStep::Close => {
                self.open.pop().ok_or(StepError::Shape)?;
                self.sequence.push(WalkEvent::Close);
                return Ok(self.open.is_empty());
            }
            TreeStep::Entry(mut node) => {
                if !self.place(&node, node.kind)? || !self.tidy(&mut node) {
                    return Ok(false);
                }
                if node.content.is_none() && node.problem.is_none() {
                    node.size = 0;
                }
                if let Err(error) = node.check() {
                    self.lose(&self.path_of(&node.name), error.into());
                    return Ok(false);
                }
                self.counts.unchanged_count += u64::from(node.content.is_some());
                self.watch.progress.add_files_done(1);
                self.watch.progress.add_bytes_done(node.size);
                self.sequence.push(WalkEvent::Unchanged(node));
            }
            TreeStep::Link(node) => {
                if self.place(&node, node.kind)? {
                    self.watch.progress.add_files_done(1);
                    self.sequence.push(WalkEvent::Link(node));
                }
            }
            TreeStep::File(mut node, content) => {
                if !self.place(&node, NodeKind::File)? || !self.tidy(&mut node) {
                    return Ok(false);
                }
                let path = self.path_of(&node.name);
                let number = self.sequence.push(WalkEvent::Awaited);
                self.job_bytes = self.job_bytes.saturating_add(node.size);
                self.job.push(AwaitedFile { number, path, node, content });
                if self.job.len() >= JOB_FILE_COUNT_MAX || self.job_bytes >= JOB_BYTES {
                    self.submit();
                }
            }
            TreeStep::Lost { name, error } => {
                let path = self.path_of(&name);
                self.lose(&path, error);
            }
            TreeStep::Harmed { name, error } => self.watch.report(&self.path_of(&name), error),
        }
        Ok(false)
    }

    /// The path of a name in the open folder.
    fn path_of(&self, name: &[u8]) -> PathBuf {
        let folder = self.open.last().map_or(Path::new(""), |folder| &folder.path);
        if name.is_empty() { folder.to_path_buf() } else { folder.join_name(name) }
    }

    fn lose(&mut self, path: &Path, error: DescriptionError) {
        self.watch.report(path, error);
        self.lost_count += 1;
    }

    /// Checks the name and the place of a node. Returns false if it was reported and is left out.
    fn place(&mut self, node: &Node, kind: NodeKind) -> Result<bool, ArchiveFolderError> {
        let Some(OpenTreeFolder { path, last }) = self.open.last_mut() else {
            let is_root = node.name.is_empty() && node.kind == NodeKind::Folder && kind == node.kind;
            return if is_root { Ok(true) } else { Err(StepError::Shape.into()) };
        };
        let name = &node.name;
        if !is_component(name) || node.kind != kind {
            return Err(StepError::Name { path: path.clone(), name: name.clone() }.into());
        }
        if name <= last {
            return Err(
                StepError::Order { path: path.clone(), name: name.clone(), last: last.clone() }.into()
            );
        }
        last.clone_from(name);
        let too_long = check_path_bytes(path, name, kind).err();
        if let Some(error) = too_long {
            self.lose(&self.path_of(name), StepError::from(error).into());
            return Ok(false);
        }
        if name.len() > NAME_BYTES_MAX {
            // Its content can be read from the archive.
            self.lose(&self.path_of(name), StepError::LongName { bytes: name.len() }.into());
        }
        Ok(true)
    }

    /// Brings the fields of a node that comes from outside into the form of a record, and reports
    /// what is lost. Returns false if the node is left out.
    fn tidy(&mut self, node: &mut Node) -> bool {
        node.mode &= MODE_MASK;
        let xattr_count = node.xattrs.len();
        node.xattrs.retain(|xattr| !xattr.name.is_empty() && !xattr.name.contains(&0));
        node.xattrs.sort_unstable();
        node.xattrs.dedup_by(|next, one| next.name == one.name);
        let count = xattr_count - node.xattrs.len();
        if count > 0 {
            self.lose(&self.path_of(&node.name), StepError::Xattrs { count }.into());
        }
        if node.kind != NodeKind::SymbolicLink {
            node.target.clear();
        }
        if node.kind != NodeKind::File {
            node.size = 0;
        }
        if node.target.len() > TARGET_BYTES_MAX {
            self.lose(&self.path_of(&node.name), StepError::LongTarget { bytes: node.target.len() }.into());
            return false;
        }
        let xattr_bytes = |xattr: &varve_image::Xattr| xattr.name.len().saturating_add(xattr.value.len());
        let bytes = node.xattrs.iter().map(xattr_bytes).fold(node.name.len(), usize::saturating_add);
        if bytes > NODE_BYTES_MAX {
            self.lose(&self.path_of(&node.name), StepError::Large.into());
            return false;
        }
        true
    }

    fn submit(&mut self) {
        self.job_bytes = 0;
        if !self.job.is_empty() {
            self.pipeline.submit(std::mem::take(&mut self.job));
        }
    }

    /// Writes complete events, and waits while more than `waiting_max` are incomplete.
    fn advance(&mut self, waiting_max: usize) -> Result<(), ArchiveFolderError> {
        loop {
            for read in self.pipeline.take_done() {
                let TakenFiles { nodes, bytes } = read?;
                self.counts.read_count += nodes.len() as u64;
                self.counts.read_bytes += bytes;
                nodes.into_iter().for_each(|(number, node)| self.sequence.settle(number, node));
            }
            self.sequence.advance()?;
            if self.sequence.len() <= waiting_max {
                return Ok(());
            }
            self.submit();
            if !self.pipeline.help_or_wait() && self.sequence.len() > 0 {
                // Every job is done, so their results are waiting.
                continue;
            }
        }
    }
}
