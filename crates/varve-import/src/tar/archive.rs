//! A tar file as a foreign archive with one snapshot.

use std::io::{BufReader, Read};
use std::path::Path;

use parking_lot::Mutex;
use varve_content::folder::{DescriptionError, StoredContent};
use varve_content::{Node, NodeKind, NodeProblem};
use varve_image::FileTime;
use varve_world::Timestamp;

use super::entries::{TarEntries, TarEntry, TarError, TarKind, TarPiece};
use crate::dated_file::{DatedFile, OpenDatedFileError};
use crate::foreign::{ForeignArchive, ForeignContents, ForeignSnapshot, ForeignStep, ForeignTree};
use crate::lost_entries::LostEntries;
use crate::sorted_tree::{SortedTree, TreePathError, TreeSteps};

const READ_BYTES: usize = 1 << 20;

/// The bytes of an archive.
struct TarStream {
    stream: Box<dyn Read + Send>,
    /// The length, if it is that of a file.
    length: Option<u64>,
}

type StreamEntries = TarEntries<BufReader<Box<dyn Read + Send>>>;

/// A tar file, or a stream.
pub struct TarArchive {
    snapshots: [ForeignSnapshot; 1],
    /// Taken by the one walk over it.
    stream: Mutex<Option<TarStream>>,
}

impl TarArchive {
    /// Opens a tar file. Its time is `time`, or a date in its name, or its modification time if
    /// `by_mtime` is set.
    ///
    /// # Errors
    /// [`OpenDatedFileError`].
    pub fn open(
        path: &Path,
        time: Option<Timestamp>,
        by_mtime: bool,
        host: &str,
    ) -> Result<Self, OpenDatedFileError> {
        let DatedFile { file, snapshot } = DatedFile::open(path, time, by_mtime, host)?;
        let length = file.metadata().ok().map(|status| status.len()).filter(|length| *length > 0);
        Ok(Self::new(snapshot, TarStream { stream: Box::new(file), length }))
    }

    /// A tar file that comes as a stream.
    #[must_use]
    pub fn of_stream(stream: Box<dyn Read + Send>, name: &str, time: Timestamp, host: &str) -> Self {
        let snapshot = ForeignSnapshot {
            id: format!("{name}-{}", time.0),
            time,
            host: host.to_owned(),
            source: name.as_bytes().to_vec(),
            earlier_ids: Vec::new(),
            tags: Vec::new(),
        };
        Self::new(snapshot, TarStream { stream, length: None })
    }

    fn new(snapshot: ForeignSnapshot, stream: TarStream) -> Self {
        Self { snapshots: [snapshot], stream: Mutex::new(Some(stream)) }
    }
}

impl ForeignArchive for TarArchive {
    fn kind(&self) -> &'static str {
        "tar"
    }

    fn snapshots(&self) -> &[ForeignSnapshot] {
        &self.snapshots
    }

    fn trees_are_cheap(&self) -> bool {
        false
    }

    fn tree(&self, _: usize) -> Result<Box<dyn ForeignTree + '_>, DescriptionError> {
        let TarStream { stream, length } = self.stream.lock().take().ok_or("the archive was read already")?;
        let [snapshot] = &self.snapshots;
        let mut entries = TarEntries::new(BufReader::with_capacity(READ_BYTES, stream));
        if let Some(length) = length {
            entries = entries.of_length(length);
        }
        let first = match entries.next_entry() {
            // Nothing is there to be imported.
            Err(error @ (TarError::NoEnd { .. } | TarError::Truncated { .. })) => return Err(error.into()),
            first => first,
        };
        let lost = LostEntries::default();
        Ok(Box::new(TarTree { unread: Some((entries, first)), time: snapshot.time, lost, steps: None }))
    }
}

/// The tree of an archive: first all of it is read, and then its steps are passed on.
struct TarTree {
    /// The entries, and the first of them.
    unread: Option<(StreamEntries, Result<Option<TarEntry>, TarError>)>,
    time: Timestamp,
    /// Reports about entries, and those that have no place in the tree.
    lost: LostEntries,
    steps: Option<TreeSteps>,
}

impl ForeignTree for TarTree {
    fn next(
        &mut self,
        contents: Option<&ForeignContents<'_>>,
    ) -> Result<Option<ForeignStep>, DescriptionError> {
        let Some(contents) = contents else { return Ok(None) };
        if let Some((entries, first)) = self.unread.take() {
            let tree = self.read(entries, first, contents)?;
            let mut missing = Node::new(Vec::new(), NodeKind::Folder);
            missing.mode = 0o755;
            missing.mtime = FileTime::from_nanoseconds(self.time.0);
            let mut steps = tree.into_steps(&missing);
            let root = steps.next();
            self.steps = Some(steps);
            return Ok(root.map(ForeignStep::Tree));
        }
        if let Some(step) = self.lost.next() {
            return Ok(Some(ForeignStep::Tree(step)));
        }
        Ok(self.steps.as_mut().and_then(Iterator::next).map(ForeignStep::Tree))
    }
}

impl TarTree {
    fn read(
        &mut self,
        mut entries: StreamEntries,
        mut next: Result<Option<TarEntry>, TarError>,
        contents: &ForeignContents<'_>,
    ) -> Result<SortedTree, DescriptionError> {
        let mut tree = SortedTree::default();
        let mut entry_count = 0_u64;
        loop {
            let entry = match next {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                // The entries before are as good as they were.
                Err(error) if entry_count > 0 => {
                    self.lost.lose(b"the rest of the archive".to_vec(), error);
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            entry_count += 1;
            let path = entry.path.clone();
            match self.add(&mut entries, entry, entry_count, &mut tree, contents) {
                Ok(()) => {}
                Err(AddError::Entry(error)) => self.lost.lose(path, error),
                Err(AddError::All(error)) => return Err(error),
            }
            next = entries.next_entry();
        }
        Ok(tree)
    }

    fn add(
        &mut self,
        entries: &mut StreamEntries,
        entry: TarEntry,
        number: u64,
        tree: &mut SortedTree,
        contents: &ForeignContents<'_>,
    ) -> Result<(), AddError> {
        let TarEntry { path, kind, mode, uid, gid, mtime, xattrs, has_text_acl, problems, lost, .. } = entry;
        let mut node = Node::new(Vec::new(), NodeKind::File);
        (node.mode, node.uid, node.gid, node.mtime, node.xattrs) = (mode, uid, gid, mtime, xattrs);
        if has_text_acl {
            let text = "its access list is text, which is left out: archive with tar --xattrs";
            self.lost.lose(path.clone(), text);
        }
        for problem in problems {
            self.lost.lose(path.clone(), problem);
        }
        if let Some(error) = lost {
            let is_named = matches!((&error, &kind), (TarError::Sparse { .. }, TarKind::File));
            if !is_named {
                return Err(AddError::Entry(error.into()));
            }
            node.problem = Some(NodeProblem::Unreadable);
            self.lost.harm(path.clone(), error);
            return set(tree, &path, node);
        }
        match kind {
            TarKind::Folder => node.kind = NodeKind::Folder,
            TarKind::Fifo => node.kind = NodeKind::Fifo,
            TarKind::CharacterDevice(device) => {
                (node.kind, node.device) = (NodeKind::CharacterDevice, Some(device));
            }
            TarKind::BlockDevice(device) => (node.kind, node.device) = (NodeKind::BlockDevice, Some(device)),
            TarKind::SymbolicLink { target } => (node.kind, node.target) = (NodeKind::SymbolicLink, target),
            TarKind::HardLink { target } => {
                let first = tree.get_mut(&target).filter(|first| first.kind != NodeKind::Folder);
                let first =
                    first.ok_or("it is a hard link to a file that is not before it in the archive")?;
                first.link_group.get_or_insert(number);
                node = first.clone();
            }
            TarKind::File => {
                let stored = contents.put(None, &mut |sink| {
                    while let Some(piece) = entries.next_piece()? {
                        match piece {
                            TarPiece::Bytes(bytes) => sink.write(bytes)?,
                            TarPiece::Hole(bytes) => sink.write_zeros(bytes)?,
                        }
                    }
                    Ok(())
                });
                match stored {
                    Ok(StoredContent { entry, .. }) => {
                        node.content = entry;
                        node.size = entry.map_or(0, |entry| entry.size());
                    }
                    Err(varve_content::folder::ArchiveFolderError::Described { source }) => {
                        node.problem = Some(NodeProblem::Unreadable);
                        self.lost.harm(path.clone(), source);
                    }
                    Err(error) => return Err(AddError::All(error.into())),
                }
            }
        }
        set(tree, &path, node)
    }
}

fn set(tree: &mut SortedTree, path: &[u8], node: Node) -> Result<(), AddError> {
    match tree.set(path, node) {
        Ok(()) => Ok(()),
        Err(error @ TreePathError::TooMany) => Err(AddError::All(error.into())),
        Err(error) => Err(AddError::Entry(error.into())),
    }
}

/// Why an entry is not in the tree.
enum AddError {
    /// Only this entry is lost.
    Entry(DescriptionError),
    /// There will be no snapshot.
    All(DescriptionError),
}

impl From<&str> for AddError {
    fn from(text: &str) -> Self {
        Self::Entry(text.into())
    }
}
