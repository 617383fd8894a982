//! What is looked into: a store, a replica of one, or blocks at a Venti server.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use varve_archive::{Elsewhere, Snapshot};
use varve_block::BlockStore;
use varve_replica::Healing;
use varve_serve::snapshots::SnapshotList;
use varve_world::{Clock, RealClock, Workers, World};

use crate::arguments::Arguments;
use crate::healing;
use crate::home::{self, Home};
use crate::roots::Roots;

/// Snapshots at a Venti server, and the file of this machine that says where the newest catalog is.
pub struct VentiSnapshots {
    elsewhere: Elsewhere,
    roots: Roots,
}

impl VentiSnapshots {
    /// Reads the catalog that the file names.
    pub fn open(roots: Roots, blocks: Arc<dyn BlockStore>) -> Result<Self> {
        let elsewhere = roots.open(blocks)?;
        Ok(Self { elsewhere, roots })
    }

    /// The snapshots, as they were found.
    pub fn elsewhere(&self) -> &Elsewhere {
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

/// Snapshots, and the blocks that they are made of.
pub struct Reading {
    list: Box<dyn SnapshotList>,
    blocks: Arc<Healing>,
    workers: Arc<dyn Workers>,
}

impl Reading {
    /// Opens what was named.
    pub fn open(arguments: &Arguments) -> Result<Self> {
        if let Home::Venti(address) = home::of(arguments)? {
            let blocks = home::venti(&address)?;
            let workers = World::real(Path::new("")).workers;
            let found = VentiSnapshots::open(Roots::of(arguments, &address)?, Arc::clone(&blocks) as _)?;
            let blocks = Arc::new(Healing::new(blocks, Box::new(Vec::new)));
            return Ok(Self { list: Box::new(found), blocks, workers });
        }
        let archive = healing::read(arguments)?;
        Ok(Self {
            blocks: healing::blocks(arguments, &archive),
            workers: Arc::clone(&archive.store().world().workers),
            list: Box::new(archive),
        })
    }

    /// All snapshots.
    pub fn snapshots(&self) -> &[Snapshot] {
        self.list.snapshots()
    }

    /// The same, for whoever wants to know of new ones, too.
    pub fn into_list(self) -> Box<dyn SnapshotList> {
        self.list
    }

    /// The blocks. What is lost comes from replicas, where there are any.
    pub fn blocks(&self) -> Arc<Healing> {
        Arc::clone(&self.blocks)
    }

    /// Who does the work.
    pub fn workers(&self) -> &dyn Workers {
        self.workers.as_ref()
    }
}
