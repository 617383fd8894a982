//! Other programs that end with this one, even if it is killed.

use std::ffi::OsString;
use std::process::Command;

/// A command for a program that is killed when the thread that starts it ends, where the system has `setpriv` (util-linux). So it is to be
/// started by a thread that lives as long as the program is wanted.
pub(crate) fn companion(program: &str) -> Command {
    // Without the program itself, `setpriv` would be what is started, and what complains.
    if !is_there("setpriv") || !is_there(program) {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

/// Whether a program is installed.
pub(crate) fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
