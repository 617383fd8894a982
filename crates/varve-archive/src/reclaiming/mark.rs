//! Marks the live blocks: walks every tree that a root leads to, and adds its blocks to a set.
//!
//! It changes nothing in the store, and needs no lock. A mark that ran without the lock is brought
//! up to date by another one with the same set: everything that was walked is skipped, so the
//! second mark costs little. Only after a mark under the lock is the set complete.

use varve_block::{BlockStore, BlockType, GetError, Score};
use varve_content::Progress;
use varve_store::Store;
use varve_tree::{TreeBlock, previous_archive};
use varve_upkeep::LiveBlocks;

use super::block_walk::{TreePart, WalkBlocksError, WalkVisitor};
use super::mark_error::{MarkError, MarkTreeError};
use super::roots::{ForeignRoots, LiveRoots};
use super::snapshot_walk::{MarkReport, SnapshotWalk};

/// Adds everything that these roots lead to, and the bases of all deltas. The set may hold the
/// results of earlier marks, also of marks that have failed.
///
/// # Errors
/// [`MarkError`]: the set is not complete.
pub fn mark(
    store: &Store,
    roots: &LiveRoots,
    live: &mut LiveBlocks,
    progress: &Progress,
) -> Result<MarkReport, MarkError> {
    let mut report = mark_trees(store, roots, live, progress)?;
    live.insert_bases(store, &store.arenas()?)?;
    let archives = match &roots.foreign {
        ForeignRoots::None => return Ok(report),
        ForeignRoots::Named(scores) => scores.clone(),
        ForeignRoots::All => all_archives(store)?,
    };
    let mut walk = SnapshotWalk::new(store, live, progress);
    for score in archives {
        mark_foreign(&mut walk, score, &roots.foreign)?;
    }
    report.add(&walk.report());
    Ok(report)
}

/// Adds everything that snapshots and lists lead to, in any block store. Leaves out archives of
/// other programs that no snapshot names.
///
/// # Errors
/// [`MarkError`].
pub(crate) fn mark_trees(
    blocks: &dyn BlockStore,
    roots: &LiveRoots,
    live: &mut LiveBlocks,
    progress: &Progress,
) -> Result<MarkReport, MarkError> {
    live.set_catalog_root(roots.catalog_root);
    let mut walk = SnapshotWalk::new(blocks, live, progress);
    for list in &roots.lists {
        walk.list((), list)?;
    }
    // The newest snapshot comes first: its blocks are most likely to be in memory, and the older
    // ones mostly share them.
    for snapshot in roots.snapshots.iter().rev() {
        walk.snapshot((), snapshot)?;
    }
    Ok(walk.report())
}

/// The scores of all blocks of type root.
fn all_archives(store: &Store) -> Result<Vec<Score>, MarkError> {
    let mut scores = Vec::new();
    for id in store.arenas()? {
        if store.vault().log().was_never_begun(id).unwrap_or(false) {
            continue;
        }
        let found = store.names_in_arena(id)?;
        if let Some(error) = found.failure {
            return Err(error.into());
        }
        let roots = found.names.iter().filter(|name| name.block_type == BlockType::ROOT);
        scores.extend(roots.map(|name| name.score));
    }
    scores.sort_unstable();
    scores.dedup();
    Ok(scores)
}

/// Adds an archive that no snapshot names.
fn mark_foreign(
    walk: &mut SnapshotWalk<'_, LiveBlocks>,
    score: Score,
    foreign: &ForeignRoots,
) -> Result<(), MarkError> {
    if !walk.is_score(&score) {
        return Err(MarkError::OtherScores { score });
    }
    let marked = match foreign {
        ForeignRoots::Named(_) => mark_with_earlier(walk, score),
        _ => mark_if_it_is_one(walk, score),
    };
    marked.map_err(|error| error.into_mark(|source| MarkError::Archive { score, source }))
}

/// Adds an archive and those before it, as far as they are in the store.
fn mark_with_earlier(walk: &mut SnapshotWalk<'_, LiveBlocks>, score: Score) -> Result<(), MarkTreeError> {
    let mut next = Some(score);
    while let Some(root) = next.take().map(TreeBlock::of_archive) {
        let is_first = root.name.score == score;
        let bytes = match walk.walk.blocks().get(&root.name) {
            Err(GetError::NotFound { .. }) if !is_first => break,
            read => read.map_err(WalkBlocksError::from)?,
        };
        if is_first || !walk.walk.visitor().is_done(TreePart::Block(&root)) {
            next = previous_archive(&root, &bytes).map_err(WalkBlocksError::from)?;
            walk.archive((), root.name.score)?;
        }
    }
    Ok(())
}

/// Adds an archive. A block of type root with other contents leads to nothing, and is kept.
fn mark_if_it_is_one(walk: &mut SnapshotWalk<'_, LiveBlocks>, score: Score) -> Result<(), MarkTreeError> {
    let root = TreeBlock::of_archive(score);
    let bytes = walk.walk.blocks().get(&root.name).map_err(WalkBlocksError::from)?;
    if previous_archive(&root, &bytes).is_err() {
        walk.walk.visitor().insert(&root.name);
        return Ok(());
    }
    walk.archive((), score)
}
