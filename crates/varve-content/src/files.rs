//! The interface to the files of a snapshot. It hides whether the snapshot is an archived folder,
//! or a disk image with file systems.
//!
//! ```text
//! list, lookup, compare, restore ──▶ Files ─┬─ StoredFiles: an archived folder
//!                                           └─ ImageFiles: the volumes of an archived disk
//! ```

pub mod allocated_bytes;
pub mod inside_image;
pub mod stored;

use std::error::Error;
use std::io::Write;
use std::ops::Range;

use bytes::Bytes;
use varve_block::BlockStore;
use varve_image::FileTime;
use varve_tree::Entry;
use varve_world::Workers;

use crate::image::{ImagePart, RestoreImageError};
use crate::progress::Progress;
use crate::reading_content::{OnLoss, ReadContentError, TakeBytes};
use crate::records::node::Node;
use crate::records::node_list::ReadFolderError;

/// The nodes of a folder in strictly ascending order of the bytes of their names. Errors come after
/// all readable nodes.
pub type Nodes<'a> = Box<dyn Iterator<Item = Result<Node, ReadFolderError>> + 'a>;

/// The files of one snapshot. A node is valid only for the `Files` that returned it.
pub trait Files: Send + Sync {
    /// The store that holds the snapshot.
    fn blocks(&self) -> &dyn BlockStore;

    /// The nodes of a folder; none if `folder` is not a folder.
    fn nodes(&self, folder: &Node) -> Nodes<'_>;

    /// Finds the node with a name in a folder.
    ///
    /// # Errors
    /// [`ReadFolderError`]: the folder is not readable up to the position of the name.
    fn find(&self, folder: &Node, name: &[u8]) -> Result<Option<Node>, ReadFolderError>;

    /// The problem of a node, if it has one.
    fn problem(&self, node: &Node) -> Option<ReadProblem>;

    /// Reads the contents of files that are small enough to be read whole and at once. The result
    /// has one element for each file, in order. It is `None` for larger files and for files without
    /// content. A content that is shorter than its file ends in zeros.
    fn small_contents(&self, files: &[&Node]) -> Vec<Option<Result<Bytes, ReadContentError>>> {
        files.iter().map(|_| None).collect()
    }

    /// Passes the data of a file in `range` to `take`, in order, each piece with its offset in the
    /// file. Gaps between pieces are zeros. Each unreadable range is passed to `lost`, which
    /// decides whether to go on; data of that range that `take` received before is void.
    ///
    /// # Errors
    /// [`ReadContentError::Take`], or the error that `lost` returns.
    fn read_with(
        &self,
        file: &Node,
        range: Range<u64>,
        take: &mut TakeBytes<'_>,
        lost: &mut OnLoss<'_>,
    ) -> Result<(), ReadContentError>;

    /// Reads like [`read_with`](Self::read_with), and ends at the first damage.
    ///
    /// # Errors
    /// [`ReadContentError`].
    fn read(&self, file: &Node, range: Range<u64>, take: &mut TakeBytes<'_>) -> Result<(), ReadContentError> {
        self.read_with(file, range, take, &mut |_, damage| Err(damage))
    }

    /// Writes the content of a file to a stream.
    ///
    /// # Errors
    /// [`RestoreImageError`]; `into` has then received all bytes before the first unreadable one.
    fn write_to(
        &self,
        workers: &dyn Workers,
        file: &Node,
        into: &mut (dyn Write + Send),
        progress: &Progress,
    ) -> Result<(), RestoreImageError>;

    /// A key that shows, without reading the files, whether two files have the same content.
    fn content_key(&self, file: &Node) -> ContentKey;
}

/// A node of a snapshot, and all nodes below it.
#[derive(Clone, Copy)]
pub struct Tree<'a> {
    pub files: &'a dyn Files,
    pub root: &'a Node,
}

impl<'a> Tree<'a> {
    /// The tree below another node of the same files.
    pub(crate) fn at(self, root: &'a Node) -> Self {
        Self { root, ..self }
    }
}

/// A problem of a node.
#[derive(Debug)]
pub struct ReadProblem {
    pub error: Box<dyn Error + Send + Sync>,
    /// True if nothing is known of the node except that it exists.
    pub lacks_all: bool,
    /// True for damage that was found now. False for a problem that the snapshot records, which was
    /// reported when it was taken.
    pub is_damage: bool,
}

/// A key for the content of a file. Equal keys mean equal contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentKey {
    /// A tree that this program cut. Different trees have different bytes.
    Stored(Option<Entry>),
    /// Trees that another program made. Equal trees have equal bytes; different trees may have
    /// equal bytes too.
    Foreign {
        /// The bytes of a file, or the entries of a folder.
        content: Option<Entry>,
        /// The names of the files in a folder.
        meta: Option<Entry>,
    },
    /// A part of an image.
    Image(ImagePart),
    /// A file whose bytes are in ranges of a volume, neither compressed nor encrypted. It has the
    /// same bytes if its ranges are the same, and the volume is unchanged there.
    Placed {
        volume: ImagePart,
        /// The ranges of the volume that hold the file, in file order, without holes.
        places: Vec<Range<u64>>,
        /// Set if the file has holes: the time of its last change. Only this time shows that the
        /// holes did not move.
        changed: Option<FileTime>,
    },
    /// The file is unreadable.
    Lost,
    /// Only the bytes themselves can be compared.
    Unknown,
}
