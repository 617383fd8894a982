//! Whether what a replica has and this log has not is of the same history: then one of the two has only less of it.

use std::io;
use std::sync::Arc;

use varve_block::to_hex;
use varve_log::{ArenaHeader, ArenaId, ArenaState, OpenedArena, RecordHeader, Seal, Seals};
use varve_remote::Target;

use crate::listing::{Listing, Segment};
use crate::name::SegmentName;
use crate::records::ArenaRecords;
use crate::replica::Replica;
use crate::replicate::{ReplicateError, Source, arena_file_bytes};
use crate::storage::ReplicaStorage;

/// The seals that a log has, and how many of them its last page has counted.
#[derive(Debug, Default)]
pub(crate) struct CountedSeals {
    pub(crate) seals: Seals,
    pub(crate) count: u64,
}

impl CountedSeals {
    /// How many of those that were counted are not there.
    pub(crate) fn missing_count(&self) -> u64 {
        self.seals.missing_count(self.count)
    }
}

/// Whether a replica with segments that this log does not have goes on where the log ends, or somewhere else.
pub(crate) fn tell_apart(
    source: Source<'_>,
    replica: &Replica,
    unknown: &Segment,
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
        // The headers of records are compared as bytes: no two records of any history are alike in them.
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
    // An empty log: everything is more than it has.
    Ok(ahead)
}

/// Where an arena's last acknowledged record begins, in bytes.
fn last_record(source: Source<'_>, opened: &OpenedArena) -> Result<Option<u64>, ReplicateError> {
    let file_bytes = arena_file_bytes(source.world, opened.id())?;
    if file_bytes <= ArenaHeader::BYTES {
        return Ok(None);
    }
    let records = ArenaRecords::read_left(source.log, opened, file_bytes)?;
    Ok(records.last().map(|record| record.granule.byte_offset()))
}

/// Refuses a replica with a sealed arena that this store has lost, and whose place among the seals is taken here: the store went on as if
/// that arena had never been, and together they are no log.
pub(crate) fn require_place(
    source: Source<'_>,
    target: &Arc<dyn Target>,
    listing: &Listing,
    missing: &[ArenaId],
    mut counted: CountedSeals,
) -> Result<(), ReplicateError> {
    if missing.is_empty() {
        return Ok(());
    }
    let replica = Arc::new(Replica::of(Arc::clone(target), listing.clone()));
    let there = source.log.over(Arc::new(ReplicaStorage::new(replica, None, None)));
    for arena in missing {
        let opened = there.open_arena(*arena).and_then(|opened| Ok((there.state(&opened)?, opened)));
        let segments = listing.arenas.get(arena).and_then(|all| all.values().next_back());
        let Some(object) = segments.and_then(|all| all.first()).map(|first| first.name.file_name()) else {
            continue;
        };
        let seal = match opened {
            Ok((ArenaState::Sealed { footer, .. }, opened)) => Seal::of(opened.header(), &footer),
            Ok((ArenaState::Unsealed, _)) => continue,
            // What is damaged there says nothing.
            Err(error) if error.is_damage() => continue,
            Err(error) => {
                return Err(ReplicateError::Storage { file: object, source: io::Error::other(error) });
            }
        };
        let keys = source.log.keys();
        let before = (counted.missing_count(), counted.seals.ledger(keys, counted.count));
        counted.seals.insert(*arena, seal);
        let is_in_between = counted.seals.ledger(keys, counted.count) != before.1;
        if is_in_between && counted.missing_count() == before.0 {
            return Err(ReplicateError::Diverged { arena: *arena, object });
        }
    }
    Ok(())
}
