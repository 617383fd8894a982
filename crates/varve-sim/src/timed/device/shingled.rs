//! A disk whose tracks overlap: a band of them is written from its start to its end only.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;

use super::rotating::{RotatingDisk, RotatingState};
use crate::timed::access::{AccessKind, ServiceTime};

/// The unit of the cache zone.
const PAGE_BYTES: u64 = 4096;

/// The figures of a shingled disk.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShingledDisk {
    /// The mechanics.
    pub disk: RotatingDisk,
    pub band_bytes: u64,
    /// The zone that takes writes to data in bands, until a band is rewritten with it. 0 for none.
    pub cache_bytes: u64,
    pub overwriting: Overwriting,
}

/// The effect of a write in a band before its last write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overwriting {
    /// The disk keeps the data: the write goes to the cache zone, and the band is rewritten later.
    Rewrites,
    /// The bare medium: the write destroys all data behind it in the band.
    Destroys,
}

impl ShingledDisk {
    pub(super) fn figures(&self) -> Vec<(&'static str, f64)> {
        self.disk.figures()
    }

    pub(super) fn problem(&self) -> Option<&'static str> {
        if self.band_bytes < PAGE_BYTES || !self.band_bytes.is_multiple_of(PAGE_BYTES) {
            return Some("band_bytes must be a multiple of 4096");
        }
        self.disk.problem()
    }
}

/// A shingled disk at work. The cache zone lies before the first band.
#[derive(Debug, Clone)]
pub(in crate::timed) struct ShingledState {
    model: ShingledDisk,
    mechanics: RotatingState,
    head: Option<u64>,
    /// The end of the data in each band that has data.
    written: BTreeMap<u64, u64>,
    /// The place in the cache zone of each page there.
    cached: BTreeMap<u64, u64>,
    cache_end: u64,
    /// Destroyed ranges, by their start.
    lost: BTreeMap<u64, u64>,
}

impl ShingledState {
    pub(in crate::timed) fn new(model: &ShingledDisk) -> Self {
        Self {
            model: model.clone(),
            mechanics: RotatingState::new(&model.disk),
            head: None,
            written: BTreeMap::new(),
            cached: BTreeMap::new(),
            cache_end: 0,
            lost: BTreeMap::new(),
        }
    }

    pub(in crate::timed) fn disk(&self) -> &ShingledDisk {
        &self.model
    }

    pub(in crate::timed) fn queue(&self) -> usize {
        self.mechanics.queue()
    }

    pub(in crate::timed) fn head(&self) -> Option<u64> {
        self.head
    }

    pub(in crate::timed) fn serve(&mut self, now: u64, kind: AccessKind, at: u64, bytes: u64) -> ServiceTime {
        self.head = Some(at + bytes);
        let mut time = ServiceTime::NONE;
        let mut from = at;
        while from < at + bytes {
            let band = from / self.model.band_bytes;
            let to = (at + bytes).min((band + 1) * self.model.band_bytes);
            let moment = now + time.sum();
            time += match kind {
                AccessKind::Read => self.read(moment, &(from..to)),
                AccessKind::Write => self.write(moment, band, &(from..to)),
            };
            from = to;
        }
        time
    }

    /// Reads a part of a band. Some of its pages may be in the cache zone.
    fn read(&mut self, now: u64, range: &Range<u64>) -> ServiceTime {
        let mut time = ServiceTime::NONE;
        let mut from = range.start;
        while from < range.end {
            let (place, mut to) = self.place_of(from, range.end);
            while to < range.end && self.place_of(to, range.end).0 == place + (to - from) {
                to = self.place_of(to, range.end).1;
            }
            time += self.mechanics.serve(now + time.sum(), AccessKind::Read, place, to - from);
            from = to;
        }
        time
    }

    /// Returns the place on the medium of the data at an address, and the end of the data that is
    /// surely there, at most `end`.
    fn place_of(&self, at: u64, end: u64) -> (u64, u64) {
        let page = at / PAGE_BYTES;
        let in_cache = self.cached.range(page..).next();
        match in_cache {
            Some((first, place)) if *first == page => {
                (place + at % PAGE_BYTES, end.min((page + 1) * PAGE_BYTES))
            }
            Some((next, _)) => (self.model.cache_bytes + at, end.min(next * PAGE_BYTES)),
            None => (self.model.cache_bytes + at, end),
        }
    }

    fn write(&mut self, now: u64, band: u64, range: &Range<u64>) -> ServiceTime {
        let written = self.written.get(&band).copied().unwrap_or(band * self.model.band_bytes);
        let place = self.model.cache_bytes + range.start;
        if range.start >= written {
            self.written.insert(band, range.end);
            return self.mechanics.serve(now, AccessKind::Write, place, range.end - range.start);
        }
        match self.model.overwriting {
            Overwriting::Destroys => {
                self.find_again(range);
                if range.end < written {
                    self.lose(range.end..written);
                }
                self.written.insert(band, written.max(range.end));
                self.mechanics.serve(now, AccessKind::Write, place, range.end - range.start)
            }
            Overwriting::Rewrites => {
                let old = range.start..range.end.min(written);
                let mut time = self.overwrite(now, band, &old);
                if range.end > written {
                    time += self.write(now + time.sum(), band, &(written..range.end));
                }
                time
            }
        }
    }

    /// Writes to the cache zone, or rewrites the band if the zone cannot take the data.
    fn overwrite(&mut self, now: u64, band: u64, range: &Range<u64>) -> ServiceTime {
        let pages = range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES);
        let pages_max = self.model.cache_bytes / PAGE_BYTES;
        let count = pages.end - pages.start;
        if count > pages_max {
            return self.rewrite(now, band);
        }
        let mut time = ServiceTime::NONE;
        while self.cached.len() as u64 + count > pages_max {
            // The band of the page that is first in the order of places is as good as any.
            let Some(page) = self.cached.keys().next() else { break };
            let full = page * PAGE_BYTES / self.model.band_bytes;
            time += self.rewrite(now + time.sum(), full);
        }
        // The zone is written in a circle.
        if self.cache_end + count * PAGE_BYTES > self.model.cache_bytes {
            self.cache_end = 0;
        }
        let start = self.cache_end;
        for (number, page) in pages.enumerate() {
            self.cached.insert(page, start + number as u64 * PAGE_BYTES);
        }
        self.cache_end = start + count * PAGE_BYTES;
        time += self.mechanics.serve(now + time.sum(), AccessKind::Write, start, count * PAGE_BYTES);
        time
    }

    /// Reads a band and its pages in the cache zone, and writes the band anew.
    fn rewrite(&mut self, now: u64, band: u64) -> ServiceTime {
        let start = band * self.model.band_bytes;
        let end = self.written.get(&band).copied().unwrap_or(start);
        let place = self.model.cache_bytes + start;
        let mut time = self.read(now, &(start..end));
        self.forget_cached(&(start..start + self.model.band_bytes));
        time += self.mechanics.serve(now + time.sum(), AccessKind::Write, place, end - start);
        time
    }

    fn forget_cached(&mut self, range: &Range<u64>) {
        let pages = range.start / PAGE_BYTES..range.end / PAGE_BYTES;
        let mut after = self.cached.split_off(&pages.start);
        self.cached.append(&mut after.split_off(&pages.end));
    }

    pub(in crate::timed) fn discard(&mut self, range: &Range<u64>) {
        let band_bytes = self.model.band_bytes;
        let bands = range.start.div_ceil(band_bytes)..range.end / band_bytes;
        self.written.retain(|band, _| !bands.contains(band));
        if !bands.is_empty() {
            let range = bands.start * band_bytes..bands.end * band_bytes;
            self.forget_cached(&range);
            self.find_again(&range);
        }
    }

    fn lose(&mut self, range: Range<u64>) {
        self.find_again(&range);
        self.lost.insert(range.start, range.end);
    }

    /// Removes a range from the destroyed ones.
    fn find_again(&mut self, range: &Range<u64>) {
        for lost in self.lost_in(range) {
            let Some((start, end)) = self.lost.range(..=lost.start).next_back().map(|(s, e)| (*s, *e)) else {
                continue;
            };
            self.lost.remove(&start);
            if start < lost.start {
                self.lost.insert(start, lost.start);
            }
            if lost.end < end {
                self.lost.insert(lost.end, end);
            }
        }
    }

    /// Returns the destroyed parts of a range.
    pub(in crate::timed) fn lost_in(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let before = self.lost.range(..range.start).next_back();
        let within = self.lost.range(range.start..range.end);
        let parts = before.into_iter().chain(within);
        let parts = parts.map(|(start, end)| (*start).max(range.start)..(*end).min(range.end));
        parts.filter(|part| !part.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAND: u64 = 1 << 20;

    fn model(cache_bytes: u64, overwriting: Overwriting) -> ShingledDisk {
        let disk = RotatingDisk {
            bytes: 80e9,
            rotations_per_minute: 7200.0,
            seek_track_ms: 2.0,
            seek_average_ms: 8.9,
            seek_full_ms: 21.0,
            write_settle_ms: 1.0,
            command_ms: 0.1,
            bus_bytes_per_second: 90e6,
            zone_bytes_per_second: vec![50e6],
            queue: 1,
            reads_ahead: true,
            read_ahead_bytes: 2e6,
            interrupt_ms: 1.0,
            command_bytes_max: None,
        };
        ShingledDisk { disk, band_bytes: BAND, cache_bytes, overwriting }
    }

    fn milliseconds(time: ServiceTime) -> u64 {
        time.sum() / 1_000_000
    }

    /// Fills ten bands, in order.
    fn filled(cache_bytes: u64, overwriting: Overwriting) -> ShingledState {
        let mut state = ShingledState::new(&model(cache_bytes, overwriting));
        state.serve(0, AccessKind::Write, 0, 10 * BAND);
        state
    }

    #[test]
    fn what_goes_on_in_a_band_is_written_at_once() {
        let mut shingled = ShingledState::new(&model(0, Overwriting::Rewrites));
        let mut plain = RotatingState::new(&model(0, Overwriting::Rewrites).disk);
        for number in 0..100 {
            let (now, at) = (number * 50_000_000, number * 8192);
            let [one, other] = [
                shingled.serve(now, AccessKind::Write, at, 8192),
                plain.serve(now, AccessKind::Write, at, 8192),
            ];
            assert_eq!(one, other);
        }
    }

    #[test]
    fn without_a_cache_each_write_in_place_rewrites_its_band() {
        let mut state = filled(0, Overwriting::Rewrites);
        let time = milliseconds(state.serve(1_000_000_000, AccessKind::Write, 3 * BAND + 8192, 4096));
        // A megabyte is read and written, each in 21 ms, with a seek and a rotation before each.
        assert!((42..75).contains(&time), "{time}");
    }

    #[test]
    fn the_cache_zone_takes_writes_until_it_is_full() {
        let mut state = filled(16 * PAGE_BYTES, Overwriting::Rewrites);
        let mut now = 1_000_000_000;
        let times: Vec<_> = (0..17)
            .map(|number| {
                let time = state.serve(now, AccessKind::Write, number % 5 * BAND + number * PAGE_BYTES, 4096);
                now += time.sum();
                milliseconds(time)
            })
            .collect();
        assert!(times[1..16].iter().all(|time| *time < 15), "{times:?}");
        assert!(times[16] > 42, "{times:?}");
        assert!(state.cached.len() < 17);
        // A page in the zone is read from there, between the pages of its band.
        let across = milliseconds(state.serve(now, AccessKind::Read, BAND, 10 * PAGE_BYTES));
        assert!(across > 20, "{across}");
    }

    #[test]
    fn on_the_bare_medium_a_write_destroys_the_data_behind_it() {
        let mut state = filled(0, Overwriting::Destroys);
        assert!(state.lost_in(&(0..10 * BAND)).is_empty());
        state.serve(0, AccessKind::Write, 2 * BAND + 100, 50);
        assert_eq!(state.lost, BTreeMap::from([(2 * BAND + 150, 3 * BAND)]));
        state.serve(0, AccessKind::Write, 2 * BAND + 150, 50);
        let lost = state.lost_in(&(2 * BAND..2 * BAND + 300));
        let of = |range: &Range<u64>| (range.start, range.end);
        assert_eq!(lost.iter().map(of).collect::<Vec<_>>(), [(2 * BAND + 200, 2 * BAND + 300)]);
        state.discard(&(2 * BAND..3 * BAND));
        assert!(state.lost_in(&(0..10 * BAND)).is_empty());
        state.serve(0, AccessKind::Write, 2 * BAND, 50);
        assert!(state.lost_in(&(0..10 * BAND)).is_empty(), "the band is empty, and written from its start");
    }
}
