//! The expected data of an archive: all acknowledged data must exist, and some other data may.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use varve_archive::{Archive, Snapshot};
use varve_block::BlockName;
use varve_tree::Entry;

use crate::contents::Content;
use crate::folder::FolderState;
use crate::session;

/// A file that was stored as a tree.
#[derive(Debug, Clone, Copy)]
pub struct StoredFile {
    pub entry: Entry,
    pub content: Content,
}

/// The source of a snapshot in the state that was archived.
#[derive(Debug, Clone)]
pub enum Taken {
    Image(Arc<Vec<u8>>),
    Folder(Arc<FolderState>),
}

/// Every snapshot that was ever begun, by its name.
pub type AllTaken = BTreeMap<String, Taken>;

/// The place of a snapshot that somebody has forgotten, or tried to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    Listed,
    InTrash,
    Gone,
}

impl Fate {
    pub const ALL: [Self; 3] = [Self::Listed, Self::InTrash, Self::Gone];

    /// The place of a snapshot in an archive.
    pub fn of(archive: &Archive, label: &str) -> Self {
        let mut trash = archive.trash().iter().map(|trashed| session::label(&trashed.snapshot));
        if session::listed(archive).iter().any(|listed| listed == label) {
            Self::Listed
        } else if trash.any(|trashed| trashed == label) {
            Self::InTrash
        } else {
            Self::Gone
        }
    }
}

/// Promised data.
#[derive(Debug, Clone, Default)]
pub struct Promised {
    pub blocks: BTreeMap<BlockName, Content>,
    pub files: Vec<StoredFile>,
    /// The names of all snapshots that must be listed, in the catalog's order.
    pub snapshots: Vec<String>,
    /// The possible places of each snapshot that somebody has forgotten, or tried to.
    pub forgotten: BTreeMap<String, BTreeSet<Fate>>,
    /// The snapshots that surely have a hold.
    pub held: BTreeSet<String>,
}

impl Promised {
    /// From now on each of these snapshots may have one of these places too.
    pub fn may_be(&mut self, labels: &[String], fates: &[Fate]) {
        for label in labels {
            let was_promised = self.snapshots.iter().any(|listed| listed == label);
            self.snapshots.retain(|listed| listed != label);
            // A snapshot that was seen, and never acknowledged, may still vanish.
            let before: &[Fate] = if was_promised { &[Fate::Listed] } else { &[Fate::Listed, Fate::Gone] };
            let known =
                self.forgotten.entry(label.clone()).or_insert_with(|| before.iter().copied().collect());
            known.extend(fates);
        }
    }

    /// A copy may be of this state, or of the later state `newer`, or of any between them.
    pub fn may_become(&mut self, newer: &Self) {
        for (label, fates) in &newer.forgotten {
            let fates: Vec<_> = fates.iter().copied().collect();
            self.may_be(std::slice::from_ref(label), &fates);
        }
        let is_listed = |label: &String| newer.snapshots.contains(label);
        let returned: Vec<_> = self.forgotten.keys().filter(|label| is_listed(label)).cloned().collect();
        self.may_be(&returned, &[Fate::Listed]);
        self.held.retain(|label| newer.held.contains(label));
    }

    /// The places of all snapshots are as in this archive.
    pub fn settle(&mut self, archive: &Archive) {
        for (label, fates) in &mut self.forgotten {
            *fates = [Fate::of(archive, label)].into();
        }
        self.forgotten.retain(|_, fates| !fates.contains(&Fate::Listed));
        self.snapshots = session::listed(archive);
    }

    /// No snapshot leads to the blocks and files that were put, so a collection may free them.
    /// Returns the blocks.
    pub fn forget_rootless(&mut self) -> BTreeMap<BlockName, Content> {
        self.files.clear();
        std::mem::take(&mut self.blocks)
    }
}

/// All that the test knows of an archive.
#[derive(Debug, Default)]
pub struct Model {
    /// Acknowledged data: it exists forever.
    pub durable: Promised,
    /// Data put since the last successful sync: it exists as long as this session lasts.
    pub pending: Promised,
    /// Every snapshot that was ever begun, reported or not. If it is listed, it is complete.
    pub taken: AllTaken,
    /// Blocks that were put and never acknowledged: they may exist.
    pub doubtful: BTreeMap<BlockName, Content>,
}

impl Model {
    /// A sync has returned, so pending data is acknowledged.
    pub fn acknowledge(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.durable.blocks.extend(pending.blocks);
        self.durable.files.extend(pending.files);
    }

    /// The session is over without a sync, so its pending blocks are doubtful.
    pub fn forget_pending(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.doubtful.extend(pending.blocks);
    }

    /// The disk is gone with all its data, and a copy has replaced it.
    pub fn go_back_to(&mut self, promised: Promised) {
        self.forget_pending();
        let gone = std::mem::replace(&mut self.durable, promised);
        self.doubtful.extend(gone.blocks);
    }

    /// A collection may free everything that no snapshot needs.
    pub fn forget_rootless(&mut self) {
        self.doubtful.extend(self.durable.forget_rootless());
        self.doubtful.extend(self.pending.forget_rootless());
    }

    /// Compares the catalog with the promised snapshots: it lists all of them in order, and between
    /// them only snapshots that were begun. Forgotten snapshots are where they may be, and held
    /// ones have their holds. Returns the first difference.
    pub fn compare_catalog(promised: &Promised, taken: &AllTaken, archive: &Archive) -> Option<String> {
        for (label, fates) in &promised.forgotten {
            let found = Fate::of(archive, label);
            if !fates.contains(&found) {
                return Some(format!("{label} is {found:?}, and should be one of {fates:?}"));
            }
        }
        let is_held = |snapshot: &&Snapshot| promised.held.contains(session::label(snapshot));
        if let Some(released) = archive.snapshots().iter().filter(is_held).find(|one| one.holds.is_empty()) {
            return Some(format!("{} has lost its hold", session::label(released)));
        }
        let listed = session::listed(archive);
        let mut wanted = promised.snapshots.iter().peekable();
        for name in &listed {
            if wanted.peek() == Some(&name) {
                wanted.next();
            } else if !taken.contains_key(name) || promised.snapshots.contains(name) {
                return Some(format!("{name} is listed where it should not be: {listed:?}"));
            }
        }
        wanted.next().map(|missing| format!("{missing} was acknowledged, and is not listed: {listed:?}"))
    }
}
