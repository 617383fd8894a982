//! Proves that the present generation of an arena is whole at a target, before its earlier ones are
//! removed there.

use std::sync::Arc;

use varve_log::{ArenaId, OpenedArena, ReadLogError};
use varve_remote::{Target, TargetError};

use crate::objects::listing::{ArenaAssembly, ListedSegment};
use crate::objects::object_name::SegmentEnd;
use crate::objects::record_ends::{ArenaRecords, RecordsDamage};
use crate::replication::planned_segments::PlannedSegment;
use crate::replication::replication_source::ReplicationSource;
use crate::replication::segment_source::take_segment;

/// The reason why an earlier generation of an arena stays at a target.
#[derive(Debug, thiserror::Error)]
pub enum NotProven {
    #[error("its present generation is not complete there")]
    Incomplete,
    #[error("its present generation there is not the one of this store")]
    OtherGeneration,
    #[error("no page there counts its present generation yet")]
    NotCounted,
    #[error("it is damaged in this store: {0}")]
    DamagedHere(#[source] RecordsDamage),
    /// The object was read back, and differs from the arena here.
    #[error("{object} has other bytes there than this store")]
    OtherBytes { object: String },
    #[error("{object} cannot be read back")]
    Unreadable { object: String, source: TargetError },
}

/// The reason why it is not known whether an arena is whole at a target.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProofError {
    #[error("{0}")]
    Read(#[from] ReadLogError),
    #[error("{0}")]
    Target(#[from] TargetError),
}

/// Reads every object of an arena's present generation back, and compares it with the local arena,
/// of which every record is authenticated at the same time. `counted` is the number of seals that
/// the last page at the target counts.
pub(crate) fn prove(
    source: ReplicationSource<'_>,
    target: &Arc<dyn Target>,
    arena: ArenaId,
    there: &ArenaAssembly,
    counted: u64,
) -> Result<Result<(), NotProven>, ProofError> {
    if !there.is_whole() {
        return Ok(Err(NotProven::Incomplete));
    }
    let here = match local(source, arena) {
        Ok(here) => here,
        Err(error) if error.is_damage() => return Ok(Err(NotProven::DamagedHere(error.into()))),
        Err(error) => return Err(error.into()),
    };
    if let Some(damage) = here.damage {
        return Ok(Err(NotProven::DamagedHere(damage)));
    }
    let Some(seal) = here.seal.filter(|seal| {
        let end = there.parts.last().map(|last| last.name.end);
        seal.seal.generation == there.generation
            && end == Some(SegmentEnd::Seal(seal.code))
            && seal.file_bytes == there.bytes()
    }) else {
        return Ok(Err(NotProven::OtherGeneration));
    };
    if seal.seal.ordinal >= counted {
        return Ok(Err(NotProven::NotCounted));
    }
    for segment in &there.parts {
        if let Err(reason) = compare(source, target, &here, segment)? {
            return Ok(Err(reason));
        }
    }
    Ok(Ok(()))
}

fn local(source: ReplicationSource<'_>, arena: ArenaId) -> Result<ArenaRecords, ReadLogError> {
    let opened: OpenedArena = source.log.open_arena(arena)?;
    ArenaRecords::read(source.log, &opened)
}

fn compare(
    source: ReplicationSource<'_>,
    target: &Arc<dyn Target>,
    here: &ArenaRecords,
    segment: &ListedSegment,
) -> Result<Result<(), NotProven>, ProofError> {
    let put = PlannedSegment { name: segment.name.clone(), range: segment.range(), replaces: false };
    let expected = match take_segment(source.log, &source.world.storage, here, &put) {
        Ok(expected) => expected,
        Err(error) if error.is_damage() => return Ok(Err(NotProven::DamagedHere(error.into()))),
        Err(error) => return Err(error.into()),
    };
    let object = segment.name.file_name();
    match target.get(&object, 0..segment.bytes) {
        Ok(found) if found == expected => Ok(Ok(())),
        Ok(_) => Ok(Err(NotProven::OtherBytes { object: object.to_string() })),
        Err(source @ (TargetError::NotFound { .. } | TargetError::Short { .. })) => {
            Ok(Err(NotProven::Unreadable { object: object.to_string(), source }))
        }
        Err(error) => Err(error.into()),
    }
}
