//! A storage to be read, in which one file lies under another name, or a part of it in memory.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use varve_log::ArenaId;
use varve_world::{FileLock, FileName, LockError, Storage};

/// Reads one file from where it is kept, the rest from the storage below.
pub(crate) struct Held {
    pub(crate) below: Arc<dyn Storage>,
    /// Which file.
    pub(crate) file: FileName,
    /// What it is called below.
    pub(crate) kept_as: FileName,
    /// Where in it `bytes` are.
    pub(crate) offset: u64,
    pub(crate) bytes: Bytes,
}

impl Held {
    /// `below`, with bytes of an arena that are read from memory.
    pub(crate) fn in_memory(below: &Arc<dyn Storage>, arena: ArenaId, offset: u64, bytes: Bytes) -> Self {
        let file = arena.file_name();
        Self { below: Arc::clone(below), kept_as: file.clone(), file, offset, bytes }
    }

    fn kept_as<'a>(&'a self, file: &'a FileName) -> &'a FileName {
        if *file == self.file { &self.kept_as } else { file }
    }

    fn in_bytes(&self, file: &FileName, offset: u64, count: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..start.checked_add(count)?).filter(|_| *file == self.file)
    }
}

impl Storage for Held {
    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match self.in_bytes(file, offset, into.len()) {
            Some(piece) => {
                into.copy_from_slice(piece);
                Ok(())
            }
            None => self.below.read_at(self.kept_as(file), offset, into),
        }
    }

    fn length(&self, file: &FileName) -> io::Result<u64> {
        self.below.length(self.kept_as(file))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<FileName>> {
        self.below.list(folder)
    }

    fn create(&self, _: &FileName) -> io::Result<()> {
        Err(read_only())
    }

    fn append(&self, _: &FileName, _: &[u8]) -> io::Result<u64> {
        Err(read_only())
    }

    fn truncate(&self, _: &FileName, _: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn sync_soon(&self, _: &FileName) {}

    fn sync(&self, _: &FileName) -> io::Result<()> {
        Err(read_only())
    }

    fn sync_folder(&self, _: &str) -> io::Result<()> {
        Err(read_only())
    }

    fn rename(&self, _: &FileName, _: &FileName) -> io::Result<()> {
        Err(read_only())
    }

    fn remove(&self, _: &FileName) -> io::Result<()> {
        Err(read_only())
    }

    fn lock(&self, file: &FileName, _: &str) -> Result<Box<dyn FileLock>, LockError> {
        Err(LockError::Storage { file: file.clone(), source: read_only() })
    }
}

fn read_only() -> io::Error {
    io::ErrorKind::ReadOnlyFilesystem.into()
}
