//! A simulated disk that keeps only what a real disk and its file system promise. It is for the
//! tests of all code that claims to survive crashes and faults. Beside it, `timed.rs` has storage
//! in virtual time, which computes how long the engine's work takes on a given device.
//!
//! A [`SimDisk`] is a [`Storage`](varve_world::Storage) with two views. The *volatile* view is what
//! a process sees: the page cache. The *durable* view is what a power cut leaves. Only `sync` and
//! `sync_folder` are sure to move changes from the first to the second:
//!
//! | unsynced change       | effects that a power cut may have on it                         |
//! |-----------------------|-----------------------------------------------------------------|
//! | appended bytes        | each sector of 512 bytes is kept or lost independently; a lost  |
//! |                       | one before a kept one reads as zeros                            |
//! | a file's length       | any since its last sync, or the border of any sector between    |
//! | a truncation          | done, undone, or done for some sectors only                     |
//! | a creation, a removal | done or undone, each independently                              |
//! | a rename              | atomic: the name stands for the old file or the new one         |
//! | a new folder          | present, or missing with its contents                           |
//!
//! The disk does promise two things that the engine relies on. A sector is written atomically, and
//! durable bytes survive when their sector is rewritten together with new bytes. Drives promise
//! this; file systems with data journalling or copy-on-write promise no less. A rename replaces a
//! file atomically (POSIX; on ext4, xfs and btrfs also across a power cut). Changes of names need
//! not survive in order: ext4 and xfs keep the order of their journal, btrfs does not always. Half
//! of the simulated power cuts therefore keep the changes up to some point, and half keep any of
//! them.
//!
//! Beyond power cuts, a [`Strike`] makes one call fail. A read fails, or returns a flipped bit or
//! old data. A write fails, or finds the disk full. A sync fails: as on Linux, some pending sectors
//! are written, and the rest are *marked clean*. These can be read for a while, no later sync
//! writes them, and a power cut loses them.
//!
//! [`Rot`] is separate: it damages durable data, from which no order of writes protects. It happens
//! only when [`SimDisk::rot`] is called, so that a crash test can demand that nothing at all is
//! lost.
//!
//! Read first: `disk.rs` (the disk with its two views), `inode.rs` (what a power cut leaves of a
//! file) and `fault.rs` (calls that fail).
//!
//! Invariants:
//! - The same seed and the same calls give the same results.
//! - Without strikes and power cuts, the disk is good: it passes the contract of every storage.
//! - The disk is never worse than the table above. Otherwise, failing on it would prove nothing for
//!   real disks.
//! - Each of these effects does occur, which the tests of this crate show. Otherwise, surviving on
//!   it would prove nothing.

mod disk;
mod draw;
mod fault;
mod file_names;
mod harm;
mod inode;
mod outcome_count;
mod rot;
mod slow_disk;
mod tally;
mod timed;
mod turns;

pub use disk::SimDisk;
pub use draw::SeededDraw;
pub use fault::{Fault, Strike};
pub use inode::SECTOR_BYTES;
pub use outcome_count::OutcomeCount;
pub use rot::Rot;
pub use slow_disk::SlowDisk;
pub use tally::{Leftover, Tally};
pub use timed::{
    AccessKind, AccessPattern, BatonWorkers, ConstantDisk, DEVICE_NAMES, DeviceProfile, DeviceProfileError,
    DeviceTimes, EmulatedStorage, FailingStorage, FailureProfile, FailureProfileError, FailureTally,
    FittedBudget, FittedDevice, FittedOrder, FittedRow, FlashDisk, FlashMapping, GeneratedBlock, ObjectStore,
    Overwriting, PageCacheLimits, PublishedFigure, RotatingDisk, ShingledDisk, TimedStorage, VirtualClock,
};
pub use turns::{TurnSchedule, Turns};
