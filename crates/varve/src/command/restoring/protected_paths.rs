//! The paths that a restore never touches, whatever its arguments say.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use varve_replica::RememberedTargets;
use varve_session::{CommandSession, RootsFile, StoreLocation, leads_into, target};
use varve_world::RealStorage;

/// The store's list of the folders over which its index is spread, one path on each line.
const INDEX_PLACES: &str = "index/places";

/// The paths that a restore must neither remove nor write into: the store, its key files, and this
/// machine's notes about it.
pub(super) struct ProtectedPaths {
    /// The folders of the store and of its replicas. Any file in them would be mistaken for a part
    /// of them.
    folders: Vec<(&'static str, PathBuf)>,
    others: Vec<(&'static str, PathBuf)>,
}

impl ProtectedPaths {
    pub(super) fn of(session: &CommandSession) -> Result<Self> {
        let (mut folders, mut others) = (Vec::new(), Vec::new());
        match session.home()? {
            StoreLocation::Folder(store) => {
                let storage = RealStorage::new(&store);
                // An unreadable list is ignored here. The code that needs it reports the error.
                let targets = RememberedTargets::read(&storage)
                    .map(|remembered| remembered.targets)
                    .unwrap_or_default();
                folders.extend(
                    targets
                        .iter()
                        .filter_map(|text| Some(("a replica of the store", target::folder_of(text)?))),
                );
                let list = std::fs::read_to_string(store.join(INDEX_PLACES)).unwrap_or_default();
                for place in list.lines().map(Path::new).filter(|place| place.is_absolute()) {
                    others.push(("a part of the index", place.join("index")));
                    others.push(("a part of the index", place.join("varve-index")));
                }
                folders.insert(0, ("the store itself", store));
            }
            StoreLocation::Replica(text) => {
                folders.extend(
                    target::folder_of(&text).map(|folder| ("the replica that it comes from", folder)),
                );
            }
            StoreLocation::Venti(_) => {}
        }
        others.extend(session.key_file().map(|file| ("the key", file.to_owned())));
        others.extend(session.roots_file().map(|file| ("the catalog's roots", file.to_owned())));
        others.extend(RootsFile::folder().map(|folder| ("the catalogs' roots", folder)));
        others.extend(session.cache_folder().map(|folder| ("the cache", folder.to_owned())));
        Ok(Self { folders, others })
    }

    /// Also returns all the paths.
    pub(super) fn with_paths(self) -> (Self, Vec<PathBuf>) {
        let paths = self.folders.iter().chain(&self.others).map(|(_, path)| path.clone()).collect();
        (self, paths)
    }

    /// Refuses a destination inside the folders, and one that would replace any of the paths. A
    /// path that merely lies in a folder that is merged into is left alone during the merge.
    pub(super) fn refuse(&self, destination: &Path) -> Result<()> {
        let Ok(absolute) = std::path::absolute(destination) else { return Ok(()) };
        for (what, folder) in &self.folders {
            if leads_into(&absolute, folder) {
                bail!("{} is in {what}: restore it elsewhere", destination.display());
            }
        }
        let is = |path: &Path| {
            let leads_to = |path: &Path| path.canonicalize().ok();
            leads_to(&absolute).is_some_and(|there| leads_to(path) == Some(there))
        };
        match self.others.iter().find(|(_, path)| is(path)) {
            Some((what, _)) => bail!("{} is {what}: restore elsewhere", destination.display()),
            None => Ok(()),
        }
    }
}
