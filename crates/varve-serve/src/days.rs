//! A file system of days: every snapshot of a store, below the day that it shows.
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
//! Of several snapshots of one name on one day the newest has the name, and the others are `NAME.HHMMSS`, the moment that they show.
//! Each snapshot has one place, so the links are links: a folder that lay in three places would be three folders to everybody who
//! walks the tree.
//!
//! What must always be true:
//! - What lies inside a snapshot never changes. What may change are the names above: a new snapshot appears, and takes the name of
//!   an older one of the same day.
//! - The number of a file is the same on every machine and in every year, and no two files have the same.
//! - What cannot be read is an error of that one file. It is named with the path in its snapshot.

mod calendar;
mod disk;
mod files;
mod night;
mod number;
mod order;

pub use calendar::{Calendar, CivilTime};
pub use files::Days;
