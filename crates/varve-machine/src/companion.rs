//! Starts other programs so that they end with this process, even if it is killed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use varve_world::other_program;

/// Makes a command for a program that is killed when the thread that starts it ends, if the system
/// has `setpriv` (util-linux). So the starting thread must live as long as the program is needed.
pub(crate) fn companion(name: &str) -> Command {
    // Without this check, `setpriv` would start and report that the program is missing.
    if !is_there("setpriv") || !is_there(name) {
        return other_program(name);
    }
    let mut command = other_program("setpriv");
    command.args(["--pdeathsig", "KILL", name]);
    command
}

/// Returns true if a program is installed.
pub(crate) fn is_there(name: &str) -> bool {
    find_program(name, &[]).is_some()
}

/// Returns the path of an installed program. It is searched for in the folders of `PATH`, and then
/// in `more_folders`.
#[must_use]
pub fn find_program(name: &str, more_folders: &[&Path]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    let folders = std::env::split_paths(&path).chain(more_folders.iter().map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}
