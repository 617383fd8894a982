//! The environment variables with secrets.

use std::process::Command;

/// The secrets of stores and targets. Hooks, the programs of streams and the tools of file systems
/// need none of them, and other processes of the same user can read their environment.
const SECRETS: [&str; 7] = [
    "VARVE_PASSPHRASE",
    "VARVE_NEW_PASSPHRASE",
    "VARVE_FROM_PASSPHRASE",
    "VARVE_REMOTE_PASSWORD",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
];

/// Keeps the secrets from a program that is to be started.
pub fn keep_secrets_from(program: &mut Command) {
    for secret in SECRETS {
        program.env_remove(secret);
    }
}
