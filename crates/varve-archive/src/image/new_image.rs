//! The file of an image in another format that is restored: it comes into place only when complete, and is made anew after a failure.

use std::ffi::OsStr;
use std::fs::{self, File, FileType, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::restore::RestoreImageError;
use crate::restoring::partial::{self, partial_names, rename_new};

/// What is at the destination of an image: nothing, unless `overwrite` allows to replace it.
pub(super) fn look_at(destination: &Path, overwrite: bool) -> Result<Option<FileType>, RestoreImageError> {
    let looked_at = |metadata: io::Result<Metadata>| match metadata {
        Ok(existing) => Ok(Some(existing)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(RestoreImageError::Write { path: destination.into(), source }),
    };
    // A link leads to the device that it names; any other is replaced itself, and one that leads nowhere is there all the same.
    let existing = looked_at(fs::metadata(destination))?;
    let is_taken = existing.is_some() || looked_at(fs::symlink_metadata(destination))?.is_some();
    if is_taken && !overwrite {
        return Err(RestoreImageError::Exists { path: destination.into() });
    }
    Ok(existing.map(|existing| existing.file_type()))
}

/// Makes the file of an image. `fill` is given it, empty, and its path until it is complete; then it is made durable, and comes into place.
/// It can be read by its owner alone. `overwrite` allows to replace another file.
///
/// # Errors
/// [`RestoreImageError`], and whatever `fill` returns; what was there before is then as it was.
pub fn make_image<E: From<RestoreImageError>>(
    destination: &Path,
    overwrite: bool,
    fill: impl FnOnce(&File, &Path) -> Result<(), E>,
) -> Result<(), E> {
    let failed = |error: Errno| RestoreImageError::Write { path: destination.into(), source: error.into() };
    if let Some(there) = look_at(destination, overwrite)?
        && !there.is_file()
    {
        return Err(RestoreImageError::NotAFile { path: destination.into(), what: word_for(there) }.into());
    }
    let new = NewFile::create(destination).map_err(failed)?;
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

/// A file that nobody but us has made, and that nobody but its owner sees into: a disk holds everybody's secrets.
struct NewFile {
    file: File,
    folder: OwnedFd,
    /// What it is called until it is complete.
    partial_name: Vec<u8>,
    name: Vec<u8>,
}

impl NewFile {
    fn create(destination: &Path) -> Result<Self, Errno> {
        let name = destination.file_name().ok_or(Errno::ISDIR)?.as_bytes().to_vec();
        let folder = destination.parent().filter(|folder| !folder.as_os_str().is_empty());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, folder.unwrap_or(Path::new(".")), flags, Mode::empty())?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for partial_name in partial_names(&name) {
            match rustix::fs::openat(&folder, partial_name.as_slice(), flags, Mode::RUSR | Mode::WUSR) {
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
                Ok(file) => return Ok(Self { file: file.into(), folder, partial_name, name: name.clone() }),
            }
        }
        Err(Errno::EXIST)
    }

    /// Makes it durable, and gives it its name.
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

    /// What is left of it is of no use; that it cannot be removed adds nothing to the error.
    fn discard(&self) {
        let _ = rustix::fs::unlinkat(&self.folder, &*self.partial_name, AtFlags::empty());
    }
}
