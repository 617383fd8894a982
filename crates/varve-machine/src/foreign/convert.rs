//! Converts an image to a raw one with QEMU's own program, to compare it with what was archived.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use varve_block::visible;

use super::OpenForeignError;
use super::header::ImageFormat;
use super::layer::layers;
use crate::companion::companion;

const PROGRAM: &str = "qemu-img";

/// Writes the disk as an image of a chain has it into a new raw image. Other files that the image
/// names must lie in one of the folders `allowed`.
///
/// # Errors
/// [`OpenForeignError`].
pub fn convert_to_raw(
    path: &Path,
    format: ImageFormat,
    allowed: &[PathBuf],
    into: &Path,
) -> Result<(), OpenForeignError> {
    let found = layers(path, format, allowed)?;
    let mut command = companion(PROGRAM);
    command.args(["convert", "-O", "raw"]).arg(format!("json:{}", found.node)).arg(into);
    let output = command.stdin(Stdio::null()).output().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => OpenForeignError::NotInstalled { program: PROGRAM },
        _ => OpenForeignError::Start { program: PROGRAM, source },
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = visible(&String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "));
    Err(OpenForeignError::Refused { path: path.into(), said })
}
