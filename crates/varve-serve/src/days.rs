//! A file system that shows every snapshot of a store below the day on which it was taken.
//!
//! ```text
//! 2026/05/01/home/            a folder: its files
//! 2026/05/01/vm/p1/ p2/ …     a disk: the files of its volumes
//! 2026/05/01/vm/p3.raw        a volume whose files cannot be read
//! 2026/05/01/vm/disk.raw      the whole disk
//! latest/home                 a symbolic link to the newest
//! by-id/8d1f…                 a symbolic link to that snapshot
//! ```
//!
//! If several snapshots of one name fall on one day, the newest has the plain name. The others are
//! called `NAME.HHMMSS`, after their time. Each snapshot has exactly one path; `latest` and `by-id`
//! hold symbolic links to it. A folder that appeared at three paths would be three folders to every
//! program that walks the tree.
//!
//! Invariants:
//! - The contents of a snapshot never change. The names above the snapshots may change: a new
//!   snapshot appears, and takes the plain name from an older one of the same day.
//! - The number of a file is the same on every machine and at any time. No two files have the same
//!   number.
//! - Unreadable data is an error of that one file. The error names the path inside its snapshot.

mod calendar;
mod disk;
mod files;
mod number;
mod open_snapshot;
mod order;

pub use calendar::{Calendar, CivilTime};
pub use files::Days;

pub(crate) use disk::safe_name;
pub(crate) use number::{ROOT, number};
