//! Converts an image to a raw one with QEMU's own program, to compare it with what was archived.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::OpenForeignError;
use super::header::ImageFormat;
use super::layer::layers;
use super::qemu_img::{qemu_img, refused};

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
    let node = format!("json:{}", found.node);
    let args = ["convert", "-O", "raw", &node].map(OsStr::new);
    let ended = qemu_img(args.into_iter().chain([into.as_os_str()]))?;
    if ended.status.success() { Ok(()) } else { Err(refused(path, &ended)) }
}
