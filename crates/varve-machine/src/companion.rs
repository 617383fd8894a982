//! Other programs: what they are started with, and those that end with this one, even if it is killed.

use std::ffi::OsString;
use std::process::Command;

/// What this program is told in its environment that opens stores and the places of replicas. No other program needs any of it, and whoever
/// can look at a process can read its environment.
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

/// A command for another program, which is not told what is secret. This is the one place of the crate that makes one.
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    for secret in SECRETS {
        command.env_remove(secret);
    }
    command
}

/// A command for a program that is killed when the thread that starts it ends, where the system has `setpriv` (util-linux). So it is to be
/// started by a thread that lives as long as the program is wanted.
pub(crate) fn companion(name: &str) -> Command {
    // Without the program itself, `setpriv` would be what is started, and what complains.
    if !is_there("setpriv") || !is_there(name) {
        return program(name);
    }
    let mut command = program("setpriv");
    command.args(["--pdeathsig", "KILL", name]);
    command
}

/// Whether a program is installed.
pub(crate) fn is_there(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
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
