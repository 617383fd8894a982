//! Reasons why a store does not open.

use std::io;

use varve_log::{AppendError, OpenLogError, ReadLogError, RecoverError};
use varve_world::{FileName, LockError};

use crate::config::ConfigError;
use crate::keyring::KeyError;

/// Why a store was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no `config.toml`.
    #[error("this is not a store: it has no config.toml")]
    NotAStore,
    /// There is a file, and no folder.
    #[error("this is not a store: there is a file where its folder should be")]
    NotAFolder,
    /// There is a log, and no `config.toml`.
    #[error("this store has lost its config.toml")]
    ConfigLost,
    /// `config.toml` could not be read.
    #[error("cannot read config.toml")]
    Storage(#[source] io::Error),
    /// The store's own files may not survive power loss.
    #[error("cannot make config.toml durable")]
    Durable(#[source] io::Error),
    /// `config.toml` makes no sense, or is newer than this program.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// `config.toml` says that nothing is encrypted, and something else says that it is.
    #[error(
        "config.toml says that the store is not encrypted, and {found} says that it is: config.toml was changed"
    )]
    Downgraded {
        /// The file that says so.
        found: FileName,
    },
    /// The keys do not open.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// Somebody else writes to it.
    #[error("the store is being written: it is in use by {holder}")]
    Locked {
        /// Who.
        holder: String,
    },
    /// Whether somebody else writes to it could not be found out.
    #[error("the store cannot be written")]
    Lock(#[source] LockError),
    /// The arenas could not be listed.
    #[error(transparent)]
    List(#[from] OpenLogError),
    /// What a crash has left could not be read.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// An arena could not be read for a reason that may pass.
    #[error("the log cannot be read")]
    Read(#[from] ReadLogError),
    /// A saved index that does not hold any more could not be removed.
    #[error("cannot remove {file}, which does not hold any more")]
    Hint {
        /// Which file.
        file: FileName,
        /// What went wrong below.
        source: io::Error,
    },
    /// The log could not be continued.
    #[error("the log cannot be continued")]
    Append(#[from] AppendError),
}

impl From<LockError> for OpenError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Held { holder } => Self::Locked { holder },
            error @ LockError::Storage { .. } => Self::Lock(error),
        }
    }
}
