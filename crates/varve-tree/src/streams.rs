//! Detects sequential and random reads, and decides what to read ahead. Handles only offsets, and
//! reads nothing itself.

use std::ops::Range;

/// Upper bound on the sequential streams that are tracked.
const STREAM_COUNT_MAX: usize = 8;
/// A read that begins this close to the end of a stream continues it. The workers of one reader
/// overtake each other.
const NEAR_BYTES: u64 = 512 << 10;
/// The first and the largest read-ahead.
const AHEAD_BYTES: Range<u64> = 128 << 10..2 << 20;
/// After this many jumps, many more are likely.
const JUMP_COUNT: u32 = 16;

/// The sequential streams of one file, and the number of jumps.
#[derive(Default)]
pub struct Streams {
    streams: Vec<Stream>,
    turn: u64,
    jumps: u32,
    is_interior_due: bool,
}

struct Stream {
    /// The end of its last read.
    next: u64,
    /// The end of the bytes that were read ahead.
    fetched_to: u64,
    /// The size of the next read-ahead; 0 until the stream has continued once.
    ahead: u64,
    /// The turn of its last read.
    turn: u64,
}

/// A read-ahead that is due.
#[derive(Debug, PartialEq, Eq)]
pub enum DueReadAhead {
    /// The bytes of a range, which may extend beyond the end of the file.
    Range(Range<u64>),
    /// The pointer blocks of the whole file. Due once.
    Interior,
}

impl Streams {
    /// Records a read. Returns the range that must be read for it and ahead of it, or `None` if
    /// that was read before.
    pub fn note(&mut self, range: Range<u64>) -> Option<Range<u64>> {
        self.turn += 1;
        let turn = self.turn;
        let goes_on = |stream: &&mut Stream| range.start.abs_diff(stream.next) <= NEAR_BYTES;
        let Some(stream) = self.streams.iter_mut().filter(goes_on).max_by_key(|stream| stream.turn) else {
            self.begin(Stream { next: range.end, fetched_to: range.end, ahead: 0, turn });
            return None;
        };
        stream.turn = turn;
        stream.next = stream.next.max(range.end);
        if stream.ahead == 0 {
            stream.ahead = AHEAD_BYTES.start;
            stream.fetched_to = stream.next;
            return None;
        }
        if range.end <= stream.fetched_to {
            return None;
        }
        Some(stream.fetch(range.start))
    }

    /// Takes the next read-ahead, which no request waits for yet. The caller must perform it.
    #[must_use]
    pub fn take_due(&mut self) -> Option<DueReadAhead> {
        if std::mem::take(&mut self.is_interior_due) {
            return Some(DueReadAhead::Interior);
        }
        let stream = self.streams.iter_mut().max_by_key(|stream| stream.turn)?;
        // Half of the last batch is used up. The next batch should be in memory before the rest is.
        let is_due = stream.ahead > AHEAD_BYTES.start && stream.fetched_to < stream.next + stream.ahead / 2;
        is_due.then(|| DueReadAhead::Range(stream.fetch(stream.next)))
    }

    fn begin(&mut self, stream: Stream) {
        self.jumps = self.jumps.saturating_add(1);
        self.is_interior_due |= self.jumps == JUMP_COUNT;
        if self.streams.len() < STREAM_COUNT_MAX {
            self.streams.push(stream);
        } else if let Some(oldest) = self.streams.iter_mut().min_by_key(|stream| stream.turn) {
            *oldest = stream;
        }
    }
}

impl Stream {
    /// The next range to read ahead, not before `start`, which is marked as read.
    fn fetch(&mut self, start: u64) -> Range<u64> {
        let fetched = self.fetched_to.max(start)..self.next.max(self.fetched_to).saturating_add(self.ahead);
        self.fetched_to = fetched.end;
        self.ahead = (self.ahead * 2).min(AHEAD_BYTES.end);
        fetched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: u64 = 128 << 10;

    /// Reads sequentially from the start, and takes the due read-ahead after each read if
    /// `takes_due`. Returns all ranges that were read, and the number of reads that had to wait for
    /// them.
    fn read_on(takes_due: bool) -> (Vec<Range<u64>>, usize) {
        let (mut streams, mut fetched, mut waits) = (Streams::default(), Vec::new(), 0);
        for number in 0..200 {
            let waited = streams.note(number * PIECE..(number + 1) * PIECE);
            waits += usize::from(waited.is_some());
            fetched.extend(waited);
            if takes_due && let Some(due) = streams.take_due() {
                let DueReadAhead::Range(range) = due else { panic!("nobody has jumped") };
                fetched.push(range);
            }
        }
        (fetched, waits)
    }

    #[test]
    fn who_reads_on_gets_all_of_it_once_and_in_order() {
        for takes_due in [false, true] {
            let (fetched, waits) = read_on(takes_due);
            assert!(fetched.windows(2).all(|pair| pair[0].end == pair[1].start), "{fetched:?}");
            assert!(fetched[0].start <= 2 * PIECE, "{fetched:?}");
            assert!(fetched.last().unwrap().end >= 200 * PIECE, "{fetched:?}");
            assert!(
                fetched.iter().all(|range| range.end - range.start <= AHEAD_BYTES.end + PIECE),
                "{fetched:?}"
            );
            if takes_due {
                assert_eq!(waits, 1, "only the first one had to wait: {fetched:?}");
            } else {
                assert!((10..20).contains(&waits), "{waits} large batches: {fetched:?}");
            }
        }
    }

    #[test]
    fn after_many_jumps_what_leads_to_all_is_due_once() {
        let mut streams = Streams::default();
        let mut due = Vec::new();
        for number in 0..100_u64 {
            let place = number * 7919 % 100 * (4 << 20);
            assert_eq!(streams.note(place..place + 4096), None);
            due.extend(streams.take_due().map(|due| (number, due)));
        }
        assert_eq!(due, [(u64::from(JUMP_COUNT) - 1, DueReadAhead::Interior)]);
    }
}
