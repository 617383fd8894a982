//! Applies a plan: uploads several segments at a time, in an order that leaves a good replica
//! wherever it stops.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use varve_log::{ArenaId, ReadLogError};
use varve_remote::{Observer, PutMode, Target, TargetError};
use varve_world::{Claims, FileLock, FileName, LockError, Workers, work_in_order};

use crate::objects::listing::{FORMAT_PAGE, ListedSegment, ReplicaListing};
use crate::objects::record_ends::{ArenaRecords, RecordsDamage};
use crate::reading::replica::Replica;
use crate::replication::error::ReplicateError;
use crate::replication::history::{take_out_strays, tell_apart};
use crate::replication::planned_segments::{PlannedSegment, plan_arena, there_before};
use crate::replication::planner::{ReplicateOptions, check_identity};
use crate::replication::replica_end::ReplicaEnd;
use crate::replication::replication_plan::{DamagedInStore, PlannedSetting, ReplicationPlan};
use crate::replication::replication_source::ReplicationSource;
use crate::replication::segment_source::take_segment;
use crate::replication::superseded_since::SupersededSince;

/// The result of a replication.
#[derive(Debug, Default)]
pub struct Replicated {
    /// The objects that were put.
    pub object_count: u64,
    /// The bytes of the log that were uploaded.
    pub uploaded_bytes: u64,
    /// A collector has replaced an arena since the plan was made, or a writer has changed its end.
    /// The upload has stopped there, and the rest needs another plan.
    pub is_outdated: bool,
    /// The damaged arenas of the store, including those found during the upload.
    pub damaged: Vec<DamagedInStore>,
    /// The keys that were removed from the target.
    pub removed_keys: Vec<FileName>,
    /// The end of the replica now.
    pub reaches: Option<ReplicaEnd>,
    /// The target after it.
    pub(crate) listing: ReplicaListing,
}

impl Replicated {
    /// Compares the store with the target as it was at the end of the replication: it is not listed
    /// again.
    ///
    /// # Errors
    /// As for [`ReplicationPlan::new`].
    pub fn plan_again(
        self,
        source: ReplicationSource<'_>,
        target: &Arc<dyn Target>,
        options: &ReplicateOptions,
    ) -> Result<ReplicationPlan, ReplicateError> {
        ReplicationPlan::of_listing(source, target, self.listing, options)
    }
}

impl ReplicationPlan {
    /// Uploads the plan with all workers. May be stopped at any moment and repeated.
    ///
    /// # Errors
    /// [`ReplicateError`]; earlier uploads count.
    pub fn apply(
        self,
        source: ReplicationSource<'_>,
        target: &Arc<dyn Target>,
        options: &ReplicateOptions,
        workers: &dyn Workers,
        observer: &dyn Observer,
    ) -> Result<Replicated, ReplicateError> {
        let _lock = lock(source)?;
        make_durable(source, &self.segments)?;
        observer.set_total(self.bytes());
        let mut done = Replicated { object_count: self.put_settings(&**target)?, ..Replicated::default() };
        let upload = UploadRun {
            source,
            target: target.as_ref(),
            there_before: there_before(&self.segments, &self.succeeding),
            observer,
            segment_bytes: options.segment_bytes,
            is_outdated: AtomicBool::new(false),
            damaged: Mutex::default(),
            records: Mutex::default(),
        };
        let put = upload.put_all(&self.segments, workers)?;
        done.object_count += put.len() as u64;
        done.uploaded_bytes = put.iter().map(|segment| segment.bytes()).sum();
        done.is_outdated = upload.is_outdated.into_inner();
        done.damaged = self.damaged;
        done.damaged.extend(upload.damaged.into_inner().into_values());
        let after = check_after(source, target, options, &self.listing, put)?;
        let is_missing = |setting: &&PlannedSetting| !after.settings.contains_key(&setting.file);
        if let Some(missing) = self.settings.iter().find(is_missing) {
            return Err(ReplicateError::Vanished { object: missing.file.clone() });
        }
        if options.delete_extra_keys {
            for key in &self.extra_keys {
                target.remove(key)?;
            }
            done.removed_keys = self.extra_keys;
        }
        // The listing of that check has found them.
        match target.remove_leftovers() {
            0 => {}
            count => tracing::info!(%target, count, "removed unfinished objects of interrupted replications"),
        }
        done.reaches = ReplicaEnd::of(after.assemble().iter());
        if let Some(seen) = done.reaches
            && let Err(error) = seen.write(source.world.storage.as_ref(), source.log.keys(), target.as_ref())
        {
            tracing::warn!(%error, "the state of the replica could not be recorded");
        }
        note_superseded(source, target.as_ref(), &after);
        done.listing = after;
        Ok(done)
    }

    /// Puts the planned settings, and returns the number of those that were put.
    fn put_settings(&self, target: &dyn Target) -> Result<u64, ReplicateError> {
        let mut count = 0;
        for setting in &self.settings {
            let mode = if setting.replaces { PutMode::Replace } else { PutMode::Create };
            match target.put(&setting.file, setting.contents.clone(), mode) {
                Ok(()) => count += 1,
                // If another process was faster, the check after the upload decides.
                Err(TargetError::Exists { .. }) => {}
                // A target may refuse to replace anything. A reader needs the page only if there is
                // no program.
                Err(error) if setting.replaces && setting.is_page() => {
                    tracing::warn!(%error, "{FORMAT_PAGE} at the target is of an earlier program, and cannot be replaced");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(count)
    }
}

/// Records the generations that are not needed at the target any more. If this fails, their time
/// begins later.
fn note_superseded(source: ReplicationSource<'_>, target: &dyn Target, listing: &ReplicaListing) {
    let (storage, keys) = (source.world.storage.as_ref(), source.log.keys());
    let mut record = SupersededSince::read(storage, keys, target);
    if record.note_listed(listing, source.world.clock.now())
        && let Err(error) = record.write(storage, keys, target)
    {
        tracing::warn!(%error, "the earlier generations at the replica could not be recorded");
    }
}

/// Locks the store, so that one process at a time replicates it. If no lock can be made, the
/// replication runs without one: the disk may be failing, and its data should still be copied.
pub(crate) fn lock(source: ReplicationSource<'_>) -> Result<Option<Box<dyn FileLock>>, ReplicateError> {
    let file = FileName::new("replicate.lock").expect("a plain name");
    match source.world.storage.lock(&file, "another replication") {
        Ok(lock) => Ok(Some(lock)),
        Err(held @ LockError::Held { .. }) => Err(ReplicateError::Busy(held)),
        Err(error @ LockError::Storage { .. }) => {
            tracing::warn!(%error, "the store is replicated without a lock");
            Ok(None)
        }
    }
}

/// Syncs the planned arenas. Another process may have written them, and a power cut could take the
/// data back. Then the replica would be ahead of the store.
fn make_durable(source: ReplicationSource<'_>, segments: &[PlannedSegment]) -> Result<(), ReplicateError> {
    let storage = source.world.storage.as_ref();
    let arenas: BTreeSet<_> = segments.iter().map(|put| put.name.arena).collect();
    let settled = |result: io::Result<()>, file: FileName| match result {
        // A read-only file system has no unwritten data.
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(()),
        Err(source) => Err(ReplicateError::Storage { file, source }),
        Ok(()) => Ok(()),
    };
    for arena in &arenas {
        settled(storage.sync(&arena.file_name()), arena.file_name())?;
    }
    if let Some(last) = arenas.last() {
        settled(storage.sync_folder(ArenaId::FOLDER), last.file_name())?;
    }
    Ok(())
}

struct UploadRun<'a> {
    source: ReplicationSource<'a>,
    target: &'a dyn Target,
    /// For each segment, the number of first segments that must be complete before it.
    there_before: Vec<usize>,
    observer: &'a dyn Observer,
    segment_bytes: u64,
    is_outdated: AtomicBool,
    /// The first damage of each damaged arena.
    damaged: Mutex<BTreeMap<ArenaId, DamagedInStore>>,
    /// The records of the most recent arenas.
    records: Mutex<BTreeMap<ArenaId, Arc<ArenaRecords>>>,
}

/// A segment with its number in the plan.
type NumberedSegment<'a> = (usize, &'a PlannedSegment);

/// The arenas whose records are kept: neighbours in the plan share them.
const RECORDS_KEPT: usize = 2;

/// The result for one segment.
enum PutOutcome {
    Put,
    /// The arena of the segment is another one now, or ends elsewhere.
    Outdated,
    Damaged(RecordsDamage),
}

impl<'a> UploadRun<'a> {
    /// Puts the segments with all workers, and returns those that were put.
    fn put_all(
        &self,
        segments: &'a [PlannedSegment],
        workers: &dyn Workers,
    ) -> Result<Vec<&'a PlannedSegment>, ReplicateError> {
        let mut put = Vec::new();
        let add = |segment: Option<&'a PlannedSegment>| {
            put.extend(segment);
            Ok(())
        };
        let numbered = segments.iter().enumerate().map(Ok);
        work_in_order(workers, usize::MAX, numbered, |claims| self.work(claims), add)?;
        Ok(put)
    }

    fn work(&self, claims: &Claims<'_, NumberedSegment<'a>, Option<&'a PlannedSegment>, ReplicateError>) {
        while let Some(((number, segment), turn)) = claims.claim() {
            // The wait fails if an earlier segment has failed.
            let is_due = turn.wait_for(self.there_before[number]);
            turn.end(if is_due { self.put_if_whole(segment) } else { Ok(None) });
        }
    }

    /// Puts a segment and returns it, unless it is damaged or follows damage in its arena.
    fn put_if_whole(
        &self,
        segment: &'a PlannedSegment,
    ) -> Result<Option<&'a PlannedSegment>, ReplicateError> {
        if self.observer.is_cancelled() {
            return Err(ReplicateError::Cancelled);
        }
        // The order of the segments leaves a good replica wherever it stops.
        if self.is_outdated.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let (arena, start) = (segment.name.arena, segment.range.start);
        if self.damaged.lock().get(&arena).is_some_and(|damage| damage.offset <= start) {
            return Ok(None);
        }
        let reason = match self.put(segment)? {
            PutOutcome::Put => {
                self.observer.add_done(segment.bytes());
                return Ok(Some(segment));
            }
            PutOutcome::Outdated => {
                tracing::info!(%arena, "an arena was changed since the plan was made");
                self.is_outdated.store(true, Ordering::Relaxed);
                return Ok(None);
            }
            PutOutcome::Damaged(reason) => reason,
        };
        let found = DamagedInStore { arena, offset: start.max(reason.offset()), reason };
        let mut damaged = self.damaged.lock();
        if damaged.get(&arena).is_none_or(|other| other.offset > found.offset) {
            damaged.insert(arena, found);
        }
        Ok(None)
    }

    fn put(&self, put: &PlannedSegment) -> Result<PutOutcome, ReplicateError> {
        let storage = &self.source.world.storage;
        let taken = self.records(put.name.arena).and_then(|records| {
            let is_there = self.has(&records, put);
            is_there.then(|| take_segment(self.source.log, storage, &records, put)).transpose()
        });
        let bytes = match taken {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(PutOutcome::Outdated),
            Err(error) if error.is_damage() => {
                self.records.lock().remove(&put.name.arena);
                let now = self.records(put.name.arena);
                let is_outdated = now.is_ok_and(|now| !self.has(&now, put));
                return Ok(if is_outdated {
                    PutOutcome::Outdated
                } else {
                    PutOutcome::Damaged(error.into())
                });
            }
            Err(error) => return Err(error.into()),
        };
        let mode = if put.replaces { PutMode::Replace } else { PutMode::Create };
        match self.target.put(&put.name.file_name(), bytes, mode) {
            // The same name means the same records: an earlier attempt succeeded after all.
            Ok(()) | Err(TargetError::Exists { .. }) => Ok(PutOutcome::Put),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns true unless the arena is whole, and does not have the segment.
    fn has(&self, records: &ArenaRecords, put: &PlannedSegment) -> bool {
        let one = ListedSegment { name: put.name.clone(), bytes: put.bytes() };
        records.damage.is_some() || has_segment(records, &one, self.segment_bytes)
    }

    /// Returns the records of an arena. They are read again, because the plan of a whole store
    /// would not fit into memory with them.
    fn records(&self, id: ArenaId) -> Result<Arc<ArenaRecords>, ReadLogError> {
        if let Some(records) = self.records.lock().get(&id) {
            return Ok(Arc::clone(records));
        }
        let read = |opened| ArenaRecords::read(self.source.log, &opened);
        let records = Arc::new(self.source.log.read_arena(id, read)?);
        let mut kept = self.records.lock();
        kept.insert(id, Arc::clone(&records));
        if kept.len() > RECORDS_KEPT {
            kept.pop_first();
        }
        Ok(records)
    }
}

/// Returns true if a segment begins and ends at records of this arena.
fn has_segment(records: &ArenaRecords, segment: &ListedSegment, segment_bytes: u64) -> bool {
    let one = std::slice::from_ref(segment);
    plan_arena(records, one, segment_bytes, &BTreeSet::new()).unknown.is_empty()
}

/// Lists the target again. Checks that the uploaded objects arrived, and that no other history was
/// written meanwhile.
fn check_after(
    source: ReplicationSource<'_>,
    target: &Arc<dyn Target>,
    options: &ReplicateOptions,
    before: &ReplicaListing,
    put: Vec<&PlannedSegment>,
) -> Result<ReplicaListing, ReplicateError> {
    let mut after = ReplicaListing::read(target.as_ref())?.within(source.config.arena_map);
    check_identity(source, target.as_ref(), &after, &BTreeSet::new())?;
    after.require_clear()?;
    let there: BTreeSet<&ListedSegment> =
        after.arenas.values().flat_map(|all| all.values().flatten()).collect();
    let mut expected: BTreeSet<ListedSegment> =
        before.arenas.values().flat_map(|all| all.values().flatten()).cloned().collect();
    for put in put {
        let segment = ListedSegment { name: put.name.clone(), bytes: put.bytes() };
        if !there.contains(&segment) {
            return Err(ReplicateError::Vanished { object: segment.name.file_name() });
        }
        expected.insert(segment);
    }
    let strange: Vec<_> = there.into_iter().filter(|segment| !expected.contains(segment)).cloned().collect();
    let is_ours = |segment: &ListedSegment| {
        let read = |opened| ArenaRecords::read(source.log, &opened);
        let records = source.log.read_arena(segment.name.arena, read);
        records.is_ok_and(|records| has_segment(&records, segment, options.segment_bytes))
    };
    let unknown = strange.into_iter().filter(|segment| !is_ours(segment)).collect();
    if let Some(first) = take_out_strays(source, target, &mut after, unknown)?.into_iter().next() {
        let replica = Replica::of(Arc::clone(target), after);
        return Err(tell_apart(source, &replica, &first)?);
    }
    Ok(after)
}
