//! Secrets in the environment, which no other program needs.

use std::ffi::OsStr;
use std::process::Command;

/// The variables with secrets that open stores and targets. A process that may inspect another one
/// can read its environment.
const SECRETS: [&str; 7] = [
    "VARVE_PASSPHRASE",
    "VARVE_NEW_PASSPHRASE",
    "VARVE_FROM_PASSPHRASE",
    "VARVE_REMOTE_PASSWORD",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
];

/// Makes a command that gets none of the secrets in the environment of this program.
#[must_use]
pub fn other_program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    for secret in SECRETS {
        command.env_remove(secret);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_program_gets_no_secrets() {
        let command = other_program("true");
        let removed: Vec<_> = command.get_envs().filter(|(_, value)| value.is_none()).collect();
        let mut secrets = SECRETS.map(|name| (OsStr::new(name), None));
        secrets.sort_unstable();
        assert_eq!(removed, secrets);
    }
}
