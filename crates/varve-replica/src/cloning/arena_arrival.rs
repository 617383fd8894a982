//! An arena that is being fetched. Its records are checked in memory as they arrive, so that they
//! need not be read back from the disk.

use std::sync::Arc;

use bytes::Bytes;
use varve_log::{ArenaHeader, ArenaId, FilePart, GRANULE_BYTES, Granule, Log, OpenedArena, ReadLogError};
use varve_world::Storage;

use crate::reading::overlaid_storage::OverlaidStorage;

/// A checked record: its place and its code.
type CheckedRecord = (Granule, [u8; 16]);

/// The records of an arena that were checked as they arrived.
#[derive(Default)]
pub(crate) struct ArenaArrival {
    opened: Option<OpenedArena>,
    checked: Vec<CheckedRecord>,
    /// The place of the next record, if all records before it are known.
    next: Option<Granule>,
    /// The received bytes from there on.
    begun: FilePart,
}

impl ArenaArrival {
    /// Makes an arena of which nothing has arrived yet.
    pub(crate) fn begin() -> Self {
        Self { next: Granule::at_or_after(ArenaHeader::BYTES), ..Self::default() }
    }

    /// Checks the records that `piece` completes. `piece` follows the earlier pieces, and is also
    /// in `storage`. Bytes that are not a readable record are left to the check of the whole arena.
    pub(crate) fn take(&mut self, log: &Log, storage: &Arc<dyn Storage>, id: ArenaId, piece: Bytes) {
        let Some(next) = self.next else { return };
        self.begun.push(piece);
        let held = OverlaidStorage::in_memory(storage, id, self.begun.clone());
        self.next = self.check(&log.over(Arc::new(held)), id, next).unwrap_or(None);
        match self.next {
            Some(next) => self.begun.forget_before(next.byte_offset()),
            None => self.begun = FilePart::default(),
        }
    }

    /// Checks the complete records from `granule` on. Returns the place of the next record.
    fn check(
        &mut self,
        log: &Log,
        id: ArenaId,
        mut granule: Granule,
    ) -> Result<Option<Granule>, ReadLogError> {
        let opened = match self.opened.take() {
            Some(opened) => opened,
            None => log.open_arena(id)?,
        };
        let opened = self.opened.insert(opened);
        let mut window = log.window_over(opened, self.begun.clone());
        let end = self.begun.end();
        while granule.byte_offset() + GRANULE_BYTES <= end {
            let Some(next) = window.record(granule)?.next() else { return Ok(None) };
            if next.byte_offset() > end {
                break;
            }
            self.checked.push((granule, window.authenticate(granule)?.code));
            granule = next;
        }
        Ok(Some(granule))
    }

    /// Returns true if the record at `granule` has arrived complete, with this code.
    pub(crate) fn has_checked(&self, granule: Granule, code: &[u8; 16]) -> bool {
        let place = self.checked.binary_search_by_key(&granule, |(granule, _)| *granule);
        place.is_ok_and(|place| self.checked[place].1 == *code)
    }
}

#[cfg(test)]
mod tests {
    use varve_block::{Block, BlockStore, BlockType};
    use varve_store::{PassphraseCost, Secret, Store, StoreAccess, StoreConfig};
    use varve_world::{FixedClock, InlineWorkers, MemoryStorage, Random, SeededRandom, Timestamp, World};

    use super::*;
    use crate::objects::record_ends::ArenaRecords;

    const ID: ArenaId = ArenaId(0);

    /// Makes a log with some records. Returns it with the bytes of its only arena.
    fn sample() -> (Arc<dyn Storage>, Log, Vec<u8>) {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let random = Arc::new(SeededRandom::new(3));
        let clock = Arc::new(FixedClock(Timestamp(0)));
        let world = World { storage: Arc::clone(&storage), clock, random, workers: Arc::new(InlineWorkers) };
        let secret = Secret::KeyFile(vec![7; 32].into());
        let config = StoreConfig::new([1; 16]);
        Store::create(&world, &config, Some(&secret), PassphraseCost::default()).unwrap();
        for night in 0..20 {
            let access = StoreAccess::Write { holder: "test" };
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

    /// Returns the number of records that were checked when the arena arrived in pieces of this
    /// length, and the number of all records.
    fn checked(log: &Log, storage: &Arc<dyn Storage>, arena: &[u8], piece_bytes: usize) -> (usize, usize) {
        let mut arrival = ArenaArrival::begin();
        for piece in arena.chunks(piece_bytes) {
            arrival.take(log, storage, ID, Bytes::copy_from_slice(piece));
        }
        let opened = log.open_arena(ID).unwrap();
        let records = ArenaRecords::read(log, &opened).unwrap();
        let records = records.within(&(0..u64::MAX));
        assert!(records.len() > 10);
        for record in records {
            assert!(!arrival.has_checked(record.granule, &[0; 16]), "another code");
        }
        let checked = records.iter().filter(|record| arrival.has_checked(record.granule, &record.code));
        (checked.count(), records.len())
    }

    #[test]
    fn each_record_is_checked_however_it_comes() {
        let (storage, log, arena) = sample();
        for piece_bytes in [arena.len(), 100_000, 65_536, 33_333, 4096, 1000, 100] {
            let (checked, all) = checked(&log, &storage, &arena, piece_bytes);
            assert_eq!(checked, all, "pieces of {piece_bytes} bytes");
        }
    }

    #[test]
    fn what_was_checked_is_let_go() {
        let (storage, log, arena) = sample();
        let mut arrival = ArenaArrival::begin();
        for piece in arena.chunks(4096) {
            arrival.take(&log, &storage, ID, Bytes::copy_from_slice(piece));
            let next = arrival.next.expect("an open arena has nothing but records");
            assert!(arrival.begun.slice(next.byte_offset().saturating_sub(1), 1).is_none());
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
