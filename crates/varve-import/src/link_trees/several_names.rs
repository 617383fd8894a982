//! Finds the files that have several names inside one tree. Most files of such a tree have several
//! names, but in different trees.

use std::collections::BTreeSet;
use std::io;

use varve_content::NodeKind;
use varve_content::folder::{FOLDER_DEPTH_MAX, HostFolder, ListedName};

use super::seen_inodes::LinkedFileId;
use super::walk_ahead::StopSign;

/// The origin of the inodes of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InodesFrom {
    /// The listing of each folder, which costs nothing further. Some file systems report other
    /// inodes there than in a status.
    Listings,
    /// The status of each name.
    Statuses,
}

/// Returns the files with several names. `None` if an inode in a listing is another one than in the
/// status: one name of each folder is compared.
pub(super) fn files_with_several_names(
    root: &HostFolder,
    inodes_from: InodesFrom,
    stop: &StopSign,
) -> io::Result<Option<BTreeSet<LinkedFileId>>> {
    let mut seen: Vec<LinkedFileId> = Vec::new();
    let Some(names) = below(root, inodes_from, &mut seen)? else { return Ok(None) };
    let mut open = vec![(None, names.into_iter())];
    loop {
        if stop.is_set() {
            return Ok(Some(BTreeSet::new()));
        }
        let depth = open.len();
        let Some((folder, names)) = open.last_mut() else { break };
        let Some(name) = names.next() else {
            open.pop();
            continue;
        };
        let folder: &HostFolder = folder.as_ref().unwrap_or(root);
        // The walk that archives reports unreadable folders.
        if depth < FOLDER_DEPTH_MAX
            && let Ok(folder) = folder.folder(&name)
            && let Ok(names) = below(&folder, inodes_from, &mut seen)
        {
            let Some(names) = names else { return Ok(None) };
            open.push((Some(folder), names.into_iter()));
        }
    }
    seen.sort_unstable();
    let several = seen.windows(2).filter_map(|pair| match pair {
        [one, other] if one == other => Some(*one),
        _ => None,
    });
    Ok(Some(several.collect()))
}

/// Adds the files of a folder to `seen`. Returns the names of the folders in it; `None` if the
/// listing reports another inode than the status.
fn below(
    folder: &HostFolder,
    inodes_from: InodesFrom,
    seen: &mut Vec<LinkedFileId>,
) -> io::Result<Option<Vec<Vec<u8>>>> {
    let mut folders = Vec::new();
    let listing = folder.list()?;
    let (major, minor, _) = folder.status()?.file_id();
    let mut is_compared = false;
    for ListedName { name, kind, inode } in listing.listed() {
        if kind == Some(NodeKind::Folder) {
            folders.push(name.to_vec());
            continue;
        }
        if kind.is_some() && is_compared && inodes_from == InodesFrom::Listings {
            seen.push((major, minor, inode));
            continue;
        }
        let Ok(status) = folder.status_of(name) else { continue };
        if status.kind() == Some(NodeKind::Folder) {
            folders.push(name.to_vec());
            continue;
        }
        if inodes_from == InodesFrom::Listings && status.file_id() != (major, minor, inode) {
            return Ok(None);
        }
        is_compared = true;
        if status.link_count() > 1 {
            seen.push(status.file_id());
        }
    }
    Ok(Some(folders))
}
