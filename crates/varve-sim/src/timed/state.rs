//! A device and the system's memory above it: what is where, and what is on its way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use varve_world::FileName;

use super::access::{AccessKind, next_in_order};
use super::device::DeviceProfile;
use super::page_cache::{CleanPages, DirtyPart, DirtyParts, PageCacheLimits};
use super::places::DevicePlaces;
use super::schedule::{DeviceSchedule, DeviceTimes};

/// The device, and the state of the system above it. All moments are in nanoseconds.
pub(super) struct TimedState {
    schedule: DeviceSchedule,
    places: DevicePlaces,
    limits: PageCacheLimits,
    dirty: DirtyParts,
    clean: CleanPages,
    /// Writes on their way to the device: the moment of their end, and their bytes.
    in_flight: VecDeque<(u64, u64)>,
    /// The moment at which the written bytes of a file are durable.
    durable_at: BTreeMap<FileName, u64>,
    /// The files that have grown since they were synced.
    grown: BTreeSet<FileName>,
    /// The work for the files of the index, and for all others.
    of_index: DeviceTimes,
    of_log: DeviceTimes,
}

/// A read that waits for the device.
#[derive(Debug, Clone)]
pub(super) struct DeviceRead {
    ranges: Vec<Range<u64>>,
    is_of_index: bool,
    is_cached: bool,
}

impl TimedState {
    pub(super) fn new(profile: &DeviceProfile, limits: PageCacheLimits) -> Self {
        let schedule = DeviceSchedule::new(profile);
        let places = DevicePlaces::new(schedule.device().part_bytes());
        Self {
            schedule,
            places,
            limits,
            dirty: DirtyParts::default(),
            clean: CleanPages::new(limits.clean_bytes),
            in_flight: VecDeque::new(),
            durable_at: BTreeMap::new(),
            grown: BTreeSet::new(),
            of_index: DeviceTimes::default(),
            of_log: DeviceTimes::default(),
        }
    }

    /// Returns the work for the files of the index and for all others, and begins to count anew.
    pub(super) fn take_times(&mut self) -> [DeviceTimes; 2] {
        [std::mem::take(&mut self.of_index), std::mem::take(&mut self.of_log)]
    }

    /// Drops the data that needs no writing from memory.
    pub(super) fn forget(&mut self) {
        self.clean.clear();
    }

    /// Takes in a part of a file that was written. Returns the moment at which the writer goes on.
    pub(super) fn write(&mut self, now: u64, file: &FileName, range: Range<u64>) -> u64 {
        if self.limits.dirty_bytes == 0 {
            return self.write_out(now, &[DirtyPart { file: file.clone(), range }]);
        }
        self.dirty.add(file, range);
        while self.dirty.bytes() > self.limits.dirty_bytes / 2 {
            let Some(oldest) = self.dirty.take_oldest() else { break };
            self.write_out(now, &[oldest]);
        }
        self.wait_for_room(now)
    }

    /// Starts to write everything of a file. Returns the moment at which it is written.
    fn flush(&mut self, now: u64, file: &FileName) -> u64 {
        let parts = self.dirty.take_of(file);
        self.write_out(now, &parts);
        self.durable_at.get(file).copied().unwrap_or(now)
    }

    /// Notes that a file is longer than before.
    pub(super) fn grow(&mut self, file: &FileName) {
        if !self.grown.contains(file) {
            self.grown.insert(file.clone());
        }
    }

    /// Begins to make everything of a file durable. Returns the moment at which it is.
    pub(super) fn sync(&mut self, now: u64, file: &FileName) -> u64 {
        let written_at = self.flush(now, file).max(now);
        if !self.grown.remove(file) {
            return written_at;
        }
        // The file system notes the new length as well.
        let durable_at = written_at + self.schedule.device_mut().sync(written_at);
        self.durable_at.insert(file.clone(), durable_at);
        durable_at
    }

    pub(super) fn truncate(&mut self, file: &FileName, length: u64) {
        for part in self.dirty.take_of(file) {
            let range = part.range.start..part.range.end.min(length);
            if !range.is_empty() {
                self.dirty.add(file, range);
            }
        }
    }

    pub(super) fn rename(&mut self, from: &FileName, to: &FileName) {
        self.discard(to);
        self.places.rename(from, to);
        self.dirty.rename(from, to);
        self.durable_at.remove(to);
        self.grown.remove(to);
        if self.grown.remove(from) {
            self.grown.insert(to.clone());
        }
        if let Some(durable_at) = self.durable_at.remove(from) {
            self.durable_at.insert(to.clone(), durable_at);
        }
    }

    pub(super) fn remove(&mut self, file: &FileName) {
        self.discard(file);
        self.places.remove(file);
        self.dirty.take_of(file);
        self.durable_at.remove(file);
        self.grown.remove(file);
    }

    /// Returns the read that the device has to perform for a part of a file; `None` if memory has
    /// the data.
    pub(super) fn missing(
        &mut self,
        file: &FileName,
        range: &Range<u64>,
        is_cached: bool,
    ) -> Option<DeviceRead> {
        if self.dirty.contains(file, range) {
            return None;
        }
        let mut ranges = self.places.ranges(file, range.start, range.end - range.start);
        if is_cached {
            ranges = ranges.iter().filter_map(|range| self.clean.missing(range)).collect();
        }
        (!ranges.is_empty()).then(|| DeviceRead { ranges, is_of_index: is_of_index(file), is_cached })
    }

    /// Performs a read that was requested at the moment `requested`. Returns the moment of its end.
    pub(super) fn read(&mut self, requested: u64, read: &DeviceRead) -> u64 {
        let mut times = DeviceTimes::default();
        let end = self.schedule.access(requested, AccessKind::Read, &read.ranges, &mut times);
        let into = if read.is_of_index { &mut self.of_index } else { &mut self.of_log };
        *into += times;
        if read.is_cached {
            read.ranges.iter().for_each(|range| self.clean.add(range));
        }
        end
    }

    /// Returns the moment at which the device can begin with the next access.
    pub(super) fn free_at(&self) -> u64 {
        self.schedule.free_at()
    }

    /// Returns the number of accesses that the device performs at the same time.
    pub(super) fn slots(&self) -> usize {
        self.schedule.slots()
    }

    /// Returns the position of the read that the device performs next. `reads` is not empty.
    pub(super) fn next_of<'a>(&self, reads: impl Iterator<Item = &'a DeviceRead>) -> usize {
        let places = reads.map(|read| read.ranges.first().map_or(0, |range| range.start));
        let device = self.schedule.device();
        next_in_order(device.head(), places.take(device.queue()))
    }

    /// Returns the parts of a part of a file whose data was destroyed by writes to other places.
    pub(super) fn lost_in(&mut self, file: &FileName, range: &Range<u64>) -> Vec<Range<u64>> {
        if self.dirty.contains(file, range) {
            return Vec::new();
        }
        let mut lost = Vec::new();
        let mut in_file = range.start;
        for part in self.places.ranges(file, range.start, range.end - range.start) {
            let to_file = |at: u64| at - part.start + in_file;
            let found = self.schedule.device().lost_in(&part);
            lost.extend(found.into_iter().map(|range| to_file(range.start)..to_file(range.end)));
            in_file += part.end - part.start;
        }
        lost
    }

    /// Tells the device that it may forget a file.
    fn discard(&mut self, file: &FileName) {
        for range in self.places.all(file) {
            self.schedule.device_mut().discard(&range);
        }
    }

    /// Starts to write parts of files. Returns the moment of the end.
    fn write_out(&mut self, now: u64, parts: &[DirtyPart]) -> u64 {
        let mut end = now;
        for DirtyPart { file, range } in parts {
            let bytes = range.end - range.start;
            let ranges = self.places.ranges(file, range.start, bytes);
            let mut times = DeviceTimes::default();
            let done = self.schedule.access(now, AccessKind::Write, &ranges, &mut times);
            end = end.max(done);
            let into = if is_of_index(file) { &mut self.of_index } else { &mut self.of_log };
            *into += times;
            ranges.iter().for_each(|range| self.clean.add(range));
            self.in_flight.push_back((done, bytes));
            let durable_at = self.durable_at.entry(file.clone()).or_default();
            *durable_at = done.max(*durable_at);
        }
        end
    }

    /// Returns the moment at which the page cache has room for more.
    fn wait_for_room(&mut self, now: u64) -> u64 {
        let mut moment = now;
        let mut waiting: u64 = self.in_flight.iter().map(|(_, bytes)| bytes).sum();
        while let Some((end, bytes)) = self.in_flight.front().copied() {
            if end > moment && self.dirty.bytes() + waiting <= self.limits.dirty_bytes {
                break;
            }
            moment = moment.max(end);
            waiting -= bytes;
            self.in_flight.pop_front();
        }
        moment
    }
}

fn is_of_index(file: &FileName) -> bool {
    file.as_str().starts_with("index/")
}
