//! An arena that is being fetched: its records are checked as they come, out of memory, so that the disk need not give them back at once.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use varve_log::{ArenaHeader, ArenaId, GRANULE_BYTES, Granule, Log, OpenedArena, ReadLogError};
use varve_world::Storage;

use crate::held::Held;

/// A record that was checked: where it begins, and its code.
type Checked = (Granule, [u8; 16]);

/// What of an arena was found right while it came.
#[derive(Default)]
pub(crate) struct Arrival {
    opened: Option<OpenedArena>,
    checked: Vec<Checked>,
    /// Where the next record begins, if all records before are known.
    next: Option<Granule>,
}

impl Arrival {
    /// An arena of which nothing has come yet.
    pub(crate) fn begin() -> Self {
        Self { next: Granule::at_or_after(ArenaHeader::BYTES), ..Self::default() }
    }

    /// Checks those records that are whole in `piece`, which has come and is also in the `storage`. What cannot be read as a record
    /// is left to whoever looks at the whole arena.
    pub(crate) fn take(
        &mut self,
        log: &Log,
        storage: &Arc<dyn Storage>,
        id: ArenaId,
        offset: u64,
        piece: Bytes,
    ) {
        let end = offset + piece.len() as u64;
        let held = Held::in_memory(storage, id, offset, piece.clone());
        if self.check(&log.over(Arc::new(held)), id, offset..end, piece).is_err() {
            self.next = None;
        }
    }

    fn check(&mut self, log: &Log, id: ArenaId, range: Range<u64>, piece: Bytes) -> Result<(), ReadLogError> {
        let Some(mut granule) = self.next else { return Ok(()) };
        let opened = match self.opened.take() {
            Some(opened) => opened,
            None => log.open_arena(id)?,
        };
        let opened = self.opened.insert(opened);
        let mut window = log.window_over(opened, range.start, piece);
        while granule.byte_offset() + GRANULE_BYTES <= range.end {
            let header = window.record(granule)?;
            let Some(next) = header.next() else { break };
            if granule.byte_offset() >= range.start && next.byte_offset() <= range.end {
                self.checked.push((granule, window.authenticate(granule)?.code));
            }
            granule = next;
        }
        self.next = Some(granule);
        Ok(())
    }

    /// Whether the record that begins at `granule` has come whole, with this code.
    pub(crate) fn has_checked(&self, granule: Granule, code: &[u8; 16]) -> bool {
        let place = self.checked.binary_search_by_key(&granule, |(granule, _)| *granule);
        place.is_ok_and(|place| self.checked[place].1 == *code)
    }
}

#[cfg(test)]
mod tests {
    use varve_block::{Block, BlockStore, BlockType};
    use varve_store::{Access, PassphraseCost, Secret, Store, StoreConfig};
    use varve_world::{FixedClock, InlineWorkers, MemoryStorage, Random, SeededRandom, Timestamp, World};

    use super::*;
    use crate::records::ArenaRecords;

    const ID: ArenaId = ArenaId(0);

    /// A log of some records, and its only arena as it is.
    fn sample() -> (Arc<dyn Storage>, Log, Vec<u8>) {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let random = Arc::new(SeededRandom::new(3));
        let clock = Arc::new(FixedClock(Timestamp(0)));
        let world = World { storage: Arc::clone(&storage), clock, random, workers: Arc::new(InlineWorkers) };
        let secret = Secret::KeyFile(vec![7; 32].into());
        let config = StoreConfig::new([1; 16]);
        Store::create(&world, &config, Some(&secret), PassphraseCost::default()).unwrap();
        for night in 0..20 {
            let access = Access::Write { holder: "test" };
            let store = Store::open(world.clone(), Some(&secret), access, &mut |_| {}).unwrap();
            for number in 0..3 {
                let mut bytes = vec![0; 9000];
                SeededRandom::new(night * 100 + number).fill(&mut bytes).unwrap();
                store.put(Block { block_type: BlockType::DATA, bytes: &bytes }).unwrap();
            }
            store.close().unwrap();
        }
        let arena = storage.read_whole(&ID.file_name(), 1 << 30).unwrap();
        let (_, log) = Store::unlock(&world, Some(&secret)).unwrap();
        (storage, log, arena)
    }

    /// How many records were checked when the arena came in pieces of this length, and how many were whole in one of them.
    fn checked(log: &Log, storage: &Arc<dyn Storage>, arena: &[u8], piece_bytes: usize) -> (usize, usize) {
        let mut arrival = Arrival::begin();
        for (offset, piece) in (0..).step_by(piece_bytes).zip(arena.chunks(piece_bytes)) {
            arrival.take(log, storage, ID, offset, Bytes::copy_from_slice(piece));
        }
        let opened = log.open_arena(ID).unwrap();
        let records = ArenaRecords::read(log, &opened).unwrap();
        let records = records.within(&(0..u64::MAX));
        assert!(records.len() > 10);
        let length = piece_bytes as u64;
        let is_whole = |start: u64, end: u64| start / length == (end - 1) / length;
        let whole =
            records.iter().filter(|record| is_whole(record.granule.byte_offset(), record.end)).count();
        for record in records {
            assert!(!arrival.has_checked(record.granule, &[0; 16]), "another code");
        }
        (records.iter().filter(|record| arrival.has_checked(record.granule, &record.code)).count(), whole)
    }

    #[test]
    fn each_record_that_is_whole_in_a_piece_is_checked() {
        let (storage, log, arena) = sample();
        for piece_bytes in [arena.len(), 100_000, 65_536, 33_333, 4096] {
            let (checked, whole) = checked(&log, &storage, &arena, piece_bytes);
            assert_eq!(checked, whole, "pieces of {piece_bytes} bytes");
            assert!(checked > 0);
        }
    }

    #[test]
    fn nothing_is_called_checked_from_the_first_that_is_not_right_on() {
        let (storage, log, mut arena) = sample();
        let (all, _) = checked(&log, &storage, &arena, arena.len());
        let middle = arena.len() / 2;
        arena[middle] ^= 1;
        let (before, _) = checked(&log, &storage, &arena, arena.len());
        assert!(0 < before && before < all, "{before} of {all}");
    }
}
