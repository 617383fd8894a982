//! Repositories of borg 1.x, read through borg's own programs.
//!
//! ```text
//! borg list, dump-manifest ──> archives, oldest first
//! borg debug dump-archive-items ──> items: exact metadata and the ids of chunks ──┐
//! borg export-tar, of the files with unknown contents ──> contents ──> store ─────┴─> tree
//! ```
//!
//! borg's repository and its keys have many forms, so they are left to borg. Its tar files have
//! whole seconds and no attributes, so only contents are taken from them. The items are borg's own
//! records, in the format `msgpack`: they are exact.
//!
//! The output of borg is a claim: lengths are bounded, and a file in the tar stream must have the
//! name and the size that its item has.

mod access_list;
mod archive;
mod contents;
mod items;
mod messages;
mod program;
mod restore;

pub use archive::{BorgArchive, BorgFilter, OpenBorgError};
pub use items::{BorgItem, BorgItemError, BorgItems};
pub use program::{BorgError, BorgProgram};
