//! Subvolumes: trees of files, each under a number.
//!
//! | offset | bytes | of a root                   | offset | bytes | of the place of a subvolume  |
//! |-------:|------:|-----------------------------|-------:|------:|-------------------------------|
//! |      0 |   160 | an inode without meaning    |      0 |     8 | inode of the folder          |
//! |    160 |     8 | generation                  |     16 |     2 | bytes of the name            |
//! |    168 |     8 | inode of the root folder    |     18 |       | name in the folder           |
//! |    176 |     8 | address of the tree         |        |       |                              |
//! |    200 |     8 | generation of the last snapshot |    |       |                               |
//! |    216 |     4 | 0: it is being deleted      |        |       |                              |
//! |    238 |     1 | level of the tree           |        |       |                              |

use std::sync::Arc;

use quick_cache::sync::Cache;

use super::damaged;
use super::key::{TreeKey, kind};
use super::tree_root::TreeRoot;
use super::trees::{TreeItem, Trees};
use crate::bytes::fields::{u8_at, u16_at, u32_at, u64_at};
use crate::file_systems::file_system::FileSystemError;

const ROOT_BYTES: usize = 239;
const PARENT_HEAD_BYTES: usize = 18;
/// The subvolumes whose roots are remembered.
const CACHED_SUBVOLUMES: usize = 1024;

/// A tree of files.
pub(super) struct Subvolume {
    pub(super) id: u64,
    pub(super) root: TreeRoot,
    /// The inode of its root folder.
    pub(super) root_folder: u64,
    /// The generation of its last snapshot. A snapshot has nothing that is newer.
    pub(super) last_snapshot: u64,
}

/// The folder that a subvolume is in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SubvolumePlace {
    pub(super) subvolume: u64,
    pub(super) folder: u64,
    pub(super) name: Vec<u8>,
}

/// Finds subvolumes, and remembers them.
pub(super) struct Subvolumes {
    known: Cache<u64, Arc<Subvolume>>,
}

/// Returns the root of the tree with this number; `None` if there is none, or if it is being
/// deleted.
///
/// # Errors
/// [`FileSystemError`]
pub(super) fn find_root(trees: &Trees, id: u64) -> Result<Option<(TreeRoot, u64)>, FileSystemError> {
    find_item(trees, id)?.map(|item| root_of(&item, id)).transpose()
}

fn find_item(trees: &Trees, id: u64) -> Result<Option<TreeItem>, FileSystemError> {
    let last = TreeKey::new(id, kind::ROOT, u64::MAX);
    let item = trees.last_up_to(&trees.superblock().root, &last)?;
    Ok(item.filter(|item| item.key().is_beside(&last) && u32_at(item.data(), 216) > 0))
}

/// Reads the item of a root, and returns the root and the inode of its root folder.
///
/// # Errors
/// [`FileSystemError`] if the item is too short.
pub(super) fn root_of(item: &TreeItem, id: u64) -> Result<(TreeRoot, u64), FileSystemError> {
    let data = item.data();
    if data.len() < ROOT_BYTES {
        return Err(damaged(format!("root of tree {id}"), "it is too short"));
    }
    let root =
        TreeRoot { generation: u64_at(data, 160), logical: u64_at(data, 176), level: u8_at(data, 238) };
    Ok((root, u64_at(data, 168)))
}

impl Subvolumes {
    pub(super) fn new() -> Self {
        Self { known: Cache::new(CACHED_SUBVOLUMES) }
    }

    /// Returns a subvolume.
    ///
    /// # Errors
    /// [`FileSystemError`]
    pub(super) fn get(&self, trees: &Trees, id: u64) -> Result<Arc<Subvolume>, FileSystemError> {
        self.known.get_or_insert_with(&id, || {
            let absent = || FileSystemError::Absent { what: format!("subvolume {id}") };
            let item = find_item(trees, id)?.ok_or_else(absent)?;
            let (root, root_folder) = root_of(&item, id)?;
            let last_snapshot = u64_at(item.data(), 200);
            Ok(Arc::new(Subvolume { id, root, root_folder, last_snapshot }))
        })
    }

    /// Returns the one place of a subvolume in another one; `None` if it has none.
    ///
    /// # Errors
    /// [`FileSystemError`]
    pub(super) fn place(trees: &Trees, id: u64) -> Result<Option<SubvolumePlace>, FileSystemError> {
        let key = |parent| TreeKey::new(id, kind::ROOT_PARENT, parent);
        let mut range = trees.range(&trees.superblock().root, key(0), key(u64::MAX));
        let Some(item) = range.next().transpose()? else { return Ok(None) };
        let data = item.data();
        let name_end = PARENT_HEAD_BYTES.saturating_add(usize::from(u16_at(data, 16)));
        let name = data.get(PARENT_HEAD_BYTES..name_end);
        let name = name.ok_or_else(|| damaged(format!("place of subvolume {id}"), "it is cut off"))?;
        Ok(Some(SubvolumePlace { subvolume: item.key().offset, folder: u64_at(data, 0), name: name.into() }))
    }
}
