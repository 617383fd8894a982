//! Clumps: from blocks to the body of a record. Pure functions over bytes, without I/O.
//!
//! The body of a clump that is not framed, once decrypted:
//!
//! | offset | bytes | field         | meaning                                                                        |
//! |-------:|------:|---------------|--------------------------------------------------------------------------------|
//! |      0 |     4 | codec         | 0: the content as it is; 1: one zstd frame                                     |
//! |      4 |     4 | content_bytes | length of the content, decompressed                                            |
//! |      8 |       | content       |                                                                                |
//!
//! The content of such a clump, or of a frame, is a count, four bytes for each block (its size and
//! type), and the concatenated blocks. The body of a framed clump is a table and the frames:
//! `frame_table.rs`.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;

use bytes::Bytes;
use varve_block::{BLOCK_BYTES_MAX, BlockName, BlockType, ClumpName, Score, to_usize};

use crate::keys::log_keys::Digest;
use crate::records::compression::{Codec, CompressionLevel, compress, compress_delta, looks_incompressible};
use crate::records::frame_table::{self, BLOCK_COUNT_MAX, FrameRow};
use crate::records::record_sizes::RECORD_HEADER_BYTES;

/// The largest goal for a clump or a frame. It bounds the memory of a clump that is packed.
const GOAL_BYTES_MAX: u32 = 2 << 20;

/// Codec and length.
pub(crate) const BODY_HEADER_BYTES: usize = 8;

/// The goal for the total size of a clump's blocks. Larger clumps compress better, and make the
/// read of a single block more expensive. `docs/decisions/0002-clump-grouping.md` has the
/// measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClumpBytes(u32);

impl ClumpBytes {
    /// Makes a goal between 4 KiB and 2 MiB; `None` for any other.
    #[must_use]
    pub fn new(bytes: u32) -> Option<Self> {
        (4 << 10..=GOAL_BYTES_MAX).contains(&bytes).then_some(Self(bytes))
    }

    /// Returns the goal in bytes.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }

    fn goal(self) -> usize {
        to_usize(self.0)
    }
}

impl Default for ClumpBytes {
    /// 1.5 MiB.
    fn default() -> Self {
        Self(3 << 19)
    }
}

/// The expected way of reading a clump's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// Many together. Compressible content stays in one piece, which is the smallest form.
    #[default]
    Whole,
    /// One by one, as in a disk image. The clump has frames, so that a read touches one frame only.
    Pieces(FrameBytes),
}

/// The goal for the total size of the blocks of a frame that is read by itself. The default is 32
/// KiB: `docs/decisions/0006-random-reads.md` and `0042-sizes-for-all-devices.md` have the
/// measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrameBytes(u32);

impl FrameBytes {
    /// Makes a goal between 512 bytes and 2 MiB; `None` for any other.
    #[must_use]
    pub fn new(bytes: u32) -> Option<Self> {
        (512..=GOAL_BYTES_MAX).contains(&bytes).then_some(Self(bytes))
    }

    /// Returns the goal in bytes.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl Default for FrameBytes {
    fn default() -> Self {
        Self(32 << 10)
    }
}

/// The goal for incompressible blocks outside of disk images. A larger frame would not make them
/// smaller, and a reader of one block reads little more. Disk images keep [`FrameBytes`], because
/// they are mostly restored in order, where small frames cost an eighth more processor time.
const LONELY_FRAME_BYTES: usize = 8 << 10;

/// A block is stored as a delta only if that takes at most this percentage of the whole block.
const DELTA_PERCENT_MAX: usize = 60;

/// Reserved for headers, table and gap, so that a record is seldom reallocated while it is made.
const ROOM_BYTES: usize = 4096;

/// A block with its name, as the log accepts it.
#[derive(Debug, Clone, Copy)]
pub struct NamedBlock<'a> {
    pub name: BlockName,
    /// The second digest, in a SHA-1 store. It shows a forged collision.
    pub digest: Option<Digest>,
    /// The bytes, at most [`BLOCK_BYTES_MAX`].
    pub bytes: &'a [u8],
    /// A block of the same type that differs little, if one is known. It must be in the log, and
    /// not as a delta.
    pub base: Option<BaseBlock<'a>>,
}

/// A block that another one may be stored as a delta of.
#[derive(Debug, Clone, Copy)]
pub struct BaseBlock<'a> {
    pub score: Score,
    pub bytes: &'a Bytes,
}

/// A block's row in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockRow {
    pub(crate) name: BlockName,
    pub(crate) digest: Option<Digest>,
    pub(crate) size: u32,
    /// The score of the block that it is stored as a delta of.
    pub(crate) base: Option<Score>,
}

/// Blocks that wait in memory to become a clump.
#[derive(Debug, Clone)]
pub struct ClumpDraft {
    clump_bytes: ClumpBytes,
    rows: Vec<BlockRow>,
    blocks: Vec<u8>,
    /// The blocks that some of its blocks, by their numbers, may be stored as deltas of.
    bases: BTreeMap<usize, (Score, Bytes)>,
}

impl ClumpDraft {
    /// Makes a draft without blocks.
    #[must_use]
    pub fn new(clump_bytes: ClumpBytes) -> Self {
        Self { clump_bytes, rows: Vec::new(), blocks: Vec::new(), bases: BTreeMap::new() }
    }

    /// Returns the goal for the total size of its blocks.
    #[must_use]
    pub fn goal_bytes(&self) -> usize {
        self.clump_bytes.goal()
    }

    /// Returns the draft and leaves an empty one.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.clump_bytes))
    }

    /// Adds a copy of a block, and returns its number in the clump.
    ///
    /// # Panics
    /// When the block is larger than [`BLOCK_BYTES_MAX`].
    pub fn push(&mut self, block: NamedBlock<'_>) -> usize {
        assert!(block.bytes.len() <= BLOCK_BYTES_MAX, "the store has checked the size");
        if self.blocks.capacity() == 0 {
            self.blocks.reserve(self.clump_bytes.goal().max(block.bytes.len()));
        }
        let number = self.rows.len();
        #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
        let size = block.bytes.len() as u32;
        self.rows.push(BlockRow { name: block.name, digest: block.digest, size, base: None });
        self.blocks.extend_from_slice(block.bytes);
        if let Some(base) = block.base {
            self.bases.insert(number, (base.score, base.bytes.clone()));
        }
        number
    }

    /// Returns true if the next block belongs in another clump.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.blocks.len() >= self.clump_bytes.goal() || self.rows.len() >= BLOCK_COUNT_MAX
    }

    /// Returns true if a block of this size should begin a new clump, because this one would exceed
    /// its goal.
    #[must_use]
    pub fn should_close_before(&self, block_bytes: usize) -> bool {
        !self.rows.is_empty() && self.blocks.len().saturating_add(block_bytes) > self.clump_bytes.goal()
    }

    /// Returns true if it has no blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Iterates over the names of its blocks in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = BlockName> + '_ {
        self.rows.iter().map(|row| row.name)
    }

    /// Returns the clump name, which all of its blocks share; `None` in a by-hash store.
    fn clump_name(&self) -> Option<ClumpName> {
        frame_table::clump_name(self.names().map(|name| name.score))
    }

    /// Returns the block with the number that [`push`](Self::push) returned; `None` if there is no
    /// such block.
    #[must_use]
    pub fn block(&self, ordinal: usize) -> Option<&[u8]> {
        let before = self.rows.get(..ordinal)?;
        let start: usize = before.iter().map(|row| to_usize(row.size)).sum();
        let size = to_usize(self.rows.get(ordinal)?.size);
        self.blocks.get(start..)?.get(..size)
    }

    /// Compresses the blocks. This is the expensive part of writing; it may run on any number of
    /// threads. Deltas come after all other blocks.
    #[must_use]
    pub fn pack(&self, level: CompressionLevel, framing: Framing) -> PackedClump {
        let deltas = self.deltas(level);
        if deltas.is_empty() {
            return self.pack_with(&[], level, framing);
        }
        let mut whole = Self::new(self.clump_bytes);
        let mut rest = self.blocks.as_slice();
        for (number, row) in self.rows.iter().enumerate() {
            let (block, others) = rest.split_at(to_usize(row.size));
            rest = others;
            if deltas.binary_search_by_key(&number, |delta| delta.number).is_err() {
                whole.rows.push(*row);
                whole.blocks.extend_from_slice(block);
            }
        }
        whole.pack_with(&deltas, level, framing)
    }

    /// Returns the blocks that are to be stored as deltas, in order.
    fn deltas(&self, level: CompressionLevel) -> Vec<PackedDelta> {
        let delta = |(number, (base, base_bytes)): (&usize, &(Score, Bytes))| {
            let row = *self.rows.get(*number)?;
            let piece = DraftPiece { rows: std::slice::from_ref(&row), blocks: self.block(*number)? };
            let mut content = Vec::new();
            piece.write_content(&mut content);
            let mut whole = Vec::new();
            compress(&content, level, &mut whole);
            let overhead = delta_overhead(base);
            let bytes_max = delta_bytes_max(whole.len()).checked_sub(overhead)?;
            let delta = compress_delta(&content, base_bytes, level, bytes_max)?;
            let row = BlockRow { base: Some(*base), ..row };
            Some(PackedDelta { number: *number, row, content_bytes: content.len(), delta })
        };
        self.bases.iter().filter_map(delta).collect()
    }

    /// Compresses the blocks, and appends deltas.
    fn pack_with(&self, deltas: &[PackedDelta], level: CompressionLevel, framing: Framing) -> PackedClump {
        let is_random = looks_incompressible(&self.blocks);
        let pieces = self.pieces(match framing {
            Framing::Pieces(frame) => to_usize(frame.0),
            // One piece would save only the table's rows of 32 bytes.
            Framing::Whole if is_random => LONELY_FRAME_BYTES,
            Framing::Whole => usize::MAX,
        });
        let clump = self.clump_name();
        let mut record = Vec::with_capacity(self.blocks.len().saturating_add(ROOM_BYTES));
        record.resize(RECORD_HEADER_BYTES, 0);
        let mut rows = self.rows.clone();
        rows.extend(deltas.iter().map(|delta| delta.row));
        let table_bytes = match pieces.as_slice() {
            // In a by-value store the table holds the names of the blocks, so every clump has one.
            [] | [_] if clump.is_none() && deltas.is_empty() => {
                record.resize(RECORD_HEADER_BYTES + BODY_HEADER_BYTES, 0);
                let piece = pieces.first().copied().unwrap_or_default();
                let (codec, content_bytes) = self.write_piece(piece, is_random, level, &mut record);
                let place = record.get_mut(RECORD_HEADER_BYTES..).unwrap_or_default();
                let words = [codec.to_number(), content_bytes].map(u32::to_le_bytes);
                place.iter_mut().zip(words.as_flattened()).for_each(|(to, from)| *to = *from);
                0
            }
            pieces => {
                let write = |piece: &DraftPiece<'_>, record: &mut Vec<u8>| {
                    self.write_piece(*piece, is_random, level, record)
                };
                write_frames(pieces, deltas, &rows, clump, &mut record, write)
            }
        };
        PackedClump { rows, record, table_bytes }
    }

    /// Cuts the draft into runs of blocks with a total size of about `goal`.
    fn pieces(&self, goal: usize) -> Vec<DraftPiece<'_>> {
        let mut pieces = Vec::new();
        let (mut rows, mut blocks) = (self.rows.as_slice(), self.blocks.as_slice());
        while !rows.is_empty() {
            let (mut count, mut bytes) = (0_usize, 0_usize);
            for row in rows {
                let with_it = bytes.saturating_add(to_usize(row.size));
                if count > 0 && with_it > goal {
                    break;
                }
                (count, bytes) = (count.saturating_add(1), with_it);
            }
            let (these, rest) = rows.split_at(count);
            let (their_blocks, other_blocks) = blocks.split_at(bytes);
            pieces.push(DraftPiece { rows: these, blocks: their_blocks });
            (rows, blocks) = (rest, other_blocks);
        }
        pieces
    }

    /// Appends the content of a piece, compressed if that pays. Returns the codec and the length of
    /// the content.
    fn write_piece(
        &self,
        piece: DraftPiece<'_>,
        is_random: bool,
        level: CompressionLevel,
        into: &mut Vec<u8>,
    ) -> (Codec, u32) {
        let content_bytes =
            piece.rows.len().saturating_mul(4).saturating_add(4).saturating_add(piece.blocks.len());
        // Content that is stored uncompressed is copied only once.
        let codec = if is_random {
            piece.write_content(into);
            Codec::Stored
        } else {
            let mut content = Vec::with_capacity(content_bytes);
            piece.write_content(&mut content);
            compress(&content, level, into)
        };
        (codec, u32::try_from(content_bytes).expect("CONTENT_BYTES_MAX bounds it"))
    }
}

/// Appends the table and the frames, those of deltas last, and returns the length of the table.
/// `rows` are those of all blocks in this order.
fn write_frames<'a>(
    pieces: &[DraftPiece<'a>],
    deltas: &[PackedDelta],
    rows: &[BlockRow],
    clump: Option<ClumpName>,
    record: &mut Vec<u8>,
    write_piece: impl Fn(&DraftPiece<'a>, &mut Vec<u8>) -> (Codec, u32),
) -> u32 {
    let frame_count = pieces.len().saturating_add(deltas.len());
    let table_bytes = frame_table::table_bytes(frame_count, rows.len(), clump);
    let table_end = record.len().saturating_add(table_bytes);
    record.resize(table_end, 0);
    let mut frames = Vec::with_capacity(frame_count);
    #[expect(clippy::cast_possible_truncation, reason = "CONTENT_BYTES_MAX bounds all of them")]
    {
        for piece in pieces {
            let start = record.len();
            let (codec, content_bytes) = write_piece(piece, record);
            let frame_bytes = record.len().saturating_sub(start) as u32;
            let block_count = piece.rows.len() as u32;
            frames.push(FrameRow { codec, content_bytes, frame_bytes, block_count, code: [0; 16] });
        }
        for delta in deltas {
            let start = record.len();
            record.extend_from_slice(delta.row.base.as_ref().map_or(&[], Score::as_bytes));
            record.extend_from_slice(&delta.delta);
            let frame_bytes = record.len().saturating_sub(start) as u32;
            let content_bytes = delta.content_bytes as u32;
            let codec = Codec::Delta;
            frames.push(FrameRow { codec, content_bytes, frame_bytes, block_count: 1, code: [0; 16] });
        }
    }
    let scores: Vec<_> = rows.iter().map(|row| row.name.score).collect();
    let table = frame_table::encode(&frames, scores.into_iter());
    if let Some(place) = record.get_mut(RECORD_HEADER_BYTES..table_end) {
        place.copy_from_slice(&table);
    }
    u32::try_from(table_bytes).expect("a clump has at most BLOCK_COUNT_MAX blocks")
}

/// The bytes that a delta takes beside its frame's content: its row in the table, and the score of
/// its base in the frame and in a directory page.
fn delta_overhead(base: &Score) -> usize {
    frame_table::ROW_BYTES.saturating_add(base.as_bytes().len().saturating_mul(2))
}

/// Returns the most bytes that a delta may take if the whole block takes `whole_bytes`.
/// `docs/decisions/0041-deltas-pay-for-databases.md` has the measurement.
fn delta_bytes_max(whole_bytes: usize) -> usize {
    whole_bytes.saturating_mul(DELTA_PERCENT_MAX) / 100
}

/// A block that is stored as a delta.
struct PackedDelta {
    /// Its number in the draft.
    number: usize,
    row: BlockRow,
    content_bytes: usize,
    /// The zstd frame.
    delta: Vec<u8>,
}

/// Neighbouring blocks of a draft.
#[derive(Debug, Clone, Copy, Default)]
struct DraftPiece<'a> {
    rows: &'a [BlockRow],
    blocks: &'a [u8],
}

impl DraftPiece<'_> {
    fn write_content(&self, into: &mut Vec<u8>) {
        #[expect(clippy::cast_possible_truncation, reason = "is_full bounds the count")]
        into.extend_from_slice(&(self.rows.len() as u32).to_le_bytes());
        for row in self.rows {
            into.extend_from_slice(&size_and_type(row.size, row.name.block_type).to_le_bytes());
        }
        into.extend_from_slice(self.blocks);
    }
}

/// A clump ready to be encrypted and appended.
#[derive(Debug, Clone)]
pub struct PackedClump {
    pub(crate) rows: Vec<BlockRow>,
    /// Space for the record's header, followed by the body.
    pub(crate) record: Vec<u8>,
    /// The length of the frame table at the beginning of the body; 0 if the clump is not framed.
    pub(crate) table_bytes: u32,
}

impl PackedClump {
    /// Returns the length of its record in bytes, without the gap after it.
    #[must_use]
    pub fn record_bytes(&self) -> u64 {
        self.record.len() as u64
    }

    /// Returns the names of its blocks, in order.
    pub fn names(&self) -> impl Iterator<Item = &BlockName> {
        self.rows.iter().map(|row| &row.name)
    }

    /// Returns the names of its blocks that are stored whole, in order.
    pub fn whole_names(&self) -> impl Iterator<Item = &BlockName> {
        self.rows.iter().filter(|row| row.base.is_none()).map(|row| &row.name)
    }

    /// Returns true if a block is stored as a delta.
    #[must_use]
    pub fn has_deltas(&self) -> bool {
        self.rows.iter().any(|row| row.base.is_some())
    }
}

/// Size in the lower 24 bits, type in the upper 8.
pub(crate) fn size_and_type(size: u32, block_type: BlockType) -> u32 {
    size | u32::from(block_type.to_byte()) << 24
}

/// Decodes such a word; `None` if the size or the type is not valid.
pub(crate) fn from_size_and_type(word: u32) -> Option<(u32, BlockType)> {
    let size = word & 0x00ff_ffff;
    let block_type = BlockType::from_byte(word.to_le_bytes()[3])?;
    (to_usize(size) <= BLOCK_BYTES_MAX).then_some((size, block_type))
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use varve_block::Score;
    use varve_world::{Random, SeededRandom};

    use super::*;
    use crate::records::clump_content::{DeltaFrame, FrameContent, OpenClumpError};
    use crate::records::frame_table::FrameTable;
    use crate::records::granule::Granule;
    use crate::records::record_header::{RecordHeader, RecordKind};

    fn draft(blocks: &[(BlockType, Vec<u8>)]) -> ClumpDraft {
        let mut draft = ClumpDraft::new(ClumpBytes::default());
        for (block_type, bytes) in blocks {
            let name = BlockName { score: Score::from([bytes.len() as u8; 32]), block_type: *block_type };
            draft.push(NamedBlock { name, digest: None, bytes, base: None });
        }
        draft
    }

    fn body_of(draft: &ClumpDraft) -> Vec<u8> {
        draft
            .pack(CompressionLevel::default(), Framing::Pieces(FrameBytes::default()))
            .record
            .split_off(RECORD_HEADER_BYTES)
    }

    /// Returns the blocks of a packed draft and the number of its frames.
    fn opened(draft: &ClumpDraft) -> (Vec<(BlockType, Bytes)>, usize) {
        opened_as(draft, Framing::Pieces(FrameBytes::default()))
    }

    fn opened_as(draft: &ClumpDraft, framing: Framing) -> (Vec<(BlockType, Bytes)>, usize) {
        let packed = draft.pack(CompressionLevel::default(), framing);
        let body = packed.record[RECORD_HEADER_BYTES..].to_vec();
        if packed.table_bytes == 0 {
            return (FrameContent::of_body(body).unwrap().blocks().collect(), 1);
        }
        let header = RecordHeader {
            kind: RecordKind::Clump,
            body_bytes: u32::try_from(body.len()).unwrap(),
            counter: 0,
            session: [0; 16],
            granule: Granule(4),
            table_bytes: packed.table_bytes,
            code: [0; 16],
        };
        let table = FrameTable::decode(&body[..to_usize(packed.table_bytes)], &header).unwrap();
        let frame = |number| {
            let place = table.place(number).unwrap();
            let bytes = body[to_usize(place.start)..to_usize(place.end)].to_vec();
            let row = table.row(number).unwrap();
            if row.codec != Codec::Delta {
                return FrameContent::of_frame(row, bytes).unwrap();
            }
            let delta = DeltaFrame::decode(bytes, 32).unwrap();
            let mut bases = draft.bases.values();
            let (_, base) = bases.find(|(score, _)| *score == delta.base).unwrap();
            let base = base.clone();
            delta.open(row, &base).unwrap()
        };
        let blocks = (0..table.frame_count()).flat_map(|number| frame(number).blocks().collect::<Vec<_>>());
        (blocks.collect(), table.frame_count())
    }

    fn any_block() -> impl Strategy<Value = (BlockType, Vec<u8>)> {
        let block_type =
            (0_u8..=3, 0_u8..32).prop_map(|(kind, depth)| BlockType::from_byte(kind << 5 | depth).unwrap());
        let bytes = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..600),
            (any::<u8>(), 0..9000_usize).prop_map(|(byte, length)| vec![byte; length]),
        ];
        (block_type, bytes)
    }

    proptest! {
        #[test]
        fn blocks_come_back_from_a_clump(blocks in proptest::collection::vec(any_block(), 0..40)) {
            let draft = draft(&blocks);
            for (ordinal, (_, bytes)) in blocks.iter().enumerate() {
                prop_assert_eq!(draft.block(ordinal), Some(bytes.as_slice()));
            }
            prop_assert_eq!(draft.block(blocks.len()), None);
            let (found, _) = opened(&draft);
            let found: Vec<_> = found.iter().map(|(block_type, bytes)| (*block_type, bytes.to_vec())).collect();
            prop_assert_eq!(found, blocks);
        }

        #[test]
        fn deltas_come_back_after_all_other_blocks(
            // Of each block: its seed and length, the length of the change, and whether a base is
            // known.
            blocks in proptest::collection::vec((0_u64..20, 0..5000_usize, 0..3000_usize, any::<bool>()), 0..30),
            in_pieces in any::<bool>(),
        ) {
            let mut draft = ClumpDraft::new(ClumpBytes::default());
            let mut expected = Vec::new();
            for (number, (seed, length, changed, has_base)) in blocks.into_iter().enumerate() {
                let mut base = vec![0; length];
                SeededRandom::new(seed).fill(&mut base).unwrap();
                let mut bytes = base.clone();
                let end = changed.min(length);
                SeededRandom::new(100 + number as u64).fill(&mut bytes[..end]).unwrap();
                let (score, base) = (Score::from(*blake3::hash(&base).as_bytes()), Bytes::from(base));
                let name = BlockName { score: Score::from([number as u8; 32]), block_type: BlockType::DATA };
                let base = has_base.then_some(BaseBlock { score, bytes: &base });
                draft.push(NamedBlock { name, digest: None, bytes: &bytes, base });
                expected.push((name, bytes, length > 1000 && changed * 3 < length && has_base));
            }
            let pieces = Framing::Pieces(FrameBytes::default());
            let framing = if in_pieces { pieces } else { Framing::Whole };
            let packed = draft.pack(CompressionLevel::default(), framing);
            let (found, _) = opened_as(&draft, framing);
            prop_assert_eq!(packed.rows.len(), expected.len());
            prop_assert!(packed.rows.is_sorted_by_key(|row| row.base.is_some()));
            for (row, (_, bytes)) in packed.rows.iter().zip(&found) {
                let (_, wanted, must_be_delta) = expected.iter().find(|(name, ..)| *name == row.name).unwrap();
                prop_assert_eq!(bytes, wanted);
                prop_assert!(row.base.is_some() || !must_be_delta);
            }
        }

        #[test]
        fn no_body_panics(body in proptest::collection::vec(any::<u8>(), 0..300), codec in 0_u8..4) {
            let body = [&[codec, 0, 0, 0], body.as_slice()].concat();
            drop(FrameContent::of_body(body));
        }
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let different: Vec<u8> = (0..30_u8).map(|n| n.wrapping_mul(67) ^ 0x5a).collect();
        let (one, other) = (different[..10].to_vec(), different[10..].to_vec());
        let good = draft(&[(BlockType::DATA, one), (BlockType::DIRECTORY, other)]);
        let body = body_of(&good);
        assert_eq!(body[0], 0, "so short a clump is stored");
        for (offset, part) in [(0, "codec"), (4, "length"), (8, "table of blocks"), (12, "table of blocks")] {
            let mut bad = body.clone();
            bad[offset] ^= 0x40;
            assert_eq!(
                FrameContent::of_body(bad).unwrap_err(),
                OpenClumpError::Malformed { part },
                "offset {offset}"
            );
        }
        for length in 0..body.len() {
            assert!(FrameContent::of_body(body[..length].to_vec()).is_err(), "cut to {length}");
        }
    }

    #[test]
    fn large_clumps_are_framed() {
        let text =
            |number: usize| format!("block {number}, ").bytes().cycle().take(16_384).collect::<Vec<_>>();
        let random = |number: usize| {
            let mut bytes = vec![0; 16_384];
            SeededRandom::new(number as u64).fill(&mut bytes).unwrap();
            bytes
        };
        let cases = [
            (&text as &dyn Fn(usize) -> Vec<u8>, Framing::Pieces(FrameBytes::default()), 32),
            (&random, Framing::Pieces(FrameBytes::default()), 32),
            (&random, Framing::Whole, 64),
            (&text, Framing::Whole, 1),
        ];
        for (content, framing, frame_count) in cases {
            let blocks: Vec<_> = (0..64).map(|number| (BlockType::DATA, content(number))).collect();
            let (found, frames) = opened_as(&draft(&blocks), framing);
            assert_eq!(frames, frame_count, "{framing:?}");
            let found: Vec<_> =
                found.iter().map(|(block_type, bytes)| (*block_type, bytes.to_vec())).collect();
            assert_eq!(found, blocks);
        }
        // A block that is larger than a frame has a frame of its own. A few small blocks make no
        // frames.
        let (_, frames) = opened(&draft(&[(BlockType::DATA, text(1)), (BlockType::DATA, vec![7; 1 << 20])]));
        assert_eq!(frames, 2);
        assert_eq!(opened(&draft(&[(BlockType::DATA, text(1)), (BlockType::DATA, text(2))])).1, 1);
    }

    #[test]
    fn a_draft_fills_up() {
        let mut draft = ClumpDraft::new(ClumpBytes::default());
        assert!(draft.is_empty() && !draft.should_close_before(BLOCK_BYTES_MAX));
        let name = BlockName { score: Score::from([0; 32]), block_type: BlockType::DATA };
        while !draft.is_full() {
            draft.push(NamedBlock { name, digest: None, bytes: &[7; 8192], base: None });
        }
        assert_eq!(draft.names().len() * 8192, ClumpBytes::default().goal());
        assert!(draft.should_close_before(1));
    }
}
