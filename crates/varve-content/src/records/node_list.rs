//! Reads the nodes of a folder one at a time, whatever their number.

use std::cmp::Ordering;

use varve_block::{BlockKind, BlockStore};
use varve_image::FileSystemError;
use varve_tree::{Entry, ReadVentiFolderError};

use crate::records::node::{DecodeNodeError, Node, NodeKind};
use crate::records::record_list::{ReadRecordsError, Records};

/// Why the nodes of a folder were not all readable.
#[derive(Debug, thiserror::Error)]
pub enum ReadFolderError {
    #[error("{0}")]
    Records(#[from] ReadRecordsError),
    /// The list holds a record that is not a node.
    #[error("a folder has a malformed node")]
    Node { source: DecodeNodeError },
    /// The file system of the folder reported an error.
    #[error("{0}")]
    FileSystem(#[from] FileSystemError),
    /// A name is not one path component.
    #[error("{:?} is not a valid name; its file is left out", String::from_utf8_lossy(name))]
    Name { name: Vec<u8> },
    /// A folder appears inside another folder as well: the tree may have a cycle.
    #[error("the folder {:?} is also in another folder, and is left out here", String::from_utf8_lossy(name))]
    Elsewhere {
        /// Its name here.
        name: Vec<u8>,
    },
    /// The file number is greater than any file system uses.
    #[error("{:?} has the impossible number {number}, and is left out", String::from_utf8_lossy(name))]
    Number { name: Vec<u8>, number: u64 },
    /// More nodes than can be sorted.
    #[error("the folder holds more than {count} names; the others are left out")]
    TooMany {
        /// The number of nodes that were read.
        count: usize,
    },
    /// A block or record of a folder that vac archived.
    #[error("{0}")]
    Venti(#[source] Box<ReadVentiFolderError>),
    /// The entry of a file that vac archived is unreadable.
    #[error("the entry of {:?} cannot be read; the file is left out", String::from_utf8_lossy(name))]
    Entry { name: Vec<u8>, source: Box<ReadVentiFolderError> },
    /// A file that vac archived, with nothing left but its name.
    #[error("{:?} was removed, or never written, and is left out", String::from_utf8_lossy(name))]
    Broken { name: Vec<u8> },
    /// Two files have the same name.
    #[error("{:?} occurs twice; the second one is left out", String::from_utf8_lossy(name))]
    Twice { name: Vec<u8> },
    /// The names are not in ascending order: two nodes may have one name.
    #[error(
        "{:?} does not come after {:?}",
        String::from_utf8_lossy(name),
        String::from_utf8_lossy(previous)
    )]
    Order {
        name: Vec<u8>,
        /// The name of the node before it.
        previous: Vec<u8>,
    },
}

/// A position between two nodes in the list of a folder.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListPlace {
    /// In bytes.
    pub(crate) offset: u64,
    /// The name of the node before it.
    pub(crate) previous: Vec<u8>,
}

/// The nodes of a folder in strictly ascending order of the bytes of their names. Ends after the
/// first error.
pub struct NodeList<'a> {
    records: Option<Records<'a>>,
    score_bytes: usize,
    previous: Vec<u8>,
}

impl<'a> NodeList<'a> {
    /// Lists the nodes of `folder`; none if it is not a folder. Reads nothing yet.
    #[must_use]
    pub fn new(store: &'a dyn BlockStore, folder: &Node) -> Self {
        let is_folder = folder.kind == NodeKind::Folder;
        let content = folder.content.filter(|_| is_folder);
        Self::of_content(store, content.as_ref(), &ListPlace::default())
    }

    /// Lists the nodes of the folder with this content, from `place` on. Reads nothing yet.
    pub(crate) fn of_content(store: &'a dyn BlockStore, content: Option<&Entry>, place: &ListPlace) -> Self {
        let content = content.filter(|entry| entry.leaf_kind() == BlockKind::Directory);
        let records = content.map(|entry| Records::starting_at(store, entry, place.offset));
        Self { records, score_bytes: store.score_bytes(), previous: place.previous.clone() }
    }

    /// Drops the part of the list that was read ahead.
    pub(crate) fn drop_buffer(&mut self) {
        if let Some(records) = &mut self.records {
            records.drop_buffer();
        }
    }

    /// The position of the next node.
    pub(crate) fn place(&self) -> ListPlace {
        ListPlace {
            offset: self.records.as_ref().map_or(0, Records::offset),
            previous: self.previous.clone(),
        }
    }

    /// Finds the node with this name. Reads and skips the nodes before it.
    ///
    /// # Errors
    /// [`ReadFolderError`]: the list is not readable up to the position of the name.
    pub fn find(&mut self, name: &[u8]) -> Result<Option<Node>, ReadFolderError> {
        for node in self {
            let node = node?;
            match node.name.as_slice().cmp(name) {
                Ordering::Less => {}
                Ordering::Equal => return Ok(Some(node)),
                Ordering::Greater => return Ok(None),
            }
        }
        Ok(None)
    }
}

impl Iterator for NodeList<'_> {
    type Item = Result<Node, ReadFolderError>;

    fn next(&mut self) -> Option<Self::Item> {
        let node = match self.records.as_mut()?.next()? {
            Ok(fields) => decode(fields, self.score_bytes, &self.previous),
            Err(error) => Err(ReadFolderError::Records(error)),
        };
        match &node {
            Ok(node) => self.previous.clone_from(&node.name),
            Err(_) => self.records = None,
        }
        Some(node)
    }
}

fn decode(fields: &[u8], score_bytes: usize, previous: &[u8]) -> Result<Node, ReadFolderError> {
    let node = Node::decode(fields, score_bytes).map_err(|source| ReadFolderError::Node { source })?;
    if node.name.as_slice() > previous {
        Ok(node)
    } else {
        Err(ReadFolderError::Order { name: node.name, previous: previous.to_vec() })
    }
}
