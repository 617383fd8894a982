//! Reasons why an image is not restored.

use std::io;
use std::path::PathBuf;

use varve_tree::ReadTreeError;

use crate::reading_content::ReadContentError;

/// Why an image was not restored. A destination file is then unchanged, or still absent.
#[derive(Debug, thiserror::Error)]
pub enum RestoreImageError {
    /// The destination exists.
    #[error("{path} exists", path = path.display())]
    Exists { path: PathBuf },
    /// The destination is neither a file nor a block device.
    #[error("{path} is a {what}: an image is restored to a file or a block device", path = path.display())]
    NotAFile {
        path: PathBuf,
        /// The kind of the destination.
        what: &'static str,
    },
    /// The device is in use by another program or mount, which would continue writing to it.
    #[error("{path} is in use: it, or a part of it, is mounted or swapped to, or belongs to a RAID or a volume group; unmount it or release it, and then restore again", path = path.display())]
    Busy { path: PathBuf },
    #[error("{path} is too small: it has {actual} bytes, and the image has {needed}", path = path.display())]
    TooSmall {
        path: PathBuf,
        /// The size of the device.
        actual: u64,
        /// The size of the image.
        needed: u64,
    },
    /// The image is unreadable in the store.
    #[error("{0}")]
    Read(#[from] ReadTreeError),
    /// The file is unreadable in its file system.
    #[error("{0}")]
    ReadFile(#[source] Box<ReadContentError>),
    /// The destination could not be written.
    #[error("cannot write {path}", path = path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("interrupted")]
    Cancelled,
    /// A part was restored, and the next run can continue from it.
    #[error("the restore is not finished; the finished part is kept at {unfinished}, and the same command continues from there", unfinished = unfinished.display())]
    Unfinished {
        /// The path of the partial result.
        unfinished: PathBuf,
        source: Box<RestoreImageError>,
    },
}
