//! Applies the log of a subvolume in memory, in the order in which a mount does it:
//!
//! ```text
//! inodes: remove attributes and entries that the log no longer has, cut off contents
//!   ─▶ entries of logged folders ─▶ names, attributes and extents of logged inodes ─▶ link counts
//! ```
//!
//! A contradiction ends the replay, and nothing of the log is shown.

mod contents;
mod names;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::damaged;
use super::key::{TreeKey, kind};
use super::named_item::named_items;
use super::subvolumes::Subvolume;
use super::tree_patch::TreePatch;
use super::tree_root::TreeRoot;
use super::trees::{TreeItem, Trees};
use crate::bytes::fields::{put, u32_at, u64_at};
use crate::file_systems::file_system::{FileKind, FileSystemError};
use crate::file_systems::unix_files::kind_of_mode;

/// Places in the item of an inode.
const GENERATION_AT: usize = 0;
const SIZE_AT: usize = 16;
const STORED_BYTES_AT: usize = 24;
const LINKS_AT: usize = 40;
const MODE_AT: usize = 52;
const INODE_BYTES: usize = 160;
/// Items that are collected before they are changed.
const BATCH: usize = 256;

/// The replay of a log into a subvolume.
pub(super) struct LogReplay<'a> {
    trees: &'a Trees,
    subvolume: &'a Subvolume,
    log: TreeRoot,
    patch: TreePatch,
    /// The most memory that the changes may need.
    room: u64,
    /// Inodes whose links are to be counted.
    recounted: BTreeSet<u64>,
}

/// A step over all items of a log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReplayStep {
    Inodes,
    Entries,
    Everything,
}

/// The item of an inode.
struct InodeItem(Vec<u8>);

impl InodeItem {
    fn kind(&self) -> Option<FileKind> {
        kind_of_mode(u32_at(&self.0, MODE_AT))
    }

    fn size(&self) -> u64 {
        u64_at(&self.0, SIZE_AT)
    }

    fn set_size(&mut self, size: u64) {
        put(&mut self.0, SIZE_AT, &size.to_le_bytes());
    }

    fn stored_bytes(&self) -> u64 {
        u64_at(&self.0, STORED_BYTES_AT)
    }

    fn set_stored_bytes(&mut self, bytes: u64) {
        put(&mut self.0, STORED_BYTES_AT, &bytes.to_le_bytes());
    }

    fn links(&self) -> u32 {
        u32_at(&self.0, LINKS_AT)
    }
}

impl<'a> LogReplay<'a> {
    /// Returns the changes that a log makes to a subvolume, if they need at most `room` bytes of
    /// memory.
    ///
    /// # Errors
    /// [`FileSystemError`] if a mount would refuse the log, or if a part cannot be read.
    pub(super) fn run(
        trees: &'a Trees,
        subvolume: &'a Subvolume,
        log: TreeRoot,
        room: u64,
    ) -> Result<TreePatch, FileSystemError> {
        let (patch, recounted) = (TreePatch::default(), BTreeSet::new());
        let mut replay = Self { trees, subvolume, log, patch, room, recounted };
        for step in [ReplayStep::Inodes, ReplayStep::Entries, ReplayStep::Everything] {
            replay.step(step)?;
        }
        replay.recount_links()?;
        Ok(replay.patch)
    }

    fn contradiction(&self, problem: &str) -> FileSystemError {
        damaged(format!("log of subvolume {}", self.subvolume.id), problem)
    }

    /// Returns an item of the subvolume, with the changes so far.
    fn item(&self, key: &TreeKey) -> Result<Option<TreeItem>, FileSystemError> {
        self.trees.find_patched(&self.subvolume.root, Some(&self.patch), key)
    }

    /// Returns some of the items of the subvolume from `next` to `last`, with the changes so far,
    /// and moves `next` behind them. The caller may change them. Returns `None` at the end.
    fn next_batch(
        &self,
        next: &mut Option<TreeKey>,
        last: TreeKey,
    ) -> Result<Option<Vec<TreeItem>>, FileSystemError> {
        let Some(first) = next.filter(|first| *first <= last) else { return Ok(None) };
        let items = self.trees.patched_range(&self.subvolume.root, Some(&self.patch), first, last);
        let batch: Vec<TreeItem> = items.take(BATCH).collect::<Result<_, _>>()?;
        *next = batch.last().and_then(|item| item.key().next());
        Ok(Some(batch))
    }

    fn set(&mut self, key: TreeKey, data: Vec<u8>) -> Result<(), FileSystemError> {
        self.change(key, Some(data.into()))
    }

    fn remove(&mut self, key: TreeKey) -> Result<(), FileSystemError> {
        self.change(key, None)
    }

    fn change(&mut self, key: TreeKey, data: Option<Arc<[u8]>>) -> Result<(), FileSystemError> {
        self.patch.set(key, data);
        if self.patch.bytes() > self.room {
            return Err(self.contradiction("it is too large to be replayed in memory"));
        }
        Ok(())
    }

    fn inode(&self, number: u64) -> Result<Option<InodeItem>, FileSystemError> {
        let Some(item) = self.item(&TreeKey::new(number, kind::INODE, 0))? else { return Ok(None) };
        self.inode_item(item.data()).map(Some)
    }

    /// Returns an inode that the log is about.
    fn existing_inode(&self, number: u64) -> Result<InodeItem, FileSystemError> {
        let found = self.inode(number)?;
        found.ok_or_else(|| self.contradiction(&format!("inode {number} is missing")))
    }

    fn inode_item(&self, data: &[u8]) -> Result<InodeItem, FileSystemError> {
        if data.len() < INODE_BYTES {
            return Err(self.contradiction("an inode is too short"));
        }
        Ok(InodeItem(data.to_vec()))
    }

    fn set_inode(&mut self, number: u64, inode: InodeItem) -> Result<(), FileSystemError> {
        self.set(TreeKey::new(number, kind::INODE, 0), inode.0)
    }

    fn step(&mut self, step: ReplayStep) -> Result<(), FileSystemError> {
        // Files without a name, which a mount removes.
        let mut ignored = None;
        for item in self.trees.items(&self.log) {
            let item = item?;
            let (key, data) = (item.key(), item.data());
            if key.kind == kind::INODE {
                let inode = self.inode_item(data)?;
                if inode.links() == 0 {
                    ignored = Some(key.object);
                } else if step == ReplayStep::Inodes {
                    self.replay_inode(key.object, inode)?;
                }
                continue;
            }
            if ignored == Some(key.object) {
                continue;
            }
            match (step, key.kind) {
                (ReplayStep::Entries, kind::NAME_BY_INDEX) => self.replay_entry(&key, data)?,
                (ReplayStep::Everything, kind::XATTR) => self.set(key, data.to_vec())?,
                (ReplayStep::Everything, kind::NAMES_OF_INODE | kind::LONG_NAMES_OF_INODE) => {
                    self.replay_names(&key, data)?;
                }
                (ReplayStep::Everything, kind::FILE_EXTENT) => self.replay_extent(&key, data)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn replay_inode(&mut self, number: u64, logged: InodeItem) -> Result<(), FileSystemError> {
        self.remove_unlogged_xattrs(number)?;
        let kind = logged.kind();
        let before = self.inode(number)?;
        if kind == Some(FileKind::Folder) && before.is_some() {
            self.remove_unlogged_entries(number)?;
        }
        self.replace_inode(number, logged, before)?;
        if kind == Some(FileKind::File) {
            let size = self.existing_inode(number)?.size();
            let sector_bytes = u64::from(self.trees.superblock().sector_bytes);
            let end = size.checked_next_multiple_of(sector_bytes);
            let end = end.ok_or_else(|| self.contradiction("an inode is too large"))?;
            self.free_range(number, end, u64::MAX)?;
        }
        self.recounted.insert(number);
        Ok(())
    }

    /// Replaces the item of an inode. The bytes that it stores are counted when its extents are
    /// replayed.
    fn replace_inode(
        &mut self,
        number: u64,
        mut logged: InodeItem,
        before: Option<InodeItem>,
    ) -> Result<(), FileSystemError> {
        let is_folder = logged.kind() == Some(FileKind::Folder);
        let Some(mut before) = before else {
            logged.set_stored_bytes(0);
            if is_folder {
                logged.set_size(0);
            }
            return self.set_inode(number, logged);
        };
        if u64_at(&logged.0, GENERATION_AT) == 0 {
            // The log has the inode only because something else needs it.
            let is_file = [logged.kind(), before.kind()].iter().all(|kind| *kind == Some(FileKind::File));
            if is_file && logged.size() != 0 {
                before.set_size(logged.size());
                return self.set_inode(number, before);
            }
            return Ok(());
        }
        logged.set_stored_bytes(before.stored_bytes());
        if is_folder {
            logged.set_size(if before.kind() == logged.kind() { before.size() } else { 0 });
        }
        self.set_inode(number, logged)
    }

    /// Removes the attributes of an inode that its log does not have.
    fn remove_unlogged_xattrs(&mut self, number: u64) -> Result<(), FileSystemError> {
        let key = |hash| TreeKey::new(number, kind::XATTR, hash);
        let mut next = Some(key(0));
        while let Some(batch) = self.next_batch(&mut next, key(u64::MAX))? {
            for item in batch {
                let logged = self.trees.find(&self.log, &item.key())?;
                let is_logged = |name: &[u8]| {
                    let entries = logged.iter().flat_map(|logged| named_items(logged.data()));
                    entries.flatten().any(|entry| entry.name == name)
                };
                // If some of several are left, the log has them, and its item replaces this one.
                if !named_items(item.data()).flatten().any(|entry| is_logged(entry.name)) {
                    self.remove(item.key())?;
                }
            }
        }
        Ok(())
    }
}
