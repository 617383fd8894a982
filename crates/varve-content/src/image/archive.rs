//! Archives an image: several workers claim pieces in order, and read, name and store them. The
//! scores are assembled in order.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use varve_block::{BlockKind, BlockStore, PutError, PutHints, Score, to_usize};
use varve_tree::{
    EarlierTree, Entry, FixedBuilder, PushUnchangedError, ReadPointerError, ReplacedLeaves, Shape,
    put_leaves_with,
};
use varve_world::{Workers, work_in_order};

use super::image_piece::ImagePiece;
use super::leave_out::blank;
use super::served_image::{ReadRequest, ReadRequestError};
use super::source::{ImagePieces, ImageSource, PIECE_BYTES};
use crate::progress::Progress;

/// The size of pointer blocks. `docs/decisions/0004-block-sizes.md` has the measurement.
const POINTER_BYTES: u32 = 4 << 10;

/// Small pieces are claimed and read in batches. A batch ends once it has this many bytes, so it
/// may exceed them by one piece.
const BATCH_BYTES: u64 = PIECE_BYTES / 2;
const BATCH_PIECES_MAX: usize = 64;
/// Upper bound on the stored batches that wait for the tree before a worker waits: a few megabytes
/// of scores.
pub(super) const WAITING_MAX: usize = 512;

/// An image that is in the store, but not durable yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArchivedImage {
    pub entry: Entry,
    /// True if the source changed while it was read. The image is then a mixture of several times.
    pub changed_meanwhile: bool,
}

/// Why an image was not archived.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveImageError {
    /// The source was unreadable.
    #[error("{path}, offset {offset}: cannot read", path = path.display())]
    Read {
        path: PathBuf,
        /// The offset in bytes.
        offset: u64,
        source: io::Error,
    },
    /// The source ended before the size that it had when it was opened.
    #[error("{path} shrank while it was read: it ends before offset {offset}", path = path.display())]
    Shrank {
        path: PathBuf,
        /// The offset in bytes.
        offset: u64,
    },
    /// The earlier image that has the unchanged parts is unreadable.
    #[error("the earlier image, from which unchanged parts are taken, cannot be read")]
    Earlier(#[source] ReadPointerError),
    #[error("{0}")]
    Put(#[from] PutError),
    #[error("interrupted; data stored so far will not be stored again")]
    Cancelled,
}

impl ArchiveImageError {
    /// The error of a read of the image.
    pub(super) fn of_read(image: &ImageSource, offset: u64, source: io::Error) -> Self {
        let path = image.path().to_owned();
        match source.kind() {
            io::ErrorKind::UnexpectedEof => Self::Shrank { path, offset },
            _ => Self::Read { path, offset, source },
        }
    }
}

impl From<ReadPointerError> for ArchiveImageError {
    fn from(error: ReadPointerError) -> Self {
        Self::Earlier(error)
    }
}

impl From<PushUnchangedError> for ArchiveImageError {
    fn from(error: PushUnchangedError) -> Self {
        match error {
            PushUnchangedError::Read(error) => Self::Earlier(error),
            PushUnchangedError::Put(error) => Self::Put(error),
        }
    }
}

/// The tree shape of images in blocks of `block_bytes`.
#[must_use]
pub fn image_shape(block_bytes: u32) -> Shape {
    Shape { leaf_kind: BlockKind::Data, leaf_bytes: block_bytes, pointer_bytes: POINTER_BYTES }
}

/// Stores an image in blocks of `block_bytes`. `replaced` is the image that it has replaced, for a
/// store that keeps only what is different.
///
/// # Errors
/// [`ArchiveImageError`]. Blocks that were stored before the error stay, and are found as
/// duplicates the next time.
///
/// # Panics
/// If the source has an earlier image of another shape than [`image_shape`].
pub fn archive_image(
    blocks: &dyn BlockStore,
    workers: &dyn Workers,
    source: &ImageSource,
    block_bytes: u32,
    replaced: Option<&Entry>,
    progress: &Progress,
) -> Result<ArchivedImage, ArchiveImageError> {
    let shape = image_shape(block_bytes);
    let earlier = source.earlier().map(|entry| {
        EarlierTree::new(blocks, entry, &shape)
            .expect("the caller has checked the shape of the earlier image")
    });
    progress.set_total(0, source.size().unwrap_or(0));
    let replaced = replaced.and_then(|entry| ReplacedLeaves::of(blocks, entry, &shape));
    let job = ArchiveImageJob { blocks, shape, source, replaced, progress };
    let mut pieces = source.pieces(block_bytes);
    let mut assembly = TreeAssembly { builder: FixedBuilder::new(blocks, shape), earlier };
    work_in_order(
        workers,
        WAITING_MAX,
        std::iter::from_fn(|| job.next_batch(&mut pieces).transpose()),
        |claims| {
            let mut buffer = Vec::new();
            claims.work_on_each(|batch| job.store_batch(batch, &mut buffer));
        },
        // Pushing unchanged parts may read blocks. The other workers continue with the next batches
        // meanwhile.
        |leaves| leaves.into_iter().try_for_each(|leaves| assembly.push(leaves)),
    )?;
    let size = pieces.offset();
    let changed_meanwhile = source.has_changed().map_err(|error| job.read_failed(size, error))?;
    Ok(ArchivedImage { entry: assembly.builder.finish(size)?, changed_meanwhile })
}

struct ArchiveImageJob<'a> {
    blocks: &'a dyn BlockStore,
    shape: Shape,
    source: &'a ImageSource,
    replaced: Option<ReplacedLeaves<'a>>,
    progress: &'a Progress,
}

/// The tree, as far as its leaves are known without a gap.
struct TreeAssembly<'a> {
    builder: FixedBuilder<'a>,
    /// The earlier image, which has the unchanged parts.
    earlier: Option<EarlierTree<'a>>,
}

enum ArchivedLeaves {
    Scores(Vec<Score>),
    Zeros { leaf_count: u64 },
    Unchanged { leaf_count: u64 },
}

impl ArchiveImageJob<'_> {
    /// Stores a batch of pieces, and returns their leaves.
    fn store_batch(
        &self,
        pieces: Vec<ImagePiece>,
        buffer: &mut Vec<u8>,
    ) -> Result<Vec<ArchivedLeaves>, ArchiveImageError> {
        self.read(&pieces, buffer)?;
        // Every piece except the last one of an image is a whole number of blocks. The joined bytes
        // are therefore cut into the same blocks as each piece by itself.
        let ranges = pieces.iter().filter_map(|piece| match piece {
            ImagePiece::Data { offset, bytes } => Some(*offset..offset + bytes),
            _ => None,
        });
        let mut scores = self.store(buffer, &self.replaced_leaves(ranges))?.into_iter();
        let mut assembled = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let bytes = piece.len();
            let leaf_count = bytes.div_ceil(u64::from(self.shape.leaf_bytes));
            let leaves = match piece {
                ImagePiece::Hole { .. } => ArchivedLeaves::Zeros { leaf_count },
                ImagePiece::Unchanged { .. } => ArchivedLeaves::Unchanged { leaf_count },
                ImagePiece::Bytes { offset, bytes } => {
                    let replaced = self.replaced_leaves(std::iter::once(offset..offset + bytes.len() as u64));
                    ArchivedLeaves::Scores(self.store(&bytes, &replaced)?)
                }
                ImagePiece::Data { .. } => {
                    let count = to_usize(leaf_count);
                    ArchivedLeaves::Scores(scores.by_ref().take(count).collect())
                }
            };
            if matches!(leaves, ArchivedLeaves::Zeros { .. } | ArchivedLeaves::Unchanged { .. }) {
                self.progress.add_bytes_done(bytes);
            }
            assembled.push(leaves);
        }
        Ok(assembled)
    }

    /// The next batch of pieces, in order; `None` at the end.
    fn next_batch(&self, all: &mut ImagePieces<'_>) -> Result<Option<Vec<ImagePiece>>, ArchiveImageError> {
        next_batch(self.progress, BATCH_PIECES_MAX, || {
            let offset = all.offset();
            let piece = all.next().map_err(|source| self.read_failed(offset, source))?;
            let is_read =
                |piece: &ImagePiece| matches!(piece, ImagePiece::Data { .. } | ImagePiece::Bytes { .. });
            Ok(piece.map(|piece| (if is_read(&piece) { piece.len() } else { 0 }, piece)))
        })
    }

    /// Reads the data of these pieces into `buffer`, one after the other.
    fn read(&self, pieces: &[ImagePiece], buffer: &mut Vec<u8>) -> Result<(), ArchiveImageError> {
        let data = pieces.iter().filter_map(|piece| match piece {
            ImagePiece::Data { offset, bytes } => Some((*offset, to_usize(*bytes))),
            _ => None,
        });
        buffer.resize(data.clone().map(|(_, bytes)| bytes).sum(), 0);
        let mut rest = buffer.as_mut_slice();
        let mut places = Vec::new();
        for (offset, bytes) in data {
            let (into, after) = rest.split_at_mut(bytes);
            places.push(ReadRequest { offset, into });
            rest = after;
        }
        if places.is_empty() {
            return Ok(());
        }
        let read = self.source.read_all(&mut places);
        read.map_err(|ReadRequestError { offset, source }| self.read_failed(offset, source))?;
        places.iter_mut().for_each(|place| blank(place.into, place.offset, self.source.left_out()));
        Ok(())
    }

    /// Returns, for each leaf of these ranges of the image, the leaf that it has replaced.
    fn replaced_leaves(&self, ranges: impl Iterator<Item = Range<u64>>) -> Vec<Option<Score>> {
        let Some(replaced) = &self.replaced else { return Vec::new() };
        ranges.flat_map(|range| replaced.leaves_at(range)).collect()
    }

    fn store(&self, bytes: &[u8], replaced: &[Option<Score>]) -> Result<Vec<Score>, ArchiveImageError> {
        let hints = PutHints { replaced, ..PutHints::default() };
        let scores = put_leaves_with(self.blocks, &self.shape, bytes, hints)?;
        self.progress.add_bytes_read(bytes.len() as u64);
        self.progress.add_bytes_done(bytes.len() as u64);
        Ok(scores)
    }

    fn read_failed(&self, offset: u64, source: io::Error) -> ArchiveImageError {
        ArchiveImageError::of_read(self.source, offset, source)
    }
}

/// Takes pieces from `next`, which gives each with the bytes that are read for it, until they are a
/// batch. `None` at the end.
pub(super) fn next_batch<P>(
    progress: &Progress,
    piece_count_max: usize,
    mut next: impl FnMut() -> Result<Option<(u64, P)>, ArchiveImageError>,
) -> Result<Option<Vec<P>>, ArchiveImageError> {
    if progress.is_cancelled() {
        return Err(ArchiveImageError::Cancelled);
    }
    let (mut pieces, mut bytes) = (Vec::new(), 0);
    while pieces.len() < piece_count_max && bytes < BATCH_BYTES {
        let Some((needed, piece)) = next()? else { break };
        bytes += needed;
        pieces.push(piece);
    }
    Ok((!pieces.is_empty()).then_some(pieces))
}

impl TreeAssembly<'_> {
    fn push(&mut self, leaves: ArchivedLeaves) -> Result<(), ArchiveImageError> {
        match leaves {
            ArchivedLeaves::Scores(scores) => self.builder.push(&scores)?,
            ArchivedLeaves::Zeros { leaf_count } => self.builder.push_zeros(leaf_count)?,
            ArchivedLeaves::Unchanged { leaf_count } => {
                let earlier = self.earlier.as_mut().expect("only what has an earlier image is unchanged");
                self.builder.push_unchanged(earlier, leaf_count)?;
            }
        }
        Ok(())
    }
}
