//! A device in time: when it is busy, and with what.

use std::ops::{AddAssign, Range};

use serde::Serialize;

use super::access::AccessKind;
use super::device::{DeviceProfile, DeviceState};

/// The time that a device has spent, in nanoseconds, and its accesses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DeviceTimes {
    pub reading: u64,
    pub writing: u64,
    /// Seeks, and waits for the rotation after them.
    pub seeking: u64,
    pub reads: u64,
    pub writes: u64,
    /// The accesses that did not start where the one before ended.
    pub seeks: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl AddAssign for DeviceTimes {
    fn add_assign(&mut self, more: Self) {
        self.reading += more.reading;
        self.writing += more.writing;
        self.seeking += more.seeking;
        self.reads += more.reads;
        self.writes += more.writes;
        self.seeks += more.seeks;
        self.read_bytes += more.read_bytes;
        self.written_bytes += more.written_bytes;
    }
}

/// A device that performs one access after the other.
#[derive(Debug)]
pub(super) struct DeviceSchedule {
    device: DeviceState,
    busy_until: u64,
}

impl DeviceSchedule {
    pub(super) fn new(profile: &DeviceProfile) -> Self {
        Self { device: DeviceState::new(&profile.model), busy_until: 0 }
    }

    pub(super) fn busy_until(&self) -> u64 {
        self.busy_until
    }

    pub(super) fn queue(&self) -> usize {
        self.device.queue()
    }

    pub(super) fn head(&self) -> Option<u64> {
        self.device.head()
    }

    /// Performs an access as soon as the device is free, at the moment `now` at the earliest.
    /// Returns the moment of its end.
    pub(super) fn access(
        &mut self,
        now: u64,
        kind: AccessKind,
        ranges: &[Range<u64>],
        times: &mut DeviceTimes,
    ) -> u64 {
        self.busy_until = self.busy_until.max(now);
        for range in ranges {
            let bytes = range.end - range.start;
            times.seeks += u64::from(self.device.head() != Some(range.start));
            let time = self.device.serve(self.busy_until, kind, range.start, bytes);
            self.busy_until += time.positioning + time.transfer;
            times.seeking += time.positioning;
            match kind {
                AccessKind::Read => {
                    times.reading += time.transfer;
                    times.read_bytes += bytes;
                }
                AccessKind::Write => {
                    times.writing += time.transfer;
                    times.written_bytes += bytes;
                }
            }
        }
        match kind {
            AccessKind::Read => times.reads += 1,
            AccessKind::Write => times.writes += 1,
        }
        self.busy_until
    }
}
