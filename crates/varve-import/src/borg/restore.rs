//! borg's own restore of an archive.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use varve_content::folder::DescriptionError;

use super::archive::BorgArchive;
use super::program::BorgError;

impl BorgArchive {
    /// Has borg restore an archive into an empty folder. Returns the folder that is the root of the
    /// imported snapshot.
    pub(crate) fn restore(
        &self,
        place: usize,
        into: &Path,
    ) -> Result<Result<PathBuf, BorgError>, DescriptionError> {
        let program = self.program();
        let loaded = self.load(place)?;
        let name = self.name(place)?;
        let mut command = program.opening(&["extract", "--numeric-ids"]);
        command.arg(program.archive(name)).current_dir(into);
        if let Err(error) = program.run(command) {
            return Ok(Err(error));
        }
        // Folders that the archive does not have get attributes of that moment from borg.
        let nanoseconds = u64::try_from(loaded.time.0).unwrap_or(0);
        let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds);
        for folder in loaded.implied_folders().iter().rev() {
            let path = into.join(OsStr::from_bytes(folder));
            fs::set_permissions(&path, Permissions::from_mode(0o755))?;
            File::open(&path)?.set_modified(time)?;
        }
        Ok(Ok(into.join(OsStr::from_bytes(&loaded.root))))
    }
}
