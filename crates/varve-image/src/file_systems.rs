//! File systems: one trait, and a reader for each kind.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod bookmarks;
pub mod btrfs;
pub mod calendar;
pub mod clusters;
pub mod exfat;
pub mod ext;
pub mod fat;
pub mod file_system;
pub mod file_time;
pub mod iso;
mod metadata_cache;
pub mod ntfs;
pub mod open;
mod unix_files;
pub mod wide_names;
pub mod xfs;
