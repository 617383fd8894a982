//! Opens a target by its URL.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::naming::location::{Location, LocationError};
use crate::retry::retrying_target::{RetryPolicy, RetryingTarget};
use crate::targets::folder::FolderTarget;
use crate::targets::ftp::Ftp;
use crate::targets::s3::S3;
use crate::targets::sftp::Sftp;
use crate::targets::webdav::Webdav;
use crate::{Pace, Password, Target};

/// The treatment of an SSH server without a known key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownHosts {
    /// Refuse the connection.
    #[default]
    Refuse,
    /// Accept the key for this connection. A server whose key differs from the known one is refused
    /// all the same.
    Accept,
}

/// The credentials of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Keys {
    /// The id of the key.
    pub key_id: String,
    pub secret_key: Password,
    /// The token that belongs to temporary credentials.
    pub session_token: Option<Password>,
}

/// The options for opening a target.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// The password for SFTP, FTP and WebDAV if the URL has none. Also opens an encrypted key file
    /// of SSH.
    pub password: Option<Password>,
    /// The credentials of a bucket. If they are missing, the `AWS_` variables apply.
    pub s3_keys: Option<S3Keys>,
    /// The private key for SFTP. If it is missing, the default files in `~/.ssh` apply.
    pub identity_file: Option<PathBuf>,
    /// The socket of an SSH agent.
    pub agent: Option<PathBuf>,
    /// The keys of known SSH servers. If it is missing, `~/.ssh/known_hosts` applies.
    pub known_hosts: Option<PathBuf>,
    /// The treatment of other servers.
    pub unknown_hosts: UnknownHosts,
    /// The user's home directory, which contains the default files of SSH.
    pub home: Option<PathBuf>,
    /// Certificate authorities to trust besides those of the machine, as a PEM file.
    pub authorities: Option<PathBuf>,
    /// The time-outs and retries.
    pub patience: RetryPolicy,
    /// Returns true if the caller no longer waits for answers. It is called during the pause before
    /// a retry, which is then cancelled.
    pub is_over: Option<fn() -> bool>,
    /// The pace of uploads.
    pub up: Option<Arc<Pace>>,
    /// The pace of downloads.
    pub down: Option<Arc<Pace>>,
}

impl OpenOptions {
    /// Reads the environment: `VARVE_REMOTE_PASSWORD`, `SSH_AUTH_SOCK` and `HOME`. [`open`] reads
    /// the `AWS_` variables, as every S3 tool does.
    #[must_use]
    pub fn from_environment() -> Self {
        let path = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            password: std::env::var("VARVE_REMOTE_PASSWORD").ok().map(Password::new),
            agent: path("SSH_AUTH_SOCK"),
            home: path("HOME"),
            ..Self::default()
        }
    }
}

/// The reason why a target was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenTargetError {
    /// The text is not a location.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// The settings are not usable.
    #[error("{place}: cannot be used with these settings")]
    Settings {
        /// The location.
        place: String,
        source: std::io::Error,
    },
}

/// Makes the target at `url`; [`Location`] has the forms. Does not connect: the first call reports
/// problems of the server.
///
/// # Errors
/// [`OpenTargetError`].
pub fn open(url: &str, options: &OpenOptions) -> Result<Box<dyn Target>, OpenTargetError> {
    open_location(url.parse()?, options)
}

fn open_location(location: Location, options: &OpenOptions) -> Result<Box<dyn Target>, OpenTargetError> {
    let place = location.to_string();
    let settings = |source| OpenTargetError::Settings { place, source };
    let (patience, is_over) = (options.patience, options.is_over);
    Ok(match location {
        Location::Folder(path) => {
            Box::new(FolderTarget::new(&path).at_pace(options.up.clone(), options.down.clone()))
        }
        Location::S3(place) => {
            Box::new(RetryingTarget::new(S3::new(place, options).map_err(settings)?, patience, is_over))
        }
        Location::Sftp(host) => {
            Box::new(RetryingTarget::new(Sftp::new(host, options).map_err(settings)?, patience, is_over))
        }
        Location::Ftp { host, is_encrypted } => Box::new(RetryingTarget::new(
            Ftp::new(host, is_encrypted, options).map_err(settings)?,
            patience,
            is_over,
        )),
        Location::Webdav { host, is_encrypted } => Box::new(RetryingTarget::new(
            Webdav::new(host, is_encrypted, options).map_err(settings)?,
            patience,
            is_over,
        )),
    })
}

impl fmt::Debug for dyn Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_opens_without_talking_to_anybody() {
        for url in [
            "/srv/replica",
            "s3://backup/in?endpoint=http://127.0.0.1:1",
            "sftp://ann:hunter2@127.0.0.1:1/srv",
            "ftp://ann:hunter2@127.0.0.1:1/srv",
            "ftps://ann:hunter2@127.0.0.1:1/srv",
            "webdav+http://ann:hunter2@127.0.0.1:1/srv",
            "webdav+https://ann:hunter2@127.0.0.1:1/srv",
        ] {
            let target = open(url, &OpenOptions::default()).unwrap();
            let shown = format!("{target} {target:?}");
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn wrong_settings_are_told_at_once() {
        let options = OpenOptions { authorities: Some("/nowhere.pem".into()), ..OpenOptions::default() };
        for url in ["webdav+https://host/x", "ftps://host/x"] {
            assert!(matches!(open(url, &options), Err(OpenTargetError::Settings { .. })), "{url}");
        }
        assert!(matches!(open("gopher://x/", &options), Err(OpenTargetError::Location(_))));
    }
}
