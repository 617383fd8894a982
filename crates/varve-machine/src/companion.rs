//! Starts other programs: without secrets in their environment, and optionally so that they end
//! with this process, even if it is killed.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variables of this program's environment with secrets that open stores and targets. No other
/// program needs them, and any process that may inspect another one can read its environment.
const SECRETS: [&str; 8] = [
    "VARVE_PASSPHRASE",
    "VARVE_NEW_PASSPHRASE",
    "VARVE_FROM_PASSPHRASE",
    "VARVE_REMOTE_PASSWORD",
    "VARVE_KEY_FILE",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
];

/// Makes a command without the variables that hold secrets of this program. No other place of this
/// crate makes a command.
#[must_use]
pub fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    for secret in SECRETS {
        command.env_remove(secret);
    }
    command
}

/// Makes a command for a program that is killed when the thread that starts it ends, if the system
/// has `setpriv` (util-linux). So the starting thread must live as long as the program is needed.
pub(crate) fn companion(name: &str) -> Command {
    // Without this check, `setpriv` would start and report that the program is missing.
    if !is_there("setpriv") || !is_there(name) {
        return program(name);
    }
    let mut command = program("setpriv");
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

#[cfg(test)]
mod tests {
    use super::*;

    fn taken_out(command: &Command) -> Vec<&str> {
        command
            .get_envs()
            .filter(|(_, value)| value.is_none())
            .filter_map(|(name, _)| name.to_str())
            .collect()
    }

    #[test]
    fn no_program_is_told_what_is_secret() {
        let mut expected = SECRETS.to_vec();
        expected.sort_unstable();
        for command in [program("true"), companion("true"), companion("not installed")] {
            assert_eq!(taken_out(&command), expected, "{command:?}");
        }
    }

    #[test]
    fn no_other_place_makes_a_command() {
        let mut left = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
        let mut seen = 0;
        while let Some(path) = left.pop() {
            if path.is_dir() {
                left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            } else if !path.ends_with("companion.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                assert!(!text.contains("Command::new("), "{} makes a command of its own", path.display());
                seen += 1;
            }
        }
        assert!(seen > 10, "the sources are there");
    }
}
