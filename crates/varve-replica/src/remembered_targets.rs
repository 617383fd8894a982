//! `replicas.toml`: the targets of a store, so that they need not be given at each run. It has no
//! secrets.
//!
//! ```toml
//! targets = ["s3://bucket/folder", "/mnt/second/disk"]
//! ```

use std::io;

use serde::{Deserialize, Serialize};
use varve_remote::without_password;
use varve_world::{FileName, Storage};

const FILE_BYTES_MAX: u64 = 64 << 10;

/// The targets of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RememberedTargets {
    /// Each as the user named it.
    #[serde(default)]
    pub targets: Vec<String>,
}

/// The reason why targets could not be read or added.
#[derive(Debug, thiserror::Error)]
pub enum RememberTargetError {
    /// The file is malformed.
    #[error("replicas.toml cannot be parsed")]
    Malformed(#[source] toml::de::Error),
    /// The file could not be read or written.
    #[error("replicas.toml cannot be read or written")]
    Storage(#[source] io::Error),
    /// The file would contain a password, readable by everybody with access to the store's folder.
    #[error("{target}: a target with a password is not remembered; leave the password out")]
    Secret {
        /// The target without its password.
        target: String,
    },
}

fn file() -> FileName {
    FileName::new("replicas.toml").expect("a plain name")
}

impl RememberedTargets {
    /// Reads the targets of the store in `storage`; none if it has no such file.
    ///
    /// # Errors
    /// [`RememberTargetError::Malformed`] or [`RememberTargetError::Storage`].
    pub fn read(storage: &dyn Storage) -> Result<Self, RememberTargetError> {
        match storage.read_whole(&file(), FILE_BYTES_MAX) {
            Ok(text) => {
                toml::from_str(&String::from_utf8_lossy(&text)).map_err(RememberTargetError::Malformed)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(Self::default())
            }
            Err(error) => Err(RememberTargetError::Storage(error)),
        }
    }

    /// Adds a target, unless it is known.
    ///
    /// # Errors
    /// [`RememberTargetError`].
    pub fn add(&mut self, storage: &dyn Storage, target: &str) -> Result<(), RememberTargetError> {
        let shown = without_password(target);
        if shown != target {
            return Err(RememberTargetError::Secret { target: shown });
        }
        if self.targets.iter().any(|known| known == target) {
            return Ok(());
        }
        self.targets.push(target.to_owned());
        let text = toml::to_string(self).expect("plain values always serialise");
        storage.replace(&file(), text.as_bytes()).map_err(RememberTargetError::Storage)
    }
}

#[cfg(test)]
mod tests {
    use varve_world::MemoryStorage;

    use super::*;

    #[test]
    fn targets_are_remembered_once() {
        let storage = MemoryStorage::new();
        let mut remembered = RememberedTargets::read(&storage).unwrap();
        for target in ["/mnt/disk", "s3://bucket/x", "/mnt/disk"] {
            remembered.add(&storage, target).unwrap();
        }
        assert_eq!(RememberedTargets::read(&storage).unwrap().targets, ["/mnt/disk", "s3://bucket/x"]);
        storage.set_contents(&file(), b"targets = 5".to_vec());
        assert!(matches!(RememberedTargets::read(&storage), Err(RememberTargetError::Malformed(_))));
    }

    #[test]
    fn passwords_are_not() {
        let storage = MemoryStorage::new();
        let refused =
            RememberedTargets::default().add(&storage, "ftp://me:secret@host:2121/a:b@c").unwrap_err();
        assert!(refused.to_string().starts_with("ftp://me@host:2121/a%3Ab%40c: "), "{refused}");
        assert!(storage.names().is_empty());
        for good in ["ftp://me@host/x", "s3://bucket/k:x@y", "/a:b@c"] {
            RememberedTargets::default().add(&MemoryStorage::new(), good).unwrap();
        }
    }
}
