//! The file of a new image, such as a restored one in a format other than raw. It gets its name
//! only when it is complete, and starts from the beginning after a failure.

use std::fs::{self, File, FileType, Metadata};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::restore_error::RestoreImageError;
use crate::restoring::new_file::NewFile;

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
    if let Some(there) = look_at(destination, overwrite)?
        && !there.is_file()
    {
        return Err(RestoreImageError::NotAFile { path: destination.into(), what: word_for(there) }.into());
    }
    let failed = |source| RestoreImageError::Write { path: destination.into(), source };
    let new = NewFile::create(destination, permissions, overwrite).map_err(failed)?;
    fill(new.file(), &new.partial_path(destination))?;
    new.complete().map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => RestoreImageError::Exists { path: destination.into() },
        _ => failed(error),
    })?;
    Ok(())
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
