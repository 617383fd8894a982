//! Tells a snapshot that was forgotten and collected while it was read from a damaged one.

use std::error::Error;
use std::io;

use varve_block::{GetError, causes};

use crate::catalog::snapshot::Snapshot;
use crate::catalog::snapshot_id::SnapshotId;

/// A reader still uses a snapshot whose data is gone, because the snapshot was forgotten and its
/// data has been collected. Nothing is damaged.
#[derive(Debug, thiserror::Error)]
#[error("snapshot {name} ({id}) was forgotten, and its data may have been collected")]
pub struct CollectedError {
    name: String,
    id: SnapshotId,
}

impl CollectedError {
    /// The hint for the user.
    pub const HINT: &'static str = "a replica that still has the snapshot can be read; a reader that may write to the store's folder protects the snapshots that it uses";

    /// The error for a snapshot that is no longer in the catalog.
    #[must_use]
    pub fn new(snapshot: &Snapshot) -> Self {
        Self { name: snapshot.name.clone(), id: snapshot.id }
    }

    /// Reports whether an error is one of these.
    #[must_use]
    pub fn is_cause_of(error: &(dyn Error + 'static)) -> bool {
        causes(error).any(|cause| cause.is::<Self>())
    }
}

impl From<CollectedError> for io::Error {
    fn from(error: CollectedError) -> Self {
        Self::new(io::ErrorKind::StaleNetworkFileHandle, error)
    }
}

/// Reports whether an error comes from a block that the store does not have. Such a block was
/// collected, or is lost.
#[must_use]
pub fn lacks_block(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|cause| {
        // The type of a boxed cause is that of the box.
        let boxed = || cause.downcast_ref::<Box<GetError>>().map(|boxed| &**boxed);
        matches!(cause.downcast_ref().or_else(boxed), Some(GetError::NotFound { .. }))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use varve_block::{BlockName, BlockType, Score};
    use varve_image::FileSystemError;
    use varve_tree::ReadTreeError;
    use varve_world::{Clock, FixedClock, Timestamp};

    use super::*;
    use crate::catalog::snapshot::tests::snapshot;
    use crate::{FilteredSnapshots, SnapshotFilter, SnapshotList};

    /// A list whose next look finds these snapshots.
    struct Changing(Vec<Snapshot>, Option<Vec<Snapshot>>);

    impl SnapshotList for Changing {
        fn snapshots(&self) -> &[Snapshot] {
            &self.0
        }

        fn follow(&mut self) -> Result<bool, Box<dyn Error + Send + Sync>> {
            let next = self.1.take();
            let is_new = next.is_some();
            self.0 = next.unwrap_or_else(|| self.0.clone());
            Ok(is_new)
        }

        fn clock(&self) -> Arc<dyn Clock> {
            Arc::new(FixedClock(Timestamp(0)))
        }
    }

    fn absent() -> GetError {
        let name = BlockName { score: Score::sha1(b"absent"), block_type: BlockType::DATA };
        GetError::NotFound { name }
    }

    fn deep(source: GetError) -> FileSystemError {
        let source = io::Error::other(ReadTreeError::Leaf { range: 0..5, source });
        FileSystemError::Read { what: "file".into(), source }
    }

    #[test]
    fn only_an_absent_block_may_have_been_collected() {
        assert!(lacks_block(&deep(absent())));
        let GetError::NotFound { name } = absent() else { unreachable!() };
        assert!(!lacks_block(&deep(GetError::Failed { name, source: "a disk".into() })));
        assert!(!lacks_block(&deep(GetError::Damaged { name, source: "other bytes".into() })));
        let error = io::Error::from(CollectedError::new(&snapshot(1, "a", 5)));
        assert_eq!(error.kind(), io::ErrorKind::StaleNetworkFileHandle);
        assert!(CollectedError::is_cause_of(&FileSystemError::Read { what: "file".into(), source: error }));
    }

    #[test]
    fn a_snapshot_that_only_a_filter_leaves_out_is_not_gone() {
        let both = [snapshot(1, "a", 5), snapshot(2, "a", 6)];
        let newest = SnapshotFilter { latest: Some(1), ..SnapshotFilter::default() };
        let mut list = FilteredSnapshots::new(Changing(both[..1].to_vec(), Some(both.to_vec())), newest);
        assert!(list.follow().unwrap());
        assert!(list.is_in_catalog(&both[0].id) && list.snapshots().len() == 1);
        assert!(!list.is_in_catalog(&SnapshotId([3; 16])));
    }
}
