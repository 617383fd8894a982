//! Running machines, and disks in foreign formats, as sources of snapshots: all that involves QEMU.
//!
//! ```text
//! running machine ◀─QMP─▶ a moment, held in QEMU ─▶ NBD ─▶ NbdDisk ─▶ image = earlier + changes
//! qcow2, VMDK, … ─▶ format, backing images ─▶ qemu-nbd ─▶ NBD ─▶ NbdDisk ─▶ image
//! ```
//!
//! [`boot`] boots a machine from an archived disk. [`archive_machine_snapshot`] archives the disks
//! of a running machine as they are at one moment. [`ForeignImage`] is a disk in an image of a
//! format other than raw, and [`restore_foreign`] makes one.
//!
//! Read first: `machine_snapshot.rs` (a running machine is archived), `held_moment.rs` (QEMU holds
//! one moment of its disks) and `boot.rs` (a machine is booted from an archived disk).
//!
//! Invariants:
//! - The machine has priority: it is never paused, its writes never wait for the archive, and a
//!   snapshot that runs out of scratch space is given up.
//! - A dirty bitmap is used only if it proves that it covers the time since the snapshot on which
//!   the new one builds. Otherwise the whole disk is read, and the reason is reported.
//! - The ranges of swap that a snapshot leaves out are zeros, and the rest is as the disk was,
//!   regardless of the ranges that earlier snapshots left out.
//! - Only that bitmap is left behind in QEMU; the next run removes the remains of a killed run.
//!   Objects of others are never touched.
//! - An image never leads to a file that the user has not allowed: QEMU is told of each file that
//!   it may open.
//! - QEMU, the guest agent and the images are not trusted: each answer has a limit in time and
//!   size.
//!
//! This crate is one of the edges: it talks to other programs over sockets, and waits for them.

mod agent;
pub mod boot;
mod chain;
mod companion;
mod description;
mod drives;
mod edge;
mod foreign;
mod held_moment;
mod image_file;
mod json_lines;
mod left_out;
mod machine_snapshot;
mod nbd_disk;
mod private_folder;
mod qmp;
mod records;
mod unarchived;
mod visible;

pub use agent::{Agent, AgentError, FrozenGuest};
pub use companion::find_program;
pub use foreign::{
    ForeignFile, ForeignImage, ImageFormat, ImageLayer, LayerError, OpenForeignError, RestoreForeignError,
    convert_to_raw, image_chain, restore_foreign,
};
pub use held_moment::HoldError;
pub use json_lines::LineError;
pub use machine_snapshot::{
    MachineSnapshotError, MachineSnapshotOptions, MachineSnapshotWatch, ReadExtent, TakenDrive,
    archive_machine_snapshot,
};
pub use nbd_disk::{NbdDisk, NbdDiskOptions};
pub use private_folder::PrivateFolder;
pub use qmp::{Qmp, QmpError};
