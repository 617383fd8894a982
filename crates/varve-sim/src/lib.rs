//! The misbehaving world: a disk that keeps only what a real disk and its file system promise, for the tests of everything
//! that claims to survive worse.
//!
//! A [`Disk`] is a [`Storage`](varve_world::Storage) with two views. The *volatile* one is what a process sees: the page cache. The
//! *durable* one is what power loss leaves. Between them stands only what `sync` and `sync_folder` have been told:
//!
//! | what                    | what a power cut may leave of it until it is synced                                              |
//! |-------------------------|--------------------------------------------------------------------------------------------------|
//! | appended bytes          | each sector of 512 bytes by itself, kept or lost; a lost one before a kept one reads as zeros    |
//! | a file's length         | any that it has had since its last sync, or the border of any sector between                     |
//! | a truncation            | done, undone, or done for some sectors only                                                      |
//! | a creation, a removal   | done or undone, each by itself                                                                   |
//! | a rename                | the old file under the name or the new one, whole as an act; never neither                       |
//! | a folder                | there, or gone with all that is in it                                                            |
//!
//! What it does promise, and the engine counts on: a sector is written whole or not at all, and bytes that were durable stay when their
//! sector is written again with them in it (so say the drives; file systems that journal data or copy on write promise no less). A rename replaces in one step (POSIX; ext4, xfs
//! and btrfs keep it across a power cut). Changes of names need not survive in their order: ext4 and xfs keep them in the order of
//! their journal, btrfs does not always, so half of the power cuts here keep a first part of them and half keep any of them.
//!
//! Beyond power cuts, a [`Strike`] makes one call go wrong: a read fails, or returns a flipped bit or what was there before; a write fails or
//! finds the disk full; a sync fails, and then, as on Linux, of what was waiting some is written and the rest is *marked clean*:
//! it can be read for a while, no later sync writes it, and a power cut takes it.
//!
//! Apart from all that stands [`Rot`]: damage to what was durable, which no order of writes protects from. It happens only when
//! [`Disk::rot`] is called, so that a test of crashes alone can demand that nothing at all is lost.
//!
//! What must always be true: the same seed and the same calls give the same answers. Without strikes and power cuts, it is a good disk: it
//! passes the contract of every storage. It is never worse than the table above, or what survives it would prove nothing for real
//! disks; and its own tests show that each of these things does happen, or surviving it would prove nothing at all.

mod disk;
mod draw;
mod fault;
mod harm;
mod inode;
mod names;
mod rot;
mod slow_disk;
mod tally;

pub use disk::Disk;
pub use draw::Draw;
pub use fault::{Fault, Strike};
pub use inode::SECTOR_BYTES;
pub use rot::Rot;
pub use slow_disk::SlowDisk;
pub use tally::{Leftover, Tally};
