//! What a restore leaves alone, whatever the arguments say.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use varve_replica::Remembered;
use varve_world::RealStorage;

use crate::arguments::Arguments;
use crate::home::{self, Home};
use crate::roots::Roots;
use crate::{replica_home, target};

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
    pub(super) fn of(arguments: &Arguments) -> Result<Self> {
        let (mut folders, mut others) = (Vec::new(), Vec::new());
        match home::of(arguments)? {
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
        others.extend(arguments.key_file.clone().map(|file| ("the key", file)));
        others.extend(arguments.roots.clone().map(|file| ("the catalog's roots", file)));
        others.extend(Roots::folder().map(|folder| ("the catalogs' roots", folder)));
        others.extend(replica_home::cache_folder(arguments).map(|folder| ("the cache", folder)));
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
            if home::leads_into(&absolute, folder) {
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
