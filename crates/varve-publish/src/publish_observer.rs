//! Receives the progress of a publication, and can end it.

/// Receives the progress of a publication.
pub trait PublishObserver: Sync {
    /// Receives the number of bytes of all disks to be published.
    fn set_total(&self, bytes: u64);
    /// Receives a number of bytes of the disks that are done.
    fn add_done(&self, bytes: u64);
    /// Returns true if the publication should end early. The old edition then stays.
    fn is_cancelled(&self) -> bool;
}
