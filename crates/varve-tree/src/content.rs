//! Writes content-cut trees: bytes in, entry out; or leaves in, entry out.

use varve_block::{BlockKind, BlockStore, PutError, Score};

use crate::cut::{Cutter, Cutting};
use crate::entry::Entry;
use crate::leaves::put_truncated;
use crate::rows::RowWriter;

/// The bytes that are gathered before they are cut and put.
const BATCH_BYTES: usize = 1 << 20;
/// The bytes of one long write that are cut and put at a time.
const WRITE_BYTES_MAX: usize = 4 << 20;

/// Writes a file: bytes in order, then [`finish`](Self::finish). Until then, no block refers to the
/// written blocks.
///
/// Holds at most about 1 MiB, one leaf and one pointer block a level. A long write (1 MiB or more)
/// is put without a copy; only its last bytes are copied.
pub struct ContentWriter<'a> {
    store: &'a dyn BlockStore,
    leaf_kind: BlockKind,
    cutter: Cutter,
    /// Bytes that are not in a leaf yet: fewer than [`BATCH_BYTES`] and a window.
    gathered: Vec<u8>,
    leaves: ContentBuilder<'a>,
    size: u64,
}

/// Builds a content-cut tree from leaves that were put by [`put_cut_leaves`], in order. Holds one
/// pointer block a level.
///
/// With the leaves of a [`CutSegment`](crate::CutSegment) after the other, the tree is that of a
/// [`ContentWriter`].
pub struct ContentBuilder<'a> {
    store: &'a dyn BlockStore,
    leaf_kind: BlockKind,
    cutting: Cutting,
    rows: RowWriter<'a>,
    size: u64,
}

/// A leaf that was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutLeaf {
    /// Its length in bytes, with the zeros at its end.
    pub bytes: u64,
    pub score: Score,
}

/// Puts leaves of a file in one batch. No state is kept between calls, so several threads may each
/// put a part of a file.
///
/// # Errors
/// As [`BlockStore::put_batch`].
pub fn put_cut_leaves(
    store: &dyn BlockStore,
    leaf_kind: BlockKind,
    leaves: &[&[u8]],
) -> Result<Vec<CutLeaf>, PutError> {
    let scores = put_truncated(store, leaf_kind, leaves.iter().copied())?;
    Ok(leaves.iter().zip(scores).map(|(leaf, score)| CutLeaf { bytes: leaf.len() as u64, score }).collect())
}

impl<'a> ContentBuilder<'a> {
    /// Makes a builder of an empty file.
    #[must_use]
    pub fn new(store: &'a dyn BlockStore, leaf_kind: BlockKind, cutting: Cutting) -> Self {
        Self { store, leaf_kind, cutting, rows: RowWriter::new(store, leaf_kind), size: 0 }
    }

    /// Returns the number of bytes so far, including holes.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.size
    }

    /// Appends leaves.
    ///
    /// # Errors
    /// As [`BlockStore::put`]: a full pointer block was not stored. The builder must not be used
    /// afterwards.
    ///
    /// # Panics
    /// When the file would be larger than `u64::MAX` bytes.
    pub fn push(&mut self, leaves: &[CutLeaf]) -> Result<(), PutError> {
        leaves.iter().try_for_each(|leaf| {
            self.size = grown(self.size, leaf.bytes);
            self.rows.push(leaf.bytes, &leaf.score)
        })
    }

    /// Appends a hole. The leaf before it has ended there.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    ///
    /// # Panics
    /// As [`push`](Self::push).
    pub fn push_zeros(&mut self, count: u64) -> Result<(), PutError> {
        if count == 0 {
            return Ok(());
        }
        self.size = grown(self.size, count);
        self.rows.push(count, &self.store.empty_score())
    }

    /// Writes the open pointer blocks and returns the entry.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn finish(self) -> Result<Entry, PutError> {
        let (depth, root) = self.rows.finish()?;
        Ok(entry(self.store, self.leaf_kind, &self.cutting, depth, self.size, root))
    }
}

fn grown(size: u64, bytes: u64) -> u64 {
    size.checked_add(bytes).expect("no file is larger than u64::MAX bytes")
}

impl<'a> ContentWriter<'a> {
    /// Makes a writer of an empty file.
    #[must_use]
    pub fn new(store: &'a dyn BlockStore, leaf_kind: BlockKind, cutting: Cutting) -> Self {
        Self {
            store,
            leaf_kind,
            cutter: Cutter::new(&cutting),
            gathered: Vec::new(),
            leaves: ContentBuilder::new(store, leaf_kind, cutting),
            size: 0,
        }
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
    ///
    /// # Panics
    /// When the file would be larger than `u64::MAX` bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), PutError> {
        self.size = grown(self.size, bytes.len() as u64);
        for part in bytes.chunks(WRITE_BYTES_MAX) {
            if self.gathered.len() + part.len() < BATCH_BYTES {
                self.gathered.extend_from_slice(part);
            } else {
                self.write_batch(part)?;
            }
        }
        Ok(())
    }

    /// Appends a hole: zeros that take no space. The leaf before the hole ends there, so a file
    /// written with a hole and a file written with the zeros themselves have different trees.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn write_zeros(&mut self, count: u64) -> Result<(), PutError> {
        if count == 0 {
            return Ok(());
        }
        self.size = grown(self.size, count);
        self.write_gathered()?;
        self.leaves.push_zeros(count)
    }

    /// Writes the remaining bytes and returns the entry.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn finish(mut self) -> Result<Entry, PutError> {
        self.write_gathered()?;
        self.leaves.finish()
    }

    /// Cuts and puts the gathered bytes and `bytes`, except a tail whose cut depends on further
    /// bytes.
    fn write_batch(&mut self, bytes: &[u8]) -> Result<(), PutError> {
        let window = self.cutter.window();
        let mut joined = std::mem::take(&mut self.gathered);
        let gathered_bytes = joined.len();
        // A leaf that begins in the gathered bytes ends within the first window of `bytes`; the
        // later leaves lie in `bytes` alone.
        joined.extend_from_slice(&bytes[..bytes.len().min(window)]);
        let (mut leaves, mut start) = (Vec::new(), 0);
        while start < gathered_bytes && joined.len() - start >= window {
            let end = start + self.cutter.cut(&joined[start..]);
            leaves.push(&joined[start..end]);
            start = end;
        }
        if start < gathered_bytes {
            self.put(&leaves)?;
            joined.drain(..start);
            self.gathered = joined;
            return Ok(());
        }
        let mut rest = &bytes[start - gathered_bytes..];
        while rest.len() >= window {
            let (leaf, behind) = rest.split_at(self.cutter.cut(rest));
            leaves.push(leaf);
            rest = behind;
        }
        self.put(&leaves)?;
        joined.clear();
        joined.extend_from_slice(rest);
        self.gathered = joined;
        Ok(())
    }

    /// Cuts and puts all gathered bytes: a hole or the end of the file follows.
    fn write_gathered(&mut self) -> Result<(), PutError> {
        let gathered = std::mem::take(&mut self.gathered);
        let (mut leaves, mut rest) = (Vec::new(), gathered.as_slice());
        while !rest.is_empty() {
            let (leaf, behind) = rest.split_at(self.cutter.cut(rest));
            leaves.push(leaf);
            rest = behind;
        }
        self.put(&leaves)
    }

    fn put(&mut self, leaves: &[&[u8]]) -> Result<(), PutError> {
        let put = put_cut_leaves(self.store, self.leaf_kind, leaves)?;
        self.leaves.push(&put)
    }
}

/// Writes many small files in one batch, each as one leaf. The entries are in the order of the
/// files, and equal those of a [`ContentWriter`] with the same cutting.
///
/// # Errors
/// As [`BlockStore::put_batch`].
///
/// # Panics
/// When a file is larger than the cutting's [`min`](Cutting::min).
pub fn put_whole(
    store: &dyn BlockStore,
    leaf_kind: BlockKind,
    cutting: Cutting,
    files: &[&[u8]],
) -> Result<Vec<Entry>, PutError> {
    let largest = files.iter().map(|file| file.len()).max().unwrap_or(0);
    assert!(largest <= cutting.min() as usize, "a file of {largest} bytes may be more than one leaf");
    let scores = put_truncated(store, leaf_kind, files.iter().copied())?;
    let entries = files.iter().zip(scores);
    Ok(entries.map(|(file, score)| entry(store, leaf_kind, &cutting, 0, file.len() as u64, score)).collect())
}

fn entry(
    store: &dyn BlockStore,
    kind: BlockKind,
    cutting: &Cutting,
    depth: u8,
    size: u64,
    root: Score,
) -> Entry {
    let pointer_bytes = RowWriter::pointer_bytes(store.score_bytes());
    Entry::content_cut(kind, cutting.max(), pointer_bytes, depth, size, root)
}
