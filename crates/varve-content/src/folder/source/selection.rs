//! Selects the parts of a source that are archived. The archiving walk and the survey share these
//! decisions.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use super::cache_tag::{CACHE_TAG_NAME, is_cache};
use super::listed_paths::ListedPaths;
use super::mounts::Mounts;
use super::status::{FolderNames, HostFileId, Status};
use super::virtual_file_systems::{name_of, name_of_unopened};
use crate::folder::archiving::left_out::{LeftOutEntry, LeftOutReason, measure};
use crate::folder::archiving::options::FolderOptions;
use crate::folder::archiving::read::{JoinName, SourceFolder};
use crate::records::node::NodeKind;

/// The settings that select the archived parts of a source.
pub(crate) struct Selection<'a> {
    options: &'a FolderOptions,
    root_id: HostFileId,
    store_folder: Option<HostFileId>,
    mounts: Mounts,
}

impl<'a> Selection<'a> {
    /// `store_folder` is the store that receives the snapshot.
    pub(crate) fn new(
        options: &'a FolderOptions,
        root_id: HostFileId,
        store_folder: Option<HostFileId>,
    ) -> Self {
        Self { options, root_id, store_folder, mounts: Mounts::read() }
    }

    /// The listed paths of the source; `None` if everything is archived.
    pub(crate) fn listed(&self) -> Option<&'a ListedPaths> {
        self.options.listed.as_deref().filter(|listed| !listed.is_whole())
    }

    /// Returns whether a node is left out altogether, with the reason.
    pub(crate) fn leaves_out(
        &self,
        folder: &SourceFolder,
        name: &[u8],
        kind: NodeKind,
        status: &Status,
    ) -> Option<LeftOutEntry> {
        let is_folder = kind == NodeKind::Folder;
        let entry = |reason, bytes| LeftOutEntry { path: folder.path.join_name(name), kind, bytes, reason };
        let size = if kind == NodeKind::File { status.size } else { 0 };
        if is_folder && self.store_folder == Some(status.id) {
            return Some(entry(LeftOutReason::OwnStore, measure(&folder.descriptor, name)));
        }
        if self.options.one_file_system && !is_folder && self.is_elsewhere(status) {
            return Some(entry(LeftOutReason::OtherFileSystem, size));
        }
        if !self.options.excludes.is_empty()
            && let Some(rule) = self.options.excludes.rule_against(&folder.path.join_name(name), is_folder)
        {
            return Some(entry(LeftOutReason::of_rule(rule), size));
        }
        let largest = self.options.larger_than.filter(|largest| size > *largest)?;
        Some(entry(LeftOutReason::LargerThan(largest), size))
    }

    /// Returns whether a node is archived without its contents, and must not be opened, with the
    /// reason.
    pub(crate) fn leaves_empty(
        &self,
        folder: &SourceFolder,
        name: &[u8],
        kind: NodeKind,
        status: &Status,
    ) -> Option<LeftOutReason> {
        let device = status.id.file_system;
        let is_mount = device != folder.device;
        match kind {
            NodeKind::Folder if self.is_elsewhere(status) && self.options.one_file_system => {
                return Some(LeftOutReason::OtherFileSystem);
            }
            NodeKind::Folder if self.is_elsewhere(status) && self.mounts.is_archive(device) => {
                return Some(LeftOutReason::MountedArchive);
            }
            // A file can be a mount point too: those of nsfs are.
            NodeKind::Folder | NodeKind::File => {}
            _ => return None,
        }
        let is_to_be_looked_at = is_mount || folder.virtual_name == Some("autofs");
        if self.options.virtual_file_systems || !is_to_be_looked_at {
            return None;
        }
        // Opening a folder of autofs mounts a file system there.
        let name = name_of_unopened(&folder.descriptor, name)?;
        let is_plain_root = is_mount && self.mounts.is_indirect_autofs(device);
        (!is_plain_root).then_some(LeftOutReason::Virtual(name))
    }

    /// Returns whether a folder may be opened and listed before the walk comes to it. False for
    /// anything that may be left out, and for folders whose opening could have an effect.
    pub(crate) fn may_list_ahead(&self, parent: &SourceFolder, name: &[u8], status: &Status) -> bool {
        status.kind == Some(NodeKind::Folder)
            && status.id.file_system == parent.device
            && self.store_folder != Some(status.id)
            && (self.options.excludes.is_empty()
                || self.options.excludes.rule_against(&parent.path.join_name(name), true).is_none())
    }

    /// The name of the virtual file system of an open folder, and the reason if the folder is
    /// therefore archived as empty.
    pub(crate) fn virtual_file_system(
        &self,
        parent: Option<&SourceFolder>,
        descriptor: impl AsFd,
    ) -> (Option<&'static str>, Option<LeftOutReason>) {
        let name = name_of(descriptor);
        let is_asked_for = self.options.virtual_file_systems || name == Some("autofs");
        let reason = match (name, parent) {
            (Some(name), Some(parent)) if !is_asked_for && parent.virtual_name != Some(name) => {
                Some(LeftOutReason::Virtual(name))
            }
            _ => None,
        };
        (name, reason)
    }

    /// The only entry of an open folder that is archived, if a marker file in it demands so.
    pub(crate) fn keeps_only(&self, descriptor: &OwnedFd, names: &FolderNames) -> Option<Vec<u8>> {
        if self.options.exclude_caches && names.contain(CACHE_TAG_NAME) && is_cache(descriptor) {
            return Some(CACHE_TAG_NAME.to_vec());
        }
        self.options.if_present.iter().find(|name| names.contain(name)).cloned()
    }

    /// Returns whether a node is on another file system than the root.
    fn is_elsewhere(&self, status: &Status) -> bool {
        status.id.file_system != self.root_id.file_system
    }
}

/// The record of a folder that is archived with its marker file alone.
pub(crate) fn marked(path: &Path, by: Vec<u8>) -> LeftOutEntry {
    let reason = LeftOutReason::Marked { by };
    LeftOutEntry { path: path.to_path_buf(), kind: NodeKind::Folder, bytes: 0, reason }
}

/// The record of a node that is archived without its contents.
pub(crate) fn empty(path: &Path, kind: NodeKind, reason: LeftOutReason) -> LeftOutEntry {
    LeftOutEntry { path: path.to_path_buf(), kind, bytes: 0, reason }
}
