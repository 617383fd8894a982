//! The nodes of a folder, read one at a time, whatever their number.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::cmp::Ordering;

use varve_block::{BlockKind, BlockStore};
use varve_image::FileSystemError;
use varve_tree::{Entry, ReadVentiFolderError};

use crate::records::node::{DecodeNodeError, Node, NodeKind};
use crate::records::record_list::{ReadRecordsError, Records};

/// Why a folder's nodes could not all be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadFolderError {
    /// The list could not be read.
    #[error(transparent)]
    Records(#[from] ReadRecordsError),
    /// The list holds something that is not a node.
    #[error("a folder holds something that is not a node")]
    Node {
        /// What is wrong with it.
        source: DecodeNodeError,
    },
    /// The file system that the folder is of does not give it.
    #[error(transparent)]
    FileSystem(#[from] FileSystemError),
    /// A name that leads elsewhere, or nowhere.
    #[error("{:?} is not a name; what has it is left out", String::from_utf8_lossy(name))]
    Name {
        /// What was found.
        name: Vec<u8>,
    },
    /// A folder is shown that lies in another one: a way in circles.
    #[error("the folder {:?} lies elsewhere too, and is left out here", String::from_utf8_lossy(name))]
    Elsewhere {
        /// Its name here.
        name: Vec<u8>,
    },
    /// A file of which no file system has so many.
    #[error("{:?} has the impossible number {number}, and is left out", String::from_utf8_lossy(name))]
    Number {
        /// Its name.
        name: Vec<u8>,
        /// Its number.
        number: u64,
    },
    /// More than can be put in order.
    #[error("the folder holds more than {count} names; the others are left out")]
    TooMany {
        /// How many were read.
        count: usize,
    },
    /// A block or a record of a folder that vac archived.
    #[error(transparent)]
    Venti(Box<ReadVentiFolderError>),
    /// The entry of a file that vac archived cannot be read.
    #[error("where {:?} is cannot be read, and it is left out", String::from_utf8_lossy(name))]
    Entry {
        /// Its name.
        name: Vec<u8>,
        /// What is wrong.
        source: Box<ReadVentiFolderError>,
    },
    /// A file that vac archived, and of which there is no more than the name.
    #[error("{:?} was removed, or never written, and is left out", String::from_utf8_lossy(name))]
    Broken {
        /// Its name.
        name: Vec<u8>,
    },
    /// A second file of one name.
    #[error("{:?} is there twice; the second one is left out", String::from_utf8_lossy(name))]
    Twice {
        /// The name.
        name: Vec<u8>,
    },
    /// The names do not ascend: two nodes may have one name.
    #[error(
        "{:?} does not come after {:?}",
        String::from_utf8_lossy(name),
        String::from_utf8_lossy(previous)
    )]
    Order {
        /// The node's name.
        name: Vec<u8>,
        /// The name of the one before it.
        previous: Vec<u8>,
    },
}

/// A place in a folder's list, between two nodes.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListPlace {
    /// In bytes.
    pub(crate) offset: u64,
    /// The name of the node before it.
    pub(crate) previous: Vec<u8>,
}

/// The nodes of a folder in strictly ascending order of their names' bytes. Ends after the first error.
pub struct NodeList<'a> {
    records: Option<Records<'a>>,
    score_bytes: usize,
    previous: Vec<u8>,
}

impl<'a> NodeList<'a> {
    /// What `folder` holds; nothing, if it is not a folder. Reads nothing yet.
    #[must_use]
    pub fn new(store: &'a dyn BlockStore, folder: &Node) -> Self {
        let is_folder = folder.kind == NodeKind::Folder;
        let content = folder.content.filter(|_| is_folder);
        Self::of_content(store, content.as_ref(), &ListPlace::default())
    }

    /// What the folder with this content holds, from `place` on. Reads nothing yet.
    pub(crate) fn of_content(store: &'a dyn BlockStore, content: Option<&Entry>, place: &ListPlace) -> Self {
        let content = content.filter(|entry| entry.leaf_kind() == BlockKind::Directory);
        let records = content.map(|entry| Records::starting_at(store, entry, place.offset));
        Self { records, score_bytes: store.score_bytes(), previous: place.previous.clone() }
    }

    /// Where the list goes on after what was read of it.
    pub(crate) fn place(&self) -> ListPlace {
        ListPlace {
            offset: self.records.as_ref().map_or(0, Records::offset),
            previous: self.previous.clone(),
        }
    }

    /// The node of this name. Reads the nodes up to it, and passes those before.
    ///
    /// # Errors
    /// [`ReadFolderError`]: the list cannot be read as far as the name would be.
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
