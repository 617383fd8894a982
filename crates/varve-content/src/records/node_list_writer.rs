//! Writes the nodes of a folder. Refuses the nodes that a reader of the list would refuse: one of
//! them would hide all nodes behind it.

use varve_block::{BlockKind, BlockStore, PutError};
use varve_tree::{ContentWriter, Cutting, Entry};

use super::fields::frame;
use super::node::{DecodeNodeError, Node};
use super::record_list::RECORD_BYTES_MAX;

/// Writes the list of one folder.
pub struct NodeListWriter<'a> {
    content: ContentWriter<'a>,
    last: Vec<u8>,
    record: Vec<u8>,
}

/// Why a node is not in the list. The nodes before it are, and the next ones can be.
#[derive(Debug, thiserror::Error)]
pub enum WriteNodeError {
    #[error("{0}")]
    Invalid(#[from] DecodeNodeError),
    #[error("{:?} does not come after {:?}", String::from_utf8_lossy(name), String::from_utf8_lossy(last))]
    Order { name: Vec<u8>, last: Vec<u8> },
    #[error("its attributes take {bytes} bytes, more than {RECORD_BYTES_MAX}")]
    TooLarge { bytes: usize },
    /// The store accepts no more data.
    #[error("{0}")]
    Put(#[from] PutError),
}

impl<'a> NodeListWriter<'a> {
    #[must_use]
    pub fn new(blocks: &'a dyn BlockStore) -> Self {
        let content = ContentWriter::new(blocks, BlockKind::Directory, Cutting::DIRECTORY);
        Self { content, last: Vec::new(), record: Vec::new() }
    }

    /// Appends a node. Names must be in ascending order.
    ///
    /// # Errors
    /// [`WriteNodeError`].
    pub fn push(&mut self, node: &Node) -> Result<(), WriteNodeError> {
        node.check_name()?;
        node.check()?;
        if node.name <= self.last {
            return Err(WriteNodeError::Order { name: node.name.clone(), last: self.last.clone() });
        }
        let fields = node.encode();
        if fields.len() > RECORD_BYTES_MAX {
            return Err(WriteNodeError::TooLarge { bytes: fields.len() });
        }
        self.record.clear();
        frame(&fields, &mut self.record);
        self.content.write(&self.record)?;
        self.last.clone_from(&node.name);
        Ok(())
    }

    /// Ends the list. Returns `None` if it has no nodes.
    ///
    /// # Errors
    /// The store accepts no more data.
    pub fn finish(self) -> Result<Option<Entry>, PutError> {
        if self.content.bytes_written() > 0 { self.content.finish().map(Some) } else { Ok(None) }
    }
}
