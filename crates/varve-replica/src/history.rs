//! Whether what a replica has and this log has not is of the same history: then one of the two has only less of it.

use std::io;
use std::sync::Arc;

use varve_block::to_hex;
use varve_log::{ArenaHeader, ArenaId, ArenaState, LogKeys, OpenedArena, RecordHeader, Seal, Seals};
use varve_remote::Target;

use crate::listing::{Listing, Segment};
use crate::name::SegmentName;
use crate::records::ArenaRecords;
use crate::replica::Replica;
use crate::replicate_error::ReplicateError;
use crate::source::Source;
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

    /// Takes in the seal of an arena that is not here. False if that stands among those that were counted, and none of them is missing for it.
    fn take_in(&mut self, keys: &LogKeys, arena: ArenaId, seal: Seal) -> bool {
        let before = (self.missing_count(), self.seals.ledger(keys, self.count));
        self.seals.insert(arena, seal);
        self.missing_count() < before.0 || self.seals.ledger(keys, self.count) == before.1
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
    if source.log.file_bytes(opened.id())? <= ArenaHeader::BYTES {
        return Ok(None);
    }
    let records = ArenaRecords::read_left(source.log, opened)?;
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
        let segments = listing.arenas.get(arena).and_then(|all| all.values().next_back());
        let Some(first) = segments.and_then(|all| all.first()) else { continue };
        let object = first.name.file_name();
        let seal = match there.open_arena(*arena).and_then(|opened| Ok((there.state(&opened)?, opened))) {
            Ok((ArenaState::Sealed { footer, .. }, opened)) => Seal::of(opened.header(), &footer),
            Ok((ArenaState::Unsealed, _)) => continue,
            // What is damaged there says nothing.
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

    /// Whether the lost arena 0, with this place, fits between the arenas 1 to 3.
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
