//! What a guest has written, kept as a qcow2 over the archived disk.
//!
//! The file says in its head what it lies over: `nbd+unix:///ID?socket=varve.sock`, ID being the snapshot's. So `varve boot` finds the
//! snapshot again, and any other tool can use the file where somebody serves that snapshot at that socket.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use varve_block::visible;

use crate::companion::program;
use crate::foreign::plain_qcow2_over_raw;
use crate::image_file;

/// What a kept file says it lies over, but for the snapshot's id between these.
const BEFORE_ID: &str = "nbd+unix:///";
const AFTER_ID: &str = "?socket=varve.sock";

/// A kept file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Where it is.
    pub path: PathBuf,
    /// The snapshot that it lies over: its whole id.
    pub snapshot: String,
}

/// Why a file cannot be used to keep what a guest writes.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The program that makes such files is not there, or does not start.
    #[error(
        "qemu-img cannot be started, and a new file for --keep needs it: install qemu-utils (or your system's package of QEMU's tools)"
    )]
    NoTool(#[source] io::Error),
    /// It says no.
    #[error("qemu-img cannot use {}: {said}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What it says.
        said: String,
    },
    /// The file is something else.
    #[error("{} was not made by `varve boot --keep`, and what QEMU would write to is not certain: choose another file", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },
}

impl Kept {
    /// Where what is written to another drive of the machine is kept, beside this file.
    #[must_use]
    pub fn beside(path: &Path, drive: &str) -> PathBuf {
        with_ending(path, &format!(".disk-{}", drive.replace(['/', '\0'], "-")))
    }

    /// Where UEFI's variables are kept, beside this file.
    #[must_use]
    pub fn variables(path: &Path) -> PathBuf {
        with_ending(path, ".uefi")
    }

    /// What is known of a file that was kept; `None` if there is no such file. One that `create` would not have made is refused: QEMU writes to
    /// it for a guest, and to whatever else it names.
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
            return Err(wrong("it is no file"));
        }
        let below = plain_qcow2_over_raw(&file).map_err(not_ours)?;
        let snapshot = below.strip_prefix(BEFORE_ID).and_then(|rest| rest.strip_suffix(AFTER_ID));
        match snapshot.filter(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            Some(id) => Ok(Some(Self { path: path.into(), snapshot: id.into() })),
            None => Err(wrong("it lies over no snapshot")),
        }
    }

    /// Makes a file for what is written over a disk of `size` bytes.
    ///
    /// # Errors
    /// [`KeepError`]
    pub fn create(path: &Path, snapshot: &str, size: u64) -> Result<Self, KeepError> {
        let backing = format!("{BEFORE_ID}{snapshot}{AFTER_ID}");
        // The disk need not be served for it: its size is known.
        let size = size.to_string();
        let words = ["create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", &backing];
        // From the root on: what else it begins with, QEMU may take for something other than a path.
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.into());
        let output = program("qemu-img").args(words).arg(whole).arg(size).stdin(Stdio::null()).output();
        let output = output.map_err(KeepError::NoTool)?;
        if !output.status.success() {
            return Err(refused(path, &output.stderr));
        }
        Ok(Self { path: path.into(), snapshot: snapshot.into() })
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn refused(path: &Path, said: &[u8]) -> KeepError {
    KeepError::Refused { path: path.into(), said: visible(String::from_utf8_lossy(said).trim()) }
}
