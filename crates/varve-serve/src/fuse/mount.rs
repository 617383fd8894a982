//! Mounting, and taking it away again.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use rustix::mount::UnmountFlags;

use super::adapter::Adapter;
use crate::Served;

/// How many requests are answered at the same time, at least: most of them wait for a disk.
const THREADS_MIN: usize = 4;

/// The map of users where every one is who they are.
const EVERY_USER: [&str; 3] = ["0", "0", "4294967295"];
/// From the kernel: reading, and entering folders, whatever modes say.
const DAC_OVERRIDE: u64 = 1 << 1;
const DAC_READ_SEARCH: u64 = 1 << 2;

/// How a file system is to be mounted.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// What the table of mounts calls it.
    pub source: String,
    /// Whether other users than the one who mounts it may look into it, as far as the modes of the files allow.
    pub allow_other: bool,
}

/// Why it was not mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// There is no such folder.
    #[error("{} is not there", at.display())]
    Absent {
        /// Where it was to be.
        at: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Something, but no folder.
    #[error("{} is not a folder", at.display())]
    NotAFolder {
        /// Where it was to be.
        at: PathBuf,
    },
    /// The process of an earlier mount has died, and left it behind.
    #[error("{} is what a mount has left whose process is gone: `fusermount3 -u {}` takes it away", at.display(), at.display())]
    Left {
        /// Where.
        at: PathBuf,
    },
    /// The kernel has no FUSE.
    #[error("this system has no /dev/fuse: load the module `fuse`, or give the container that device")]
    NoFuse,
    /// The system does not let users show a mount to others.
    #[error("other users may not be let in: write `user_allow_other` into /etc/fuse.conf, or mount as root")]
    OthersNotAllowed {
        /// What the system says.
        source: io::Error,
    },
    /// What is in it would be hidden.
    #[error("{} is not empty: what is in it would be hidden", at.display())]
    NotEmpty {
        /// Where.
        at: PathBuf,
    },
    /// The system refused.
    #[error("cannot mount on {}", at.display())]
    Refused {
        /// Where.
        at: PathBuf,
        /// What it says.
        source: io::Error,
    },
}

/// A mounted file system. Dropped, it is unmounted.
pub struct Mounted {
    at: PathBuf,
    session: Option<BackgroundSession>,
}

/// Mounts a file system on the folder `at`.
///
/// # Errors
/// [`MountError`].
pub fn mount(files: Arc<dyn Served>, at: &Path, options: &Options) -> Result<Mounted, MountError> {
    let at_path = || at.to_path_buf();
    match std::fs::metadata(at) {
        Ok(metadata) if !metadata.is_dir() => return Err(MountError::NotAFolder { at: at_path() }),
        // One that cannot be read is the system's to judge.
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
    let session = fuser::spawn_mount(Adapter::new(files, checks_permissions), &at, &config);
    match session {
        Ok(session) => Ok(Mounted { at, session: Some(session) }),
        Err(source) if options.allow_other && source.kind() == io::ErrorKind::PermissionDenied => {
            Err(MountError::OthersNotAllowed { source })
        }
        Err(source) => Err(MountError::Refused { at, source }),
    }
}

/// Whether whoever mounts may read every file whatever its mode says: root of the whole system, with the rights of root. That the kernel checks
/// modes then changes nothing, and only where it does it remembers access control lists, for which `ls -l` asks at every file.
fn reads_everything() -> bool {
    let own = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    rustix::process::geteuid().is_root()
        && own("uid_map").split_whitespace().eq(EVERY_USER)
        && has_rights(&own("status"), DAC_OVERRIDE | DAC_READ_SEARCH)
}

/// Whether a process has all these capabilities, by what its `status` in `/proc` says.
fn has_rights(status: &str, wanted: u64) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    effective.is_some_and(|effective| effective & wanted == wanted)
}

impl Mounted {
    /// Where it is.
    #[must_use]
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Whether somebody else has unmounted it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.guard.is_finished())
    }

    /// Takes it away. If somebody still works in it, it vanishes from the tree of files at once, and they meet errors from then on.
    ///
    /// # Errors
    /// What the system says: it is still mounted then.
    pub fn unmount(mut self) -> io::Result<()> {
        self.take_away()
    }

    fn take_away(&mut self) -> io::Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        if session.guard.is_finished() {
            // Somebody else has unmounted it, or the kernel has given up.
            return session
                .guard
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a thread of the mount has panicked")));
        }
        match session.umount_and_join() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                tracing::warn!(at = %self.at.display(), "somebody still works in the mount; it is taken away all the same");
                detach(&self.at)
            }
            other => other,
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.take_away() {
            tracing::error!(at = %self.at.display(), %error, "cannot unmount");
        }
    }
}

/// Takes a mount out of the tree of files, whoever works in it.
fn detach(at: &Path) -> io::Result<()> {
    if rustix::mount::unmount(at, UnmountFlags::DETACH).is_ok() {
        return Ok(());
    }
    // Only root may do that alone.
    let done = Command::new("fusermount3").args(["-u", "-z", "--"]).arg(at).status()?;
    if done.success() { Ok(()) } else { Err(io::ErrorKind::ResourceBusy.into()) }
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
