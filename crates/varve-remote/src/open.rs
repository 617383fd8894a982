//! From a URL to a target.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::naming::location::{Location, LocationError};
use crate::retry::persistent::{Patience, Persistent};
use crate::targets::folder::FolderTarget;
use crate::targets::ftp::Ftp;
use crate::targets::s3::S3;
use crate::targets::sftp::Sftp;
use crate::targets::webdav::Webdav;
use crate::{Pace, Secret, Target};

/// What to do about an SSH server that no one has vouched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownHosts {
    /// Do not talk to it.
    #[default]
    Refuse,
    /// Believe it this once. A server whose key is another than the known one is refused all the same.
    Accept,
}

/// Who may use a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Keys {
    /// The name of the key.
    pub key_id: String,
    /// The key.
    pub secret_key: Secret,
    /// What a key that was lent for a while comes with.
    pub session_token: Option<Secret>,
}

/// How a target is to be reached.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// The password for SFTP, FTP and WebDAV where the URL has none; also opens an encrypted key file of SSH.
    pub password: Option<Secret>,
    /// Who uses a bucket; else as the `AWS_` variables say.
    pub s3_keys: Option<S3Keys>,
    /// The private key for SFTP; else those in `~/.ssh` with the usual names.
    pub identity_file: Option<PathBuf>,
    /// The socket of an SSH agent.
    pub agent: Option<PathBuf>,
    /// The keys of known SSH servers; else `~/.ssh/known_hosts`.
    pub known_hosts: Option<PathBuf>,
    /// What to do about other servers.
    pub unknown_hosts: UnknownHosts,
    /// The user's home, where the usual files of SSH are.
    pub home: Option<PathBuf>,
    /// Certificate authorities to believe besides the machine's own, as a PEM file.
    pub authorities: Option<PathBuf>,
    /// How long to wait, and how often to try.
    pub patience: Patience,
    /// Whether nobody waits for an answer any more. Asked while there is a pause before another try, which is then not made.
    pub is_over: Option<fn() -> bool>,
    /// The pace of what goes there.
    pub up: Option<Arc<Pace>>,
    /// The pace of what comes from there.
    pub down: Option<Arc<Pace>>,
}

impl OpenOptions {
    /// What the environment says: `VARVE_REMOTE_PASSWORD`, `SSH_AUTH_SOCK` and `HOME`. The `AWS_` variables are read by
    /// [`open`], as every tool for S3 does.
    #[must_use]
    pub fn from_environment() -> Self {
        let path = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            password: std::env::var("VARVE_REMOTE_PASSWORD").ok().map(Secret::new),
            agent: path("SSH_AUTH_SOCK"),
            home: path("HOME"),
            ..Self::default()
        }
    }
}

/// Why a URL did not become a target.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The text is no place for a target.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// The settings cannot work.
    #[error("{place}: cannot be used with these settings")]
    Settings {
        /// Where.
        place: String,
        /// What went wrong below.
        source: std::io::Error,
    },
}

/// The target at `url`; [`Location`] has the forms. Talks to nobody yet: what is wrong there, the first call tells.
///
/// # Errors
/// [`OpenError`].
pub fn open(url: &str, options: &OpenOptions) -> Result<Box<dyn Target>, OpenError> {
    open_location(url.parse()?, options)
}

fn open_location(location: Location, options: &OpenOptions) -> Result<Box<dyn Target>, OpenError> {
    let place = location.to_string();
    let settings = |source| OpenError::Settings { place, source };
    let (patience, is_over) = (options.patience, options.is_over);
    Ok(match location {
        Location::Folder(path) => {
            Box::new(FolderTarget::new(&path).at_pace(options.up.clone(), options.down.clone()))
        }
        Location::S3(place) => {
            Box::new(Persistent::new(S3::new(place, options).map_err(settings)?, patience, is_over))
        }
        Location::Sftp(host) => {
            Box::new(Persistent::new(Sftp::new(host, options).map_err(settings)?, patience, is_over))
        }
        Location::Ftp { host, is_encrypted } => Box::new(Persistent::new(
            Ftp::new(host, is_encrypted, options).map_err(settings)?,
            patience,
            is_over,
        )),
        Location::Webdav { host, is_encrypted } => Box::new(Persistent::new(
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
            assert!(matches!(open(url, &options), Err(OpenError::Settings { .. })), "{url}");
        }
        assert!(matches!(open("gopher://x/", &options), Err(OpenError::Location(_))));
    }
}
