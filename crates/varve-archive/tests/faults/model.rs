//! The expected data of an archive: all acknowledged data must exist, and some other data may.

use std::collections::BTreeMap;
use std::sync::Arc;

use varve_block::BlockName;
use varve_tree::Entry;

use crate::contents::Content;
use crate::folder::FolderState;

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

/// Promised data.
#[derive(Debug, Clone, Default)]
pub struct Promised {
    pub blocks: BTreeMap<BlockName, Content>,
    pub files: Vec<StoredFile>,
    /// The names of all snapshots, in the catalog's order.
    pub snapshots: Vec<String>,
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

    /// Compares the catalog with the promised snapshots: it lists all of them in order, and between
    /// them only snapshots that were begun. Returns the first difference.
    pub fn compare_catalog(promised: &Promised, taken: &AllTaken, listed: &[String]) -> Option<String> {
        let mut wanted = promised.snapshots.iter().peekable();
        for name in listed {
            if wanted.peek() == Some(&name) {
                wanted.next();
            } else if !taken.contains_key(name) || promised.snapshots.contains(name) {
                return Some(format!("{name} is listed where it should not be: {listed:?}"));
            }
        }
        wanted.next().map(|missing| format!("{missing} was acknowledged, and is not listed: {listed:?}"))
    }
}
