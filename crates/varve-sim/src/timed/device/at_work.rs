//! A device at work, of any model.

use std::ops::Range;

use super::fitted::FittedState;
use super::flash::FlashState;
use super::object_store::ObjectStoreState;
use super::rotating::RotatingState;
use super::shingled::ShingledState;
use super::{ConstantDisk, DeviceModel};
use crate::timed::access::{AccessKind, ServiceTime, float, nanoseconds};

/// Files grow by this many bytes, on most devices.
const PART_BYTES: u64 = 1 << 20;

/// A device at work.
#[derive(Debug, Clone)]
pub(in crate::timed) enum DeviceState {
    Constant { disk: ConstantDisk, head: Option<u64> },
    Rotating(RotatingState),
    Flash(FlashState),
    Shingled(Box<ShingledState>),
    ObjectStore(ObjectStoreState),
    Fitted(FittedState),
}

impl DeviceState {
    pub(in crate::timed) fn new(model: &DeviceModel) -> Self {
        match model {
            DeviceModel::Constant(disk) => Self::Constant { disk: disk.clone(), head: None },
            DeviceModel::Rotating(disk) => Self::Rotating(RotatingState::new(disk)),
            DeviceModel::Flash(disk) => Self::Flash(FlashState::new(disk)),
            DeviceModel::Shingled(disk) => Self::Shingled(Box::new(ShingledState::new(disk))),
            DeviceModel::ObjectStore(store) => Self::ObjectStore(ObjectStoreState::new(store)),
            DeviceModel::Fitted(device) => Self::Fitted(FittedState::new(device)),
        }
    }

    /// Returns the number of waiting accesses from which the next one is chosen.
    pub(in crate::timed) fn queue(&self) -> usize {
        match self {
            Self::Rotating(state) => state.queue(),
            Self::Shingled(state) => state.queue(),
            _ => 1,
        }
    }

    /// Returns the number of accesses that the device performs at the same time.
    pub(in crate::timed) fn slots(&self) -> usize {
        match self {
            Self::Constant { .. } | Self::Rotating(_) | Self::Shingled(_) => 1,
            Self::Flash(state) => state.queue(),
            Self::ObjectStore(state) => state.store().connections,
            Self::Fitted(state) => state.depth_max(),
        }
    }

    /// Returns the most bytes of one access; longer ones become several.
    pub(in crate::timed) fn access_bytes_max(&self) -> u64 {
        match self {
            Self::ObjectStore(state) => state.store().segment_bytes,
            Self::Rotating(state) => state.disk().command_bytes_max.unwrap_or(u64::MAX),
            Self::Shingled(state) => state.disk().disk.command_bytes_max.unwrap_or(u64::MAX),
            _ => u64::MAX,
        }
    }

    /// Returns the bytes by which files grow.
    pub(in crate::timed) fn part_bytes(&self) -> u64 {
        match self {
            Self::Shingled(state) => state.disk().band_bytes,
            Self::ObjectStore(state) => state.store().segment_bytes,
            _ => PART_BYTES,
        }
    }

    /// Returns the address at which the last access ended.
    pub(in crate::timed) fn head(&self) -> Option<u64> {
        match self {
            Self::Constant { head, .. } => *head,
            Self::Rotating(state) => state.head(),
            Self::Flash(state) => state.head(),
            Self::Shingled(state) => state.head(),
            Self::ObjectStore(state) => state.head(),
            Self::Fitted(state) => state.head(),
        }
    }

    /// Performs an access that begins at the moment `now`, in nanoseconds. `in_flight` accesses
    /// are performed then, with this one.
    pub(in crate::timed) fn serve(
        &mut self,
        now: u64,
        in_flight: usize,
        kind: AccessKind,
        at: u64,
        bytes: u64,
    ) -> ServiceTime {
        match self {
            Self::Constant { disk, head } => {
                let rate = match kind {
                    AccessKind::Read => disk.read_bytes_per_second,
                    AccessKind::Write => disk.write_bytes_per_second,
                };
                let seek = if *head == Some(at) { 0.0 } else { disk.seek_ms / 1e3 };
                *head = Some(at + bytes);
                ServiceTime { positioning: nanoseconds(seek), transfer: nanoseconds(float(bytes) / rate) }
            }
            Self::Rotating(state) => state.serve(now, kind, at, bytes),
            Self::Flash(state) => state.serve(now, kind, at, bytes),
            Self::Shingled(state) => state.serve(now, kind, at, bytes),
            Self::ObjectStore(state) => state.serve(now, kind, at, bytes),
            Self::Fitted(state) => state.serve(now, in_flight, kind, at, bytes),
        }
    }

    /// Performs what the sync of a file that has grown needs beside the writing of its data, from
    /// the moment `now`. Returns its nanoseconds.
    pub(in crate::timed) fn sync(&mut self, now: u64) -> u64 {
        match self {
            Self::Fitted(state) => state.sync(now),
            _ => 0,
        }
    }

    /// Takes a range back: the data there is of no use any more.
    pub(in crate::timed) fn discard(&mut self, range: &Range<u64>) {
        match self {
            Self::Flash(state) => state.discard(range),
            Self::Shingled(state) => state.discard(range),
            Self::ObjectStore(state) => state.discard(range),
            Self::Constant { .. } | Self::Rotating(_) | Self::Fitted(_) => {}
        }
    }

    /// Returns the parts of a range whose data was destroyed by later writes.
    pub(in crate::timed) fn lost_in(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        match self {
            Self::Shingled(state) => state.lost_in(range),
            _ => Vec::new(),
        }
    }

    /// Returns the price of all requests so far, in billionths of the currency of the device's
    /// file.
    pub(in crate::timed) fn price(&self) -> u64 {
        match self {
            Self::ObjectStore(state) => state.price(),
            _ => 0,
        }
    }
}
