//! Writes a folder of vac: takes entries and records, and returns the entries of its source and of
//! its meta.

use varve_block::{Block, BlockKind, BlockStore, BlockType, PutError, Score};

use super::entry::{VENTI_ENTRY_BYTES, VentiEntry};
use super::meta_block::MetaBlockBuilder;
use super::record::VacRecord;
use super::root::VentiRoot;
use crate::entry::Entry;
use crate::fixed::{FixedBuilder, put_leaves};
use crate::shape::Shape;

/// The sizes of all trees of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VacShape {
    block_bytes: u32,
}

impl Default for VacShape {
    /// Blocks of 8 KiB.
    fn default() -> Self {
        Self { block_bytes: 8192 }
    }
}

impl VacShape {
    /// Makes a shape with blocks of this size, from 512 bytes to 56 KiB, the largest size that
    /// Venti servers accept. Returns `None` for other sizes.
    #[must_use]
    pub fn new(block_bytes: u32) -> Option<Self> {
        (512..=57_344).contains(&block_bytes).then_some(Self { block_bytes })
    }

    /// Returns the size of a data block.
    #[must_use]
    pub fn block_bytes(self) -> u32 {
        self.block_bytes
    }

    /// Returns the shape of a file's tree.
    #[must_use]
    pub fn data(self) -> Shape {
        self.of(BlockKind::Data)
    }

    fn of(self, leaf_kind: BlockKind) -> Shape {
        let score_bytes = u32::try_from(super::VENTI_SCORE_BYTES).expect("a small number");
        let pointer_bytes = (self.block_bytes / score_bytes * score_bytes).min(60_000);
        Shape { leaf_kind, leaf_bytes: self.block_bytes, pointer_bytes }
    }
}

/// Encodes the entry of a file, with the mark that vac would have left on it. Returns `None` if
/// Venti cannot express the tree.
fn encoded(entry: &VentiEntry, is_partly_filled: bool) -> Option<[u8; VENTI_ENTRY_BYTES]> {
    let tree = &entry.tree;
    let was_local = tree.size() > 0 && (tree.depth() > 0 || is_partly_filled);
    entry.encode(was_local)
}

/// Puts the root of an archive and its three entries: those of the root folder's source and meta,
/// and that of the meta with the root folder's own `record`. Returns the archive's score; `None` if
/// the record is too long.
///
/// # Errors
/// As [`BlockStore::put`].
pub fn put_vac_root(
    store: &dyn BlockStore,
    shape: VacShape,
    folder: &(Entry, Entry),
    record: &VacRecord,
    previous: Option<Score>,
) -> Result<Option<Score>, PutError> {
    let mut builder = VacFolderBuilder::new(store, shape);
    let Some(bytes) = record.encode() else { return Ok(None) };
    // vac makes the record without the range of file numbers, and adds the range at the end.
    let first = VacRecord { qid_space: None, ..record.clone() };
    let first_bytes = first.encode().map_or(bytes.len(), |first| first.len());
    if !builder.push_record(&record.name, &bytes, first_bytes)? {
        return Ok(None);
    }
    let (_, root_meta) = builder.finish()?;
    let mut entries = VacFolderBuilder::new(store, shape);
    if !entries.push_folder(&folder.0, &folder.1)? || !entries.push_entry(&root_meta, true)? {
        return Ok(None);
    }
    let (top, _) = entries.finish()?;
    let block_bytes = shape.block_bytes;
    let root =
        VentiRoot { name: Vec::new(), kind: b"vac".to_vec(), score: top.root(), block_bytes, previous };
    let Some(bytes) = root.encode() else { return Ok(None) };
    store.put(Block { block_type: BlockType::ROOT, bytes: &bytes }).map(Some)
}

/// Builds one folder. Holds one block of each of its trees, and one pointer block a level.
pub struct VacFolderBuilder<'a> {
    store: &'a dyn BlockStore,
    shape: VacShape,
    /// Entries that are not in a block yet.
    entries: Vec<u8>,
    entry_count: u32,
    source: FixedBuilder<'a>,
    meta_block: MetaBlockBuilder,
    meta: FixedBuilder<'a>,
    meta_bytes: u64,
}

impl<'a> VacFolderBuilder<'a> {
    /// Makes a builder of an empty folder.
    ///
    /// # Panics
    /// When the store's scores are not those of Venti.
    #[must_use]
    pub fn new(store: &'a dyn BlockStore, shape: VacShape) -> Self {
        assert_eq!(store.score_bytes(), super::VENTI_SCORE_BYTES, "Venti's scores are SHA-1");
        Self {
            store,
            shape,
            entries: Vec::new(),
            entry_count: 0,
            source: FixedBuilder::new(store, shape.pointers_of_entries()),
            meta_block: shape.meta_block(),
            meta: FixedBuilder::new(store, shape.data()),
            meta_bytes: 0,
        }
    }

    /// Returns the number of the next entry.
    #[must_use]
    pub fn next_entry(&self) -> u32 {
        self.entry_count
    }

    /// Appends the entry of a file. Returns false, without any effect, if Venti cannot express its
    /// tree.
    ///
    /// # Errors
    /// As [`BlockStore::put`]; the builder must not be used afterwards.
    pub fn push_file(&mut self, tree: &Entry) -> Result<bool, PutError> {
        let is_partly_filled = tree.size() < u64::from(tree.leaf_bytes());
        self.push_entry(tree, is_partly_filled)
    }

    /// Appends the entries of a folder's source and meta, as [`finish`](Self::finish) returned
    /// them. Returns false if Venti cannot express one of them; that one is not appended.
    ///
    /// # Errors
    /// As [`BlockStore::put`]; the builder must not be used afterwards.
    pub fn push_folder(&mut self, source: &Entry, meta: &Entry) -> Result<bool, PutError> {
        Ok(self.push_entry(source, true)? && self.push_entry(meta, true)?)
    }

    fn push_entry(&mut self, tree: &Entry, is_partly_filled: bool) -> Result<bool, PutError> {
        let bytes = encoded(&VentiEntry { generation: 0, tree: *tree }, is_partly_filled);
        let Some(bytes) = bytes else { return Ok(false) };
        self.entries.extend_from_slice(&bytes);
        self.entry_count += 1;
        let leaf_bytes = self.shape.block_bytes as usize;
        if self.entries.len() + VENTI_ENTRY_BYTES > leaf_bytes {
            let shape = self.shape.of(BlockKind::Directory);
            self.source.push(&put_leaves(self.store, &shape, &self.entries)?)?;
            self.entries.clear();
        }
        Ok(true)
    }

    /// Appends a record; see [`MetaBlockBuilder::push`]. Returns false, without any effect, if no
    /// block has room for it.
    ///
    /// # Errors
    /// As [`BlockStore::put`]; the builder must not be used afterwards.
    pub fn push_record(&mut self, name: &[u8], record: &[u8], first_bytes: usize) -> Result<bool, PutError> {
        if self.meta_block.push(name, record, first_bytes) {
            return Ok(true);
        }
        if self.meta_block.is_empty() {
            return Ok(false);
        }
        self.put_meta_block()?;
        Ok(self.meta_block.push(name, record, first_bytes))
    }

    /// Writes the remaining blocks. Returns the trees of the folder's source and meta.
    ///
    /// # Errors
    /// As [`BlockStore::put`].
    pub fn finish(mut self) -> Result<(Entry, Entry), PutError> {
        let (leaf_bytes, entry_bytes) = (u64::from(self.shape.block_bytes), VENTI_ENTRY_BYTES as u64);
        let (entry_count, entries_a_leaf) = (u64::from(self.entry_count), leaf_bytes / entry_bytes);
        let source_bytes =
            entry_count / entries_a_leaf * leaf_bytes + entry_count % entries_a_leaf * entry_bytes;
        if !self.entries.is_empty() {
            let shape = self.shape.of(BlockKind::Directory);
            self.source.push(&put_leaves(self.store, &shape, &self.entries)?)?;
        }
        if !self.meta_block.is_empty() {
            self.put_meta_block()?;
        }
        let source = self.source.finish(source_bytes)?.of_kind(BlockKind::Directory);
        Ok((source, self.meta.finish(self.meta_bytes)?))
    }

    fn put_meta_block(&mut self) -> Result<(), PutError> {
        let block = std::mem::replace(&mut self.meta_block, self.shape.meta_block()).finish();
        self.meta.push(&put_leaves(self.store, &self.shape.data(), &block)?)?;
        self.meta_bytes += u64::from(self.shape.block_bytes);
        Ok(())
    }
}

impl VacShape {
    /// The pointer blocks of directories have the same kind as those of data.
    fn pointers_of_entries(self) -> Shape {
        self.of(BlockKind::Data)
    }

    fn meta_block(self) -> MetaBlockBuilder {
        MetaBlockBuilder::new(self.block_bytes).expect("512 bytes to 56 KiB")
    }
}
