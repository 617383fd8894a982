//! A file of arenas: a partition, or a single arena.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use varve_block::to_usize;
use varve_venti::{
    ARENA_HEAD_BYTES, ArenaHead, ArenaPlace, DecodePartitionError, PARTITION_HEADER_AT,
    PARTITION_HEADER_BYTES, PartitionHeader,
};

/// A file of arenas.
#[derive(Debug)]
pub struct VentiArenas {
    pub(super) file: File,
    pub(super) path: PathBuf,
    arenas: Vec<ArenaPlace>,
}

/// Why a file cannot be opened as arenas.
#[derive(Debug, thiserror::Error)]
pub enum OpenArenasError {
    #[error("{} cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// It is neither a partition nor an arena.
    #[error("{} is neither a partition of Venti arenas nor a Venti arena", path.display())]
    NotArenas {
        path: PathBuf,
        /// The fault of the partition, if it is one.
        source: DecodePartitionError,
    },
}

impl VentiArenas {
    /// Opens a partition of arenas, or an arena that was copied out of one.
    ///
    /// # Errors
    /// [`OpenArenasError`].
    pub fn open(path: &Path) -> Result<Self, OpenArenasError> {
        let unreadable = |source| OpenArenasError::Read { path: path.to_path_buf(), source };
        let file = File::open(path).map_err(unreadable)?;
        let head = read_up_to(&file, 0, ARENA_HEAD_BYTES).map_err(unreadable)?;
        let arenas = match ArenaHead::decode(&head) {
            Ok(head) => vec![ArenaPlace { name: head.name, range: 0..head.size }],
            Err(_) => arenas_of(&file)
                .map_err(unreadable)?
                .map_err(|source| OpenArenasError::NotArenas { path: path.to_path_buf(), source })?,
        };
        Ok(Self { file, path: path.to_path_buf(), arenas })
    }

    /// The arenas, in the order of the file.
    #[must_use]
    pub fn arenas(&self) -> &[ArenaPlace] {
        &self.arenas
    }
}

fn arenas_of(file: &File) -> io::Result<Result<Vec<ArenaPlace>, DecodePartitionError>> {
    let bytes = read_up_to(file, PARTITION_HEADER_AT, PARTITION_HEADER_BYTES)?;
    let header = match PartitionHeader::decode(&bytes) {
        Ok(header) => header,
        Err(error) => return Ok(Err(error)),
    };
    let table = header.table();
    let length = to_usize(table.end - table.start);
    Ok(header.decode_table(&read_up_to(file, table.start, length)?))
}

/// Reads this many bytes, or up to the end of the file.
pub(super) fn read_up_to(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}
