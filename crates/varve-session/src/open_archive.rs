//! Read access to a store, a replica, or blocks at a Venti server.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use varve_archive::{RemoteArchive, Snapshot, SnapshotList};
use varve_block::BlockStore;
use varve_remote::VentiStore;
use varve_replica::HealingStore;
use varve_venti::Address;
use varve_world::{Clock, RealClock, Workers, World};

use crate::roots_file::RootsFile;
use crate::session::CommandSession;
use crate::store_location::StoreLocation;

/// The snapshots at a Venti server, and the local file that names its newest catalog.
pub struct VentiSnapshots {
    elsewhere: RemoteArchive,
    roots: RootsFile,
}

impl VentiSnapshots {
    /// Reads the newest catalog that `roots` names.
    pub fn open(roots: RootsFile, blocks: Arc<dyn BlockStore>) -> Result<Self> {
        let elsewhere = roots.open(blocks)?;
        Ok(Self { elsewhere, roots })
    }

    /// Returns the snapshots of that catalog.
    pub fn elsewhere(&self) -> &RemoteArchive {
        &self.elsewhere
    }
}

impl SnapshotList for VentiSnapshots {
    fn snapshots(&self) -> &[Snapshot] {
        self.elsewhere.snapshots()
    }

    fn follow(&mut self) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let newest = self.roots.newest()?;
        Ok(self.elsewhere.follow(newest)?)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(RealClock)
    }
}

/// Snapshots, and the blocks of which they are made.
pub struct OpenArchive {
    list: Box<dyn SnapshotList>,
    blocks: Arc<HealingStore>,
    workers: Arc<dyn Workers>,
}

impl OpenArchive {
    /// Returns all snapshots.
    pub fn snapshots(&self) -> &[Snapshot] {
        self.list.snapshots()
    }

    /// Returns the list itself, which can also be asked for newer snapshots.
    pub fn into_list(self) -> Box<dyn SnapshotList> {
        self.list
    }

    /// Returns the blocks. Lost blocks come from replicas, if the store has any.
    pub fn blocks(&self) -> Arc<HealingStore> {
        Arc::clone(&self.blocks)
    }

    /// Returns the workers of the store.
    pub fn workers(&self) -> &dyn Workers {
        self.workers.as_ref()
    }
}

/// Opening snapshots.
impl CommandSession {
    /// Opens the snapshots of the store and their blocks for reading.
    ///
    /// # Errors
    /// When the store or its catalog does not open.
    pub fn reading(&self) -> Result<OpenArchive> {
        if let StoreLocation::Venti(address) = self.home()? {
            let workers = World::real(Path::new("")).workers;
            let (found, blocks) = self.venti_snapshots(&address)?;
            let blocks = Arc::new(HealingStore::new(blocks, Box::new(Vec::new)));
            return Ok(OpenArchive { list: Box::new(found), blocks, workers });
        }
        let archive = self.read()?;
        Ok(OpenArchive {
            blocks: self.healing(&archive),
            workers: Arc::clone(&archive.store().world().workers),
            list: Box::new(archive),
        })
    }

    /// Opens the snapshots at a Venti server. Returns the server's blocks, too.
    ///
    /// # Errors
    /// When the server cannot be reached, or its catalog cannot be read.
    pub fn venti_snapshots(&self, address: &Address) -> Result<(VentiSnapshots, Arc<VentiStore>)> {
        let blocks = self.venti(address)?;
        let found = VentiSnapshots::open(self.roots(address)?, Arc::clone(&blocks) as _)?;
        Ok((found, blocks))
    }
}
