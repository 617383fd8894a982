//! Looking into a snapshot: its files, whether it is a folder or a disk image.

pub mod allocated_bytes;
pub mod files;
pub mod inside_image;
