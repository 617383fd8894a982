//! What is inside a disk: its partitions, and the files of their file systems, read at any offset and without a mount.
//!
//! ```text
//! ReadAt (a whole disk) ─▶ partitions ─▶ ReadAt (a part of it) ─▶ FileSystem ─▶ files
//! ```
//!
//! What must always be true:
//! - Every byte of a disk is hostile: no reader panics, recurses without a bound, or takes memory in proportion to a number
//!   that it has only read.
//! - Nothing is written, and what cannot be read is named as what it is.
//! - Numbers of files are stable: the same disk gives the same file the same [`FileId`], today and in a year.
//!
//! This crate knows nothing of snapshots or stores: it reads whatever implements [`ReadAt`].

mod calendar;
mod clusters;
mod content;
mod crc;
mod disk;
mod disk_problem;
mod exfat;
mod ext;
mod fat;
mod fields;
mod file_system;
mod file_time;
mod iso;
mod joined;
mod leave_out;
mod left_out;
mod lvm;
mod ntfs;
mod open;
mod partitions;
mod proof;
mod ranges;
mod read_at;
mod signatures;
mod swap;
mod swap_header;
mod volume;
mod wide_names;

pub use content::{FileSystemKind, VolumeContent};
pub use disk::Disk;
pub use disk_problem::DiskProblem;
pub use ext::{BlockOwner, BlockOwners, ExtFileSystem, Run};
pub use file_system::{
    Child, DeviceNumber, FileId, FileKind, FileStatus, FileSystem, FileSystemError, Xattr,
};
pub use file_time::FileTime;
pub use leave_out::LeaveOut;
pub use left_out::{LeftOut, LeftOutPart};
pub use partitions::{PartitionType, TableKind};
pub use ranges::Ranges;
pub use read_at::{Part, ReadAt};
pub use volume::Volume;
