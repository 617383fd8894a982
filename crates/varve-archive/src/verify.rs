//! Verifying: what is damaged, and what that harms: which snapshots, which files, which bytes.

mod arenas;

use std::collections::BTreeSet;
use std::ops::Range;

use varve_block::{BlockName, BlockStore, BlockType, GetError, with_causes};
use varve_log::{ArenaId, OpenLogError};
use varve_store::{
    ArenaCheck, AuditShare, CheckArenaError, Damage, DamageKind, RepairPlan, Store, Unfinished,
};
use varve_tree::{Entry, Visit, walk};
use varve_world::{Timestamp, both};

use self::arenas::check_arenas;
use crate::node::{Node, NodeKind};
use crate::node_list::NodeList;
use crate::progress::Progress;
use crate::snapshot::{Snapshot, SnapshotContent};
use crate::snapshot_id::SnapshotId;

/// How many names are looked up at a time.
const LOOKUP_COUNT: usize = 1024;
/// How many leaves are read at a time.
const READ_COUNT: usize = 64;

/// Something that a snapshot has lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Harm {
    /// Which snapshot.
    pub snapshot: SnapshotId,
    /// What that is called.
    pub snapshot_name: String,
    /// Which file or folder in it; empty for an image.
    pub path: Vec<u8>,
    /// Which of its bytes, as far as that is known.
    pub range: Option<Range<u64>>,
    /// Why.
    pub reason: String,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Verified {
    /// Arenas that were checked.
    pub arena_count: u64,
    /// Blocks that they name.
    pub block_count: u64,
    /// Bytes of clumps that were read and checked.
    pub checked_bytes: u64,
    /// Arenas of which every byte was read.
    pub read_count: u64,
    /// When the arena that was read longest ago was read; `None` if one never was, or has no seal yet.
    pub oldest_read: Option<Timestamp>,
    /// Snapshots whose trees were walked.
    pub snapshot_count: u64,
    /// What is wrong with the log.
    pub damage: Vec<Damage>,
    /// What that harms.
    pub harm: Vec<Harm>,
    /// The blocks that the snapshots need and that cannot be had, as far as their names are known.
    pub lost: BTreeSet<BlockName>,
    /// What a crash has left, and the next writer cuts off: no damage.
    pub unfinished: Vec<Unfinished>,
}

/// Why nothing could be verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The arenas could not be listed.
    #[error(transparent)]
    List(#[from] OpenLogError),
    /// An arena, or its parity, could not be read, for a reason that is no damage.
    #[error(transparent)]
    Read(#[from] CheckArenaError),
    /// A block could not be looked up, for a reason that is no damage.
    #[error(transparent)]
    LookUp(#[from] GetError),
    /// It was asked to stop.
    #[error("interrupted")]
    Cancelled,
}

/// Checks the log's structure, every byte of the share `data` of it, and that all that the snapshots lead to is there. What
/// was read is noted, even if this is interrupted: the next share begins with what was not.
///
/// # Errors
/// [`VerifyError`]. Damage is no error, but an answer.
pub fn verify(
    store: &Store,
    snapshots: &[Snapshot],
    data: Option<AuditShare>,
    progress: &Progress,
) -> Result<Verified, VerifyError> {
    // The snapshots are walked while the disk gives the log. Damage is seldom found; only then they are walked once more, for what it
    // harms.
    let walk = |damage: &[Damage]| walk_snapshots(store, store, snapshots, damage, progress);
    let workers = store.world().workers.as_ref();
    let (checked, walked) = both(workers, || check_log(store, data, progress), || walk(&[]));
    let mut verified = checked?;
    let walked = if verified.damage.is_empty() { walked? } else { walk(&verified.damage)? };
    verified.note_walk(snapshots, walked);
    Ok(verified)
}

/// The part of [`verify`] that needs no snapshot: the log alone.
pub(crate) fn check_log(
    store: &Store,
    data: Option<AuditShare>,
    progress: &Progress,
) -> Result<Verified, VerifyError> {
    let mut verified = Verified { damage: store.check_order()?, ..Verified::default() };
    let ids = store.arenas()?;
    let audit = store.audit();
    let chosen = match data {
        Some(share) => store.choose_share(&audit, &ids, share),
        None => Vec::new(),
    };
    let (checks, stopped) = check_arenas(store, &ids, &chosen, progress);
    note_damaged(store, &checks, &chosen);
    let read = checks.iter().filter(|(id, _)| chosen.binary_search(id).is_ok());
    let audit = store.note_audit(audit, read.map(|(id, check)| (*id, check)), store.world().clock.now());
    stopped?;
    verified.read_count = chosen.len() as u64;
    verified.oldest_read = store.oldest_audit(&audit, &ids);
    verified.add_checks(checks);
    Ok(verified)
}

/// Notes where damage was found, so that a repair can begin there. What was read to the last byte and is whole is forgotten.
fn note_damaged(store: &Store, checks: &[(ArenaId, ArenaCheck)], read: &[ArenaId]) {
    let mut damaged = store.damaged_arenas();
    damaged.retain(|id| read.binary_search(id).is_err());
    for (_, check) in checks {
        let plan = RepairPlan::new(&check.damage);
        damaged.extend(plan.arenas.keys().chain(&plan.parity));
    }
    store.note_damaged(&damaged);
}

/// The part of [`verify`] that needs no snapshot, for what is known to be damaged and for what was never sealed: nothing else is
/// read. `None` if nothing is known.
pub(crate) fn check_known(store: &Store, progress: &Progress) -> Result<Option<Verified>, VerifyError> {
    let mut verified = Verified { damage: store.check_order()?, ..Verified::default() };
    let read: Vec<_> = store.suspected_arenas()?.into_iter().collect();
    if verified.damage.is_empty() && read.is_empty() && store.lost_blocks().is_empty() {
        return Ok(None);
    }
    let ids: BTreeSet<_> = store.unsealed_arenas()?.into_iter().chain(read.iter().copied()).collect();
    let ids: Vec<_> = ids.into_iter().collect();
    let (checks, stopped) = check_arenas(store, &ids, &read, progress);
    stopped?;
    verified.add_checks(checks);
    Ok(Some(verified))
}

impl Verified {
    fn add_checks(&mut self, checks: Vec<(ArenaId, ArenaCheck)>) {
        let seal_lost = |damage: &&Damage| matches!(damage.kind, DamageKind::SealLost);
        let has_lost_seal: BTreeSet<_> =
            self.damage.iter().filter(seal_lost).map(|damage| damage.arena).collect();
        for (id, check) in checks {
            self.arena_count += 1;
            self.block_count += check.block_count;
            self.checked_bytes += check.checked_bytes;
            self.damage.extend(check.damage);
            // What is left of a seal that was lost is told as that.
            self.unfinished.extend(check.unfinished.filter(|_| !has_lost_seal.contains(&id)));
        }
    }

    /// Takes in what a walk through all snapshots has found.
    pub(crate) fn note_walk(&mut self, snapshots: &[Snapshot], walked: Walked) {
        self.snapshot_count = snapshots.len() as u64;
        self.harm = walked.harm;
        self.lost = walked.lost;
    }
}

/// What a walk through all snapshots finds.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    pub(crate) harm: Vec<Harm>,
    pub(crate) lost: BTreeSet<BlockName>,
}

/// What snapshots have lost, if these blocks are lost besides those that are not in the store.
///
/// # Errors
/// [`VerifyError`]. Harm is no error, but an answer.
pub fn harm_of(
    store: &Store,
    snapshots: &[Snapshot],
    lost: BTreeSet<BlockName>,
    progress: &Progress,
) -> Result<Vec<Harm>, VerifyError> {
    Ok(walk_without(store, store, snapshots, lost, progress)?.harm)
}

/// Walks the trees of all snapshots through `blocks`, and tells what they lack, given what is damaged.
pub(crate) fn walk_snapshots(
    store: &Store,
    blocks: &dyn BlockStore,
    snapshots: &[Snapshot],
    damage: &[Damage],
    progress: &Progress,
) -> Result<Walked, VerifyError> {
    let mut lost = blocks_without_copy(store, damage)?;
    // What was found earlier, in a part of the log that may not have been read now.
    lost.extend(store.lost_blocks().into_iter().filter(|name| store.get(name).is_err()));
    let mut walked = walk_without(store, blocks, snapshots, lost.clone(), progress)?;
    if !walked.harm.is_empty() {
        // What is harmed may lead to the others, and nobody came so far: the next night stores them as well.
        walked.lost.extend(lost);
    }
    Ok(walked)
}

fn walk_without(
    store: &Store,
    blocks: &dyn BlockStore,
    snapshots: &[Snapshot],
    lost: BTreeSet<BlockName>,
    progress: &Progress,
) -> Result<Walked, VerifyError> {
    walk_all(Leaves::AskedFor(store, progress), blocks, snapshots, lost, progress)
}

/// What snapshots have lost of which nothing is known but their blocks: no log, and no damage. Leaves are asked for, or read.
pub(crate) fn verify_blocks(
    blocks: &dyn BlockStore,
    snapshots: &[Snapshot],
    reads: bool,
    progress: &Progress,
) -> Result<Vec<Harm>, VerifyError> {
    let leaves = if reads { Leaves::Read(blocks, progress) } else { Leaves::AskedFor(blocks, progress) };
    Ok(walk_all(leaves, blocks, snapshots, BTreeSet::new(), progress)?.harm)
}

fn walk_all(
    leaves: Leaves<'_>,
    blocks: &dyn BlockStore,
    snapshots: &[Snapshot],
    lost: BTreeSet<BlockName>,
    progress: &Progress,
) -> Result<Walked, VerifyError> {
    let mut walker =
        Walker { leaves, blocks, lost, needed: BTreeSet::new(), whole: BTreeSet::new(), harm: Vec::new() };
    for snapshot in snapshots {
        if progress.is_cancelled() {
            return Err(VerifyError::Cancelled);
        }
        walker.snapshot(snapshot)?;
    }
    Ok(Walked { harm: walker.harm, lost: walker.needed })
}

/// The blocks in damaged clumps that no other clump has.
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

/// Walks the trees of all snapshots; a subtree that was found whole once is not walked again.
struct Walker<'a> {
    leaves: Leaves<'a>,
    /// Where pointers and folders are read.
    blocks: &'a dyn BlockStore,
    lost: BTreeSet<BlockName>,
    /// Blocks that cannot be had.
    needed: BTreeSet<BlockName>,
    whole: BTreeSet<BlockName>,
    harm: Vec<Harm>,
}

/// How it is found out whether leaves can be had.
#[derive(Clone, Copy)]
enum Leaves<'a> {
    /// By asking whether they are there.
    AskedFor(&'a dyn BlockStore, &'a Progress),
    /// By reading them.
    Read(&'a dyn BlockStore, &'a Progress),
}

impl Leaves<'_> {
    /// Of each name, why it cannot be had, if so.
    fn look_up(self, names: &[BlockName]) -> Result<Vec<Option<String>>, VerifyError> {
        let absent = |name: &BlockName| format!("{name} is not in the store");
        match self {
            // A walk through a large disk is long, and goes on while the log is read.
            Self::AskedFor(_, progress) | Self::Read(_, progress) if progress.is_cancelled() => {
                Err(VerifyError::Cancelled)
            }
            Self::AskedFor(store, _) => match store.has_batch(names) {
                Ok(present) => {
                    Ok(names.iter().zip(present).map(|(name, is)| (!is).then(|| absent(name))).collect())
                }
                // Of which of them that is so is found out by reading them.
                Err(_) => Leaves::Read(store, &Progress::new()).look_up(names),
            },
            Self::Read(store, progress) => {
                let mut reasons = Vec::with_capacity(names.len());
                for names in names.chunks(READ_COUNT) {
                    if progress.is_cancelled() {
                        return Err(VerifyError::Cancelled);
                    }
                    for (name, found) in names.iter().zip(store.get_batch(names)) {
                        reasons.push(match found {
                            Ok(block) => {
                                progress.add_bytes_done(block.len() as u64);
                                None
                            }
                            Err(GetError::NotFound { .. }) => Some(absent(name)),
                            Err(error @ GetError::Damaged { .. }) => Some(with_causes(&error)),
                            Err(error) => return Err(error.into()),
                        });
                    }
                }
                Ok(reasons)
            }
        }
    }
}

/// Which snapshot, and which part of it, is being walked.
struct Place<'a> {
    snapshot: &'a Snapshot,
    path: Vec<u8>,
}

impl Walker<'_> {
    fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), VerifyError> {
        let place = Place { snapshot, path: Vec::new() };
        match &snapshot.content {
            SnapshotContent::Image(entry) => self.tree(&place, entry),
            SnapshotContent::Folder(root) => self.folder(&place, root),
        }
    }

    fn folder(&mut self, place: &Place<'_>, folder: &Node) -> Result<(), VerifyError> {
        let Some(content) = folder.content else { return Ok(()) };
        let root = root_name(&content);
        // Under a mark of its own: a list of nodes that is whole says nothing of what the nodes lead to.
        let mark = root.map(|name| BlockName { block_type: BlockType::ROOT, ..name });
        if mark.is_some_and(|mark| self.whole.contains(&mark)) {
            return Ok(());
        }
        let harm_before = self.harm.len();
        self.tree(place, &content)?;
        for node in NodeList::new(self.blocks, folder) {
            let Ok(node) = node else {
                if self.harm.len() == harm_before {
                    self.report(place, None, "the folder's list is malformed".into());
                }
                break;
            };
            let mut path = place.path.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&node.name);
            let below = Place { snapshot: place.snapshot, path };
            match (node.kind, node.content) {
                (NodeKind::Folder, _) => self.folder(&below, &node)?,
                (_, Some(entry)) => self.tree(&below, &entry)?,
                (_, None) => {}
            }
        }
        if self.harm.len() == harm_before {
            self.whole.extend(mark);
        }
        Ok(())
    }

    /// Walks one tree: looks up every block, and reads pointer blocks.
    fn tree(&mut self, place: &Place<'_>, entry: &Entry) -> Result<(), VerifyError> {
        let mut open: Vec<(u8, BlockName, usize)> = Vec::new();
        let mut waiting: Vec<(BlockName, Range<u64>)> = Vec::new();
        let mut found: Vec<(Range<u64>, String)> = Vec::new();
        let mut failure = None;
        let (leaves, blocks, lost, whole) = (self.leaves, self.blocks, &self.lost, &mut self.whole);
        let needed = &mut self.needed;
        walk(blocks, entry, &mut |node| {
            if failure.is_some() {
                return Visit::Skip;
            }
            if let Some(damage) = node.damage {
                needed.insert(node.name);
                found.push((node.range, with_causes(damage)));
                return Visit::Skip;
            }
            let ends_subtree = open.last().is_some_and(|(level, ..)| *level <= node.level);
            if ends_subtree || waiting.len() >= LOOKUP_COUNT {
                failure = look_up(leaves, lost, &mut waiting, needed, &mut found).err();
            }
            while open.last().is_some_and(|(level, ..)| *level <= node.level) {
                close(&mut open, whole, found.len());
            }
            if node.level == 0 {
                waiting.push((node.name, node.range));
                return Visit::Descend;
            }
            if whole.contains(&node.name) {
                return Visit::Skip;
            }
            open.push((node.level, node.name, found.len()));
            Visit::Descend
        });
        look_up(leaves, lost, &mut waiting, needed, &mut found)?;
        while !open.is_empty() {
            close(&mut open, whole, found.len());
        }
        if let Some(error) = failure {
            return Err(error);
        }
        for (range, reason) in found {
            self.report(place, Some(range), reason);
        }
        Ok(())
    }

    fn report(&mut self, place: &Place<'_>, range: Option<Range<u64>>, reason: String) {
        let snapshot = place.snapshot;
        // Neighbouring leaves that are lost are one harm.
        if let (Some(last), Some(range)) = (self.harm.last_mut(), &range)
            && last.snapshot == snapshot.id
            && last.path == place.path
            && let Some(before) = &mut last.range
            && before.end == range.start
        {
            before.end = range.end;
            return;
        }
        let (id, name) = (snapshot.id, snapshot.name.clone());
        self.harm.push(Harm { snapshot: id, snapshot_name: name, path: place.path.clone(), range, reason });
    }
}

/// Ends a subtree: it is whole if nothing was found in it.
fn close(open: &mut Vec<(u8, BlockName, usize)>, whole: &mut BTreeSet<BlockName>, found_count: usize) {
    if let Some((_, name, found_before)) = open.pop()
        && found_before == found_count
    {
        whole.insert(name);
    }
}

/// Looks up leaves that were met, and notes those that are lost.
fn look_up(
    leaves: Leaves<'_>,
    lost: &BTreeSet<BlockName>,
    waiting: &mut Vec<(BlockName, Range<u64>)>,
    needed: &mut BTreeSet<BlockName>,
    found: &mut Vec<(Range<u64>, String)>,
) -> Result<(), VerifyError> {
    let names: Vec<_> = waiting.iter().map(|(name, _)| *name).collect();
    let reasons = leaves.look_up(&names)?;
    for ((name, range), reason) in waiting.drain(..).zip(reasons) {
        if let Some(reason) = reason {
            found.push((range, reason));
        } else if lost.contains(&name) {
            found.push((range, format!("{name} is damaged")));
        } else {
            continue;
        }
        needed.insert(name);
    }
    Ok(())
}

fn root_name(entry: &Entry) -> Option<BlockName> {
    let block_type = BlockType::at_depth(entry.leaf_kind(), entry.depth())?;
    Some(BlockName { score: entry.root(), block_type })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use varve_block::{Block, BlockKind, MemoryBlockStore, PutError, Score, SyncError};
    use varve_tree::{FixedBuilder, Shape, put_leaves};

    use super::*;

    const SHAPE: Shape = Shape { leaf_kind: BlockKind::Data, leaf_bytes: 512, pointer_bytes: 512 };

    /// Blocks that are asked for until somebody has had enough, which is at once.
    struct Impatient<'a> {
        below: MemoryBlockStore,
        progress: &'a Progress,
        asked: AtomicUsize,
    }

    impl BlockStore for Impatient<'_> {
        fn score_bytes(&self) -> usize {
            self.below.score_bytes()
        }

        fn empty_score(&self) -> Score {
            self.below.empty_score()
        }

        fn put(&self, block: Block<'_>) -> Result<Score, PutError> {
            self.below.put(block)
        }

        fn get(&self, name: &BlockName) -> Result<Bytes, GetError> {
            self.below.get(name)
        }

        fn sync(&self) -> Result<(), SyncError> {
            self.below.sync()
        }

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
            ..crate::snapshot::tests::snapshot(2, "disk", 0)
        };
        let ended = verify_blocks(&blocks, &[snapshot], false, &progress);
        assert!(matches!(ended, Err(VerifyError::Cancelled)), "{ended:?}");
        assert_eq!(blocks.asked.into_inner(), 1);
    }
}
