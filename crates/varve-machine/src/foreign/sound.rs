//! Checks that an image is complete. QEMU reads zeros beyond the end of a truncated file, and
//! nobody would notice before the disk is needed.

use std::path::Path;

use serde_json::Value;
use varve_block::visible;

use super::qemu_img::{PROGRAM, qemu_img, refused};
use super::{ImageFormat, OpenForeignError};

/// Exit codes of `qemu-img check` for an intact image, and for one with leaked clusters.
const SOUND: [i32; 2] = [0, 3];
/// The exit code for formats that it does not check.
const UNCHECKED: i32 = 63;

/// Checks the tables of one image, not its data. `node` is the block node of the image without its
/// backing image.
pub(super) fn check(path: &Path, format: ImageFormat, node: &Value) -> Result<(), OpenForeignError> {
    if format == ImageFormat::Raw {
        return Ok(());
    }
    // The output may have a line for each of very many clusters.
    let ended = qemu_img(["check", "-q", &format!("json:{node}")])?;
    let code = ended.status.code();
    if code.is_some_and(|code| SOUND.contains(&code) || code == UNCHECKED) {
        return Ok(());
    }
    let complaint = visible(&ended.complaint());
    let first = match complaint.split("; ").next() {
        None | Some("") => format!("{PROGRAM} check ended with {}", ended.status),
        Some(first) => first.to_owned(),
    };
    // The image may be locked by a running machine.
    Err(match code == Some(1) && first.contains("Could not open") {
        true => refused(path, &ended),
        false => OpenForeignError::Damaged { path: path.into(), said: first },
    })
}
