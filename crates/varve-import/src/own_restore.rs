//! Restores snapshots with the other program itself, to compare what it gives with the archive.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use varve_content::folder::DescriptionError;
use varve_content::{Node, NodeKind};
use varve_image::FileTime;
use varve_world::{FinishedProgram, RunProgramError, Timestamp, other_program};
use zeroize::Zeroizing;

use crate::borg::{BorgArchive, BorgError};
use crate::link_trees::LinkTrees;
use crate::restic::ResticArchive;

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

    /// Returns true if the program gives this entry the time that its archive has.
    fn restores_time(&self, _: &Node) -> bool {
        true
    }
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
        let mut command = other_program("restic");
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

/// The real borg.
pub struct BorgRestore<'a> {
    pub archive: &'a BorgArchive,
}

impl OwnRestore for BorgRestore<'_> {
    fn restore(&self, place: usize, into: &Path) -> Result<PathBuf, OwnRestoreError> {
        Ok(self.archive.restore(place, into).map_err(OwnRestoreError::Place)??)
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
    /// The time of the snapshot.
    pub time: Timestamp,
}

impl OwnRestore for TarProgram {
    fn restore(&self, _: usize, into: &Path) -> Result<PathBuf, OwnRestoreError> {
        let mut command = other_program("tar");
        command.args(["--xattrs", "--xattrs-include=*", "-xpf"]).arg(&self.file).arg("-C").arg(into);
        run("tar", &mut command)?;
        Ok(into.to_path_buf())
    }

    fn restores_time(&self, node: &Node) -> bool {
        !is_no_entry(node, self.time)
    }
}

/// The real unzip of Info-ZIP.
pub struct UnzipProgram {
    pub file: PathBuf,
    /// The time of the snapshot.
    pub time: Timestamp,
}

impl OwnRestore for UnzipProgram {
    fn restore(&self, _: usize, into: &Path) -> Result<PathBuf, OwnRestoreError> {
        // The umask counts for files without a mode. A warning, such as about a changed name, is
        // status 1: the comparison shows what it means.
        let mut command = other_program("sh");
        command.env_remove("UNZIP");
        command.args(["-c", r#"umask 022; unzip "$@"; s=$?; [ $s -le 1 ] || exit $s"#, "unzip"]);
        command.args(["-q", "-o", "-K", "-X"]).arg(&self.file).arg("-d").arg(into);
        run("unzip", &mut command)?;
        Ok(into.to_path_buf())
    }

    fn restores_time(&self, node: &Node) -> bool {
        node.kind != NodeKind::SymbolicLink && !is_no_entry(node, self.time)
    }
}

/// Returns true if a folder is likely to be in its archive only as a part of other paths. Such a
/// folder has the time of the snapshot here, and that of the extraction there.
fn is_no_entry(node: &Node, time: Timestamp) -> bool {
    node.kind == NodeKind::Folder && node.mtime == FileTime::from_nanoseconds(time.0)
}

/// The status of a shell that does not find a program.
const NOT_FOUND: i32 = 127;

fn run(program: &'static str, command: &mut Command) -> Result<(), OwnRestoreError> {
    let ended = FinishedProgram::run(command.stdin(Stdio::null()), 0).map_err(|error| match error {
        RunProgramError::NotInstalled => OwnRestoreError::NotInstalled { program },
        error => OwnRestoreError::Start { program, source: error.into() },
    })?;
    match ended.status.code() {
        Some(0) => Ok(()),
        Some(NOT_FOUND) => Err(OwnRestoreError::NotInstalled { program }),
        _ => Err(OwnRestoreError::Failed { program, complaint: varve_block::visible(&ended.complaint()) }),
    }
}
