//! What a guest has written, kept as a qcow2 over the archived disk.
//!
//! The file says in its head what it lies over: `nbd+unix:///ID?socket=varve.sock`, ID being the snapshot's. So `varve boot` finds the
//! snapshot again, and any other tool can use the file where somebody serves that snapshot at that socket.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::companion::program;

/// The file name of the socket that a kept file says it lies behind.
const SOCKET: &str = "varve.sock";

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
    /// The program that makes and reads such files is not there, or does not start.
    #[error(
        "qemu-img cannot be started, and --keep needs it: install qemu-utils (or your system's package of QEMU's tools)"
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
    #[error("{} was not made by `varve boot --keep`: choose another file", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
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

    /// What is known of a file that was kept; `None` if there is no such file.
    ///
    /// # Errors
    /// [`KeepError`]
    pub fn read(path: &Path) -> Result<Option<Self>, KeepError> {
        if !path.exists() {
            return Ok(None);
        }
        let text = qemu_img(path, &["info", "-U", "--output=json", "-f", "qcow2"])?;
        let info: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let backing = info["backing-filename"].as_str().unwrap_or_default();
        let id = backing.strip_prefix("nbd+unix:///").and_then(|rest| rest.split_once('?')).map(|(id, _)| id);
        match id.filter(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            Some(id) => Ok(Some(Self { path: path.into(), snapshot: id.into() })),
            None => Err(KeepError::NotOurs { path: path.into() }),
        }
    }

    /// Makes a file for what is written over a disk of `size` bytes.
    ///
    /// # Errors
    /// [`KeepError`]
    pub fn create(path: &Path, snapshot: &str, size: u64) -> Result<Self, KeepError> {
        let backing = format!("nbd+unix:///{snapshot}?socket={SOCKET}");
        // The disk need not be served for it: its size is known.
        let size = size.to_string();
        let words = ["create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", &backing];
        let output = program("qemu-img").args(words).arg(path).arg(size).stdin(Stdio::null()).output();
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

fn qemu_img(path: &Path, words: &[&str]) -> Result<String, KeepError> {
    let output = program("qemu-img").args(words).arg(path).stdin(Stdio::null()).output();
    let output = output.map_err(KeepError::NoTool)?;
    if !output.status.success() {
        return Err(refused(path, &output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn refused(path: &Path, said: &[u8]) -> KeepError {
    KeepError::Refused { path: path.into(), said: String::from_utf8_lossy(said).trim().into() }
}
