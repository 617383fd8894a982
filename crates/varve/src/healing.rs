//! A store that is read here: what it has lost comes from the replicas that it remembers.

use std::sync::Arc;

use anyhow::{Result, bail};
use varve_archive::{Archive, Catalog};
use varve_block::{BlockName, BlockStore};
use varve_replica::{Healing, Remembered};
use varve_store::{Access, Permission, Store, StoreConfig};
use varve_world::RealStorage;

use crate::arguments::Arguments;
use crate::home::{self, Home};
use crate::replica_home;
use crate::session::{open_store, read_store, write_store};
use crate::target::{self, NamedBy};

/// Opens the store to be read, with its catalog.
pub fn read(arguments: &Arguments) -> Result<Archive> {
    let store = Arc::new(read_store(arguments)?);
    store.role().require(Permission::Read)?;
    let blocks = healing_of(arguments, Arc::clone(&store));
    let catalog = Catalog::load_all(&*blocks, &store.catalogs());
    report_lost(arguments, &blocks);
    Ok(Archive::with_catalog(store, catalog?))
}

/// The blocks of a store. What it has lost comes from the replicas that it remembers.
pub fn blocks(arguments: &Arguments, archive: &Archive) -> Arc<Healing> {
    healing_of(arguments, archive.blocks())
}

fn healing_of(arguments: &Arguments, store: Arc<Store>) -> Arc<Healing> {
    let (arguments, config) = (arguments.clone(), store.config().clone());
    Arc::new(Healing::new(store, Box::new(move || open_remembered(&arguments, &config))))
}

/// Says what had to come from elsewhere, and stores it here again.
pub fn report_lost(arguments: &Arguments, blocks: &Healing) {
    let lost = blocks.take_lost();
    if lost.is_empty() {
        return;
    }
    remark!("varve: blocks that are lost here were read from a replica: {}", lost.len());
    match heal(arguments, blocks, &lost) {
        Ok(count) => remark!("varve: blocks that were stored here again: {count}"),
        Err(error) => remark!("varve: they were not stored here again: {error:#}"),
    }
    remark!("hint: `varve verify --data` says what else is lost");
}

fn heal(arguments: &Arguments, blocks: &Healing, lost: &[BlockName]) -> Result<u64> {
    // Whoever reads does not wait for a writer.
    let store = write_store(&Arguments { wait: None, ..arguments.clone() })?;
    let count = blocks.heal(&store, lost)?;
    store.close()?;
    Ok(count)
}

fn open_remembered(arguments: &Arguments, config: &StoreConfig) -> Vec<Box<dyn BlockStore>> {
    let Ok(Home::Folder(path)) = home::of(arguments) else { return Vec::new() };
    let targets = match Remembered::read(&RealStorage::new(&path)) {
        Ok(remembered) => remembered.targets,
        Err(error) => {
            tracing::warn!(%error, "no replica can be asked for what is lost here");
            return Vec::new();
        }
    };
    let mut stores: Vec<Box<dyn BlockStore>> = Vec::new();
    for text in targets {
        let opened = replica_home::open(arguments, &text, NamedBy::Store).and_then(|there| {
            if there.replica.config()?.binding() != config.binding() {
                bail!("{} is a replica of another store", target::shown(&text));
            }
            open_store(arguments, there.world, &target::shown(&text), Access::Read)
        });
        match opened {
            Ok(store) => stores.push(Box::new(store)),
            Err(error) => {
                remark!("varve: {} cannot be asked for what is lost here: {error:#}", target::shown(&text))
            }
        }
    }
    stores
}
