//! Keeps a guest's writes as a qcow2 over the archived disk.
//!
//! The file names its backing file in its header: `nbd+unix:///ID?socket=varve.sock`, with the
//! snapshot's ID. So `varve boot` finds the snapshot again, and any other tool can use the file if
//! the snapshot is served at that socket.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use varve_block::visible;
use varve_world::{FinishedProgram, RunProgramError, other_program};

use crate::foreign::plain_qcow2_over_raw;
use crate::image_file;

/// The name of the backing file, before and after the snapshot's ID.
const BEFORE_ID: &str = "nbd+unix:///";
const AFTER_ID: &str = "?socket=varve.sock";

/// A kept file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptWrites {
    pub path: PathBuf,
    /// The whole ID of the snapshot that it lies over.
    pub snapshot: String,
}

/// The reason why a file cannot be used to keep the guest's writes.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The program that makes such files is not installed, or does not start.
    #[error(
        "a new file for --keep needs qemu-img, which cannot be started: install qemu-utils (or your system's package of QEMU's tools)"
    )]
    NoTool(#[source] RunProgramError),
    /// The program refused.
    #[error("qemu-img cannot use {}: {said}", path.display())]
    Refused {
        path: PathBuf,
        /// The reason that it gives.
        said: String,
    },
    /// The file is of another kind.
    #[error("{} was not made by `varve boot --keep`, and may make QEMU write to other files: choose another file", path.display())]
    NotOurs { path: PathBuf, source: io::Error },
}

impl KeptWrites {
    /// Returns the path, beside this file, for the writes to another drive of the machine.
    #[must_use]
    pub fn beside(path: &Path, drive: &str) -> PathBuf {
        with_ending(path, &format!(".disk-{}", drive.replace(['/', '\0'], "-")))
    }

    /// Returns the path, beside this file, for UEFI's variables.
    #[must_use]
    pub fn variables(path: &Path) -> PathBuf {
        with_ending(path, ".uefi")
    }

    /// Reads the header of a kept file; `None` if there is no such file. A file that `create` would
    /// not have made is refused: QEMU writes to it, and to any file that it names, on behalf of a
    /// guest.
    ///
    /// # Errors
    /// [`KeepError`]
    pub fn read(path: &Path) -> Result<Option<Self>, KeepError> {
        let not_ours = |source| KeepError::NotOurs { path: path.into(), source };
        let file = match image_file::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(not_ours(error)),
        };
        let wrong = |said| not_ours(io::Error::new(io::ErrorKind::InvalidData, said));
        if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return Err(wrong("it is not a regular file"));
        }
        let below = plain_qcow2_over_raw(&file).map_err(not_ours)?;
        let snapshot = below.strip_prefix(BEFORE_ID).and_then(|rest| rest.strip_suffix(AFTER_ID));
        match snapshot.filter(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            Some(id) => Ok(Some(Self { path: path.into(), snapshot: id.into() })),
            None => Err(wrong("it is not based on a snapshot")),
        }
    }

    /// Makes a file for the writes over a disk of `size` bytes.
    ///
    /// # Errors
    /// [`KeepError`]
    pub fn create(path: &Path, snapshot: &str, size: u64) -> Result<Self, KeepError> {
        let backing = format!("{BEFORE_ID}{snapshot}{AFTER_ID}");
        // The size is known, so the disk need not be served now.
        let size = size.to_string();
        let args = ["create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", &backing];
        // The path is made absolute: QEMU may interpret the beginning of a relative one as
        // something other than a path.
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.into());
        let mut command = other_program("qemu-img");
        command.args(args).arg(whole).arg(size).stdin(Stdio::null());
        let ended = FinishedProgram::run(&mut command, 0).map_err(KeepError::NoTool)?;
        if !ended.status.success() {
            return Err(KeepError::Refused { path: path.into(), said: visible(&ended.complaint()) });
        }
        Ok(Self { path: path.into(), snapshot: snapshot.into() })
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
