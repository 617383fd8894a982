//! The list of all snapshots, itself stored in the log: the last thing that a finished snapshot writes.

use varve_block::{Block, BlockKind, BlockName, BlockStore, BlockType, GetError, PutError, SyncError};
use varve_tree::{ContentWriter, Cutting, DecodeEntryError, Entry};

use crate::fields::{FieldError, FieldReader, FieldWriter, frame, split_record};
use crate::records::{ReadRecordsError, Records};
use crate::snapshot::{DecodeSnapshotError, Snapshot};

/// All snapshots of a store, in the order in which they were finished.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalog {
    sequence: u64,
    snapshots: Vec<Snapshot>,
}

/// Why the catalog could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadCatalogError {
    /// Its root is lost.
    #[error("the catalog's root cannot be read")]
    Root(#[from] GetError),
    /// Its root makes no sense.
    #[error("the catalog's root is malformed")]
    Malformed(#[from] FieldError),
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
        let (sequence, list) = decode_root(&blocks.get(&root)?, blocks.score_bytes())?;
        let mut snapshots = Vec::new();
        let mut records = Records::new(blocks, &list);
        while let Some(record) = records.next() {
            snapshots.push(Snapshot::decode(record?, blocks.score_bytes())?);
        }
        Ok(Self { sequence, snapshots })
    }

    /// All snapshots, in the order in which they were finished.
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
        let mut next = Self { sequence: self.sequence + 1, snapshots: self.snapshots.clone() };
        next.snapshots.push(snapshot);
        let root = next.save(blocks)?;
        *self = next;
        Ok(root)
    }

    /// What can still be read of catalogs, of which `roots` are the newest first: all that the newest whole one knows, and
    /// what younger ones that are damaged still tell.
    #[must_use]
    pub fn salvage(blocks: &dyn BlockStore, roots: &[BlockName]) -> Self {
        let mut salvaged = Self::default();
        for root in roots {
            let Ok((sequence, list)) = blocks
                .get(root)
                .map_err(LoadCatalogError::from)
                .and_then(|block| decode_root(&block, blocks.score_bytes()))
            else {
                continue;
            };
            salvaged.sequence = salvaged.sequence.max(sequence);
            let mut records = Records::new(blocks, &list);
            let mut is_whole = true;
            while let Some(record) = records.next() {
                let snapshot = record.map(|record| Snapshot::decode(record, blocks.score_bytes()));
                let Ok(Ok(snapshot)) = snapshot else {
                    is_whole = false;
                    break;
                };
                salvaged.add_one_unknown(snapshot);
            }
            if is_whole {
                break;
            }
        }
        salvaged
    }

    /// Takes in the snapshots of another copy's catalog that this one lacks.
    pub fn add_unknown(&mut self, other: &Self) {
        self.sequence = self.sequence.max(other.sequence);
        other.snapshots.iter().cloned().for_each(|snapshot| self.add_one_unknown(snapshot));
    }

    fn add_one_unknown(&mut self, snapshot: Snapshot) {
        if !self.snapshots.iter().any(|known| known.id == snapshot.id) {
            self.snapshots.push(snapshot);
        }
    }

    /// Stores the catalog as it is, with a new root.
    ///
    /// # Errors
    /// [`SaveCatalogError`].
    pub fn write_again(&mut self, blocks: &dyn BlockStore) -> Result<BlockName, SaveCatalogError> {
        self.sequence += 1;
        self.save(blocks)
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
        let root = FieldWriter::new().number(1, self.sequence).bytes(2, &list.encode()).finish_record();
        let score = blocks.put(Block { block_type: BlockType::CATALOG, bytes: &root })?;
        blocks.sync().map_err(SaveCatalogError::Catalog)?;
        Ok(BlockName { score, block_type: BlockType::CATALOG })
    }
}

/// The sequence number and the list of a catalog's root.
fn decode_root(block: &[u8], score_bytes: usize) -> Result<(u64, Entry), LoadCatalogError> {
    let (fields, _) = split_record(block).ok_or(LoadCatalogError::NoList)?;
    let (mut sequence, mut list) = (0, None);
    for field in FieldReader::new(fields) {
        let field = field?;
        match field.number {
            1 => sequence = field.value()?,
            2 => list = Some(Entry::decode(field.bytes, score_bytes)?),
            _ => {}
        }
    }
    Ok((sequence, list.ok_or(LoadCatalogError::NoList)?))
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
    fn what_older_catalogs_know_is_found_again() {
        let store = MemoryBlockStore::new();
        let (mut catalog, mut roots) = (Catalog::default(), Vec::new());
        for number in 0..5 {
            roots.insert(0, catalog.add(&store, snapshot(number, "web", i64::from(number))).unwrap());
        }
        assert!(store.lose(&roots[0]));
        assert!(store.lose(&roots[1]));
        let mut salvaged = Catalog::salvage(&store, &roots);
        assert_eq!(salvaged.snapshots(), &catalog.snapshots()[..3]);
        let root = salvaged.write_again(&store).unwrap();
        assert_eq!(Catalog::load(&store, Some(root)).unwrap(), salvaged);
        assert_eq!(Catalog::salvage(&store, &[]), Catalog::default());
    }

    #[test]
    fn no_root_panics() {
        let store = MemoryBlockStore::new();
        let mut catalog = Catalog::default();
        let root = catalog.add(&store, snapshot(1, "web", 1)).unwrap();
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
