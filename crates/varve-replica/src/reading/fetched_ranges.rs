//! Parts of a replica's arenas in memory, and those that are being fetched. Each byte is fetched by
//! one thread; the others wait for it.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use varve_block::to_usize;
use varve_log::ArenaId;

use super::range_cache::BLOCK_BYTES;
use super::read_sequences::ReadSequences;

/// A bounded number of bytes, of which those that were not used for the longest time go first.
pub(super) struct FetchedRanges {
    inside: Mutex<FetchedState>,
    /// A fetch has ended.
    has_ended: Condvar,
    bytes_max: u64,
}

#[derive(Default)]
struct FetchedState {
    /// The ranges by their starts. They do not overlap.
    ranges: BTreeMap<(ArenaId, u64), FetchedRange>,
    /// The ranges in memory, by their last use.
    uses: BTreeMap<u64, (ArenaId, u64)>,
    uses_end: u64,
    bytes: u64,
    sequences: ReadSequences,
}

struct FetchedRange {
    end: u64,
    /// Its bytes, and their last use. `None` while it is fetched.
    found: Option<(Bytes, u64)>,
    /// True if it was fetched ahead, and no reader has wanted it yet.
    is_ahead: bool,
}

/// The answer to a reader.
pub(super) enum RangeAnswer<'a> {
    Known(KnownBytes),
    /// The reader has to fetch them.
    Fetch(PendingFetch<'a>),
}

/// The wanted bytes, or the first of them.
pub(super) struct KnownBytes {
    pub(super) bytes: Bytes,
    /// The end of their range, if it was fetched ahead and is wanted for the first time: the reader
    /// goes on there.
    pub(super) goes_on_at: Option<u64>,
}

/// A range that its owner fetches. Without an answer, another reader may fetch it.
pub(super) struct PendingFetch<'a> {
    fetched: &'a FetchedRanges,
    arena: ArenaId,
    range: Range<u64>,
}

impl FetchedRanges {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { inside: Mutex::default(), has_ended: Condvar::new(), bytes_max }
    }

    /// Returns the first of the wanted bytes that are in memory.
    pub(super) fn get(&self, arena: ArenaId, wanted: &Range<u64>) -> Option<KnownBytes> {
        self.inside.lock().get(arena, wanted)
    }

    /// Returns the first of the wanted bytes, or the range that the reader has to fetch. It begins
    /// at the block of the first wanted byte, and goes on behind the last one if the reader reads
    /// in order. All lie in `object`, the range of an object in its arena. Waits if another thread
    /// fetches these bytes.
    pub(super) fn claim(&self, arena: ArenaId, wanted: &Range<u64>, object: &Range<u64>) -> RangeAnswer<'_> {
        let mut inside = self.inside.lock();
        while inside.is_fetched_now(arena, wanted.start) {
            self.has_ended.wait(&mut inside);
        }
        if let Some(known) = inside.get(arena, wanted) {
            return RangeAnswer::Known(known);
        }
        RangeAnswer::Fetch(self.begin(inside, arena, wanted, object, false))
    }

    /// Returns the range around a byte, if it is known or being fetched.
    pub(super) fn around(&self, arena: ArenaId, place: u64) -> Option<Range<u64>> {
        self.inside.lock().around(arena, place).map(|(start, range)| start..range.end)
    }

    /// Returns a range to fetch ahead, from `place` on. `None` if another thread was faster, or
    /// nobody reads in order up to there.
    pub(super) fn claim_ahead(
        &self,
        arena: ArenaId,
        place: u64,
        object: &Range<u64>,
    ) -> Option<PendingFetch<'_>> {
        let inside = self.inside.lock();
        let is_free =
            inside.around(arena, place).is_none() && inside.sequences.is_at_full_speed(arena, place);
        is_free.then(|| self.begin(inside, arena, &(place..place + 1), object, true))
    }

    fn begin(
        &self,
        mut inside: MutexGuard<'_, FetchedState>,
        arena: ArenaId,
        wanted: &Range<u64>,
        object: &Range<u64>,
        is_ahead: bool,
    ) -> PendingFetch<'_> {
        let range = inside.range_to_fetch(arena, wanted, object);
        let found = FetchedRange { end: range.end, found: None, is_ahead };
        inside.ranges.insert((arena, range.start), found);
        PendingFetch { fetched: self, arena, range }
    }

    fn end(&self, mut inside: MutexGuard<'_, FetchedState>) {
        while inside.bytes > self.bytes_max
            && let Some((_, place)) = inside.uses.pop_first()
            && let Some(oldest) = inside.ranges.remove(&place)
        {
            inside.bytes = inside.bytes.saturating_sub(oldest.end.saturating_sub(place.1));
        }
        drop(inside);
        self.has_ended.notify_all();
    }
}

impl FetchedState {
    /// Returns the start of the range with a byte.
    fn around(&self, arena: ArenaId, place: u64) -> Option<(u64, &FetchedRange)> {
        let (&(_, start), range) = self.ranges.range((arena, 0)..=(arena, place)).next_back()?;
        (place < range.end).then_some((start, range))
    }

    fn is_fetched_now(&self, arena: ArenaId, place: u64) -> bool {
        self.around(arena, place).is_some_and(|(_, range)| range.found.is_none())
    }

    fn get(&mut self, arena: ArenaId, wanted: &Range<u64>) -> Option<KnownBytes> {
        let start = self.around(arena, wanted.start)?.0;
        let next_use = self.uses_end;
        let range = self.ranges.get_mut(&(arena, start))?;
        let end = range.end.min(wanted.end);
        let (bytes, last_use) = range.found.as_mut()?;
        let index = |place: u64| to_usize(place - start);
        let bytes = bytes.slice(index(wanted.start)..index(end));
        let goes_on_at = std::mem::take(&mut range.is_ahead).then_some(range.end);
        self.uses.remove(last_use);
        self.uses.insert(next_use, (arena, start));
        *last_use = next_use;
        self.uses_end += 1;
        Some(KnownBytes { bytes, goes_on_at })
    }

    /// Returns the range to fetch for wanted bytes of which the first is in no range.
    fn range_to_fetch(&mut self, arena: ArenaId, wanted: &Range<u64>, object: &Range<u64>) -> Range<u64> {
        // All ranges of an object begin at a block of it, so no other range begins within this one.
        let to_block = |place: u64| object.start + (place - object.start) / BLOCK_BYTES * BLOCK_BYTES;
        let next = self.ranges.range((arena, wanted.start)..=(arena, u64::MAX)).next();
        let limit = next.map_or(object.end, |(&(_, start), _)| start.min(object.end));
        let start = to_block(wanted.start);
        let end = to_block(wanted.end.saturating_add(BLOCK_BYTES - 1)).min(limit);
        start..to_block_end(self.sequences.fetch_end(arena, start..end, limit), object, limit)
    }
}

/// Returns the end of the block that has the last byte before `end`.
fn to_block_end(end: u64, object: &Range<u64>, limit: u64) -> u64 {
    (object.start + (end - object.start).next_multiple_of(BLOCK_BYTES)).min(limit)
}

impl PendingFetch<'_> {
    /// The range to fetch, in the arena.
    pub(super) fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Reports whether a reader gets the longest parts, and goes on behind this one.
    pub(super) fn is_at_full_speed(&self) -> bool {
        self.fetched.inside.lock().sequences.is_at_full_speed(self.arena, self.range.end)
    }

    /// Takes the fetched bytes, which are as many as the range has.
    pub(super) fn put(self, bytes: Bytes) {
        let mut inside = self.fetched.inside.lock();
        let place = (self.arena, self.range.start);
        let this_use = inside.uses_end;
        inside.uses_end += 1;
        inside.bytes += self.range.end - self.range.start;
        inside.uses.insert(this_use, place);
        if let Some(range) = inside.ranges.get_mut(&place) {
            range.found = Some((bytes, this_use));
        }
    }
}

impl Drop for PendingFetch<'_> {
    fn drop(&mut self) {
        let mut inside = self.fetched.inside.lock();
        let place = (self.arena, self.range.start);
        if inside.ranges.get(&place).is_some_and(|range| range.found.is_none()) {
            inside.ranges.remove(&place);
        }
        self.fetched.end(inside);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};
    use varve_world::{RealWorkers, Task, Workers};

    use super::*;

    const ARENA_BYTES: u64 = 3_000_000;
    /// Where the second object of each arena begins, which need not be the end of a block.
    const SECOND: u64 = 1_234_567;

    fn object(place: u64) -> Range<u64> {
        if place < SECOND { 0..SECOND } else { SECOND..ARENA_BYTES }
    }

    fn contents(arena: ArenaId, range: &Range<u64>) -> Bytes {
        range.clone().map(|place| u8::try_from((place + arena.0) % 251).unwrap()).collect()
    }

    /// Reads as a replica does. Returns the bytes and the ranges that were fetched.
    fn read(fetched: &FetchedRanges, arena: ArenaId, mut wanted: Range<u64>) -> (Vec<u8>, Vec<Range<u64>>) {
        let (mut bytes, mut ranges) = (Vec::new(), Vec::new());
        while !wanted.is_empty() {
            let object = object(wanted.start);
            let piece = match fetched.claim(arena, &(wanted.start..wanted.end.min(object.end)), &object) {
                RangeAnswer::Known(known) => known.bytes,
                RangeAnswer::Fetch(fetch) => {
                    let range = fetch.range();
                    ranges.push(range.clone());
                    let whole = contents(arena, &range);
                    let index = |place: u64| to_usize(place - range.start);
                    let end = index(wanted.end).min(whole.len());
                    fetch.put(whole.clone());
                    whole.slice(index(wanted.start)..end)
                }
            };
            assert!(!piece.is_empty());
            bytes.extend_from_slice(&piece);
            wanted.start += piece.len() as u64;
        }
        (bytes, ranges)
    }

    proptest! {
        #[test]
        fn each_read_gets_its_bytes_and_memory_is_bounded(
            reads in prop::collection::vec((0_u64..3, 0..ARENA_BYTES, 1_u64..400_000), 1..40),
            bytes_max in 0_u64..2_000_000,
        ) {
            let fetched = FetchedRanges::new(bytes_max);
            for (arena, start, length) in reads {
                let (arena, wanted) = (ArenaId(arena), start..(start + length).min(ARENA_BYTES));
                let (bytes, ranges) = read(&fetched, arena, wanted.clone());
                prop_assert_eq!(bytes, contents(arena, &wanted));
                for range in ranges {
                    let object = object(range.start);
                    prop_assert!(!range.is_empty() && range.end <= object.end);
                    prop_assert_eq!((range.start - object.start) % BLOCK_BYTES, 0);
                }
                let inside = fetched.inside.lock();
                let held: u64 = inside.ranges.iter().map(|((_, start), range)| range.end - start).sum();
                prop_assert_eq!(held, inside.bytes);
                prop_assert!(held <= bytes_max);
                prop_assert_eq!(inside.ranges.len(), inside.uses.len());
                let ends = inside.ranges.iter().map(|((arena, _), range)| (*arena, range.end));
                prop_assert!(ends.zip(inside.ranges.keys().skip(1)).all(|(end, next)| end <= *next));
            }
        }
    }

    #[test]
    fn a_byte_is_fetched_once_however_many_threads_want_it() {
        let (fetched, total) = (FetchedRanges::new(u64::MAX), AtomicU64::new(0));
        let read_all = |first: u64| {
            for step in 0..ARENA_BYTES / 50_000 {
                let start = (first + step * 50_000) % ARENA_BYTES;
                let wanted = start..(start + 50_000).min(ARENA_BYTES);
                let (bytes, ranges) = read(&fetched, ArenaId(1), wanted.clone());
                assert_eq!(bytes, contents(ArenaId(1), &wanted));
                total.fetch_add(ranges.iter().map(|range| range.end - range.start).sum(), Relaxed);
            }
        };
        let tasks = [0, 100_000, 100_000, 1_500_000];
        RealWorkers::new(4)
            .run_all(tasks.map(|first| Box::new(move || read_all(first)) as Task<'_>).into_iter().collect());
        assert_eq!(total.load(Relaxed), ARENA_BYTES);
    }

    #[test]
    fn a_fetch_that_fails_leaves_the_bytes_to_the_next_reader() {
        let fetched = FetchedRanges::new(u64::MAX);
        let RangeAnswer::Fetch(fetch) = fetched.claim(ArenaId(1), &(70_000..70_001), &object(0)) else {
            panic!()
        };
        assert_eq!(fetch.range(), BLOCK_BYTES..2 * BLOCK_BYTES);
        drop(fetch);
        assert_eq!(read(&fetched, ArenaId(1), 70_000..70_001).1.len(), 1);
        assert!(read(&fetched, ArenaId(1), 70_000..70_001).1.is_empty());
        assert!(fetched.get(ArenaId(2), &(70_000..70_001)).is_none());
    }
}
