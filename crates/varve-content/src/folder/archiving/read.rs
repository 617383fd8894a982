//! Reads files of a source: the jobs that the walker submits.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::Advice;
use rustix::io::Errno;
use varve_block::{BlockKind, BlockStore, ExpectedReads, PutError, to_usize};
use varve_tree::{
    ContentWriter, Cutting, Entry, FixedBuilder, FixedWriter, Layout, ReplacedLeaves, Shape, VacShape,
    put_whole,
};
use varve_world::Workers;

use super::disk_files::is_disk_file;
use super::news::{EarlierEntry, NewsCounts, NoteNews};
use super::outcome::ArchiveFolderError;
use super::read_disk_file::DiskFileReader;
use super::read_segments::SegmentReader;
use super::source_file::{ReadError, next_data, read_full};
use super::source_parts::SEGMENTED_FILE_BYTES_MIN;
use crate::folder::source::flags;
use crate::folder::source::status::{NodeSettings, Status, open_file};
use crate::folder::source::xattrs::XattrPlace;
use crate::folder::watch::Watch;
use crate::records::node::{Node, NodeKind, NodeProblem};
use varve_image::DeviceNumber;

/// The largest file that is read together with others. Any file of this size is one leaf.
pub(super) const SMALL_FILE_BYTES_MAX: u64 = Cutting::FILE.min() as u64;
/// Files of a job that are open at a time. The system reads all of them ahead, so a disk has as
/// many requests to choose from.
const OPEN_FILE_COUNT: usize = 32;
/// Bytes of a large file that are read at a time.
const READ_BYTES: usize = 4 << 20;
/// Bytes that are read first of a file whose status reports size 0.
const UNSIZED_FIRST_BYTES: usize = 4 << 10;
/// Bytes that are then read at a time.
const UNSIZED_READ_BYTES: usize = 256 << 10;

/// An open folder of the source. It lives as long as the walker is in it, or a job needs it.
pub(crate) struct SourceFolder {
    pub(crate) descriptor: OwnedFd,
    /// The path from the root of the source.
    pub(crate) path: PathBuf,
    /// The device of its file system.
    pub(crate) device: DeviceNumber,
    /// The name of its file system, if that is a virtual one without data.
    pub(crate) virtual_name: Option<&'static str>,
    /// Shared by all open folders, so that they can be counted.
    pub(super) _token: Arc<()>,
}

/// A file to read.
pub(super) struct FileToRead {
    /// Its number in the sequence of events.
    pub(super) number: u64,
    pub(super) folder: Arc<SourceFolder>,
    /// The node as the walker saw it.
    pub(super) node: Node,
    pub(super) seen: Status,
    /// Its state in the previous snapshot.
    pub(super) earlier: EarlierEntry,
}

/// A file that is open and not read yet.
struct OpenedSource {
    descriptor: OwnedFd,
    /// Its status before the first byte is read.
    status: Status,
}

/// Files that are read together.
pub(super) type ReadJob = Vec<FileToRead>;

/// The result of a job.
#[derive(Default)]
pub(super) struct ReadFiles {
    pub(super) nodes: Vec<(u64, Node)>,
    pub(super) read_count: u64,
    pub(super) read_bytes: u64,
    pub(super) news: NewsCounts,
}

/// Reads files and puts their contents.
pub(super) struct FileReader<'a> {
    pub(super) blocks: &'a dyn BlockStore,
    pub(super) watch: Watch<'a>,
    pub(super) description: NodeSettings,
    pub(super) cutting: Cutting,
    /// Set if an archive for vac's tools is written too.
    pub(super) vac: Option<VacShape>,
    pub(super) note: NoteNews,
    /// The shape of disk files.
    pub(super) disk_shape: Shape,
    /// The way in which disk files will be read.
    pub(super) disk_reads: ExpectedReads,
    /// True if the store keeps what is different in disk files.
    pub(super) makes_deltas: bool,
    pub(super) workers: &'a dyn Workers,
    /// Held while a file is read in segments, which keeps all cores busy. A second one at the same
    /// time would only take memory.
    pub(super) segmented: Mutex<()>,
}

/// The tree of a file that is being read: cut by content, or in blocks as vac does.
enum FileTree<'a> {
    Cut(Box<ContentWriter<'a>>),
    Fixed(FixedWriter<'a>),
}

impl<'a> FileTree<'a> {
    fn new(blocks: &'a dyn BlockStore, vac: Option<VacShape>, cutting: Cutting) -> Self {
        match vac {
            None => Self::Cut(Box::new(ContentWriter::new(blocks, BlockKind::Data, cutting))),
            Some(shape) => Self::Fixed(FixedWriter::new(blocks, shape.data())),
        }
    }

    fn bytes_written(&self) -> u64 {
        match self {
            Self::Cut(tree) => tree.bytes_written(),
            Self::Fixed(tree) => tree.bytes_written(),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), PutError> {
        match self {
            Self::Cut(tree) => tree.write(bytes),
            Self::Fixed(tree) => tree.write(bytes),
        }
    }

    fn write_zeros(&mut self, count: u64) -> Result<(), PutError> {
        match self {
            Self::Cut(tree) => tree.write_zeros(count),
            Self::Fixed(tree) => tree.write_zeros(count),
        }
    }

    /// An empty file has no content.
    fn finish(self) -> Result<Option<Entry>, PutError> {
        if self.bytes_written() == 0 {
            return Ok(None);
        }
        match self {
            Self::Cut(tree) => tree.finish(),
            Self::Fixed(tree) => tree.finish(),
        }
        .map(Some)
    }
}

/// Small files that were read, but not put yet.
#[derive(Default)]
struct SmallFiles {
    bytes: Vec<u8>,
    /// For each file, the index of its node and the end of its bytes.
    ends: Vec<(usize, usize)>,
}

impl FileReader<'_> {
    /// Reads the files of one job.
    pub(crate) fn read(&self, job: ReadJob) -> Result<ReadFiles, ArchiveFolderError> {
        let mut read = ReadFiles::default();
        let mut small = SmallFiles::default();
        let mut before = Vec::with_capacity(job.len());
        let mut files = job.into_iter();
        let mut open = VecDeque::with_capacity(OPEN_FILE_COUNT);
        loop {
            while open.len() < OPEN_FILE_COUNT
                && let Some(file) = files.next()
            {
                let opened = self.open_ahead(&file);
                open.push_back((file, opened));
            }
            let Some((mut file, opened)) = open.pop_front() else { break };
            let place = read.nodes.len();
            let mut reported_bytes = 0;
            let read_file = opened
                .and_then(|opened| self.read_file(&mut file, opened, &mut small, place, &mut reported_bytes));
            let FileToRead { number, folder, mut node, earlier, .. } = file;
            match read_file {
                Ok(read_bytes) => {
                    read.read_count += 1;
                    read.read_bytes += read_bytes;
                    self.watch.progress.add_bytes_read(read_bytes);
                }
                Err(ReadError::Store(source)) => return Err(ArchiveFolderError::Store { source }),
                Err(ReadError::Cancelled) => return Err(ArchiveFolderError::Cancelled),
                Err(ReadError::File(error)) => {
                    small.forget(place);
                    node.problem = Some(match error.kind() {
                        io::ErrorKind::NotFound => NodeProblem::Vanished,
                        _ => NodeProblem::Unreadable,
                    });
                    self.watch.report(&folder.path.join_name(&node.name), error);
                }
            }
            self.watch.progress.add_files_done(1);
            self.watch.progress.add_bytes_done(node.size.saturating_sub(reported_bytes));
            read.nodes.push((number, node));
            before.push((folder, earlier));
        }
        for (place, entry) in small.put(self.blocks, self.vac)? {
            read.nodes[place].1.content = Some(entry);
        }
        for ((_, node), (folder, earlier)) in read.nodes.iter().zip(&before) {
            let note = |news| (self.note)(news, &folder.path.join_name(&node.name));
            read.news.add(node, earlier, note);
        }
        Ok(read)
    }

    /// Opens a file, and lets the system begin to read a small one.
    fn open_ahead(&self, file: &FileToRead) -> Result<OpenedSource, ReadError> {
        if self.watch.progress.is_cancelled() {
            return Err(ReadError::Cancelled);
        }
        let descriptor = open_file(&file.folder.descriptor, &file.node.name)?;
        let status = Status::of_open(&descriptor)?;
        if status.kind != Some(NodeKind::File) {
            return Err(ReadError::File(io::Error::other("it was replaced by something that is not a file")));
        }
        if status.size <= SMALL_FILE_BYTES_MAX
            && let Some(size) = NonZeroU64::new(status.size)
        {
            // Only the time of the read depends on this, so an error is no concern.
            let _ = rustix::fs::fadvise(&descriptor, 0, Some(size), Advice::WillNeed);
        }
        Ok(OpenedSource { descriptor, status })
    }

    /// Reads a file, and returns the number of bytes read. The content of a small file is added to
    /// `small`. `reported_bytes` counts the bytes of a large file that are already reported as
    /// done.
    fn read_file(
        &self,
        file: &mut FileToRead,
        open: OpenedSource,
        small: &mut SmallFiles,
        place: usize,
        reported_bytes: &mut u64,
    ) -> Result<u64, ReadError> {
        if self.watch.progress.is_cancelled() {
            return Err(ReadError::Cancelled);
        }
        let FileToRead { folder, node, seen, earlier, .. } = file;
        let OpenedSource { descriptor: file, status: opened } = open;
        if folder.virtual_name.is_none() {
            node.inode_flags = flags::read(&file);
        }
        opened.describe(node, self.description);
        if opened.id != seen.id {
            node.link_group = None;
        }
        match XattrPlace::open(&file).read() {
            Ok(xattrs) => node.xattrs = xattrs,
            Err(error) => {
                node.problem = Some(NodeProblem::Unreadable);
                self.watch.report(&folder.path.join_name(&node.name), error);
            }
        }
        let read_bytes = if opened.size == 0 {
            let (entry, read_bytes) = self.read_unsized(&file)?;
            node.content = entry;
            read_bytes
        } else if opened.size <= SMALL_FILE_BYTES_MAX {
            small.read(&file, opened.size, place)?
        } else {
            self.watch.progress.set_current(&folder.path.join_name(&node.name));
            let (entry, read_bytes) = self.read_large(&file, &opened, earlier, reported_bytes)?;
            node.content = entry;
            read_bytes
        };
        node.size = node.content.map_or(read_bytes, |content| content.size());
        // In a virtual file system, reading a file may change its times.
        let may_be_compared = folder.virtual_name.is_none();
        if may_be_compared && !Status::of_open(&file)?.is_still(&opened) {
            node.problem = Some(NodeProblem::Changed);
            self.watch.report(&folder.path.join_name(&node.name), FileChanged);
        }
        Ok(read_bytes)
    }

    /// Reads a file whose status reports size 0, once and to its end. Files of procfs and of some
    /// cloud mounts report 0 although they have content.
    fn read_unsized(&self, file: &OwnedFd) -> Result<(Option<Entry>, u64), ReadError> {
        let mut first = [0; UNSIZED_FIRST_BYTES];
        let filled = read_next(file, &mut first)?;
        if filled == 0 {
            return Ok((None, 0));
        }
        let mut content = FileTree::new(self.blocks, self.vac, self.cutting);
        content.write(&first[..filled])?;
        let mut buffer = vec![0; UNSIZED_READ_BYTES];
        loop {
            if self.watch.progress.is_cancelled() {
                return Err(ReadError::Cancelled);
            }
            match read_next(file, &mut buffer)? {
                0 => break,
                filled => content.write(&buffer[..filled])?,
            }
        }
        let read_bytes = content.bytes_written();
        Ok((content.finish()?, read_bytes))
    }

    /// Returns whether a file is archived in blocks of one size, as an image is. A file keeps the
    /// layout that it had in the previous snapshot: with another one, all of it would be stored
    /// again.
    fn is_archived_as_image(&self, file: &OwnedFd, opened: &Status, earlier: &EarlierEntry) -> bool {
        if !FixedBuilder::can_hold(self.blocks, &self.disk_shape, opened.size) {
            return false;
        }
        match earlier.known().and_then(|node| node.content) {
            Some(content) if content.size() >= SEGMENTED_FILE_BYTES_MIN => self.has_disk_shape(&content),
            _ => is_disk_file(file, opened.size),
        }
    }

    fn has_disk_shape(&self, content: &Entry) -> bool {
        let Shape { leaf_kind, leaf_bytes, pointer_bytes } = self.disk_shape;
        (content.layout(), content.leaf_kind(), content.leaf_bytes(), content.pointer_bytes())
            == (Layout::Fixed, leaf_kind, leaf_bytes, pointer_bytes)
    }

    /// Reads a file in pieces, skipping its holes, up to the size that it had when it was opened.
    fn read_large(
        &self,
        file: &OwnedFd,
        opened: &Status,
        earlier: &EarlierEntry,
        reported_bytes: &mut u64,
    ) -> Result<(Option<Entry>, u64), ReadError> {
        if self.vac.is_none() && opened.size >= SEGMENTED_FILE_BYTES_MIN {
            let Self { blocks, workers, cutting, disk_shape: shape, disk_reads: reads, .. } = *self;
            let progress = self.watch.progress;
            let is_image = self.is_archived_as_image(file, opened, earlier);
            let _alone = self.segmented.lock();
            return if is_image {
                let content = earlier.known().and_then(|node| node.content).filter(|_| self.makes_deltas);
                let replaced = content.and_then(|entry| ReplacedLeaves::of(blocks, &entry, &shape));
                let reader = DiskFileReader { blocks, workers, shape, reads, replaced, progress };
                reader.read(file, opened, reported_bytes)
            } else {
                SegmentReader { blocks, workers, cutting, progress }.read(file, opened, reported_bytes)
            };
        }
        let mut content = FileTree::new(self.blocks, self.vac, self.cutting);
        let mut buffer = vec![0; READ_BYTES.min(to_usize(opened.size))];
        let may_have_holes = opened.allocated_bytes < opened.size;
        let mut read_bytes = 0;
        while content.bytes_written() < opened.size {
            let position = content.bytes_written();
            let data =
                if may_have_holes { next_data(file, position, opened.size)? } else { position..opened.size };
            content.write_zeros(data.start - position)?;
            let mut rest = data.end - data.start;
            while rest > 0 {
                if self.watch.progress.is_cancelled() {
                    return Err(ReadError::Cancelled);
                }
                let wanted = buffer.len().min(to_usize(rest));
                let filled = read_full(file, &mut buffer[..wanted], content.bytes_written())?;
                content.write(&buffer[..filled])?;
                let done = content.bytes_written();
                self.watch.progress.add_bytes_done(done - *reported_bytes);
                *reported_bytes = done;
                read_bytes += filled as u64;
                rest -= filled as u64;
                if filled < wanted {
                    // The file has become shorter. The comparison at the end reports that it
                    // changed.
                    return Ok((content.finish()?, read_bytes));
                }
            }
        }
        Ok((content.finish()?, read_bytes))
    }
}

impl SmallFiles {
    fn read(&mut self, file: &OwnedFd, size: u64, place: usize) -> Result<u64, ReadError> {
        let start = self.bytes.len();
        self.bytes.resize(start + to_usize(size), 0);
        let filled = if size == 0 { 0 } else { read_full(file, &mut self.bytes[start..], 0)? };
        self.bytes.truncate(start + filled);
        if filled > 0 {
            self.ends.push((place, start + filled));
        }
        Ok(filled as u64)
    }

    /// Drops the last file, if it is this one.
    fn forget(&mut self, place: usize) {
        if self.ends.last().is_some_and(|(last, _)| *last == place) {
            self.ends.pop();
        }
        self.bytes.truncate(self.ends.last().map_or(0, |(_, end)| *end));
    }

    fn put(self, blocks: &dyn BlockStore, vac: Option<VacShape>) -> Result<Vec<(usize, Entry)>, PutError> {
        let mut start = 0;
        let files: Vec<&[u8]> =
            self.ends.iter().map(|(_, end)| &self.bytes[std::mem::replace(&mut start, *end)..*end]).collect();
        let entries = match vac {
            None => put_whole(blocks, BlockKind::Data, Cutting::FILE, &files)?,
            Some(shape) => {
                let put = |file: &&[u8]| {
                    let mut tree = FixedWriter::new(blocks, shape.data());
                    tree.write(file)?;
                    tree.finish()
                };
                files.iter().map(put).collect::<Result<_, _>>()?
            }
        };
        Ok(self.ends.iter().map(|(place, _)| *place).zip(entries).collect())
    }
}

/// The report of a file that changed while it was read.
#[derive(Debug, thiserror::Error)]
#[error("it changed while it was read")]
struct FileChanged;

/// Reads from where the last read ended. Only sequential reads give consistent parts of a generated
/// file.
fn read_next(file: &OwnedFd, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::read(file, &mut *into) {
            Err(Errno::INTR) => {}
            read => return Ok(read?),
        }
    }
}

/// Appends a name that is bytes.
pub(crate) trait JoinName {
    /// This path with one more component.
    fn join_name(&self, name: &[u8]) -> PathBuf;
}

impl JoinName for Path {
    fn join_name(&self, name: &[u8]) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        self.join(std::ffi::OsStr::from_bytes(name))
    }
}
