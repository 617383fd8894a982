//! The disks that a server offers.

use std::error::Error;
use std::sync::Arc;

use super::disk::ServedDisk;

/// The disks that a server offers.
pub trait ServedDisks: Send + Sync {
    /// All disks, for listing.
    fn list(&self) -> Vec<ListedDisk>;

    /// Finds a disk by name. The empty name stands for the default disk.
    ///
    /// # Errors
    /// [`FindDiskError`]
    fn find(&self, name: &str) -> Result<FoundDisk, FindDiskError>;
}

/// A disk in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedDisk {
    /// The export name.
    pub name: String,
    /// For people.
    pub description: String,
}

/// A disk that was found.
pub struct FoundDisk {
    /// The full name, which always stands for this disk.
    pub name: String,
    /// For people.
    pub description: String,
    pub disk: Arc<dyn ServedDisk>,
}

/// Why no disk was found for a name. The message is sent to the client.
#[derive(Debug, thiserror::Error)]
pub enum FindDiskError {
    #[error("{0}")]
    Unknown(String),
    /// The lookup itself failed.
    #[error("the snapshots cannot be read")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}
