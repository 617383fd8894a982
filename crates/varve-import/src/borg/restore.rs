//! borg's own restore of an archive.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::archive::BorgArchive;
use crate::own_restore::{OwnRestore, OwnRestoreError};

/// The real borg.
pub struct BorgRestore<'a> {
    pub archive: &'a BorgArchive,
}

impl OwnRestore for BorgRestore<'_> {
    fn restore(&self, place: usize, into: &Path) -> Result<PathBuf, OwnRestoreError> {
        let program = self.archive.program();
        let loaded = self.archive.load(place).map_err(OwnRestoreError::Place)?;
        let name = self.archive.name(place).map_err(OwnRestoreError::Place)?;
        let mut command = program.opening(&["extract", "--numeric-ids"]);
        command.arg(program.archive(name)).current_dir(into);
        program.run(command)?;
        // Folders that the archive does not have get attributes of that moment from borg.
        let nanoseconds = u64::try_from(loaded.time.0).unwrap_or(0);
        let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds);
        for folder in loaded.implied_folders().iter().rev() {
            let path = into.join(OsStr::from_bytes(folder));
            let set = || -> std::io::Result<()> {
                fs::set_permissions(&path, Permissions::from_mode(0o755))?;
                File::open(&path)?.set_modified(time)
            };
            set().map_err(|error| OwnRestoreError::Place(error.into()))?;
        }
        Ok(into.join(OsStr::from_bytes(&loaded.root)))
    }
}
