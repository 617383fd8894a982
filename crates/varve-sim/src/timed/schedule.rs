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
    /// The price of the requests, in billionths of the currency of the device's file.
    #[serde(skip_serializing_if = "is_zero")]
    pub price_billionths: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
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
        self.price_billionths += more.price_billionths;
    }
}

/// A device that performs accesses: most of them one after the other, some several at a time.
#[derive(Debug)]
pub(super) struct DeviceSchedule {
    device: DeviceState,
    /// The moments at which the device has ended an access, for each of those that it performs at
    /// the same time.
    slots: Vec<u64>,
}

impl DeviceSchedule {
    pub(super) fn new(profile: &DeviceProfile) -> Self {
        let device = DeviceState::new(&profile.model);
        let slots = vec![0; device.slots().max(1)];
        Self { device, slots }
    }

    pub(super) fn device(&self) -> &DeviceState {
        &self.device
    }

    pub(super) fn device_mut(&mut self) -> &mut DeviceState {
        &mut self.device
    }

    /// Returns the moment at which the device can begin with one more access.
    pub(super) fn free_at(&self) -> u64 {
        self.slots.iter().copied().min().unwrap_or(0)
    }

    /// Returns the number of accesses that the device performs at the same time.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
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
        let price = self.device.price();
        let mut end = now;
        let mut slot = self.first_free();
        let mut moment = self.slots[slot].max(now);
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                let bytes = (range.end - at).min(self.device.access_bytes_max());
                if self.slots.len() > 1 && bytes < range.end - range.start {
                    // Parts of a long access are performed at the same time.
                    slot = self.first_free();
                    moment = self.slots[slot].max(now);
                }
                moment = self.serve(moment, kind, at, bytes, times);
                self.slots[slot] = moment;
                end = end.max(moment);
                at += bytes;
            }
        }
        match kind {
            AccessKind::Read => times.reads += 1,
            AccessKind::Write => times.writes += 1,
        }
        times.price_billionths += self.device.price() - price;
        end
    }

    fn first_free(&self) -> usize {
        (0..self.slots.len()).min_by_key(|slot| self.slots[*slot]).unwrap_or(0)
    }

    fn serve(&mut self, now: u64, kind: AccessKind, at: u64, bytes: u64, times: &mut DeviceTimes) -> u64 {
        times.seeks += u64::from(self.device.head() != Some(at));
        let in_flight = self.slots.iter().filter(|end| **end > now).count() + 1;
        let time = self.device.serve(now, in_flight, kind, at, bytes);
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
        now + time.sum()
    }
}
