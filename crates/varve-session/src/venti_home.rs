//! A store at a Venti server as a home of snapshots. The server stores the blocks, and a file of
//! this machine the roots of the catalog.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use varve_archive::{Archive, Catalog, ContentForm, FollowError, SaveCatalogError, SnapshotHome};
use varve_block::{BlockName, BlockStore, BlockType};
use varve_tree::Cutting;
use varve_world::World;

use crate::roots_file::RootsFile;

/// Disks have the usual block size of Venti servers, and files are cut into blocks that every such
/// server accepts: 16, 32 and 56 KiB.
const FORM: ContentForm = ContentForm {
    disk_block_bytes: 8 << 10,
    cutting: Cutting::new(16 << 10, 32 << 10, 56 << 10).expect("even and ascending"),
    makes_deltas: false,
};

/// The blocks of a Venti server, and the file with the catalog's roots.
pub struct VentiHome {
    blocks: Arc<dyn BlockStore>,
    world: World,
    roots: RootsFile,
    written: Option<BlockName>,
}

impl VentiHome {
    /// Opens the snapshots of the newest root in `roots`. New ones can be taken if it is locked.
    ///
    /// # Errors
    /// When the roots or their catalog cannot be read.
    pub fn open(roots: RootsFile, blocks: Arc<dyn BlockStore>) -> Result<Archive<Self>> {
        let path = roots.path().to_owned();
        let home = Self { blocks, world: World::real(Path::new("")), roots, written: None };
        let newest = home.newest_roots()?;
        Archive::load(home, newest).with_context(|| {
            format!(
                "the newest catalog of this server is recorded in {}: if the server was set up anew, move that file away; if the snapshots are at another server, name its file with --roots",
                path.display()
            )
        })
    }
}

impl SnapshotHome for VentiHome {
    fn blocks(&self) -> Arc<dyn BlockStore> {
        Arc::clone(&self.blocks)
    }

    fn world(&self) -> &World {
        &self.world
    }

    fn content_form(&self) -> ContentForm {
        FORM
    }

    fn newest_roots(&self) -> Result<Vec<BlockName>, FollowError> {
        let newest = self.roots.newest().map_err(|error| FollowError::Roots(error.into()))?;
        let name = |score| BlockName { score, block_type: BlockType::CATALOG };
        Ok(newest.map(name).into_iter().collect())
    }

    fn write_catalog(&mut self, catalog: &mut Catalog, next: Catalog) -> Result<BlockName, SaveCatalogError> {
        let root = catalog.replace(&*self.blocks, next)?;
        self.roots.add(root.score).map_err(|error| SaveCatalogError::Root(error.into()))?;
        self.written = Some(root);
        Ok(root)
    }

    fn root_to_keep(&self) -> Option<BlockName> {
        self.written
    }
}

#[cfg(test)]
mod tests {
    use varve_archive::{SnapshotRequest, TakeError};
    use varve_block::with_causes;
    use varve_content::Progress;
    use varve_content::folder::StreamOwner;
    use varve_store::{Encryption, PassphraseCost, ScoreAlgorithm, Store, StoreAccess, StoreConfig};
    use varve_world::{MemoryStorage, Timestamp};

    use super::*;

    /// Blocks with SHA-1 scores, as those of Venti servers.
    fn server() -> Arc<dyn BlockStore> {
        let config = StoreConfig {
            encryption: Encryption::None,
            score: ScoreAlgorithm::Sha1,
            ..StoreConfig::new([5; 16])
        };
        let world = World::deterministic(Arc::new(MemoryStorage::new()), 1);
        Store::create(&world, &config, None, PassphraseCost::default()).unwrap();
        let access = StoreAccess::Write { holder: "server" };
        Arc::new(Store::open(world, None, access, &mut |_| ()).unwrap())
    }

    fn take(archive: &mut Archive<VentiHome>, name: &str) -> Result<BlockName, TakeError> {
        let request = SnapshotRequest { name: name.into(), ..SnapshotRequest::default() };
        let owner = StreamOwner { uid: 0, gid: 0, time: Timestamp(0) };
        archive.take_stream(&mut name.as_bytes(), owner, request, &Progress::new())?;
        Ok(archive.home().root_to_keep().unwrap())
    }

    #[test]
    fn a_reader_follows_the_roots_that_a_writer_notes() {
        let (folder, blocks) = (tempfile::tempdir().unwrap(), server());
        let roots = || RootsFile::at(folder.path().join("roots"));
        let mut reader = VentiHome::open(roots(), Arc::clone(&blocks)).unwrap();
        assert!(!reader.follow().unwrap());
        let mut writer = VentiHome::open(roots().lock().unwrap(), blocks).unwrap();
        assert!(roots().lock().is_err(), "a second writer would hide the snapshots of the first");
        for (name, count) in [("one", 1), ("two", 2)] {
            let root = take(&mut writer, name).unwrap();
            assert_eq!(reader.home().newest_roots().unwrap(), [root]);
            assert_eq!((reader.follow().unwrap(), reader.snapshots().len()), (true, count));
            assert!(!reader.follow().unwrap());
        }
        assert_eq!(reader.snapshots(), writer.snapshots());
        writer.close().unwrap();
        assert!(roots().lock().is_ok());
    }

    #[test]
    fn a_root_that_cannot_be_noted_is_in_the_error() {
        let folder = tempfile::tempdir().unwrap();
        let roots = || RootsFile::at(folder.path().join("roots"));
        let mut archive = VentiHome::open(roots(), server()).unwrap();
        let error = with_causes(&take(&mut archive, "one").unwrap_err());
        assert!(error.contains("write down this root yourself: catalog:"), "{error}");
        assert_eq!((archive.home().root_to_keep(), roots().newest().unwrap()), (None, None));
    }
}
