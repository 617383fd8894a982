//! Which disks a server has.

use std::error::Error;
use std::sync::Arc;

use super::disk::Disk;

/// The disks that a server has.
pub trait Disks: Send + Sync {
    /// What there is.
    fn list(&self) -> Vec<ListedDisk>;

    /// The disk of a name; of the empty name, the one that is meant where none is given.
    ///
    /// # Errors
    /// [`FindDiskError`]
    fn find(&self, name: &str) -> Result<Served, FindDiskError>;
}

/// A disk in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedDisk {
    /// What to ask for.
    pub name: String,
    /// For people.
    pub description: String,
}

/// A disk that was found.
pub struct Served {
    /// Its whole name: it means the same disk tomorrow.
    pub name: String,
    /// For people.
    pub description: String,
    /// The disk.
    pub disk: Arc<dyn Disk>,
}

/// Why there is no disk for a name. Clients are told.
#[derive(Debug, thiserror::Error)]
pub enum FindDiskError {
    /// There is none.
    #[error("{0}")]
    Unknown(String),
    /// It could not be looked for.
    #[error("the snapshots cannot be read")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}
