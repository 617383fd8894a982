//! A machine whose only disk is the forgetful one, mounted.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fuser::BackgroundSession;
use tempfile::TempDir;

use super::SharedDisk;
use super::disk::Fate;
use crate::crash_runs::Dice;
use crate::sandbox::is_root;

/// Time-out for unmounting. A program that uses the disk for longer than this hangs.
const END_MAX: Duration = Duration::from_secs(60);

/// The forgetful file system, mounted.
pub struct Machine {
    pub disk: SharedDisk,
    folder: TempDir,
    session: Option<BackgroundSession>,
}

impl Machine {
    /// Returns `None` and prints the reason if FUSE cannot be used.
    pub fn start(test: &str) -> Option<Self> {
        let (disk, folder) = (SharedDisk::new(), tempfile::tempdir().unwrap());
        match disk.mount(folder.path()) {
            Ok(session) => Some(Self { disk, folder, session: Some(session) }),
            Err(error) => {
                eprintln!(
                    "skipped: {test}: FUSE cannot be used here ({error}); it needs root or fusermount3"
                );
                None
            }
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Restarts the machine with the data that its disk has kept.
    pub fn restart(&mut self, fate: Fate, dice: &mut Dice) {
        self.stop();
        self.disk.get().come_back(fate, dice);
        self.session = Some(self.disk.mount(self.folder.path()).unwrap());
    }

    /// Mounts the disk again, so that nothing of it is cached.
    pub fn read_afresh(&mut self) {
        self.stop();
        self.session = Some(self.disk.mount(self.folder.path()).unwrap());
    }
}

impl Machine {
    pub fn stop(&mut self) {
        let Some(session) = self.session.take() else { return };
        let mut unmount = Command::new(if is_root() { "umount" } else { "fusermount3" });
        unmount.args((!is_root()).then_some("-u")).arg(self.folder.path()).stderr(Stdio::null());
        let begun = Instant::now();
        // A process that another test is just starting may hold this test's files open for a
        // moment.
        while !unmount.status().unwrap().success() {
            if begun.elapsed() > END_MAX {
                eprintln!("{} cannot be unmounted", self.folder.path().display());
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        session.join().unwrap();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop();
    }
}
