//! Directory pages: the names of the blocks in the clumps between one page and the next.
//!
//! The position in `durable` is the page's *durable mark*. A page that names no block is written
//! only for the sake of its mark, or of its ledger.
//!
//! The body, once decrypted:
//!
//! | offset | bytes | field         | meaning                                                                        |
//! |-------:|------:|---------------|--------------------------------------------------------------------------------|
//! |      0 |     4 | clump_count   |                                                                                |
//! |      4 |     4 | block_count   |                                                                                |
//! |      8 |     4 | durable       | the arena is known to be durable up to here, in granules                       |
//! |     12 |     2 | score_bytes   | 32, 20, or 24 in a by-value store                                              |
//! |     14 |     2 | digest_bytes  | 0, or 16 in a SHA-1 store                                                      |
//! |     16 |     2 | codec         | of the table: 0 as it is, 1 one zstd frame                                     |
//! |     18 |     2 | delta_count   | the number of blocks that are stored as deltas; 0 in arenas before version 4   |
//! |     20 |     4 | table_bytes   | length of the table, decompressed                                              |
//! |     24 |     8 | ledger_count  | the number of seals that the ledger code covers                                |
//! |     32 |    32 | ledger_code   | covers their seals                                                             |
//! |     64 |       | scores        | `block_count` scores, in the order of the blocks in the clumps                 |
//! |        |       | digests       | `block_count` second digests                                                   |
//! |        |       | codes         | the code of each clump's header, 16 bytes each                                 |
//! |        |       | bases         | `delta_count` scores, of the blocks that the deltas need                       |
//! |        |       | table         | the rest of the body                                                           |
//!
//! The table has five columns: the clumps' granules, their body lengths, their block counts, each
//! block's size and type, and the numbers of the blocks that are deltas, counted from 0 in the
//! page. Scores do not compress. The table, in columns, compresses to almost nothing.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;
use std::sync::OnceLock;

use varve_block::{BlockName, BlockType, LittleEndian, PLACED_SCORE_BYTES, SHA1_BYTES, Score, to_usize};

use crate::keys::cipher::CODE_BYTES;
use crate::keys::log_keys::{DIGEST_BYTES, Digest};
use crate::records::clump::{BlockRow, from_size_and_type, size_and_type};
use crate::records::compression::{Codec, CompressionLevel, DecompressError, compress, decompress};
use crate::records::field_reader::u32s;
use crate::records::granule::Granule;
use crate::records::key_buckets::{Buckets, SCAN_MAX};
use crate::records::ledger::Ledger;
use crate::records::record_header::record_bytes;
use crate::records::record_sizes::EMPTY_PAGE_BYTES;

/// A page is written when this many blocks wait for one.
pub(crate) const PAGE_BLOCKS_GOAL: usize = 4096;

/// The most blocks that a page may name. Enough for the waiting blocks and one clump with the most
/// blocks.
const BLOCK_COUNT_MAX: usize = 16_384;

const HEADER_BYTES: usize = EMPTY_PAGE_BYTES as usize;

/// A clump's row in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClumpRow {
    pub granule: Granule,
    /// The length of the clump's body in bytes.
    pub body_bytes: u32,
    pub block_count: u32,
    /// The code of the clump's header. The page authenticates the clump by it.
    pub code: [u8; CODE_BYTES],
}

impl ClumpRow {
    /// Returns the offset in the arena at which the next record begins, in bytes.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.granule.byte_offset().saturating_add(record_bytes(self.body_bytes))
    }
}

/// A block's row in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageBlock {
    pub name: BlockName,
    /// The second digest, in a SHA-1 store.
    pub digest: Option<Digest>,
    /// The size in bytes.
    pub size: u32,
    /// The place of its clump.
    pub granule: Granule,
    /// The number of the block in its clump.
    pub ordinal: u32,
    /// The score of the data leaf that it is stored as a delta of.
    pub base: Option<Score>,
}

impl PageBlock {
    /// Returns the name of the block that it is stored as a delta of.
    #[must_use]
    pub fn base_name(&self) -> Option<BlockName> {
        Some(BlockName { score: self.base?, block_type: BlockType::DATA })
    }
}

/// The names of some clumps' blocks, authenticated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectoryPage {
    clumps: Vec<ClumpRow>,
    /// The number of each clump's first block among all of the page's blocks, and one more entry
    /// for the end.
    first_blocks: Vec<u32>,
    score_bytes: usize,
    /// The scores of all blocks, concatenated; likewise the digests.
    scores: Vec<u8>,
    digests: Vec<u8>,
    /// The size and type of each block.
    words: Vec<u32>,
    /// The numbers of the blocks that are stored as deltas, in ascending order.
    deltas: Vec<u32>,
    /// The scores of their bases, concatenated.
    bases: Vec<u8>,
    by_score: ByScore,
    durable: Granule,
    ledger: Ledger,
}

/// An index of the scores. It is built at the first search in a large clump or in the whole page.
/// It follows from the scores, so equality of pages ignores it.
#[derive(Debug, Clone, Default)]
struct ByScore(OnceLock<Box<Buckets>>);

impl PartialEq for ByScore {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ByScore {}

/// The reason why the authenticated body of a page could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryPageError {
    /// A length or a number is not valid in this version.
    #[error("its {part} is invalid")]
    Malformed { part: &'static str },
    /// The table does not decompress.
    #[error("its table cannot be decompressed")]
    Decompress(#[from] DecompressError),
}

impl DirectoryPage {
    pub(crate) fn new(score_bytes: usize) -> Self {
        Self { score_bytes, first_blocks: vec![0], ..Self::default() }
    }

    /// Adds a clump that has been appended.
    pub(crate) fn push(
        &mut self,
        granule: Granule,
        body_bytes: u32,
        code: [u8; CODE_BYTES],
        rows: &[BlockRow],
    ) {
        self.by_score = ByScore::default();
        for row in rows {
            self.scores.extend_from_slice(row.name.score.as_bytes());
            self.digests.extend_from_slice(row.digest.as_ref().map_or(&[], |digest| digest.as_slice()));
            if let Some(base) = &row.base {
                self.deltas.push(u32::try_from(self.words.len()).expect("BLOCK_COUNT_MAX bounds it"));
                self.bases.extend_from_slice(base.as_bytes());
            }
            self.words.push(size_and_type(row.size, row.name.block_type));
        }
        #[expect(clippy::cast_possible_truncation, reason = "a page names at most BLOCK_COUNT_MAX blocks")]
        {
            self.clumps.push(ClumpRow { granule, body_bytes, block_count: rows.len() as u32, code });
            self.first_blocks.push(self.words.len() as u32);
        }
    }

    /// Sets the fields that are known when the page is written.
    pub(crate) fn finish(&mut self, durable: Granule, ledger: Ledger) {
        self.durable = durable;
        self.ledger = ledger;
    }

    /// Returns the ledger at the time when the page was written.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.ledger
    }

    /// Returns the end of the part of its arena that was known to be durable when the page was
    /// written.
    #[must_use]
    pub fn durable(&self) -> Granule {
        self.durable
    }

    /// Returns the clumps in order.
    #[must_use]
    pub fn clumps(&self) -> &[ClumpRow] {
        &self.clumps
    }

    /// Returns the number of named blocks.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.words.len()
    }

    /// Iterates over all blocks in order.
    pub fn blocks(&self) -> impl Iterator<Item = PageBlock> + '_ {
        self.clumps.iter().flat_map(|clump| self.blocks_of(clump.granule))
    }

    /// Iterates over the blocks of the clump at `granule` in order; none if the page does not name
    /// it.
    pub fn blocks_of(&self, granule: Granule) -> impl Iterator<Item = PageBlock> + '_ {
        let range = self.range_of(granule).unwrap_or(0..0);
        let ordinals = 0_u32..;
        range.zip(ordinals).filter_map(move |(block, ordinal)| self.block(block, granule, ordinal))
    }

    /// Finds the block with this name in the clump at `granule`. Only scores are compared until one
    /// matches.
    #[must_use]
    pub fn find(&self, granule: Granule, name: &BlockName) -> Option<PageBlock> {
        let wanted = name.score.as_bytes();
        if wanted.len() != self.score_bytes {
            return None;
        }
        self.blocks_like(granule, wanted).find(|block| block.name == *name)
    }

    /// Finds the first block with this name in any clump.
    #[must_use]
    pub fn find_anywhere(&self, name: &BlockName) -> Option<PageBlock> {
        let wanted = name.score.as_bytes();
        if wanted.len() != self.score_bytes || wanted.len() < 2 {
            return None;
        }
        let few = self.buckets().like(leading(wanted)).iter().map(|number| usize::from(*number));
        few.filter(|number| self.score(*number) == Some(wanted)).find_map(|number| {
            let after = self.first_blocks.partition_point(|first| to_usize(*first) <= number);
            let clump = after.checked_sub(1)?;
            let ordinal = number.checked_sub(to_usize(*self.first_blocks.get(clump)?))?;
            let granule = self.clumps.get(clump)?.granule;
            self.block(number, granule, u32::try_from(ordinal).ok()?).filter(|block| block.name == *name)
        })
    }

    /// Iterates over the blocks of the clump at `granule` whose scores begin with `prefix`, in
    /// order; none if `prefix` is empty.
    pub fn blocks_like<'a>(
        &'a self,
        granule: Granule,
        prefix: &'a [u8],
    ) -> impl Iterator<Item = PageBlock> + 'a {
        let range = self.range_of(granule).filter(|_| !prefix.is_empty()).unwrap_or(0..0);
        let first = range.start;
        // The first eight bytes distinguish almost all scores, and are compared as one number.
        let first_bytes = prefix.first_chunk::<8>();
        let is_like = move |block: usize| {
            self.score(block).is_some_and(|score| {
                first_bytes.is_none_or(|first| score.first_chunk() == Some(first))
                    && score.starts_with(prefix)
            })
        };
        let block =
            move |block: usize| self.block(block, granule, u32::try_from(block.checked_sub(first)?).ok()?);
        // With few blocks, a scan is faster than the index.
        let buckets = (range.len() > SCAN_MAX && prefix.len() > 1).then(|| self.buckets());
        let (all, few) = match buckets {
            None => (range, &[][..]),
            Some(buckets) => {
                let few = buckets.like(leading(prefix));
                let begin = few.partition_point(|number| usize::from(*number) < range.start);
                let end = few.partition_point(|number| usize::from(*number) < range.end);
                (0..0, few.get(begin..end).unwrap_or_default())
            }
        };
        let numbers = all.chain(few.iter().map(|number| usize::from(*number)));
        numbers.filter(move |number| is_like(*number)).filter_map(block)
    }

    fn buckets(&self) -> &Buckets {
        self.by_score.0.get_or_init(|| {
            let scores = self.scores.chunks_exact(self.score_bytes.max(1));
            Box::new(Buckets::new(scores.map(leading)))
        })
    }

    fn score(&self, block: usize) -> Option<&[u8]> {
        self.scores.get(block.checked_mul(self.score_bytes)?..)?.get(..self.score_bytes)
    }

    /// Returns the range of the page's blocks that belong to the clump at `granule`.
    fn range_of(&self, granule: Granule) -> Option<Range<usize>> {
        let place = self.clumps.binary_search_by_key(&granule, |clump| clump.granule).ok()?;
        let first = to_usize(*self.first_blocks.get(place)?);
        Some(first..to_usize(*self.first_blocks.get(place.checked_add(1)?)?))
    }

    fn block(&self, block: usize, granule: Granule, ordinal: u32) -> Option<PageBlock> {
        let (size, block_type) = from_size_and_type(*self.words.get(block)?)?;
        let name = BlockName { score: Score::try_from(self.score(block)?).ok()?, block_type };
        let digest =
            self.digests.get(block.checked_mul(DIGEST_BYTES)?..).and_then(|rest| rest.first_chunk()).copied();
        let base = self.base_of(block);
        Some(PageBlock { name, digest, size, granule, ordinal, base })
    }

    /// Returns the base of a block that is stored as a delta.
    fn base_of(&self, block: usize) -> Option<Score> {
        let place = self.deltas.binary_search(&u32::try_from(block).ok()?).ok()?;
        let start = place.checked_mul(self.score_bytes)?;
        Score::try_from(self.bases.get(start..)?.get(..self.score_bytes)?).ok()
    }

    /// Returns the number of blocks that are stored as deltas.
    #[must_use]
    pub fn delta_count(&self) -> usize {
        self.deltas.len()
    }

    /// Returns the last block of this type.
    #[must_use]
    pub fn last_of_type(&self, block_type: BlockType) -> Option<PageBlock> {
        let wanted = u32::from(block_type.to_byte());
        let place = self.words.iter().rposition(|word| word >> 24 == wanted)?;
        let clump = self.first_blocks.partition_point(|first| to_usize(*first) <= place).checked_sub(1)?;
        let ordinal = u32::try_from(place).ok()?.checked_sub(*self.first_blocks.get(clump)?)?;
        self.block(place, self.clumps.get(clump)?.granule, ordinal)
    }

    /// Returns the memory that it holds, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let clumps = self.clumps.len().saturating_mul(size_of::<ClumpRow>());
        let words = self.words.len().saturating_mul(4);
        // Counted whether the buckets have been built or not.
        let buckets = Buckets::bytes_of(self.words.len());
        let deltas = self.deltas.len().saturating_mul(4).saturating_add(self.bases.len());
        [clumps, words, self.scores.len(), self.digests.len(), deltas, buckets].iter().sum()
    }

    /// Appends the body of its record to `body`.
    pub(crate) fn encode(&self, body: &mut Vec<u8>) {
        let mut table = Vec::with_capacity(self.words.len().saturating_mul(4));
        let granules = self.clumps.iter().map(|clump| clump.granule.0);
        let lengths = self.clumps.iter().map(|clump| clump.body_bytes);
        let counts = self.clumps.iter().map(|clump| clump.block_count);
        let blocks = self.words.iter().chain(&self.deltas).copied();
        for word in granules.chain(lengths).chain(counts).chain(blocks) {
            table.extend_from_slice(&word.to_le_bytes());
        }
        let mut packed = Vec::new();
        let codec = compress(&table, CompressionLevel::default(), &mut packed);

        body.reserve(HEADER_BYTES.saturating_add(self.scores.len()).saturating_add(packed.len()));
        let digest_bytes = if self.digests.is_empty() { 0 } else { DIGEST_BYTES };
        #[expect(clippy::cast_possible_truncation, reason = "a page names at most BLOCK_COUNT_MAX blocks")]
        {
            body.extend_from_slice(&(self.clumps.len() as u32).to_le_bytes());
            body.extend_from_slice(&(self.words.len() as u32).to_le_bytes());
            body.extend_from_slice(&self.durable.0.to_le_bytes());
            body.extend_from_slice(&(self.score_bytes as u16).to_le_bytes());
            body.extend_from_slice(&(digest_bytes as u16).to_le_bytes());
            body.extend_from_slice(&(codec.to_number() as u16).to_le_bytes());
            body.extend_from_slice(&(self.deltas.len() as u16).to_le_bytes());
            body.extend_from_slice(&(table.len() as u32).to_le_bytes());
        }
        body.extend_from_slice(&self.ledger.arena_count.to_le_bytes());
        body.extend_from_slice(&self.ledger.code);
        body.extend_from_slice(&self.scores);
        body.extend_from_slice(&self.digests);
        for clump in &self.clumps {
            body.extend_from_slice(&clump.code);
        }
        body.extend_from_slice(&self.bases);
        body.extend_from_slice(&packed);
    }

    /// Parses a body that has been authenticated and decrypted.
    pub(crate) fn decode(body: &[u8]) -> Result<Self, DirectoryPageError> {
        let malformed = |part| DirectoryPageError::Malformed { part };
        let mut decoder = LittleEndian::new(body);
        let header = PageHeader::decode(&mut decoder).ok_or(malformed("header"))?;
        let column = |decoder: &mut LittleEndian<'_>, count: usize, width: usize| {
            count.checked_mul(width).and_then(|bytes| decoder.take(bytes)).map(<[u8]>::to_vec)
        };
        let scores =
            column(&mut decoder, header.block_count, header.score_bytes).ok_or(malformed("scores"))?;
        let digests =
            column(&mut decoder, header.block_count, header.digest_bytes).ok_or(malformed("digests"))?;
        let codes = column(&mut decoder, header.clump_count, CODE_BYTES).ok_or(malformed("codes"))?;
        let bases = column(&mut decoder, header.delta_count, header.score_bytes).ok_or(malformed("bases"))?;
        let table = match header.codec {
            Codec::Stored => decoder.left().to_vec(),
            Codec::Zstd => decompress(decoder.left(), header.table_bytes)?,
            Codec::Delta => return Err(malformed("header")),
        };
        if table.len() != header.table_bytes {
            return Err(malformed("table"));
        }
        let Columns { clumps, words, deltas } =
            Columns::decode(&header, &codes, &table).ok_or(malformed("table"))?;
        let first_blocks = first_blocks(&clumps).ok_or(malformed("block counts"))?;
        if first_blocks.last().is_none_or(|end| to_usize(*end) != header.block_count) {
            return Err(malformed("block counts"));
        }
        if !clumps.is_sorted_by(|one, next| one.granule < next.granule) {
            return Err(malformed("order of clumps"));
        }
        let is_in_order = deltas.is_sorted_by(|one, next| one < next);
        if !is_in_order || deltas.last().is_some_and(|last| to_usize(*last) >= words.len()) {
            return Err(malformed("numbers of deltas"));
        }
        if words.iter().any(|word| from_size_and_type(*word).is_none()) {
            return Err(malformed("table"));
        }
        let PageHeader { score_bytes, durable, ledger, .. } = header;
        let by_score = ByScore::default();
        Ok(Self {
            clumps,
            first_blocks,
            score_bytes,
            scores,
            digests,
            words,
            deltas,
            bases,
            by_score,
            durable,
            ledger,
        })
    }
}

/// The key of a score in the buckets.
fn leading(score: &[u8]) -> u16 {
    score.first_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes))
}

struct PageHeader {
    clump_count: usize,
    block_count: usize,
    durable: Granule,
    score_bytes: usize,
    digest_bytes: usize,
    codec: Codec,
    delta_count: usize,
    table_bytes: usize,
    ledger: Ledger,
}

impl PageHeader {
    fn decode(decoder: &mut LittleEndian<'_>) -> Option<Self> {
        let clump_count = to_usize(decoder.u32()?);
        let block_count = to_usize(decoder.u32()?);
        let durable = Granule(decoder.u32()?);
        let score_bytes = usize::from(decoder.u16()?);
        let digest_bytes = usize::from(decoder.u16()?);
        let codec = Codec::of_whole(decoder.u16()?.into())?;
        let delta_count = usize::from(decoder.u16()?);
        let table_bytes = to_usize(decoder.u32()?);
        let ledger = Ledger { arena_count: decoder.u64()?, code: decoder.array()? };
        let words = clump_count.checked_mul(3)?.checked_add(block_count)?.checked_add(delta_count)?;
        let sound = block_count <= BLOCK_COUNT_MAX
            && clump_count <= block_count
            && delta_count <= block_count
            && matches!(score_bytes, SHA1_BYTES | PLACED_SCORE_BYTES | 32)
            && matches!(digest_bytes, 0 | DIGEST_BYTES)
            && table_bytes == words.checked_mul(4)?;
        sound.then_some(Self {
            clump_count,
            block_count,
            durable,
            score_bytes,
            digest_bytes,
            codec,
            delta_count,
            table_bytes,
            ledger,
        })
    }
}

/// The columns of a page's table.
struct Columns {
    clumps: Vec<ClumpRow>,
    words: Vec<u32>,
    deltas: Vec<u32>,
}

impl Columns {
    fn decode(header: &PageHeader, codes: &[u8], table: &[u8]) -> Option<Self> {
        let mut decoder = LittleEndian::new(table);
        let granules = u32s(&mut decoder, header.clump_count)?;
        let lengths = u32s(&mut decoder, header.clump_count)?;
        let counts = u32s(&mut decoder, header.clump_count)?;
        let words = u32s(&mut decoder, header.block_count)?.collect();
        let deltas = u32s(&mut decoder, header.delta_count)?.collect();
        let codes = codes.as_chunks::<CODE_BYTES>().0;
        let clumps = granules
            .zip(lengths)
            .zip(counts.zip(codes))
            .map(|((granule, body_bytes), (block_count, code))| ClumpRow {
                granule: Granule(granule),
                body_bytes,
                block_count,
                code: *code,
            })
            .collect();
        Some(Self { clumps, words, deltas })
    }
}

fn first_blocks(clumps: &[ClumpRow]) -> Option<Vec<u32>> {
    let mut first_blocks = Vec::with_capacity(clumps.len().saturating_add(1));
    let mut next = 0_u32;
    first_blocks.push(next);
    for clump in clumps {
        next = next.checked_add(clump.block_count)?;
        first_blocks.push(next);
    }
    Some(first_blocks)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(seed: u32, width: usize) -> BlockRow {
        let score: Vec<u8> = (0..width).map(|byte| (seed as usize * 7 + byte) as u8).collect();
        let block_type = BlockType::from_byte((seed % 128) as u8).unwrap();
        let name = BlockName { score: Score::try_from(score.as_slice()).unwrap(), block_type };
        let digest = (width == 20).then_some([seed as u8; 16]);
        let base = (seed % 5 == 3).then(|| Score::try_from(&[seed as u8; 32][..width]).unwrap());
        BlockRow { name, digest, size: seed % 70_000, base }
    }

    fn encoded(page: &DirectoryPage) -> Vec<u8> {
        let mut body = Vec::new();
        page.encode(&mut body);
        body
    }

    fn page(width: usize, counts: &[u32]) -> DirectoryPage {
        let mut page = DirectoryPage::new(width);
        let mut seed = 0;
        for (place, count) in counts.iter().enumerate() {
            let rows: Vec<_> = (seed..seed + count).map(|seed| row(seed, width)).collect();
            page.push(Granule(4 + 3 * place as u32), 100 + count, [place as u8; 16], &rows);
            seed += count;
        }
        page.finish(Granule(99), Ledger { arena_count: 5, code: [6; 32] });
        page
    }

    proptest! {
        #[test]
        fn a_page_survives_the_round_trip(
            width in proptest::sample::select(vec![20, 24, 32]),
            counts in proptest::collection::vec(1_u32..50, 0..30),
        ) {
            let page = page(width, &counts);
            prop_assert_eq!(DirectoryPage::decode(&encoded(&page)), Ok(page.clone()));
            let blocks: Vec<_> = page.blocks().collect();
            prop_assert_eq!(blocks.len(), counts.iter().sum::<u32>() as usize);
            for (seed, block) in (0_u32..).zip(&blocks) {
                let row = row(seed, width);
                prop_assert_eq!((block.name, block.digest, block.size), (row.name, row.digest, row.size));
                prop_assert_eq!(block.base, row.base);
                let last = blocks.iter().rfind(|other| other.name.block_type == block.name.block_type);
                prop_assert_eq!(page.last_of_type(block.name.block_type), last.copied());
                prop_assert_eq!(page.find(block.granule, &block.name), Some(*block));
                let first = blocks.iter().find(|other| other.name == block.name);
                prop_assert_eq!(page.find_anywhere(&block.name), first.copied());
                let absent = BlockName { block_type: BlockType::CATALOG, ..block.name };
                if block.name != absent {
                    prop_assert_eq!(page.find(block.granule, &absent), None);
                    prop_assert_eq!(page.find_anywhere(&absent), None);
                }
                let longer = BlockName { score: Score::try_from(&[7; 32][..52 - width]).unwrap(), ..block.name };
                prop_assert_eq!(page.find(block.granule, &longer), None);
            }
        }

        #[test]
        fn blocks_are_found_as_by_going_through_their_clump(
            width in proptest::sample::select(vec![20, 24, 32]),
            counts in proptest::collection::vec(prop_oneof![1_u32..50, 250_u32..1000], 1..4),
            kept in 0..=20_usize,
            asked in any::<u32>(),
        ) {
            let page = page(width, &counts);
            let wanted = row(asked % page.block_count() as u32, width).name;
            let prefix = &wanted.score.as_bytes()[..kept];
            let clumps = page.clumps().iter().map(|clump| clump.granule);
            for granule in clumps.chain([Granule(1)]) {
                let is_like = |block: &PageBlock| kept > 0 && block.name.score.as_bytes().starts_with(prefix);
                let scanned: Vec<_> = page.blocks_of(granule).filter(is_like).collect();
                prop_assert_eq!(page.blocks_like(granule, prefix).collect::<Vec<_>>(), scanned);
                let first = page.blocks_of(granule).find(|block| block.name == wanted);
                prop_assert_eq!(page.find(granule, &wanted), first);
            }
        }

        #[test]
        fn no_body_panics(flips in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6), cut in any::<usize>()) {
            let mut body = encoded(&page(32, &[3, 1, 40]));
            for (place, byte) in flips {
                let place = place % body.len();
                body[place] ^= byte;
            }
            body.truncate(cut % (body.len() + 1));
            if let Ok(page) = DirectoryPage::decode(&body) {
                prop_assert!(page.blocks().count() <= page.block_count());
            }
        }
    }

    #[test]
    fn numbers_of_deltas_that_lie_are_refused() {
        let mut page = page(32, &[4]);
        assert_eq!(page.deltas, [3]);
        for wrong in [vec![4], vec![u32::MAX]] {
            page.deltas = wrong;
            let part = "numbers of deltas";
            assert_eq!(DirectoryPage::decode(&encoded(&page)), Err(DirectoryPageError::Malformed { part }));
        }
        page.deltas = vec![2, 2];
        page.bases.extend_from_slice(&[7; 32]);
        assert!(DirectoryPage::decode(&encoded(&page)).is_err(), "one block is a delta once");
    }

    #[test]
    fn a_page_costs_little_more_than_its_scores() {
        let counts = [32; 128];
        let mut page = DirectoryPage::new(32);
        for (place, count) in counts.iter().enumerate() {
            let rows: Vec<_> =
                (0..*count).map(|seed| BlockRow { size: 8192, base: None, ..row(seed * 128, 32) }).collect();
            page.push(Granule(place as u32 * 600), 70_000 + place as u32 * 31 % 1000, [0; 16], &rows);
        }
        let per_block = encoded(&page).len() as f64 / page.block_count() as f64;
        assert!(per_block < 33.0, "{per_block} bytes a block");
    }
}
