//! What is looked into: a store, a replica of one, or blocks at a Venti server.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use varve_archive::{Elsewhere, Snapshot};
use varve_replica::Healing;
use varve_world::Workers;

use crate::arguments::Arguments;
use crate::roots::Roots;
use crate::session::{self, Home};

/// Snapshots, and the blocks that they are made of.
pub struct Reading {
    snapshots: Vec<Snapshot>,
    blocks: Arc<Healing>,
    workers: Arc<dyn Workers>,
}

impl Reading {
    /// Opens what was named.
    pub fn open(arguments: &Arguments) -> Result<Self> {
        if let Home::Venti(address) = session::home(arguments)? {
            let blocks = session::venti(&address)?;
            let world = session::world(Path::new(""));
            let workers = Arc::clone(&world.workers);
            let root = Roots::of(arguments, &address)?.newest()?;
            let elsewhere = Elsewhere::open(Arc::clone(&blocks) as _, world, root)?;
            let blocks = Arc::new(Healing::new(blocks, Box::new(Vec::new)));
            return Ok(Self { snapshots: elsewhere.snapshots().to_vec(), blocks, workers });
        }
        let archive = session::read(arguments)?;
        Ok(Self {
            snapshots: archive.snapshots().to_vec(),
            blocks: session::healing(arguments, &archive),
            workers: Arc::clone(&archive.store().world().workers),
        })
    }

    /// All snapshots.
    pub fn snapshots(&self) -> &[Snapshot] {
        &self.snapshots
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
