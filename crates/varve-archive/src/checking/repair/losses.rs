//! Records the losses that a repair leaves. The record is in the log before a damaged arena is
//! written anew. A crash in between therefore leaves either the damage or the record.

use std::collections::BTreeSet;

use varve_block::{BlockKind, BlockName, BlockStore, BlockType, GetError};
use varve_log::{ArenaId, OpenLogError};
use varve_store::{CatalogRoot, Store};
use varve_upkeep::{Checker, LostEnd, LostRange, MendPlan, RepairError, Witness};
use varve_world::Timestamp;

use super::RepairArchiveError;
use crate::catalog::catalog_root::{Catalog, SaveCatalogError};
use crate::catalog::losses::{BLOCKS_MAX, Losses, LostBlock, LostPlace, PlaceId};
use crate::checking::verify::VerifyError;

/// The list of losses during a repair.
pub(super) struct LossRecorder<'a> {
    store: &'a Store,
    losses: Losses,
    now: Timestamp,
    /// The current roots before the repair.
    held: Vec<BlockName>,
    /// The place of the last final root among those. A loss before this place hides no snapshot.
    held_at: Option<(ArenaId, u64)>,
}

impl<'a> LossRecorder<'a> {
    /// Starts with the recorded losses. `roots` are all roots that the log names, newest first.
    /// Their lists are added if the list of `catalog` is unreadable, or if the catalog was lost and
    /// put together from them.
    pub(super) fn begin(
        store: &'a Store,
        blocks: &dyn BlockStore,
        catalog: &Catalog,
        was_lost: bool,
        roots: &[CatalogRoot],
    ) -> Self {
        let mut losses = catalog.losses(blocks);
        if was_lost || losses.is_cut() {
            losses.absorb_earlier(&Catalog::losses_of_any(blocks, roots));
        }
        let (held, held_at) = (store.catalogs(), store.final_catalog_place());
        Self { store, losses, now: store.world().clock.now(), held, held_at }
    }

    /// The names of the blocks that are recorded as lost.
    pub(super) fn names(&self) -> BTreeSet<BlockName> {
        self.losses.blocks().map(|block| block.name).collect()
    }

    /// Records the roots that are unreadable through `blocks`: the snapshots that only they list
    /// are unknown.
    pub(super) fn note_lost_roots(&mut self, blocks: &dyn BlockStore) {
        for name in self.held.clone() {
            if matches!(blocks.get(&name), Err(GetError::NotFound { .. } | GetError::Damaged { .. })) {
                self.add_block(name, None);
            }
        }
    }

    /// Records that the end of the log is gone, if a hint says so. Does nothing if a place that
    /// ends with the same page is recorded already.
    pub(super) fn note_lost_end(&mut self) {
        let Some(LostEnd { arena, range, page }) = Checker::of(self.store).lost_end() else { return };
        let witness = Some(Witness::Page(page));
        let is_end = |id: PlaceId| id.arena == arena && id.witness == witness && id.may_hide_snapshots;
        if !self.losses.places().any(|place| is_end(place.id) && place.accepted.is_none()) {
            let id = PlaceId { arena, generation: None, range, may_hide_snapshots: true, witness };
            self.losses.add_place(LostPlace { id, noticed: self.now, accepted: None });
        }
    }

    /// Records the losses that this plan causes. Other arenas may hold some of these blocks: see
    /// [`drop_readable`](Self::drop_readable).
    pub(super) fn foresee(&mut self, plan: &MendPlan) -> Result<(), RepairArchiveError> {
        let roots = OnceRoots::default();
        for id in plan.arenas.keys() {
            let loss = Checker::of(self.store).loss_of(*id).map_err(RepairError::Read)?;
            let superseded = self.superseded(&roots, loss.blocks.keys())?;
            let mut lost = loss.blocks;
            lost.retain(|name, _| !superseded.contains(name));
            if self.losses.block_count().saturating_add(lost.len()) > BLOCKS_MAX {
                // The list has no room for so many names, so they are recorded as one place.
                let range = LostRange { first: 0, last: None };
                self.add_place(PlaceId {
                    arena: *id,
                    generation: loss.generation,
                    range,
                    may_hide_snapshots: true,
                    witness: loss.whole,
                });
                continue;
            }
            lost.into_iter().for_each(|(name, size)| self.add_block(name, Some(size.into())));
            for (range, witness) in loss.ranges {
                let may_hide_snapshots = self.may_hide_snapshots(*id, range);
                let (arena, generation) = (*id, loss.generation);
                self.add_place(PlaceId { arena, generation, range, may_hide_snapshots, witness });
            }
        }
        Ok(())
    }

    /// The blocks among `names` that belong only to the lists of roots that are no longer current.
    /// Nothing needs these blocks.
    fn superseded<'n>(
        &self,
        roots: &OnceRoots,
        names: impl Iterator<Item = &'n BlockName>,
    ) -> Result<BTreeSet<BlockName>, OpenLogError> {
        let is_held = |name: &BlockName| self.held.contains(name);
        let of_type = |block_type: BlockType| match block_type.kind() {
            BlockKind::Catalog | BlockKind::Data => true,
            BlockKind::Directory | BlockKind::Root | BlockKind::Note => false,
        };
        let lost: BTreeSet<_> =
            names.copied().filter(|name| of_type(name.block_type) && !is_held(name)).collect();
        if lost.is_empty() {
            return Ok(lost);
        }
        let own = roots.own_blocks(self.store, &self.held)?;
        let is_root = |name: &BlockName| name.block_type == BlockType::CATALOG;
        Ok(lost.into_iter().filter(|name| is_root(name) || own.contains(name)).collect())
    }

    /// Returns whether this place may have held a catalog that is newer than the known ones.
    fn may_hide_snapshots(&self, arena: ArenaId, range: LostRange) -> bool {
        self.held_at.is_none_or(|held_at| (arena, range.last.unwrap_or(u64::MAX)) > held_at)
    }

    fn add_block(&mut self, name: BlockName, size: Option<u64>) {
        self.losses.add_block(LostBlock { name, size, noticed: self.now, accepted: None });
    }

    /// Adds a place if it may hide data. If only Varve writes to a store, everything that counts is
    /// reachable from its catalog. A lost place that hides no snapshot then adds nothing to what
    /// the snapshots themselves show.
    fn add_place(&mut self, id: PlaceId) {
        if id.may_hide_snapshots || Checker::of(self.store).may_have_foreign_roots() {
            self.losses.add_place(LostPlace { id, noticed: self.now, accepted: None });
        }
    }

    /// Removes the places whose contents a copy of this store still names, if all of those blocks
    /// are readable through `blocks`.
    pub(super) fn settle_places(&mut self, sources: &[&Store], blocks: &dyn BlockStore) {
        let store = self.store;
        let is_copy = |source: &&Store| {
            let (own, theirs) = (store.config(), source.config());
            (own.id, own.encryption) == (theirs.id, theirs.encryption)
        };
        let copies: Vec<_> = sources.iter().copied().filter(is_copy).collect();
        self.losses.settle_places(|place| copies.iter().any(|copy| brings_back(copy, place, blocks)));
    }

    /// Removes the blocks that are readable again.
    pub(super) fn drop_readable(&mut self) -> Result<(), RepairArchiveError> {
        self.losses.drop_readable(self.store).map_err(VerifyError::from)?;
        Ok(())
    }

    /// Removes these blocks.
    pub(super) fn drop_blocks<'n>(&mut self, names: impl Iterator<Item = &'n BlockName>) {
        self.losses.drop_blocks(names);
    }

    /// Stores the list for the next root of the catalog. Returns whether it differs from the
    /// previous list.
    pub(super) fn set(&self, catalog: &mut Catalog) -> Result<bool, SaveCatalogError> {
        catalog.set_losses(self.store, &self.losses)
    }

    /// The losses that are not accepted.
    pub(super) fn into_unaccepted(self) -> Losses {
        self.losses.unaccepted()
    }
}

/// The blocks of the roots that are no longer current, computed at the first request.
#[derive(Default)]
struct OnceRoots(std::cell::OnceCell<BTreeSet<BlockName>>);

impl OnceRoots {
    /// The blocks in the lists of all roots, without those that the lists of the current roots need
    /// too.
    fn own_blocks(&self, store: &Store, held: &[BlockName]) -> Result<&BTreeSet<BlockName>, OpenLogError> {
        if let Some(known) = self.0.get() {
            return Ok(known);
        }
        let (mut own, mut needed) = (BTreeSet::new(), BTreeSet::new());
        for root in store.catalog_roots()? {
            let is_held = held.contains(&root.name);
            Catalog::own_blocks(store, &root.name, if is_held { &mut needed } else { &mut own });
        }
        own.retain(|name| !needed.contains(name));
        Ok(self.0.get_or_init(|| own))
    }
}

/// Returns whether a copy named everything that a lost place held, and all of it is readable
/// through `blocks`, which reads from the copy. The witness proves the first. Without a witness,
/// the copy may have a different history, so the place stays recorded.
fn brings_back(copy: &Store, place: &PlaceId, blocks: &dyn BlockStore) -> bool {
    let has_named =
        place.witness.is_some_and(|witness| Checker::of(copy).has_named(place.arena, place.range, &witness));
    if !has_named {
        return false;
    }
    if !place.is_end_of_log() {
        return has_all_of(copy, place.arena, blocks);
    }
    // Later arenas may hold further blocks of the lost end.
    let Ok(ids) = copy.arenas() else { return false };
    let mut after = ids.into_iter().filter(|id| *id >= place.arena);
    Checker::of(copy).is_unbroken_from(place.arena) && after.all(|id| has_all_of(copy, id, blocks))
}

/// Returns whether all blocks that an arena of a copy names are readable.
fn has_all_of(copy: &Store, id: ArenaId, blocks: &dyn BlockStore) -> bool {
    let Ok(found) = copy.names_in_arena(id) else { return false };
    let counts = |name: &&BlockName| name.block_type != BlockType::CATALOG;
    found.failure.is_none() && found.names.iter().filter(counts).all(|name| blocks.get(name).is_ok())
}
