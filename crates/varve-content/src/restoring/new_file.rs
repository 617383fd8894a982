//! A new file gets its name only when it is complete and durable. So no command leaves half a
//! result where a reader would take it for a whole one.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use varve_world::sync_open_folder;

use crate::restoring::partial::{self, exists, partial_names, rename_new};

/// The permissions of a file that only its owner can read.
pub const PRIVATE: u32 = 0o600;
/// The permissions of a file that everybody can read, as far as the user's mask allows it.
pub const PUBLIC: u32 = 0o666;

/// A file that has a partial name beside its final one. Dropping it removes it, unless it was
/// completed.
pub struct NewFile {
    file: File,
    folder: OwnedFd,
    /// The name until the file is complete.
    partial_name: Vec<u8>,
    name: Vec<u8>,
    overwrite: bool,
    is_complete: bool,
}

impl NewFile {
    /// Creates an empty file. `overwrite` allows replacing another file at the end.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if the final name is in use and may not be replaced, and
    /// all errors of the system.
    pub fn create(destination: &Path, permissions: u32, overwrite: bool) -> io::Result<Self> {
        let name = destination.file_name().ok_or(Errno::ISDIR)?.as_bytes().to_vec();
        let folder = destination.parent().filter(|folder| !folder.as_os_str().is_empty());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, folder.unwrap_or(Path::new(".")), flags, Mode::empty())?;
        if !overwrite && exists(&folder, &name)? {
            return Err(Errno::EXIST.into());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(permissions);
        for partial_name in partial_names(&name) {
            match rustix::fs::openat(&folder, partial_name.as_slice(), flags, mode) {
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
                Ok(file) => {
                    let (file, name) = (file.into(), name.clone());
                    return Ok(Self { file, folder, partial_name, name, overwrite, is_complete: false });
                }
            }
        }
        Err(Errno::EXIST.into())
    }

    /// Creates a file with these contents.
    ///
    /// # Errors
    /// As [`create`](Self::create) and [`complete`](Self::complete). No file is left then.
    pub fn write(destination: &Path, permissions: u32, overwrite: bool, contents: &[u8]) -> io::Result<()> {
        let mut new = Self::create(destination, permissions, overwrite)?;
        new.write_all(contents)?;
        new.complete()
    }

    /// Returns the file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the path that the file has until it is complete. `destination` is its final one.
    #[must_use]
    pub fn partial_path(&self, destination: &Path) -> PathBuf {
        destination.with_file_name(OsStr::from_bytes(&self.partial_name))
    }

    /// Makes the file durable, and gives it its final name.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if the final name was taken meanwhile, and all errors of
    /// the system. No file is left then.
    pub fn complete(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        let (from, to) = (self.partial_name.as_slice(), self.name.as_slice());
        match self.overwrite {
            true => rustix::fs::renameat(&self.folder, from, &self.folder, to)?,
            false => rename_new(&self.folder, from, to, &partial::rename)?,
        }
        self.is_complete = true;
        sync_open_folder(&self.folder.try_clone()?.into())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_complete {
            // A failure to remove it would add nothing to the first error.
            let _ = rustix::fs::unlinkat(&self.folder, &*self.partial_name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_has_its_name_only_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result");
        let mut new = NewFile::create(&path, PRIVATE, false).unwrap();
        new.write_all(b"half").unwrap();
        assert!(!path.exists() && new.partial_path(&path).exists());
        drop(new);
        assert!(names(folder.path()).is_empty());
        NewFile::write(&path, PRIVATE, false, b"whole").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");

        let refused = NewFile::create(&path, PRIVATE, false).err().map(|error| error.kind());
        assert_eq!(refused, Some(io::ErrorKind::AlreadyExists));
        NewFile::write(&path, PRIVATE, true, b"newer").unwrap();
        assert_eq!(
            (fs::read(&path).unwrap(), names(folder.path())),
            (b"newer".to_vec(), vec!["result".into()])
        );
    }

    #[test]
    fn a_name_that_was_taken_meanwhile_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result");
        let new = NewFile::create(&path, PRIVATE, false).unwrap();
        fs::write(&path, "of another").unwrap();
        assert_eq!(new.complete().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(
            (fs::read(&path).unwrap(), names(folder.path())),
            (b"of another".to_vec(), vec!["result".into()])
        );
        assert!(NewFile::create(Path::new("/"), PRIVATE, false).is_err());
    }
}
