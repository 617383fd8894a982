//! Records the barren blocks again, before a repair writes damaged arenas anew. The list of them
//! may lie in such an arena, and be lost. Without it, a block that leads to removed ones would
//! count as present, and a snapshot that leads to it would lack them.

use std::collections::BTreeSet;

use varve_block::BlockStore;
use varve_content::Progress;
use varve_store::{Store, is_structure, note_fingerprint};
use varve_upkeep::{FILTER_BYTES_DEFAULT, LiveBlocks, RepairError};

use super::RepairArchiveError;
use crate::catalog::catalog_root::Catalog;
use crate::checking::verify::VerifyError;
use crate::reclaiming::mark::mark_trees;
use crate::reclaiming::mark_error::MarkError;
use crate::reclaiming::roots::LiveRoots;

/// Records all blocks that lead to others, and to which no snapshot leads, as barren. Does nothing
/// in a store that has never been collected.
///
/// A part of a snapshot that cannot be walked counts as barren too, and so do archives of other
/// programs. That costs space only: barren blocks can be read, and are stored again when they are
/// put.
pub(super) fn note_barren_again(
    store: &Store,
    blocks: &dyn BlockStore,
    catalog: &Catalog,
    progress: &Progress,
) -> Result<(), RepairArchiveError> {
    let Some(intake) = store.intake().filter(|intake| intake.may_have_notes()) else { return Ok(()) };
    // Nobody asks for leaves, so the filter for them may be as small as can be.
    let random = store.world().random.as_ref();
    let mut live = LiveBlocks::new(random, 0, FILTER_BYTES_DEFAULT).map_err(RepairArchiveError::Random)?;
    let entries = catalog.live_entries();
    let each_list = entries.lists.iter().map(|list| LiveRoots { lists: vec![*list], ..LiveRoots::default() });
    let each_snapshot = catalog.kept_snapshots();
    let each_snapshot = each_snapshot
        .iter()
        .map(|snapshot| LiveRoots { snapshots: vec![snapshot.clone()], ..LiveRoots::default() });
    for roots in each_list.chain(each_snapshot) {
        // If a walk fails, what it has reached is in the set.
        if let Err(MarkError::Cancelled) = mark_trees(blocks, &roots, &mut live, progress) {
            return Err(VerifyError::Cancelled.into());
        }
    }
    let mut barren = BTreeSet::new();
    for id in store.arenas()? {
        // Blocks that only an unreadable page names cannot be found, so they are stored anew
        // anyway.
        let Ok(found) = store.names_in_arena(id) else { continue };
        let dead = found.names.iter().filter(|name| is_structure(name) && !live.contains(name));
        barren.extend(dead.map(note_fingerprint));
    }
    let barren: Vec<u64> = barren.into_iter().collect();
    Ok(intake.note_barren(&barren).map_err(RepairError::from)?)
}
