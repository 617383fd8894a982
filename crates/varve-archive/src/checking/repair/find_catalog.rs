//! Finds the catalog of a damaged store.

use std::collections::BTreeSet;

use varve_block::BlockName;
use varve_log::OpenLogError;
use varve_store::Store;

use super::fetching_store::FetchingStore;
use crate::catalog::catalog_root::Catalog;
use crate::catalog::snapshot_id::SnapshotId;

pub(super) struct FoundCatalog {
    pub(super) catalog: Catalog,
    /// True if the newest catalog was lost, and this one was put together from others.
    pub(super) was_lost: bool,
    /// The snapshots that only copies know.
    pub(super) brought_back_count: u64,
    /// The number of the newest final root that the catalog was read from.
    pub(super) sequence: u64,
}

/// Finds the newest catalog. If it is lost, or was written after the end of this log, the result
/// joins older catalogs and those of the copies.
pub(super) fn find_catalog(
    store: &Store,
    copies: &FetchingStore<'_>,
    may_lack_page: bool,
) -> Result<FoundCatalog, OpenLogError> {
    let roots = store.catalogs();
    // A root that leads nowhere counts as lost, even if other roots hide it.
    let unreadable = roots.iter().find_map(|root| Catalog::load(copies, Some(*root)).err());
    let newest =
        unreadable.map_or_else(|| Catalog::load_of(store, copies).and_then(Catalog::require_forgotten), Err);
    let was_lost = newest.is_err();
    let mut catalog = match newest {
        Ok(catalog) => catalog,
        Err(_) => Catalog::salvage(copies, &store.catalog_roots()?),
    };
    // A lost page may have named a newer root than any that is known here.
    let may_lack_newest = was_lost
        || may_lack_page
        || catalog.losses(copies).unaccepted().places().any(|place| place.id.may_hide_snapshots);
    let own = ids(&catalog);
    for copy in copies.all() {
        if (may_lack_newest || goes_on(copy, &roots)?)
            && let Ok(theirs) = Catalog::load_of(copy, *copy)
        {
            catalog.join(&theirs, catalog.sequence());
        }
    }
    let catalog = catalog.with_settled_origins(store);
    let brought_back_count = ids(&catalog).difference(&own).count() as u64;
    let sequence = catalog.sequence();
    Ok(FoundCatalog { catalog, was_lost, brought_back_count, sequence })
}

fn ids(catalog: &Catalog) -> BTreeSet<SnapshotId> {
    catalog.snapshots().iter().map(|snapshot| snapshot.id).collect()
}

/// Returns whether the next opening of the store finds all snapshots in `catalog`, and none that it
/// has removed. Mended blocks may come after the newest root, and snapshots from a copy are known
/// only to this session.
pub(super) fn lists_all(store: &Store, catalog: &Catalog) -> Result<bool, OpenLogError> {
    let mut roots = store.catalog_roots()?;
    let newest_final = roots.iter().position(|root| root.is_final);
    roots.truncate(newest_final.map_or(roots.len(), |place| place + 1));
    roots.reverse();
    Ok(Catalog::load_all(store, &roots).is_ok_and(|found| found.covers(catalog)))
}

/// Returns whether a copy holds all of these roots and newer ones. The log of the roots is then an
/// older state of the copy, or has lost its end without noticing.
fn goes_on(copy: &Store, roots: &[BlockName]) -> Result<bool, OpenLogError> {
    let theirs = copy.catalogs();
    if theirs.iter().all(|root| roots.contains(root)) {
        return Ok(false);
    }
    let known: BTreeSet<_> = copy.catalog_roots()?.into_iter().map(|root| root.name).collect();
    Ok(roots.iter().all(|root| known.contains(root)))
}

/// Adds the snapshots that only a rediscovered catalog names. A lost page may have named a newer
/// catalog than any that was known, or parts of one. If its blocks are intact, the repair has named
/// them again. `sequence` is the number of the newest final root that the catalog was read from.
/// Returns the number of snapshots added.
pub(super) fn add_found_again(
    store: &Store,
    known: &BTreeSet<BlockName>,
    catalog: &mut Catalog,
    mut sequence: u64,
) -> Result<u64, OpenLogError> {
    let own = ids(catalog);
    for root in store.catalog_roots()?.into_iter().filter(|root| !known.contains(&root.name)) {
        match Catalog::load_all(store, &[root]).map(|found| found.with_settled_origins(store)) {
            Ok(found) => {
                catalog.join(&found, sequence);
                sequence = sequence.max(found.sequence());
            }
            Err(error) => {
                tracing::info!(root = %root.name, %error, "a recovered catalog cannot be read")
            }
        }
    }
    Ok(ids(catalog).difference(&own).count() as u64)
}
