//! A study of block sizes by merging: the data is read once, in pieces of 4 KiB, and larger blocks
//! are made of the pieces' fingerprints (Wallace and others, FAST 2012, studied backups so).
//!
//! Each size is tried in two ways. *Fixed* blocks are as many pieces as the size has. Blocks *by
//! content* end after a piece whose fingerprint is a multiple of that number, so an insertion of
//! whole pieces moves few ends.
//!
//! Memory is bounded. Each size keeps the fingerprints of its blocks until they are too many. Then
//! it keeps those whose first bit is zero, then those whose first two bits are zero, and so on, and
//! multiplies its counts.

use std::collections::BTreeMap;

use serde::Serialize;
use varve_block::to_usize;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Bytes of a piece.
const PIECE_BYTES: usize = 4096;
/// The largest block, in pieces.
const PIECES_MAX: u32 = 32;
/// A block by content has at most so many times the pieces of its size.
const CONTENT_FACTOR_MAX: u32 = 4;
/// Memory of a fingerprint in a map, on average.
const ENTRY_BYTES: u64 = 24;
/// Bytes that a block needs beside its content: in a directory page, in a pointer block, and in the
/// index in memory.
const DIRECTORY_BYTES: f64 = 33.0;
const POINTER_BYTES: f64 = 32.0;
const INDEX_BYTES: f64 = 9.0;

/// The way in which pieces are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeWay {
    Fixed,
    ByContent,
}

/// The outcome for one size of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BlockSizeRow {
    /// The size of a fixed block, and about that of one by content, in bytes.
    pub block_bytes: u64,
    pub way: MergeWay,
    /// Blocks, without those that are all zero.
    pub blocks: u64,
    /// Different blocks.
    pub unique_blocks: f64,
    /// Bytes of the different blocks, before compression.
    pub unique_bytes: f64,
    /// Bytes of directory pages, pointer blocks and index for them.
    pub metadata_bytes: f64,
    /// Memory of the index for them.
    pub index_bytes: f64,
    /// The share of the fingerprints that were kept: 1 if the counts are exact.
    pub sampled_share: f64,
}

impl BlockSizeRow {
    /// Returns the bytes that this size takes in the end, if compression leaves some share.
    #[must_use]
    pub fn total(&self, stored_share: f64) -> f64 {
        self.unique_bytes * stored_share + self.metadata_bytes
    }
}

/// The outcome of a study.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BlockSizeStudy {
    /// Bytes that were read.
    pub bytes: u64,
    /// Bytes of pieces that are all zero.
    pub zero_bytes: u64,
    /// The share of a block that compression leaves, as given.
    pub stored_share: f64,
    pub rows: Vec<BlockSizeRow>,
    /// The position of the row with the fewest bytes in total.
    pub smallest: usize,
}

/// Reads data once, and counts blocks of all sizes.
pub struct BlockSizeCounter {
    piece: Vec<u8>,
    bytes: u64,
    zero_bytes: u64,
    merges: Vec<Merge>,
}

impl BlockSizeCounter {
    /// Starts a study that keeps fingerprints in about so many bytes of memory.
    #[must_use]
    pub fn new(memory_bytes: u64) -> Self {
        let sizes = || {
            std::iter::successors(Some(1), |pieces| Some(pieces * 2)).take_while(|size| *size <= PIECES_MAX)
        };
        // Single pieces are the same in both ways.
        let fixed = sizes().map(|pieces| (pieces, MergeWay::Fixed));
        let all: Vec<_> = fixed.chain(sizes().skip(1).map(|pieces| (pieces, MergeWay::ByContent))).collect();
        let limit = memory_bytes / ENTRY_BYTES / all.len() as u64;
        let limit = to_usize(limit).max(64);
        let merge = |(pieces, way)| Merge::new(pieces, way, limit);
        Self {
            piece: Vec::with_capacity(PIECE_BYTES),
            bytes: 0,
            zero_bytes: 0,
            merges: all.into_iter().map(merge).collect(),
        }
    }

    /// Adds the next bytes of a file.
    pub fn add(&mut self, mut bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.piece.is_empty()
                && let Some((piece, rest)) = bytes.split_at_checked(PIECE_BYTES)
            {
                self.take(piece);
                bytes = rest;
                continue;
            }
            let (part, rest) = bytes.split_at(bytes.len().min(PIECE_BYTES - self.piece.len()));
            self.piece.extend_from_slice(part);
            bytes = rest;
            if self.piece.len() == PIECE_BYTES {
                self.take_rest();
            }
        }
    }

    /// Ends a file: the next bytes are those of another one, and begin a block.
    pub fn end_file(&mut self) {
        if !self.piece.is_empty() {
            self.take_rest();
        }
        self.merges.iter_mut().for_each(Merge::end_block);
    }

    fn take_rest(&mut self) {
        let piece = std::mem::take(&mut self.piece);
        self.take(&piece);
        self.piece = piece;
        self.piece.clear();
    }

    fn take(&mut self, piece: &[u8]) {
        let is_zero = piece.iter().all(|byte| *byte == 0);
        self.zero_bytes += if is_zero { piece.len() as u64 } else { 0 };
        let fingerprint = xxh3_64(piece);
        for merge in &mut self.merges {
            merge.add(fingerprint, piece.len() as u64, is_zero);
        }
    }

    /// Ends the study. Compression is assumed to leave the same share of each block.
    #[must_use]
    pub fn finish(mut self, stored_share: f64) -> BlockSizeStudy {
        self.end_file();
        let rows: Vec<BlockSizeRow> = self.merges.iter().map(Merge::row).collect();
        let total = |row: &BlockSizeRow| row.total(stored_share);
        let smallest = rows.iter().enumerate().min_by(|one, other| total(one.1).total_cmp(&total(other.1)));
        let smallest = smallest.map_or(0, |(number, _)| number);
        BlockSizeStudy { bytes: self.bytes, zero_bytes: self.zero_bytes, stored_share, rows, smallest }
    }
}

/// One size and way.
struct Merge {
    pieces: u32,
    way: MergeWay,
    /// The open block: a hash over the fingerprints of its pieces.
    open: Xxh3,
    open_pieces: u32,
    open_bytes: u64,
    open_is_zero: bool,
    blocks: u64,
    /// The sample of different blocks, with their lengths.
    unique: BTreeMap<u64, u64>,
    limit: usize,
    /// Fingerprints in the sample have so many leading zeros.
    zeros: u32,
}

impl Merge {
    fn new(pieces: u32, way: MergeWay, limit: usize) -> Self {
        Self {
            pieces,
            way,
            open: Xxh3::new(),
            open_pieces: 0,
            open_bytes: 0,
            open_is_zero: true,
            blocks: 0,
            unique: BTreeMap::new(),
            limit,
            zeros: 0,
        }
    }

    fn add(&mut self, fingerprint: u64, bytes: u64, is_zero: bool) {
        self.open.update(&fingerprint.to_le_bytes());
        self.open_pieces += 1;
        self.open_bytes += bytes;
        self.open_is_zero &= is_zero;
        let is_full = match self.way {
            MergeWay::Fixed => self.open_pieces == self.pieces,
            MergeWay::ByContent => {
                fingerprint.is_multiple_of(u64::from(self.pieces))
                    || self.open_pieces == self.pieces * CONTENT_FACTOR_MAX
            }
        };
        if is_full {
            self.end_block();
        }
    }

    fn end_block(&mut self) {
        if self.open_pieces > 0 && !self.open_is_zero {
            self.blocks += 1;
            let fingerprint = self.open.digest();
            if fingerprint.leading_zeros() >= self.zeros {
                self.unique.insert(fingerprint, self.open_bytes);
            }
            while self.unique.len() > self.limit {
                self.zeros += 1;
                let zeros = self.zeros;
                self.unique.retain(|fingerprint, _| fingerprint.leading_zeros() >= zeros);
            }
        }
        self.open.reset();
        (self.open_pieces, self.open_bytes, self.open_is_zero) = (0, 0, true);
    }

    #[expect(clippy::cast_precision_loss, reason = "an estimate, or a small count")]
    fn row(&self) -> BlockSizeRow {
        let scale = f64::from(self.zeros).exp2();
        let unique_blocks = self.unique.len() as f64 * scale;
        BlockSizeRow {
            block_bytes: u64::from(self.pieces) * PIECE_BYTES as u64,
            way: self.way,
            blocks: self.blocks,
            unique_blocks,
            unique_bytes: self.unique.values().sum::<u64>() as f64 * scale,
            metadata_bytes: unique_blocks * (DIRECTORY_BYTES + POINTER_BYTES + INDEX_BYTES),
            index_bytes: unique_blocks * INDEX_BYTES,
            sampled_share: 1.0 / scale,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Pieces with a number each; number 0 is zero.
    fn pieces(numbers: &[u8]) -> Vec<u8> {
        numbers.iter().flat_map(|number| vec![*number; PIECE_BYTES]).collect()
    }

    fn study(memory: u64, files: &[Vec<u8>]) -> BlockSizeStudy {
        let mut counter = BlockSizeCounter::new(memory);
        for file in files {
            counter.add(file);
            counter.end_file();
        }
        counter.finish(1.0)
    }

    #[test]
    fn rows_count_different_blocks() {
        // 1 2 1 2 | 0 0 0 0 | 1 2 1 3, and a tail of 100 bytes.
        let mut file = pieces(&[1, 2, 1, 2, 0, 0, 0, 0, 1, 2, 1, 3]);
        file.extend([9; 100]);
        let study = study(1 << 20, &[file]);
        assert_eq!((study.bytes, study.zero_bytes), (12 * 4096 + 100, 4 * 4096));
        let row =
            |bytes, way| study.rows.iter().find(|row| row.block_bytes == bytes && row.way == way).unwrap();
        let single = row(4096, MergeWay::Fixed);
        assert_eq!((single.blocks, single.unique_bytes), (9, 3.0 * 4096.0 + 100.0));
        let double = row(8192, MergeWay::Fixed);
        // 12, 13 and the tail.
        assert_eq!((double.blocks, double.unique_bytes), (5, 4.0 * 4096.0 + 100.0));
        let four = row(16384, MergeWay::Fixed);
        assert_eq!((four.blocks, four.unique_blocks), (3, 3.0));
        assert_eq!(study.rows.len(), 11);
        assert!((single.metadata_bytes - 4.0 * 74.0).abs() < 1e-9);
    }

    #[test]
    fn an_insertion_moves_fixed_blocks_and_few_by_content() {
        let noise = |seed: u64| {
            let word = move |at: u64| xxh3_64(&[at.to_le_bytes(), seed.to_le_bytes()].concat());
            (0..512 * 512).flat_map(move |at| word(at).to_le_bytes()).collect::<Vec<u8>>()
        };
        let first = noise(1);
        let second = [&noise(2)[..PIECE_BYTES], &first[..]].concat();
        let study = study(1 << 24, &[first.clone(), second]);
        let unique = |bytes, way| {
            study.rows.iter().find(|row| row.block_bytes == bytes && row.way == way).unwrap().unique_bytes
        };
        let once = first.len() as f64;
        assert!(unique(4096, MergeWay::Fixed) < once * 1.01);
        assert!(unique(16384, MergeWay::Fixed) > once * 1.9);
        assert!(unique(16384, MergeWay::ByContent) < once * 1.1);
    }

    /// With little memory the counts are estimates.
    #[test]
    fn little_memory_gives_an_estimate() {
        let file: Vec<u8> = (0..20_000_u64)
            .flat_map(|number| {
                let mut piece = vec![1; PIECE_BYTES];
                piece[..8].copy_from_slice(&number.to_le_bytes());
                piece
            })
            .collect();
        let study = study(11 * 1000 * ENTRY_BYTES, &[file]);
        let single = study.rows[0];
        assert!(single.sampled_share < 0.1, "{single:?}");
        assert!((single.unique_blocks / 20_000.0 - 1.0).abs() < 0.15, "{single:?}");
    }

    proptest! {
        #[test]
        fn counts_do_not_depend_on_how_the_data_comes(
            numbers in prop::collection::vec(0_u8..4, 0..60),
            cuts in prop::collection::vec(1_usize..9000, 1..50),
        ) {
            let file = pieces(&numbers);
            let whole = study(1 << 20, std::slice::from_ref(&file));
            let mut counter = BlockSizeCounter::new(1 << 20);
            let mut rest = &file[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (part, later) = rest.split_at(rest.len().min(*cut));
                counter.add(part);
                rest = later;
            }
            prop_assert_eq!(&counter.finish(1.0), &whole);
            // Fixed blocks of 8 KiB, by a set.
            let pairs: BTreeSet<_> = numbers.chunks(2).filter(|pair| pair.iter().any(|one| *one > 0)).collect();
            let bytes: usize = pairs.iter().map(|pair| pair.len() * PIECE_BYTES).sum();
            let row = whole.rows.iter().find(|row| row.block_bytes == 8192 && row.way == MergeWay::Fixed).unwrap();
            prop_assert!((row.unique_bytes - bytes as f64).abs() < 0.5);
        }
    }
}
