//! Archives an image whose blocks begin where its files begin. Each contiguous run of a file is cut
//! by its content, as the file is in a folder; all else is cut at fixed places. So equal files have
//! equal blocks on any disk and in folders.
//!
//! ```text
//! disk    | rest  | file            | file | rest  | a large file                      |
//! leaves  |·|··|··|····|·····|······|······|··|··|·|···|·····|····|···|······|····|····|
//!                                                      piece      ┊        piece
//!                                                                 └ first cut after a scan that began
//!                                                                   before the border: both pieces know it
//! ```

use std::io;
use std::ops::Range;

use varve_block::{BlockKind, BlockStore, to_usize};
use varve_image::FilePlaces;
use varve_tree::{ContentBuilder, CutLeaf, CutSegment, Cutting, put_cut_leaves};
use varve_world::{Workers, work_in_order};

use super::archive::{ArchiveImageError, ArchivedImage, WAITING_MAX, next_batch};
use super::earlier_leaves::EarlierLeaves;
use super::file_pieces::{ContentPiece, FilePiece, FilePieces, RESYNC_BYTES};
use super::served_image::{ReadRequest, ReadRequestError};
use super::source::ImageSource;
use crate::progress::Progress;

/// Small files are archived in batches of at most this many pieces.
const BATCH_PIECES_MAX: usize = 1024;
/// The bytes that are put at a time.
const PUT_BYTES: usize = 2 << 20;

/// The places at which an image is cut into leaves.
#[derive(Debug, Clone, Copy)]
pub enum ImageCut<'a> {
    /// Leaves of one size in bytes, from the first byte on.
    Fixed(u32),
    /// The places of its files.
    AtFiles(&'a FilePlaces),
}

impl From<u32> for ImageCut<'_> {
    fn from(block_bytes: u32) -> Self {
        Self::Fixed(block_bytes)
    }
}

/// Stores an image, cut at the places of its files, and elsewhere in blocks of `block_bytes`.
///
/// # Errors
/// [`ArchiveImageError`]. Blocks that were stored before the error stay, and are found as
/// duplicates the next time. A stream cannot be cut so.
///
/// Leaves of an earlier image are taken where the source reports that nothing has changed. That
/// image should have been cut in the same way: its cuts stay.
pub fn archive_image_by_files(
    blocks: &dyn BlockStore,
    workers: &dyn Workers,
    source: &ImageSource,
    places: &FilePlaces,
    (cutting, block_bytes): (Cutting, u32),
    progress: &Progress,
) -> Result<ArchivedImage, ArchiveImageError> {
    let unsized_source = || ArchiveImageError::of_read(source, 0, io::ErrorKind::Unsupported.into());
    let size = source.size().ok_or_else(unsized_source)?;
    progress.set_total(0, size);
    let job = FileCutJob { blocks, source, cutting, block_bytes, progress };
    let earlier = source.earlier().map(|entry| EarlierLeaves::new(blocks, entry));
    let mut pieces = FilePieces::new(source, places, earlier.as_ref(), size, block_bytes);
    let mut tree = ContentBuilder::new(blocks, BlockKind::Data, cutting);
    work_in_order(
        workers,
        WAITING_MAX,
        std::iter::from_fn(|| job.next_batch(&mut pieces).transpose()),
        |claims| {
            let mut buffer = Vec::new();
            claims.work_on_each(|batch| job.store_batch(&batch, &mut buffer));
        },
        |parts: Vec<ArchivedSpan>| {
            parts.into_iter().try_for_each(|part| match part {
                ArchivedSpan::Leaves(leaves) => Ok(tree.push(&leaves)?),
                ArchivedSpan::Zeros { bytes } => Ok(tree.push_zeros(bytes)?),
                ArchivedSpan::Unchanged(range) => {
                    let earlier = earlier.as_ref().expect("only what has an earlier image is unchanged");
                    earlier.push(&mut tree, &range)
                }
            })
        },
    )?;
    let changed_meanwhile =
        source.has_changed().map_err(|error| ArchiveImageError::of_read(source, size, error))?;
    Ok(ArchivedImage { entry: tree.finish()?, changed_meanwhile })
}

struct FileCutJob<'a> {
    blocks: &'a dyn BlockStore,
    source: &'a ImageSource,
    cutting: Cutting,
    block_bytes: u32,
    progress: &'a Progress,
}

/// A part of the image that is in the store.
enum ArchivedSpan {
    Leaves(Vec<CutLeaf>),
    Zeros { bytes: u64 },
    Unchanged(Range<u64>),
}

impl FileCutJob<'_> {
    /// The next batch of pieces, in order; `None` at the end. A part of a large file is a batch by
    /// itself.
    fn next_batch(&self, all: &mut FilePieces<'_>) -> Result<Option<Vec<FilePiece>>, ArchiveImageError> {
        next_batch(self.progress, BATCH_PIECES_MAX, || {
            let piece = all.next()?;
            Ok(piece.map(|piece| (bytes_of(&self.needed(&piece)), piece)))
        })
    }

    fn store_batch(
        &self,
        pieces: &[FilePiece],
        buffer: &mut Vec<u8>,
    ) -> Result<Vec<ArchivedSpan>, ArchiveImageError> {
        let spans: Vec<_> = pieces.iter().map(|piece| self.needed(piece)).collect();
        buffer.resize(to_usize(spans.iter().map(bytes_of).sum::<u64>()), 0);
        self.read(spans.as_flattened(), buffer)?;
        let (mut leaves, mut parts) = (Vec::new(), Vec::new());
        let mut rest = buffer.as_slice();
        for (piece, span) in pieces.iter().zip(&spans) {
            let (bytes, after) = rest.split_at(to_usize(bytes_of(span)));
            rest = after;
            match piece {
                FilePiece::Content(content) => self.cut(content, span[1].start, bytes, &mut leaves),
                FilePiece::Rest(range) => self.cut_rest(range.start, bytes, &mut leaves),
                FilePiece::Zeros { bytes } => {
                    parts.push(self.put(&std::mem::take(&mut leaves))?);
                    parts.push(ArchivedSpan::Zeros { bytes: *bytes });
                    self.progress.add_bytes_done(*bytes);
                }
                FilePiece::Unchanged(range) => {
                    parts.push(self.put(&std::mem::take(&mut leaves))?);
                    parts.push(ArchivedSpan::Unchanged(range.clone()));
                    self.progress.add_bytes_done(range.end - range.start);
                }
            }
        }
        parts.push(self.put(&leaves)?);
        Ok(parts)
    }

    /// The bytes that are read for a piece: those before its run in the file, and its own with
    /// those around them.
    fn needed(&self, piece: &FilePiece) -> [Range<u64>; 2] {
        match piece {
            FilePiece::Rest(range) => [0..0, range.clone()],
            FilePiece::Zeros { .. } | FilePiece::Unchanged(_) => [0..0, 0..0],
            FilePiece::Content(ContentPiece { run, part, slack, before }) => {
                let start = if part.start == run.start { part.start } else { part.start - RESYNC_BYTES };
                let after = part.end + u64::from(self.cutting.max());
                let end = if part.end == run.end { run.end + slack } else { after.min(run.end) };
                [before.clone(), start..end]
            }
        }
    }

    /// Reads these ranges one after the other into `buffer`. Ranges that follow each other are read
    /// at once.
    fn read(&self, spans: &[Range<u64>], buffer: &mut [u8]) -> Result<(), ArchiveImageError> {
        let mut joined: Vec<Range<u64>> = Vec::new();
        for span in spans.iter().filter(|span| !span.is_empty()) {
            match joined.last_mut() {
                Some(last) if last.end == span.start => last.end = span.end,
                _ => joined.push(span.clone()),
            }
        }
        let mut requests = Vec::with_capacity(joined.len());
        let mut rest = buffer;
        for span in joined {
            let (into, after) = rest.split_at_mut(to_usize(span.end - span.start));
            requests.push(ReadRequest { offset: span.start, into });
            rest = after;
        }
        if requests.is_empty() {
            return Ok(());
        }
        // The bytes before a run lie anywhere.
        requests.sort_unstable_by_key(|request| request.offset);
        let read = self.source.read_all(&mut requests);
        read.map_err(|ReadRequestError { offset, source }| {
            ArchiveImageError::of_read(self.source, offset, source)
        })
    }

    /// Cuts a part of a file. Its bytes are those before the run, and then those from `offset` on.
    fn cut<'b>(&self, piece: &ContentPiece, offset: u64, bytes: &'b [u8], leaves: &mut Vec<&'b [u8]>) {
        let before = to_usize(piece.before.end - piece.before.start);
        let at = |place: u64| before + to_usize(place - offset);
        let content = &bytes[..bytes.len() - to_usize(piece.slack)];
        let end = match piece.is_last() {
            true => content.len(),
            false => {
                let border = at(piece.part.end);
                let scanned = border - to_usize(RESYNC_BYTES);
                scanned + self.first_cut(&content[scanned..], border - scanned)
            }
        };
        let start = self.first_cut(content, at(piece.part.start)).min(end);
        if piece.is_first() && start > before {
            // The leaf that begins in the run before this one is in two parts.
            leaves.push(&content[before..start]);
        }
        let own = &content[start..end];
        leaves.extend(CutSegment::scan(&self.cutting, own, own.len()).leaves_from(0).leaves);
        if piece.slack == 0 {
            return;
        }
        let (after, max) = (&bytes[content.len()..], self.cutting.max() as usize);
        // The rest of the last block is zeros, which no block keeps at its end.
        match leaves.last_mut() {
            Some(last) if !own.is_empty() && last.len() + after.len() <= max => {
                *last = &bytes[content.len() - last.len()..];
            }
            _ => leaves.extend(after.chunks(max)),
        }
    }

    /// The place of the first cut at or after `border`, by a scan from the start of `bytes`.
    fn first_cut(&self, bytes: &[u8], border: usize) -> usize {
        border + CutSegment::scan(&self.cutting, bytes, border).leaves_from(0).next_start
    }

    /// Cuts what belongs to no file at multiples of the block size.
    fn cut_rest<'b>(&self, offset: u64, mut bytes: &'b [u8], leaves: &mut Vec<&'b [u8]>) {
        let block_bytes = u64::from(self.block_bytes);
        let mut first = to_usize(block_bytes - offset % block_bytes);
        while !bytes.is_empty() {
            let (leaf, after) = bytes.split_at(first.min(bytes.len()));
            leaves.push(leaf);
            (bytes, first) = (after, to_usize(block_bytes));
        }
    }

    fn put(&self, leaves: &[&[u8]]) -> Result<ArchivedSpan, ArchiveImageError> {
        let mut stored = Vec::with_capacity(leaves.len());
        let mut rest = leaves;
        while !rest.is_empty() {
            let mut bytes = 0;
            let count = rest.iter().take_while(|leaf| {
                bytes += leaf.len();
                bytes <= PUT_BYTES
            });
            let (now, after) = rest.split_at(count.count().max(1));
            stored.extend(put_cut_leaves(self.blocks, BlockKind::Data, now)?);
            rest = after;
        }
        let bytes = leaves.iter().map(|leaf| leaf.len() as u64).sum();
        self.progress.add_bytes_read(bytes);
        self.progress.add_bytes_done(bytes);
        Ok(ArchivedSpan::Leaves(stored))
    }
}

fn bytes_of([before, own]: &[Range<u64>; 2]) -> u64 {
    before.end - before.start + own.end - own.start
}
