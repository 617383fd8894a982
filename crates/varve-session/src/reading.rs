//! What is looked into: a store, a replica of one, or blocks at a Venti server.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use varve_archive::{Elsewhere, Snapshot, SnapshotList};
use varve_block::BlockStore;
use varve_replica::Healing;
use varve_world::{Clock, RealClock, Workers, World};

use crate::home::Home;
use crate::roots::Roots;
use crate::session::Session;

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
    /// Opens the store that the session is of.
    pub(crate) fn open(session: &Session) -> Result<Self> {
        if let Home::Venti(address) = session.home()? {
            let workers = World::real(Path::new("")).workers;
            let (found, blocks) = session.venti_snapshots(&address)?;
            let blocks = Arc::new(Healing::new(blocks, Box::new(Vec::new)));
            return Ok(Self { list: Box::new(found), blocks, workers });
        }
        let archive = session.read()?;
        Ok(Self {
            blocks: session.healing(&archive),
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
