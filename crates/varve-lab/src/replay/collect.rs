//! A collection as `varve gc` does it, of the blocks that no snapshot of the trace has: the live
//! blocks are marked, the arenas measured, and those of which a tenth is dead are written anew.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use varve_block::{BlockName, BlockStore};
use varve_store::{CompareMode, Store, note_fingerprint};
use varve_upkeep::{
    ArenaMeter, BatchLimits, FILTER_BYTES_DEFAULT, LiveBlocks, ReclaimBudget, ReclaimPlan, Reclaimer,
};
use varve_world::Timestamp;

/// Arenas shorter than this part of a full one are merged, as by `varve gc`.
const MERGED_PART: u64 = 8;

/// The result of the collections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CollectedSpace {
    pub(super) collections: u64,
    pub(super) replaced_arenas: u64,
    pub(super) freed_bytes: u64,
    pub(super) written_bytes: u64,
    /// The dead bytes that the last collection has left.
    pub(super) left_bytes: u64,
}

impl CollectedSpace {
    pub(super) fn add(&mut self, more: &Self) {
        self.collections += more.collections;
        self.replaced_arenas += more.replaced_arenas;
        self.freed_bytes += more.freed_bytes;
        self.written_bytes += more.written_bytes;
        if more.collections > 0 {
            self.left_bytes = more.left_bytes;
        }
    }
}

/// Collects a store that is open for writing.
pub(super) fn collect(store: &Store, names: &[BlockName]) -> Result<CollectedSpace> {
    store.sync()?;
    let block_count = store.stats()?.block_count;
    let mut live = LiveBlocks::new(&*store.world().random, block_count, FILTER_BYTES_DEFAULT)?;
    for name in names {
        live.insert(name);
    }
    let meter = ArenaMeter::new(store, &live);
    let (mut uses, mut barren) = (Vec::new(), BTreeSet::new());
    for arena in store.arenas()? {
        let measured = meter.measure(arena).context("an arena cannot be measured")?;
        uses.push(measured.usage);
        barren.extend(measured.barren.iter().map(note_fingerprint));
    }
    let budget = ReclaimBudget {
        merge_below: store.config().arena_map.arena_bytes() / MERGED_PART,
        can_move: store.config().compare == CompareMode::Hash,
        ..ReclaimBudget::default()
    };
    let plan = ReclaimPlan::new(&uses, &budget);
    let mut done =
        CollectedSpace { collections: 1, left_bytes: plan.totals.left_bytes(), ..Default::default() };
    if plan.batches.is_empty() {
        return Ok(done);
    }
    let reclaimer = Reclaimer::of(store)?;
    reclaimer.note_barren(&barren.into_iter().collect::<Vec<_>>())?;
    let limits = BatchLimits { written_bytes: u64::MAX, until: Timestamp(i64::MAX) };
    let is_live = |name: &BlockName| live.contains(name);
    for batch in &plan.batches {
        let arenas: Vec<_> = batch.arenas.iter().map(|arena| arena.arena).collect();
        let result = if batch.is_merge {
            reclaimer.merge(&arenas, &is_live, limits, &|| false)?
        } else {
            reclaimer.replace(&arenas, &is_live, limits, &|| false)?
        };
        if let Some((arena, error)) = result.failed.into_iter().next() {
            bail!("arena {arena} is not collected: {}", varve_block::with_causes(&error));
        }
        let new_bytes: u64 = result.replaced.iter().map(|arena| arena.new_bytes).sum();
        let old_bytes: u64 = result.replaced.iter().map(|arena| arena.old_bytes).sum();
        let written = new_bytes + result.copied_bytes;
        done.replaced_arenas += result.replaced.len() as u64;
        done.written_bytes += written;
        done.freed_bytes += old_bytes.saturating_sub(written);
    }
    Ok(done)
}
