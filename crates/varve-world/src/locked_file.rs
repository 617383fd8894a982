//! A file that is locked while it is open, by `flock(2)`.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// An open file with an exclusive lock, which ends when this is dropped.
///
/// A child process that another thread is just starting shares this open file until it executes its
/// program. Closing our descriptor would leave the file locked until then; unlocking does not, so a
/// drop unlocks first.
#[derive(Debug)]
pub struct LockedFile(File);

impl LockedFile {
    /// Locks an open file, without waiting. Returns `None` if another process, or another handle of
    /// this one, has a lock.
    ///
    /// # Errors
    /// The file system has no locks, or refuses them for this file.
    pub fn try_lock(file: impl Into<OwnedFd>) -> io::Result<Option<Self>> {
        let file = File::from(file.into());
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // If this fails, closing the file ends the lock a moment later.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_unlocks_although_a_child_process_shares_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let locked = LockedFile::try_lock(File::create(&path).unwrap()).unwrap().unwrap();
        assert!(LockedFile::try_lock(File::open(&path).unwrap()).unwrap().is_none());
        // A child process has the same open file between its fork and its program.
        let shared = locked.try_clone().unwrap();
        drop(locked);
        assert!(LockedFile::try_lock(File::open(&path).unwrap()).unwrap().is_some());
        drop(shared);
    }
}
