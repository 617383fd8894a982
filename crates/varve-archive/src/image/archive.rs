//! Archiving an image: pieces are claimed in order, read, named and stored by many hands, and their scores put together in order.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use parking_lot::Mutex;
use varve_block::{BlockKind, BlockStore, PutError, Score};
use varve_tree::{Earlier, Entry, FixedBuilder, PushUnchangedError, ReadPointerError, Shape, put_leaves};
use varve_world::{Task, Workers};

use super::leave_out::blank;
use super::piece::Piece;
use super::served::{Place, PlaceError};
use super::source::{ImageSource, PIECE_BYTES, Pieces};
use crate::progress::Progress;

/// The size of pointer blocks. `docs/decisions/0004-block-sizes.md` has the measurement.
const POINTER_BYTES: u32 = 4 << 10;

/// Small pieces are claimed and read many at a time, until they have so many bytes: with the last of them it may be a piece more.
const BATCH_BYTES: u64 = PIECE_BYTES / 2;
const BATCH_PIECES_MAX: usize = 64;
/// How many pieces may be stored, and wait for the tree, before it is waited for: a few megabytes of scores.
const FINISHED_MAX: usize = 1024;

/// An image that is in the store, though not yet durable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArchivedImage {
    /// What leads to it.
    pub entry: Entry,
    /// Whether the source changed while it was read: the image is then a mixture of moments.
    pub changed_meanwhile: bool,
}

/// Why an image was not archived.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveImageError {
    /// The source could not be read.
    #[error("{path}, offset {offset}: cannot read", path = path.display())]
    Read {
        /// The source.
        path: PathBuf,
        /// Where in it, in bytes.
        offset: u64,
        /// What went wrong below.
        source: io::Error,
    },
    /// The source ended before the size that it had when it was opened.
    #[error("{path} shrank while it was read: nothing at offset {offset} any more", path = path.display())]
    Shrank {
        /// The source.
        path: PathBuf,
        /// Where in it, in bytes.
        offset: u64,
    },
    /// What has not changed cannot be taken from the earlier image.
    #[error("the earlier image, of which this one is to share what has not changed, cannot be read")]
    Earlier(#[source] ReadPointerError),
    /// The store did not take it.
    #[error(transparent)]
    Put(#[from] PutError),
    /// It was asked to stop.
    #[error("interrupted; what was stored so far will not be stored again")]
    Cancelled,
}

impl From<PushUnchangedError> for ArchiveImageError {
    fn from(error: PushUnchangedError) -> Self {
        match error {
            PushUnchangedError::Read(error) => Self::Earlier(error),
            PushUnchangedError::Put(error) => Self::Put(error),
        }
    }
}

/// The tree that images in blocks of `block_bytes` become.
#[must_use]
pub fn image_shape(block_bytes: u32) -> Shape {
    Shape { leaf_kind: BlockKind::Data, leaf_bytes: block_bytes, pointer_bytes: POINTER_BYTES }
}

/// Stores an image in blocks of `block_bytes`.
///
/// # Errors
/// [`ArchiveImageError`]. What was stored so far stays, and is found as duplicates the next time.
///
/// # Panics
/// When the source shares what has not changed with an earlier image of another shape than [`image_shape`].
pub fn archive_image(
    blocks: &dyn BlockStore,
    workers: &dyn Workers,
    source: &ImageSource,
    block_bytes: u32,
    progress: &Progress,
) -> Result<ArchivedImage, ArchiveImageError> {
    let shape = image_shape(block_bytes);
    let earlier = source.earlier().map(|entry| {
        Earlier::new(blocks, entry, &shape).expect("who gives an earlier image has looked at its shape")
    });
    progress.set_total(0, source.size().unwrap_or(0));
    let job = Job {
        blocks,
        shape,
        source,
        progress,
        claims: Mutex::new(Claims { number: 0, pieces: source.pieces(block_bytes) }),
        assembly: Mutex::new(Assembly { builder: FixedBuilder::new(blocks, shape), earlier, next: 0 }),
        finished: Mutex::new(BTreeMap::new()),
        failure: Mutex::new(None),
    };
    let hands = (0..workers.width()).map(|_| Box::new(|| job.work()) as Task<'_>).collect();
    workers.run_all(hands);
    job.finish()
}

struct Job<'a> {
    blocks: &'a dyn BlockStore,
    shape: Shape,
    source: &'a ImageSource,
    progress: &'a Progress,
    claims: Mutex<Claims<'a>>,
    assembly: Mutex<Assembly<'a>>,
    /// Leaves that are stored, by the number of their piece, and not yet in the tree. Never locked by whoever waits for the tree.
    finished: Mutex<BTreeMap<u64, Leaves>>,
    failure: Mutex<Option<ArchiveImageError>>,
}

/// What has been handed out.
struct Claims<'a> {
    number: u64,
    pieces: Pieces<'a>,
}

/// The tree, as far as it is known without a gap.
struct Assembly<'a> {
    builder: FixedBuilder<'a>,
    /// What has not changed is taken from here.
    earlier: Option<Earlier<'a>>,
    /// The number of the piece that comes next.
    next: u64,
}

enum Leaves {
    Scores(Vec<Score>),
    Zeros { leaf_count: u64 },
    Unchanged { leaf_count: u64 },
}

impl Job<'_> {
    fn work(&self) {
        let mut buffer = Vec::new();
        loop {
            match self.one_batch(&mut buffer) {
                Ok(true) if self.failure.lock().is_none() => {}
                Ok(_) => return,
                Err(error) => {
                    self.failure.lock().get_or_insert(error);
                    return;
                }
            }
        }
    }

    /// Claims some pieces and stores them; false if there are none.
    fn one_batch(&self, buffer: &mut Vec<u8>) -> Result<bool, ArchiveImageError> {
        if self.progress.is_cancelled() {
            return Err(ArchiveImageError::Cancelled);
        }
        let (first, pieces) = self.claim()?;
        if pieces.is_empty() {
            return Ok(false);
        }
        self.read(&pieces, buffer)?;
        // Of what was read only the last piece of an image is not a whole number of blocks: so all of it is cut as each piece would be.
        let mut scores = self.store(buffer)?.into_iter();
        let mut assembled = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let bytes = piece.len();
            let leaf_count = bytes.div_ceil(u64::from(self.shape.leaf_bytes));
            let leaves = match piece {
                Piece::Hole { .. } => Leaves::Zeros { leaf_count },
                Piece::Unchanged { .. } => Leaves::Unchanged { leaf_count },
                Piece::Bytes(read) => Leaves::Scores(self.store(&read)?),
                Piece::Data { .. } => {
                    let count = usize::try_from(leaf_count).expect("pieces are small");
                    Leaves::Scores(scores.by_ref().take(count).collect())
                }
            };
            if matches!(leaves, Leaves::Zeros { .. } | Leaves::Unchanged { .. }) {
                self.progress.add_bytes_done(bytes);
            }
            assembled.push(leaves);
        }
        self.assemble(first, assembled)?;
        Ok(true)
    }

    /// Hands over what was stored, and puts in the tree what it now can be made of. One hand does that, and may have to read and to store for
    /// it; the others meanwhile go on with the next pieces, unless they are far ahead.
    fn assemble(&self, first: u64, leaves: Vec<Leaves>) -> Result<(), ArchiveImageError> {
        let is_far_ahead = {
            let mut finished = self.finished.lock();
            finished.extend((first..).zip(leaves));
            finished.len() >= FINISHED_MAX
        };
        loop {
            let mut assembly = match self.assembly.try_lock() {
                Some(assembly) => assembly,
                None if is_far_ahead => self.assembly.lock(),
                // The thread that has it looks again after letting go of it.
                None => return Ok(()),
            };
            while let Some(leaves) = self.take_finished(assembly.next) {
                assembly.next += 1;
                assembly.push(leaves)?;
            }
            let next = assembly.next;
            drop(assembly);
            if !self.finished.lock().contains_key(&next) {
                return Ok(());
            }
        }
    }

    fn take_finished(&self, number: u64) -> Option<Leaves> {
        self.finished.lock().remove(&number)
    }

    /// Pieces in order, and the number of the first of them.
    fn claim(&self) -> Result<(u64, Vec<Piece>), ArchiveImageError> {
        let mut claims = self.claims.lock();
        let first = claims.number;
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        while pieces.len() < BATCH_PIECES_MAX && bytes < BATCH_BYTES {
            let offset = claims.pieces.offset();
            let piece = claims.pieces.next().map_err(|source| self.read_failed(offset, source))?;
            let Some(piece) = piece else { break };
            if matches!(piece, Piece::Data { .. } | Piece::Bytes(_)) {
                bytes += piece.len();
            }
            claims.number += 1;
            pieces.push(piece);
        }
        Ok((first, pieces))
    }

    /// Makes `buffer` what has to be read of these pieces, one after the other.
    fn read(&self, pieces: &[Piece], buffer: &mut Vec<u8>) -> Result<(), ArchiveImageError> {
        let data = pieces.iter().filter_map(|piece| match piece {
            Piece::Data { offset, bytes } => {
                Some((*offset, usize::try_from(*bytes).expect("pieces are small")))
            }
            _ => None,
        });
        buffer.resize(data.clone().map(|(_, bytes)| bytes).sum(), 0);
        let mut rest = buffer.as_mut_slice();
        let mut places = Vec::new();
        for (offset, bytes) in data {
            let (into, after) = rest.split_at_mut(bytes);
            places.push(Place { offset, into });
            rest = after;
        }
        if places.is_empty() {
            return Ok(());
        }
        let read = self.source.read_all(&mut places);
        read.map_err(|PlaceError { offset, source }| self.read_failed(offset, source))?;
        places.iter_mut().for_each(|place| blank(place.into, place.offset, self.source.left_out()));
        Ok(())
    }

    fn store(&self, bytes: &[u8]) -> Result<Vec<Score>, ArchiveImageError> {
        let scores = put_leaves(self.blocks, &self.shape, bytes)?;
        self.progress.add_bytes_read(bytes.len() as u64);
        self.progress.add_bytes_done(bytes.len() as u64);
        Ok(scores)
    }

    fn read_failed(&self, offset: u64, source: io::Error) -> ArchiveImageError {
        let path = self.source.path().to_owned();
        match source.kind() {
            io::ErrorKind::UnexpectedEof => ArchiveImageError::Shrank { path, offset },
            _ => ArchiveImageError::Read { path, offset, source },
        }
    }

    fn finish(self) -> Result<ArchivedImage, ArchiveImageError> {
        if let Some(error) = self.failure.into_inner() {
            return Err(error);
        }
        let size = self.claims.into_inner().pieces.offset();
        let path = self.source.path().to_owned();
        let changed_meanwhile = self.source.has_changed().map_err(|source| ArchiveImageError::Read {
            path,
            offset: size,
            source,
        })?;
        let assembly = self.assembly.into_inner();
        Ok(ArchivedImage { entry: assembly.builder.finish(size)?, changed_meanwhile })
    }
}

impl Assembly<'_> {
    fn push(&mut self, leaves: Leaves) -> Result<(), ArchiveImageError> {
        match leaves {
            Leaves::Scores(scores) => self.builder.push(&scores)?,
            Leaves::Zeros { leaf_count } => self.builder.push_zeros(leaf_count)?,
            Leaves::Unchanged { leaf_count } => {
                let earlier = self.earlier.as_mut().expect("only what has an earlier image is unchanged");
                self.builder.push_unchanged(earlier, leaf_count)?;
            }
        }
        Ok(())
    }
}
