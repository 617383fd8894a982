//! Repair: fetches lost blocks from intact copies, and salvages damaged arenas.
//!
//! ```text
//! check ─▶ mend from parity or a copy ─▶ find the catalog ─▶ fetch lost blocks
//!       ─▶ write damaged arenas anew ─▶ report the remaining harm
//! ```
//!
//! If the lost blocks are known, the cost of a repair is in proportion to the loss. They are known
//! from the log itself, from a read that failed, or from an earlier check. The trees of all
//! snapshots are walked only if nothing tells which blocks a damaged place held.

mod accept;
mod losses;

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use varve_block::{BlockName, BlockStore, GetError, PutError, SyncError};
use varve_log::{ArenaId, OpenLogError};
use varve_store::{CompareMode, Permission, Store};
use varve_upkeep::{
    AuditShare, Checker, Damage, DamageKind, MendError, Mender, RepairError, RepairPlan, Repaired,
};

pub use self::accept::{AcceptLossError, AcceptPlan, accept_losses, plan_to_accept};
use self::losses::LossRecorder;
use crate::catalog::catalog_root::{Catalog, SaveCatalogError};
use crate::catalog::losses::Losses;
use crate::checking::verify::{
    Harm, Verified, VerifyError, WalkFindings, blocks_without_copy, check_known, check_log, walk_snapshots,
};
use crate::progress::Progress;

/// The extent of the search for damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairScope {
    /// Only at places with recorded suspicions; everywhere, if there are none.
    Known,
    /// Everywhere: every byte is read.
    All,
}

/// The result of a repair: the damage found, the work done, and the harm left.
#[derive(Debug, Default)]
pub struct RepairReport {
    /// The damage before the repair, and the harm that it did.
    pub before: Verified,
    /// The arenas that were written anew, or would be.
    pub plan: RepairPlan,
    /// True if the catalog was lost, and was put together from older ones.
    pub catalog_was_lost: bool,
    /// True if the end of the log was gone, and with it snapshots that only a copy can name.
    pub end_was_lost: bool,
    /// Snapshots that were found only in a copy, or in a catalog that no page named any more.
    pub brought_back_count: u64,
    /// Arenas that were mended from their parity.
    pub mended: Vec<ArenaId>,
    /// Arenas that were mended from a copy.
    pub copied: Vec<ArenaId>,
    /// True if every byte was read to find the damage.
    pub is_all_checked: bool,
    /// Blocks that were fetched from copies.
    pub fetched_block_count: u64,
    /// The changes to the log.
    pub repaired: Repaired,
    /// The harm to snapshots that remains.
    pub harm_left: Vec<Harm>,
    /// The open losses, whether or not a snapshot needs them. In a plan, the losses that the repair
    /// would leave.
    pub losses: Losses,
}

/// Why a repair stopped. The parts of the store that it had not reached are unchanged.
#[derive(Debug, thiserror::Error)]
pub enum RepairArchiveError {
    #[error("{0}")]
    Verify(#[from] VerifyError),
    #[error("{0}")]
    List(#[from] OpenLogError),
    /// A fetched block could not be stored.
    #[error("what was fetched cannot be stored")]
    Put(#[from] PutError),
    /// The fetched blocks could not be made durable.
    #[error("what was fetched cannot be made durable")]
    Sync(#[from] SyncError),
    #[error("{0}")]
    Log(#[from] RepairError),
    /// An arena could be mended from its parity or from a copy, but the disk refuses the write.
    #[error("what is damaged can be mended, and the disk does not take it; it is as it was")]
    Mend(#[source] MendError),
    #[error("the files of parity cannot be listed")]
    Parity(#[source] std::io::Error),
    /// The catalog could not be written anew.
    #[error("the catalog cannot be put together again")]
    Catalog(#[from] SaveCatalogError),
}

/// Plans what [`repair`] would do, without doing it.
///
/// # Errors
/// [`RepairArchiveError`].
pub fn plan_repair(
    store: &Store,
    scope: RepairScope,
    progress: &Progress,
) -> Result<RepairReport, RepairArchiveError> {
    store.role().require(Permission::Read).map_err(RepairError::from)?;
    let (mut before, is_all_checked) = check(store, scope, progress)?;
    let found = find_catalog(store, store, &[], &before.damage)?;
    let snapshots = found.catalog.snapshots();
    let walked = walk_snapshots(store, store, snapshots, &before.damage, progress)?;
    before.note_walk(snapshots, walked);
    let plan = RepairPlan::new(&before.damage);
    let mut recording =
        LossRecorder::begin(store, store, &found.catalog, found.was_lost, &store.catalog_roots()?);
    recording.foresee(&plan)?;
    recording.note_lost_roots(store);
    if found.end_was_lost {
        recording.note_lost_end();
    }
    recording.drop_readable()?;
    Ok(RepairReport {
        before,
        plan,
        losses: recording.into_unaccepted(),
        catalog_was_lost: found.was_lost,
        end_was_lost: found.end_was_lost,
        is_all_checked,
        ..RepairReport::default()
    })
}

/// Repairs a store. `sources` are copies of it: they supply blocks that are damaged or missing, and
/// the catalog if the newest one is lost.
///
/// # Errors
/// [`RepairArchiveError`].
pub fn repair(
    store: &Store,
    sources: &[&Store],
    scope: RepairScope,
    progress: &Progress,
) -> Result<RepairReport, RepairArchiveError> {
    store.role().require(Permission::Destroy).map_err(RepairError::from)?;
    for source in sources {
        source.role().require(Permission::Read).map_err(RepairError::from)?;
    }
    let mender = Mender::of(store)?;
    mender.accept_withheld();
    let (mut before, mut is_all_checked) = check(store, scope, progress)?;
    if is_ledger_wrong(&before.damage) && !mender.take_in_replaced()?.is_empty() {
        (before, is_all_checked) = check(store, scope, progress)?;
    }
    // Mended arenas may name snapshots that nothing else names. Those names were unknown when the
    // store was opened.
    let roots = store.catalog_roots()?;
    let mut known: BTreeSet<_> = roots.iter().map(|root| root.name).collect();
    // First mend whole arenas, which brings all of their blocks back.
    let parity_mended = mend_from_parity(mender, store, &before.damage)?;
    drop_mended(store, &mut before, &parity_mended)?;
    let copied = mend_from_copies(mender, sources, &before.damage)?;
    drop_mended(store, &mut before, &copied)?;
    let mended =
        FetchingStore { store, sources, fetched_count: AtomicU64::new(0), failure: Mutex::default() };
    let found = find_catalog(store, &mended, sources, &before.damage)?;
    let FoundCatalog { mut catalog, was_lost, end_was_lost, brought_back_count } = found;
    if was_lost {
        // The blocks below a root may be intact, even if the page that named the root is lost.
        known.clear();
    }
    let is_all_named =
        !is_all_checked && !was_lost && !end_was_lost && brought_back_count == 0 && is_named(&before.damage);
    if is_all_named {
        before.snapshot_count = catalog.snapshots().len() as u64;
        before.lost = blocks_without_copy(store, &before.damage).map_err(VerifyError::from)?;
        before.lost.extend(store.lost_blocks().into_iter().filter(|name| store.get(name).is_err()));
    } else {
        let walked = walk_snapshots(store, store, catalog.snapshots(), &before.damage, progress)?;
        before.note_walk(catalog.snapshots(), walked);
    }
    store.remember_lost(&before.lost);
    let mut recording = LossRecorder::begin(store, &mended, &catalog, was_lost, &roots);
    let mut wanted = before.lost.clone();
    wanted.extend(recording.names());
    if !is_all_named {
        // This walk reads through the sources, so that it also finds losses below a pointer block
        // that was lost.
        let reached = walk_snapshots(store, &mended, catalog.snapshots(), &before.damage, progress)?;
        wanted.extend(reached.lost);
    }
    // A block that no source has stays lost, and is reported below.
    let mut is_all_back = true;
    for name in &wanted {
        is_all_back &= mended.get(name).is_ok();
    }
    let plan = RepairPlan::new(&before.damage);
    recording.drop_readable()?;
    recording.foresee(&plan)?;
    recording.note_lost_roots(&mended);
    if end_was_lost {
        recording.note_lost_end();
    }
    recording.settle_places(sources, &mended);
    let fetched_block_count = mended.into_fetched_count()?;
    let is_recorded = !recording.set(&mut catalog)?;
    // Before a block that leads to the catalog is written elsewhere, the catalog must be complete
    // and at the end of the log. A lost end alone does not demand this: with the root that it has,
    // this log is still recognised as an older state of its copies.
    let is_due = was_lost || brought_back_count > 0 || !plan.arenas.is_empty() || !is_recorded;
    if is_due || !lists_all(store, &catalog)? {
        catalog.write_again(store)?;
    }
    store.sync()?;
    if was_lost || end_was_lost || store.end_is_lost() {
        mender.accept_end()?;
    }
    let mut repaired = mender.repair(&plan)?;
    let found_again_count = add_found_again(store, &known, &mut catalog)?;
    let brought_back_count = brought_back_count + found_again_count;
    let is_changed =
        repaired.arena_count > 0 || is_ledger_wrong(&before.damage) || was_lost || brought_back_count > 0;
    recording.drop_readable()?;
    if recording.set(&mut catalog)? || is_changed {
        // The page that recorded the new seals names no blocks, and a crash removes it. This page
        // stays, and keeps its ledger.
        catalog.write_again(store)?;
    }
    if is_changed || end_was_lost {
        // If the end of the log was gone, only the ledger of the new pages tells how many arenas
        // there were.
        let late = RepairPlan::new(&Checker::of(store).check_order()?);
        if !late.is_empty() {
            recording.foresee(&late)?;
            if recording.set(&mut catalog)? {
                catalog.write_again(store)?;
            }
            repaired += mender.repair(&late)?;
            recording.drop_readable()?;
            recording.set(&mut catalog)?;
            catalog.write_again(store)?;
        }
    }
    let after = if is_all_named && is_all_back && found_again_count == 0 {
        WalkFindings::default()
    } else {
        walk_snapshots(store, store, catalog.snapshots(), &[], progress)?
    };
    store.remember_lost(&after.lost);
    let mut damaged = Checker::of(store).damaged_arenas();
    let is_settled = |id: &ArenaId| plan.arenas.contains_key(id) || plan.parity.contains(id);
    damaged.retain(|id| !is_settled(id) && !parity_mended.contains(id) && !copied.contains(id));
    Checker::of(store).note_damaged(&damaged);
    let harm_left = after.harm;
    Ok(RepairReport {
        before,
        plan,
        catalog_was_lost: was_lost,
        end_was_lost,
        brought_back_count,
        mended: parity_mended,
        copied,
        is_all_checked,
        fetched_block_count,
        repaired,
        harm_left,
        losses: recording.into_unaccepted(),
    })
}

/// Looks for damage. Returns the findings, and whether every byte was read.
fn check(store: &Store, scope: RepairScope, progress: &Progress) -> Result<(Verified, bool), VerifyError> {
    if scope == RepairScope::Known
        && let Some(known) = check_known(store, !noted_losses(store).is_empty(), progress)?
    {
        return Ok((known, false));
    }
    Ok((check_log(store, Some(AuditShare::ALL), progress)?, true))
}

/// The recorded losses that are not accepted; none if the catalog is unreadable.
fn noted_losses(store: &Store) -> Losses {
    Catalog::load_all(store, &store.catalogs())
        .map(|catalog| catalog.losses(store).unaccepted())
        .unwrap_or_default()
}

/// Returns whether the ledger of the last page differs from the existing seals: the page is older
/// than a repair, or an arena was replaced.
fn is_ledger_wrong(damage: &[Damage]) -> bool {
    damage.iter().any(|damage| matches!(damage.kind, DamageKind::Ledger))
}

/// Returns whether all damage names the blocks that it destroyed. If the ledger differs from the
/// existing seals, an arena may be from another history, and its missing blocks are unknown.
fn is_named(damage: &[Damage]) -> bool {
    damage.iter().all(|damage| match damage.kind {
        DamageKind::Parity(_) | DamageKind::TornEnd => true,
        _ => !damage.blocks.is_empty(),
    })
}

/// Removes the damage of mended arenas from the findings. Each mended arena was checked as a whole.
fn drop_mended(store: &Store, found: &mut Verified, mended: &[ArenaId]) -> Result<(), RepairArchiveError> {
    if mended.is_empty() {
        return Ok(());
    }
    found.damage.retain(|damage| match damage.kind {
        DamageKind::Parity(_) => true,
        DamageKind::SealLost | DamageKind::Missing | DamageKind::Ledger | DamageKind::EndLost => false,
        _ => !mended.contains(&damage.arena),
    });
    found.damage.extend(Checker::of(store).check_order()?);
    Ok(())
}

/// Replaces sealed arenas by those of a copy, if the blocks in their damaged places are unknown.
/// Returns the mended arenas.
fn mend_from_copies(
    mender: Mender<'_>,
    sources: &[&Store],
    damage: &[Damage],
) -> Result<Vec<ArenaId>, RepairArchiveError> {
    let arenas = RepairPlan::new(damage).arenas;
    let is_unnamed =
        |id: &ArenaId| damage.iter().any(|damage| damage.arena == *id && damage.blocks.is_empty());
    let mut mended = Vec::new();
    for id in arenas.into_keys().filter(is_unnamed) {
        for source in sources {
            if is_mended(false, || mender.mend_arena_from_copy(id, source).map(drop))? {
                mended.push(id);
                break;
            }
        }
    }
    Ok(mended)
}

/// Adds the snapshots that only a rediscovered catalog names. A lost page may have named a newer
/// catalog than any that was known, or parts of one. If its blocks are intact, the repair has named
/// them again. Returns the number of snapshots added.
fn add_found_again(
    store: &Store,
    known: &BTreeSet<BlockName>,
    catalog: &mut Catalog,
) -> Result<u64, OpenLogError> {
    let count = catalog.snapshots().len();
    for root in store.catalog_roots()?.into_iter().filter(|root| !known.contains(&root.name)) {
        match Catalog::load(store, Some(root.name)) {
            Ok(found) => catalog.add_unknown(&found),
            Err(error) => {
                tracing::info!(root = %root.name, %error, "a catalog that was found again cannot be read")
            }
        }
    }
    Ok((catalog.snapshots().len() - count) as u64)
}

/// Mends damaged and missing arenas from parity. Returns the arenas that are intact again.
fn mend_from_parity(
    mender: Mender<'_>,
    store: &Store,
    damage: &[Damage],
) -> Result<Vec<ArenaId>, RepairArchiveError> {
    let with_parity: BTreeSet<_> = store
        .vault()
        .parity()
        .list()
        .map_err(RepairArchiveError::Parity)?
        .into_iter()
        .map(|(id, _)| id)
        .collect();
    let there: BTreeSet<_> = store.arenas()?.into_iter().collect();
    let damaged = RepairPlan::new(damage).arenas;
    let mut mended = Vec::new();
    for id in with_parity.into_iter().filter(|id| damaged.contains_key(id) || !there.contains(id)) {
        if is_mended(true, || mender.mend_arena_from_parity(id).map(drop))? {
            mended.push(id);
        }
    }
    Ok(mended)
}

/// Mends an arena if possible. Otherwise the repair writes it anew, which discards everything that
/// its parity or a copy still has. Temporary faults must not lead to that, nor a disk that refuses
/// the mended bytes: they are retried or returned as errors. `reads_again` is set if the bytes come
/// from this disk. A remote source has retried its reads already.
fn is_mended(
    reads_again: bool,
    mend: impl Fn() -> Result<(), MendError>,
) -> Result<bool, RepairArchiveError> {
    let mut try_count = 0;
    loop {
        match mend() {
            Ok(()) => return Ok(true),
            Err(error) if try_count < error.tries_left() && (reads_again || error.is_refusal()) => {
                try_count += 1;
            }
            Err(error) if error.is_refusal() => return Err(RepairArchiveError::Mend(error)),
            Err(error) => {
                tracing::info!(error = &error as &dyn Error, "an arena is not mended");
                return Ok(false);
            }
        }
    }
}

struct FoundCatalog {
    catalog: Catalog,
    /// True if the newest catalog was lost, and this one was put together from others.
    was_lost: bool,
    end_was_lost: bool,
    brought_back_count: u64,
}

/// Finds the newest catalog. If it is lost, or was written after the end of this log, the result
/// joins older catalogs and those of the sources.
fn find_catalog(
    store: &Store,
    blocks: &dyn BlockStore,
    sources: &[&Store],
    damage: &[Damage],
) -> Result<FoundCatalog, OpenLogError> {
    let roots = store.catalogs();
    // A root that leads nowhere counts as lost, even if other roots hide it.
    let unreadable = roots.iter().find_map(|root| Catalog::load(blocks, Some(*root)).err());
    let newest = unreadable.map_or_else(|| Catalog::load_all(blocks, &roots), Err);
    let was_lost = newest.is_err();
    let mut catalog = match newest {
        Ok(catalog) => catalog,
        Err(_) => Catalog::salvage(blocks, &store.catalog_roots()?),
    };
    let end_was_lost = damage.iter().any(|damage| matches!(damage.kind, DamageKind::EndLost));
    // A lost page may have named a newer root than any that is known here.
    let may_lack_newest = was_lost
        || end_was_lost
        || !RepairPlan::new(damage).arenas.is_empty()
        || catalog.losses(blocks).unaccepted().places().any(|place| place.id.may_hide_snapshots);
    let own_count = catalog.snapshots().len();
    for source in sources {
        if (may_lack_newest || goes_on(source, &roots)?)
            && let Ok(theirs) = Catalog::load_all(*source, &source.catalogs())
        {
            catalog.add_unknown(&theirs);
        }
    }
    let brought_back_count = (catalog.snapshots().len() - own_count) as u64;
    Ok(FoundCatalog { catalog, was_lost, end_was_lost, brought_back_count })
}

/// Returns whether the next opening of the store finds all snapshots in `catalog`. Mended blocks
/// may come after the newest root, and snapshots from a copy are known only to this session.
fn lists_all(store: &Store, catalog: &Catalog) -> Result<bool, OpenLogError> {
    let Ok(found) = Catalog::load_all(store, &store.newest_catalog_roots()?) else { return Ok(false) };
    let ids: BTreeSet<_> = found.snapshots().iter().map(|snapshot| snapshot.id).collect();
    Ok(catalog.snapshots().iter().all(|snapshot| ids.contains(&snapshot.id)))
}

/// Returns whether a copy holds all of these roots and newer ones. The log of the roots is then an
/// older state of the copy, or has lost its end without noticing.
fn goes_on(source: &Store, roots: &[BlockName]) -> Result<bool, OpenLogError> {
    let theirs = source.catalogs();
    if theirs.iter().all(|root| roots.contains(root)) {
        return Ok(false);
    }
    let known: BTreeSet<_> = source.catalog_roots()?.into_iter().map(|root| root.name).collect();
    Ok(roots.iter().all(|root| known.contains(root)))
}

/// A store that fetches its lost blocks from copies, and keeps them.
struct FetchingStore<'a> {
    store: &'a Store,
    sources: &'a [&'a Store],
    fetched_count: AtomicU64,
    /// The first failure to keep a fetched block.
    failure: Mutex<Option<PutError>>,
}

impl FetchingStore<'_> {
    /// The number of blocks that came from a source.
    fn into_fetched_count(self) -> Result<u64, PutError> {
        match self.failure.into_inner() {
            Some(error) => Err(error),
            None => Ok(self.fetched_count.into_inner()),
        }
    }

    /// Returns whether blocks of a source are acceptable. If scores are hashes, a block with the
    /// right hash is right, wherever it comes from. In a by-value store, only a copy of the same
    /// store can supply it.
    fn may_believe(&self, source: &Store) -> bool {
        let (own, theirs) = (self.store.config(), source.config());
        own.compare == CompareMode::Hash || (own.id, own.encryption) == (theirs.id, theirs.encryption)
    }

    /// Fetches a block from the first source that has it intact.
    fn fetch(&self, name: &BlockName) -> Option<Bytes> {
        let is_right = |bytes: &Bytes| self.store.namer().named_again(&name.score, bytes) == name.score;
        let bytes = self
            .sources
            .iter()
            .filter(|source| self.may_believe(source))
            .find_map(|source| source.get(name).ok().filter(is_right))?;
        match self.store.put_back(&[(*name, bytes.clone())]) {
            Ok(stored_count) => drop(self.fetched_count.fetch_add(stored_count, Ordering::Relaxed)),
            Err(error) => {
                self.failure.lock().get_or_insert(error);
            }
        }
        Some(bytes)
    }
}

impl BlockStore for FetchingStore<'_> {
    varve_block::forward_block_store!(store: score_bytes, empty_score, put, sync);

    fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
        match self.store.get(name) {
            Err(error @ (GetError::NotFound { .. } | GetError::Damaged { .. })) => {
                self.fetch(name).ok_or(error)
            }
            other => other,
        }
    }
}
