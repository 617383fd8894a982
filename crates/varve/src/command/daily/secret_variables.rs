//! The environment variables with secrets.

/// They are kept from hooks and other programs, which need none of them.
pub const SECRETS: [&str; 4] =
    ["VARVE_PASSPHRASE", "VARVE_NEW_PASSPHRASE", "VARVE_FROM_PASSPHRASE", "VARVE_REMOTE_PASSWORD"];
