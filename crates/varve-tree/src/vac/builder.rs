//! Writing a folder of vac: entries and records in, the entries of its source and of its meta out.

use varve_block::{BlockKind, BlockStore, PutError};

use super::entry::{VENTI_ENTRY_BYTES, VentiEntry};
use super::meta_block::MetaBlockBuilder;
use crate::entry::Entry;
use crate::fixed::{FixedBuilder, Shape, put_leaves};

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
    /// Blocks of this size, from 512 bytes to 56 KiB, which is the largest that Venti's servers take; `None` for others.
    #[must_use]
    pub fn new(block_bytes: u32) -> Option<Self> {
        (512..=57_344).contains(&block_bytes).then_some(Self { block_bytes })
    }

    /// The size of a block of data.
    #[must_use]
    pub fn block_bytes(self) -> u32 {
        self.block_bytes
    }

    /// How a file's bytes are cut.
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

/// The entry of a file whose bytes these are, with the mark that vac would have left on it. `None` where Venti cannot express
/// the tree.
fn encoded(entry: &VentiEntry, is_partly_filled: bool) -> Option<[u8; VENTI_ENTRY_BYTES]> {
    let tree = &entry.tree;
    let was_local = tree.size() > 0 && (tree.depth() > 0 || is_partly_filled);
    entry.encode(was_local)
}

/// Builds one folder. Holds one block of each of its trees, and one pointer block a level.
pub struct VacFolderBuilder<'a> {
    store: &'a dyn BlockStore,
    shape: VacShape,
    /// Entries that no block has yet.
    entries: Vec<u8>,
    entry_count: u32,
    source: FixedBuilder<'a>,
    meta_block: MetaBlockBuilder,
    meta: FixedBuilder<'a>,
    meta_bytes: u64,
}

impl<'a> VacFolderBuilder<'a> {
    /// An empty folder.
    ///
    /// # Panics
    /// Where the store's scores are not those of Venti.
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

    /// The number that the next entry will have.
    #[must_use]
    pub fn next_entry(&self) -> u32 {
        self.entry_count
    }

    /// Appends an entry of data, or of a folder's source or meta. Returns whether Venti can express it; if not, nothing happened.
    ///
    /// # Errors
    /// As [`BlockStore::put`]; the builder is of no further use.
    pub fn push_entry(&mut self, tree: &Entry) -> Result<bool, PutError> {
        let tree = Entry::venti(
            &Shape {
                leaf_kind: tree.leaf_kind(),
                leaf_bytes: tree.leaf_bytes(),
                pointer_bytes: tree.pointer_bytes(),
            },
            tree.depth(),
            tree.size(),
            tree.root(),
        )
        .filter(|_| tree.layout() != crate::entry::Layout::ContentCut);
        let is_partly_filled = tree.is_some_and(|tree| tree.size() < u64::from(tree.leaf_bytes()));
        let bytes = tree.and_then(|tree| encoded(&VentiEntry { generation: 0, tree }, is_partly_filled));
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

    /// Appends a record; see [`MetaBlockBuilder::push`]. Returns `false` if no block has room for it: then nothing happened.
    ///
    /// # Errors
    /// As [`BlockStore::put`]; the builder is of no further use.
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

    /// Writes what is left: the trees of its source and of its meta.
    ///
    /// # Errors
    /// As [`BlockStore::put`].
    pub fn finish(mut self) -> Result<(Entry, Entry), PutError> {
        let entries_a_leaf = self.shape.block_bytes / VENTI_ENTRY_BYTES as u32;
        let source_bytes = u64::from(self.entry_count / entries_a_leaf) * u64::from(self.shape.block_bytes)
            + u64::from(self.entry_count % entries_a_leaf) * VENTI_ENTRY_BYTES as u64;
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
    /// Pointer blocks of directories are of the same kind as those of data.
    fn pointers_of_entries(self) -> Shape {
        self.of(BlockKind::Data)
    }

    fn meta_block(self) -> MetaBlockBuilder {
        MetaBlockBuilder::new(self.block_bytes).expect("512 bytes to 56 KiB")
    }
}
