//! The list of snapshots, arranged for pages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use varve_archive::{Snapshot, SnapshotId, SnapshotList};

/// The list is at most this old.
const FRESH: Duration = Duration::from_secs(2);

/// All snapshots at one time.
#[derive(Default)]
pub(crate) struct SnapshotView {
    /// By time, the oldest first.
    snapshots: Vec<Snapshot>,
    by_id: BTreeMap<SnapshotId, usize>,
    series: BTreeMap<SeriesName, Vec<usize>>,
    by_key: BTreeMap<String, SeriesName>,
}

/// The name of a series: the snapshots of one name that one host has taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SeriesName {
    pub(crate) host: String,
    pub(crate) name: String,
}

impl SeriesName {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        Self { host: snapshot.host.clone(), name: snapshot.name.clone() }
    }

    /// A short text that stands for the series in addresses. It is the same at any time.
    pub(crate) fn key(&self) -> String {
        let mut hasher = blake3::Hasher::new_derive_key("varve 1 series in addresses of the web page");
        hasher.update(&(self.host.len() as u64).to_le_bytes());
        hasher.update(self.host.as_bytes()).update(self.name.as_bytes());
        varve_block::to_hex(&hasher.finalize().as_bytes()[..8])
    }
}

impl SnapshotView {
    pub(crate) fn new(snapshots: &[Snapshot]) -> Self {
        let mut snapshots = snapshots.to_vec();
        snapshots.sort_by_key(|snapshot| snapshot.time);
        let mut view = Self::default();
        for (number, snapshot) in snapshots.iter().enumerate() {
            view.by_id.insert(snapshot.id, number);
            view.series.entry(SeriesName::of(snapshot)).or_default().push(number);
        }
        view.by_key = view.series.keys().map(|name| (name.key(), name.clone())).collect();
        Self { snapshots, ..view }
    }

    /// All snapshots, the oldest first.
    pub(crate) fn snapshots(&self) -> &[Snapshot] {
        &self.snapshots
    }

    pub(crate) fn snapshot(&self, id: &SnapshotId) -> Option<&Snapshot> {
        self.by_id.get(id).map(|number| &self.snapshots[*number])
    }

    /// The series by host and name, each with its snapshots, the oldest first.
    pub(crate) fn all_series(
        &self,
    ) -> impl Iterator<Item = (&SeriesName, impl DoubleEndedIterator<Item = &Snapshot> + ExactSizeIterator + Clone)>
    {
        self.series
            .iter()
            .map(|(name, numbers)| (name, numbers.iter().map(|number| &self.snapshots[*number])))
    }

    /// The snapshots of a series, the oldest first.
    pub(crate) fn series<'a>(
        &'a self,
        name: &SeriesName,
    ) -> impl DoubleEndedIterator<Item = &'a Snapshot> + ExactSizeIterator + Clone + use<'a> {
        let numbers = self.series.get(name).map_or(&[][..], Vec::as_slice);
        numbers.iter().map(|number| &self.snapshots[*number])
    }

    /// The series that a key stands for.
    pub(crate) fn series_of_key(&self, key: &str) -> Option<&SeriesName> {
        self.by_key.get(key)
    }

    /// The snapshots of the same series just before and just after this one.
    pub(crate) fn neighbours(&self, snapshot: &Snapshot) -> (Option<&Snapshot>, Option<&Snapshot>) {
        let series: Vec<_> = self.series(&SeriesName::of(snapshot)).collect();
        let Some(at) = series.iter().position(|one| one.id == snapshot.id) else { return (None, None) };
        (at.checked_sub(1).map(|at| series[at]), series.get(at + 1).copied())
    }
}

/// The list of snapshots, which follows the archive.
pub(crate) struct FollowedSnapshots {
    state: Mutex<FollowState>,
}

struct FollowState {
    list: Box<dyn SnapshotList>,
    view: Arc<SnapshotView>,
    looked_at: Option<Instant>,
}

impl FollowedSnapshots {
    pub(crate) fn new(list: Box<dyn SnapshotList>) -> Self {
        let view = Arc::new(SnapshotView::new(list.snapshots()));
        Self { state: Mutex::new(FollowState { list, view, looked_at: None }) }
    }

    /// The present snapshots. May read the catalog.
    pub(crate) fn view(&self) -> Arc<SnapshotView> {
        let mut state = self.state.lock();
        if state.looked_at.is_none_or(|at| at.elapsed() >= FRESH) {
            match state.list.follow() {
                Ok(true) => state.view = Arc::new(SnapshotView::new(state.list.snapshots())),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, "the list of snapshots was not read again");
                }
            }
            state.looked_at = Some(Instant::now());
        }
        Arc::clone(&state.view)
    }

    /// Notes that a snapshot is in use until the returned value is dropped.
    pub(crate) fn note_use(&self, id: &SnapshotId) -> Arc<()> {
        self.state.lock().list.note_use(id)
    }

    /// Reports whether the catalog still has a snapshot.
    pub(crate) fn is_in_catalog(&self, id: &SnapshotId) -> bool {
        let mut state = self.state.lock();
        // If the catalog cannot be read, it is not known to lack the snapshot.
        state.list.follow().is_err() || state.list.is_in_catalog(id)
    }
}

/// Parses the id of a snapshot, all of its digits.
pub(crate) fn parse_id(text: &str) -> Option<SnapshotId> {
    Some(SnapshotId(varve_block::from_hex(text).ok()?.try_into().ok()?))
}
