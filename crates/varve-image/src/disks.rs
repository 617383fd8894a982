//! Disks and their volumes: partition tables, LVM, and the files that move within a volume.

pub mod boot_sector;
pub mod disk;
pub mod disk_problem;
pub mod joined;
pub mod lvm;
pub mod moved_files;
pub mod partitions;
pub mod volume;
