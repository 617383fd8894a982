//! Reading the content of a file: the receivers of its data and of its losses, and the errors.

use std::io;
use std::ops::Range;

use varve_block::GetError;
use varve_image::FileSystemError;
use varve_tree::ReadTreeError;

/// Receives the data of a file: pieces in ascending order, each with its offset.
pub type TakeBytes<'a> = dyn FnMut(u64, &[u8]) -> io::Result<()> + 'a;

/// Receives an unreadable range, and returns the error if the read ends there.
pub type OnLoss<'a> = dyn FnMut(Range<u64>, ReadContentError) -> Result<(), ReadContentError> + 'a;

/// Why the content of a file was unreadable.
#[derive(Debug, thiserror::Error)]
pub enum ReadContentError {
    /// Its tree is unreadable.
    #[error("{0}")]
    Tree(#[from] ReadTreeError),
    /// Its only block is unreadable.
    #[error("{0}")]
    Get(#[from] GetError),
    /// The file system of the file reported an error.
    #[error("{0}")]
    FileSystem(#[from] FileSystemError),
    /// The receiver of the bytes failed.
    #[error("the output could not be written")]
    Take(#[source] io::Error),
}
