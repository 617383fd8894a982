//! Writes fixed trees from bytes in order, as Venti clients do.

use varve_block::{BlockStore, PutError, to_usize};

use crate::entry::Entry;
use crate::fixed::{FixedBuilder, put_leaves};
use crate::shape::Shape;

/// The bytes that are gathered before they are put.
const BATCH_BYTES: usize = 1 << 20;

/// Writes a file as a fixed tree: bytes in order, then [`finish`](Self::finish). Until then, no
/// block refers to the written blocks.
///
/// Holds at most about 1 MiB and a leaf, and one pointer block a level.
pub struct FixedWriter<'a> {
    store: &'a dyn BlockStore,
    shape: Shape,
    builder: FixedBuilder<'a>,
    /// Whole leaves, and the beginning of one.
    gathered: Vec<u8>,
    size: u64,
}

impl<'a> FixedWriter<'a> {
    /// Makes a writer of an empty file.
    ///
    /// # Panics
    /// When a size of the shape is out of the bounds that [`Shape`] names.
    #[must_use]
    pub fn new(store: &'a dyn BlockStore, shape: Shape) -> Self {
        Self { store, shape, builder: FixedBuilder::new(store, shape), gathered: Vec::new(), size: 0 }
    }

    /// Returns the number of bytes written, including holes.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.size
    }

    /// Appends bytes. The tree does not depend on the sizes of the writes.
    ///
    /// # Errors
    /// As [`BlockStore::put_batch`]; the writer must not be used afterwards.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), PutError> {
        self.size = self.size.saturating_add(bytes.len() as u64);
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= BATCH_BYTES { self.put_whole_leaves() } else { Ok(()) }
    }

    /// Appends a hole. The tree is the same as with the zeros themselves, at less cost.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_zeros(&mut self, count: u64) -> Result<(), PutError> {
        let leaf_bytes = u64::from(self.shape.leaf_bytes);
        let begun = self.gathered.len() as u64 % leaf_bytes;
        let to_boundary = if begun == 0 { 0 } else { count.min(leaf_bytes - begun) };
        self.extend_zeros(to_boundary)?;
        let rest = count - to_boundary;
        if rest >= leaf_bytes {
            self.put_whole_leaves()?;
            self.builder.push_zeros(rest / leaf_bytes)?;
        }
        self.size = self.size.saturating_add(rest - rest % leaf_bytes);
        self.extend_zeros(rest % leaf_bytes)
    }

    /// Writes the remaining bytes and returns the entry.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn finish(mut self) -> Result<Entry, PutError> {
        self.put_whole_leaves()?;
        if !self.gathered.is_empty() {
            self.builder.push(&put_leaves(self.store, &self.shape, &self.gathered)?)?;
        }
        self.builder.finish(self.size)
    }

    /// Appends fewer zeros than a leaf has.
    fn extend_zeros(&mut self, count: u64) -> Result<(), PutError> {
        const ZEROS: [u8; 4096] = [0; 4096];
        let mut left = to_usize(count);
        while left > 0 {
            let step = left.min(ZEROS.len());
            self.write(&ZEROS[..step])?;
            left -= step;
        }
        Ok(())
    }

    fn put_whole_leaves(&mut self) -> Result<(), PutError> {
        let leaf_bytes = self.shape.leaf_bytes as usize;
        let whole = self.gathered.len() - self.gathered.len() % leaf_bytes;
        if whole > 0 {
            self.builder.push(&put_leaves(self.store, &self.shape, &self.gathered[..whole])?)?;
            self.gathered.drain(..whole);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use varve_block::{BlockKind, MemoryBlockStore};

    use super::*;
    use crate::read::TreeReader;

    const SHAPE: Shape = Shape { leaf_kind: BlockKind::Data, leaf_bytes: 512, pointer_bytes: 320 };

    #[test]
    fn holes_and_slices_change_nothing() {
        let store = MemoryBlockStore::new();
        let mut bytes = vec![7; 1300];
        bytes.extend_from_slice(&[0; 5000]);
        bytes.extend_from_slice(&[9; 700]);
        let mut whole = FixedWriter::new(&store, SHAPE);
        whole.write(&bytes).unwrap();
        let whole = whole.finish().unwrap();
        let mut sliced = FixedWriter::new(&store, SHAPE);
        for slice in bytes[..1300].chunks(17) {
            sliced.write(slice).unwrap();
        }
        sliced.write_zeros(3).unwrap();
        sliced.write_zeros(4997).unwrap();
        sliced.write(&bytes[6300..]).unwrap();
        assert_eq!(sliced.bytes_written(), bytes.len() as u64);
        assert_eq!(sliced.finish().unwrap(), whole);
        let mut read = vec![1; bytes.len()];
        TreeReader::new(&store, &whole).read_at(0, &mut read).unwrap();
        assert!(read == bytes);
    }

    #[test]
    fn a_file_of_zeros_is_the_empty_score() {
        let store = MemoryBlockStore::new();
        for zeros in [0, 1, 511, 512, 513, 1 << 40] {
            let mut writer = FixedWriter::new(&store, SHAPE);
            writer.write_zeros(zeros).unwrap();
            let entry = writer.finish().unwrap();
            assert_eq!((entry.size(), entry.root()), (zeros, store.empty_score()));
        }
        assert_eq!(store.block_count(), 0);
    }
}
