//! Folders. Each entry is in the tree twice: under its position, for listing, and under the hash of
//! its name, for looking it up.

use super::damaged;
use super::file_number::BtrfsFile;
use super::key::object::TOP_SUBVOLUME;
use super::key::{TreeKey, kind};
use super::listing_marks::{ListingMark, ListingMarks};
use super::named_item::{NamedItem, name_hash, named_items};
use super::subvolumes::{Subvolume, Subvolumes};
use super::trees::Trees;
use crate::file_systems::file_system::find_child;
use crate::file_systems::file_system::{FileId, FileKind, FileSystemError, FolderChild, OnChild};
use crate::file_systems::unix_files::{kind_of_entry, shown_name};

/// A folder, with the number that the file system shows for it.
pub(super) struct Folder<'a> {
    pub(super) trees: &'a Trees,
    pub(super) subvolume: &'a Subvolume,
    pub(super) inode: u64,
    pub(super) id: FileId,
}

impl Folder<'_> {
    fn what(&self) -> String {
        format!("folder with inode {} of subvolume {}", self.inode, self.subvolume.id)
    }

    /// Passes the children to `visit`, from the one numbered `first` on. Unreadable parts are
    /// skipped. The first problem is returned at the end, also if it lies before `first`.
    pub(super) fn visit(
        &self,
        marks: &ListingMarks,
        first: u64,
        visit: &mut OnChild<'_>,
    ) -> Result<(), FileSystemError> {
        let mark = marks.find(self.id, first);
        let mut next = mark.as_ref().map_or(0, |mark| mark.children_before);
        let index = mark.as_ref().map_or(0, |mark| mark.index);
        let mut lost = mark.and_then(|mark| mark.lost);
        let mut problem = lost.clone().map(|(what, problem)| FileSystemError::Damaged { what, problem });
        let key = |index| TreeKey::new(self.inode, kind::NAME_BY_INDEX, index);
        for item in self.trees.range(&self.subvolume.root, key(index), key(u64::MAX)) {
            let child = item.and_then(|item| {
                let entry = named_items(item.data()).next();
                let entry = entry.unwrap_or(Err("an entry is empty"));
                let child = self.child_of(&entry.map_err(|problem| damaged(self.what(), problem))?)?;
                Ok((child, item.key().offset))
            });
            let (child, index) = match child {
                Ok(found) => found,
                Err(error) => {
                    lost.get_or_insert_with(|| (self.what(), error.to_string()));
                    problem.get_or_insert(error);
                    continue;
                }
            };
            let now = next;
            next = next.saturating_add(1);
            if now >= first && visit(child).is_break() {
                let Some(index) = index.checked_add(1) else { break };
                marks.keep(ListingMark { folder: self.id, children_before: next, index, lost });
                break;
            }
        }
        problem.map_or(Ok(()), Err)
    }

    /// Looks up a name.
    pub(super) fn find(&self, name: &[u8]) -> Result<Option<FolderChild>, FileSystemError> {
        let key = TreeKey::new(self.inode, kind::NAME_BY_HASH, name_hash(name));
        if let Some(item) = self.trees.find(&self.subvolume.root, &key)? {
            for entry in named_items(item.data()) {
                let entry = entry.map_err(|problem| damaged(self.what(), problem))?;
                if entry.name == name && shown_name(name) == name {
                    return self.child_of(&entry).map(Some);
                }
            }
        }
        if !name.contains(&b'%') {
            return Ok(None);
        }
        // An escaped name.
        find_child(name, |visit| self.visit(&ListingMarks::default(), 0, &mut |child| visit(child)))
    }

    fn child_of(&self, entry: &NamedItem<'_>) -> Result<FolderChild, FileSystemError> {
        let what = || format!("entry {} of the {}", entry.name.escape_ascii(), self.what());
        let child_kind = kind_of_entry(entry.kind).ok_or_else(|| damaged(what(), "its kind is unknown"))?;
        let subvolume = self.subvolume.id;
        let file = match entry.target.kind {
            kind::INODE => BtrfsFile::Inode { subvolume, inode: entry.target.object },
            kind::ROOT if child_kind == FileKind::Folder => self.subvolume_of(entry)?,
            _ => return Err(damaged(what(), "it leads to no inode")),
        };
        Ok(FolderChild { name: shown_name(entry.name), id: file.id()?, kind: child_kind })
    }

    /// Returns the root folder of a subvolume in this folder. A snapshot has copies of the entries
    /// for subvolumes, and nothing behind them.
    fn subvolume_of(&self, entry: &NamedItem<'_>) -> Result<BtrfsFile, FileSystemError> {
        let id = entry.target.object;
        let place = Subvolumes::place(self.trees, id)?;
        let is_here = place.is_some_and(|place| {
            (place.subvolume, place.folder) == (self.subvolume.id, self.inode) && place.name == entry.name
        });
        if !is_here || id == TOP_SUBVOLUME {
            return Ok(BtrfsFile::StandIn { subvolume: self.subvolume.id, absent: id });
        }
        let (_, root_folder) = super::subvolumes::find_root(self.trees, id)?
            .ok_or_else(|| FileSystemError::Absent { what: format!("subvolume {id}") })?;
        Ok(BtrfsFile::Inode { subvolume: id, inode: root_folder })
    }
}
