//! Runs the programs of file systems and volumes.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use varve_session::keep_secrets_from;

/// Runs a program to its end, and returns its standard output.
///
/// # Errors
/// When it cannot be started, or fails: with its last words.
pub(super) fn run<S: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = S>) -> Result<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(name);
    // The folders of these programs are not in the path of every service.
    command.args(arguments).env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C");
    keep_secrets_from(&mut command);
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{name} cannot be started"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last: Vec<_> =
            errors.lines().rev().map(str::trim).filter(|line| !line.is_empty()).take(2).collect();
        let last: Vec<_> = last.into_iter().rev().collect();
        bail!("{name} ended with {}: {}", output.status, last.join("; "));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
