//! Names in a log. Each name is in a subvolume three times: in the folder under its position and
//! under its hash, and in the inode.

use super::{LINKS_AT, LogReplay};
use crate::bytes::fields::{put, u64_at};
use crate::file_systems::btrfs::inode_names::{InodeName, bytes_of, long_key, names_of};
use crate::file_systems::btrfs::key::{KEY_BYTES, TreeKey, kind};
use crate::file_systems::btrfs::named_item::{NamedItem, name_hash, named_items};
use crate::file_systems::btrfs::trees::TreeItem;
use crate::file_systems::file_system::{FileKind, FileSystemError};
use crate::file_systems::unix_files::entry_of_kind;

/// An entry of a folder, with its own name.
#[derive(PartialEq, Eq)]
struct OwnEntry {
    target: TreeKey,
    kind: u8,
    name: Vec<u8>,
}

impl OwnEntry {
    fn of(entry: &NamedItem<'_>) -> Self {
        Self { target: entry.target, kind: entry.kind, name: entry.name.into() }
    }
}

impl LogReplay<'_> {
    fn inode_names(&self, key: &TreeKey, data: &[u8]) -> Result<Vec<InodeName>, FileSystemError> {
        names_of(key, data).map_err(|problem| self.contradiction(problem))
    }

    fn entries(&self, item: &TreeItem) -> Result<Vec<OwnEntry>, FileSystemError> {
        let entries = named_items(item.data()).map(|entry| entry.map(|entry| OwnEntry::of(&entry)));
        entries.collect::<Result<_, _>>().map_err(|problem| self.contradiction(problem))
    }

    /// Returns the entry of a folder with this name.
    fn entry_by_name(&self, folder: u64, name: &[u8]) -> Result<Option<OwnEntry>, FileSystemError> {
        let key = TreeKey::new(folder, kind::NAME_BY_HASH, name_hash(name));
        self.entry_in(&key, name)
    }

    /// Returns the entry at a position of a folder, if it has this name.
    fn entry_at(&self, folder: u64, index: u64, name: &[u8]) -> Result<Option<OwnEntry>, FileSystemError> {
        self.entry_in(&TreeKey::new(folder, kind::NAME_BY_INDEX, index), name)
    }

    fn entry_in(&self, key: &TreeKey, name: &[u8]) -> Result<Option<OwnEntry>, FileSystemError> {
        let Some(item) = self.item(key)? else { return Ok(None) };
        Ok(self.entries(&item)?.into_iter().find(|entry| entry.name == name))
    }

    /// Returns true if the log has this name of an inode.
    fn is_name_logged(&self, inode: u64, folder: u64, name: &[u8]) -> Result<bool, FileSystemError> {
        for key in [TreeKey::new(inode, kind::NAMES_OF_INODE, folder), long_key(inode, folder, name)] {
            if let Some(item) = self.trees.find(&self.log, &key)?
                && self.inode_names(&key, item.data())?.iter().any(|n| n.folder == folder && n.name == name)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes the entries of a folder that lie where the log has every entry, and are not in it.
    pub(super) fn remove_unlogged_entries(&mut self, folder: u64) -> Result<(), FileSystemError> {
        let key = |index| TreeKey::new(folder, kind::LOGGED_INDEXES, index);
        for range in self.trees.range(&self.log, key(0), key(u64::MAX)) {
            let range = range?;
            self.remove_entries(folder, range.key().offset, u64_at(range.data(), 0), false)?;
        }
        Ok(())
    }

    /// Removes the entries of a folder from one position to another, unless the log has them.
    fn remove_entries(
        &mut self,
        folder: u64,
        first: u64,
        last: u64,
        is_all: bool,
    ) -> Result<(), FileSystemError> {
        let key = |index| TreeKey::new(folder, kind::NAME_BY_INDEX, index);
        let mut next = Some(key(first));
        while let Some(batch) = self.next_batch(&mut next, key(last))? {
            for item in batch {
                let logged = self.trees.find(&self.log, &item.key())?.filter(|_| !is_all);
                let logged = logged.map_or(Ok(Vec::new()), |logged| self.entries(&logged))?;
                for entry in self.entries(&item)? {
                    if !logged.iter().any(|logged| logged.name == entry.name) {
                        self.remove_entry(folder, &entry)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn remove_entry(&mut self, folder: u64, entry: &OwnEntry) -> Result<(), FileSystemError> {
        if entry.target.kind != kind::INODE {
            return Err(self.contradiction("it removes a subvolume"));
        }
        self.existing_inode(entry.target.object)?;
        self.unlink(folder, entry.target.object, &entry.name)
    }

    /// Removes a name of an inode, in all three places.
    fn unlink(&mut self, folder: u64, inode: u64, name: &[u8]) -> Result<(), FileSystemError> {
        self.recounted.insert(inode);
        let mut found = None;
        for key in [TreeKey::new(inode, kind::NAMES_OF_INODE, folder), long_key(inode, folder, name)] {
            let Some(item) = self.item(&key)? else { continue };
            let mut names = self.inode_names(&key, item.data())?;
            let Some(at) = names.iter().position(|n| n.folder == folder && n.name == name) else { continue };
            found = Some(names.remove(at).index);
            self.set_or_remove(key, bytes_of(&key, &names))?;
            break;
        }
        let missing = || self.contradiction(&format!("inode {inode} lacks a name that is to be removed"));
        let index = found.ok_or_else(missing)?;
        self.remove(TreeKey::new(folder, kind::NAME_BY_INDEX, index))?;
        let key = TreeKey::new(folder, kind::NAME_BY_HASH, name_hash(name));
        let item = self.item(&key)?.ok_or_else(|| self.contradiction("a name is not in its folder"))?;
        let mut rest = Vec::new();
        for entry in self.entries(&item)?.iter().filter(|entry| entry.name != name) {
            rest.extend_from_slice(&self.entry_bytes(entry));
        }
        self.set_or_remove(key, rest)
    }

    fn set_or_remove(&mut self, key: TreeKey, data: Vec<u8>) -> Result<(), FileSystemError> {
        if data.is_empty() { self.remove(key) } else { self.set(key, data) }
    }

    fn entry_bytes(&self, entry: &OwnEntry) -> Vec<u8> {
        let mut bytes = vec![0; KEY_BYTES];
        put(&mut bytes, 0, &entry.target.object.to_le_bytes());
        put(&mut bytes, 8, &[entry.target.kind]);
        put(&mut bytes, 9, &entry.target.offset.to_le_bytes());
        bytes.extend_from_slice(&self.trees.superblock().generation.to_le_bytes());
        bytes.extend_from_slice(&0_u16.to_le_bytes());
        bytes.extend_from_slice(&u16::try_from(entry.name.len()).unwrap_or(u16::MAX).to_le_bytes());
        bytes.push(entry.kind);
        bytes.extend_from_slice(&entry.name);
        bytes
    }

    /// Adds an entry for an inode to a folder. The folder has no such name.
    fn add_entry(&mut self, folder: u64, index: u64, name: &[u8], inode: u64) -> Result<(), FileSystemError> {
        let kind = self.existing_inode(inode)?.kind();
        let kind = kind.ok_or_else(|| self.contradiction("the kind of an inode is unknown"))?;
        let target = TreeKey::new(inode, kind::INODE, 0);
        let entry = OwnEntry { target, kind: entry_of_kind(kind), name: name.into() };
        let bytes = self.entry_bytes(&entry);
        let by_index = TreeKey::new(folder, kind::NAME_BY_INDEX, index);
        if self.item(&by_index)?.is_some() {
            return Err(self.contradiction("two entries have the same place in a folder"));
        }
        let by_hash = TreeKey::new(folder, kind::NAME_BY_HASH, name_hash(name));
        let others = self.item(&by_hash)?.map_or_else(Vec::new, |item| item.data().to_vec());
        self.set(by_hash, [others.as_slice(), &bytes].concat())?;
        self.set(by_index, bytes)
    }

    /// Replays an entry of a logged folder.
    pub(super) fn replay_entry(&mut self, key: &TreeKey, data: &[u8]) -> Result<(), FileSystemError> {
        let (folder, index) = (key.object, key.offset);
        self.existing_inode(folder)?;
        let logged = named_items(data).next().unwrap_or(Err("an entry is empty"));
        let logged = OwnEntry::of(&logged.map_err(|problem| self.contradiction(problem))?);
        let inode = logged.target.object;
        let is_inode = logged.target.kind == kind::INODE;
        let exists = is_inode && self.inode(inode)?.is_some();
        let (by_name, by_index) =
            (self.entry_by_name(folder, &logged.name)?, self.entry_at(folder, index, &logged.name)?);
        if [&by_name, &by_index].iter().all(|found| found.as_ref() == Some(&logged)) {
            return Ok(());
        }
        for found in [by_name, by_index].into_iter().flatten().filter(|found| *found != logged) {
            // The first removal has also removed the other one.
            if exists && self.entry_by_name(folder, &found.name)?.is_some() {
                self.remove_entry(folder, &found)?;
            }
        }
        if !is_inode {
            return Err(self.contradiction("it adds a subvolume"));
        }
        // A name that the inode's log has is added with it. An inode that was not logged has no
        // name yet.
        if !exists
            || self.is_name_logged(inode, folder, &logged.name)?
            || self.entry_by_name(folder, &logged.name)?.is_some()
        {
            return Ok(());
        }
        let name = InodeName { folder, index, name: logged.name.clone() };
        self.add_inode_name(inode, name)?;
        self.add_entry(folder, index, &logged.name, inode)?;
        if self.existing_inode(inode)?.kind() != Some(FileKind::Folder) {
            self.recounted.insert(inode);
        }
        Ok(())
    }

    fn add_inode_name(&mut self, inode: u64, name: InodeName) -> Result<(), FileSystemError> {
        let key = TreeKey::new(inode, kind::NAMES_OF_INODE, name.folder);
        let item = self.item(&key)?;
        let mut names = item.map_or(Ok(Vec::new()), |item| self.inode_names(&key, item.data()))?;
        names.push(name);
        self.set(key, bytes_of(&key, &names))
    }

    /// Replays the names that the log has of an inode.
    pub(super) fn replay_names(&mut self, key: &TreeKey, data: &[u8]) -> Result<(), FileSystemError> {
        let inode = key.object;
        let logged = self.inode_names(key, data)?;
        // The root folder is its own parent.
        if key.kind == kind::NAMES_OF_INODE && key.offset == inode {
            return Ok(());
        }
        self.existing_inode(inode)?;
        for InodeName { folder, index, name } in &logged {
            // A folder that was not logged is added by a later log.
            if self.inode(*folder)?.is_none() {
                return Ok(());
            }
            let is_own = |entry: Option<OwnEntry>| entry.is_some_and(|entry| entry.target.object == inode);
            if is_own(self.entry_at(*folder, *index, name)?) && is_own(self.entry_by_name(*folder, name)?) {
                continue;
            }
            self.remove_unlogged_names(inode, *folder, name)?;
            for found in [self.entry_at(*folder, *index, name)?, self.entry_by_name(*folder, name)?] {
                if let Some(found) = found
                    && self.entry_by_name(*folder, name)?.is_some()
                {
                    self.remove_entry(*folder, &found)?;
                }
            }
            self.add_entry(*folder, *index, name, inode)?;
        }
        if let Some(item) = self.item(key)? {
            for old in self.inode_names(key, item.data())? {
                if !logged.iter().any(|logged| (logged.folder, &logged.name) == (old.folder, &old.name)) {
                    self.unlink(old.folder, inode, &old.name)?;
                }
            }
        }
        self.set(*key, data.to_vec())
    }

    /// Removes the names of an inode in a folder that its log does not have.
    fn remove_unlogged_names(&mut self, inode: u64, folder: u64, name: &[u8]) -> Result<(), FileSystemError> {
        for key in [TreeKey::new(inode, kind::NAMES_OF_INODE, folder), long_key(inode, folder, name)] {
            let Some(item) = self.item(&key)? else { continue };
            for old in self.inode_names(&key, item.data())?.into_iter().filter(|old| old.folder == folder) {
                if !self.is_name_logged(inode, folder, &old.name)? {
                    self.unlink(folder, inode, &old.name)?;
                }
            }
        }
        Ok(())
    }

    /// Counts the names of every inode that was replayed or lost a name. A folder without a name is
    /// emptied.
    pub(super) fn recount_links(&mut self) -> Result<(), FileSystemError> {
        while let Some(number) = self.recounted.pop_last() {
            let mut inode = self.existing_inode(number)?;
            let (first, last) = (kind::NAMES_OF_INODE, kind::LONG_NAMES_OF_INODE);
            let (mut next, last) =
                (Some(TreeKey::new(number, first, 0)), TreeKey::new(number, last, u64::MAX));
            let mut links = 0_u32;
            while let Some(batch) = self.next_batch(&mut next, last)? {
                for item in batch {
                    let count = self.inode_names(&item.key(), item.data())?.len();
                    links = links.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
                }
            }
            let is_folder = inode.kind() == Some(FileKind::Folder);
            if inode.links() != links {
                put(&mut inode.0, LINKS_AT, &links.to_le_bytes());
                self.set_inode(number, inode)?;
            }
            if links == 0 && is_folder {
                self.remove_entries(number, 0, u64::MAX, true)?;
            }
        }
        Ok(())
    }
}
