//! The interface between the engine and the storage of its files.

use std::io;
use std::sync::Arc;

/// The name of a file within a store: parts of `A-Z a-z 0-9 . _ -`, separated by `/`. No part is
/// empty or starts with a dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName(String);

/// A text that is not a valid file name of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} cannot name a file of a store")]
pub struct FileNameError {
    pub text: String,
}

impl FileName {
    /// Checks `text`, and makes it a file name.
    ///
    /// # Errors
    /// [`FileNameError`] if the text does not have the form above. A valid name never leads out of
    /// the store's folder.
    pub fn new(text: &str) -> Result<Self, FileNameError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let good = |part: &str| !part.is_empty() && !part.starts_with('.') && part.chars().all(plain);
        if text.split('/').all(good) {
            Ok(Self(text.into()))
        } else {
            Err(FileNameError { text: text.into() })
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the file while it is being written. Readers of the format ignore it.
    #[must_use]
    pub fn unfinished(&self) -> Self {
        Self(format!("{self}.new"))
    }

    /// The folder of the file; empty for the store's own folder.
    #[must_use]
    pub fn folder(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

impl std::fmt::Display for FileName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reports whether an error means that the process or the machine has run out of file descriptors
/// or memory. Such an error says nothing about the file.
#[must_use]
pub fn is_exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let number = Errno::from_io_error(error);
    number.is_some_and(|number| [Errno::MFILE, Errno::NFILE, Errno::NOMEM].contains(&number))
}

/// Reports whether an error means that the process or the machine has run out of file descriptors.
/// The disk was not accessed then.
#[must_use]
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    Errno::from_io_error(error).is_some_and(|number| [Errno::MFILE, Errno::NFILE].contains(&number))
}

/// The space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeSpace {
    /// The bytes that an ordinary user may still write.
    pub free_bytes: u64,
    /// The size of the file system in bytes.
    pub total_bytes: u64,
}

impl FreeSpace {
    /// Converts the numbers of `statvfs(3)`. Returns `None` if the file system does not tell its
    /// size: some that are mounted by a program say zero, and are not full.
    pub(crate) fn of_blocks(free_count: u64, block_count: u64, block_bytes: u64) -> Option<Self> {
        let bytes = |count: u64| count.saturating_mul(block_bytes);
        (bytes(block_count) > 0)
            .then(|| Self { free_bytes: bytes(free_count), total_bytes: bytes(block_count) })
    }
}

/// A folder of files.
///
/// Until [`sync`](Self::sync) returns, appended bytes may be lost, torn or reordered. Until
/// [`sync_folder`](Self::sync_folder) returns, a creation, a rename or a removal may be undone. A
/// read may fail or return wrong data. Methods may be called from many threads at once, but only
/// one thread at a time may append to a file.
pub trait Storage: Send + Sync {
    /// Creates an empty file, and the folders above it.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if it exists.
    fn create(&self, file: &FileName) -> io::Result<()>;

    /// Appends bytes to a file, and returns the offset at which they begin.
    ///
    /// # Errors
    /// After any error, an arbitrary part of `bytes` may have been appended.
    fn append(&self, file: &FileName, bytes: &[u8]) -> io::Result<u64>;

    /// Like [`append`](Self::append), for many bytes that will not be read soon. Bypasses the page
    /// cache if possible.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    fn append_uncached(&self, file: &FileName, bytes: &[u8]) -> io::Result<u64> {
        self.append(file, bytes)
    }

    /// Fills `into` from `offset` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the file ends before `into` is full.
    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Like [`read_at`](Self::read_at), for many bytes that are read once. Bypasses the page cache
    /// if possible, and if both `offset` and `into` are aligned to pages (a
    /// [`PageBuffer`](crate::PageBuffer) is).
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    fn read_uncached_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_at(file, offset, into)
    }

    /// The length of a file in bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if it does not exist.
    fn length(&self, file: &FileName) -> io::Result<u64>;

    /// Truncates a file to `length` bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if it is shorter.
    fn truncate(&self, file: &FileName, length: u64) -> io::Result<()>;

    /// Starts to make a file durable in the background. A failure is recorded, and the next
    /// [`sync`](Self::sync) of that file reports it.
    fn sync_soon(&self, file: &FileName);

    /// Makes all bytes durable that were appended to a file.
    ///
    /// # Errors
    /// It is unknown which bytes are durable, so the caller must not append any more.
    fn sync(&self, file: &FileName) -> io::Result<()>;

    /// Makes all creations, renames and removals in a folder durable. `""` is the store's own
    /// folder.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    fn sync_folder(&self, folder: &str) -> io::Result<()>;

    /// Renames a file, replacing any file of the new name. Both names must be in one folder.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if `from` does not exist.
    fn rename(&self, from: &FileName, to: &FileName) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if it does not exist.
    fn remove(&self, file: &FileName) -> io::Result<()>;

    /// Like [`remove`](Self::remove), for a large file. Its name is removed on return, and its
    /// space is freed in the background.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    fn remove_and_free_soon(&self, file: &FileName) -> io::Result<()> {
        self.remove(file)
    }

    /// Lists the files of a folder, in order of their names. Files with names that no store uses
    /// are left out. A folder that does not exist has no files.
    ///
    /// # Errors
    /// The folder cannot be read.
    fn list(&self, folder: &str) -> io::Result<Vec<FileName>>;

    /// Locks a file against all other processes and callers, creating it if necessary; its folder
    /// must exist. Replaces its contents by `holder`, for them to read. On a full disk the file may
    /// be locked and lack this text. The lock is released when the value is dropped, or when the
    /// process dies. The holder may remove the file.
    ///
    /// # Errors
    /// [`LockError::Held`], without waiting, if the file is locked already.
    fn lock(&self, file: &FileName, holder: &str) -> Result<Box<dyn FileLock>, LockError>;

    /// Locks a folder of files against all other processes and callers, creating it if necessary.
    /// Unlike a lock file, a folder with files is not removed by somebody who takes its lock for a
    /// stale one. The lock is released when the value is dropped, or when the process dies.
    ///
    /// The default is for storages whose locks do not depend on files. A file system without locks
    /// on folders, such as NFS, gives a lock that excludes nobody.
    ///
    /// # Errors
    /// [`LockError::Held`], without waiting and without the holder's text, if the folder is locked
    /// already.
    fn lock_folder(&self, folder: &str) -> Result<Box<dyn FileLock>, LockError> {
        let _ = folder;
        Ok(Box::new(NoLock))
    }

    /// Returns the space of the file system of this folder; `None` if it is not known.
    ///
    /// # Errors
    /// The file system cannot be asked.
    fn free_space(&self) -> io::Result<Option<FreeSpace>> {
        Ok(None)
    }

    /// Another folder of the same world, by its path, for hints on another disk. The call creates
    /// nothing, and succeeds even if the folder does not exist.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] from a storage without other folders.
    fn other_folder(&self, path: &str) -> io::Result<Arc<dyn Storage>> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("this kind of storage has no other folders: {path} cannot be opened"),
        ))
    }
}

/// A held lock.
pub trait FileLock: Send + Sync {}

/// Excludes nobody.
pub(crate) struct NoLock;

impl FileLock for NoLock {}

/// Why a lock could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process or caller holds the lock.
    #[error("in use by {holder}")]
    Held {
        /// The holder's text in the file.
        holder: String,
    },
    #[error("cannot lock {file}")]
    Storage { file: FileName, source: io::Error },
}

/// Operations that combine several calls.
impl dyn Storage + '_ {
    /// Reads a file of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if it is larger; otherwise as [`read_at`](Storage::read_at).
    pub fn read_whole(&self, file: &FileName, bytes_max: u64) -> io::Result<Vec<u8>> {
        let length = self.length(file)?;
        if length > bytes_max {
            let text = format!("{file} has {length} bytes, at most {bytes_max} are expected");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let mut contents = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.read_at(file, 0, &mut contents)?;
        Ok(contents)
    }

    /// Removes a file if it exists. Returns whether it did.
    ///
    /// # Errors
    /// As [`remove`](Storage::remove), except that a missing file is not an error.
    pub fn remove_if_there(&self, file: &FileName) -> io::Result<bool> {
        match self.remove(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true),
        }
    }

    /// Creates an empty file, replacing one that an unfinished operation may have left.
    ///
    /// # Errors
    /// As [`remove`](Storage::remove) and [`create`](Storage::create).
    pub fn create_anew(&self, file: &FileName) -> io::Result<()> {
        self.remove_if_there(file)?;
        self.create(file)
    }

    /// Replaces the contents of a file atomically and durably: writes them under another name,
    /// syncs, renames, and syncs the folder.
    ///
    /// # Errors
    /// The error of any of these steps. The old file is then still in place.
    pub fn replace(&self, file: &FileName, contents: &[u8]) -> io::Result<()> {
        self.replace_with(file, |append| append(contents))
    }

    /// Like `replace`, for contents that are written in parts.
    ///
    /// # Errors
    /// As `replace`, and the errors of `write`.
    pub fn replace_with(
        &self,
        file: &FileName,
        write: impl FnOnce(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>,
    ) -> io::Result<()> {
        let unfinished = file.unfinished();
        self.create_anew(&unfinished)?;
        write(&mut |piece| self.append(&unfinished, piece).map(|_| ()))?;
        self.sync(&unfinished)?;
        self.rename(&unfinished, file)?;
        self.sync_folder(file.folder())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside() {
        for good in ["config.toml", "arenas/0000000001.arena", "a/b/c"] {
            assert_eq!(FileName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "/etc", "a//b", "../x", "a/..", ".hidden", "a/", "sp ace", "n\0l"] {
            assert_eq!(FileName::new(bad), Err(FileNameError { text: bad.into() }));
        }
        assert_eq!(FileName::new("a/b/c").unwrap().folder(), "a/b");
        assert_eq!(FileName::new("c").unwrap().folder(), "");
        assert_eq!(FileName::new("a/b").unwrap().unfinished(), FileName::new("a/b.new").unwrap());
    }

    #[test]
    fn a_file_system_without_a_size_is_not_full() {
        assert_eq!(FreeSpace::of_blocks(0, 0, 4096), None);
        assert_eq!(FreeSpace::of_blocks(0, 100, 0), None);
        let full = FreeSpace { free_bytes: 0, total_bytes: 409_600 };
        assert_eq!(FreeSpace::of_blocks(0, 100, 4096), Some(full));
        let huge = FreeSpace { free_bytes: 4096, total_bytes: u64::MAX };
        assert_eq!(FreeSpace::of_blocks(1, u64::MAX, 4096), Some(huge));
    }
}
