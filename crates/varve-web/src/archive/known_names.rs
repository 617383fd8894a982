//! The index of names in all snapshots, kept up to date in the background.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::time::Instant;
use varve_archive::{FoundPaths, IndexedPath, NameIndex, Snapshot, UpdateNamesError};
use varve_store::{Hint, Store};

use super::open_files::FileOpener;
use super::snapshot_view::{SeriesName, SnapshotView};

/// A search waits for this long for an index that is being updated.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// The index is saved at most this often.
const SAVE_AGE: Duration = Duration::from_secs(600);
/// The saved index. Only keys that may read the store can open it.
const NAMES: Hint = Hint { file: "index/names", context: "varve 1 names of files" };

/// The names in all snapshots. It is made when the first search needs it.
pub(crate) struct KnownNames {
    index: RwLock<Option<NameIndex>>,
    progress: Mutex<IndexProgress>,
    /// The store that has the saved index.
    store: Option<Arc<Store>>,
}

#[derive(Default)]
struct IndexProgress {
    is_updating: bool,
    /// The index takes too much memory.
    is_too_large: bool,
    saved_at: Option<Instant>,
}

/// A result of the index.
pub(crate) struct KnownPaths {
    pub(crate) found: FoundPaths,
    /// The newest snapshots are not in the index yet.
    pub(crate) lacks_newest: bool,
}

impl KnownNames {
    /// Without a store, the index is not saved.
    pub(crate) fn new(store: Option<Arc<Store>>) -> Arc<Self> {
        Arc::new(Self { index: RwLock::new(None), progress: Mutex::default(), store })
    }

    /// Searches the index. Returns `None` as long as there is none. Begins to update it in the
    /// background if it lacks snapshots.
    pub(crate) fn find(
        self: &Arc<Self>,
        opener: &Arc<FileOpener>,
        view: &Arc<SnapshotView>,
        text: &str,
        after: Option<&IndexedPath>,
        count: usize,
        chosen: Option<&SeriesName>,
    ) -> Option<KnownPaths> {
        let until = Instant::now() + WAIT_MAX;
        loop {
            let index = self.index.try_read_until(until.into_std());
            let has_all = index
                .as_ref()
                .is_some_and(|index| index.as_ref().is_some_and(|index| index.has_all(view.snapshots())));
            if !has_all {
                self.update_soon(opener, view);
            }
            let is_late = Instant::now() >= until || self.progress.lock().is_too_large;
            if let Some(Some(index)) = index.as_deref()
                && (has_all || is_late)
            {
                let is_wanted = |host: &str, name: &str| {
                    chosen.is_none_or(|chosen| chosen.host == host && chosen.name == name)
                };
                let is_listed = |id: &_| view.snapshot(id).is_some();
                let found = index.find(text, after, count, &is_wanted, &is_listed);
                return Some(KnownPaths { found, lacks_newest: !has_all });
            }
            drop(index);
            if is_late {
                return None;
            }
            Handle::current().block_on(tokio::time::sleep(Duration::from_millis(5)));
        }
    }

    fn update_soon(self: &Arc<Self>, opener: &Arc<FileOpener>, view: &Arc<SnapshotView>) {
        let mut progress = self.progress.lock();
        if progress.is_updating || progress.is_too_large {
            return;
        }
        progress.is_updating = true;
        let (names, opener, view) = (Arc::clone(self), Arc::clone(opener), Arc::clone(view));
        drop(Handle::current().spawn_blocking(move || {
            names.update(&opener, &view);
            names.progress.lock().is_updating = false;
        }));
    }

    fn update(&self, opener: &FileOpener, view: &SnapshotView) {
        match self.updated(opener, view) {
            Ok(true) => self.save(),
            Ok(false) => {}
            Err(error @ (UpdateNamesError::TooLarge | UpdateNamesError::Ended)) => {
                tracing::warn!(%error, "names are searched without an index");
                *self.index.write() = None;
                self.progress.lock().is_too_large = true;
            }
        }
    }

    /// Adds all snapshots. Returns true if the index has changed.
    fn updated(&self, opener: &FileOpener, view: &SnapshotView) -> Result<bool, UpdateNamesError> {
        let open = |snapshot: &Snapshot| opener.for_a_walk(snapshot);
        // Searches walk the snapshots until the first index is whole.
        if self.index.read().is_none() {
            let mut index = self.saved();
            let update = index.update(&open, view.snapshots(), usize::MAX, &|| false)?;
            *self.index.write() = Some(index);
            return Ok(update.is_changed);
        }
        let mut is_changed = false;
        loop {
            // A search goes on between two snapshots.
            let mut index = self.index.write();
            let Some(index) = &mut *index else { return Ok(is_changed) };
            let update = index.update(&open, view.snapshots(), 1, &|| false)?;
            is_changed |= update.is_changed;
            if update.is_whole {
                return Ok(is_changed);
            }
        }
    }

    fn saved(&self) -> NameIndex {
        let saved = self.store.as_ref().and_then(|store| store.vault().read_secret_pieces(&NAMES));
        saved.and_then(|mut saved| NameIndex::read(&mut *saved)).unwrap_or_default()
    }

    fn save(&self) {
        let Some(store) = &self.store else { return };
        if self.progress.lock().saved_at.is_some_and(|at| at.elapsed() < SAVE_AGE) {
            return;
        }
        // Searches go on meanwhile. Only this thread changes the index.
        let index = self.index.read();
        let Some(index) = index.as_ref() else { return };
        self.progress.lock().saved_at = Some(Instant::now());
        if let Err(error) = store.vault().write_secret_pieces(&NAMES, &mut |into| index.write(into)) {
            tracing::warn!(%error, file = NAMES.file, "the index of names was not saved");
        }
    }
}
