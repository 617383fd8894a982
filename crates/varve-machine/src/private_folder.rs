//! A private folder for the sockets and small files of one run. The next run removes the folders of
//! killed runs.
//!
//! The owner of a folder holds a lock on a file in it for as long as it lives, and the file gets
//! its name only after it is locked. So a folder whose file can be locked has no owner any more; a
//! folder without such a file is left alone.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use tempfile::TempDir;
use varve_world::LockedFile;

/// The file that is locked.
const OWNER: &str = "owner";
const OWNER_BEFORE: &str = "owner-to-be";

/// A private folder. It is removed with its contents when this is dropped.
pub struct PrivateFolder {
    folder: TempDir,
    _lock: LockedFile,
}

impl PrivateFolder {
    /// Makes a folder with this name prefix in the system's folder for temporary files, and removes
    /// those with the same prefix whose runs have ended.
    ///
    /// # Errors
    /// The folder cannot be made. A failure to remove an old one is not an error.
    pub fn create(prefix: &str) -> io::Result<Self> {
        let above = std::env::temp_dir();
        remove_dead(&above, prefix);
        let folder = tempfile::Builder::new()
            .prefix(prefix)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(above)?;
        let before = folder.path().join(OWNER_BEFORE);
        let file = File::create(&before)?;
        let lock = LockedFile::try_lock(file)?.ok_or(io::ErrorKind::WouldBlock)?;
        fs::rename(before, folder.path().join(OWNER))?;
        Ok(Self { folder, _lock: lock })
    }

    /// Returns the path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn remove_dead(above: &Path, prefix: &str) {
    let Ok(listed) = fs::read_dir(above) else { return };
    let is_like_it = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(prefix);
    for entry in listed.flatten().filter(is_like_it) {
        if let Err(error) = remove_if_dead(&entry.path()) {
            tracing::debug!(path = %entry.path().display(), %error, "a leftover of an earlier run was not removed");
        }
    }
}

/// Removes a folder only if it belongs to this user, and only the files in it: we make no folders
/// there.
fn remove_if_dead(folder: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let owner = OpenOptions::new().read(true).custom_flags(flags).open(folder.join(OWNER))?;
    // The lock is held until everything is removed, so that two concurrent runs do not both remove
    // it.
    let Some(_lock) = LockedFile::try_lock(owner)? else { return Ok(()) };
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_dir(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_folders_of_the_dead_are_removed() {
        let above = tempfile::tempdir().unwrap();
        let make = |name: &str, files: &[&str]| {
            let folder = above.path().join(name);
            fs::create_dir(&folder).unwrap();
            for file in files {
                fs::write(folder.join(file), "").unwrap();
            }
            folder
        };
        let dead = make("varve-test-dead", &[OWNER, "disk"]);
        let alive = make("varve-test-alive", &[OWNER]);
        let lock = LockedFile::try_lock(File::open(alive.join(OWNER)).unwrap()).unwrap();
        assert!(lock.is_some());
        let begun = make("varve-test-begun", &[OWNER_BEFORE]);
        let other = make("varve-tests", &[OWNER]);
        let full = make("varve-test-full", &[OWNER]);
        fs::create_dir(full.join("folder")).unwrap();
        std::os::unix::fs::symlink(&other, above.path().join("varve-test-link")).unwrap();
        remove_dead(above.path(), "varve-test-");
        assert!(!dead.exists());
        assert!([&alive, &begun, &other, &full].iter().all(|folder| folder.exists()));
        assert!(other.join(OWNER).exists(), "no link is followed");
        drop(lock);
        remove_dead(above.path(), "varve-test-");
        assert!(!alive.exists());
    }

    #[test]
    fn a_folder_is_its_owners_alone() {
        let folder = PrivateFolder::create("varve-private-test-").unwrap();
        assert_eq!(fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777, 0o700);
        let again = PrivateFolder::create("varve-private-test-").unwrap();
        assert!(folder.path().exists() && folder.path() != again.path());
    }
}
