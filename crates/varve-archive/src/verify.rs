//! Verifying: what is damaged, and what that harms: which snapshots, which files, which bytes.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use varve_block::{BlockName, BlockStore, BlockType, GetError};
use varve_log::{ArenaId, OpenLogError, ReadLogError};
use varve_store::{ArenaCheck, Damage, Store};
use varve_tree::{Entry, Visit, walk};
use varve_world::Task;

use crate::node::{Node, NodeKind};
use crate::node_list::NodeList;
use crate::progress::Progress;
use crate::snapshot::{Snapshot, SnapshotContent, SnapshotId};

/// How many names are looked up at a time.
const LOOKUP_COUNT: usize = 1024;

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
    /// Snapshots whose trees were walked.
    pub snapshot_count: u64,
    /// What is wrong with the log.
    pub damage: Vec<Damage>,
    /// What that harms.
    pub harm: Vec<Harm>,
}

/// Why nothing could be verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The arenas could not be listed.
    #[error(transparent)]
    List(#[from] OpenLogError),
    /// An arena could not be read, for a reason that is no damage.
    #[error(transparent)]
    Read(#[from] ReadLogError),
    /// A block could not be looked up, for a reason that is no damage.
    #[error(transparent)]
    LookUp(#[from] GetError),
    /// It was asked to stop.
    #[error("interrupted")]
    Cancelled,
}

/// Checks the log's structure, with `data` every byte of it, and that all that the snapshots lead to is there.
///
/// # Errors
/// [`VerifyError`]. Damage is no error, but an answer.
pub fn verify(
    store: &Store,
    snapshots: &[Snapshot],
    data: bool,
    progress: &Progress,
) -> Result<Verified, VerifyError> {
    let mut verified = Verified { damage: store.check_order()?, ..Verified::default() };
    for check in check_arenas(store, data, progress)? {
        verified.arena_count += 1;
        verified.block_count += check.block_count;
        verified.checked_bytes += check.checked_bytes;
        verified.damage.extend(check.damage);
    }
    let lost = verified.damage.iter().flat_map(|damage| damage.blocks.iter().copied()).collect();
    verified.harm = harm_of(store, snapshots, lost, progress)?;
    verified.snapshot_count = snapshots.len() as u64;
    Ok(verified)
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
    let mut walker = Walker { store, lost, whole: BTreeSet::new(), harm: Vec::new() };
    for snapshot in snapshots {
        if progress.is_cancelled() {
            return Err(VerifyError::Cancelled);
        }
        walker.snapshot(snapshot)?;
    }
    Ok(walker.harm)
}

/// Checks all arenas, several at a time. The checks come in the arenas' order.
fn check_arenas(store: &Store, data: bool, progress: &Progress) -> Result<Vec<ArenaCheck>, VerifyError> {
    let ids = store.arenas()?;
    progress.set_total(ids.len() as u64, 0);
    let next = Mutex::new(ids.iter());
    let done: Mutex<Vec<(ArenaId, ArenaCheck)>> = Mutex::default();
    let failure: Mutex<Option<VerifyError>> = Mutex::default();
    let work = || {
        loop {
            let Some(id) = next.lock().unwrap_or_else(PoisonError::into_inner).next() else { return };
            let checked = if progress.is_cancelled() {
                Err(VerifyError::Cancelled)
            } else {
                store.check_arena(*id, data).map_err(VerifyError::from)
            };
            progress.add_files_done(1);
            match checked {
                Ok(check) => {
                    progress.add_bytes_done(check.checked_bytes);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((*id, check));
                }
                Err(error) => {
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    return;
                }
            }
        }
    };
    let workers = &store.world().workers;
    workers.run_all((0..workers.width()).map(|_| Box::new(work) as Task<'_>).collect());
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(id, _)| *id);
    Ok(done.into_iter().map(|(_, check)| check).collect())
}

/// Walks the trees of all snapshots; a subtree that was found whole once is not walked again.
struct Walker<'a> {
    store: &'a Store,
    lost: BTreeSet<BlockName>,
    whole: BTreeSet<BlockName>,
    harm: Vec<Harm>,
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
        for node in NodeList::new(self.store, folder) {
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
        let (store, lost, whole) = (self.store, &self.lost, &mut self.whole);
        walk(store, entry, &mut |node| {
            if failure.is_some() {
                return Visit::Skip;
            }
            if let Some(damage) = node.damage {
                found.push((node.range, chain(damage)));
                return Visit::Skip;
            }
            let ends_subtree = open.last().is_some_and(|(level, ..)| *level <= node.level);
            if ends_subtree || waiting.len() >= LOOKUP_COUNT {
                failure = look_up(store, lost, &mut waiting, &mut found).err();
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
        look_up(store, lost, &mut waiting, &mut found)?;
        while !open.is_empty() {
            close(&mut open, whole, found.len());
        }
        if let Some(error) = failure {
            return Err(error.into());
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
    store: &Store,
    lost: &BTreeSet<BlockName>,
    waiting: &mut Vec<(BlockName, Range<u64>)>,
    found: &mut Vec<(Range<u64>, String)>,
) -> Result<(), GetError> {
    let names: Vec<_> = waiting.iter().map(|(name, _)| *name).collect();
    let present = store.has_batch(&names)?;
    for ((name, range), present) in waiting.drain(..).zip(present) {
        if !present {
            found.push((range, format!("{name} is not in the store")));
        } else if lost.contains(&name) {
            found.push((range, format!("{name} is damaged")));
        }
    }
    Ok(())
}

fn root_name(entry: &Entry) -> Option<BlockName> {
    let block_type = BlockType::at_depth(entry.leaf_kind(), entry.depth())?;
    Some(BlockName { score: entry.root(), block_type })
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
