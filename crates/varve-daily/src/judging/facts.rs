//! The facts about a store that daily work depends on: snapshots, trash, and readings of the log.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use varve_archive::retention::Dated;
use varve_archive::{Archive, SnapshotId, WorkDays};
use varve_log::OpenLogError;
use varve_upkeep::Checker;
use varve_world::Timestamp;

use super::drill_record::{Drill, DrillRecord};

/// A snapshot, as far as daily work is concerned.
#[derive(Debug, Clone)]
pub struct SnapshotFact {
    pub id: SnapshotId,
    pub name: String,
    pub host: String,
    /// The path of the source on its host.
    pub source: Vec<u8>,
    pub time: Timestamp,
    /// The number of files that were not archived as they are.
    pub problem_count: u64,
    /// The number of entries of an archived folder, without itself; 0 for any other source.
    pub entry_count: u64,
    /// Bytes by which the log grew.
    pub stored_bytes: u64,
    /// The properties that the rules of retention judge.
    pub dated: Dated,
}

/// The facts about a store.
#[derive(Debug, Clone, Default)]
pub struct StoreFacts {
    pub snapshots: Vec<SnapshotFact>,
    /// The ends of undo of the forgotten snapshots whose data is still kept, as far as they are
    /// known.
    pub undo_ends: Vec<Timestamp>,
    /// The nights of work, which bear out the clock.
    pub nights: WorkDays,
    /// The time of each arena's last reading; for an arena that was never read, the time when it
    /// was begun.
    pub read_since: Vec<Timestamp>,
    /// The times of readings.
    pub readings: BTreeSet<Timestamp>,
    /// The drills that were recorded, the oldest first.
    pub drills: Vec<Drill>,
    pub damaged_arena_count: usize,
    pub lost_block_count: usize,
}

impl StoreFacts {
    /// Reads the facts of an archive whose key may read. `folder` is that of the store, unless it
    /// is at a server.
    ///
    /// # Errors
    /// [`OpenLogError`] when its arenas cannot be listed.
    pub fn read(archive: &Archive, folder: Option<&Path>) -> Result<Self, OpenLogError> {
        let store = archive.store();
        let checker = Checker::of(store);
        let ids = store.arenas()?;
        let readings = checker.readings(&checker.audit(), &ids);
        let born = |id: &varve_log::ArenaId| {
            folder.and_then(|folder| birth(&folder.join(id.file_name().to_string()))).unwrap_or(Timestamp(0))
        };
        let nights = WorkDays::of(archive.catalog());
        Ok(Self {
            snapshots: snapshot_facts(archive),
            undo_ends: archive.trash().iter().filter_map(|trashed| nights.end_of_undo(trashed)).collect(),
            nights,
            read_since: readings.iter().map(|(id, read)| read.unwrap_or_else(|| born(id))).collect(),
            readings: readings.iter().filter_map(|(_, read)| *read).collect(),
            drills: DrillRecord::read(store.vault()).drills().to_vec(),
            damaged_arena_count: checker.damaged_arenas().len(),
            lost_block_count: archive.losses().blocks().filter(|block| block.accepted.is_none()).count(),
        })
    }
}

/// Returns the snapshots of an archive.
#[must_use]
pub fn snapshot_facts(archive: &Archive) -> Vec<SnapshotFact> {
    let fact = |snapshot: &varve_archive::Snapshot| SnapshotFact {
        id: snapshot.id,
        name: snapshot.name.clone(),
        host: snapshot.host.clone(),
        source: snapshot.source.clone(),
        time: snapshot.time,
        problem_count: snapshot.problem_count,
        entry_count: snapshot.entry_count(),
        stored_bytes: snapshot.growth.map_or(0, |growth| growth.stored_bytes),
        dated: Dated::of(snapshot, labels(snapshot), snapshot.keep_until),
    };
    archive.snapshots().iter().map(fact).collect()
}

fn labels(snapshot: &varve_archive::Snapshot) -> Vec<String> {
    snapshot.holds.iter().map(|hold| hold.label.clone()).collect()
}

/// Returns the time when a file was made; if the file system does not know it, that of its last
/// change.
fn birth(file: &Path) -> Option<Timestamp> {
    let metadata = fs::metadata(file).ok()?;
    let time = metadata.created().or_else(|_| metadata.modified()).ok()?;
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_nanos()).ok().map(Timestamp)
}

/// Returns a text that changes whenever something is written to a store in this folder, or `None`
/// if there is none. It costs a look at the names, lengths and times of its files.
#[must_use]
pub fn store_mark(folder: &Path) -> Option<String> {
    let mut hasher = DefaultHasher::new();
    let mut names: Vec<_> =
        fs::read_dir(folder.join("arenas")).ok()?.flatten().map(|entry| entry.path()).collect();
    names.sort();
    names.extend(["config.toml", "index/audit", "index/drills"].map(|name| folder.join(name)));
    for name in names {
        let found =
            fs::metadata(&name).map(|found| (found.ino(), found.len(), found.mtime(), found.mtime_nsec()));
        (name, found.ok()).hash(&mut hasher);
    }
    Some(format!("{:016x}", hasher.finish()))
}
