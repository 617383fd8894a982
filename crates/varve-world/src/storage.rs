//! The seam between the engine and whatever keeps its files.

use std::io;
use std::sync::Arc;

/// The name of a file within a store: `/`-separated parts of `A-Z a-z 0-9 . _ -`, none of them empty or starting with a dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName(String);

/// A text that cannot name a file of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} cannot name a file of a store")]
pub struct FileNameError {
    /// The text.
    pub text: String,
}

impl FileName {
    /// Takes `text` as a file's name.
    ///
    /// # Errors
    /// [`FileNameError`] when it is not of the form above; so a name never leads out of the store's folder.
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

    /// The name of the file while it is not whole yet. Readers of the format ignore it.
    #[must_use]
    pub fn unfinished(&self) -> Self {
        Self(format!("{self}.new"))
    }

    /// The folder that the file is in; empty for the store's own.
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

/// Whether an error says that this process, or the machine, has come to the end of its open files or its memory: nothing about what was
/// to be read.
#[must_use]
pub fn is_exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let number = Errno::from_io_error(error);
    number.is_some_and(|number| [Errno::MFILE, Errno::NFILE, Errno::NOMEM].contains(&number))
}

/// Whether an error says that this process, or the machine, may open no more files: then nothing was asked of a disk.
#[must_use]
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    Errno::from_io_error(error).is_some_and(|number| [Errno::MFILE, Errno::NFILE].contains(&number))
}

/// A folder of files.
///
/// Until [`sync`](Self::sync) returns, what was appended may be lost, torn or reordered; until
/// [`sync_folder`](Self::sync_folder) returns, a creation, a rename or a removal may be undone. A read may fail or lie.
/// Callable from many threads at once; of one file, at most one caller appends.
pub trait Storage: Send + Sync {
    /// Makes an empty file, and the folders that lead to it.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] when it is there.
    fn create(&self, file: &FileName) -> io::Result<()>;

    /// Adds `bytes` at the end of a file and returns where they begin, in bytes.
    ///
    /// # Errors
    /// On any error, any part of `bytes` may or may not have been added.
    fn append(&self, file: &FileName, bytes: &[u8]) -> io::Result<u64>;

    /// The same for much that nobody will read soon: where that can be, it does not go into the system's memory of files.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    fn append_uncached(&self, file: &FileName, bytes: &[u8]) -> io::Result<u64> {
        self.append(file, bytes)
    }

    /// Writes `bytes` over what a file has from `offset` on. Only for files that are hints, and that tell by themselves what is
    /// damaged: until [`sync`](Self::sync) returns, a crash leaves any mixture of old and new. The log is never written so.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] from a storage that only appends, as most do: nothing that a store must have needs more.
    /// [`io::ErrorKind::UnexpectedEof`] when the file ends before that; nothing is written then.
    fn overwrite(&self, file: &FileName, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let _ = (file, offset, bytes);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Fills `into` from `offset` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] when the file ends before `into` is full.
    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// The same as it is on the disk, and not as the system remembers it, where that can be and both `offset` and `into` are where a page
    /// begins (a [`PageBuffer`](crate::PageBuffer) does): for much that is read once.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    fn read_uncached_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_at(file, offset, into)
    }

    /// The length of a file in bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when it is not there.
    fn length(&self, file: &FileName) -> io::Result<u64>;

    /// Cuts a file to its first `length` bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when it is shorter than that.
    fn truncate(&self, file: &FileName, length: u64) -> io::Result<()>;

    /// Asks for a file to be made durable soon, without waiting for it. A failure is remembered and reported by the
    /// next [`sync`](Self::sync) of that file.
    fn sync_soon(&self, file: &FileName);

    /// Returns when all that was appended to a file is durable.
    ///
    /// # Errors
    /// What was not yet durable is then unknown; appending on would build on sand.
    fn sync(&self, file: &FileName) -> io::Result<()>;

    /// Returns when all creations, renames and removals in a folder (`""` is the store's own) are durable.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    fn sync_folder(&self, folder: &str) -> io::Result<()>;

    /// Gives a file another name, replacing what had that name. Both names are of one folder.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when `from` is not there.
    fn rename(&self, from: &FileName, to: &FileName) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when it is not there.
    fn remove(&self, file: &FileName) -> io::Result<()>;

    /// The same for a file that may be large: its name is gone when this returns, and its space is free soon, without anybody waiting for it.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    fn remove_and_free_soon(&self, file: &FileName) -> io::Result<()> {
        self.remove(file)
    }

    /// The files of a folder, in order of their names. Files with names that no store uses are left out; a folder that
    /// is not there has no files.
    ///
    /// # Errors
    /// Whatever the folder's reading met.
    fn list(&self, folder: &str) -> io::Result<Vec<FileName>>;

    /// Locks a file (made where there is none) against every other process and every other caller, and leaves
    /// `holder` in it for them to read. The lock ends when the value is dropped, or the process dies.
    ///
    /// # Errors
    /// [`LockError::Held`] at once when somebody else has it.
    fn lock(&self, file: &FileName, holder: &str) -> Result<Box<dyn FileLock>, LockError>;

    /// Another folder of the same world, by its path: on another disk, where hints may be kept. Nothing is made by asking for it;
    /// whether it is there shows when it is used.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] from a storage that is no folder among others.
    fn other_folder(&self, path: &str) -> io::Result<Arc<dyn Storage>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("there is no {path} beside this store")))
    }
}

/// A lock that is held.
pub trait FileLock: Send + Sync {}

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else has it.
    #[error("in use by {holder}")]
    Held {
        /// What they left in the file.
        holder: String,
    },
    /// The file could not be locked.
    #[error("cannot lock {file}")]
    Storage {
        /// The file.
        file: FileName,
        /// What went wrong below.
        source: io::Error,
    },
}

/// Reads a whole file.
impl dyn Storage + '_ {
    /// The contents of a file that is expected to be small: `bytes_max` at most.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] when it is larger; else as [`read_at`](Storage::read_at).
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

    /// Removes a file, and says whether there was one.
    ///
    /// # Errors
    /// As [`remove`](Storage::remove), but that a file which is not there is none.
    pub fn remove_if_there(&self, file: &FileName) -> io::Result<bool> {
        match self.remove(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true),
        }
    }

    /// Makes an empty file, in the place of one that may be left of something unfinished.
    ///
    /// # Errors
    /// As [`remove`](Storage::remove) and [`create`](Storage::create).
    pub fn create_anew(&self, file: &FileName) -> io::Result<()> {
        self.remove_if_there(file)?;
        self.create(file)
    }

    /// Puts a file with these contents in place, whole or not at all, and durable: written under a name of its own,
    /// synced, renamed, and the folder synced.
    ///
    /// # Errors
    /// Whatever met one of these steps; what was there before is then there still.
    pub fn replace(&self, file: &FileName, contents: &[u8]) -> io::Result<()> {
        self.replace_with(file, |append| append(contents))
    }

    /// As `replace`, for contents that come in pieces.
    ///
    /// # Errors
    /// As `replace`, and whatever `write` returns.
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
}
