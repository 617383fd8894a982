//! Reads a folder of vac: the records of its meta, and the entries of its source.

use std::ops::ControlFlow;

use varve_block::{BlockStore, GetError, to_usize};

use super::entry::{DecodeVentiEntryError, VENTI_ENTRY_BYTES, VentiEntry};
use super::meta_block::{DecodeMetaBlockError, MetaBlock};
use super::record::{DecodeVacRecordError, VacRecord};
use crate::cursor::ReadPointerError;
use crate::entry::Entry;
use crate::read::{ReadTreeError, TreeReader};

/// The limit of meta blocks that are read of one folder: more names than any folder has.
const META_BLOCK_COUNT_MAX: usize = 1 << 20;

/// The reason why a part of a folder cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadVentiFolderError {
    /// A block cannot be read.
    #[error("{0}")]
    Tree(#[from] ReadTreeError),
    /// A block of the folder's meta is invalid.
    #[error("the folder's list of files is malformed at byte {offset}")]
    MetaBlock {
        /// The offset in the meta.
        offset: u64,
        source: DecodeMetaBlockError,
    },
    /// A record is malformed.
    #[error("the record of a file in the folder is malformed")]
    Record(#[from] DecodeVacRecordError),
    /// An entry is malformed.
    #[error("entry {number} of the folder is malformed")]
    Entry { number: u32, source: DecodeVentiEntryError },
    /// The meta is longer than any writer makes it.
    #[error(
        "the folder's list of files has more than {META_BLOCK_COUNT_MAX} blocks; the files in the remaining blocks are left out"
    )]
    TooMany,
}

impl From<ReadPointerError> for ReadVentiFolderError {
    fn from(error: ReadPointerError) -> Self {
        Self::Tree(error.into())
    }
}

/// A folder of vac: the trees of its source and of its meta. Caches the block of entries that was
/// read last.
pub struct VentiFolder<'a> {
    store: &'a dyn BlockStore,
    source: Entry,
    meta: Entry,
    /// The number of the cached leaf of the source, and its bytes, padded with zeros.
    leaf: Option<(u64, Vec<u8>)>,
}

impl<'a> VentiFolder<'a> {
    /// Makes a reader of a folder. Reads nothing.
    #[must_use]
    pub fn new(store: &'a dyn BlockStore, source: &Entry, meta: &Entry) -> Self {
        Self { store, source: *source, meta: *meta, leaf: None }
    }

    /// Passes the records of the folder to `visit`, block by block, each in the order of its slots.
    /// An unreadable part is passed as an error, and the records after it follow. Holds one block.
    pub fn records(&self, visit: &mut dyn FnMut(Result<VacRecord, ReadVentiFolderError>) -> ControlFlow<()>) {
        let reader = TreeReader::new(self.store, &self.meta);
        let mut block = Vec::new();
        for (count, extent) in reader.extents(0..self.meta.size()).enumerate() {
            if count >= META_BLOCK_COUNT_MAX {
                let _ = visit(Err(ReadVentiFolderError::TooMany));
                return;
            }
            let next = match extent {
                Err(error) => visit(Err(error.into())),
                Ok(extent) if extent.leaf.is_none() => ControlFlow::Continue(()),
                Ok(extent) => match reader.read_extents(&[extent]).pop() {
                    None => ControlFlow::Continue(()),
                    Some(Err(error)) => visit(Err(error.into())),
                    Some(Ok(bytes)) => {
                        block.clear();
                        block.extend_from_slice(&bytes);
                        block.resize(to_usize(self.meta.leaf_bytes()), 0);
                        records_of(&block, extent.offset, visit)
                    }
                },
            };
            if next.is_break() {
                return;
            }
        }
    }

    /// Returns the entry of the source with this number; `None` if it is not in use, or beyond the
    /// end. Consecutive numbers are cheap.
    ///
    /// # Errors
    /// [`ReadVentiFolderError`]: the entry cannot be read, or is invalid.
    pub fn entry(&mut self, number: u32) -> Result<Option<VentiEntry>, ReadVentiFolderError> {
        let leaf_bytes = u64::from(self.source.leaf_bytes());
        let entries_a_leaf = (leaf_bytes / VENTI_ENTRY_BYTES as u64).max(1);
        let (leaf, place) = (u64::from(number) / entries_a_leaf, u64::from(number) % entries_a_leaf);
        let within = place * VENTI_ENTRY_BYTES as u64;
        let offset = leaf.saturating_mul(leaf_bytes);
        if offset.saturating_add(within).saturating_add(VENTI_ENTRY_BYTES as u64) > self.source.size() {
            return Ok(None);
        }
        if self.leaf.as_ref().is_none_or(|(kept, _)| *kept != leaf) {
            let length = leaf_bytes.min(self.source.size() - offset);
            let mut bytes = vec![0; to_usize(length)];
            TreeReader::new(self.store, &self.source).read_at(offset, &mut bytes)?;
            self.leaf = Some((leaf, bytes));
        }
        let kept = self.leaf.as_ref().map_or(&[][..], |(_, bytes)| bytes);
        let at = to_usize(within);
        let Some(bytes) = kept.get(at..at.saturating_add(VENTI_ENTRY_BYTES)) else { return Ok(None) };
        VentiEntry::decode(bytes).map_err(|source| ReadVentiFolderError::Entry { number, source })
    }
}

fn records_of(
    block: &[u8],
    offset: u64,
    visit: &mut dyn FnMut(Result<VacRecord, ReadVentiFolderError>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    match MetaBlock::decode(block) {
        Err(source) => visit(Err(ReadVentiFolderError::MetaBlock { offset, source })),
        Ok(block) => {
            let mut records = block.records();
            records.try_for_each(|record| visit(record.map_err(ReadVentiFolderError::from)))
        }
    }
}

impl From<GetError> for ReadVentiFolderError {
    fn from(source: GetError) -> Self {
        Self::Tree(ReadTreeError::Leaf { range: 0..0, source })
    }
}
