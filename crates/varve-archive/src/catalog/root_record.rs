//! The root of a catalog, and the chain of roots that it leads to. `docs/internals/format.md`,
//! section 5.

use std::collections::BTreeSet;
use std::io;

use varve_block::{BlockName, BlockStore, BlockType, GetError, Score, causes};
use varve_content::{FieldError, FieldReader, ReadRecordsError, Records, UnknownFields, split_record};
use varve_tree::{DecodeEntryError, Entry};

use crate::catalog::removed::{ReadRemovedError, RemovedLists};
use crate::catalog::snapshot::{DecodeSnapshotError, Snapshot};

/// Upper bound on the roots that a reader follows. With one new root a day, it lasts for more than
/// 2,800 years.
const ROOT_COUNT_MAX: usize = 1 << 20;

/// Why the catalog could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadCatalogError {
    /// The root is lost.
    #[error("the catalog's root cannot be read")]
    Root(#[from] GetError),
    /// The root is malformed.
    #[error("the catalog's root is malformed")]
    Malformed(#[from] FieldError),
    /// There are more roots than a reader follows.
    #[error("the catalog has more than {ROOT_COUNT_MAX} roots")]
    Endless,
    /// The root names no list.
    #[error("the catalog's root has no list of snapshots")]
    NoList,
    #[error("the catalog's list is malformed")]
    Entry(#[from] DecodeEntryError),
    #[error("the catalog's list cannot be read")]
    List(#[from] ReadRecordsError),
    #[error("{0}")]
    Snapshot(#[from] DecodeSnapshotError),
    #[error("{0}")]
    Removed(#[from] ReadRemovedError),
    /// The next catalog would lack snapshots that a write-only key has added.
    #[error(
        "a catalog that a write-only key has added cannot be read, and the next catalog would lack its snapshots"
    )]
    LacksAdded,
    /// The next catalog would lack snapshots in the trash, or list some that are gone.
    #[error("the lists of forgotten snapshots cannot be read, and the next catalog would lack them")]
    LacksForgotten,
}

/// Returns whether the error may be temporary: the store failed, or the disk does not return data
/// that it has.
pub(crate) fn may_come_back(error: &LoadCatalogError) -> bool {
    if matches!(error, LoadCatalogError::Root(GetError::Failed { .. })) {
        return true;
    }
    let from_disk = causes(error).find_map(|error| error.downcast_ref::<io::Error>());
    from_disk
        .is_some_and(|error| !matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound))
}

/// Returns whether blocks are missing or damaged. Otherwise their writer has stored malformed data.
pub(crate) fn is_lost(error: &LoadCatalogError) -> bool {
    causes(error).any(|error| error.is::<GetError>())
}

/// The contents of a root.
pub(crate) struct RootRecord {
    pub(crate) sequence: u64,
    pub(crate) list: Entry,
    pub(crate) previous: Vec<Score>,
    pub(crate) losses: Option<Entry>,
    pub(crate) removed: RemovedLists,
    pub(crate) unknown: UnknownFields,
}

/// The joined contents of a root and of the roots before it.
pub(crate) struct RootChain {
    pub(crate) sequence: u64,
    pub(crate) snapshots: Vec<Snapshot>,
    /// The entries of all lists of snapshots in the chain.
    pub(crate) lists: Vec<Entry>,
    /// The losses of the oldest root in the chain.
    pub(crate) losses: Option<Entry>,
    /// The forgotten snapshots in the oldest root of the chain.
    pub(crate) removed: RemovedLists,
    pub(crate) unknown: UnknownFields,
}

/// Reads the snapshots that a root leads to. Stops at roots that are already in `passed`.
pub(crate) fn read_chain(
    blocks: &dyn BlockStore,
    root: Score,
    passed: &mut BTreeSet<Score>,
) -> Result<RootChain, LoadCatalogError> {
    let (mut sequence, mut lists, mut wanted, mut losses) = (0, Vec::new(), vec![root], None);
    let (mut removed, mut unknown) = (RemovedLists::default(), UnknownFields::default());
    while let Some(root) = first_root(blocks, &wanted, passed)? {
        sequence = root.sequence.max(sequence);
        // A root whose writer could read all earlier snapshots names no previous root. It ends the
        // chain, and its other lists count.
        losses = root.losses;
        removed = root.removed;
        lists.push(root.list);
        let mut earlier = root.unknown;
        earlier.extend(&unknown);
        unknown = earlier;
        wanted = root.previous;
    }
    let mut snapshots = Vec::new();
    for list in lists.iter().rev() {
        let mut records = Records::new(blocks, list);
        while let Some(record) = records.next() {
            snapshots.push(Snapshot::decode(record?, blocks.score_bytes())?);
        }
    }
    Ok(RootChain { sequence, snapshots, lists, losses, removed, unknown })
}

/// The first of these roots that is readable, unless it was passed before. A crash has taken the
/// ones before it in the list.
fn first_root(
    blocks: &dyn BlockStore,
    wanted: &[Score],
    passed: &mut BTreeSet<Score>,
) -> Result<Option<RootRecord>, LoadCatalogError> {
    let mut failure = None;
    for score in wanted {
        if !passed.insert(*score) {
            return Ok(None);
        }
        if passed.len() > ROOT_COUNT_MAX {
            return Err(LoadCatalogError::Endless);
        }
        let name = BlockName { score: *score, block_type: BlockType::CATALOG };
        failure = match blocks.get(&name).map(|block| decode_root(&block, blocks.score_bytes())) {
            Ok(Ok(root)) => return Ok(Some(root)),
            Ok(Err(error)) => Some(error),
            Err(error @ GetError::Failed { .. }) => return Err(error.into()),
            Err(error) => Some(error.into()),
        };
        // If no other root is readable, the caller reports the failure. It may look again before.
        tracing::info!(%score, "a root of the catalog cannot be read");
    }
    failure.map_or(Ok(None), Err)
}

pub(crate) fn decode_root(block: &[u8], score_bytes: usize) -> Result<RootRecord, LoadCatalogError> {
    let (fields, _) = split_record(block).ok_or(LoadCatalogError::NoList)?;
    let (mut sequence, mut list, mut previous, mut losses) = (0, None, Vec::new(), None);
    let (mut removed, mut unknown) = (RemovedLists::default(), UnknownFields::default());
    for field in FieldReader::new(fields) {
        let field = field?;
        match field.number {
            1 => sequence = field.value()?,
            2 => list = Some(Entry::decode(field.bytes, score_bytes)?),
            3 if field.bytes.len() == score_bytes => {
                previous.push(Score::try_from(field.bytes).map_err(|_| field.unexpected())?);
            }
            3 => return Err(field.unexpected().into()),
            4 => removed.trash = Some(Entry::decode(field.bytes, score_bytes)?),
            5 => removed.gone = Some(Entry::decode(field.bytes, score_bytes)?),
            6 => losses = Some(Entry::decode(field.bytes, score_bytes)?),
            _ => unknown.keep(&field),
        }
    }
    let list = list.ok_or(LoadCatalogError::NoList)?;
    Ok(RootRecord { sequence, list, previous, losses, removed, unknown })
}
