//! Checks one tree: every block of it is looked up or read.

use std::collections::BTreeSet;
use std::ops::Range;

use varve_block::{BlockName, BlockStore, GetError, with_causes};
use varve_content::Progress;
use varve_tree::{Entry, Visit, walk};

use super::VerifyError;

/// Names per lookup.
const LOOKUP_COUNT: usize = 1024;
/// Leaves per read.
const READ_COUNT: usize = 64;

/// The way to check that leaves exist.
#[derive(Clone, Copy)]
pub(super) enum LeafCheck<'a> {
    /// Asks the store whether it has them.
    AskedFor(&'a dyn BlockStore, &'a Progress),
    /// Reads them.
    Read(&'a dyn BlockStore, &'a Progress),
}

impl LeafCheck<'_> {
    /// For each name, the reason why it is unreadable, or `None`.
    fn look_up(self, names: &[BlockName]) -> Result<Vec<Option<String>>, VerifyError> {
        let absent = |name: &BlockName| format!("{name} is not in the store");
        match self {
            // The walk of a large disk takes long, and runs while the log is read.
            Self::AskedFor(_, progress) | Self::Read(_, progress) if progress.is_cancelled() => {
                Err(VerifyError::Cancelled)
            }
            Self::AskedFor(store, _) => match store.has_batch(names) {
                Ok(present) => {
                    let named = names.iter().zip(present);
                    let missing: Vec<_> = named.filter(|(_, is)| !is).map(|(name, _)| *name).collect();
                    if missing.is_empty() {
                        return Ok(vec![None; names.len()]);
                    }
                    // A barren block counts as absent, and is there. A key that cannot read does
                    // not know that it is barren, and leads to it.
                    let read = LeafCheck::Read(store, &Progress::new()).look_up(&missing)?;
                    let mut reasons = missing.into_iter().zip(read).peekable();
                    let reason = |name: &BlockName| reasons.next_if(|(of, _)| of == name)?.1;
                    Ok(names.iter().map(reason).collect())
                }
                // Reading the blocks shows which of them caused the error.
                Err(_) => LeafCheck::Read(store, &Progress::new()).look_up(names),
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

/// Checks trees. A subtree that was found intact is not walked again.
pub(super) struct TreeCheck<'a> {
    leaves: LeafCheck<'a>,
    /// The store from which pointer blocks and folders are read.
    pub(super) blocks: &'a dyn BlockStore,
    lost: BTreeSet<BlockName>,
    /// Unreadable blocks.
    pub(super) needed: BTreeSet<BlockName>,
    pub(super) whole: BTreeSet<BlockName>,
}

impl<'a> TreeCheck<'a> {
    /// `lost` are blocks that are known to be lost, even if the store reports that it has them.
    pub(super) fn new(leaves: LeafCheck<'a>, blocks: &'a dyn BlockStore, lost: BTreeSet<BlockName>) -> Self {
        Self { leaves, blocks, lost, needed: BTreeSet::new(), whole: BTreeSet::new() }
    }

    /// Walks one tree: looks up every leaf, and reads pointer blocks. Returns the lost byte ranges
    /// with their reasons.
    pub(super) fn tree(&mut self, entry: &Entry) -> Result<Vec<(Range<u64>, String)>, VerifyError> {
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
        failure.map_or(Ok(found), Err)
    }
}

/// Ends a subtree. It is intact if it added no finding.
fn close(open: &mut Vec<(u8, BlockName, usize)>, whole: &mut BTreeSet<BlockName>, found_count: usize) {
    if let Some((_, name, found_before)) = open.pop()
        && found_before == found_count
    {
        whole.insert(name);
    }
}

/// Looks up the waiting leaves, and records the lost ones.
fn look_up(
    leaves: LeafCheck<'_>,
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
