//! A file that is imported as one snapshot, with the time of that snapshot.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use varve_world::Timestamp;

use crate::dated_name::time_in_name;
use crate::foreign::ForeignSnapshot;

/// Why a file cannot be imported as a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum OpenDatedFileError {
    #[error("{} cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The time of the snapshot is unknown.
    #[error("the time of {} is unknown: its name has no date", path.display())]
    NoTime { path: PathBuf },
}

/// An open file, and the snapshot that it becomes.
pub(crate) struct DatedFile {
    pub(crate) file: File,
    pub(crate) snapshot: ForeignSnapshot,
}

impl DatedFile {
    /// Opens a file. Its time is `time`, or a date in its name, or its modification time if
    /// `by_mtime` is set.
    ///
    /// # Errors
    /// [`OpenDatedFileError`].
    pub(crate) fn open(
        path: &Path,
        time: Option<Timestamp>,
        by_mtime: bool,
        host: &str,
    ) -> Result<Self, OpenDatedFileError> {
        let unread = |source| OpenDatedFileError::Read { path: path.into(), source };
        let file = File::open(path).map_err(unread)?;
        let status = file.metadata().map_err(unread)?;
        let whole = path.canonicalize().map_err(unread)?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mtime = status.mtime().saturating_mul(1_000_000_000).saturating_add(status.mtime_nsec());
        let time = time
            .or_else(|| time_in_name(&name, &TimeZone::system()))
            .or(by_mtime.then_some(Timestamp(mtime)))
            .ok_or(OpenDatedFileError::NoTime { path: path.into() })?;
        let snapshot = ForeignSnapshot {
            id: format!("{name}-{}-{mtime}", status.len()),
            time,
            host: host.to_owned(),
            source: whole.as_os_str().as_bytes().to_vec(),
            earlier_ids: Vec::new(),
            tags: Vec::new(),
        };
        Ok(Self { file, snapshot })
    }
}
