//! Checks that an image is complete. QEMU reads zeros beyond the end of a truncated file, and
//! nobody would notice before the disk is needed.

use std::io::{self, Read};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use varve_block::visible;

use super::{COMPLAINT_BYTES_MAX, ImageFormat, OpenForeignError};
use crate::companion::companion;

const PROGRAM: &str = "qemu-img";
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
    let failed = |source| OpenForeignError::Start { program: PROGRAM, source };
    let mut command = companion(PROGRAM);
    command.args(["check", "-q"]).arg(format!("json:{node}"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => OpenForeignError::NotInstalled { program: PROGRAM },
        _ => failed(error),
    })?;
    // The output may have a line for each of very many clusters.
    let (mut said, mut complaints) = (Vec::new(), child.stderr.take().expect("it is piped"));
    let read = Read::by_ref(&mut complaints)
        .take(COMPLAINT_BYTES_MAX)
        .read_to_end(&mut said)
        .and_then(|_| io::copy(&mut complaints, &mut io::sink()));
    let status = child.wait().and_then(|status| read.map(|_| status)).map_err(failed)?;
    let code = status.code();
    if code.is_some_and(|code| SOUND.contains(&code) || code == UNCHECKED) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&said);
    let first = said.lines().next().map_or_else(|| format!("qemu-img check ended with {status}"), visible);
    // The image may be locked by a running machine.
    Err(match code == Some(1) && first.contains("Could not open") {
        true => {
            OpenForeignError::Refused { path: path.into(), said: visible(&said.trim().replace('\n', "; ")) }
        }
        false => OpenForeignError::Damaged { path: path.into(), said: first },
    })
}
