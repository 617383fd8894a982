//! The names of files: the volatile view, and the durable view that a power cut leaves.

use std::collections::{BTreeMap, BTreeSet};

use varve_world::FileName;

use crate::draw::SeededDraw;
use crate::tally::Leftover;

/// Identifies a file independently of its name.
pub(crate) type InodeNumber = u64;

/// A change that is pending until its folder is synced.
#[derive(Debug, Clone)]
enum PendingChange {
    MakeFolder { folder: String },
    Create { file: FileName, inode: InodeNumber },
    Rename { from: FileName, to: FileName, inode: InodeNumber },
    Remove { file: FileName, inode: InodeNumber },
}

/// All names and folders.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileNames {
    volatile: NamesView,
    durable: NamesView,
    waiting: Vec<PendingChange>,
    /// The file that each name stood for before the last rename onto it.
    replaced: BTreeMap<FileName, InodeNumber>,
}

#[derive(Debug, Clone, Default)]
struct NamesView {
    files: BTreeMap<FileName, InodeNumber>,
    folders: BTreeSet<String>,
}

impl PendingChange {
    /// Reports whether a sync of `folder` makes this change durable. That includes the folder's own
    /// name, because a storage syncs it, too.
    fn is_of(&self, folder: &str) -> bool {
        match self {
            Self::MakeFolder { folder: made } => made == folder || parent(made) == folder,
            Self::Create { file, .. } | Self::Remove { file, .. } => file.folder() == folder,
            Self::Rename { to, .. } => to.folder() == folder,
        }
    }

    /// Reports whether this change gives a file this name.
    fn gives(&self, name: &FileName) -> bool {
        match self {
            Self::Create { file, .. } => file == name,
            Self::Rename { to, .. } => to == name,
            Self::MakeFolder { .. } | Self::Remove { .. } => false,
        }
    }

    fn undone(&self) -> Leftover {
        match self {
            Self::MakeFolder { .. } => Leftover::FolderLost,
            Self::Create { .. } => Leftover::CreationUndone,
            Self::Rename { .. } => Leftover::RenameUndone,
            Self::Remove { .. } => Leftover::RemovalUndone,
        }
    }
}

impl NamesView {
    fn apply(&mut self, change: &PendingChange) {
        match change {
            PendingChange::MakeFolder { folder } => {
                self.folders.insert(folder.clone());
            }
            PendingChange::Create { file, inode } => {
                self.files.insert(file.clone(), *inode);
            }
            PendingChange::Rename { from, to, inode } => {
                if self.files.get(from) == Some(inode) {
                    self.files.remove(from);
                }
                self.files.insert(to.clone(), *inode);
            }
            PendingChange::Remove { file, inode } => {
                if self.files.get(file) == Some(inode) {
                    self.files.remove(file);
                }
            }
        }
    }

    fn has_folders_of(&self, file: &FileName) -> bool {
        above(file).all(|folder| self.folders.contains(folder))
    }
}

fn parent(folder: &str) -> &str {
    folder.rsplit_once('/').map_or("", |(above, _)| above)
}

/// The folders above a file, except for the root, the innermost first.
fn above(file: &FileName) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(file.folder()), |folder| Some(parent(folder)))
        .take_while(|folder| !folder.is_empty())
}

impl FileNames {
    pub(crate) fn inode(&self, file: &FileName) -> Option<InodeNumber> {
        self.volatile.files.get(file).copied()
    }

    pub(crate) fn replaced(&self, file: &FileName) -> Option<InodeNumber> {
        self.replaced.get(file).copied()
    }

    pub(crate) fn list(&self, folder: &str) -> Vec<FileName> {
        self.volatile.files.keys().filter(|file| file.folder() == folder).cloned().collect()
    }

    pub(crate) fn has_folder(&self, folder: &str) -> bool {
        folder.is_empty() || self.volatile.folders.contains(folder)
    }

    fn change(&mut self, change: PendingChange) {
        self.volatile.apply(&change);
        self.waiting.push(change);
    }

    pub(crate) fn create(&mut self, file: &FileName, inode: InodeNumber) {
        let missing: Vec<String> =
            above(file).filter(|folder| !self.has_folder(folder)).map(String::from).collect();
        for folder in missing.into_iter().rev() {
            self.change(PendingChange::MakeFolder { folder });
        }
        self.change(PendingChange::Create { file: file.clone(), inode });
    }

    pub(crate) fn rename(&mut self, from: &FileName, to: &FileName, inode: InodeNumber) {
        if let Some(before) = self.inode(to) {
            self.replaced.insert(to.clone(), before);
        }
        self.change(PendingChange::Rename { from: from.clone(), to: to.clone(), inode });
    }

    pub(crate) fn remove(&mut self, file: &FileName, inode: InodeNumber) {
        self.replaced.remove(file);
        self.change(PendingChange::Remove { file: file.clone(), inode });
    }

    /// All files in the volatile view.
    pub(crate) fn files(&self) -> impl Iterator<Item = &FileName> {
        self.volatile.files.keys()
    }

    /// Removes a file from both views.
    pub(crate) fn lose(&mut self, file: &FileName) {
        self.volatile.files.remove(file);
        self.durable.files.remove(file);
        self.replaced.remove(file);
        self.waiting.retain(|change| !change.gives(file));
    }

    pub(crate) fn sync(&mut self, folder: &str) {
        self.settle(|change| change.is_of(folder));
    }

    /// Fails a sync. Some of the pending changes become durable, and the others stay pending: a
    /// file system that cannot write its journal stops, and does not drop changes.
    pub(crate) fn fail_sync(&mut self, folder: &str, draw: &mut SeededDraw) {
        let mut kept = draw.index(self.waiting.len() + 1);
        self.settle(|change| {
            let is_kept = kept > 0;
            kept = kept.saturating_sub(1);
            is_kept && change.is_of(folder)
        });
    }

    fn settle(&mut self, mut is_durable: impl FnMut(&PendingChange) -> bool) {
        let durable = &mut self.durable;
        self.waiting.retain(|change| {
            let is_durable = is_durable(change);
            if is_durable {
                durable.apply(change);
            }
            !is_durable
        });
    }

    /// Reduces the names to the state after a power cut.
    pub(crate) fn survive(&mut self, draw: &mut SeededDraw, left: &mut BTreeSet<Leftover>) {
        let is_journal = draw.once_in(2);
        let border = draw.index(self.waiting.len() + 1);
        let mut undone_before = false;
        for (number, change) in std::mem::take(&mut self.waiting).into_iter().enumerate() {
            let is_kept = if is_journal { number < border } else { draw.once_in(2) };
            if is_kept {
                self.durable.apply(&change);
                if undone_before {
                    left.insert(Leftover::NamesReordered);
                }
            } else {
                undone_before = true;
                left.insert(change.undone());
            }
        }
        let NamesView { files, folders } = &self.durable;
        let view = NamesView { files: BTreeMap::new(), folders: folders.clone() };
        let there = files.iter().filter(|(file, _)| view.has_folders_of(file));
        let files = there.map(|(file, inode)| (file.clone(), *inode)).collect();
        self.durable = NamesView { files, ..view };
        self.volatile = self.durable.clone();
        self.replaced.clear();
    }

    /// The files that have a name in either view, or in a pending change.
    pub(crate) fn inodes(&self) -> BTreeSet<InodeNumber> {
        let named = self.volatile.files.values().chain(self.durable.files.values());
        let waiting = self.waiting.iter().filter_map(|change| match change {
            PendingChange::MakeFolder { .. } => None,
            PendingChange::Create { inode, .. }
            | PendingChange::Rename { inode, .. }
            | PendingChange::Remove { inode, .. } => Some(inode),
        });
        named.chain(waiting).chain(self.replaced.values()).copied().collect()
    }
}
