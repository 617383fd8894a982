//! Clumps: from blocks to the body of a record and back. Pure functions over bytes; nothing here does I/O.
//!
//! The body, once decrypted:
//!
//! | offset | bytes | field         | meaning                                                                        |
//! |-------:|------:|---------------|--------------------------------------------------------------------------------|
//! |      0 |     4 | codec         | 0: the content as it is; 1: one zstd frame                                     |
//! |      4 |     4 | content_bytes | length of the content, decompressed                                            |
//! |      8 |       | content       |                                                                                |
//!
//! The content is a count, a word for each block (its size and type), and the blocks one after the other.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use bytes::Bytes;
use varve_block::{BLOCK_BYTES_MAX, BlockName, BlockType};

use crate::compress::{Codec, CompressionLevel, DecompressError, compress, decompress, looks_incompressible};
use crate::decode::{Decoder, to_usize};
use crate::keys::Digest;
use crate::record::RECORD_HEADER_BYTES;

/// Codec and length.
const BODY_HEADER_BYTES: usize = 8;

/// How large a clump's blocks should become, together: larger clumps compress better, and cost more to read one block of.
/// `docs/decisions/0002-clump-grouping.md` has the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClumpBytes(u32);

impl ClumpBytes {
    /// A goal between 4 KiB and 2 MiB; `None` for any other.
    #[must_use]
    pub fn new(bytes: u32) -> Option<Self> {
        (4 << 10..=2 << 20).contains(&bytes).then_some(Self(bytes))
    }

    /// The goal in bytes.
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

/// The longest content: a clump that was just below its goal, and one block of the largest size.
const CONTENT_BYTES_MAX: u32 = 4 << 20;

/// The most blocks in a clump, so that many tiny ones still make a table of bounded size.
const BLOCK_COUNT_MAX: usize = 4096;

/// A block with its name, as the log takes it.
#[derive(Debug, Clone, Copy)]
pub struct NamedBlock<'a> {
    /// Its name.
    pub name: BlockName,
    /// Its second digest, in stores that keep them.
    pub digest: Option<Digest>,
    /// Its bytes, at most [`BLOCK_BYTES_MAX`].
    pub bytes: &'a [u8],
}

/// What the directory says of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockRow {
    pub(crate) name: BlockName,
    pub(crate) digest: Option<Digest>,
    pub(crate) size: u32,
}

/// Blocks that wait to become a clump.
#[derive(Debug, Clone)]
pub struct ClumpDraft {
    clump_bytes: ClumpBytes,
    rows: Vec<BlockRow>,
    blocks: Vec<u8>,
}

impl ClumpDraft {
    /// A draft without blocks.
    #[must_use]
    pub fn new(clump_bytes: ClumpBytes) -> Self {
        Self { clump_bytes, rows: Vec::new(), blocks: Vec::new() }
    }

    /// Takes what is in it, and leaves it empty.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.clump_bytes))
    }

    /// Adds a copy of a block, and says which block of the clump it is.
    ///
    /// # Panics
    /// When the block is larger than a block may be.
    pub fn push(&mut self, block: NamedBlock<'_>) -> usize {
        assert!(block.bytes.len() <= BLOCK_BYTES_MAX, "the store has checked the size");
        if self.blocks.capacity() == 0 {
            self.blocks.reserve(self.clump_bytes.goal().max(block.bytes.len()));
        }
        #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
        self.rows.push(BlockRow { name: block.name, digest: block.digest, size: block.bytes.len() as u32 });
        self.blocks.extend_from_slice(block.bytes);
        self.rows.len().saturating_sub(1)
    }

    /// Whether another block belongs in another clump.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.blocks.len() >= self.clump_bytes.goal() || self.rows.len() >= BLOCK_COUNT_MAX
    }

    /// Whether a block of this size should begin a new clump rather than make this one much larger than its goal.
    #[must_use]
    pub fn should_close_before(&self, block_bytes: usize) -> bool {
        !self.rows.is_empty() && self.blocks.len().saturating_add(block_bytes) > self.clump_bytes.goal()
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The names of its blocks, in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = BlockName> + '_ {
        self.rows.iter().map(|row| row.name)
    }

    /// A block of it, by the number that [`push`](Self::push) gave; `None` where there is no such block.
    #[must_use]
    pub fn block(&self, ordinal: usize) -> Option<&[u8]> {
        let before = self.rows.get(..ordinal)?;
        let start: usize = before.iter().map(|row| to_usize(row.size)).sum();
        let size = to_usize(self.rows.get(ordinal)?.size);
        self.blocks.get(start..)?.get(..size)
    }

    /// Compresses it. The costly part of writing: run it on as many threads as there are.
    #[must_use]
    pub fn pack(&self, level: CompressionLevel) -> PackedClump {
        let content_bytes =
            self.rows.len().saturating_mul(4).saturating_add(4).saturating_add(self.blocks.len());
        let mut record =
            Vec::with_capacity(content_bytes.saturating_add(RECORD_HEADER_BYTES + BODY_HEADER_BYTES + 128));
        record.resize(RECORD_HEADER_BYTES + 4, 0);
        #[expect(clippy::cast_possible_truncation, reason = "CONTENT_BYTES_MAX bounds it")]
        record.extend_from_slice(&(content_bytes as u32).to_le_bytes());
        // Looked at before the content is put together: what is stored as it is, is copied once.
        let codec = if looks_incompressible(&self.blocks) {
            self.write_content(&mut record);
            Codec::Stored
        } else {
            let mut content = Vec::with_capacity(content_bytes);
            self.write_content(&mut content);
            compress(&content, level, &mut record)
        };
        if let Some(place) = record.get_mut(RECORD_HEADER_BYTES..).and_then(<[u8]>::first_chunk_mut) {
            *place = codec.to_number().to_le_bytes();
        }
        PackedClump { rows: self.rows.clone(), record }
    }

    fn write_content(&self, into: &mut Vec<u8>) {
        #[expect(clippy::cast_possible_truncation, reason = "is_full bounds the count")]
        into.extend_from_slice(&(self.rows.len() as u32).to_le_bytes());
        for row in &self.rows {
            into.extend_from_slice(&size_and_type(row.size, row.name.block_type).to_le_bytes());
        }
        into.extend_from_slice(&self.blocks);
    }
}

/// A clump ready to be encrypted and appended.
#[derive(Debug, Clone)]
pub struct PackedClump {
    pub(crate) rows: Vec<BlockRow>,
    /// Room for the record's header, and the body.
    pub(crate) record: Vec<u8>,
}

/// Size in the lower 24 bits, type in the upper 8.
pub(crate) fn size_and_type(size: u32, block_type: BlockType) -> u32 {
    size | u32::from(block_type.to_byte()) << 24
}

/// The size and type that a word stands for; `None` if there is no such block.
pub(crate) fn from_size_and_type(word: u32) -> Option<(u32, BlockType)> {
    let size = word & 0x00ff_ffff;
    let block_type = BlockType::from_byte(word.to_le_bytes()[3])?;
    (to_usize(size) <= BLOCK_BYTES_MAX).then_some((size, block_type))
}

/// Why the authenticated body of a clump could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenClumpError {
    /// A length or a number that no writer of this version writes.
    #[error("its {part} makes no sense")]
    Malformed {
        /// Which part.
        part: &'static str,
    },
    /// It does not decompress.
    #[error("it does not decompress")]
    Decompress(#[from] DecompressError),
}

/// The blocks of a clump, authenticated and decompressed.
#[derive(Debug, Clone)]
pub struct ClumpContent {
    content: Bytes,
    blocks: Vec<ContentBlock>,
}

#[derive(Debug, Clone, Copy)]
struct ContentBlock {
    block_type: BlockType,
    start: u32,
    size: u32,
}

impl ClumpContent {
    /// Reads a body that has been authenticated and decrypted.
    pub(crate) fn open(body: Vec<u8>) -> Result<Self, OpenClumpError> {
        let malformed = |part| OpenClumpError::Malformed { part };
        let mut decoder = Decoder(&body);
        let codec = decoder.u32().and_then(Codec::from_number).ok_or(malformed("codec"))?;
        let content_bytes =
            decoder.u32().filter(|bytes| *bytes <= CONTENT_BYTES_MAX).ok_or(malformed("length"))?;
        let content = match codec {
            Codec::Stored => Bytes::from(body).slice(8..),
            Codec::Zstd => Bytes::from(decompress(decoder.0, to_usize(content_bytes))?),
        };
        if content.len() != to_usize(content_bytes) {
            return Err(malformed("length"));
        }
        let blocks = Self::table(&content).ok_or(malformed("table of blocks"))?;
        Ok(Self { content, blocks })
    }

    fn table(content: &[u8]) -> Option<Vec<ContentBlock>> {
        let mut decoder = Decoder(content);
        let block_count = to_usize(decoder.u32()?);
        let words = decoder.u32s(block_count)?;
        let mut start = u32::try_from(content.len().checked_sub(decoder.0.len())?).ok()?;
        let mut blocks = Vec::with_capacity(block_count);
        for word in words {
            let (size, block_type) = from_size_and_type(word)?;
            blocks.push(ContentBlock { block_type, start, size });
            start = start.checked_add(size)?;
        }
        (to_usize(start) == content.len()).then_some(blocks)
    }

    /// Its blocks in order. The bytes are shared with the clump, not copied.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = (BlockType, Bytes)> + '_ {
        self.blocks.iter().map(|block| {
            let start = to_usize(block.start);
            (block.block_type, self.content.slice(start..start.saturating_add(to_usize(block.size))))
        })
    }

    /// How much memory it holds on to, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.content.len().saturating_add(self.blocks.len().saturating_mul(size_of::<ContentBlock>()))
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]
mod tests {
    use proptest::prelude::*;
    use varve_block::Score;

    use super::*;

    fn draft(blocks: &[(BlockType, Vec<u8>)]) -> ClumpDraft {
        let mut draft = ClumpDraft::new(ClumpBytes::default());
        for (block_type, bytes) in blocks {
            let name = BlockName { score: Score::from([bytes.len() as u8; 32]), block_type: *block_type };
            draft.push(NamedBlock { name, digest: None, bytes });
        }
        draft
    }

    fn body_of(draft: &ClumpDraft) -> Vec<u8> {
        draft.pack(CompressionLevel::default()).record.split_off(RECORD_HEADER_BYTES)
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
            let content = ClumpContent::open(body_of(&draft)).unwrap();
            let found: Vec<_> = content.blocks().map(|(block_type, bytes)| (block_type, bytes.to_vec())).collect();
            prop_assert_eq!(found, blocks);
        }

        #[test]
        fn no_body_panics(body in proptest::collection::vec(any::<u8>(), 0..300), codec in 0_u8..3) {
            let body = [&[codec, 0, 0, 0], body.as_slice()].concat();
            drop(ClumpContent::open(body));
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
                ClumpContent::open(bad).unwrap_err(),
                OpenClumpError::Malformed { part },
                "offset {offset}"
            );
        }
        for length in 0..body.len() {
            assert!(ClumpContent::open(body[..length].to_vec()).is_err(), "cut to {length}");
        }
    }

    #[test]
    fn a_draft_fills_up() {
        let mut draft = ClumpDraft::new(ClumpBytes::default());
        assert!(draft.is_empty() && !draft.should_close_before(BLOCK_BYTES_MAX));
        let name = BlockName { score: Score::from([0; 32]), block_type: BlockType::DATA };
        while !draft.is_full() {
            draft.push(NamedBlock { name, digest: None, bytes: &[7; 8192] });
        }
        assert_eq!(draft.names().len() * 8192, ClumpBytes::default().goal());
        assert!(draft.should_close_before(1));
    }
}
