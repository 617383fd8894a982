//! Verify: finds the damage of a store, and the snapshots, files and bytes that it harms.

mod archive;
mod arenas;
mod tree;

use std::collections::BTreeSet;
use std::mem::{Discriminant, discriminant};
use std::ops::Range;

use varve_block::{BlockName, BlockStore, BlockType, GetError};
use varve_content::{FolderStack, FolderStep, Node, NodeKind, NodeList, Progress};
use varve_log::{ArenaId, OpenLogError};
use varve_store::{Permission, Store};
use varve_tree::Entry;
use varve_upkeep::{
    ArenaCheck, AuditShare, CheckArenaError, Checker, Damage, DamageKind, MendPlan, UnfinishedEnd,
};
use varve_world::{Timestamp, both};

pub use self::archive::{ArchiveHarm, VerifiedArchive, VerifyArchiveError, verify_archive};
use self::arenas::check_arenas;
use self::tree::{LeafCheck, TreeCheck};
use crate::archive::Archive;
use crate::archive::home::FollowError;
use crate::catalog::losses::{Losses, LostBlock};
use crate::catalog::snapshot::{Snapshot, SnapshotContent};
use crate::catalog::snapshot_id::SnapshotId;

/// A part of a snapshot that is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Harm {
    pub snapshot: SnapshotId,
    pub snapshot_name: String,
    pub snapshot_time: Timestamp,
    /// The file or folder in the snapshot; empty for an image.
    pub path: Vec<u8>,
    /// The lost bytes, if known.
    pub range: Option<Range<u64>>,
    pub reason: String,
}

/// The result of a verification.
#[derive(Debug, Default)]
pub struct Verified {
    /// Arenas that were checked.
    pub arena_count: u64,
    /// Blocks that these arenas name.
    pub block_count: u64,
    /// Bytes of clumps that were read and checked.
    pub checked_bytes: u64,
    /// Arenas of which every byte was read.
    pub read_count: u64,
    /// The time of the last full read of the arena that was read longest ago. `None` if an arena
    /// was never read in full, or has no seal yet.
    pub oldest_read: Option<Timestamp>,
    /// Snapshots whose trees were walked.
    pub snapshot_count: u64,
    /// The damage of the log.
    pub damage: Vec<Damage>,
    /// The harm that the damage does.
    pub harm: Vec<Harm>,
    /// The unreadable blocks that the log names or a snapshot needs, as far as their names are
    /// known.
    pub lost: BTreeSet<BlockName>,
    /// All losses that are not accepted, whether or not a snapshot needs them.
    pub losses: Losses,
    /// Arenas that are to have parity, and have none yet. That is no damage.
    pub without_parity: BTreeSet<ArenaId>,
    /// Remains of a crash that the next writer cuts off. They are no damage.
    pub unfinished: Vec<UnfinishedEnd>,
    /// The blocks in `lost` that the log still names.
    lost_in_log: BTreeSet<BlockName>,
    /// The first damage of `damage` is that of the order of the arenas; this much.
    order_count: usize,
    /// The arenas of which every byte was to be read, in order.
    read: Vec<ArenaId>,
}

/// The most looks at a finding, until two in a row agree.
const LOOKS_MAX: usize = 16;

/// Why nothing was verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("{0}")]
    List(#[from] OpenLogError),
    /// An arena or its parity was unreadable for a reason other than damage.
    #[error("{0}")]
    Read(#[from] CheckArenaError),
    /// A block lookup failed for a reason other than damage.
    #[error("{0}")]
    LookUp(#[from] GetError),
    /// The store could not be opened again for a second look.
    #[error("damage was found, and the store cannot be opened again for a second look")]
    OpenAnew(#[from] FollowError),
    #[error("interrupted")]
    Cancelled,
}

/// Checks the structure of the log, every byte of the share `data` of it, and the presence of all
/// blocks that the snapshots need. The arenas that were read are recorded, even after an
/// interruption, and the next share begins with others.
///
/// Other processes may write, forget and collect meanwhile. So what is found is looked at again,
/// with a fresh opening, until two looks in a row find the same. Only that is reported and noted.
///
/// # Errors
/// [`VerifyError`]. Damage is no error, but a result.
pub fn verify(
    archive: &Archive,
    data: Option<AuditShare>,
    progress: &Progress,
) -> Result<Verified, VerifyError> {
    let mut verified = look(archive, data, progress)?;
    // Nobody else changes a store that is open for writing.
    if !archive.store().is_open_to_write() {
        for _ in 1..LOOKS_MAX {
            if verified.damage.is_empty() && verified.harm.is_empty() {
                break;
            }
            let anew = archive.open_anew()?;
            let before = verified.findings();
            verified = look_again(&anew, verified, progress)?;
            if verified.findings() == before {
                break;
            }
        }
    }
    verified.note_damaged(archive.store());
    Ok(verified)
}

/// The first look of a verification. Notes no damage.
fn look(archive: &Archive, data: Option<AuditShare>, progress: &Progress) -> Result<Verified, VerifyError> {
    let (store, snapshots) = (archive.store(), archive.kept_snapshots());
    // The snapshots are walked while the disk reads the log. If damage is found, which is rare,
    // they are walked again to find the harm.
    let walk = |damage: &[Damage]| walk_snapshots(store, store, &snapshots, damage, progress);
    let workers = store.world().workers.as_ref();
    let (checked, walked) = both(workers, || look_at_log(store, data, true, progress), || walk(&[]));
    let mut verified = checked?;
    let walked = if verified.damage.is_empty() { walked? } else { walk(&verified.damage)? };
    verified.note_walk(&snapshots, walked);
    if store.role().allows(Permission::Read) {
        verified.losses = losses_now(store, archive.losses(), &verified.lost_in_log)?;
    }
    Ok(verified)
}

/// Looks at the arenas in which damage was found, and at all snapshots, with a fresh opening. Of
/// the damage, keeps what is found again.
fn look_again(anew: &Archive, before: Verified, progress: &Progress) -> Result<Verified, VerifyError> {
    let (store, snapshots) = (anew.store(), anew.kept_snapshots());
    let (in_order, in_arenas) = before.damage.split_at(before.order_count);
    let suspected: BTreeSet<_> = in_arenas.iter().map(|damage| damage.arena).collect();
    let suspected: Vec<_> = suspected.into_iter().collect();
    let read: Vec<_> = suspected.iter().copied().filter(|id| before.read.binary_search(id).is_ok()).collect();
    let (checks, stopped) = check_arenas(store, &suspected, &read, progress);
    stopped?;
    let found_before = |damage: &Damage, before: &[Damage]| before.iter().any(|one| is_same(one, damage));
    let mut order = Checker::of(store).check_order()?;
    order.retain(|damage| found_before(damage, in_order));
    let mut again = Verified { order_count: order.len(), damage: order, ..Verified::default() };
    again.add_checks(checks);
    let order_count = again.order_count;
    let mut place = 0;
    again.damage.retain(|damage| {
        place += 1;
        place <= order_count || found_before(damage, in_arenas)
    });
    let walked = walk_snapshots(store, store, &snapshots, &again.damage, progress)?;
    again.note_walk(&snapshots, walked);
    if store.role().allows(Permission::Read) {
        again.losses = losses_now(store, anew.losses(), &again.lost_in_log)?;
    }
    // The figures are those of the first look, which has read everything.
    Ok(Verified {
        arena_count: before.arena_count,
        block_count: before.block_count,
        checked_bytes: before.checked_bytes,
        read_count: before.read_count,
        oldest_read: before.oldest_read,
        unfinished: before.unfinished,
        without_parity: before.without_parity,
        read: before.read,
        ..again
    })
}

fn is_same(one: &Damage, other: &Damage) -> bool {
    (one.arena, one.offset) == (other.arena, other.offset)
        && discriminant(&one.kind) == discriminant(&other.kind)
}

/// The open losses: the recorded ones that are neither accepted nor readable again, and the later
/// losses of the log.
fn losses_now(store: &Store, noted: Losses, in_log: &BTreeSet<BlockName>) -> Result<Losses, GetError> {
    let mut losses = noted.unaccepted();
    losses.drop_readable(store)?;
    let noticed = store.world().clock.now();
    for name in in_log {
        losses.add_block(LostBlock { name: *name, size: None, noticed, accepted: None });
    }
    Ok(losses)
}

/// The part of [`verify`] that needs no snapshots, in a store that nobody else changes: it checks
/// the log alone, and notes the damage. A plan of a repair does not record which arenas it has
/// read.
pub(crate) fn check_log(
    store: &Store,
    data: Option<AuditShare>,
    progress: &Progress,
) -> Result<Verified, VerifyError> {
    let verified = look_at_log(store, data, store.is_open_to_write(), progress)?;
    verified.note_damaged(store);
    Ok(verified)
}

/// Checks the log alone, and notes no damage. `notes_audit` records which arenas were read.
fn look_at_log(
    store: &Store,
    data: Option<AuditShare>,
    notes_audit: bool,
    progress: &Progress,
) -> Result<Verified, VerifyError> {
    let damage = Checker::of(store).check_order()?;
    let mut verified = Verified { order_count: damage.len(), damage, ..Verified::default() };
    let ids = store.arenas()?;
    let audit = Checker::of(store).audit();
    verified.read = match data {
        Some(share) => Checker::of(store).choose_share(&audit, &ids, share),
        None => Vec::new(),
    };
    let (checks, stopped) = check_arenas(store, &ids, &verified.read, progress);
    let audit = match notes_audit {
        true => {
            let read = checks.iter().filter(|(id, _)| verified.read.binary_search(id).is_ok());
            let read = read.map(|(id, check)| (*id, check));
            Checker::of(store).note_audit(audit, read, store.world().clock.now())
        }
        false => audit,
    };
    stopped?;
    verified.read_count = verified.read.len() as u64;
    verified.oldest_read = Checker::of(store).oldest_audit(&audit, &ids);
    verified.add_checks(checks);
    Ok(verified)
}

/// The part of [`verify`] that needs no snapshots, limited to suspected and unsealed arenas.
/// Returns `None` if nothing is suspected. `is_loss_noted` is set if a recorded loss no longer
/// shows in the log.
pub(crate) fn check_known(
    store: &Store,
    is_loss_noted: bool,
    progress: &Progress,
) -> Result<Option<Verified>, VerifyError> {
    let mut verified = Verified { damage: Checker::of(store).check_order()?, ..Verified::default() };
    let read: Vec<_> = Checker::of(store).suspected_arenas()?.into_iter().collect();
    let is_known =
        !verified.damage.is_empty() || !read.is_empty() || !store.lost_blocks().is_empty() || is_loss_noted;
    if !is_known {
        return Ok(None);
    }
    let ids: BTreeSet<_> =
        Checker::of(store).unsealed_arenas()?.into_iter().chain(read.iter().copied()).collect();
    let ids: Vec<_> = ids.into_iter().collect();
    let (checks, stopped) = check_arenas(store, &ids, &read, progress);
    stopped?;
    verified.add_checks(checks);
    Ok(Some(verified))
}

/// The arena, the offset and the kind of a damage.
type DamageIdentity = (ArenaId, u64, Discriminant<DamageKind>);

impl Verified {
    /// Records the damaged arenas, so that a repair can begin there. Arenas that were read in full
    /// and are intact are removed from the record.
    fn note_damaged(&self, store: &Store) {
        let mut damaged = Checker::of(store).damaged_arenas();
        damaged.retain(|id| self.read.binary_search(id).is_err());
        let plan = MendPlan::new(&self.damage[self.order_count..]);
        damaged.extend(plan.arenas.keys().chain(&plan.parity));
        Checker::of(store).note_damaged(&damaged);
    }

    /// Returns the damage and the harm for a comparison.
    fn findings(&self) -> (Vec<DamageIdentity>, Vec<Harm>) {
        let of = |damage: &Damage| (damage.arena, damage.offset, discriminant(&damage.kind));
        (self.damage.iter().map(of).collect(), self.harm.clone())
    }

    fn add_checks(&mut self, checks: Vec<(ArenaId, ArenaCheck)>) {
        let seal_lost = |damage: &&Damage| matches!(damage.kind, DamageKind::SealLost);
        let has_lost_seal: BTreeSet<_> =
            self.damage.iter().filter(seal_lost).map(|damage| damage.arena).collect();
        for (id, check) in checks {
            self.arena_count += 1;
            self.block_count += check.block_count;
            self.checked_bytes += check.checked_bytes;
            let (due, damage): (Vec<_>, Vec<_>) =
                check.damage.into_iter().partition(|damage| damage.kind.is_missing_parity());
            self.without_parity.extend(due.iter().map(|damage| damage.arena));
            self.damage.extend(damage);
            // The remains of a lost seal are reported as that damage.
            self.unfinished.extend(check.unfinished.filter(|_| !has_lost_seal.contains(&id)));
        }
    }

    /// Adds the findings of a walk through all snapshots.
    pub(crate) fn note_walk(&mut self, snapshots: &[Snapshot], walked: WalkFindings) {
        self.snapshot_count = snapshots.len() as u64;
        self.harm = walked.harm;
        self.lost = walked.lost;
        self.lost_in_log = walked.lost_in_log;
    }
}

/// The findings of a walk through all snapshots.
#[derive(Debug, Default)]
pub(crate) struct WalkFindings {
    pub(crate) harm: Vec<Harm>,
    pub(crate) lost: BTreeSet<BlockName>,
    /// Unreadable blocks that the log still names.
    pub(crate) lost_in_log: BTreeSet<BlockName>,
}

/// Finds the harm to snapshots if these blocks are lost, in addition to the blocks that the store
/// lacks. The search ends as soon as this many parts are found to be harmed.
///
/// # Errors
/// [`VerifyError`]. Harm is no error, but a result.
pub fn harm_of<'s>(
    store: &Store,
    snapshots: impl IntoIterator<Item = &'s Snapshot>,
    lost: BTreeSet<BlockName>,
    harm_max: usize,
    progress: &Progress,
) -> Result<Vec<Harm>, VerifyError> {
    let leaves = LeafCheck::AskedFor(store, progress);
    let mut walker = SnapshotWalker { harm_max, ..SnapshotWalker::new(TreeCheck::new(leaves, store, lost)) };
    walker.snapshots(snapshots, progress)?;
    Ok(walker.harm)
}

/// Walks the trees of all snapshots through `blocks`, and finds what they lack, given this damage.
pub(crate) fn walk_snapshots(
    store: &Store,
    blocks: &dyn BlockStore,
    snapshots: &[Snapshot],
    damage: &[Damage],
    progress: &Progress,
) -> Result<WalkFindings, VerifyError> {
    let mut lost = blocks_without_copy(store, damage)?;
    // Add the blocks that were found lost earlier, since their part of the log may not have been
    // read now. The walk itself finds the blocks that the log no longer names.
    for name in store.lost_blocks() {
        if store.has_batch(&[name])? == [true] && store.get(&name).is_err() {
            lost.insert(name);
        }
    }
    let leaves = LeafCheck::AskedFor(store, progress);
    let mut walked = walk_all(leaves, blocks, snapshots, lost.clone(), progress)?;
    // Add them whether or not a snapshot needs them, so that they are stored anew when they are put
    // again.
    walked.lost.extend(&lost);
    walked.lost_in_log = lost;
    Ok(walked)
}

/// Finds the harm to snapshots in a block store without a log. Leaves are looked up, or, with
/// `reads`, read, which compares them with their scores.
///
/// # Errors
/// [`VerifyError`] if the block store does not answer.
pub fn verify_blocks(
    blocks: &dyn BlockStore,
    snapshots: &[Snapshot],
    reads: bool,
    progress: &Progress,
) -> Result<Vec<Harm>, VerifyError> {
    let leaves =
        if reads { LeafCheck::Read(blocks, progress) } else { LeafCheck::AskedFor(blocks, progress) };
    Ok(walk_all(leaves, blocks, snapshots, BTreeSet::new(), progress)?.harm)
}

fn walk_all(
    leaves: LeafCheck<'_>,
    blocks: &dyn BlockStore,
    snapshots: &[Snapshot],
    lost: BTreeSet<BlockName>,
    progress: &Progress,
) -> Result<WalkFindings, VerifyError> {
    let mut walker = SnapshotWalker::new(TreeCheck::new(leaves, blocks, lost));
    walker.snapshots(snapshots, progress)?;
    Ok(WalkFindings { harm: walker.harm, lost: walker.check.needed, lost_in_log: BTreeSet::new() })
}

/// The blocks in damaged clumps that are in no other clump.
pub(crate) fn blocks_without_copy(store: &Store, damage: &[Damage]) -> Result<BTreeSet<BlockName>, GetError> {
    let places = damage.iter().map(|damage| (damage.arena, damage.offset)).collect();
    let mut lost = BTreeSet::new();
    for name in damage.iter().flat_map(|damage| &damage.blocks) {
        if !store.has_elsewhere(name, &places)? {
            lost.insert(*name);
        }
    }
    Ok(lost)
}

/// Walks the trees of all snapshots. A subtree that was found intact is not walked again.
struct SnapshotWalker<'a> {
    check: TreeCheck<'a>,
    harm: Vec<Harm>,
    /// The walk ends when it has found this much.
    harm_max: usize,
}

/// The snapshot, and the path in it, that is being walked.
#[derive(Clone, Copy)]
struct SnapshotPath<'a> {
    snapshot: &'a Snapshot,
    path: &'a [u8],
}

/// A folder that the walk is in.
struct FolderCheck {
    /// The mark of an intact folder.
    mark: Option<BlockName>,
    /// The harm that was found before this folder.
    harm_before: usize,
}

impl<'a> SnapshotWalker<'a> {
    fn new(check: TreeCheck<'a>) -> Self {
        Self { check, harm: Vec::new(), harm_max: usize::MAX }
    }

    fn snapshots<'s>(
        &mut self,
        snapshots: impl IntoIterator<Item = &'s Snapshot>,
        progress: &Progress,
    ) -> Result<(), VerifyError> {
        for snapshot in snapshots {
            if progress.is_cancelled() {
                return Err(VerifyError::Cancelled);
            }
            if self.harm.len() >= self.harm_max {
                return Ok(());
            }
            self.snapshot(snapshot)?;
        }
        Ok(())
    }

    fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), VerifyError> {
        match &snapshot.content {
            SnapshotContent::Image(entry) => self.tree(SnapshotPath { snapshot, path: b"" }, entry),
            SnapshotContent::Folder(root) => self.folders(snapshot, root),
        }
    }

    fn folders(&mut self, snapshot: &Snapshot, root: &Node) -> Result<(), VerifyError> {
        let mut open = FolderStack::default();
        self.enter(snapshot, root, &mut open)?;
        while self.harm.len() < self.harm_max
            && let Some(step) = open.next()
        {
            let place = SnapshotPath { snapshot, path: open.path() };
            match step {
                FolderStep::Node(Ok(node)) => match (node.kind, node.content) {
                    (NodeKind::Folder, _) => self.enter(snapshot, &node, &mut open)?,
                    (_, Some(entry)) => self.tree(place, &entry)?,
                    (_, None) => {}
                },
                FolderStep::Node(Err(_)) => {
                    if open.value().is_some_and(|folder| folder.harm_before == self.harm.len()) {
                        self.report(place, None, "the folder's list is malformed".into());
                    }
                }
                FolderStep::Left(FolderCheck { mark, harm_before }) => {
                    if self.harm.len() == harm_before {
                        self.check.whole.extend(mark);
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks the list of a folder, and enters the folder if it is not known to be intact.
    fn enter(
        &mut self,
        snapshot: &Snapshot,
        folder: &Node,
        open: &mut FolderStack<'a, FolderCheck>,
    ) -> Result<(), VerifyError> {
        let Some(content) = folder.content else { return Ok(()) };
        // The mark differs from the root's name: an intact list of nodes does not prove that the
        // trees of its nodes are intact.
        let mark = root_name(&content).map(|name| BlockName { block_type: BlockType::ROOT, ..name });
        if mark.is_some_and(|mark| self.check.whole.contains(&mark)) {
            return Ok(());
        }
        let harm_before = self.harm.len();
        self.tree(SnapshotPath { snapshot, path: open.path() }, &content)?;
        let list = NodeList::new(self.check.blocks, folder);
        if let Err(error) = open.enter(list, FolderCheck { mark, harm_before }) {
            self.report(SnapshotPath { snapshot, path: open.path() }, None, error.to_string());
        }
        Ok(())
    }

    fn tree(&mut self, place: SnapshotPath<'_>, entry: &Entry) -> Result<(), VerifyError> {
        for (range, reason) in self.check.tree(entry)? {
            self.report(place, Some(range), reason);
        }
        Ok(())
    }

    fn report(&mut self, place: SnapshotPath<'_>, range: Option<Range<u64>>, reason: String) {
        let snapshot = place.snapshot;
        // Adjacent lost leaves are one harm.
        if let (Some(last), Some(range)) = (self.harm.last_mut(), &range)
            && last.snapshot == snapshot.id
            && last.path == place.path
            && let Some(before) = &mut last.range
            && before.end == range.start
        {
            before.end = range.end;
            return;
        }
        self.harm.push(Harm {
            snapshot: snapshot.id,
            snapshot_name: snapshot.name.clone(),
            snapshot_time: snapshot.time,
            path: place.path.to_vec(),
            range,
            reason,
        });
    }
}

fn root_name(entry: &Entry) -> Option<BlockName> {
    let block_type = BlockType::at_depth(entry.leaf_kind(), entry.depth())?;
    Some(BlockName { score: entry.root(), block_type })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use varve_block::{BlockKind, MemoryBlockStore};
    use varve_tree::{FixedBuilder, Shape, put_leaves};

    use super::*;

    const SHAPE: Shape = Shape { leaf_kind: BlockKind::Data, leaf_bytes: 512, pointer_bytes: 512 };

    /// A block store whose lookups cancel the operation at once.
    struct Impatient<'a> {
        below: MemoryBlockStore,
        progress: &'a Progress,
        asked: AtomicUsize,
    }

    impl BlockStore for Impatient<'_> {
        varve_block::forward_block_store!(below: score_bytes, empty_score, put, get, sync);

        fn has_batch(&self, names: &[BlockName]) -> Result<Vec<bool>, GetError> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.progress.cancel();
            self.below.has_batch(names)
        }
    }

    #[test]
    fn a_walk_through_one_large_disk_is_stopped_on_the_way() {
        let progress = Progress::new();
        let blocks =
            Impatient { below: MemoryBlockStore::new(), progress: &progress, asked: AtomicUsize::new(0) };
        let bytes: Vec<u8> = (1..=4096_u64).flat_map(|number| [number.to_le_bytes(); 64].concat()).collect();
        let mut builder = FixedBuilder::new(&blocks, SHAPE);
        builder.push(&put_leaves(&blocks, &SHAPE, &bytes).unwrap()).unwrap();
        let entry = builder.finish(bytes.len() as u64).unwrap();
        let snapshot = Snapshot {
            content: SnapshotContent::Image(entry),
            ..crate::catalog::snapshot::tests::snapshot(2, "disk", 0)
        };
        let ended = verify_blocks(&blocks, &[snapshot], false, &progress);
        assert!(matches!(ended, Err(VerifyError::Cancelled)), "{ended:?}");
        assert_eq!(blocks.asked.into_inner(), 1);
    }
}
