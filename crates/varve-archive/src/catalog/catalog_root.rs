//! The catalog, itself stored in the log. Its root is the last block that a finished snapshot
//! writes.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use varve_block::{
    Block, BlockKind, BlockName, BlockStore, BlockType, PutError, Score, SyncError, with_causes,
};
use varve_log::ArenaVersion;
use varve_store::{CatalogRoot, Intake, ReplaceError, Store};
use varve_tree::{ContentWriter, Cutting, Entry, Visit, walk};

use crate::catalog::known_snapshots::KnownSnapshots;
use crate::catalog::losses::Losses;
use crate::catalog::origins::{own_origin, settle_origins};
use crate::catalog::removed::{RemovedLists, TrashedSnapshot};
use crate::catalog::root_record::{
    LoadCatalogError, RootChain, RootRecord, decode_root, is_lost, may_come_back, read_chain,
};
use crate::catalog::snapshot::{Snapshot, SnapshotContent};
use crate::catalog::snapshot_filter::source_path;
use crate::catalog::snapshot_id::SnapshotId;
use crate::catalog::snapshot_request::SnapshotRequest;
use crate::records::fields::{FieldWriter, UnknownFields, frame};
use crate::records::node::Node;
use crate::records::record_list::Records;

/// All snapshots of a store, in the order in which they were finished, and those that were
/// forgotten.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalog {
    /// The number of the newest final root.
    sequence: u64,
    known: KnownSnapshots,
    /// The earlier roots, newest first, if this process may not read the catalog. A reader follows
    /// the first one that is readable.
    unread: Option<Vec<Score>>,
    /// The entry of the list of losses.
    losses: Option<Entry>,
    /// The entries of the lists of snapshots, of the trash and of the snapshots that are gone, in
    /// all roots that were read.
    lists: Vec<Entry>,
    /// True if blocks are lost of a catalog that a write-only key has added. Its snapshots are
    /// missing here.
    lacks_added: bool,
    /// True if the lists of forgotten snapshots were not readable to their end.
    lacks_forgotten: bool,
    /// Fields of its roots that this version does not know. Those of the newest root come last.
    unknown: UnknownFields,
}

/// The most times that a catalog is read anew because its roots have changed meanwhile.
const LOADS_MAX: usize = 16;

/// Everything that the collector of garbage must keep.
#[derive(Debug)]
pub struct LiveEntries<'a> {
    /// The listed snapshots.
    pub snapshots: &'a [Snapshot],
    /// The forgotten snapshots that can come back.
    pub trash: &'a [TrashedSnapshot],
    /// The catalog's own lists. Their leaves lead to nothing else.
    pub lists: Vec<Entry>,
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
    /// The new catalog would lack snapshots in the trash, or list some that are gone.
    #[error("the lists of forgotten snapshots could not be read, and the new catalog would lack them")]
    LacksForgotten,
    /// Programs of before would lose a part of the new catalog, so it needs a new arena.
    #[error("the arena that the catalog needs could not be begun")]
    Version(#[source] ReplaceError),
}

impl Catalog {
    /// Reads the catalog that `root` leads to. `None` means a store without snapshots. The writer
    /// of the root, or of the roots that it leads to, must be trusted to forget snapshots.
    ///
    /// # Errors
    /// [`LoadCatalogError`].
    pub fn load(blocks: &dyn BlockStore, root: Option<BlockName>) -> Result<Self, LoadCatalogError> {
        let root = root.map(|name| CatalogRoot { name, is_final: true });
        Self::load_all(blocks, root.as_slice())
    }

    /// Reads the catalog of a store, with the proven origins of its snapshots. Its blocks are read
    /// through `blocks`: from the store itself, or with the help of copies. If something cannot be
    /// read, a collector may have freed the roots that the store knows; then its newer roots are
    /// read instead.
    ///
    /// # Errors
    /// [`LoadCatalogError`].
    pub fn load_of(store: &Store, blocks: &dyn BlockStore) -> Result<Self, LoadCatalogError> {
        Ok(Self::load_newest(store, blocks)?.with_settled_origins(store))
    }

    fn load_newest(store: &Store, blocks: &dyn BlockStore) -> Result<Self, LoadCatalogError> {
        let mut roots = roots_of(store);
        for _ in 1..LOADS_MAX {
            let mut complaints = Vec::new();
            let loaded = Self::load_joined(blocks, &roots, &mut complaints);
            if loaded.is_err() || !complaints.is_empty() {
                store.follow().unwrap_or_else(|error| {
                    tracing::warn!(%error, "the end of the log cannot be read");
                    false
                });
            }
            // A read may have followed the log as well.
            let now = roots_of(store);
            if now == roots {
                return tell(loaded, &complaints);
            }
            roots = now;
        }
        Self::load_all(blocks, &roots)
    }

    /// The catalog with the proven origins of its snapshots in place of the claimed ones.
    pub(crate) fn with_settled_origins(self, store: &Store) -> Self {
        self.with(|known| settle_origins(known, store.vault()))
    }

    /// A snapshot that is about to be added, with its origin.
    pub(crate) fn with_own_origin(&self, store: &Store, snapshot: Snapshot) -> Snapshot {
        Snapshot { origin: own_origin(&self.known, store.vault(), &snapshot), ..snapshot }
    }

    /// Reads the catalogs that these roots lead to, and joins them into one. The first root was
    /// written by a process that could read the catalog before it, if it is final. The others were
    /// added since then, oldest first, by write-only keys. A root that omits or spoils something
    /// hides nothing that the others hold. Only the first root, if it is final, decides which
    /// snapshots are forgotten. Lost catalogs among the added ones are omitted.
    ///
    /// # Errors
    /// [`LoadCatalogError`]. If the first catalog is lost, the call fails, because the others do
    /// not repeat its contents.
    pub fn load_all(blocks: &dyn BlockStore, roots: &[CatalogRoot]) -> Result<Self, LoadCatalogError> {
        let mut complaints = Vec::new();
        let loaded = Self::load_joined(blocks, roots, &mut complaints);
        tell(loaded, &complaints)
    }

    /// Does the work of [`load_all`](Self::load_all). Adds the damage that it passes over to
    /// `complaints`.
    fn load_joined(
        blocks: &dyn BlockStore,
        roots: &[CatalogRoot],
        complaints: &mut Vec<String>,
    ) -> Result<Self, LoadCatalogError> {
        let mut catalog = Self::default();
        let mut passed = BTreeSet::new();
        let (mut added, mut failure) = (Vec::new(), None);
        for (place, root) in roots.iter().enumerate() {
            let is_first = place == 0;
            match read_chain(blocks, root.name.score, &mut passed) {
                Ok(chain) if is_first && root.is_final => {
                    catalog = Self::of_final(blocks, chain, complaints)?;
                }
                Ok(chain) => {
                    catalog.unknown.extend(&chain.unknown);
                    catalog.lists.extend(chain.lists);
                    added.extend(chain.snapshots);
                }
                // A temporary error decides nothing: the catalog may be readable later.
                Err(error) if may_come_back(&error) => return Err(error),
                Err(error) if is_first && is_lost(&error) => return Err(error),
                Err(error) if is_first => {
                    failure = Some(error);
                    catalog.lacks_forgotten = root.is_final;
                }
                Err(error) => {
                    let what = "a catalog that was added cannot be read";
                    complaints.push(format!("{what}: {}: {}", root.name, with_causes(&error)));
                    catalog.lacks_added |= is_lost(&error);
                }
            }
        }
        catalog.known.list_added(added);
        match failure {
            // Later roots may lead to this root, or to the ones before it.
            Some(error) if catalog.snapshots().is_empty() => Err(error),
            _ => Ok(catalog),
        }
    }

    /// The catalog of a final root, or of a chain that ends with one.
    fn of_final(
        blocks: &dyn BlockStore,
        chain: RootChain,
        complaints: &mut Vec<String>,
    ) -> Result<Self, LoadCatalogError> {
        let RootChain { sequence, snapshots, mut lists, losses, removed, unknown } = chain;
        let (found, whole) = removed.read(blocks);
        let lacks_forgotten = whole.is_err();
        if let Err(error) = whole.map_err(LoadCatalogError::from) {
            if may_come_back(&error) {
                return Err(error);
            }
            let what = "the lists of forgotten snapshots cannot be read";
            complaints.push(format!("{what}: {}", with_causes(&error)));
        }
        lists.extend(removed.trash.into_iter().chain(removed.gone));
        let known = KnownSnapshots::of_final(snapshots, found);
        Ok(Self { sequence, known, losses, lists, lacks_forgotten, unknown, ..Self::default() })
    }

    /// Returns the catalog if the next catalog may replace it: it lacks no snapshot that was added,
    /// and none that was forgotten.
    ///
    /// # Errors
    /// [`LoadCatalogError::LacksAdded`] and [`LoadCatalogError::LacksForgotten`].
    pub(crate) fn require_all(self) -> Result<Self, LoadCatalogError> {
        if self.lacks_added { Err(LoadCatalogError::LacksAdded) } else { self.require_forgotten() }
    }

    /// Returns the catalog if it lacks no snapshot that was forgotten.
    ///
    /// # Errors
    /// [`LoadCatalogError::LacksForgotten`].
    pub(crate) fn require_forgotten(self) -> Result<Self, LoadCatalogError> {
        if self.lacks_forgotten { Err(LoadCatalogError::LacksForgotten) } else { Ok(self) }
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
        self.known.listed()
    }

    /// The forgotten snapshots that can come back, in the order in which they were forgotten.
    #[must_use]
    pub fn trash(&self) -> &[TrashedSnapshot] {
        self.known.trash()
    }

    /// The snapshots that cannot come back, except by a copy from elsewhere.
    #[must_use]
    pub fn gone(&self) -> &BTreeSet<SnapshotId> {
        self.known.gone()
    }

    /// The listed snapshots, and behind them those in the trash.
    #[must_use]
    pub fn kept_snapshots(&self) -> Cow<'_, [Snapshot]> {
        if self.trash().is_empty() {
            return Cow::Borrowed(self.snapshots());
        }
        let trash = self.trash().iter().map(|trashed| &trashed.snapshot);
        self.snapshots().iter().chain(trash).cloned().collect()
    }

    /// Returns whether this snapshot is in the trash, or gone.
    #[must_use]
    pub fn is_forgotten(&self, id: SnapshotId) -> bool {
        self.gone().contains(&id) || self.trash().iter().any(|trashed| trashed.snapshot.id == id)
    }

    /// Returns whether the lists of forgotten snapshots were not readable to their end. Some of
    /// those snapshots may then be listed, and some can be undone only after a repair.
    #[must_use]
    pub fn lacks_forgotten(&self) -> bool {
        self.lacks_forgotten
    }

    /// Everything that the catalog leads to, and the lists of the catalog itself. The blocks of the
    /// roots come on top.
    #[must_use]
    pub fn live_entries(&self) -> LiveEntries<'_> {
        let lists = self.lists.iter().copied().chain(self.losses).collect();
        LiveEntries { snapshots: self.snapshots(), trash: self.trash(), lists }
    }

    /// Returns whether older programs would lose something of this catalog: a hold, a date up to
    /// which a snapshot is kept, or a snapshot that was forgotten. Its root must then lie in an
    /// arena of version 3, which they refuse.
    #[must_use]
    pub fn needs_arena_version_3(&self) -> bool {
        let is_kept = |snapshot: &Snapshot| !snapshot.holds.is_empty() || snapshot.keep_until.is_some();
        !self.known.removed().is_empty() || self.snapshots().iter().any(is_kept)
    }

    /// The number of the newest final root.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
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
        for entry in Self::own_lists(blocks, root).unwrap_or_default() {
            walk(blocks, &entry, &mut |node| {
                let is_known = !names.insert(node.name);
                if is_known { Visit::Skip } else { Visit::Descend }
            });
        }
    }

    /// Returns the entries of the lists that belong to a root itself.
    ///
    /// # Errors
    /// [`LoadCatalogError`] when the root cannot be read.
    pub(crate) fn own_lists(
        blocks: &dyn BlockStore,
        root: &BlockName,
    ) -> Result<Vec<Entry>, LoadCatalogError> {
        let root = decode_root(&blocks.get(root)?, blocks.score_bytes())?;
        let RootRecord { list, losses, removed: RemovedLists { trash, gone }, .. } = root;
        Ok([Some(list), losses, trash, gone].into_iter().flatten().collect())
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

    /// The root node of the newest folder snapshot of the same host, name and source that
    /// `is_believed` admits. The next snapshot takes over its unchanged files without reading them.
    pub(crate) fn newest_folder(
        &self,
        request: &SnapshotRequest,
        is_believed: impl Fn(&Snapshot) -> bool,
    ) -> Option<&Node> {
        let source = Path::new(OsStr::from_bytes(&request.source));
        let is_same = |snapshot: &&Snapshot| {
            snapshot.is_of_series(&request.host, &request.name) && source_path(snapshot) == source
        };
        let same = self.snapshots().iter().rev().filter(is_same);
        let folders = same.filter_map(|snapshot| match &snapshot.content {
            SnapshotContent::Folder(root) => Some((snapshot, &**root)),
            SnapshotContent::Image(_) => None,
        });
        folders.filter(|(snapshot, _)| is_believed(snapshot)).map(|(_, root)| root).next()
    }

    /// The newest image that is likely to resemble one that is requested: it has the same name, or
    /// the same source, on the same host. Its blocks are read only as bases of deltas.
    pub(crate) fn newest_image_like(&self, request: &SnapshotRequest) -> Option<&Entry> {
        let is_like = |snapshot: &&Snapshot| {
            let has_source = !request.source.is_empty() && snapshot.source == request.source;
            snapshot.host == request.host && (snapshot.name == request.name || has_source)
        };
        self.snapshots().iter().rev().filter(is_like).find_map(|snapshot| match &snapshot.content {
            SnapshotContent::Image(image) => Some(image),
            SnapshotContent::Folder(_) => None,
        })
    }

    /// Adds a snapshot. First makes everything that it leads to durable, and then the catalog that
    /// leads to it. Returns the new root.
    ///
    /// # Errors
    /// [`SaveCatalogError`].
    pub fn add(
        &mut self,
        blocks: &dyn BlockStore,
        snapshot: Snapshot,
    ) -> Result<BlockName, SaveCatalogError> {
        let next = self.bring_back(snapshot);
        self.replace(blocks, next)
    }

    /// The catalog with one more snapshot. If the snapshot was forgotten, it comes back by this,
    /// even if it was gone: its content must have been stored again.
    pub(crate) fn bring_back(&self, snapshot: Snapshot) -> Self {
        self.with(|known| known.bring_back(snapshot))
    }

    /// The catalog with a change of its snapshots.
    pub(crate) fn with(&self, change: impl FnOnce(&mut KnownSnapshots)) -> Self {
        let mut next = self.clone();
        change(&mut next.known);
        next
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
        self.replace(blocks, self.with(|known| known.change(changed)))
    }

    /// Collects the snapshots that are still readable in these catalogs. `roots` are newest first.
    /// The result holds the whole of the newest intact catalog, and the readable snapshots of the
    /// younger, damaged ones. Only a final root is complete by itself, because its writer could
    /// read the catalog before it. An added root is complete only together with the roots that it
    /// leads to.
    pub(crate) fn salvage(blocks: &dyn BlockStore, roots: &[CatalogRoot]) -> Self {
        let mut salvaged = Self::default();
        let mut added = Vec::new();
        for CatalogRoot { name, is_final } in roots {
            let Ok(RootRecord { sequence, list, mut unknown, removed, .. }) = blocks
                .get(name)
                .map_err(LoadCatalogError::from)
                .and_then(|block| decode_root(&block, blocks.score_bytes()))
            else {
                continue;
            };
            unknown.extend(&salvaged.unknown);
            salvaged.unknown = unknown;
            let (listed, is_list_whole) = readable_snapshots(blocks, &list);
            if !is_final {
                added.push(listed);
                continue;
            }
            let (removed, is_removed_whole) = removed.read(blocks);
            salvaged.sequence = salvaged.sequence.max(sequence);
            salvaged.known.join(&KnownSnapshots::of_final(listed, removed), Ordering::Less);
            if is_list_whole && is_removed_whole.is_ok() {
                break;
            }
        }
        salvaged.known.list_added(added.into_iter().rev().flatten().collect());
        salvaged
    }

    /// Adds the snapshots of another catalog of the same store: of a copy, or of a root that was
    /// found again. `sequence` is the number of the newest final root that this catalog was read
    /// from: the newer of two final roots decides which snapshots are forgotten.
    pub(crate) fn join(&mut self, other: &Self, sequence: u64) {
        self.known.join(&other.known, other.sequence.cmp(&sequence));
        self.sequence = self.sequence.max(other.sequence);
        let mut unknown = other.unknown.clone();
        unknown.extend(&self.unknown);
        self.unknown = unknown;
    }

    /// Returns whether a reader of this catalog finds all that `other` lists, and nothing that
    /// `other` has removed.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.known.covers(&other.known)
    }

    /// Stores the next catalog in a store. One that needs arenas of version 3 does not go into an
    /// older one, because older programs would lose a part of it.
    ///
    /// # Errors
    /// [`SaveCatalogError`]; the catalog is then unchanged.
    pub(crate) fn write_next(&mut self, store: &Store, next: Self) -> Result<BlockName, SaveCatalogError> {
        if let Some(intake) = store.intake().filter(|_| next.needs_arena_version_3()) {
            intake.raise_arena_version(ArenaVersion::Notes).map_err(SaveCatalogError::Version)?;
        }
        let _reserve = store.intake().map(Intake::use_reserve);
        self.replace(store, next)
    }

    /// Stores the unchanged catalog under a new root.
    ///
    /// # Errors
    /// As [`write_next`](Self::write_next).
    pub(crate) fn write_again(&mut self, store: &Store) -> Result<BlockName, SaveCatalogError> {
        self.write_next(store, self.clone())
    }

    /// Stores the next catalog, which takes the place of this one. Returns its root.
    ///
    /// # Errors
    /// [`SaveCatalogError`]; the catalog is then unchanged.
    pub(crate) fn replace(
        &mut self,
        blocks: &dyn BlockStore,
        mut next: Self,
    ) -> Result<BlockName, SaveCatalogError> {
        next.sequence = next.sequence.saturating_add(1);
        let root = next.save(blocks)?;
        *self = next;
        Ok(root)
    }

    /// Stores the lists and then a root that leads to them, each with a sync.
    fn save(&mut self, blocks: &dyn BlockStore) -> Result<BlockName, SaveCatalogError> {
        if self.lacks_forgotten {
            return Err(SaveCatalogError::LacksForgotten);
        }
        let mut list = ContentWriter::new(blocks, BlockKind::Data, Cutting::DIRECTORY);
        let mut record = Vec::new();
        for snapshot in self.known.listed() {
            record.clear();
            frame(&snapshot.encode(), &mut record);
            list.write(&record)?;
        }
        let list = list.finish()?;
        let RemovedLists { trash, gone } = self.known.removed().write(blocks)?;
        // A crash between the two syncs leaves the old catalog. Without the first sync, it could
        // leave a catalog that leads to lost blocks.
        blocks.sync().map_err(SaveCatalogError::Data)?;
        let encoded = |entry: &Option<Entry>| entry.as_ref().map(Entry::encode);
        let root = match &self.unread {
            None => FieldWriter::new()
                .number(1, self.sequence)
                .bytes(2, &list.encode())
                .optional_bytes(4, encoded(&trash).as_deref())
                .optional_bytes(5, encoded(&gone).as_deref())
                .optional_bytes(6, encoded(&self.losses).as_deref()),
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
        self.known.settle();
        self.lists = [Some(list), trash, gone].into_iter().flatten().collect();
        Ok(BlockName { score, block_type: BlockType::CATALOG })
    }
}

fn tell(
    loaded: Result<Catalog, LoadCatalogError>,
    complaints: &[String],
) -> Result<Catalog, LoadCatalogError> {
    for complaint in complaints {
        tracing::error!("{complaint}");
    }
    loaded
}

/// The roots from which the catalog of a store is read, oldest first: the newest final one, and all
/// roots after it. Without a final root, all roots.
fn roots_of(store: &Store) -> Vec<CatalogRoot> {
    loop {
        let is_final = store.final_catalog_place().is_some();
        let names = store.catalogs();
        // Another thread may have noticed the first final root of the store meanwhile.
        if is_final == store.final_catalog_place().is_some() {
            let root = |(place, name)| CatalogRoot { name, is_final: is_final && place == 0 };
            return names.into_iter().enumerate().map(root).collect();
        }
    }
}

/// Reads a list of snapshots up to the first damage. Returns whether there is none.
fn readable_snapshots(blocks: &dyn BlockStore, list: &Entry) -> (Vec<Snapshot>, bool) {
    let mut snapshots = Vec::new();
    let mut records = Records::new(blocks, list);
    while let Some(record) = records.next() {
        match record.map(|record| Snapshot::decode(record, blocks.score_bytes())) {
            Ok(Ok(snapshot)) => snapshots.push(snapshot),
            _ => return (snapshots, false),
        }
    }
    (snapshots, true)
}

#[cfg(test)]
mod tests {
    use varve_block::{GetError, MemoryBlockStore};
    use varve_world::Timestamp;

    use super::*;
    use crate::catalog::losses::LostBlock;
    use crate::catalog::removed::tests::trashed;
    use crate::catalog::snapshot::tests::snapshot;
    use crate::records::fields::{FieldReader, split_record};

    /// Roots of which the first is final.
    fn final_first(names: &[BlockName]) -> Vec<CatalogRoot> {
        let root = |(place, name): (usize, &BlockName)| CatalogRoot { name: *name, is_final: place == 0 };
        names.iter().enumerate().map(root).collect()
    }

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
        let loaded = Catalog::load_all(&store, &final_first(&roots)).unwrap();
        assert_eq!(loaded.snapshots().iter().map(|one| one.id.0[0]).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(loaded.require_all().is_ok(), "what makes no sense was never there");
        // A lost catalog is different: its contents are unknown, and the next catalog would lack
        // them.
        assert!(store.lose(&honest));
        let loaded = Catalog::load_all(&store, &final_first(&roots)).unwrap();
        assert_eq!(loaded.snapshots().iter().map(|one| one.id.0[0]).collect::<Vec<_>>(), [1, 3]);
        assert!(matches!(loaded.require_all(), Err(LoadCatalogError::LacksAdded)));
        assert!(store.lose(&base));
        assert!(Catalog::load(&store, Some(base)).is_err());
        assert!(
            Catalog::load_all(&store, &final_first(&roots)).is_err(),
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
        let root = salvaged.replace(&store, salvaged.clone()).unwrap();
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
            copied.join(&loaded, 0);
            let ways = [Catalog::salvage(&store, &finals), copied, loaded];
            for mut next in ways {
                let added = next.add(&store, snapshot(2, "web", 2)).unwrap();
                proptest::prop_assert_eq!(later_fields_of(&store, &added), vec![(number, bytes.clone())]);
                let again = next.replace(&store, next.clone()).unwrap();
                proptest::prop_assert_eq!(later_fields_of(&store, &again), vec![(number, bytes.clone())]);
            }
            // A root that a write-only key has added has more such fields. The later root comes
            // last.
            let added = Catalog::unread(&[root]).add(&store, snapshot(3, "web", 3)).unwrap();
            let added = add_field(&store, &added, (number, &other));
            let mut both = Catalog::load_all(&store, &final_first(&[root, added])).unwrap();
            let folded = both.replace(&store, both.clone()).unwrap();
            let mut expected = vec![(number, bytes.clone()), (number, other.clone())];
            expected.dedup();
            proptest::prop_assert_eq!(later_fields_of(&store, &folded), expected);
            let mut chained = Catalog::load(&store, Some(added)).unwrap();
            let folded = chained.replace(&store, chained.clone()).unwrap();
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
        let first = catalog.replace(&store, catalog.clone()).unwrap();
        // A store may have losses and no snapshot.
        let mut next = Catalog::load(&store, Some(first)).unwrap();
        assert_eq!((next.losses(&store), next.snapshots().len()), (a_loss(), 0));
        let second = next.add(&store, snapshot(1, "web", 1)).unwrap();
        // A write-only key reports no losses, and removes none.
        let added = Catalog::unread(&[second]).add(&store, snapshot(2, "web", 2)).unwrap();
        for roots in [&[second, added][..], &[added]] {
            let mut folded = Catalog::load_all(&store, &final_first(roots)).unwrap();
            assert_eq!(folded.losses(&store), a_loss());
            let root = folded.add(&store, snapshot(3, "web", 3)).unwrap();
            assert_eq!(Catalog::load(&store, Some(root)).unwrap().losses(&store), a_loss());
        }
        // Losses in the root of a write-only key are ignored.
        let mut forged = Catalog::default();
        forged.set_losses(&store, &a_loss()).unwrap();
        let forged = forged.replace(&store, forged.clone()).unwrap();
        let plain = Catalog::default().add(&store, snapshot(4, "web", 4)).unwrap();
        assert!(Catalog::load_all(&store, &final_first(&[plain, forged])).unwrap().losses(&store).is_empty());
        let finals = [second, first].map(|name| CatalogRoot { name, is_final: true });
        assert!(store.lose(&second));
        assert_eq!(Catalog::losses_of_any(&store, &finals), a_loss());
    }

    #[test]
    fn no_root_panics() {
        let store = MemoryBlockStore::new();
        let mut catalog = Catalog::default();
        let root = catalog.add(&store, snapshot(1, "web", 1)).unwrap();
        let added = Catalog::unread(&[root]).add(&store, snapshot(2, "web", 2)).unwrap();
        let next = catalog.with(|known| known.forget(vec![trashed(1, 9), trashed(2, 9)]));
        let next = next.with(|known| known.expire(&[trashed(2, 9).snapshot.id].into()));
        let forgotten = catalog.replace(&store, next).unwrap();
        for root in [added, forgotten] {
            let good = store.get(&root).unwrap();
            for (place, bit) in (0..good.len()).flat_map(|place| (0..8).map(move |bit| (place, bit))) {
                let mut bad = good.to_vec();
                bad[place] ^= 1 << bit;
                let score = store.put(Block { block_type: BlockType::CATALOG, bytes: &bad }).unwrap();
                drop(Catalog::load(&store, Some(BlockName { score, block_type: BlockType::CATALOG })));
            }
        }
    }
}
