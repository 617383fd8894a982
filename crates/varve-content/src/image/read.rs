//! Random reads of an archived image or file by many readers at once. Browsing, mounting and
//! serving disks are built on this.
//!
//! A sequential reader gets the following data in large batches. A random reader gets only what it
//! requests. After enough random reads, it pays to read the pointer blocks of all leaves.
//!
//! Read-ahead runs outside of requests: [`read`](ImageReader::read) records what is due, and a
//! front end that has answered calls [`read_ahead`](ImageReader::read_ahead), so that the client
//! continues meanwhile. Without such a front end, sequential reads still get their batches, each
//! when the one before is used up.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use varve_block::{BlockName, BlockStore, to_usize};
use varve_image::ReadAt;
use varve_tree::{DueReadAhead, Entry, ReadTreeError, Streams, TreeReader};

use super::cached_blocks::CachedBlocks;

/// Upper bound on the extents that one search for data examines.
const EXTENT_COUNT_MAX: usize = 4096;
/// Upper bound on the leaves whose places are looked up in advance for random reads. They are
/// spread over the image, and so reach all of its clumps if it has no more than some gigabytes.
const EXPECTED_COUNT_MAX: usize = 4096;
/// Lookups in advance per call, so that the calling worker is soon free again, even if the store is
/// far away.
const EXPECTED_COUNT_EACH: usize = 64;

/// An archived image, or the content of an archived file, for random reads.
pub struct ImageReader {
    blocks: Arc<CachedBlocks>,
    entry: Entry,
    streams: Mutex<Streams>,
    /// Leaves whose places are still to be looked up in advance, the first ones last. Locked by the
    /// thread that reads ahead.
    expected: Mutex<Vec<BlockName>>,
}

impl ImageReader {
    /// A reader of the bytes that `entry` leads to. Reads nothing yet.
    #[must_use]
    pub fn new(blocks: Arc<CachedBlocks>, entry: &Entry) -> Self {
        Self { blocks, entry: *entry, streams: Mutex::default(), expected: Mutex::default() }
    }

    /// The entry of the image.
    #[must_use]
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Does a part of the read-ahead that earlier reads have made due. For sequential reads, it
    /// reads the following data. For random reads, it reads the pointer blocks, unless there are
    /// too many. A call returns at once if another thread is reading ahead. Otherwise all workers
    /// of a front end could be busy with read-ahead, and none with requests. Errors are ignored: a
    /// request for the same data meets them again.
    pub fn read_ahead(&self) {
        let Some(mut expected) = self.expected.try_lock() else { return };
        // In the match, the lock would be held and block all other readers.
        let due = self.streams.lock().take_due();
        match due {
            Some(DueReadAhead::Range(range)) => self.fetch(range),
            Some(DueReadAhead::Interior) => {
                let pointers =
                    self.blocks.interior_bytes_max() / u64::from(self.entry.pointer_bytes().max(1));
                let pointers = to_usize(pointers);
                *expected = self.reader().read_interior(pointers, EXPECTED_COUNT_MAX);
                expected.reverse();
            }
            None if expected.is_empty() => {}
            None => {
                let rest = expected.len().saturating_sub(EXPECTED_COUNT_EACH);
                self.blocks.expect(&expected.split_off(rest));
            }
        }
    }

    /// Fills `into` with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`ReadTreeError`] for the first unreadable bytes. The contents of `into` are then undefined.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadTreeError> {
        let end = offset.saturating_add(into.len() as u64).min(self.entry.size());
        let ahead = self.streams.lock().note(offset..end);
        if let Some(ahead) = ahead {
            self.fetch(ahead);
        }
        self.reader().read_at(offset, into)
    }

    /// The first data range at or after `offset`; `None` if only a hole follows. The examined part
    /// is bounded, so a long range may be reported in several parts. Holes have the granularity of
    /// the image's blocks.
    ///
    /// # Errors
    /// [`ReadTreeError`]: a pointer block is unreadable.
    pub fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, ReadTreeError> {
        self.next_data_in(offset..self.entry.size())
    }

    /// Like [`next_data`](Self::next_data), within a range. Nothing beyond its end is examined.
    ///
    /// # Errors
    /// As [`next_data`](Self::next_data).
    pub fn next_data_in(&self, range: Range<u64>) -> Result<Option<Range<u64>>, ReadTreeError> {
        let (offset, end) = (range.start, range.end.min(self.entry.size()));
        let mut data: Option<Range<u64>> = None;
        for extent in self.reader().extents(offset..end).take(EXTENT_COUNT_MAX) {
            let extent = match (extent, &data) {
                (Ok(extent), _) => extent,
                (Err(_), Some(_)) => break,
                (Err(damage), None) => return Err(damage.into()),
            };
            match &mut data {
                None if extent.leaf.is_some() => {
                    data = Some(extent.offset.max(offset)..extent.range().end.min(end));
                }
                Some(data) if extent.leaf.is_some() => data.end = extent.range().end.min(end),
                Some(_) => break,
                None => {}
            }
        }
        Ok(data)
    }

    fn reader(&self) -> TreeReader<'_> {
        TreeReader::new(&*self.blocks, &self.entry)
    }

    /// Reads the leaves of a range into the cache. Errors are ignored: a request for the same data
    /// meets them again.
    fn fetch(&self, range: Range<u64>) {
        let range = range.start..range.end.min(self.entry.size());
        let reader = self.reader();
        let extents: Vec<_> = reader.extents(range).map_while(Result::ok).collect();
        drop(reader.read_extents(&extents));
    }
}

impl ReadAt for ImageReader {
    fn size(&self) -> u64 {
        self.entry.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read(offset, into).map_err(|error| match error {
            ReadTreeError::BeyondEnd { .. } => io::Error::new(io::ErrorKind::UnexpectedEof, error),
            damage => io::Error::other(damage),
        })
    }
}

#[cfg(test)]
mod tests {

    use varve_block::{BlockKind, BlockType, MemoryBlockStore};
    use varve_tree::{FixedBuilder, Shape, put_leaves};

    use super::*;

    const LEAF: usize = 4096;
    const SHAPE: Shape = Shape { leaf_kind: BlockKind::Data, leaf_bytes: 4096, pointer_bytes: 4096 };

    fn archived(store: &MemoryBlockStore, bytes: &[u8]) -> Entry {
        let mut builder = FixedBuilder::new(store, SHAPE);
        builder.push(&put_leaves(store, &SHAPE, bytes).unwrap()).unwrap();
        builder.finish(bytes.len() as u64).unwrap()
    }

    /// 4 MiB of distinct blocks, except for a hole of 1 MiB.
    fn sample() -> Vec<u8> {
        let mut bytes = vec![0; 4 << 20];
        for (number, block) in bytes.chunks_mut(LEAF).enumerate() {
            if !(256..512).contains(&number) {
                block.fill(u8::try_from(number % 250).unwrap() + 1);
                block[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
            }
        }
        bytes
    }

    fn reader(bytes: &[u8], leaves_bytes: u64) -> (Arc<MemoryBlockStore>, ImageReader) {
        let store = Arc::new(MemoryBlockStore::new());
        let entry = archived(&store, bytes);
        let below: Arc<dyn BlockStore> = Arc::clone(&store) as _;
        let blocks = Arc::new(CachedBlocks::with_leaves_bytes(below, leaves_bytes));
        (store, ImageReader::new(blocks, &entry))
    }

    #[test]
    fn every_read_gives_the_bytes_that_were_archived() {
        let bytes = sample();
        let (_, reader) = reader(&bytes, 256 << 10);
        let mut place = 1_usize;
        for number in 0..3000_usize {
            place = if number % 3 == 0 { place.wrapping_mul(7919) % bytes.len() } else { place };
            let length = (number * 37 % 20_000).min(bytes.len() - place);
            let mut read = vec![0xee; length];
            reader.read_at(place as u64, &mut read).unwrap();
            assert!(read == bytes[place..place + length], "{length} bytes at {place}");
            place = (place + length) % bytes.len();
        }
        let past = reader.read_at(bytes.len() as u64 - 1, &mut [0; 2]).unwrap_err();
        assert_eq!(past.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn each_block_is_fetched_once() {
        let bytes = sample();
        let (store, reader) = reader(&bytes, 16 << 20);
        let before = store.get_count();
        let mut all = vec![0; 10_000];
        for _ in 0..2 {
            for offset in (0..bytes.len() - all.len()).step_by(all.len()) {
                reader.read_at(offset as u64, &mut all).unwrap();
            }
        }
        let fetched = store.get_count() - before;
        assert!(fetched <= 768 + 12, "768 leaves and what leads to them: {fetched}");
    }

    #[test]
    fn who_jumps_about_reads_nothing_ahead() {
        let bytes = sample();
        let (store, reader) = reader(&bytes, 16 << 20);
        reader.read_at(0, &mut [0; 512]).unwrap();
        let before = store.get_count();
        // These places are far enough from each other to count as random reads.
        for (number, place) in [3 << 20, 2 << 20, (5 << 20) / 2].into_iter().enumerate() {
            reader.read_at(place, &mut [0; 512]).unwrap();
            assert!(store.get_count() - before <= 2 * (number as u64 + 1), "{place}");
        }
    }

    #[test]
    fn who_has_jumped_often_finds_what_leads_to_leaves() {
        // A leaf every 2 MiB. Each has its own pointer block, and all of these are below the root.
        let (leaf_count, step) = (32, 2 << 20);
        let mut bytes = vec![0; leaf_count * step];
        for number in 0..leaf_count {
            bytes[number * step..][..LEAF].fill(u8::try_from(number).unwrap() + 1);
        }
        let (store, reader) = reader(&bytes, 16 << 20);
        let mut costs = Vec::new();
        for number in 0..leaf_count {
            let place = number * 7 % leaf_count * step;
            let before = store.get_count();
            let mut read = [0; 512];
            reader.read_at(place as u64, &mut read).unwrap();
            assert!(read == bytes[place..place + 512], "{place}");
            costs.push(store.get_count() - before);
            reader.read_ahead();
        }
        assert_eq!(costs[..16], [&[3][..], &[2; 15]].concat(), "the root, a pointer block, a leaf");
        assert_eq!(costs[16..], [1; 16], "a leaf");
        assert_eq!(store.get_count(), 1 + 2 * 32);
    }

    /// A store that records the names in each call of `expect`.
    #[derive(Default)]
    struct Expecting {
        store: MemoryBlockStore,
        recorded: Mutex<Vec<Vec<BlockName>>>,
    }

    impl BlockStore for Expecting {
        varve_block::forward_block_store!(store: score_bytes, empty_score, put, get, sync);

        fn expect(&self, names: &[BlockName]) {
            self.recorded.lock().push(names.to_vec());
        }
    }

    #[test]
    fn the_store_is_told_what_to_expect_a_little_at_a_time() {
        let below = Arc::new(Expecting::default());
        // 8192 distinct leaves.
        let mut bytes = vec![0; 32 << 20];
        for (number, block) in bytes.chunks_mut(LEAF).enumerate() {
            block.fill(u8::try_from(number % 250).unwrap() + 1);
            block[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
        }
        let entry = archived(&below.store, &bytes);
        let blocks = CachedBlocks::with_leaves_bytes(Arc::clone(&below) as _, 16 << 20);
        let reader = ImageReader::new(Arc::new(blocks), &entry);
        for number in 0..200 {
            reader.read_at((number * 13 % 32) << 20, &mut [0; 512]).unwrap();
            reader.read_ahead();
        }
        let recorded = below.recorded.lock();
        assert!(recorded.iter().all(|names| (1..=EXPECTED_COUNT_EACH).contains(&names.len())));
        let (count, first) = (recorded.concat().len(), recorded[0].last().unwrap());
        assert!(
            (EXPECTED_COUNT_MAX / 2..=EXPECTED_COUNT_MAX).contains(&count),
            "{count} of 8192, spread over all"
        );
        assert_eq!(*first, archived_leaf(&below.store, &bytes[..LEAF]), "from the front of the image on");
    }

    #[test]
    fn who_reads_on_finds_what_comes_next() {
        let bytes = sample();
        let (store, reader) = reader(&bytes, 16 << 20);
        let mut waits = 0;
        for offset in (0..bytes.len()).step_by(64 << 10) {
            let before = store.get_count();
            let mut read = vec![0; 64 << 10];
            reader.read_at(offset as u64, &mut read).unwrap();
            assert!(read == bytes[offset..offset + read.len()], "{offset}");
            waits += u64::from(store.get_count() > before);
            reader.read_ahead();
        }
        assert!(waits <= 3, "{waits}: only until it is clear that somebody reads on");
        assert!(store.get_count() <= 768 + 12, "each block once: {}", store.get_count());
    }

    #[test]
    fn holes_are_known() {
        let bytes = sample();
        let (_, reader) = reader(&bytes, 1 << 20);
        let mut found = Vec::new();
        let mut offset = 5;
        while let Some(data) = reader.next_data(offset).unwrap() {
            offset = data.end;
            found.push(data);
        }
        assert_eq!(found, [5..1 << 20, 2 << 20..4 << 20]);
        assert_eq!(reader.next_data(1 << 20).unwrap(), Some(2 << 20..4 << 20));
        assert_eq!(reader.next_data_in(1 << 20..(2 << 20) + 7).unwrap(), Some(2 << 20..(2 << 20) + 7));
        assert_eq!(reader.next_data_in(1 << 20..2 << 20).unwrap(), None);
    }

    #[test]
    fn damage_is_an_error_for_what_it_hits_alone() {
        let bytes = sample();
        let (store, reader) = reader(&bytes, 16 << 20);
        let lost = archived_leaf(&store, &bytes[10 * LEAF..11 * LEAF]);
        assert!(store.lose(&lost));
        let mut block = vec![0; LEAF];
        for number in 0..20 {
            let read = reader.read_at((number * LEAF) as u64, &mut block);
            assert_eq!(read.is_err(), number == 10, "{number}");
        }
    }

    fn archived_leaf(store: &MemoryBlockStore, bytes: &[u8]) -> BlockName {
        let score = put_leaves(store, &SHAPE, bytes).unwrap()[0];
        BlockName { score, block_type: BlockType::leaf(BlockKind::Data) }
    }
}
