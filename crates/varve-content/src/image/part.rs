//! A part of an image that can be read, restored and compared without interpreting its contents.

use std::ops::Range;

use bytes::Bytes;
use varve_block::{BlockStore, to_usize};
use varve_tree::{Entry, Extent, Extents, ReadPointerError, ReadTreeError, TreeReader, difference};

use crate::reading_content::{OnLoss, ReadContentError, TakeBytes};

/// Bytes of leaves per request.
const BATCH_BYTES: u64 = 4 << 20;
/// Upper bound on the leaves per request, however small they are.
const BATCH_LEAF_COUNT_MAX: usize = 1024;

/// All bytes of an image, or those of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePart {
    entry: Entry,
    pieces: Vec<Range<u64>>,
}

impl ImagePart {
    /// The whole image, or the whole content of a file.
    #[must_use]
    pub fn whole(entry: &Entry) -> Self {
        Self::of(entry, std::slice::from_ref(&(0..entry.size())))
    }

    /// The bytes of these pieces, in this order. Pieces are cut at the end of the image.
    #[must_use]
    pub fn of(entry: &Entry, pieces: &[Range<u64>]) -> Self {
        let cut = |piece: &Range<u64>| piece.start.min(entry.size())..piece.end.min(entry.size());
        let pieces = pieces.iter().map(cut).filter(|piece| !piece.is_empty()).collect();
        Self { entry: *entry, pieces }
    }

    /// The size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.end - piece.start).sum()
    }

    /// The entry of the image.
    #[must_use]
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// The ranges of the image that the part consists of, in the order of the part.
    #[must_use]
    pub fn pieces(&self) -> &[Range<u64>] {
        &self.pieces
    }

    /// Passes the data of the part in `range` to `take`, without holes, in order, each piece with
    /// its offset in the part. Each unreadable range is passed to `lost`, which decides whether to
    /// go on.
    ///
    /// # Errors
    /// [`ReadContentError::Take`], or the error that `lost` returns.
    pub(crate) fn read_with(
        &self,
        blocks: &dyn BlockStore,
        range: Range<u64>,
        take: &mut TakeBytes<'_>,
        lost: &mut OnLoss<'_>,
    ) -> Result<(), ReadContentError> {
        let reader = TreeReader::new(blocks, &self.entry);
        let mut cuts = self.cuts_of(reader, range);
        loop {
            let (mut batch, mut leaf_bytes) = (Vec::new(), 0);
            while leaf_bytes < BATCH_BYTES && batch.len() < BATCH_LEAF_COUNT_MAX {
                match cuts.next() {
                    None => break,
                    Some(Err(LostPartExtent { range, source })) => {
                        lost(range, ReadTreeError::from(source).into())?
                    }
                    Some(Ok(cut)) if cut.extent.leaf.is_some() => {
                        leaf_bytes += cut.extent.length;
                        batch.push(cut);
                    }
                    Some(Ok(_)) => {}
                }
            }
            if batch.is_empty() {
                return Ok(());
            }
            let extents: Vec<_> = batch.iter().map(|cut| cut.extent).collect();
            for (cut, leaf) in batch.iter().zip(reader.read_extents(&extents)) {
                let bytes = match leaf {
                    Ok(leaf) => cut.of(&leaf),
                    Err(damage) => {
                        lost(cut.range(), damage.into())?;
                        continue;
                    }
                };
                if !bytes.is_empty() {
                    take(cut.offset, &bytes).map_err(ReadContentError::Take)?;
                }
            }
        }
    }

    /// The leaves and holes of the part in `range`, each cut to the bytes that belong to it.
    pub(crate) fn cuts_of<'a>(&self, reader: TreeReader<'a>, range: Range<u64>) -> PartExtents<'a> {
        let mut passed = 0;
        let mut pieces = Vec::new();
        for piece in &self.pieces {
            let (begin, length) = (passed, piece.end - piece.start);
            passed += length;
            let (from, to) = (range.start.max(begin), range.end.min(passed));
            if from < to {
                pieces.push((piece.start + (from - begin)..piece.start + (to - begin), from));
            }
        }
        PartExtents { reader, pieces: pieces.into_iter(), piece: None }
    }

    /// Finds the byte ranges in which two parts differ, and joins adjacent ones. Offsets count from
    /// the start of the part. Reads no leaves. Parts at different places differ wherever one of
    /// them has bytes other than zeros.
    ///
    /// # Errors
    /// [`ReadPointerError`]: the blocks below a pointer block are out of reach.
    pub fn differences(
        &self,
        blocks: &dyn BlockStore,
        other: &Self,
        tell: &mut dyn FnMut(Range<u64>),
    ) -> Result<(), ReadPointerError> {
        let (mut own, mut others) = (self.pieces.iter().cloned(), other.pieces.iter().cloned());
        let (mut run, mut passed): (Option<Range<u64>>, u64) = (None, 0);
        loop {
            let (piece, other_piece) = (own.next(), others.next());
            let found = match (&piece, &other_piece) {
                (None, None) => break,
                (Some(one), Some(two)) if one == two => one.clone(),
                (Some(one), Some(two)) if one.start == two.start => one.start..one.end.max(two.end),
                // From here on the parts are at different places.
                _ => {
                    let rest = self.size().max(other.size());
                    merge(&mut run, passed..rest, tell);
                    break;
                }
            };
            for range in difference(blocks, &self.entry, &other.entry) {
                let range = range?;
                if range.start >= found.end {
                    break;
                }
                let cut = range.start.max(found.start)..range.end.min(found.end);
                if !cut.is_empty() {
                    let shift = |place: u64| place - found.start + passed;
                    merge(&mut run, shift(cut.start)..shift(cut.end), tell);
                }
            }
            passed += found.end - found.start;
            if piece != other_piece {
                let rest = self.size().max(other.size());
                merge(&mut run, passed.min(rest)..rest, tell);
                break;
            }
        }
        if let Some(run) = run {
            tell(run);
        }
        Ok(())
    }
}

/// Joins a range with the one before if they are adjacent. Otherwise reports the one before.
fn merge(run: &mut Option<Range<u64>>, range: Range<u64>, tell: &mut dyn FnMut(Range<u64>)) {
    match run {
        _ if range.is_empty() => {}
        Some(open) if open.end == range.start => open.end = range.end,
        _ => {
            if let Some(done) = run.replace(range) {
                tell(done);
            }
        }
    }
}

/// A leaf or a hole, and the bytes of it that belong to a part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartExtent {
    /// The whole leaf.
    pub(crate) extent: Extent,
    /// The offset in the leaf of the bytes that belong to the part.
    skipped: u64,
    /// The number of these bytes.
    pub(crate) length: u64,
    /// Their offset in the part.
    pub(crate) offset: u64,
}

/// The bytes of a part below an unreadable pointer block.
#[derive(Debug)]
pub(crate) struct LostPartExtent {
    /// Their place in the part.
    pub(crate) range: Range<u64>,
    pub(crate) source: ReadPointerError,
}

impl PartExtent {
    /// A hole over this range.
    pub(crate) fn hole(range: Range<u64>) -> Self {
        let (offset, length) = (range.start, range.end - range.start);
        Self { extent: Extent { offset, length, leaf: None }, skipped: 0, length, offset }
    }

    /// The place in the part.
    pub(crate) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.length
    }

    /// The bytes of the leaf that belong to the part. Missing bytes are zeros.
    pub(crate) fn of(&self, leaf: &Bytes) -> Bytes {
        let within = |place: u64| to_usize(place).min(leaf.len());
        leaf.slice(within(self.skipped)..within(self.skipped + self.length))
    }
}

pub(crate) struct PartExtents<'a> {
    reader: TreeReader<'a>,
    /// The remaining pieces: the range in the image, and the offset in the part.
    pieces: std::vec::IntoIter<(Range<u64>, u64)>,
    piece: Option<(Range<u64>, u64, Extents<'a>)>,
}

impl Iterator for PartExtents<'_> {
    type Item = Result<PartExtent, LostPartExtent>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some((piece, begin, extents)) = &mut self.piece else {
                let (piece, begin) = self.pieces.next()?;
                self.piece = Some((piece.clone(), begin, self.reader.extents(piece)));
                continue;
            };
            let within = |range: Range<u64>| {
                let (from, to) = (range.start.max(piece.start), range.end.min(piece.end));
                *begin + (from - piece.start)..*begin + (to.max(from) - piece.start)
            };
            let extent = match extents.next() {
                Some(Ok(extent)) => extent,
                Some(Err(source)) => {
                    return Some(Err(LostPartExtent { range: within(source.range()), source }));
                }
                None => {
                    self.piece = None;
                    continue;
                }
            };
            let (from, to) = (extent.offset.max(piece.start), extent.range().end.min(piece.end));
            let offset = *begin + (from - piece.start);
            return Some(Ok(PartExtent { extent, skipped: from - extent.offset, length: to - from, offset }));
        }
    }
}
