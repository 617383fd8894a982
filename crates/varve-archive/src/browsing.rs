//! Browsing: reads the files of a snapshot, whether it is a folder or a disk image.

pub mod allocated_bytes;
pub mod collected;
pub mod files;
pub mod inside_image;
pub mod name_index;
pub mod reading_content;
pub mod snapshot_list;
