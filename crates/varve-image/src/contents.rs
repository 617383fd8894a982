//! The content of a part of a disk: its kinds, and how they are detected.

pub mod detection;
pub mod signatures;
pub mod swap_header;
pub mod volume_content;
