//! The file of a raw image during its restore. An interrupted restore continues where it stopped.

use std::fs::{File, FileType};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::new_image::word_for;
use super::restore_error::RestoreImageError;
use crate::restoring::partial::{self, rename_new};
use crate::restoring::unfinished_restore::{CompletedPart, PartialKind, UnfinishedRestore, WrittenRanges};

/// A file that only its owner can read: a disk contains the secrets of all its users.
pub(super) struct UnfinishedImage {
    unfinished: UnfinishedRestore,
    file: File,
    destination: PathBuf,
    name: Vec<u8>,
}

impl UnfinishedImage {
    /// Begins a file, or continues the one of an earlier run. `there` is the kind of the existing
    /// destination.
    pub(super) fn open(
        destination: &Path,
        there: Option<FileType>,
        source: &[u8],
    ) -> Result<Self, RestoreImageError> {
        if let Some(there) = there.filter(|there| !there.is_file()) {
            return Err(RestoreImageError::NotAFile { path: destination.into(), what: word_for(there) });
        }
        let opened = || -> Result<Self, Errno> {
            let (folder, name) = folder_and_name(destination)?;
            let unfinished = UnfinishedRestore::open(folder, &name, PartialKind::File, source)?;
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(unfinished.folder(), unfinished.name(), flags, Mode::empty())?;
            Ok(Self { unfinished, file: file.into(), destination: destination.into(), name })
        };
        opened().map_err(|error| RestoreImageError::Write { path: destination.into(), source: error.into() })
    }

    /// Removes what a run that was killed after its last step left beside the destination.
    pub(super) fn forget_completed(destination: &Path) {
        if let Ok((folder, name)) = folder_and_name(destination) {
            UnfinishedRestore::forget_completed(&folder, &name);
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Sets the size of the file. Returns the end of the part that earlier runs have written.
    pub(super) fn begin(&self, size: u64) -> Result<u64, RestoreImageError> {
        let start = self.unfinished.noted().large.as_ref().map_or(0, |(_, bytes)| (*bytes).min(size));
        // Bytes after the recorded ones may be anything.
        let sized = self.file.set_len(start).and_then(|()| self.file.set_len(size));
        sized.map(|()| start).map_err(|source| self.failed(source))
    }

    /// Makes the file durable, and gives it its final name.
    pub(super) fn complete(&self, overwrite: bool) -> Result<(), RestoreImageError> {
        self.file.sync_all().map_err(|error| self.failed(error))?;
        let (folder, from, to) = (self.unfinished.folder(), self.unfinished.name(), self.name.as_slice());
        let placed = if overwrite {
            rustix::fs::renameat(folder, from, folder, to)
        } else {
            rename_new(folder, from, to, &partial::rename)
        };
        match placed {
            Err(Errno::EXIST) => return Err(RestoreImageError::Exists { path: self.destination.clone() }),
            placed => placed.map_err(|error| self.failed(error.into()))?,
        }
        self.unfinished.forget();
        rustix::fs::fsync(folder).map_err(|error| self.failed(error.into()))
    }

    /// Adds the path of the partial result to an error.
    pub(super) fn stays(&self, source: RestoreImageError) -> RestoreImageError {
        let folder = self.destination.parent().unwrap_or(Path::new(""));
        let unfinished = self.unfinished.path_in(folder);
        RestoreImageError::Unfinished { unfinished, source: Box::new(source) }
    }

    fn failed(&self, source: std::io::Error) -> RestoreImageError {
        RestoreImageError::Write { path: self.destination.clone(), source }
    }
}

/// Opens the folder of a destination. Returns it with the name in it.
fn folder_and_name(destination: &Path) -> Result<(OwnedFd, Vec<u8>), Errno> {
    let name = destination.file_name().ok_or(Errno::ISDIR)?.as_bytes().to_vec();
    let folder = destination.parent().filter(|folder| !folder.as_os_str().is_empty());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(CWD, folder.unwrap_or(Path::new(".")), flags, Mode::empty())?;
    Ok((folder, name))
}

/// Records from time to time how much of a file is durable.
pub(super) struct ImageProgressRecorder<'a> {
    image: &'a UnfinishedImage,
    written: Mutex<WrittenRanges>,
    /// The end of the recorded part.
    noted: Mutex<u64>,
    note_bytes: u64,
}

impl<'a> ImageProgressRecorder<'a> {
    pub(super) fn new(image: &'a UnfinishedImage, start: u64, note_bytes: u64) -> Self {
        Self { image, written: Mutex::new(WrittenRanges::up_to(start)), noted: Mutex::new(start), note_bytes }
    }

    /// Adds a range that was written.
    pub(super) fn add(&self, range: Range<u64>) {
        let end = {
            let mut written = self.written.lock();
            written.add(range);
            written.end()
        };
        // If another thread is recording, this one continues.
        if let Some(mut noted) = self.noted.try_lock()
            && end.saturating_sub(*noted) >= self.note_bytes
        {
            self.sync_and_note(end);
            *noted = end;
        }
    }

    /// Records everything that is written.
    pub(super) fn note(&self) {
        let end = self.written.lock().end();
        let _noted = self.noted.lock();
        self.sync_and_note(end);
    }

    /// Makes the data durable, and then records the end. If that fails, the previous record stays
    /// true.
    fn sync_and_note(&self, end: u64) {
        if self.image.file.sync_data().is_ok() {
            let noted = CompletedPart { large: Some((PathBuf::new(), end)), ..CompletedPart::default() };
            let _ = self.image.unfinished.note(&noted);
        }
    }
}
