//! The roots of everything in a store that is live. If anything is in doubt, there are none, and
//! nothing may be freed.

use std::collections::BTreeSet;

use varve_block::{BlockName, BlockStore, BlockType, Score};
use varve_content::Records;
use varve_log::{ArenaId, OpenLogError, ReadLogError};
use varve_store::{CatalogRoot, Store};
use varve_tree::Entry;
use varve_upkeep::{Checker, DamageKind};
use varve_world::Timestamp;

use crate::catalog::catalog_root::Catalog;
use crate::catalog::root_record::LoadCatalogError;
use crate::catalog::snapshot::Snapshot;
use crate::catalog::snapshot_id::SnapshotId;

/// Trees that no catalog leads to: archives that Venti's clients have stored. Only those clients
/// know their scores.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ForeignRoots {
    /// There are none.
    #[default]
    None,
    /// The archives with these scores, and the earlier ones that they name and that are in the
    /// store.
    Named(Vec<Score>),
    /// All blocks of type root.
    All,
}

/// The roots of everything that is live.
#[derive(Debug, Clone, Default)]
pub struct LiveRoots {
    /// In the order in which they were finished.
    pub snapshots: Vec<Snapshot>,
    /// The lists of the catalogs.
    pub lists: Vec<Entry>,
    /// The newest final root of the catalog.
    pub catalog_root: Option<BlockName>,
    pub foreign: ForeignRoots,
}

/// The reason why the roots of a store are not certain.
#[derive(Debug, thiserror::Error)]
pub enum FindRootsError {
    #[error("{0}")]
    List(#[from] OpenLogError),
    /// The log is not as it was written, so newer snapshots may be missing.
    #[error("arena {arena}: {kind}")]
    Damaged { arena: ArenaId, kind: DamageKind },
    /// A part of the log that may name a catalog cannot be read.
    #[error("{0}")]
    Read(#[from] ReadLogError),
    #[error("{0}")]
    Catalog(#[from] LoadCatalogError),
}

/// The newest roots of the catalog.
struct NewestRoots {
    /// The newest final root and all added roots after it, oldest first.
    all: Vec<CatalogRoot>,
    final_root: Option<BlockName>,
}

impl LiveRoots {
    /// Finds the roots of a store, as the log shows them. If another process writes to the store,
    /// newer roots may exist. All snapshots of the list and of the trash are live, except for those
    /// in `left_out`.
    ///
    /// # Errors
    /// [`FindRootsError`]: a root may be missing.
    pub fn of(
        store: &Store,
        foreign: ForeignRoots,
        left_out: &BTreeSet<SnapshotId>,
    ) -> Result<Self, FindRootsError> {
        if let Some(damage) = Checker::of(store).check_order()?.into_iter().next() {
            return Err(FindRootsError::Damaged { arena: damage.arena, kind: damage.kind });
        }
        let NewestRoots { all, final_root } = newest_roots(store)?;
        let catalog = Catalog::load_all(store, &all)?.require_all()?;
        let trash = catalog.trash().iter().map(|trashed| &trashed.snapshot);
        let all_snapshots = trash.chain(catalog.snapshots());
        let snapshots = all_snapshots.filter(|snapshot| !left_out.contains(&snapshot.id)).cloned().collect();
        let mut lists = BTreeSet::new();
        for root in &all {
            lists.extend(Catalog::own_lists(store, &root.name)?);
        }
        Ok(Self { snapshots, lists: lists.into_iter().collect(), catalog_root: final_root, foreign })
    }
}

/// Returns the arenas that were begun after the last snapshot from before `since`, as far as the
/// catalogs in the log show it. They hold young snapshots, of which some may soon be forgotten.
///
/// # Errors
/// [`FindRootsError`] when an arena's directory cannot be read.
pub fn young_arenas(store: &Store, since: Timestamp) -> Result<BTreeSet<ArenaId>, FindRootsError> {
    let mut young = BTreeSet::new();
    for id in store.arenas()?.into_iter().rev() {
        let names = store.names_in_arena(id)?.names;
        let mut roots = names.iter().filter(|name| name.block_type == BlockType::CATALOG);
        if roots.any(|root| newest_time(store, root).is_some_and(|time| time < since)) {
            break;
        }
        young.insert(id);
    }
    Ok(young)
}

/// Returns the arenas that may have been sealed after the last snapshot from before `since`, and
/// those which were written anew after it. Everything in the others is older.
///
/// # Errors
/// [`FindRootsError`] when an arena's directory cannot be read.
pub fn arenas_sealed_since(store: &Store, since: Timestamp) -> Result<BTreeSet<ArenaId>, FindRootsError> {
    let mut recent = young_arenas(store, since)?;
    // The arena with that snapshot was sealed after it.
    let last = store.arenas()?.into_iter().rfind(|id| !recent.contains(id));
    recent.extend(last);
    let notes: Vec<ArenaId> = recent.iter().copied().collect();
    let replaced = notes.into_iter().flat_map(|id| store.vault().replaced_in(id));
    recent.extend(replaced.map(|replaced| replaced.arena).collect::<Vec<_>>());
    Ok(recent)
}

/// Returns the time of the newest snapshot in a root's own list; `None` if it cannot be read.
fn newest_time(store: &Store, root: &BlockName) -> Option<Timestamp> {
    let list = Catalog::own_lists(store, root).ok()?.into_iter().next()?;
    let (mut records, mut newest) = (Records::new(store, &list), None);
    while let Some(record) = records.next() {
        let snapshot = Snapshot::decode(record.ok()?, store.score_bytes()).ok()?;
        newest = newest.max(Some(snapshot.time));
    }
    newest
}

/// Finds the newest roots from the newest arena backwards. Every page on the way must be readable,
/// since it may name a newer root.
fn newest_roots(store: &Store) -> Result<NewestRoots, FindRootsError> {
    let mut newest = NewestRoots { all: Vec::new(), final_root: None };
    let log = store.vault().log();
    for id in store.arenas()?.into_iter().rev() {
        if log.was_never_begun(id).unwrap_or(false) {
            continue;
        }
        let is_final = !store.vault().arena(id)?.header().is_write_only();
        let names = store.names_in_arena(id)?;
        if let Some(error) = names.failure {
            return Err(error.into());
        }
        let mut roots = names.names.into_iter().rev().filter(|name| name.block_type == BlockType::CATALOG);
        if is_final {
            newest.final_root = roots.next();
            newest.all.extend(newest.final_root.map(|name| CatalogRoot { name, is_final }));
        } else {
            newest.all.extend(roots.map(|name| CatalogRoot { name, is_final }));
        }
        if newest.final_root.is_some() {
            break;
        }
    }
    newest.all.reverse();
    Ok(newest)
}
