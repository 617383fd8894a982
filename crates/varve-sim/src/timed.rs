//! Storage in virtual time: the engine runs unchanged, and the time of its transfers is computed
//! from the profile of a device.
//!
//! A [`TimedStorage`] stands before another storage that keeps the bytes. It moves a
//! [`VirtualClock`] forward by the time that a device would take. The device is described by a
//! [`DeviceProfile`], a TOML file that names its source and the published figures that the model
//! must reproduce. An [`EmulatedStorage`] keeps generated blocks by their number alone, so a log of
//! hundreds of gigabytes needs little memory. A [`FailingStorage`] fails in the course of time, at
//! the rates of a [`FailureProfile`]. [`BatonWorkers`] run tasks on threads of which one runs at a
//! time.
//!
//! Read first: `storage.rs` (the calls that take time), `device.rs` (profiles and models).
//!
//! Invariants:
//! - The same calls take the same virtual time in every run.
//! - The bytes are those of the inner storage: time changes no result.

mod access;
mod baton;
mod baton_workers;
mod clock;
mod device;
mod emulated;
mod failures;
mod page_cache;
mod places;
mod schedule;
mod state;
mod storage;

pub use access::AccessKind;
pub use baton_workers::BatonWorkers;
pub use clock::VirtualClock;
pub use device::{
    AccessPattern, ConstantDisk, DEVICE_NAMES, DeviceProfile, DeviceProfileError, FittedBudget, FittedDevice,
    FittedOrder, FittedRow, FlashDisk, FlashMapping, ObjectStore, Overwriting, PublishedFigure, RotatingDisk,
    ShingledDisk,
};
pub use emulated::{EmulatedStorage, GeneratedBlock};
pub use failures::{FailingStorage, FailureProfile, FailureProfileError, FailureTally};
pub use page_cache::PageCacheLimits;
pub use schedule::DeviceTimes;
pub use storage::TimedStorage;
