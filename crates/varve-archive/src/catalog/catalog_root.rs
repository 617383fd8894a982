//! The catalog, itself stored in the log. Its root is the last block that a finished snapshot
//! writes.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use varve_block::{
    Block, BlockKind, BlockName, BlockStore, BlockType, PutError, Score, SyncError, with_causes,
};
use varve_content::{FieldWriter, Node, Records, UnknownFields, frame};
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
    /// The catalog was written, but its root could not be noted for readers.
    #[error("{0}")]
    Root(#[source] Box<dyn Error + Send + Sync>),
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
    /// read, a collector may have freed or moved it; then the newer roots of the store are read, or
    /// the same ones once more.
    ///
    /// # Errors
    /// [`LoadCatalogError`].
    pub fn load_of(store: &Store, blocks: &dyn BlockStore) -> Result<Self, LoadCatalogError> {
        Ok(Self::load_newest(store, blocks)?.with_settled_origins(store))
    }

    fn load_newest(store: &Store, blocks: &dyn BlockStore) -> Result<Self, LoadCatalogError> {
        let (mut roots, mut is_second_look) = (roots_of(store), false);
        for _ in 1..LOADS_MAX {
            let mut complaints = Vec::new();
            let loaded = Self::load_joined(blocks, &roots, &mut complaints);
            let is_doubtful = loaded.is_err() || !complaints.is_empty();
            if is_doubtful {
                store.follow().unwrap_or_else(|error| {
                    tracing::warn!(%error, "the end of the log cannot be read");
                    false
                });
            }
            // A read may have followed the log as well.
            let now = roots_of(store);
            let are_same = now == roots;
            if are_same && (is_second_look || !is_doubtful) {
                return tell(loaded, &complaints);
            }
            is_second_look = are_same;
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
    pub fn replace(
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
mod tests;
