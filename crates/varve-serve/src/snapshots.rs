//! Who knows which snapshots there are.

use std::error::Error;
use std::sync::Arc;

use varve_archive::{Archive, Snapshot};
use varve_world::Clock;

/// The snapshots of a store, or of whoever else keeps blocks, and those that are taken meanwhile.
pub trait SnapshotList: Send {
    /// Those that are known.
    fn snapshots(&self) -> &[Snapshot];

    /// Looks for new ones, and says whether there are any.
    ///
    /// # Errors
    /// When it cannot be looked; what was known before stays known.
    fn follow(&mut self) -> Result<bool, Box<dyn Error + Send + Sync>>;

    /// Whose time it is that says when to look again.
    fn clock(&self) -> Arc<dyn Clock>;
}

impl SnapshotList for Archive {
    fn snapshots(&self) -> &[Snapshot] {
        Archive::snapshots(self)
    }

    fn follow(&mut self) -> Result<bool, Box<dyn Error + Send + Sync>> {
        Ok(Archive::follow(self)?)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.store().world().clock)
    }
}
