//! Restores snapshots with the other program itself, to compare what it gives with the archive.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use varve_archive::folder::DescriptionError;
use zeroize::Zeroizing;

use crate::borg::BorgError;
use crate::link_trees::LinkTrees;
use crate::restic::ResticArchive;

/// The bytes of a complaint that are passed on.
const COMPLAINT_BYTES_MAX: usize = 2000;

/// Why the other program did not restore a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum OwnRestoreError {
    #[error("{program} is not installed, so its own restore cannot be compared")]
    NotInstalled { program: &'static str },
    #[error("{program} cannot be started")]
    Start { program: &'static str, source: io::Error },
    #[error("{program} failed: {complaint}")]
    Failed { program: &'static str, complaint: String },
    #[error("the restored folder is not known")]
    Place(#[source] DescriptionError),
    #[error("{0}")]
    Borg(#[from] BorgError),
}

/// The other program's own way to restore a snapshot.
pub trait OwnRestore {
    /// Restores the snapshot at this place into an empty folder. Returns the folder that is the
    /// root of the imported snapshot.
    ///
    /// # Errors
    /// [`OwnRestoreError`].
    fn restore(&self, place: usize, into: &Path) -> Result<PathBuf, OwnRestoreError>;
}

/// The real restic, which also reads the repositories of rustic.
pub struct ResticProgram<'a> {
    pub archive: &'a ResticArchive,
    pub repository: PathBuf,
    pub password: Zeroizing<String>,
}

impl OwnRestore for ResticProgram<'_> {
    fn restore(&self, place: usize, into: &Path) -> Result<PathBuf, OwnRestoreError> {
        let path = self.archive.restored_path(place).map_err(OwnRestoreError::Place)?;
        let id = self.archive.snapshot_id(place).map_err(OwnRestoreError::Place)?;
        let mut command = Command::new("restic");
        command.env("RESTIC_PASSWORD", self.password.as_str());
        for variable in ["RESTIC_PASSWORD_FILE", "RESTIC_PASSWORD_COMMAND", "RESTIC_REPOSITORY_FILE"] {
            command.env_remove(variable);
        }
        command.args(["--quiet", "--no-lock", "--no-cache", "--repo"]).arg(&self.repository);
        command.args(["restore", id, "--target"]).arg(into);
        run("restic", &mut command)?;
        Ok(into.join(path))
    }
}

/// Trees of hard links are restored by copying them: the folder itself is compared.
impl OwnRestore for LinkTrees {
    fn restore(&self, place: usize, _: &Path) -> Result<PathBuf, OwnRestoreError> {
        let folder = self.folder(place).map(Path::to_path_buf);
        folder.ok_or_else(|| OwnRestoreError::Place("there is no such snapshot".into()))
    }
}

/// The real tar.
pub struct TarProgram {
    pub file: PathBuf,
}

impl OwnRestore for TarProgram {
    fn restore(&self, _: usize, into: &Path) -> Result<PathBuf, OwnRestoreError> {
        let mut command = Command::new("tar");
        command.args(["--xattrs", "--xattrs-include=*", "-xpf"]).arg(&self.file).arg("-C").arg(into);
        run("tar", &mut command)?;
        Ok(into.to_path_buf())
    }
}

fn run(program: &'static str, command: &mut Command) -> Result<(), OwnRestoreError> {
    let output = command.stdin(Stdio::null()).output().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => OwnRestoreError::NotInstalled { program },
        _ => OwnRestoreError::Start { program, source },
    })?;
    if output.status.success() {
        return Ok(());
    }
    let start = output.stderr.len().saturating_sub(COMPLAINT_BYTES_MAX);
    let complaint = String::from_utf8_lossy(output.stderr.get(start..).unwrap_or_default());
    Err(OwnRestoreError::Failed { program, complaint: varve_block::visible(complaint.trim()) })
}
