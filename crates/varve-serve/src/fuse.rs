//! A folder of this machine: a file system mounted by FUSE, read-only.
//!
//! What lies inside a snapshot never changes, so the kernel may believe what it was told for a day, and keep what was read of a file
//! from one opening to the next. Names that may change it asks for again after a second.
//!
//! Without `allow_other` only the user who mounted it sees it, and may read all of it: whoever could open the store has its key. With
//! `allow_other` the kernel lets every user do what modes, owners and access control lists of the archived files allow.

mod adapter;
mod lookups;
mod mount;

pub use mount::{MountError, Mounted, Options, mount};
