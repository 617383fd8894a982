//! The doors: what is archived, shown as file systems and network block devices.

pub mod nbd;
