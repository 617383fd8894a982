//! The seam between a reader of another program's files and the importer.

use parking_lot::Mutex;
use varve_archive::TakeError;
use varve_content::Node;
use varve_content::folder::{
    ArchiveFolderError, ContentSink, DescriptionError, FileContent, FileContents, StoredContent, TreeStep,
};
use varve_tree::Entry;
use varve_world::Timestamp;

use crate::seen_contents::{ContentId, SeenContents};

/// A snapshot of another program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignSnapshot {
    /// Identifies it among all snapshots of this kind, also in a later run.
    pub id: String,
    /// Ids that the same snapshot had before, such as before its tags were changed.
    pub earlier_ids: Vec<String>,
    pub time: Timestamp,
    /// The machine that it was taken of; may be empty.
    pub host: String,
    /// The path that was archived.
    pub source: Vec<u8>,
    /// `KEY=VALUE`.
    pub tags: Vec<String>,
}

/// A step through a foreign tree.
pub enum ForeignStep {
    Tree(TreeStep),
    /// A file whose content may have been seen before.
    File {
        node: Node,
        id: ContentId,
        content: Box<dyn FileContent>,
    },
}

/// The store, for a tree that reads contents in the order of a stream, before their places are
/// known.
#[derive(Clone, Copy)]
pub struct ForeignContents<'a> {
    contents: FileContents<'a>,
    seen: &'a Mutex<SeenContents>,
}

impl<'a> ForeignContents<'a> {
    pub(crate) fn new(contents: FileContents<'a>, seen: &'a Mutex<SeenContents>) -> Self {
        Self { contents, seen }
    }

    /// The content with this id, if an earlier file has it.
    pub(crate) fn find(&self, id: &ContentId) -> Option<Option<Entry>> {
        self.seen.lock().find(id)
    }

    /// Puts the content of a file. It is known from then on, if it has an id and is whole.
    pub(crate) fn put(
        &self,
        id: Option<ContentId>,
        write: &mut dyn FnMut(&mut ContentSink<'_>) -> Result<(), DescriptionError>,
    ) -> Result<StoredContent, ArchiveFolderError> {
        let stored = self.contents.put(write)?;
        if let Some(id) = id.filter(|_| stored.lost.is_none()) {
            self.seen.lock().add(id, stored.entry);
        }
        Ok(stored)
    }
}

/// A tree of files of another program, described step by step: depth first, names in ascending
/// order of their bytes.
pub trait ForeignTree: Send {
    /// The next step; `None` after the root is closed. Without `contents`, no content is read.
    ///
    /// # Errors
    /// The rest of the tree is unknown.
    fn next(
        &mut self,
        contents: Option<&ForeignContents<'_>>,
    ) -> Result<Option<ForeignStep>, DescriptionError>;
}

/// Snapshots of another program.
pub trait ForeignArchive {
    /// The word before the id in the tag of an imported snapshot, such as `restic`.
    fn kind(&self) -> &'static str;

    /// All readable snapshots, the oldest first.
    fn snapshots(&self) -> &[ForeignSnapshot];

    /// True if a tree can be described without reading the contents of its files. Only then
    /// contents of an earlier run are known again.
    fn trees_are_cheap(&self) -> bool {
        true
    }

    /// The files of the snapshot at this place of [`snapshots`](Self::snapshots).
    ///
    /// # Errors
    /// Not even the root of its tree can be read.
    fn tree(&self, place: usize) -> Result<Box<dyn ForeignTree + '_>, DescriptionError>;
}

/// Why a snapshot was not imported. Earlier ones are complete.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The tree of the foreign snapshot is unreadable.
    #[error("the snapshot {id} cannot be read")]
    Tree { id: String, source: DescriptionError },
    #[error("{0}")]
    Take(#[from] TakeError),
    /// The name belongs to another source.
    #[error("{0}")]
    Name(#[from] varve_archive::NameTaken),
}
