//! Opening a store: the parts are made from the lowest up, each from those below it.

use std::sync::Arc;

use varve_log::{ArenaMap, ClumpBytes, Log};
use varve_world::{FileName, World};

use super::Store;
use crate::config::{CompareMode, StoreConfig};
use crate::drafts::Drafts;
use crate::finder::Finder;
use crate::intake::{Below, Intake};
use crate::keyring::{PassphraseCost, Secret};
use crate::opening::{Opening, RebuildProgress, UnsealedScans, load_index};
use crate::reader::Reader;
use crate::saved_index::disk_index_session;
use crate::tail::Tail;
use crate::vault::{self, CreateError, OpenError, Vault};

/// The purpose that a store is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access<'a> {
    /// To be read. Takes no lock, changes nothing, and sees what is there now.
    Read,
    /// To be written as well, by one process at a time; `holder` is what others are told.
    Write {
        /// Who this is: a process, a host, since when.
        holder: &'a str,
    },
}

/// At least this many clumps should fit into an arena of a by-value store.
const CLUMPS_PER_ARENA_MIN: u64 = 8;

impl Store {
    /// Makes a store in an empty folder, durable when this returns. An encrypted one needs a secret.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create(
        world: &World,
        config: &StoreConfig,
        secret: Option<&Secret>,
        cost: PassphraseCost,
    ) -> Result<(), CreateError> {
        vault::create(world, config, secret, cost)
    }

    /// The choices that were made when the store was made: readable without a key.
    ///
    /// # Errors
    /// [`OpenError::NotAStore`], [`OpenError::NotAFolder`], [`OpenError::ConfigLost`], [`OpenError::Config`] or
    /// [`OpenError::Storage`].
    pub fn read_config(world: &World) -> Result<StoreConfig, OpenError> {
        vault::read_config(world)
    }

    /// The settings of a store, and its log to be read. Takes no lock, changes nothing and reads no index.
    ///
    /// # Errors
    /// [`OpenError`], when there is no store here or the secret does not open it.
    pub fn unlock(world: &World, secret: Option<&Secret>) -> Result<(StoreConfig, Log), OpenError> {
        vault::unlock(world, secret)
    }

    /// Opens a store. `progress` is told when directories have to be read because the index's checkpoint is missing,
    /// damaged or old.
    ///
    /// # Errors
    /// [`OpenError`]. Damage to single arenas is no error here: what else there is can be read.
    pub fn open(
        world: World,
        secret: Option<&Secret>,
        access: Access<'_>,
        progress: &mut dyn FnMut(RebuildProgress),
    ) -> Result<Self, OpenError> {
        let vault = Arc::new(Vault::open(world, secret)?);
        let world = vault.world();
        let lock = match access {
            Access::Read => None,
            Access::Write { holder } => {
                let lock_file = FileName::new("lock").expect("a plain name");
                Some(world.storage.lock(&lock_file, holder)?)
            }
        };
        if lock.is_some() {
            // Who made the store may have been stopped before it was durable: nothing may be promised without it.
            world.storage.sync_folder("").map_err(OpenError::Durable)?;
        }
        let session = lock.is_some().then(|| disk_index_session(world)).transpose();
        let session = session.map_err(OpenError::Storage)?;
        let mut scans = UnsealedScans::new(vault.log());
        let (index, coverage) = load_index(&vault, &mut scans, session);
        let config = vault.config();
        let has_no_index = lock.is_none() && config.compare == CompareMode::Value && coverage.is_nothing();
        let drafts = Arc::new(Drafts::new(clump_goal(config)));
        let finder = Arc::new(Finder::new(Arc::clone(&vault), index, has_no_index, &coverage));
        let reader = Arc::new(Reader::new(Arc::clone(&vault), Arc::clone(&drafts), Arc::clone(&finder)));
        let opened = Opening::new(&vault, &finder, scans).catch_up(coverage, lock.is_some(), progress)?;
        let tail = Tail::new(Arc::clone(&vault), Arc::clone(&finder), opened.unread, opened.followed);
        let tail = Arc::new(tail);
        let below = Below {
            vault: Arc::clone(&vault),
            drafts: Arc::clone(&drafts),
            finder: Arc::clone(&finder),
            reader: Arc::clone(&reader),
            tail: Arc::clone(&tail),
        };
        let intake = lock.zip(opened.appender).map(|(lock, appender)| Intake::new(below, appender, lock));
        Ok(Self { vault, drafts, finder, reader, tail, intake })
    }
}

/// How large the clumps of a store become. Where arenas are given out beforehand, some have to fit into one.
fn clump_goal(config: &StoreConfig) -> ClumpBytes {
    let part_of = |map: ArenaMap| u32::try_from(map.arena_bytes() / CLUMPS_PER_ARENA_MIN).ok();
    match config.compare {
        CompareMode::Hash => config.clump_bytes,
        CompareMode::Value => part_of(config.arena_map)
            .and_then(ClumpBytes::new)
            .map_or(config.clump_bytes, |part| part.min(config.clump_bytes)),
    }
}
