//! The file of a new image, such as a restored one in a format other than raw. It gets its name
//! only when it is complete, and starts from the beginning after a failure.

use std::ffi::OsStr;
use std::fs::{self, File, FileType, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::restore_error::RestoreImageError;
use crate::restoring::partial::{self, partial_names, rename_new};

/// Examines the destination of an image. It must be free, unless `overwrite` allows replacing it.
pub(super) fn look_at(destination: &Path, overwrite: bool) -> Result<Option<FileType>, RestoreImageError> {
    let looked_at = |metadata: io::Result<Metadata>| match metadata {
        Ok(existing) => Ok(Some(existing)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(RestoreImageError::Write { path: destination.into(), source }),
    };
    // A link to a device stands for the device. Any other link is replaced itself, and a dangling
    // link counts as existing.
    let existing = looked_at(fs::metadata(destination))?;
    let is_taken = existing.is_some() || looked_at(fs::symlink_metadata(destination))?.is_some();
    if is_taken && !overwrite {
        return Err(RestoreImageError::Exists { path: destination.into() });
    }
    Ok(existing.map(|existing| existing.file_type()))
}

/// The permissions of an image that only its owner can read: a disk contains the secrets of all its
/// users.
pub const PRIVATE: u32 = 0o600;

/// Creates the file of an image, with these permissions, as far as the user's mask allows them.
/// `fill` receives the empty file and its partial path. The file is then made durable, and gets its
/// name. `overwrite` allows replacing another file.
///
/// # Errors
/// [`RestoreImageError`], and any error of `fill`. The destination is then unchanged.
pub fn make_image<E: From<RestoreImageError>>(
    destination: &Path,
    overwrite: bool,
    permissions: u32,
    fill: impl FnOnce(&File, &Path) -> Result<(), E>,
) -> Result<(), E> {
    let failed = |error: Errno| RestoreImageError::Write { path: destination.into(), source: error.into() };
    if let Some(there) = look_at(destination, overwrite)?
        && !there.is_file()
    {
        return Err(RestoreImageError::NotAFile { path: destination.into(), what: word_for(there) }.into());
    }
    let new = NewFile::create(destination, Mode::from_raw_mode(permissions)).map_err(failed)?;
    let partial = destination.with_file_name(OsStr::from_bytes(&new.partial_name));
    let filled = fill(&new.file, &partial);
    let placed = filled.and_then(|()| Ok(new.complete(destination, overwrite)?));
    if placed.is_err() {
        new.discard();
    }
    placed
}

pub(super) fn word_for(there: FileType) -> &'static str {
    if there.is_dir() {
        "folder"
    } else if there.is_block_device() {
        "block device"
    } else {
        "character device, fifo or socket"
    }
}

/// A file that this process has created.
struct NewFile {
    file: File,
    folder: OwnedFd,
    /// The name until the file is complete.
    partial_name: Vec<u8>,
    name: Vec<u8>,
}

impl NewFile {
    fn create(destination: &Path, mode: Mode) -> Result<Self, Errno> {
        let name = destination.file_name().ok_or(Errno::ISDIR)?.as_bytes().to_vec();
        let folder = destination.parent().filter(|folder| !folder.as_os_str().is_empty());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, folder.unwrap_or(Path::new(".")), flags, Mode::empty())?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for partial_name in partial_names(&name) {
            match rustix::fs::openat(&folder, partial_name.as_slice(), flags, mode) {
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
                Ok(file) => return Ok(Self { file: file.into(), folder, partial_name, name: name.clone() }),
            }
        }
        Err(Errno::EXIST)
    }

    /// Makes the file durable, and gives it its final name.
    fn complete(&self, destination: &Path, overwrite: bool) -> Result<(), RestoreImageError> {
        let failed = |source| RestoreImageError::Write { path: destination.into(), source };
        self.file.sync_all().map_err(failed)?;
        let (from, to) = (self.partial_name.as_slice(), self.name.as_slice());
        let placed = if overwrite {
            rustix::fs::renameat(&self.folder, from, &self.folder, to)
        } else {
            rename_new(&self.folder, from, to, &partial::rename)
        };
        match placed {
            Err(Errno::EXIST) => return Err(RestoreImageError::Exists { path: destination.into() }),
            placed => placed.map_err(|error| failed(error.into()))?,
        }
        rustix::fs::fsync(&self.folder).map_err(|error| failed(error.into()))
    }

    /// Removes the useless remains. A failure to remove them would add nothing to the first error.
    fn discard(&self) {
        let _ = rustix::fs::unlinkat(&self.folder, &*self.partial_name, AtFlags::empty());
    }
}
