//! A read-only FUSE mount on this machine.
//!
//! The contents of a snapshot never change. The kernel may therefore cache attributes and names
//! inside a snapshot for a day, and may keep the data of a file from one opening to the next. Names
//! that may change are cached for one second.
//!
//! Without `allow_other`, only the user who mounted the file system can access it. That user may
//! read everything, because whoever opened the store has its key. With `allow_other`, the kernel
//! applies the modes, owners and access control lists of the archived files to every user.

mod adapter;
mod lookups;
mod mount;

pub use mount::{MountError, MountOptions, Mounted, mount};
