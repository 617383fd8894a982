//! Disks and their volumes: partition tables, LVM, and the kind of content that each volume has.

pub mod boot_sector;
pub mod content;
pub mod crc;
pub mod detection;
pub mod disk;
pub mod disk_problem;
pub mod joined;
pub mod lvm;
pub mod moved_files;
pub mod partitions;
pub mod signatures;
pub mod swap_header;
pub mod volume;
