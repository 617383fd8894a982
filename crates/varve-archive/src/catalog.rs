//! The list of all snapshots, itself stored in the log: the last thing that a finished snapshot writes.

use std::collections::BTreeSet;

use varve_block::{Block, BlockKind, BlockName, BlockStore, BlockType, GetError, PutError, Score, SyncError};
use varve_tree::{ContentWriter, Cutting, DecodeEntryError, Entry};

use crate::fields::{FieldError, FieldReader, FieldWriter, frame, split_record};
use crate::records::{ReadRecordsError, Records};
use crate::snapshot::{DecodeSnapshotError, Snapshot};

/// All snapshots of a store, in the order in which they were finished.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalog {
    sequence: u64,
    snapshots: Vec<Snapshot>,
    /// The roots before, the first of which that can be read is the one, if this process may not read them itself.
    unread: Option<Vec<Score>>,
}

/// How many roots a reader follows at most: with a new one every night, some thousand years.
const ROOT_COUNT_MAX: usize = 1 << 20;

/// Why the catalog could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadCatalogError {
    /// Its root is lost.
    #[error("the catalog's root cannot be read")]
    Root(#[from] GetError),
    /// Its root makes no sense.
    #[error("the catalog's root is malformed")]
    Malformed(#[from] FieldError),
    /// Roots that lead to each other without end.
    #[error("the catalog's roots lead in circles, or there are more than {ROOT_COUNT_MAX}")]
    Endless,
    /// Its root has no list.
    #[error("the catalog's root has no list of snapshots")]
    NoList,
    /// Its list's entry makes no sense.
    #[error("the catalog's list is malformed")]
    Entry(#[from] DecodeEntryError),
    /// Its list could not be read.
    #[error("the catalog's list cannot be read")]
    List(#[from] ReadRecordsError),
    /// A snapshot in it makes no sense.
    #[error(transparent)]
    Snapshot(#[from] DecodeSnapshotError),
}

/// Why a snapshot was not added. The catalog in the store is as it was.
#[derive(Debug, thiserror::Error)]
pub enum SaveCatalogError {
    /// The snapshot's own data could not be made durable.
    #[error("the snapshot could not be made durable")]
    Data(#[source] SyncError),
    /// The catalog could not be written.
    #[error("the catalog could not be written")]
    Put(#[from] PutError),
    /// The catalog was written, but may not survive power loss.
    #[error("the catalog could not be made durable")]
    Catalog(#[source] SyncError),
}

impl Catalog {
    /// Reads the catalog that `root` leads to; `None` stands for a store without snapshots.
    ///
    /// # Errors
    /// [`LoadCatalogError`].
    pub fn load(blocks: &dyn BlockStore, root: Option<BlockName>) -> Result<Self, LoadCatalogError> {
        let Some(root) = root else { return Ok(Self::default()) };
        let (mut sequence, mut lists, mut passed) = (0, Vec::new(), BTreeSet::new());
        let mut wanted = vec![root.score];
        while !wanted.is_empty() {
            let root = first_root(blocks, &wanted, &mut passed)?;
            sequence = root.sequence.max(sequence);
            lists.push(root.list);
            wanted = root.previous;
        }
        let (mut snapshots, mut known) = (Vec::new(), BTreeSet::new());
        for list in lists.iter().rev() {
            let mut records = Records::new(blocks, list);
            while let Some(record) = records.next() {
                let snapshot = Snapshot::decode(record?, blocks.score_bytes())?;
                if known.insert(snapshot.id) {
                    snapshots.push(snapshot);
                }
            }
        }
        Ok(Self { sequence, snapshots, unread: None })
    }

    /// A catalog that can be added to and not be read, after these roots: the newest first, and after it those that come next if a
    /// crash has taken it.
    #[must_use]
    pub fn unread(roots: &[BlockName]) -> Self {
        Self { unread: Some(roots.iter().map(|root| root.score).collect()), ..Self::default() }
    }

    /// All snapshots, in the order in which they were finished; those that were added, if it may not be read.
    #[must_use]
    pub fn snapshots(&self) -> &[Snapshot] {
        &self.snapshots
    }

    /// Adds a snapshot, for ever: first everything that it leads to is made durable, then the catalog that leads to it.
    /// Returns the new root.
    ///
    /// # Errors
    /// [`SaveCatalogError`].
    pub fn add(
        &mut self,
        blocks: &dyn BlockStore,
        snapshot: Snapshot,
    ) -> Result<BlockName, SaveCatalogError> {
        let mut next = self.clone();
        next.sequence += 1;
        next.snapshots.push(snapshot);
        let root = next.save(blocks)?;
        *self = next;
        Ok(root)
    }

    fn save(&self, blocks: &dyn BlockStore) -> Result<BlockName, SaveCatalogError> {
        let mut list = ContentWriter::new(blocks, BlockKind::Data, Cutting::DIRECTORY);
        let mut record = Vec::new();
        for snapshot in &self.snapshots {
            record.clear();
            frame(&snapshot.encode(), &mut record);
            list.write(&record)?;
        }
        let list = list.finish()?;
        // A crash between the two syncs leaves the old catalog; without the first, it could leave a catalog that leads
        // to blocks that were lost.
        blocks.sync().map_err(SaveCatalogError::Data)?;
        let root = match &self.unread {
            None => FieldWriter::new().number(1, self.sequence).bytes(2, &list.encode()),
            Some(previous) => {
                previous.iter().fold(FieldWriter::new().bytes(2, &list.encode()), |root, score| {
                    root.bytes(3, score.as_bytes())
                })
            }
        };
        let root = root.finish_record();
        let score = blocks.put(Block { block_type: BlockType::CATALOG, bytes: &root })?;
        blocks.sync().map_err(SaveCatalogError::Catalog)?;
        Ok(BlockName { score, block_type: BlockType::CATALOG })
    }
}

/// What a root says.
struct Root {
    sequence: u64,
    list: Entry,
    previous: Vec<Score>,
}

/// The first of these roots that can be read. Those before it were taken by a crash, before anybody was told of them.
fn first_root(
    blocks: &dyn BlockStore,
    wanted: &[Score],
    passed: &mut BTreeSet<Score>,
) -> Result<Root, LoadCatalogError> {
    let mut failure = LoadCatalogError::NoList;
    for score in wanted {
        if !passed.insert(*score) || passed.len() > ROOT_COUNT_MAX {
            return Err(LoadCatalogError::Endless);
        }
        let name = BlockName { score: *score, block_type: BlockType::CATALOG };
        failure = match blocks.get(&name).map(|block| decode_root(&block, blocks.score_bytes())) {
            Ok(Ok(root)) => return Ok(root),
            Ok(Err(error)) => error,
            // What cannot be read now may be read later: nothing may be decided by it.
            Err(error @ GetError::Failed { .. }) => return Err(error.into()),
            Err(error) => error.into(),
        };
        tracing::warn!(%score, "a root of the catalog cannot be read");
    }
    Err(failure)
}

fn decode_root(block: &[u8], score_bytes: usize) -> Result<Root, LoadCatalogError> {
    let (fields, _) = split_record(block).ok_or(LoadCatalogError::NoList)?;
    let (mut sequence, mut list, mut previous) = (0, None, Vec::new());
    for field in FieldReader::new(fields) {
        let field = field?;
        match field.number {
            1 => sequence = field.value()?,
            2 => list = Some(Entry::decode(field.bytes, score_bytes)?),
            3 if field.bytes.len() == score_bytes => {
                previous.push(Score::try_from(field.bytes).map_err(|_| field.unexpected())?);
            }
            3 => return Err(field.unexpected().into()),
            _ => {}
        }
    }
    Ok(Root { sequence, list: list.ok_or(LoadCatalogError::NoList)?, previous })
}

#[cfg(test)]
mod tests {
    use varve_block::MemoryBlockStore;

    use super::*;
    use crate::snapshot::tests::snapshot;

    #[test]
    fn a_catalog_grows_and_comes_back() {
        let store = MemoryBlockStore::new();
        let mut catalog = Catalog::load(&store, None).unwrap();
        let mut root = None;
        for number in 0..200 {
            root = Some(catalog.add(&store, snapshot(number, "web", i64::from(number))).unwrap());
            assert_eq!(Catalog::load(&store, root).unwrap(), catalog);
        }
        assert_eq!(catalog.snapshots().len(), 200);
        let written: usize = store.stored_bytes();
        assert!(written < 200 * 40_000, "adding one does not rewrite all: {written} bytes");
        assert!(store.lose(&root.unwrap()));
        assert!(matches!(Catalog::load(&store, root), Err(LoadCatalogError::Root(_))));
    }

    #[test]
    fn whoever_cannot_read_adds_and_whoever_can_folds_it_in() {
        let store = MemoryBlockStore::new();
        let mut full = Catalog::default();
        let mut root = full.add(&store, snapshot(0, "web", 0)).unwrap();
        // Three nights of two snapshots each, by somebody who sees only their own.
        for night in 0..3 {
            let mut unread = Catalog::unread(&[root]);
            for number in [2 * night + 1, 2 * night + 2] {
                root = unread.add(&store, snapshot(number, "web", i64::from(number))).unwrap();
            }
            assert_eq!(unread.snapshots().len(), 2);
        }
        let mut full = Catalog::load(&store, Some(root)).unwrap();
        let ids = |catalog: &Catalog| catalog.snapshots().iter().map(|one| one.id.0[0]).collect::<Vec<_>>();
        assert_eq!(ids(&full), [0, 1, 2, 3, 4, 5, 6]);
        let root = full.add(&store, snapshot(7, "web", 7)).unwrap();
        let read = store.get_count();
        assert_eq!(ids(&Catalog::load(&store, Some(root)).unwrap()), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(store.get_count() - read <= 3, "folded: a root and its list");
        // The first in a store.
        let first = Catalog::unread(&[]).add(&store, snapshot(9, "web", 9)).unwrap();
        assert_eq!(ids(&Catalog::load(&store, Some(first)).unwrap()), [9]);
    }

    #[test]
    fn a_root_that_a_crash_took_is_passed() {
        let store = MemoryBlockStore::new();
        let base = Catalog::default().add(&store, snapshot(1, "web", 1)).unwrap();
        let lost = Catalog::unread(&[base]).add(&store, snapshot(2, "web", 2)).unwrap();
        let root = Catalog::unread(&[lost, base]).add(&store, snapshot(3, "web", 3)).unwrap();
        let ids = || {
            Catalog::load(&store, Some(root))
                .map(|catalog| catalog.snapshots().iter().map(|one| one.id.0[0]).collect::<Vec<_>>())
        };
        assert_eq!(ids().unwrap(), [1, 2, 3], "it was not lost after all");
        assert!(store.lose(&lost));
        assert_eq!(ids().unwrap(), [1, 3]);
        assert!(store.lose(&base));
        assert!(matches!(ids(), Err(LoadCatalogError::Root(GetError::NotFound { .. }))));
    }

    #[test]
    fn no_root_panics() {
        let store = MemoryBlockStore::new();
        let mut catalog = Catalog::default();
        let root = catalog.add(&store, snapshot(1, "web", 1)).unwrap();
        let root = Catalog::unread(&[root]).add(&store, snapshot(2, "web", 2)).unwrap();
        let good = store.get(&root).unwrap();
        for place in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.to_vec();
                bad[place] ^= 1 << bit;
                let score = store.put(Block { block_type: BlockType::CATALOG, bytes: &bad }).unwrap();
                drop(Catalog::load(&store, Some(BlockName { score, block_type: BlockType::CATALOG })));
            }
        }
    }
}
