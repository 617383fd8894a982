//! Reads the arenas of a replica: from memory, from the cache on disk, or from the target.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use varve_block::to_usize;
use varve_log::ArenaId;
use varve_world::FileName;

use crate::objects::listing::ListedSegment;
use crate::reading::fetched_ranges::{FetchedRanges, KnownBytes, PendingFetch, RangeAnswer};
use crate::reading::range_cache::{BLOCK_BYTES, RangeCache};
use crate::reading::replica::{Replica, to_io};

/// The memory for parts of arenas. Beyond it, each thread holds what it fetches.
const FETCHED_BYTES_MAX: u64 = 128 << 20;
/// The longest fetch that goes into the cache.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// The bytes that are fetched ahead of a reader in order. They fit into the memory beside those
/// that the reader has.
const AHEAD_BYTES_MAX: u64 = 32 << 20;

/// The reader of a replica's arenas.
pub(super) struct ArenaReader {
    replica: Arc<Replica>,
    cache: Option<RangeCache>,
    fetched: FetchedRanges,
}

impl ArenaReader {
    pub(super) fn new(replica: Arc<Replica>, cache: Option<RangeCache>) -> Self {
        Self { replica, cache, fetched: FetchedRanges::new(FETCHED_BYTES_MAX) }
    }

    pub(super) fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Reads a range of an arena. Calls `goes_on` with a place from which on a reader in order will
    /// want more.
    ///
    /// # Errors
    /// As [`Replica::read_arena`].
    pub(super) fn read(&self, id: ArenaId, range: Range<u64>, goes_on: &dyn Fn(u64)) -> io::Result<Bytes> {
        self.replica.read_parts(id, range, |segment, part| {
            let object = segment.range();
            let (mut place, end) = (object.start + part.start, object.start + part.end);
            let mut joined = BytesMut::new();
            loop {
                let piece = self.read_piece(id, segment, &(place..end), goes_on)?;
                if piece.len() as u64 == part.end - part.start {
                    return Ok(piece);
                }
                joined.extend_from_slice(&piece);
                place += piece.len() as u64;
                if place == end {
                    return Ok(joined.freeze());
                }
            }
        })
    }

    /// Returns the first of some wanted bytes, at least one of them.
    fn read_piece(
        &self,
        id: ArenaId,
        segment: &ListedSegment,
        wanted: &Range<u64>,
        goes_on: &dyn Fn(u64),
    ) -> io::Result<Bytes> {
        let of_known = |KnownBytes { bytes, goes_on_at }: KnownBytes| {
            goes_on_at.iter().for_each(|place| goes_on(*place));
            Ok(bytes)
        };
        if let Some(known) = self.fetched.get(id, wanted) {
            return of_known(known);
        }
        let (name, object) = (segment.name.file_name(), segment.range());
        let part = wanted.start - object.start..wanted.end - object.start;
        if let Some(bytes) = self.cached(&name, &part) {
            return Ok(bytes);
        }
        let fetch = match self.fetched.claim(id, wanted, &object) {
            RangeAnswer::Known(known) => return of_known(known),
            RangeAnswer::Fetch(fetch) => fetch,
        };
        let range = fetch.range();
        if fetch.is_at_full_speed() {
            // The next part is fetched at the same time.
            goes_on(range.end);
        }
        let wanted = wanted.start..wanted.end.min(range.end);
        match self.get(&name, range.start - object.start..range.end - object.start) {
            // An object that is cut short may still have what is wanted.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.get(&name, wanted.start - object.start..wanted.end - object.start)
            }
            got => {
                let bytes = got?;
                self.put(&name, object.start, fetch, bytes.clone());
                Ok(bytes.slice(index(wanted.start - range.start)..index(wanted.end - range.start)))
            }
        }
    }

    /// Fetches a part of an arena that a reader in order has not yet reached, if there is one
    /// within the bytes that are fetched ahead of it.
    pub(super) fn read_ahead(&self, mut id: ArenaId, mut place: u64) {
        let mut left = AHEAD_BYTES_MAX;
        while left > 0 {
            if self.replica.arena_bytes(id).is_some_and(|bytes| bytes <= place) {
                let Some(next) = id.0.checked_add(1) else { return };
                (id, place) = (ArenaId(next), 0);
            }
            let Some(segment) = self.replica.segment_at(id, place) else { return };
            if let Some(known) = self.fetched.around(id, place) {
                left = left.saturating_sub(known.end - place);
                place = known.end;
                continue;
            }
            let object = segment.range();
            let Some(fetch) = self.fetched.claim_ahead(id, place, &object) else { return };
            let (name, range) = (segment.name.file_name(), fetch.range());
            match self.get(&name, range.start - object.start..range.end - object.start) {
                Ok(bytes) => self.put(&name, object.start, fetch, bytes),
                // The reader meets the same error when it is there.
                Err(error) => tracing::debug!(%error, object = %name, "nothing was fetched ahead"),
            }
            return;
        }
    }

    fn get(&self, object: &FileName, part: Range<u64>) -> io::Result<Bytes> {
        self.replica.target().get(object, part).map_err(to_io)
    }

    /// Returns the first of the wanted bytes of an object from the cache.
    fn cached(&self, object: &FileName, wanted: &Range<u64>) -> Option<Bytes> {
        let block = wanted.start / BLOCK_BYTES;
        let bytes = self.cache.as_ref()?.get(object, block)?;
        let inside = |place: u64| index(place - block * BLOCK_BYTES);
        let end = inside(wanted.end).min(bytes.len());
        (inside(wanted.start) < end).then(|| bytes.slice(inside(wanted.start)..end))
    }

    /// Keeps fetched bytes in memory, and a short part for later commands. A long part is read in
    /// order, by a restore: it would only displace what is read here and there, and is fetched
    /// again as fast.
    fn put(&self, object: &FileName, object_start: u64, fetch: PendingFetch<'_>, bytes: Bytes) {
        if let Some(cache) = self.cache.as_ref().filter(|_| bytes.len() <= KEPT_BYTES_MAX) {
            let first = (fetch.range().start - object_start) / BLOCK_BYTES;
            for (number, block) in (first..).zip(bytes.chunks(index(BLOCK_BYTES))) {
                cache.put(object, number, block);
            }
        }
        fetch.put(bytes);
    }
}

fn index(place: u64) -> usize {
    to_usize(place)
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use varve_remote::{Capabilities, MemoryTarget, Object, PutMode, Survey, Target, TargetError};

    use super::*;
    use crate::objects::listing::ReplicaListing;
    use crate::objects::object_name::{SegmentEnd, SegmentName};
    use crate::reading::read_ahead::ReadAhead;

    const SEGMENT_BYTES: u64 = 15 << 20;
    const READ_BYTES: u64 = 100_000;

    /// A target that counts the reads.
    struct Counted {
        below: MemoryTarget,
        gets: AtomicUsize,
    }

    impl fmt::Display for Counted {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.below.fmt(f)
        }
    }

    impl Target for Counted {
        fn capabilities(&self) -> Capabilities {
            self.below.capabilities()
        }

        fn put(&self, name: &FileName, contents: Bytes, mode: PutMode) -> Result<(), TargetError> {
            self.below.put(name, contents, mode)
        }

        fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, TargetError> {
            self.gets.fetch_add(1, Ordering::Relaxed);
            self.below.get(name, range)
        }

        fn list(&self, folder: &str) -> Result<Vec<Object>, TargetError> {
            self.below.list(folder)
        }

        fn survey(&self) -> Result<Survey, TargetError> {
            self.below.survey()
        }

        fn remove(&self, name: &FileName) -> Result<(), TargetError> {
            self.below.remove(name)
        }
    }

    fn contents(arena: ArenaId, range: Range<u64>) -> Bytes {
        range.map(|place| u8::try_from((place / 64 + arena.0) % 251).unwrap()).collect()
    }

    /// Two arenas of four segments each.
    fn replica() -> (Arc<Counted>, Arc<ArenaReader>) {
        let target = MemoryTarget::new();
        for arena in [ArenaId(0), ArenaId(1)] {
            for number in 0..4_u8 {
                let offset = u64::from(number) * SEGMENT_BYTES;
                let (start, end) = ([number; 16], SegmentEnd::Record([number + 1; 16]));
                let name = SegmentName { arena, generation: 0, offset, start, end };
                target.set(&name.file_name(), Some(contents(arena, offset..offset + SEGMENT_BYTES)));
            }
        }
        let target = Arc::new(Counted { below: target, gets: AtomicUsize::new(0) });
        let listing = ReplicaListing::read(target.as_ref()).unwrap();
        let replica = Replica::of(Arc::<Counted>::clone(&target), listing);
        (target, Arc::new(ArenaReader::new(Arc::new(replica), None)))
    }

    fn read_all(reader: &ArenaReader, goes_on: &dyn Fn(ArenaId, u64)) {
        for arena in [ArenaId(0), ArenaId(1)] {
            let mut place = 0;
            while place < 4 * SEGMENT_BYTES {
                let range = place..(place + READ_BYTES).min(4 * SEGMENT_BYTES);
                let read = reader.read(arena, range.clone(), &|place| goes_on(arena, place)).unwrap();
                assert!(read == contents(arena, range.clone()), "arena {arena}, {range:?}");
                place = range.end;
            }
        }
    }

    #[test]
    fn a_reader_in_order_needs_a_request_for_each_segment() {
        let (target, reader) = replica();
        read_all(&reader, &|_, _| {});
        // Four more, until the first segment is read as fast as possible.
        assert_eq!(target.gets.load(Ordering::Relaxed), 8 + 4);
    }

    #[test]
    fn reading_ahead_needs_no_more_requests() {
        let (target, reader) = replica();
        let ahead = ReadAhead::start(&reader).unwrap();
        read_all(&reader, &|arena, place| ahead.go_on(arena, place));
        let gets = target.gets.load(Ordering::Relaxed);
        assert!((12..=13).contains(&gets), "{gets}");
    }

    #[test]
    fn what_is_fetched_ahead_is_known_when_the_reader_is_there() {
        let (target, reader) = replica();
        let wanted = std::cell::Cell::new(None);
        let mut place = 0;
        while wanted.get().is_none() {
            reader.read(ArenaId(0), place..place + READ_BYTES, &|place| wanted.set(Some(place))).unwrap();
            place += READ_BYTES;
        }
        let next = wanted.get().unwrap();
        reader.read_ahead(ArenaId(0), next);
        let before = target.gets.load(Ordering::Relaxed);
        let goes_on = std::cell::Cell::new(None);
        reader.read(ArenaId(0), next..next + 1, &|place| goes_on.set(Some(place))).unwrap();
        assert_eq!(target.gets.load(Ordering::Relaxed), before);
        assert!(goes_on.get() > Some(next), "the next part is wanted now");
    }

    #[test]
    fn scattered_reads_are_short_and_fetch_nothing_ahead() {
        let (target, reader) = replica();
        for number in [50, 3, 40, 17, 8, 29, 1] {
            let place = number << 20;
            reader.read(ArenaId(1), place..place + 10, &|_| panic!("nothing is in order")).unwrap();
        }
        assert_eq!(target.gets.load(Ordering::Relaxed), 7);
        reader.read_ahead(ArenaId(1), 60 << 20);
        assert_eq!(target.gets.load(Ordering::Relaxed), 7);
    }
}
