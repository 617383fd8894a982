//! Lists the next folders while the walker is still in those before them: their names, and the
//! status of each.
//!
//! A folder that is listed ahead is on the file system of its parent, and no rule leaves it out. So
//! nothing is opened that the walker would not open.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::read::SourceFolder;
use crate::folder::source::selection::Selection;
use crate::folder::source::status::{FolderNames, open_folder};

/// Folders of one parent that are listed ahead of the walker.
const LISTED_COUNT_MAX: usize = 16;
/// Upper bound on the names of a folder that is listed ahead, each about 200 bytes.
const LISTED_NAME_COUNT_MAX: usize = 1024;

/// A folder to open and list.
pub(super) struct FolderToList {
    number: u64,
    parent: Arc<SourceFolder>,
    name: Vec<u8>,
}

/// A folder that was listed ahead.
pub(super) struct ListedFolder {
    /// Its number in the order in which the listings began.
    pub(super) number: u64,
    /// `None` if the walker has to list it: it cannot be opened, or has too many names to keep.
    pub(super) listing: Option<FolderListing>,
}

/// An open folder and its names.
pub(super) struct FolderListing {
    pub(super) descriptor: OwnedFd,
    pub(super) names: FolderNames,
    /// An error after these names.
    pub(super) read: io::Result<()>,
}

impl FolderToList {
    pub(super) fn list(self) -> ListedFolder {
        let Self { number, parent, name } = self;
        let listing = open_folder(&parent.descriptor, &name).ok().and_then(|descriptor| {
            let (mut names, read) = FolderNames::read(&descriptor);
            if names.len() > LISTED_NAME_COUNT_MAX {
                return None;
            }
            names.read_statuses(&descriptor);
            Some(FolderListing { descriptor, names, read })
        });
        ListedFolder { number, listing }
    }
}

/// The folders of one parent that are listed ahead.
#[derive(Default)]
pub(super) struct FoldersAhead {
    /// The place of each among the names of the parent, and its number. In the order of the names.
    coming: VecDeque<(usize, u64)>,
    /// The names before this place were looked at.
    looked_to: usize,
}

impl FoldersAhead {
    /// Returns the number of the folder at this place, if it is listed ahead. Places must be given
    /// in ascending order.
    pub(super) fn take(&mut self, place: usize) -> Option<u64> {
        self.looked_to = self.looked_to.max(place + 1);
        let (_, number) = self.coming.pop_front_if(|(coming, _)| *coming == place)?;
        Some(number)
    }

    /// Returns the next folder to list, if there are not enough yet. It gets this `number`.
    pub(super) fn next(
        &mut self,
        names: &FolderNames,
        folder: &Arc<SourceFolder>,
        selection: &Selection<'_>,
        number: u64,
    ) -> Option<FolderToList> {
        if self.coming.len() >= LISTED_COUNT_MAX || folder.virtual_name.is_some() {
            return None;
        }
        while let Some((name, status)) = names.known_status(self.looked_to) {
            let place = self.looked_to;
            self.looked_to += 1;
            if status.is_some_and(|status| selection.may_list_ahead(folder, name, status)) {
                self.coming.push_back((place, number));
                return Some(FolderToList { number, parent: Arc::clone(folder), name: name.to_vec() });
            }
        }
        None
    }
}
