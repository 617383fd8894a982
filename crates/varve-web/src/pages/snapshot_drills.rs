//! The drills of snapshots: those that were restored and compared, and those that failed.

use std::collections::BTreeMap;

use varve_archive::SnapshotId;
use varve_daily::Drill;
use varve_world::Timestamp;

use crate::archive::snapshot_view::parse_id;
use crate::site::PageRequest;

/// The newest drill of each snapshot that had one.
#[derive(Default)]
pub(crate) struct SnapshotDrills(BTreeMap<SnapshotId, NewestDrill>);

#[derive(Clone, Copy)]
struct NewestDrill {
    time: Timestamp,
    has_failed: bool,
}

impl SnapshotDrills {
    /// The known drills of an archive; none if its state is not known here.
    pub(crate) fn known(request: &PageRequest) -> Self {
        let known = request.site.state.as_ref().and_then(|state| state.log.soon());
        known.and_then(|known| known.value.as_ref().ok().map(|log| Self::of(&log.drills))).unwrap_or_default()
    }

    /// The drills come with the oldest first.
    fn of(drills: &[Drill]) -> Self {
        let newest = drills.iter().filter_map(|drill| {
            let newest = NewestDrill { time: drill.time, has_failed: drill.failure.is_some() };
            Some((parse_id(&drill.snapshot)?, newest))
        });
        Self(newest.collect())
    }

    /// The time of the newest drill of a snapshot, if it was successful.
    pub(crate) fn proven(&self, id: &SnapshotId) -> Option<Timestamp> {
        self.0.get(id).filter(|drill| !drill.has_failed).map(|drill| drill.time)
    }

    /// The time of the newest drill of a snapshot, if it failed.
    pub(crate) fn failed(&self, id: &SnapshotId) -> Option<Timestamp> {
        self.0.get(id).filter(|drill| drill.has_failed).map(|drill| drill.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_drill_of_a_snapshot_counts() {
        let (first, second) = (SnapshotId([1; 16]), SnapshotId([2; 16]));
        let drill = |snapshot: &str, time, failure: Option<&str>| Drill {
            host: String::new(),
            series: "home".into(),
            snapshot: snapshot.into(),
            time: Timestamp(time),
            file_count: 1,
            bytes: 1,
            boot_seconds: None,
            failure: failure.map(str::to_owned),
        };
        let drills = SnapshotDrills::of(&[
            drill(&first.to_string(), 1, Some("a file differs")),
            drill(&second.to_string(), 2, None),
            drill(&first.to_string(), 3, None),
            drill(&second.to_string(), 4, Some("no room")),
            drill("no id", 5, None),
        ]);
        assert_eq!((drills.proven(&first), drills.failed(&first)), (Some(Timestamp(3)), None));
        assert_eq!((drills.proven(&second), drills.failed(&second)), (None, Some(Timestamp(4))));
        assert_eq!(drills.proven(&SnapshotId([3; 16])), None);
    }
}
