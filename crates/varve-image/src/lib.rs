//! Reads the contents of a disk: its partitions, and the files of their file systems, at any offset
//! and without a mount.
//!
//! ```text
//! ReadAt (a whole disk) ─▶ partitions ─▶ ReadAt (a part of it) ─▶ FileSystem ─▶ files
//! ```
//!
//! Invariants:
//! - Every byte of a disk is hostile. No reader panics, recurses without a bound, or allocates
//!   memory in proportion to a number that it has only read.
//! - Nothing is written: blocks that move are only shown in their new places. A reader names the
//!   part that it cannot read, and the reason.
//! - File numbers are stable: the same disk gives the same file the same [`FileId`], today and in a
//!   year.
//!
//! Read first: `file_systems/file_system.rs` (the trait), `disks/disk.rs` (a disk and its volumes),
//! `leave_out/proof.rs` (the proof that bytes need not be kept) and `file_systems/ext/relocate.rs`
//! (blocks in the order of a start).
//!
//! This crate knows nothing of snapshots or stores: it reads any type that implements [`ReadAt`].

mod bytes;
mod contents;
mod disks;
mod file_places;
mod file_systems;
mod leave_out;
mod relocated_disk;

pub use bytes::ranges::Ranges;
pub use bytes::read_at::{BytesPart, ReadAt};
pub use contents::volume_content::{FileSystemKind, VolumeContent};
pub use disks::disk::Disk;
pub use disks::disk_problem::DiskProblem;
pub use disks::moved_files::MovedFiles;
pub use disks::partitions::{PartitionType, TableKind};
pub use disks::volume::Volume;
pub use file_places::{FilePlaces, FileRun};
pub use file_systems::ext::{
    BlockOwner, BlockOwners, BlockRun, ExtFileSystem, LeftInPlace, MovedRun, Relocation, RelocationError,
    RelocationOptions,
};
pub use file_systems::file_system::{
    DeviceNumber, FileId, FileKind, FileStatus, FileSystem, FileSystemError, FolderChild, OnChild, Xattr,
};
pub use file_systems::file_time::FileTime;
pub use leave_out::left_out::{LeftOut, LeftOutPart};
pub use leave_out::search::LeaveOut;
pub use relocated_disk::{RelocatedDisk, VolumeRelocation, VolumeStructure};
