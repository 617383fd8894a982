//! Runs QEMU's program for images to its end.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;

use varve_block::visible;
use varve_world::{FinishedProgram, RunProgramError};

use super::OpenForeignError;
use crate::companion::companion;

/// The name of the program.
pub(super) const PROGRAM: &str = "qemu-img";

/// Runs it with these arguments. Its end may be a failure.
///
/// # Errors
/// [`OpenForeignError::NotInstalled`], [`OpenForeignError::Start`].
pub(super) fn qemu_img<S: AsRef<OsStr>>(
    args: impl IntoIterator<Item = S>,
) -> Result<FinishedProgram, OpenForeignError> {
    let mut command = companion(PROGRAM);
    command.args(args).stdin(Stdio::null());
    FinishedProgram::run(&mut command, 0).map_err(|error| match error {
        RunProgramError::NotInstalled => OpenForeignError::NotInstalled { program: PROGRAM },
        error => OpenForeignError::Start { program: PROGRAM, source: error.into() },
    })
}

/// The error of a run that has failed on an image.
pub(super) fn refused(path: &Path, ended: &FinishedProgram) -> OpenForeignError {
    OpenForeignError::Refused { path: path.into(), said: visible(&ended.complaint()) }
}
