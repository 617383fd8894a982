//! Browsing: reads the files of a snapshot, whether it is a folder or a disk image.

pub mod collected;
pub mod name_index;
pub mod snapshot_list;
