//! Reasons why a store does not open.

use std::io;

use varve_block::has_kind;
use varve_log::{AppendError, OpenLogError, ReadLogError, RecoverError};
use varve_world::{FileName, LockError};

use crate::config::ConfigError;
use crate::keyring::KeyError;

/// The reason why a store was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    #[error("this is not a store: it has no config.toml")]
    NotAStore,
    /// There is a file instead of a folder.
    #[error("this is not a store: it is a file, not a folder")]
    NotAFolder,
    /// There is a log, but no `config.toml`.
    #[error("the config.toml of this store is missing")]
    ConfigLost,
    #[error("cannot read config.toml")]
    Storage(#[source] io::Error),
    /// The store's own files may not survive a power loss.
    #[error("cannot make config.toml durable")]
    Durable(#[source] io::Error),
    /// `config.toml` is invalid, or newer than this program.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// `config.toml` says that nothing is encrypted, but a key or an arena is.
    #[error(
        "config.toml says that the store is not encrypted, but {found} is encrypted: config.toml was changed"
    )]
    Downgraded {
        /// The key or the arena.
        found: FileName,
    },
    /// The keys do not open.
    #[error("{0}")]
    Keys(#[from] KeyError),
    /// Another process writes to the store.
    #[error("the store is locked by another writer: it is in use by {holder}")]
    Locked { holder: String },
    /// The lock of the writer could not be checked.
    #[error("the store cannot be written")]
    Lock(#[source] LockError),
    /// The arenas could not be listed.
    #[error("{0}")]
    List(#[from] OpenLogError),
    /// The end of the log could not be recovered.
    #[error("{0}")]
    Recover(#[from] RecoverError),
    /// An arena could not be read for a reason that may be temporary.
    #[error("the log cannot be read")]
    Read(#[from] ReadLogError),
    /// A saved index that is out of date could not be removed.
    #[error("cannot remove {file}, which is out of date")]
    Hint { file: FileName, source: io::Error },
    /// An arena that a collector has replaced could not get its place.
    #[error("a collection was interrupted, and a new arena cannot take the place of the old one")]
    Replace { source: io::Error },
    #[error("the log cannot be appended to")]
    Append(#[from] AppendError),
}

has_kind!(OpenStoreError:
    Self::NotAStore => NoStore,
    Self::NotAFolder => NotAStore,
    Self::ConfigLost | Self::Downgraded { .. } => SettingsLost,
    Self::Locked { .. } => Locked,
);

impl From<LockError> for OpenStoreError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Held { holder } => Self::Locked { holder },
            error @ LockError::Storage { .. } => Self::Lock(error),
        }
    }
}
