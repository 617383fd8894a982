//! The servers that a user of this machine has named on a command line. `VARVE_REMOTE_PASSWORD` is
//! sent to no other server. A store lists its replicas in its own folder, so anyone with write
//! access to that folder could name a server that collects passwords.
//!
//! The file belongs to the user and has one line for each server, `sftp://USER@HOST:PORT/`.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::user_folders;

const FILE: &str = "known-servers";
/// Upper bound on the length of the file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Returns the file of the current user; `None` if there is no folder for it.
pub fn file() -> Option<PathBuf> {
    user_folders::state().map(|folder| folder.join(FILE))
}

/// Reports whether the file lists this server.
pub fn contains(file: &Path, server: &str) -> io::Result<bool> {
    let mut text = String::new();
    match fs::File::open(file) {
        Ok(file) => file.take(FILE_BYTES_MAX).read_to_string(&mut text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    Ok(text.lines().any(|line| line == server))
}

/// Adds this server, unless the file lists it.
pub fn add(file: &Path, server: &str) -> io::Result<()> {
    if contains(file, server)? {
        return Ok(());
    }
    if let Some(folder) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    // One write, so that two processes that add at the same time do not tear each other's lines.
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(file)?;
    file.write_all(format!("{server}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_once_it_was_added() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state/varve/known-servers");
        let [one, other] = ["sftp://ann@h/", "sftp://ann@h:22/"];
        assert!(!contains(&file, one).unwrap());
        for server in [one, one, other, one] {
            add(&file, server).unwrap();
            assert!(contains(&file, server).unwrap());
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("{one}\n{other}\n"));
        assert!(!contains(&file, "sftp://ann@h").unwrap(), "a part of a line");
    }
}
