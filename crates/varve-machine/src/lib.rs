//! Machines that run, and disks in other formats, as sources of snapshots: everything that is done through QEMU.
//!
//! ```text
//! running machine ◀─QMP─▶ night ─▶ a moment, held in QEMU ─▶ NBD ─▶ NbdDisk ─▶ image = earlier night + what has changed
//! qcow2, VMDK, … ─▶ what it is, what it stands on ─▶ qemu-nbd ─▶ NBD ─▶ NbdDisk ─▶ image
//! ```
//!
//! [`boot`] starts a machine from an archived disk. [`archive_night`] archives the disks of a machine while it runs, as they are at one
//! moment. [`ForeignImage`] is a disk in an image of another format than raw, and [`restore_foreign`] makes one.
//!
//! What must always be true:
//! - The machine comes first: it is never paused, its writes never wait for the archive, and a night that runs out of room is given up.
//! - A record of changes is gone by only if it proves that it covers the time since the night that it is built on; else all is
//!   read, and it is said why.
//! - Where a night leaves swap out it is zeros, and everywhere else as the disk was, whatever the nights before have left out.
//! - Nothing is left behind in QEMU but that record; what a killed run has left, the next run removes. What is not ours is never touched.
//! - An image never leads to a file that the user has not allowed: QEMU is told of each file that it may open.
//! - QEMU, the guest agent and the images are not trusted: each answer has a limit in time and size.
//!
//! This crate is an edge of the house: it talks to other programs over sockets, and waits for them.

mod agent;
pub mod boot;
mod chain;
mod companion;
mod description;
mod drives;
mod edge;
mod foreign;
mod image_file;
mod json_lines;
mod left_out;
mod nbd_disk;
mod night;
mod point;
mod private_folder;
mod qmp;
mod records;
mod visible;

pub use agent::{Agent, AgentError, Frozen};
pub use foreign::{
    ForeignImage, ImageFormat, LayerError, OpenForeignError, RestoreForeignError, restore_foreign,
};
pub use json_lines::LineError;
pub use nbd_disk::{NbdDisk, NbdDiskOptions};
pub use night::{DriveTaken, NightError, NightOptions, NightWatch, Reading, archive_night};
pub use point::HoldError;
pub use private_folder::PrivateFolder;
pub use qmp::{Qmp, QmpError};
