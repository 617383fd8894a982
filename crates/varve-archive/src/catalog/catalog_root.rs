//! The catalog, itself stored in the log. Its root is the last block that a finished snapshot
//! writes.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use varve_block::{
    Block, BlockKind, BlockName, BlockStore, BlockType, GetError, PutError, Score, SyncError, causes,
};
use varve_store::CatalogRoot;
use varve_tree::{ContentWriter, Cutting, DecodeEntryError, Entry, Visit, walk};

use crate::catalog::losses::Losses;
use crate::catalog::snapshot::{DecodeSnapshotError, Snapshot, SnapshotContent};
use crate::catalog::snapshot_filter::source_path;
use crate::records::fields::{FieldError, FieldReader, FieldWriter, UnknownFields, frame, split_record};
use crate::records::node::Node;
use crate::records::record_list::{ReadRecordsError, Records};

/// All snapshots of a store, in the order in which they were finished.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalog {
    sequence: u64,
    snapshots: Vec<Snapshot>,
    /// The earlier roots, newest first, if this process may not read the catalog. A reader follows
    /// the first one that is readable.
    unread: Option<Vec<Score>>,
    /// The entry of the list of losses.
    losses: Option<Entry>,
    /// True if blocks are lost of a catalog that a write-only key has added. Its snapshots are
    /// missing here.
    lacks_added: bool,
    /// Fields of its roots that this version does not know. Those of the newest root come last.
    unknown: UnknownFields,
}

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
    /// The next catalog would lack snapshots that a write-only key has added.
    #[error(
        "a catalog that a write-only key has added cannot be read, and the next catalog would lack its snapshots"
    )]
    LacksAdded,
}

/// Returns whether the error may be temporary: the store failed, or the disk does not return data
/// that it has.
fn may_come_back(error: &LoadCatalogError) -> bool {
    if matches!(error, LoadCatalogError::Root(GetError::Failed { .. })) {
        return true;
    }
    let from_disk = causes(error).find_map(|error| error.downcast_ref::<io::Error>());
    from_disk
        .is_some_and(|error| !matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound))
}

/// Returns whether blocks are missing or damaged. Otherwise their writer has stored malformed data.
fn is_lost(error: &LoadCatalogError) -> bool {
    causes(error).any(|error| error.is::<GetError>())
}

/// Why a snapshot was not added. The catalog in the store is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum SaveCatalogError {
    #[error("the snapshot could not be made durable")]
    Data(#[source] SyncError),
    #[error("the catalog could not be written")]
    Put(#[from] PutError),
    /// The catalog was written, but may not survive a power loss.
    #[error("the catalog could not be made durable")]
    Catalog(#[source] SyncError),
}

impl Catalog {
    /// Reads the catalog that `root` leads to. `None` means a store without snapshots.
    ///
    /// # Errors
    /// [`LoadCatalogError`].
    pub fn load(blocks: &dyn BlockStore, root: Option<BlockName>) -> Result<Self, LoadCatalogError> {
        Self::load_all(blocks, root.as_slice())
    }

    /// Reads the catalogs that these roots lead to, and joins them into one. The first root was
    /// written by a process that could read the catalog before it. The others were added since
    /// then, oldest first, by write-only keys. A root that omits or spoils something hides nothing
    /// that the others hold. Lost catalogs among the added ones are omitted.
    ///
    /// # Errors
    /// [`LoadCatalogError`]. If the first catalog is lost, the call fails, because the others do
    /// not repeat its contents.
    pub fn load_all(blocks: &dyn BlockStore, roots: &[BlockName]) -> Result<Self, LoadCatalogError> {
        let mut catalog = Self::default();
        let (mut passed, mut known) = (BTreeSet::new(), BTreeSet::new());
        let mut failure = None;
        for root in roots {
            match read_chain(blocks, root.score, &mut passed) {
                Ok(RootChain { sequence, snapshots, losses, unknown }) => {
                    catalog.sequence = catalog.sequence.max(sequence);
                    catalog.unknown.extend(&unknown);
                    if Some(root) == roots.first() {
                        catalog.losses = losses;
                    }
                    catalog
                        .snapshots
                        .extend(snapshots.into_iter().filter(|snapshot| known.insert(snapshot.id)));
                }
                // A temporary error decides nothing: the catalog may be readable later.
                Err(error) if may_come_back(&error) => return Err(error),
                Err(error) if Some(root) == roots.first() && is_lost(&error) => return Err(error),
                Err(error) if Some(root) == roots.first() => failure = Some(error),
                Err(error) => {
                    tracing::error!(%root, %error, "a catalog that was added cannot be read");
                    catalog.lacks_added |= is_lost(&error);
                }
            }
        }
        match failure {
            // Later roots may lead to this root, or to the ones before it.
            Some(error) if catalog.snapshots.is_empty() => Err(error),
            _ => Ok(catalog),
        }
    }

    /// Returns the catalog if the next catalog may replace it: it lacks no snapshot that was added.
    ///
    /// # Errors
    /// [`LoadCatalogError::LacksAdded`].
    pub(crate) fn require_all(self) -> Result<Self, LoadCatalogError> {
        if self.lacks_added { Err(LoadCatalogError::LacksAdded) } else { Ok(self) }
    }

    /// A catalog for a process that can add snapshots but not read them. `roots` are the earlier
    /// roots, newest first. The older ones serve if a crash has taken the newest.
    #[must_use]
    pub fn unread(roots: &[BlockName]) -> Self {
        Self { unread: Some(roots.iter().map(|root| root.score).collect()), ..Self::default() }
    }

    /// All snapshots, in the order in which they were finished. If the catalog may not be read,
    /// only the snapshots that this process has added.
    #[must_use]
    pub fn snapshots(&self) -> &[Snapshot] {
        &self.snapshots
    }

    /// The recorded losses. Some of these blocks may have become readable since.
    #[must_use]
    pub fn losses(&self, blocks: &dyn BlockStore) -> Losses {
        Losses::read(blocks, self.losses.as_ref())
    }

    /// Joins the losses that these catalogs record. `roots` are newest first. The search ends at
    /// the first root whose list of losses is complete; younger roots contribute what is readable
    /// in theirs. Only final roots count: their writers could read all earlier catalogs.
    pub(crate) fn losses_of_any(blocks: &dyn BlockStore, roots: &[CatalogRoot]) -> Losses {
        let mut found = Losses::default();
        for root in roots.iter().filter(|root| root.is_final) {
            let Ok(Ok(decoded)) =
                blocks.get(&root.name).map(|block| decode_root(&block, blocks.score_bytes()))
            else {
                continue;
            };
            let losses = Losses::read(blocks, decoded.losses.as_ref());
            found.absorb_earlier(&losses);
            if !losses.is_cut() {
                break;
            }
        }
        found
    }

    /// Collects the names of the blocks in the lists of a root, as far as they are readable. The
    /// contents of the snapshots are not included.
    pub(crate) fn own_blocks(blocks: &dyn BlockStore, root: &BlockName, names: &mut BTreeSet<BlockName>) {
        let decoded = blocks.get(root).map(|block| decode_root(&block, blocks.score_bytes()));
        let Ok(Ok(RootRecord { list, losses, .. })) = decoded else { return };
        for entry in [Some(list), losses].into_iter().flatten() {
            walk(blocks, &entry, &mut |node| {
                let is_known = !names.insert(node.name);
                if is_known { Visit::Skip } else { Visit::Descend }
            });
        }
    }

    /// Stores the list of losses for the next root. Returns whether it differs from the previous
    /// list.
    pub(crate) fn set_losses(
        &mut self,
        blocks: &dyn BlockStore,
        losses: &Losses,
    ) -> Result<bool, SaveCatalogError> {
        let before = std::mem::replace(&mut self.losses, losses.write(blocks)?);
        Ok(before != self.losses)
    }

    /// The root node of the newest folder snapshot with this name and source.
    pub(crate) fn newest_folder(&self, name: &str, source: &[u8]) -> Option<&Node> {
        let source = Path::new(OsStr::from_bytes(source));
        let same = |snapshot: &&Snapshot| snapshot.name == name && source_path(snapshot) == source;
        self.snapshots.iter().rev().filter(same).find_map(|snapshot| match &snapshot.content {
            SnapshotContent::Folder(root) => Some(&**root),
            SnapshotContent::Image(_) => None,
        })
    }

    /// Adds a snapshot for ever. First makes everything that it leads to durable, and then the
    /// catalog that leads to it. Returns the new root.
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

    /// Replaces the snapshots that have the same ids as those in `changed`. They may lead to no new
    /// blocks. The previous catalogs stay in the log. Returns the new root.
    ///
    /// # Errors
    /// [`SaveCatalogError`]; the catalog is then unchanged.
    pub(crate) fn change(
        &mut self,
        blocks: &dyn BlockStore,
        changed: &[Snapshot],
    ) -> Result<BlockName, SaveCatalogError> {
        let mut next = self.clone();
        for snapshot in &mut next.snapshots {
            if let Some(other) = changed.iter().find(|other| other.id == snapshot.id) {
                snapshot.clone_from(other);
            }
        }
        let root = next.write_again(blocks)?;
        *self = next;
        Ok(root)
    }

    /// Collects the snapshots that are still readable in these catalogs. `roots` are newest first.
    /// The result holds the whole of the newest intact catalog, and the readable snapshots of the
    /// younger, damaged ones. Only a final root is complete by itself, because its writer could
    /// read the catalog before it. An added root is complete only together with the roots that it
    /// leads to.
    pub(crate) fn salvage(blocks: &dyn BlockStore, roots: &[CatalogRoot]) -> Self {
        let mut salvaged = Self::default();
        for CatalogRoot { name, is_final } in roots {
            let Ok(RootRecord { sequence, list, mut unknown, .. }) = blocks
                .get(name)
                .map_err(LoadCatalogError::from)
                .and_then(|block| decode_root(&block, blocks.score_bytes()))
            else {
                continue;
            };
            salvaged.sequence = salvaged.sequence.max(sequence);
            unknown.extend(&salvaged.unknown);
            salvaged.unknown = unknown;
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
            if is_whole && *is_final {
                break;
            }
        }
        salvaged
    }

    /// Adds the snapshots of another copy's catalog that this catalog lacks.
    pub(crate) fn add_unknown(&mut self, other: &Self) {
        self.sequence = self.sequence.max(other.sequence);
        let mut unknown = other.unknown.clone();
        unknown.extend(&self.unknown);
        self.unknown = unknown;
        other.snapshots.iter().cloned().for_each(|snapshot| self.add_one_unknown(snapshot));
    }

    fn add_one_unknown(&mut self, snapshot: Snapshot) {
        if !self.snapshots.iter().any(|known| known.id == snapshot.id) {
            self.snapshots.push(snapshot);
        }
    }

    /// Stores the unchanged catalog under a new root.
    ///
    /// # Errors
    /// [`SaveCatalogError`].
    pub(crate) fn write_again(&mut self, blocks: &dyn BlockStore) -> Result<BlockName, SaveCatalogError> {
        self.sequence += 1;
        self.save(blocks)
    }

    /// Stores the list of snapshots and then a root that leads to it, each with a sync.
    fn save(&self, blocks: &dyn BlockStore) -> Result<BlockName, SaveCatalogError> {
        let mut list = ContentWriter::new(blocks, BlockKind::Data, Cutting::DIRECTORY);
        let mut record = Vec::new();
        for snapshot in &self.snapshots {
            record.clear();
            frame(&snapshot.encode(), &mut record);
            list.write(&record)?;
        }
        let list = list.finish()?;
        // A crash between the two syncs leaves the old catalog. Without the first sync, it could
        // leave a catalog that leads to lost blocks.
        blocks.sync().map_err(SaveCatalogError::Data)?;
        let losses = self.losses.as_ref().map(Entry::encode);
        let root = match &self.unread {
            None => FieldWriter::new()
                .number(1, self.sequence)
                .bytes(2, &list.encode())
                .optional_bytes(6, losses.as_deref()),
            Some(previous) => {
                previous.iter().fold(FieldWriter::new().bytes(2, &list.encode()), |root, score| {
                    root.bytes(3, score.as_bytes())
                })
            }
        };
        let mut record = Vec::new();
        frame(&root.finish_with(&self.unknown), &mut record);
        let root = record;
        let score = blocks.put(Block { block_type: BlockType::CATALOG, bytes: &root })?;
        blocks.sync().map_err(SaveCatalogError::Catalog)?;
        Ok(BlockName { score, block_type: BlockType::CATALOG })
    }
}

/// The contents of a root.
struct RootRecord {
    sequence: u64,
    list: Entry,
    previous: Vec<Score>,
    losses: Option<Entry>,
    unknown: UnknownFields,
}

/// The joined contents of a root and of the roots before it.
struct RootChain {
    sequence: u64,
    snapshots: Vec<Snapshot>,
    /// The losses of the oldest root in the chain.
    losses: Option<Entry>,
    unknown: UnknownFields,
}

/// Reads the snapshots that a root leads to. Stops at roots that are already in `passed`.
fn read_chain(
    blocks: &dyn BlockStore,
    root: Score,
    passed: &mut BTreeSet<Score>,
) -> Result<RootChain, LoadCatalogError> {
    let (mut sequence, mut lists, mut wanted, mut losses) = (0, Vec::new(), vec![root], None);
    let mut unknown = UnknownFields::default();
    while let Some(root) = first_root(blocks, &wanted, passed)? {
        sequence = root.sequence.max(sequence);
        // A root whose writer could read all earlier snapshots names no previous root. It ends the
        // chain, and its list of losses counts.
        losses = root.losses;
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
    Ok(RootChain { sequence, snapshots, losses, unknown })
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
        tracing::warn!(%score, "a root of the catalog cannot be read");
    }
    failure.map_or(Ok(None), Err)
}

fn decode_root(block: &[u8], score_bytes: usize) -> Result<RootRecord, LoadCatalogError> {
    let (fields, _) = split_record(block).ok_or(LoadCatalogError::NoList)?;
    let (mut sequence, mut list, mut previous, mut losses) = (0, None, Vec::new(), None);
    let mut unknown = UnknownFields::default();
    for field in FieldReader::new(fields) {
        let field = field?;
        match field.number {
            1 => sequence = field.value()?,
            2 => list = Some(Entry::decode(field.bytes, score_bytes)?),
            3 if field.bytes.len() == score_bytes => {
                previous.push(Score::try_from(field.bytes).map_err(|_| field.unexpected())?);
            }
            3 => return Err(field.unexpected().into()),
            6 => losses = Some(Entry::decode(field.bytes, score_bytes)?),
            _ => unknown.keep(&field),
        }
    }
    Ok(RootRecord { sequence, list: list.ok_or(LoadCatalogError::NoList)?, previous, losses, unknown })
}

#[cfg(test)]
mod tests {
    use varve_block::MemoryBlockStore;
    use varve_world::Timestamp;

    use super::*;
    use crate::catalog::losses::LostBlock;
    use crate::catalog::snapshot::tests::snapshot;

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
    fn snapshots_change_and_the_catalog_before_stays() {
        let store = MemoryBlockStore::new();
        let mut catalog = Catalog::default();
        let mut before = None;
        for number in 0..3 {
            before = Some(catalog.add(&store, snapshot(number, "web", i64::from(number))).unwrap());
        }
        let old = catalog.clone();
        let changed = Snapshot { tags: vec!["keep=always".into()], ..catalog.snapshots()[1].clone() };
        let unknown = Snapshot { id: crate::catalog::snapshot_id::SnapshotId([77; 16]), ..changed.clone() };
        let root = catalog.change(&store, &[changed.clone(), unknown]).unwrap();
        let expected = [old.snapshots()[0].clone(), changed, old.snapshots()[2].clone()];
        assert_eq!(catalog.snapshots(), expected);
        assert_eq!(Catalog::load(&store, Some(root)).unwrap(), catalog);
        assert_eq!(Catalog::load(&store, before).unwrap(), old);
    }

    #[test]
    fn whoever_cannot_read_adds_and_whoever_can_folds_it_in() {
        let store = MemoryBlockStore::new();
        let mut full = Catalog::default();
        let mut root = full.add(&store, snapshot(0, "web", 0)).unwrap();
        // Three rounds of two snapshots each, by a writer that sees only its own.
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
        // The first snapshot in a store.
        let first = Catalog::unread(&[]).add(&store, snapshot(9, "web", 9)).unwrap();
        assert_eq!(ids(&Catalog::load(&store, Some(first)).unwrap()), [9]);
    }

    #[test]
    fn nobody_who_may_not_read_hides_what_others_have_listed() {
        let store = MemoryBlockStore::new();
        let base = Catalog::default().add(&store, snapshot(1, "web", 1)).unwrap();
        let honest = Catalog::unread(&[base]).add(&store, snapshot(2, "web", 2)).unwrap();
        // One root that omits all roots before it, and some that are malformed.
        let forged = Catalog::unread(&[]).add(&store, snapshot(3, "web", 3)).unwrap();
        let mut roots = vec![base, honest, forged];
        for bytes in [&b"rubbish"[..], b"", &[0]] {
            let block = Block { block_type: BlockType::CATALOG, bytes };
            roots.push(BlockName { score: store.put(block).unwrap(), block_type: BlockType::CATALOG });
        }
        let loaded = Catalog::load_all(&store, &roots).unwrap();
        assert_eq!(loaded.snapshots().iter().map(|one| one.id.0[0]).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(loaded.require_all().is_ok(), "what makes no sense was never there");
        // A lost catalog is different: its contents are unknown, and the next catalog would lack
        // them.
        assert!(store.lose(&honest));
        let loaded = Catalog::load_all(&store, &roots).unwrap();
        assert_eq!(loaded.snapshots().iter().map(|one| one.id.0[0]).collect::<Vec<_>>(), [1, 3]);
        assert!(matches!(loaded.require_all(), Err(LoadCatalogError::LacksAdded)));
        assert!(store.lose(&base));
        assert!(Catalog::load_all(&store, &[base]).is_err());
        assert!(
            Catalog::load_all(&store, &roots).is_err(),
            "those that were added tell nothing of the first"
        );
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
    fn what_older_catalogs_know_is_found_again() {
        let store = MemoryBlockStore::new();
        let (mut catalog, mut roots) = (Catalog::default(), Vec::new());
        for number in 0..5 {
            roots.insert(0, catalog.add(&store, snapshot(number, "web", i64::from(number))).unwrap());
        }
        assert!(store.lose(&roots[0]));
        assert!(store.lose(&roots[1]));
        let finals: Vec<_> = roots.iter().map(|name| CatalogRoot { name: *name, is_final: true }).collect();
        let mut salvaged = Catalog::salvage(&store, &finals);
        assert_eq!(salvaged.snapshots(), &catalog.snapshots()[..3]);
        let root = salvaged.write_again(&store).unwrap();
        assert_eq!(Catalog::load(&store, Some(root)).unwrap(), salvaged);
        assert_eq!(Catalog::salvage(&store, &[]), Catalog::default());
        // A catalog that a write-only key has added hides no earlier snapshot.
        let added = Catalog::unread(&[roots[2]]).add(&store, snapshot(9, "web", 9)).unwrap();
        let added = CatalogRoot { name: added, is_final: false };
        let with_added = Catalog::salvage(&store, &[&[added], &finals[..]].concat());
        assert_eq!(with_added.snapshots().len(), 4);
    }

    /// Puts a root again with one more field, as a later version would write it.
    fn add_field(store: &MemoryBlockStore, root: &BlockName, field: (u8, &[u8])) -> BlockName {
        let block = store.get(root).unwrap();
        let added = FieldWriter::new().bytes(field.0, field.1).finish();
        let mut bytes = Vec::new();
        frame(&[split_record(&block).unwrap().0, &added].concat(), &mut bytes);
        let block = Block { block_type: BlockType::CATALOG, bytes: &bytes };
        BlockName { score: store.put(block).unwrap(), block_type: BlockType::CATALOG }
    }

    fn later_fields_of(store: &MemoryBlockStore, root: &BlockName) -> Vec<(u8, Vec<u8>)> {
        let block = store.get(root).unwrap();
        let (fields, _) = split_record(&block).unwrap();
        let fields = FieldReader::new(fields).map(Result::unwrap);
        fields.filter(|field| field.number > 3).map(|field| (field.number, field.bytes.to_vec())).collect()
    }

    proptest::proptest! {
        #[test]
        fn fields_of_later_versions_stay_in_the_root(
            (number, bytes, other) in proptest::arbitrary::any::<(u8, Vec<u8>, Vec<u8>)>(),
        ) {
            let number = number.max(7);
            let store = MemoryBlockStore::new();
            let mut catalog = Catalog::default();
            let root = catalog.add(&store, snapshot(1, "web", 1)).unwrap();
            let root = add_field(&store, &root, (number, &bytes));
            let loaded = Catalog::load(&store, Some(root)).unwrap();
            let finals = [CatalogRoot { name: root, is_final: true }];
            // The fields survive in every way to write the next catalog.
            let mut copied = Catalog::default();
            copied.add_unknown(&loaded);
            let ways = [Catalog::salvage(&store, &finals), copied, loaded];
            for mut next in ways {
                let added = next.add(&store, snapshot(2, "web", 2)).unwrap();
                proptest::prop_assert_eq!(later_fields_of(&store, &added), vec![(number, bytes.clone())]);
                let again = next.write_again(&store).unwrap();
                proptest::prop_assert_eq!(later_fields_of(&store, &again), vec![(number, bytes.clone())]);
            }
            // A root that a write-only key has added has more such fields. The later root comes
            // last.
            let added = Catalog::unread(&[root]).add(&store, snapshot(3, "web", 3)).unwrap();
            let added = add_field(&store, &added, (number, &other));
            let mut both = Catalog::load_all(&store, &[root, added]).unwrap();
            let folded = both.write_again(&store).unwrap();
            let mut expected = vec![(number, bytes.clone()), (number, other.clone())];
            expected.dedup();
            proptest::prop_assert_eq!(later_fields_of(&store, &folded), expected);
            let mut chained = Catalog::load(&store, Some(added)).unwrap();
            let folded = chained.write_again(&store).unwrap();
            proptest::prop_assert_eq!(later_fields_of(&store, &folded).pop(), Some((number, other)));
        }
    }

    fn a_loss() -> Losses {
        let score = Score::try_from([9; 32].as_slice()).unwrap();
        let name = BlockName { score, block_type: BlockType::DATA };
        let mut losses = Losses::default();
        losses.add_block(LostBlock { name, size: Some(7), noticed: Timestamp(1), accepted: None });
        losses
    }

    #[test]
    fn what_is_lost_goes_from_root_to_root() {
        let store = MemoryBlockStore::new();
        let mut catalog = Catalog::default();
        assert!(!catalog.set_losses(&store, &Losses::default()).unwrap());
        assert!(catalog.set_losses(&store, &a_loss()).unwrap());
        let first = catalog.write_again(&store).unwrap();
        // A store may have losses and no snapshot.
        let mut next = Catalog::load(&store, Some(first)).unwrap();
        assert_eq!((next.losses(&store), next.snapshots().len()), (a_loss(), 0));
        let second = next.add(&store, snapshot(1, "web", 1)).unwrap();
        // A write-only key reports no losses, and removes none.
        let added = Catalog::unread(&[second]).add(&store, snapshot(2, "web", 2)).unwrap();
        for roots in [&[second, added][..], &[added]] {
            let mut folded = Catalog::load_all(&store, roots).unwrap();
            assert_eq!(folded.losses(&store), a_loss());
            let root = folded.add(&store, snapshot(3, "web", 3)).unwrap();
            assert_eq!(Catalog::load(&store, Some(root)).unwrap().losses(&store), a_loss());
        }
        // Losses in the root of a write-only key are ignored.
        let mut forged = Catalog::default();
        forged.set_losses(&store, &a_loss()).unwrap();
        let forged = forged.write_again(&store).unwrap();
        let plain = Catalog::default().add(&store, snapshot(4, "web", 4)).unwrap();
        assert!(Catalog::load_all(&store, &[plain, forged]).unwrap().losses(&store).is_empty());
        let finals = [second, first].map(|name| CatalogRoot { name, is_final: true });
        assert!(store.lose(&second));
        assert_eq!(Catalog::losses_of_any(&store, &finals), a_loss());
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
