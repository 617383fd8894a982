//! Files as all that looks at them sees them, whatever keeps them: an archived folder, or a disk image with file systems in it.
//!
//! ```text
//! list, lookup, compare, restore ──▶ Files ─┬─ StoredFiles: an archived folder
//!                                           └─ ImageFiles: the volumes of an archived disk
//! ```

use std::error::Error;
use std::io::{self, Write};
use std::ops::Range;

use bytes::Bytes;
use varve_block::{BlockStore, GetError};
use varve_image::{FileSystemError, FileTime};
use varve_tree::{Entry, ReadTreeError};
use varve_world::Workers;

use crate::image::{ImagePart, RestoreImageError};
use crate::progress::Progress;
use crate::records::node::Node;
use crate::records::node_list::ReadFolderError;

/// The nodes of a folder in strictly ascending order of their names' bytes. What cannot be read of the folder comes as an error
/// after all that can.
pub type Nodes<'a> = Box<dyn Iterator<Item = Result<Node, ReadFolderError>> + 'a>;

/// Files of one snapshot. Nodes are understood by those files alone that gave them.
pub trait Files: Send + Sync {
    /// The store in which it all lies.
    fn blocks(&self) -> &dyn BlockStore;

    /// What a folder holds; nothing, if it is not a folder.
    fn nodes(&self, folder: &Node) -> Nodes<'_>;

    /// What a folder holds under a name.
    ///
    /// # Errors
    /// [`ReadFolderError`]: the folder cannot be read as far as the name would be.
    fn find(&self, folder: &Node, name: &[u8]) -> Result<Option<Node>, ReadFolderError>;

    /// What is wrong with a node, if anything is.
    fn trouble(&self, node: &Node) -> Option<Trouble>;

    /// The contents of files that are small enough to be read whole and in one go; `None` for others, and for those that have none.
    /// The answers come in the files' order, one each. What an answer lacks of its file's size is zeros.
    fn small_contents(&self, files: &[&Node]) -> Vec<Option<Result<Bytes, ReadContentError>>> {
        files.iter().map(|_| None).collect()
    }

    /// Hands over what a file has in `range`, in order, each piece with its place in the file. What is left out is zeros.
    ///
    /// # Errors
    /// [`ReadContentError`] at the first damage, or when `take` fails.
    fn read(
        &self,
        file: &Node,
        range: Range<u64>,
        take: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> Result<(), ReadContentError>;

    /// The same, around what is damaged: each range that cannot be had goes to `lost`, and what was handed over of it does not
    /// count.
    ///
    /// # Errors
    /// [`ReadContentError::Take`].
    fn read_around(
        &self,
        file: &Node,
        range: Range<u64>,
        take: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
        lost: &mut dyn FnMut(Range<u64>, ReadContentError),
    ) -> Result<(), ReadContentError> {
        match self.read(file, range.clone(), take) {
            Ok(()) => Ok(()),
            Err(error @ ReadContentError::Take(_)) => Err(error),
            Err(damage) => {
                lost(range, damage);
                Ok(())
            }
        }
    }

    /// Writes a file's content to a stream.
    ///
    /// # Errors
    /// [`RestoreImageError`]; `into` has then got all bytes before the one that could not be had.
    fn write_to(
        &self,
        workers: &dyn Workers,
        file: &Node,
        into: &mut (dyn Write + Send),
        progress: &Progress,
    ) -> Result<(), RestoreImageError>;

    /// What tells whether the contents of two files are the same without reading them.
    fn content_key(&self, file: &Node) -> ContentKey;
}

/// Some of the files of a snapshot: a node, and all below it.
#[derive(Clone, Copy)]
pub struct Tree<'a> {
    /// The files that it is of.
    pub files: &'a dyn Files,
    /// The node.
    pub root: &'a Node,
}

impl<'a> Tree<'a> {
    /// Another node of the same files.
    pub(crate) fn at(self, root: &'a Node) -> Self {
        Self { root, ..self }
    }
}

/// What is wrong with a node.
#[derive(Debug)]
pub struct Trouble {
    /// What happened to it.
    pub error: Box<dyn Error + Send + Sync>,
    /// Whether no more is known of it than that it is there.
    pub lacks_all: bool,
    /// Whether it was met now. If not, the snapshot itself tells of it, and whoever took it was told.
    pub is_damage: bool,
}

/// What two files have in common if their contents are the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentKey {
    /// A stored tree, cut as all of its kind are: other trees have other bytes.
    Stored(Option<Entry>),
    /// Trees that another program made: the same ones have the same bytes, and others may have.
    Foreign {
        /// The bytes of a file, or what a folder leads to.
        content: Option<Entry>,
        /// What names the files of a folder.
        meta: Option<Entry>,
    },
    /// A part of an image.
    Image(ImagePart),
    /// A file that lies in a volume as it is: of the same bytes, if it lies in the same places and nothing has changed there.
    Placed {
        /// The volume.
        volume: ImagePart,
        /// Where the file lies in it, in its own order, but for its holes.
        places: Vec<Range<u64>>,
        /// Set where the file has holes: when it last changed. Nothing else tells that they are where they were.
        changed: Option<FileTime>,
    },
    /// The file cannot be read.
    Lost,
    /// Nothing but the bytes tells.
    Unknown,
}

/// Why a file's content could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadContentError {
    /// Its tree cannot be read.
    #[error(transparent)]
    Tree(#[from] ReadTreeError),
    /// Its only block cannot be read.
    #[error(transparent)]
    Get(#[from] GetError),
    /// The file system in which it lies does not give it.
    #[error(transparent)]
    FileSystem(#[from] FileSystemError),
    /// Who takes the bytes failed.
    #[error("what was read could not be written")]
    Take(#[source] io::Error),
}
