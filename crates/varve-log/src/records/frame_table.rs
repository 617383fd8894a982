//! The table of a framed clump: the place of each frame, and the blocks that may be in it. Pure
//! functions over bytes.
//!
//! The body of a framed clump is its table, encrypted like a body, followed by its frames, each
//! encrypted by itself. So a block is read, checked and decompressed with its frame, without the
//! rest of the clump. The table:
//!
//! | offset | bytes | field         | meaning                                                                        |
//! |-------:|------:|---------------|--------------------------------------------------------------------------------|
//! |      0 |     4 | frame_count   | at least 1                                                                     |
//! |      4 |     4 | block_count   | of all frames together; at most 4096                                           |
//! |      8 |       | frames        | a row of 32 bytes for each frame                                               |
//! |        |       | marks         | for each block, in order, the first two bytes of its score                     |
//!
//! In a by-value store the marks have this form, so that a clump holds the names of its blocks:
//!
//! | offset | bytes | field         | meaning                                                                        |
//! |-------:|------:|---------------|--------------------------------------------------------------------------------|
//! |      0 |    14 | clump_name    | the last bytes of the names of all its blocks                                  |
//! |     14 |       | marks         | for each block, in order, the first ten bytes of its name                      |
//!
//! A row:
//!
//! | offset | bytes | field         | meaning                                                                        |
//! |-------:|------:|---------------|--------------------------------------------------------------------------------|
//! |      0 |     4 | codec         | 0: the content as it is; 1: one zstd frame; 2: a delta                         |
//! |      4 |     4 | content_bytes | length of the frame's content, decompressed                                    |
//! |      8 |     4 | frame_bytes   | length of the frame in the body                                                |
//! |     12 |     4 | block_count   | the number of its blocks; at least 1                                           |
//! |     16 |    16 | code          | authenticates the frame                                                        |
//!
//! A delta is the score of another block of the same type, its *base*, and one zstd frame that has
//! the bytes of that block as its prefix. It has one block.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;

use varve_block::{
    CLUMP_NAME_BYTES, ClumpName, LittleEndian, PLACED_MARK_BYTES, PlacedName, Score, to_usize,
};

use crate::keys::cipher::{CODE_BYTES, CipherUnit};
use crate::records::compression::Codec;
use crate::records::key_buckets::{Buckets, SCAN_MAX};
use crate::records::record_header::RecordHeader;

/// The longest content: a clump just below its goal, and one block of the largest size.
pub(crate) const CONTENT_BYTES_MAX: u32 = 4 << 20;

/// The most blocks in a clump. It bounds the table if the blocks are tiny.
pub(crate) const BLOCK_COUNT_MAX: usize = 4096;

/// The length of both counts.
const COUNTS_BYTES: usize = 8;
/// The length of a frame's row.
pub(crate) const ROW_BYTES: usize = 32;
/// The offset of the code in a row.
const CODE_START: usize = 16;
const MARK_BYTES: usize = 2;

/// A frame's row in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameRow {
    pub(crate) codec: Codec,
    pub(crate) content_bytes: u32,
    pub(crate) frame_bytes: u32,
    pub(crate) block_count: u32,
    pub(crate) code: [u8; CODE_BYTES],
}

/// A possible place of a block in a clump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FramePlace {
    pub frame: usize,
    /// The number of the block in that frame; `None` if it may be any.
    pub ordinal: Option<usize>,
}

/// The frames of a clump: an authenticated table, or one that is about to be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FrameTable {
    rows: Vec<FrameRow>,
    /// The offset of each frame in the body.
    starts: Vec<u32>,
    /// The number of the first block of each frame, within the clump.
    first_blocks: Vec<u32>,
    marks: NameMarks,
}

/// The marks of the block names in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NameMarks {
    /// The first bytes of hashes, which exclude most places. If there are many, also an index over
    /// them.
    Hashes(Vec<[u8; MARK_BYTES]>, Option<Buckets>),
    /// The whole names.
    Places(ClumpName, Vec<[u8; PLACED_MARK_BYTES]>),
}

impl Default for NameMarks {
    fn default() -> Self {
        Self::Hashes(Vec::new(), None)
    }
}

impl NameMarks {
    fn of_hashes(marks: Vec<[u8; MARK_BYTES]>) -> Self {
        let keys = marks.iter().map(|mark| u16::from_be_bytes(*mark));
        let buckets = (marks.len() > SCAN_MAX).then(|| Buckets::new(keys));
        Self::Hashes(marks, buckets)
    }
}

/// Returns the length of a table with these counts. `clump` is the clump's name in a by-value
/// store.
pub(crate) fn table_bytes(frame_count: usize, block_count: usize, clump: Option<ClumpName>) -> usize {
    let rows = frame_count.saturating_mul(ROW_BYTES);
    let (name_bytes, mark_bytes) =
        if clump.is_some() { (CLUMP_NAME_BYTES, PLACED_MARK_BYTES) } else { (0, MARK_BYTES) };
    let marks = block_count.saturating_mul(mark_bytes);
    [COUNTS_BYTES, rows, name_bytes, marks].into_iter().fold(0, usize::saturating_add)
}

/// Returns the clump name that all of these scores share; `None` in a by-hash store.
pub(crate) fn clump_name(mut scores: impl Iterator<Item = Score>) -> Option<ClumpName> {
    let first = PlacedName::of(&scores.next()?)?.clump;
    debug_assert!(scores.all(|score| PlacedName::of(&score).is_some_and(|name| name.clump == first)));
    Some(first)
}

/// The mark of a score: its first bytes.
fn mark<const BYTES: usize>(score: &Score) -> [u8; BYTES] {
    score.as_bytes().first_chunk().copied().unwrap_or([0; BYTES])
}

/// Encodes the table of these frames and blocks. The codes are filled in when the frames are
/// encrypted.
pub(crate) fn encode(rows: &[FrameRow], scores: impl ExactSizeIterator<Item = Score> + Clone) -> Vec<u8> {
    let clump = clump_name(scores.clone());
    let mut table = Vec::with_capacity(table_bytes(rows.len(), scores.len(), clump));
    #[expect(clippy::cast_possible_truncation, reason = "a clump has at most BLOCK_COUNT_MAX blocks")]
    {
        table.extend_from_slice(&(rows.len() as u32).to_le_bytes());
        table.extend_from_slice(&(scores.len() as u32).to_le_bytes());
    }
    for row in rows {
        for word in [row.codec.to_number(), row.content_bytes, row.frame_bytes, row.block_count] {
            table.extend_from_slice(&word.to_le_bytes());
        }
        table.extend_from_slice(&row.code);
    }
    match clump {
        None => scores.for_each(|score| table.extend_from_slice(&mark::<MARK_BYTES>(&score))),
        Some(clump) => {
            table.extend_from_slice(&clump.to_bytes());
            scores.for_each(|score| table.extend_from_slice(&mark::<PLACED_MARK_BYTES>(&score)));
        }
    }
    table
}

impl FrameTable {
    /// Parses a table that was authenticated and decrypted; `None` if it is not valid.
    pub(crate) fn decode(table: &[u8], header: &RecordHeader) -> Option<Self> {
        let mut decoder = LittleEndian::new(table);
        let frame_count = to_usize(decoder.u32()?);
        let block_count = to_usize(decoder.u32()?);
        let sound = (1..=block_count).contains(&frame_count)
            && block_count <= BLOCK_COUNT_MAX
            && marks_bytes(table, frame_count).is_some_and(|bytes| {
                bytes == block_count.saturating_mul(MARK_BYTES) || bytes == placed_bytes(block_count)
            });
        if !sound {
            return None;
        }
        let mut read = Self::default();
        let (mut start, mut first_block, mut content_bytes) = (header.table_bytes, 0_u32, 0_u32);
        for _ in 0..frame_count {
            let codec = Codec::from_number(decoder.u32()?)?;
            let row = FrameRow {
                codec,
                content_bytes: decoder.u32()?,
                frame_bytes: decoder.u32()?,
                block_count: decoder.u32().filter(|count| *count > 0)?,
                code: decoder.array()?,
            };
            if row.codec == Codec::Delta && row.block_count != 1 {
                return None;
            }
            read.rows.push(row);
            read.starts.push(start);
            read.first_blocks.push(first_block);
            start = start.checked_add(row.frame_bytes)?;
            first_block = first_block.checked_add(row.block_count)?;
            content_bytes = content_bytes.checked_add(row.content_bytes)?;
        }
        read.marks = if decoder.left().len() == placed_bytes(block_count) {
            let clump = ClumpName::from_bytes(decoder.array()?);
            NameMarks::Places(clump, decoder.left().as_chunks().0.to_vec())
        } else {
            NameMarks::of_hashes(decoder.left().as_chunks().0.to_vec())
        };
        let fits = start == header.body_bytes
            && to_usize(first_block) == block_count
            && content_bytes <= CONTENT_BYTES_MAX;
        fits.then_some(read)
    }

    pub(crate) fn frame_count(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn row(&self, frame: usize) -> Option<&FrameRow> {
        self.rows.get(frame)
    }

    /// Returns the range of a frame in the body.
    pub(crate) fn place(&self, frame: usize) -> Option<Range<u32>> {
        let start = *self.starts.get(frame)?;
        Some(start..start.checked_add(self.rows.get(frame)?.frame_bytes)?)
    }

    /// Iterates over the places at which a block with this score may be, in order.
    pub(crate) fn places_of(&self, score: &Score) -> impl Iterator<Item = FramePlace> + '_ {
        let blocks: Vec<u32> = match &self.marks {
            NameMarks::Hashes(marks, None) => {
                let wanted = mark(score);
                (0..).zip(marks).filter(|(_, mark)| **mark == wanted).map(|(block, _)| block).collect()
            }
            NameMarks::Hashes(marks, Some(buckets)) => {
                let wanted = mark(score);
                let is_it = |number: &&u16| marks.get(usize::from(**number)) == Some(&wanted);
                let like = buckets.like(u16::from_be_bytes(wanted));
                like.iter().filter(is_it).map(|number| u32::from(*number)).collect()
            }
            NameMarks::Places(clump, marks) => {
                let wanted = PlacedName::of(score).filter(|name| name.clump == *clump);
                let block = wanted.and_then(|wanted| place_of(marks, wanted));
                block.and_then(|block| u32::try_from(block).ok()).into_iter().collect()
            }
        };
        blocks.into_iter().filter_map(|block| {
            let frame = self.first_blocks.partition_point(|first| *first <= block).checked_sub(1)?;
            let ordinal = block.checked_sub(*self.first_blocks.get(frame)?)?;
            Some(FramePlace { frame, ordinal: Some(to_usize(ordinal)) })
        })
    }

    /// Returns the names of a frame's blocks in order, if the table has them, as in a by-value
    /// store.
    pub(crate) fn names(&self, frame: usize) -> Option<Vec<Score>> {
        let NameMarks::Places(clump, marks) = &self.marks else { return None };
        let first = to_usize(*self.first_blocks.get(frame)?);
        let marks = marks.get(first..)?.get(..to_usize(self.rows.get(frame)?.block_count))?;
        Some(marks.iter().map(|mark| clump.score(*mark)).collect())
    }

    /// Returns the memory that it holds, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let each_row = size_of::<FrameRow>().saturating_add(8);
        let marks = match &self.marks {
            NameMarks::Hashes(marks, buckets) => {
                let buckets = buckets.as_ref().map_or(0, Buckets::memory_bytes);
                marks.len().saturating_mul(MARK_BYTES).saturating_add(buckets)
            }
            NameMarks::Places(_, marks) => marks.len().saturating_mul(PLACED_MARK_BYTES),
        };
        self.rows.len().saturating_mul(each_row).saturating_add(marks)
    }

    /// Encrypts the frames in the body of a framed clump with `seal`, and writes their codes into
    /// its table. Returns the table, which must be encrypted last.
    ///
    /// # Panics
    /// When the table does not fit the body.
    pub(crate) fn seal_frames<'a>(
        body: &'a mut [u8],
        header: &RecordHeader,
        seal: impl Fn(CipherUnit, &mut [u8]) -> [u8; CODE_BYTES],
    ) -> &'a mut [u8] {
        let (table, mut frames) = body.split_at_mut(to_usize(header.table_bytes));
        let read = Self::decode(table, header).expect("a table that was made for this body");
        let places = table.get_mut(COUNTS_BYTES..).unwrap_or_default().chunks_exact_mut(ROW_BYTES);
        for ((number, row), place) in read.rows.iter().enumerate().zip(places) {
            let (frame, rest) = frames.split_at_mut(to_usize(row.frame_bytes));
            let code = seal(CipherUnit::frame(header.counter, number), frame);
            place.get_mut(CODE_START..).unwrap_or_default().copy_from_slice(&code);
            frames = rest;
        }
        table
    }
}

/// Returns the length of the part of a table after its rows.
fn marks_bytes(table: &[u8], frame_count: usize) -> Option<usize> {
    table.len().checked_sub(COUNTS_BYTES.checked_add(frame_count.checked_mul(ROW_BYTES)?)?)
}

/// Returns that length in a by-value store.
fn placed_bytes(block_count: usize) -> usize {
    CLUMP_NAME_BYTES.saturating_add(block_count.saturating_mul(PLACED_MARK_BYTES))
}

/// Finds the mark of a block. It is at the block's slot, unless earlier blocks of the clump were
/// lost.
fn place_of(marks: &[[u8; PLACED_MARK_BYTES]], wanted: PlacedName) -> Option<usize> {
    let (slot, wanted) = (usize::from(wanted.slot), wanted.mark());
    if marks.get(slot) == Some(&wanted) {
        return Some(slot);
    }
    marks.iter().take(slot).position(|mark| *mark == wanted)
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::records::granule::Granule;
    use crate::records::record_header::RecordKind;

    fn score(number: u32) -> Score {
        let mut bytes = [7; 32];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        Score::from(bytes)
    }

    fn sample(counts: &[u32]) -> (Vec<u8>, RecordHeader) {
        let rows: Vec<_> = (0_u32..)
            .zip(counts)
            .map(|(number, count)| FrameRow {
                codec: if number % 2 == 0 { Codec::Stored } else { Codec::Zstd },
                content_bytes: 100 + number,
                frame_bytes: 50 + number,
                block_count: *count,
                code: [3; CODE_BYTES],
            })
            .collect();
        let scores: Vec<_> = (0..counts.iter().sum()).map(score).collect();
        let table = encode(&rows, scores.into_iter());
        let table_bytes = u32::try_from(table.len()).unwrap();
        let header = RecordHeader {
            kind: RecordKind::Clump,
            body_bytes: table_bytes + rows.iter().map(|row| row.frame_bytes).sum::<u32>(),
            counter: 9,
            session: [1; 16],
            granule: Granule(4),
            table_bytes,
            code: [0; 16],
        };
        (table, header)
    }

    proptest! {
        #[test]
        fn each_block_is_found_in_its_frame(counts in proptest::collection::vec(1_u32..20, 1..30)) {
            let (table, header) = sample(&counts);
            let read = FrameTable::decode(&table, &header).unwrap();
            prop_assert_eq!(read.frame_count(), counts.len());
            let mut block = 0;
            for (frame, count) in counts.iter().enumerate() {
                for ordinal in 0..*count {
                    let place = FramePlace { frame, ordinal: Some(to_usize(ordinal)) };
                    prop_assert_eq!(read.places_of(&score(block)).collect::<Vec<_>>(), vec![place]);
                    block += 1;
                }
            }
            prop_assert!(read.places_of(&score(block)).next().is_none());
            prop_assert_eq!(read.place(0).unwrap().start, header.table_bytes);
            prop_assert_eq!(read.place(counts.len() - 1).unwrap().end, header.body_bytes);
            prop_assert_eq!(read.place(counts.len()), None);
        }

        #[test]
        fn the_places_are_those_that_going_through_all_marks_finds(
            marks in prop_oneof![
                prop::collection::vec(any::<[u8; MARK_BYTES]>(), 1..2000),
                // Few distinct marks, so that a block may be at several places.
                prop::collection::vec((0_u8..3, 0_u8..3).prop_map(|(one, two)| [one, two]), 1..2000),
            ],
            absent in any::<[u8; MARK_BYTES]>(),
        ) {
            let block_count = u32::try_from(marks.len()).unwrap();
            let first_blocks = vec![0, block_count / 3 + 1];
            let table = FrameTable { first_blocks, marks: NameMarks::of_hashes(marks.clone()), ..FrameTable::default() };
            let scanned = FrameTable { marks: NameMarks::Hashes(marks.clone(), None), ..table.clone() };
            for wanted in marks.iter().copied().take(100).chain([absent]) {
                let mut score = [9; 32];
                score[..MARK_BYTES].copy_from_slice(&wanted);
                let score = Score::from(score);
                let places: Vec<_> = table.places_of(&score).collect();
                prop_assert_eq!(&places, &scanned.places_of(&score).collect::<Vec<_>>());
                prop_assert_eq!(places.len(), marks.iter().filter(|mark| **mark == wanted).count());
            }
            prop_assert!(table.memory_bytes() >= scanned.memory_bytes());
        }

        #[test]
        fn no_table_panics(flips in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6), cut in any::<usize>()) {
            let (mut table, header) = sample(&[3, 1, 40]);
            for (place, byte) in flips {
                let place = place % table.len();
                table[place] ^= byte;
            }
            table.truncate(cut % (table.len() + 1));
            if let Some(read) = FrameTable::decode(&table, &header) {
                prop_assert_eq!(read.place(read.frame_count() - 1).unwrap().end, header.body_bytes);
            }
        }
    }

    #[test]
    fn a_table_that_lies_is_refused() {
        let (table, header) = sample(&[2, 3]);
        assert!(FrameTable::decode(&table, &header).is_some());
        // In order: counts, a delta of two blocks, a codec, a content beyond the bound, a length,
        // no blocks.
        for (offset, value) in
            [(0, 0), (0, 6), (4, 4), (8, 2), (8, 3), (12, u32::MAX - 101), (16, 51), (20, 0)]
        {
            let mut bad = table.clone();
            bad[offset..offset + 4].copy_from_slice(&u32::to_le_bytes(value));
            assert_eq!(FrameTable::decode(&bad, &header), None, "offset {offset}");
        }
        for length in 0..table.len() {
            assert_eq!(FrameTable::decode(&table[..length], &header), None, "cut to {length}");
        }
    }
}
