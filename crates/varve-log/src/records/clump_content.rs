//! The content of a clump: from an authenticated and decrypted body or frame back to blocks.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use bytes::Bytes;
use varve_block::{BlockType, LittleEndian, Score, to_usize};

use crate::records::clump::{BODY_HEADER_BYTES, from_size_and_type};
use crate::records::compression::{Codec, DecompressError, decompress, decompress_delta};
use crate::records::field_reader::u32s;
use crate::records::frame_table::{CONTENT_BYTES_MAX, FrameRow};

/// The reason why the authenticated body of a clump could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenClumpError {
    /// A length or a number is not valid in this version.
    #[error("its {part} is invalid")]
    Malformed { part: &'static str },
    /// The content does not decompress.
    #[error("it cannot be decompressed")]
    Decompress(#[from] DecompressError),
}

/// The blocks of a frame, authenticated and decompressed. A clump that is not framed counts as one
/// frame.
#[derive(Debug, Clone)]
pub struct FrameContent {
    content: Bytes,
    blocks: Vec<ContentBlock>,
    base: Option<Score>,
}

/// The frame of a delta, authenticated and decrypted.
pub(crate) struct DeltaFrame {
    /// The score of the block that it is a delta of.
    pub(crate) base: Score,
    delta: Bytes,
}

impl DeltaFrame {
    /// Parses a frame in a store with scores of this width.
    pub(crate) fn decode(frame: Vec<u8>, score_bytes: usize) -> Result<Self, OpenClumpError> {
        let malformed = OpenClumpError::Malformed { part: "base of a delta" };
        let base = frame.get(..score_bytes).and_then(|bytes| Score::try_from(bytes).ok());
        let base = base.ok_or(malformed)?;
        Ok(Self { base, delta: Bytes::from(frame).slice(score_bytes..) })
    }

    /// Returns the content. `row` is the frame's row in the table, and `base` the bytes of the
    /// block that it is a delta of.
    pub(crate) fn open(self, row: &FrameRow, base: &[u8]) -> Result<FrameContent, OpenClumpError> {
        let content = decompress_delta(&self.delta, base, to_usize(row.content_bytes))?;
        let read = FrameContent::parse(Bytes::from(content), row.content_bytes)?;
        FrameContent { base: Some(self.base), ..read }.with_count_of(row)
    }
}

#[derive(Debug, Clone, Copy)]
struct ContentBlock {
    block_type: BlockType,
    start: u32,
    size: u32,
}

impl FrameContent {
    /// Reads the body of a clump that is not framed.
    pub(crate) fn of_body(body: Vec<u8>) -> Result<Self, OpenClumpError> {
        let malformed = |part| OpenClumpError::Malformed { part };
        let mut decoder = LittleEndian::new(&body);
        let codec = decoder.u32().and_then(Codec::of_whole).ok_or(malformed("codec"))?;
        let content_bytes =
            decoder.u32().filter(|bytes| *bytes <= CONTENT_BYTES_MAX).ok_or(malformed("length"))?;
        Self::new(codec, Bytes::from(body).slice(BODY_HEADER_BYTES..), content_bytes)
    }

    /// Reads a frame that is no delta. `row` is its row in the table.
    pub(crate) fn of_frame(row: &FrameRow, frame: Vec<u8>) -> Result<Self, OpenClumpError> {
        Self::new(row.codec, Bytes::from(frame), row.content_bytes)?.with_count_of(row)
    }

    fn with_count_of(self, row: &FrameRow) -> Result<Self, OpenClumpError> {
        if self.blocks.len() == to_usize(row.block_count) {
            Ok(self)
        } else {
            Err(OpenClumpError::Malformed { part: "count of blocks" })
        }
    }

    /// Decompresses and parses a content. The caller has bounded `content_bytes`.
    fn new(codec: Codec, stored: Bytes, content_bytes: u32) -> Result<Self, OpenClumpError> {
        let content = match codec {
            Codec::Stored => stored,
            Codec::Zstd => Bytes::from(decompress(&stored, to_usize(content_bytes))?),
            Codec::Delta => return Err(OpenClumpError::Malformed { part: "codec" }),
        };
        Self::parse(content, content_bytes)
    }

    fn parse(content: Bytes, content_bytes: u32) -> Result<Self, OpenClumpError> {
        let malformed = |part| OpenClumpError::Malformed { part };
        if content.len() != to_usize(content_bytes) {
            return Err(malformed("length"));
        }
        let blocks = Self::table(&content).ok_or(malformed("table of blocks"))?;
        Ok(Self { content, blocks, base: None })
    }

    fn table(content: &[u8]) -> Option<Vec<ContentBlock>> {
        let mut decoder = LittleEndian::new(content);
        let block_count = to_usize(decoder.u32()?);
        let words = u32s(&mut decoder, block_count)?;
        let mut start = u32::try_from(content.len().checked_sub(decoder.left().len())?).ok()?;
        let mut blocks = Vec::with_capacity(block_count);
        for word in words {
            let (size, block_type) = from_size_and_type(word)?;
            blocks.push(ContentBlock { block_type, start, size });
            start = start.checked_add(size)?;
        }
        (to_usize(start) == content.len()).then_some(blocks)
    }

    /// Returns the score of the block that the only block of this frame is stored as a delta of.
    /// `None` if the frame is no delta.
    #[must_use]
    pub fn base(&self) -> Option<Score> {
        self.base
    }

    /// Iterates over the blocks in order. The bytes are shared with the frame, not copied.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = (BlockType, Bytes)> + '_ {
        self.blocks.iter().map(|block| {
            let start = to_usize(block.start);
            (block.block_type, self.content.slice(start..start.saturating_add(to_usize(block.size))))
        })
    }

    /// Returns the memory that it holds, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.content.len().saturating_add(self.blocks.len().saturating_mul(size_of::<ContentBlock>()))
    }
}

/// All blocks of a clump.
#[derive(Debug, Clone)]
pub struct ClumpContent {
    frames: Vec<FrameContent>,
}

impl ClumpContent {
    pub(crate) fn new(frames: Vec<FrameContent>) -> Self {
        Self { frames }
    }

    /// Iterates over the blocks in order. The bytes are shared with the clump, not copied.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockType, Bytes)> + '_ {
        self.frames.iter().flat_map(FrameContent::blocks)
    }

    /// Iterates over the bases of the blocks in order; `None` for a block that is no delta.
    pub fn bases(&self) -> impl Iterator<Item = Option<Score>> + '_ {
        self.frames.iter().flat_map(|frame| std::iter::repeat_n(frame.base, frame.blocks.len()))
    }

    /// Returns the number of blocks.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.frames.iter().map(|frame| frame.blocks.len()).sum()
    }
}
