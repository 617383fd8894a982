//! Disk images: archived and restored by many hands at once, in order, without a byte of memory for their size.

mod archive;
mod leave_out;
mod restore;
mod source;

pub use archive::{ArchiveImageError, ArchivedImage, archive_image};
pub use restore::{RestoreImageError, restore_image, write_image};
pub use source::{ImageSource, OpenSourceError};
