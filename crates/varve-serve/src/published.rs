//! A published disk behind the front ends: as a network block device, and as a folder.

mod export;
mod folder;

pub use export::PublishedExport;
pub use folder::PublishedFolder;
