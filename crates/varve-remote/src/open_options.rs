//! The options for opening a target: credentials, known servers, retries and pace.

use std::path::PathBuf;
use std::sync::Arc;

use varve_world::StopSignal;

use crate::naming::password::Password;
use crate::retry::retrying_target::RetryPolicy;
use crate::transfer::pace::Pace;

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
    /// Refuses addresses of the machine's own network, for places that a stranger has named. Only
    /// web servers heed it, and none behind a proxy.
    pub public_only: bool,
    /// Set when the caller no longer waits for answers. It ends the pause before a retry, and soon
    /// after that a call.
    pub stop: StopSignal,
    /// The pace of uploads.
    pub up: Option<Arc<Pace>>,
    /// The pace of downloads.
    pub down: Option<Arc<Pace>>,
    /// The pace of requests to buckets, WebDAV servers and web servers. Each attempt counts.
    pub requests: Option<Arc<Pace>>,
}

impl OpenOptions {
    /// Reads the environment: `VARVE_REMOTE_PASSWORD`, `SSH_AUTH_SOCK` and `HOME`.
    /// [`open`](crate::open) reads the `AWS_` variables, as every S3 tool does.
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
