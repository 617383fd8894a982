//! Decides whether segments that this log lacks belong to the same history. If they do, the log is
//! only a shorter prefix.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use varve_block::to_hex;
use varve_log::{
    ArenaHeader, ArenaId, ArenaState, Granule, LogKeys, OpenedArena, ReadLogError, RecordHeader, Seal, Seals,
};
use varve_remote::Target;

use crate::objects::listing::{ListedSegment, ReplicaListing};
use crate::objects::object_name::{SegmentEnd, SegmentName};
use crate::objects::record_ends::ArenaRecords;
use crate::reading::replica::Replica;
use crate::reading::replica_storage::ReplicaStorage;
use crate::replication::error::ReplicateError;
use crate::replication::replication_source::ReplicationSource;

/// The seals in a log, and the number that its last page has counted.
#[derive(Debug, Default)]
pub(crate) struct CountedSeals {
    pub(crate) seals: Seals,
    pub(crate) count: u64,
}

impl CountedSeals {
    /// Returns the number of counted seals that are missing.
    pub(crate) fn missing_count(&self) -> u64 {
        self.seals.missing_count(self.count)
    }

    /// Adds the seal of an arena that is missing here. Returns false if the seal falls among the
    /// counted ones, changes their ledger, and does not fill a gap.
    fn take_in(&mut self, keys: &LogKeys, arena: ArenaId, seal: Seal) -> bool {
        let before = (self.missing_count(), self.seals.ledger(keys, self.count));
        self.seals.insert(arena, seal);
        self.missing_count() < before.0 || self.seals.ledger(keys, self.count) == before.1
    }
}

/// Decides whether a replica with segments that this log lacks continues the log, or has another
/// history.
pub(crate) fn tell_apart(
    source: ReplicationSource<'_>,
    replica: &Replica,
    unknown: &ListedSegment,
) -> Result<ReplicateError, ReplicateError> {
    let (arena, object) = (unknown.name.arena, unknown.name.file_name());
    if unknown.name.offset == 0 {
        let bytes = replica.target().get(&object, 0..unknown.bytes.min(ArenaHeader::BYTES))?;
        if let Some(theirs) = ArenaHeader::claimed_store(&bytes).filter(|theirs| *theirs != source.config.id)
        {
            return Ok(ReplicateError::ForeignObject { object, theirs: to_hex(&theirs) });
        }
    }
    let diverged = ReplicateError::Diverged { arena, object: object.clone() };
    let ahead = ReplicateError::Ahead { arena, object };
    for id in source.log.arenas()?.into_iter().rev() {
        let Ok(opened) = source.log.open_arena(id) else { continue };
        let Some(last) = last_record(source, &opened)? else { continue };
        // Compares the headers of records as bytes: they are unique in all histories.
        let range = last..last + RecordHeader::BYTES as u64;
        let mut here = [0; RecordHeader::BYTES];
        let file = id.file_name();
        let read = source.world.storage.read_at(&file, last, &mut here);
        read.map_err(|error| ReplicateError::Storage { file, source: error })?;
        return Ok(match replica.read_arena(id, range) {
            Ok(there) if *there == here => ahead,
            Ok(_) => diverged,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => diverged,
            Err(error) if error.kind() == io::ErrorKind::NotFound => diverged,
            Err(error) => {
                let object = SegmentName { arena: id, ..unknown.name.clone() }.file_name();
                return Err(ReplicateError::Storage { file: object, source: error });
            }
        });
    }
    // The log is empty, so the replica is ahead.
    Ok(ahead)
}

/// Removes stray segments from those that this log lacks, and returns the others in order. A stray
/// segment says nothing about the history: no segment or record precedes it, none follows it, and
/// no key of the store has written its first record. Everybody with write access to the target can
/// make one. It becomes a stranger.
pub(crate) fn take_out_strays(
    source: ReplicationSource<'_>,
    target: &Arc<dyn Target>,
    listing: &mut ReplicaListing,
    mut unknown: Vec<ListedSegment>,
) -> Result<Vec<ListedSegment>, ReplicateError> {
    unknown.sort();
    let (mut strays, mut kept) = (BTreeSet::new(), Vec::new());
    // Holds the records of one arena at a time.
    let mut here: Option<(ArenaId, Option<LocalArena>)> = None;
    for segment in unknown {
        let id = segment.name.arena;
        if has_neighbour(listing, &segment) {
            kept.push(segment);
            continue;
        }
        if here.as_ref().is_none_or(|(arena, _)| *arena != id) {
            here = Some((id, LocalArena::read(source, id)?));
        }
        let here = here.as_ref().and_then(|(_, here)| here.as_ref());
        let is_ours = match here.filter(|here| here.records.generation == segment.name.generation) {
            Some(here) => here.leads_to(&segment) || is_written_by(source, &here.opened, target, &segment)?,
            None => false,
        };
        if is_ours {
            kept.push(segment);
        } else {
            strays.insert(segment);
        }
    }
    if !strays.is_empty() {
        listing.set_apart(|segment| strays.contains(segment));
    }
    Ok(kept)
}

/// Returns true if a segment begins its arena, or is adjacent to another listed one.
fn has_neighbour(listing: &ReplicaListing, segment: &ListedSegment) -> bool {
    let name = &segment.name;
    let fits = |before: &ListedSegment, after: &ListedSegment| {
        before.range().end == after.name.offset && before.name.end == SegmentEnd::Record(after.name.start)
    };
    let generations = listing.arenas.get(&name.arena);
    let mut others = generations.and_then(|all| all.get(&name.generation)).into_iter().flatten();
    name.offset == 0 || others.any(|other| fits(other, segment) || fits(segment, other))
}

/// A local arena.
struct LocalArena {
    opened: OpenedArena,
    records: ArenaRecords,
}

impl LocalArena {
    /// Returns `None` if there is no such arena, or it is unreadable.
    fn read(source: ReplicationSource<'_>, id: ArenaId) -> Result<Option<Self>, ReplicateError> {
        if !source.log.arenas()?.contains(&id) {
            return Ok(None);
        }
        let read = source.log.open_arena(id).and_then(|opened| {
            let records = ArenaRecords::read_left(source.log, &opened)?;
            Ok(Self { opened, records })
        });
        match read {
            Ok(here) => Ok(Some(here)),
            Err(error) if error.is_damage() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn leads_to(&self, segment: &ListedSegment) -> bool {
        self.records.start_at(segment.name.offset) == Some(segment.name.start)
    }
}

/// Returns true if a key of the store has written the first record of a segment, for exactly that
/// place.
fn is_written_by(
    source: ReplicationSource<'_>,
    opened: &OpenedArena,
    target: &Arc<dyn Target>,
    segment: &ListedSegment,
) -> Result<bool, ReplicateError> {
    let granule = Granule::at_or_after(segment.name.offset);
    let Some(granule) = granule.filter(|granule| granule.byte_offset() == segment.name.offset) else {
        return Ok(false);
    };
    let replica = Arc::new(Replica::of_one(Arc::clone(target), segment.clone()));
    let there = source.log.over(Arc::new(ReplicaStorage::new(replica, None, None)));
    match there.window(opened, 0).authenticate(granule) {
        // Without the read key, the record cannot be refuted.
        Ok(_) | Err(ReadLogError::NoReadKey { .. }) => Ok(true),
        Err(error) if error.is_damage() => Ok(false),
        Err(error) => {
            let file = segment.name.file_name();
            Err(ReplicateError::Storage { file, source: io::Error::other(error) })
        }
    }
}

/// Returns the offset of an arena's last acknowledged record, in bytes.
fn last_record(source: ReplicationSource<'_>, opened: &OpenedArena) -> Result<Option<u64>, ReplicateError> {
    if source.log.file_bytes(opened.id())? <= ArenaHeader::BYTES {
        return Ok(None);
    }
    let records = ArenaRecords::read_left(source.log, opened)?;
    Ok(records.last().map(|record| record.granule.byte_offset()))
}

/// Refuses a replica with a sealed arena that this store has lost, if another arena here has its
/// place among the seals. The store then continued as if that arena had never existed, and the two
/// do not form one log.
pub(crate) fn require_place(
    source: ReplicationSource<'_>,
    target: &Arc<dyn Target>,
    listing: &ReplicaListing,
    missing: &[ArenaId],
    mut counted: CountedSeals,
) -> Result<(), ReplicateError> {
    if missing.is_empty() {
        return Ok(());
    }
    let replica = Arc::new(Replica::of(Arc::clone(target), listing.clone()));
    let there = source.log.over(Arc::new(ReplicaStorage::new(replica, None, None)));
    for arena in missing {
        let segments = listing.arenas.get(arena).and_then(|all| all.values().next_back());
        let Some(first) = segments.and_then(|all| all.first()) else { continue };
        let object = first.name.file_name();
        let seal = match there.open_arena(*arena).and_then(|opened| Ok((there.state(&opened)?, opened))) {
            Ok((ArenaState::Sealed { footer, .. }, opened)) => Seal::of(opened.header(), &footer),
            Ok((ArenaState::Unsealed, _)) => continue,
            // A damaged arena of the replica is no evidence.
            Err(error) if error.is_damage() => continue,
            Err(error) => {
                return Err(ReplicateError::Storage { file: object, source: io::Error::other(error) });
            }
        };
        if !counted.take_in(source.log.keys(), *arena, seal) {
            return Err(ReplicateError::Diverged { arena: *arena, object });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(arena: u64, ordinal: u64) -> (ArenaId, Seal) {
        let code = [u8::try_from(arena).unwrap(); 32];
        (ArenaId(arena), Seal { ordinal, generation: 0, code })
    }

    /// Returns true if the lost arena 0, with this ordinal, fits between the arenas 1 to 3.
    fn fits(ordinal: u64, places: [u64; 3], count: u64) -> bool {
        let seals = (1..).zip(places).map(|(arena, place)| seal(arena, place)).collect();
        let (arena, lost) = seal(0, ordinal);
        CountedSeals { seals, count }.take_in(&LogKeys::from_master(&[9; 32]), arena, lost)
    }

    #[test]
    fn an_arena_fits_where_its_seal_is_missed_or_was_never_counted() {
        assert!(fits(0, [1, 2, 3], 4));
        assert!(fits(2, [0, 1, 3], 4));
        assert!(fits(3, [0, 1, 2], 3), "it came after all that was counted");
        assert!(!fits(0, [0, 1, 2], 3));
        assert!(!fits(1, [0, 1, 2], 3), "another one has taken its place");
        assert!(!fits(1, [0, 1, 2], 2));
    }
}
