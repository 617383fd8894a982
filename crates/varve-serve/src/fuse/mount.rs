//! Mounting and unmounting.

use std::io;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use varve_world::{FinishedProgram, other_program};

use super::adapter::FuseAdapter;
use crate::ServedFileSystem;

/// The minimum number of threads that answer requests. Most of them wait for a disk.
const THREADS_MIN: usize = 4;

/// The threads of a mount get this many pauses to end after the unmounting: two seconds. They go on
/// while another namespace of mounts has a copy of it, as containers and services have.
const LOOKS_MAX: u32 = 100;
const LOOK: Duration = Duration::from_millis(20);

/// The `uid_map` of the initial user namespace: every user id maps to itself.
const EVERY_USER: [&str; 3] = ["0", "0", "4294967295"];
/// From the kernel: the capabilities to read files and to enter folders regardless of their modes.
const DAC_OVERRIDE: u64 = 1 << 1;
const DAC_READ_SEARCH: u64 = 1 << 2;

/// Mount options.
#[derive(Debug, Clone, Default)]
pub struct MountOptions {
    /// The source shown in the table of mounts.
    pub source: String,
    /// Lets users other than the one who mounts it access the file system, as far as the modes of
    /// the files allow.
    pub allow_other: bool,
}

/// Why a file system could not be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("{} does not exist", at.display())]
    Absent { at: PathBuf, source: io::Error },
    #[error("{} is not a folder", at.display())]
    NotAFolder { at: PathBuf },
    /// The process of an earlier mount has died without unmounting.
    #[error("{} is a stale mount of a dead process: `fusermount3 -u {}` removes it", at.display(), at.display())]
    Left { at: PathBuf },
    #[error("this system has no /dev/fuse: load the module `fuse`, or give the device to the container")]
    NoFuse,
    #[error(
        "only root mounts without fusermount3, which is not installed: install fuse3 (or your system's package of FUSE)"
    )]
    NotInstalled,
    /// The system does not let unprivileged users admit other users to a mount.
    #[error(
        "the system does not allow access for other users: write `user_allow_other` into /etc/fuse.conf, or mount as root"
    )]
    OthersNotAllowed { source: io::Error },
    /// The mount would hide the contents of the folder.
    #[error("{} is not empty: the mount would hide its files", at.display())]
    NotEmpty { at: PathBuf },
    #[error("cannot mount on {}", at.display())]
    Refused { at: PathBuf, source: io::Error },
}

/// A mounted file system. Dropping it unmounts it.
pub struct Mounted {
    at: PathBuf,
    session: Option<BackgroundSession>,
}

/// Mounts a file system on the folder `at`.
///
/// # Errors
/// [`MountError`].
pub fn mount(
    files: Arc<dyn ServedFileSystem>,
    at: &Path,
    options: &MountOptions,
) -> Result<Mounted, MountError> {
    let at_path = || at.to_path_buf();
    match std::fs::metadata(at) {
        Ok(metadata) if !metadata.is_dir() => return Err(MountError::NotAFolder { at: at_path() }),
        // An unreadable folder is left for the system to accept or refuse.
        Ok(_) if std::fs::read_dir(at).is_ok_and(|mut entries| entries.next().is_some()) => {
            return Err(MountError::NotEmpty { at: at_path() });
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotConnected => {
            return Err(MountError::Left { at: at_path() });
        }
        Err(source) => return Err(MountError::Absent { at: at_path(), source }),
    }
    if !Path::new("/dev/fuse").exists() {
        return Err(MountError::NoFuse);
    }
    let at = at.canonicalize().map_err(|source| MountError::Absent { at: at_path(), source })?;
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::RO,
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::NoAtime,
        MountOption::FSName(options.source.replace(',', "_")),
        MountOption::Subtype("varve".into()),
    ];
    if options.allow_other {
        config.mount_options.push(MountOption::DefaultPermissions);
        config.acl = SessionACL::All;
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    config.n_threads = Some((2 * cores).max(THREADS_MIN));
    let checks_permissions = options.allow_other || reads_everything();
    let session = fuser::spawn_mount(FuseAdapter::new(files, checks_permissions), &at, &config);
    match session {
        Ok(session) => Ok(Mounted { at, session: Some(session) }),
        Err(source) if options.allow_other && source.kind() == io::ErrorKind::PermissionDenied => {
            Err(MountError::OthersNotAllowed { source })
        }
        // The folder and the device are there, so the helper is not.
        Err(source) if source.kind() == io::ErrorKind::NotFound => Err(MountError::NotInstalled),
        Err(source) => Err(MountError::Refused { at, source }),
    }
}

/// Reports whether this process may read every file regardless of its mode: root in the initial
/// user namespace, with root's capabilities. Permission checks by the kernel then change nothing,
/// but they enable its cache of access control lists. `ls -l` asks for these lists at every file.
fn reads_everything() -> bool {
    let own = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    rustix::process::geteuid().is_root()
        && own("uid_map").split_whitespace().eq(EVERY_USER)
        && has_rights(&own("status"), DAC_OVERRIDE | DAC_READ_SEARCH)
}

/// Reports whether the effective capabilities in `/proc/PID/status` include all of `wanted`.
fn has_rights(status: &str, wanted: u64) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    effective.is_some_and(|effective| effective & wanted == wanted)
}

impl Mounted {
    /// The folder on which it is mounted.
    #[must_use]
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Reports whether the file system has been unmounted from outside.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.guard.is_finished())
    }

    /// Unmounts the file system. If it is still in use, it is detached from the tree at once, and
    /// later accesses through open files fail. Accesses through a copy of the mount in another
    /// namespace fail once this process ends.
    ///
    /// # Errors
    /// The system's error, in which case it is still mounted, and answers until this process ends.
    pub fn unmount(mut self) -> io::Result<()> {
        self.take_away()
    }

    fn take_away(&mut self) -> io::Result<()> {
        // The session unmounts when it is dropped: again, or even something else in this place.
        let Some(session) = self.session.take().map(ManuallyDrop::new) else { return Ok(()) };
        let outcome = if session.guard.is_finished() { Ok(()) } else { unmount(&self.at) };
        let is_over = || session.guard.is_finished();
        if outcome.is_ok() {
            (0..LOOKS_MAX).take_while(|_| !is_over()).for_each(|_| std::thread::park_timeout(LOOK));
        }
        if !is_over() {
            if outcome.is_ok() {
                tracing::warn!(at = %self.at.display(), "another namespace of mounts, or an open file, still has the mount");
            }
            return outcome;
        }
        let session = ManuallyDrop::into_inner(session);
        session.guard.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the mount has panicked")))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.take_away() {
            tracing::error!(at = %self.at.display(), %error, "cannot unmount");
        }
    }
}

/// Takes a mount out of the tree, even if it is in use.
fn unmount(at: &Path) -> io::Result<()> {
    match unmount_with(at, UnmountFlags::empty(), &[]) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            tracing::warn!(at = %at.display(), "the mount is still in use; it is detached");
            unmount_with(at, UnmountFlags::DETACH, &["-z"])
        }
        outcome => outcome,
    }
}

/// Unmounts with these flags, or these options of `fusermount3`.
fn unmount_with(at: &Path, flags: UnmountFlags, options: &[&str]) -> io::Result<()> {
    match rustix::mount::unmount(at, flags) {
        // Only root may unmount by a system call.
        Err(Errno::PERM) => {}
        outcome => return outcome.map_err(Into::into),
    }
    let mut command = other_program("fusermount3");
    command.arg("-u").args(options).arg("--").arg(at);
    let ended = FinishedProgram::run(&mut command, 0)?;
    match &*ended.complaint() {
        _ if ended.status.success() => Ok(()),
        said if said.contains("busy") => Err(io::ErrorKind::ResourceBusy.into()),
        said => Err(io::Error::other(format!("{said}: `umount {}` as root removes it", at.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_those_in_effect() {
        let both = DAC_OVERRIDE | DAC_READ_SEARCH;
        let status =
            |effective: &str| format!("CapPrm:\t0\nCapEff:\t{effective}\nCapBnd:\t000001ffffffffff\n");
        assert!(has_rights(&status("000001ffffffffff"), both));
        assert!(!has_rights(&status("0000000000000002"), both));
        assert!(!has_rights(&status("0000000000000000"), both));
        assert!(!has_rights("", both));
    }
}
