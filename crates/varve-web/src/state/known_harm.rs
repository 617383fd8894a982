//! The harm that lost blocks do: the files and folders of snapshots that cannot be read in full.
//!
//! The trees of the snapshots are walked once for a set of lost blocks, in the background. A page
//! then only looks up its paths. Without lost blocks, nothing is walked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use parking_lot::Mutex;
use tokio::time::Instant;
use varve_archive::{Archive, Harm, SnapshotId, harm_of};
use varve_block::{BlockName, BlockStore};
use varve_content::Progress;
use varve_log::ArenaId;
use varve_upkeep::Checker;

/// Harmed parts that are looked for. The newest snapshots come first.
const HARM_MAX: usize = 100_000;
/// With the same lost blocks, new snapshots are walked at most this often.
const WALK_AGE: Duration = Duration::from_secs(3_600);

/// The harmed paths of snapshots.
#[derive(Default)]
pub(crate) struct KnownHarm {
    paths: BTreeMap<SnapshotId, BTreeSet<Vec<u8>>>,
    /// The snapshots that were looked at.
    looked_at: BTreeSet<SnapshotId>,
}

impl KnownHarm {
    fn of(harm: Vec<Harm>, looked_at: BTreeSet<SnapshotId>) -> Self {
        let mut paths: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for Harm { snapshot, path, .. } in harm {
            paths.entry(snapshot).or_default().insert(path);
        }
        Self { paths, looked_at }
    }

    /// Reports whether a snapshot was looked at.
    pub(crate) fn has_looked_at(&self, snapshot: &SnapshotId) -> bool {
        self.looked_at.contains(snapshot)
    }

    /// The harmed paths of a snapshot. The path of a whole disk is empty.
    pub(crate) fn paths(&self, snapshot: &SnapshotId) -> impl ExactSizeIterator<Item = &[u8]> {
        self.paths.get(snapshot).unwrap_or(const { &BTreeSet::new() }).iter().map(Vec::as_slice)
    }

    /// Reports whether a file, or the list of a folder, is harmed.
    pub(crate) fn is_harmed(&self, snapshot: &SnapshotId, path: &[u8]) -> bool {
        self.paths.get(snapshot).is_some_and(|paths| paths.contains(path))
    }

    /// Reports whether something in a folder is harmed.
    pub(crate) fn is_harmed_below(&self, snapshot: &SnapshotId, folder: &[u8]) -> bool {
        let beginning = [folder, b"/"].concat();
        let first = self.paths.get(snapshot).and_then(|paths| paths.range(beginning.clone()..).next());
        first.is_some_and(|path| path.starts_with(&beginning))
    }

    /// Reports whether a place inside a disk is in a harmed file.
    pub(crate) fn is_in_harmed_file(&self, snapshot: &SnapshotId, place: &[u8]) -> bool {
        let ends = place.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let is_harmed = |end: usize| self.is_harmed(snapshot, &place[..end]);
        ends.chain([0, place.len()]).any(is_harmed)
    }
}

/// Finds the harm of an archive, and remembers it as long as nothing has changed.
#[derive(Default)]
pub(crate) struct HarmSearch(Mutex<Option<FoundHarm>>);

struct FoundHarm {
    losses: NotedLosses,
    harm: Arc<KnownHarm>,
    found_at: Instant,
}

/// The losses and the damage that the store has noted.
#[derive(PartialEq, Eq)]
struct NotedLosses {
    blocks: BTreeSet<BlockName>,
    /// Blocks were lost whose names are not known.
    has_nameless: bool,
    arenas: BTreeSet<ArenaId>,
}

impl NotedLosses {
    fn read(archive: &Archive) -> Self {
        let (store, losses) = (archive.store(), archive.losses());
        let mut blocks: BTreeSet<_> = losses.blocks().map(|block| block.name).collect();
        blocks.extend(store.lost_blocks().into_iter().filter(|name| store.get(name).is_err()));
        let has_nameless = losses.is_incomplete() || losses.places().next().is_some();
        Self { blocks, has_nameless, arenas: Checker::of(store).damaged_arenas() }
    }

    fn is_empty(&self) -> bool {
        self.blocks.is_empty() && !self.has_nameless && self.arenas.is_empty()
    }
}

impl HarmSearch {
    /// The harm that is known; `None` if no loss is known.
    pub(crate) fn find(&self, archive: &Archive) -> Result<Option<Arc<KnownHarm>>> {
        let losses = NotedLosses::read(archive);
        if losses.is_empty() {
            return Ok(None);
        }
        let mut newest: Vec<_> = archive.snapshots().iter().collect();
        newest.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.time));
        let mut found = self.0.lock();
        if let Some(found) = found.as_ref().filter(|found| found.losses == losses) {
            let has_all = newest.iter().all(|snapshot| found.harm.has_looked_at(&snapshot.id));
            if has_all || found.found_at.elapsed() < WALK_AGE {
                return Ok(Some(Arc::clone(&found.harm)));
            }
        }
        let lost = losses.blocks.clone();
        let harm = harm_of(archive.store(), newest.iter().copied(), lost, HARM_MAX, &Progress::new())?;
        // The snapshots after the one at which the search has ended were not looked at.
        let last = harm.last().filter(|_| harm.len() >= HARM_MAX).map(|last| last.snapshot);
        let count = last.and_then(|last| newest.iter().position(|snapshot| snapshot.id == last));
        let looked_at =
            newest.iter().take(count.unwrap_or(newest.len())).map(|snapshot| snapshot.id).collect();
        let harm = Arc::new(KnownHarm::of(harm, looked_at));
        *found = Some(FoundHarm { losses, harm: Arc::clone(&harm), found_at: Instant::now() });
        Ok(Some(harm))
    }
}

#[cfg(test)]
mod tests {
    use varve_world::Timestamp;

    use super::*;

    #[test]
    fn harm_is_found_by_its_path() {
        let id = SnapshotId([1; 16]);
        let harm = |path: &[u8]| Harm {
            snapshot: id,
            snapshot_name: "home".into(),
            snapshot_time: Timestamp(0),
            path: path.to_vec(),
            range: Some(0..5),
            reason: "lost".into(),
        };
        let known = KnownHarm::of(vec![harm(b"a/b/c"), harm(b"disk.img"), harm(b"disk.img")], [id].into());
        assert_eq!(known.paths(&id).collect::<Vec<_>>(), [&b"a/b/c"[..], b"disk.img"]);
        assert!(known.is_harmed(&id, b"a/b/c") && !known.is_harmed(&id, b"a/b"));
        assert!(known.is_harmed_below(&id, b"a") && known.is_harmed_below(&id, b"a/b"));
        // Names that begin alike are other names.
        assert!(!known.is_harmed_below(&id, b"a/") && !known.is_harmed_below(&id, b"dis"));
        assert!(
            known.is_in_harmed_file(&id, b"disk.img/1-ext4/etc") && known.is_in_harmed_file(&id, b"disk.img")
        );
        assert!(!known.is_in_harmed_file(&id, b"disk/1-ext4"));
        let other = SnapshotId([2; 16]);
        assert!(known.paths(&other).len() == 0 && known.has_looked_at(&id) && !known.has_looked_at(&other));
        let whole = KnownHarm::of(vec![harm(b"")], [id].into());
        assert!(whole.is_in_harmed_file(&id, b"1-ext4/etc") && whole.is_harmed(&id, b""));
    }
}
