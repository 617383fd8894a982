//! Runs the programs of file systems and volumes.

use std::ffi::OsStr;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use varve_block::visible;
use varve_world::{FinishedProgram, other_program};

/// More than the list of the volumes of a large machine.
const OUTPUT_BYTES_MAX: usize = 4 << 20;

/// Runs a program to its end, and returns its standard output.
///
/// # Errors
/// When it cannot be run, or fails: with its complaint.
pub(super) fn run<S: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = S>) -> Result<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = other_program(name);
    // The folders of these programs are not in the path of every service.
    command.args(arguments).env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C");
    let ended = FinishedProgram::run(command.stdin(Stdio::null()), OUTPUT_BYTES_MAX);
    let ended = ended.with_context(|| format!("{name} cannot be run"))?;
    if !ended.status.success() {
        bail!("{name} ended with {}: {}", ended.status, visible(&ended.complaint()));
    }
    Ok(String::from_utf8_lossy(&ended.output).into_owned())
}
