//! What must be there: what was acknowledged, and what may be there besides.

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

/// What a snapshot is of.
#[derive(Debug, Clone)]
pub enum Taken {
    Image(Arc<Vec<u8>>),
    Folder(Arc<FolderState>),
}

/// Every snapshot that was ever begun, by its name.
pub type AllTaken = BTreeMap<String, Taken>;

/// What has been promised.
#[derive(Debug, Clone, Default)]
pub struct Promised {
    pub blocks: BTreeMap<BlockName, Content>,
    pub files: Vec<StoredFile>,
    /// The names of all snapshots, in the catalog's order.
    pub snapshots: Vec<String>,
}

/// What is known of an archive.
#[derive(Debug, Default)]
pub struct Model {
    /// Acknowledged: there for ever.
    pub durable: Promised,
    /// Put since the last sync that returned: there as long as this session lasts.
    pub pending: Promised,
    /// Every snapshot that was ever begun, whether or not it was reported: there whole, if it is there.
    pub taken: AllTaken,
    /// Blocks that were put and never acknowledged: they may be there.
    pub doubtful: BTreeMap<BlockName, Content>,
}

impl Model {
    /// A sync returned.
    pub fn acknowledge(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.durable.blocks.extend(pending.blocks);
        self.durable.files.extend(pending.files);
    }

    /// The session is over, and nobody has said that all is durable.
    pub fn forget_pending(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.doubtful.extend(pending.blocks);
    }

    /// The disk is gone with all that was on it, and a copy has taken its place.
    pub fn go_back_to(&mut self, promised: Promised) {
        self.forget_pending();
        let gone = std::mem::replace(&mut self.durable, promised);
        self.doubtful.extend(gone.blocks);
    }

    /// Compares the catalog with what was promised: all of that in order, and between it only what was begun. Says what is wrong.
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
