//! A folder that would go on with the series of another folder.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Result, bail};
use varve_archive::{Archive, Snapshot, SnapshotContent};
use varve_block::visible_name;
use varve_content::NodeList;

use super::open_store::open_store;
use crate::config::{ConfiguredSource, ConfiguredStore, SourceWhat};
use crate::judging::is_series_of;
use crate::loaded_config::LoadedConfig;

/// Refuses a folder whose series is that of another folder: the rules of `keep` would drop the
/// snapshots of one for those of the other. A folder with half of the names at its top is the same
/// one at another place.
///
/// # Errors
/// When the folder is another one.
pub fn check_series(
    loaded: &LoadedConfig,
    store: &ConfiguredStore,
    (name, source): (&str, &ConfiguredSource),
    earlier: Option<&[u8]>,
) -> Result<()> {
    let (SourceWhat::Folder(folder), Some(earlier)) = (&source.what, earlier) else { return Ok(()) };
    if is_path(folder, earlier) {
        return Ok(());
    }
    let session = loaded.session(store)?;
    let Some((archive, _)) = open_store(&session, store)? else { return Ok(()) };
    let own = archive
        .snapshots()
        .iter()
        .filter(|one| one.host == loaded.host && is_series_of(&loaded.config, (name, source), &one.name));
    let Some(newest) = own.max_by_key(|one| one.time) else { return Ok(()) };
    if is_path(folder, &newest.source) || has_same_names(&archive, newest, folder) {
        return Ok(());
    }
    bail!(
        "the newest snapshot of {name} is of {}, and {} holds other things: give it a source with another name; if it goes on with this series, `varve snapshot {} --name {name}` says so once",
        visible_name(&newest.source),
        folder.display(),
        folder.display()
    )
}

/// Reports whether two paths are equal, or lead to the same folder now.
fn is_path(folder: &Path, earlier: &[u8]) -> bool {
    let earlier = Path::new(std::ffi::OsStr::from_bytes(earlier));
    let real = |path: &Path| path.canonicalize().ok();
    folder == earlier || real(folder).is_some_and(|one| real(earlier) == Some(one))
}

/// Reports whether at least half of the names of the smaller folder are in both. Folders that
/// cannot be read, or are empty, differ in nothing that is known.
fn has_same_names(archive: &Archive, newest: &Snapshot, folder: &Path) -> bool {
    let SnapshotContent::Folder(root) = &newest.content else { return false };
    let blocks = archive.blocks();
    let nodes = NodeList::new(&*blocks, root).map_while(Result::ok);
    let archived: BTreeSet<Vec<u8>> = nodes.map(|node| node.name.to_vec()).collect();
    let Ok(listed) = fs::read_dir(folder) else { return true };
    let present: BTreeSet<Vec<u8>> =
        listed.flatten().map(|entry| entry.file_name().as_bytes().to_vec()).collect();
    let common = archived.intersection(&present).count();
    common * 2 >= archived.len().min(present.len())
}
