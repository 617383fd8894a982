//! What a restore leaves alone, whatever the arguments say.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use varve_replica::Remembered;
use varve_session::{Home, Roots, Session, leads_into, target};
use varve_world::RealStorage;

/// Where a store keeps the list of the folders that its index is spread over, a path a line.
const INDEX_PLACES: &str = "index/places";

/// What a restore must not take away, nor write into: the store, what opens it, and what this machine knows of it.
pub(super) struct Kept {
    /// The store's folder, and those of its replicas: whatever is written into them would be taken for a part of them.
    folders: Vec<(&'static str, PathBuf)>,
    /// The rest.
    others: Vec<(&'static str, PathBuf)>,
}

impl Kept {
    pub(super) fn of(session: &Session) -> Result<Self> {
        let (mut folders, mut others) = (Vec::new(), Vec::new());
        match session.home()? {
            Home::Folder(store) => {
                let storage = RealStorage::new(&store);
                // A list that makes no sense is complained of by whoever needs it.
                let targets =
                    Remembered::read(&storage).map(|remembered| remembered.targets).unwrap_or_default();
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
            Home::Replica(text) => {
                folders.extend(
                    target::folder_of(&text).map(|folder| ("the replica that it comes from", folder)),
                );
            }
            Home::Venti(_) => {}
        }
        others.extend(session.key_file().map(|file| ("the key", file.to_owned())));
        others.extend(session.roots_file().map(|file| ("the catalog's roots", file.to_owned())));
        others.extend(Roots::folder().map(|folder| ("the catalogs' roots", folder)));
        others.extend(session.cache_folder().map(|folder| ("the cache", folder.to_owned())));
        Ok(Self { folders, others })
    }

    /// With the paths of all of it.
    pub(super) fn with_paths(self) -> (Self, Vec<PathBuf>) {
        let paths = self.folders.iter().chain(&self.others).map(|(_, path)| path.clone()).collect();
        (self, paths)
    }

    /// Nothing is restored into the folders, and none of it is replaced by a file or by another folder. What only lies in a folder that is
    /// merged into is left alone there.
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
