//! The list of snapshots that front ends show.

use std::error::Error;
use std::sync::Arc;

use varve_world::Clock;

use crate::archive::Archive;
use crate::archive::home::SnapshotHome;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::snapshot_filter::SnapshotFilter;
use crate::catalog::snapshot_id::SnapshotId;

/// The snapshots of a store or of another block store, including those that are taken meanwhile.
pub trait SnapshotList: Send {
    /// The snapshots known so far.
    fn snapshots(&self) -> &[Snapshot];

    /// Looks for new snapshots. Returns whether there are any.
    ///
    /// # Errors
    /// The list cannot be refreshed. The known snapshots stay known.
    fn follow(&mut self) -> Result<bool, Box<dyn Error + Send + Sync>>;

    /// The clock that decides when to refresh.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Returns whether the catalog has a snapshot, even if the list leaves it out.
    fn is_in_catalog(&self, id: &SnapshotId) -> bool {
        self.snapshots().iter().any(|snapshot| snapshot.id == *id)
    }

    /// Notes that a snapshot is in use until the returned value is dropped.
    fn note_use(&mut self, _id: &SnapshotId) -> Arc<()> {
        Arc::new(())
    }
}

impl<L: SnapshotList + ?Sized> SnapshotList for Box<L> {
    fn snapshots(&self) -> &[Snapshot] {
        (**self).snapshots()
    }

    fn follow(&mut self) -> Result<bool, Box<dyn Error + Send + Sync>> {
        (**self).follow()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        (**self).clock()
    }

    fn is_in_catalog(&self, id: &SnapshotId) -> bool {
        (**self).is_in_catalog(id)
    }

    fn note_use(&mut self, id: &SnapshotId) -> Arc<()> {
        (**self).note_use(id)
    }
}

impl<H: SnapshotHome + ?Sized> SnapshotList for Archive<H> {
    fn snapshots(&self) -> &[Snapshot] {
        Self::snapshots(self)
    }

    fn follow(&mut self) -> Result<bool, Box<dyn Error + Send + Sync>> {
        Ok(Self::follow(self)?)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.home().world().clock)
    }
}

/// The snapshots of another list that pass a filter.
pub struct FilteredSnapshots<L> {
    list: L,
    filter: SnapshotFilter,
    passed: Vec<Snapshot>,
}

impl<L: SnapshotList> FilteredSnapshots<L> {
    /// Filters the snapshots of `list`, now and after each refresh.
    #[must_use]
    pub fn new(list: L, filter: SnapshotFilter) -> Self {
        let passed = filter.apply(list.snapshots()).into_iter().cloned().collect();
        Self { list, filter, passed }
    }
}

impl<L: SnapshotList> SnapshotList for FilteredSnapshots<L> {
    fn snapshots(&self) -> &[Snapshot] {
        &self.passed
    }

    fn follow(&mut self) -> Result<bool, Box<dyn Error + Send + Sync>> {
        if !self.list.follow()? {
            return Ok(false);
        }
        let passed: Vec<_> = self.filter.apply(self.list.snapshots()).into_iter().cloned().collect();
        let is_new = passed != self.passed;
        self.passed = passed;
        Ok(is_new)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.list.clock()
    }

    fn is_in_catalog(&self, id: &SnapshotId) -> bool {
        self.list.is_in_catalog(id)
    }

    fn note_use(&mut self, id: &SnapshotId) -> Arc<()> {
        self.list.note_use(id)
    }
}
