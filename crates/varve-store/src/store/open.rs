//! Opens a store: makes the parts from the lowest up, each from those below it.

use std::sync::Arc;

use varve_log::{ArenaMap, ClumpBytes, Log};
use varve_world::World;

use super::Store;
use crate::config::{CompareMode, StoreConfig};
use crate::drafts::Drafts;
use crate::finder::Finder;
use crate::intake::{Intake, IntakeParts};
use crate::keyring::{PassphraseCost, Secret};
use crate::opening::{Opening, RebuildProgress, UnsealedScans, finish_replacing, load_index};
use crate::reader::Reader;
use crate::saved_index::disk_index_session;
use crate::tail::Tail;
use crate::vault::{self, CreateError, OpenStoreError, Vault, WriterLock};

/// The purpose that a store is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreAccess<'a> {
    /// For reading. Takes no lock, changes nothing, and sees the log as it is at the opening.
    Read,
    /// For reading and writing, by one process at a time. Other processes are shown `holder`.
    Write {
        /// This process: its name, host and start time.
        holder: &'a str,
    },
}

/// At least this many clumps should fit into an arena of a by-value store.
const CLUMPS_PER_ARENA_MIN: u64 = 8;

impl Store {
    /// Makes a store in an empty folder. The store is durable when this returns. An encrypted store
    /// needs a secret.
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

    /// Reads the settings that were chosen when the store was made. They are readable without a
    /// key.
    ///
    /// # Errors
    /// [`OpenStoreError::NotAStore`], [`OpenStoreError::NotAFolder`],
    /// [`OpenStoreError::ConfigLost`], [`OpenStoreError::Config`] or [`OpenStoreError::Storage`].
    pub fn read_config(world: &World) -> Result<StoreConfig, OpenStoreError> {
        vault::read_config(world)
    }

    /// Reads the settings of a store and opens its log for reading. Takes no lock, changes nothing
    /// and reads no index.
    ///
    /// # Errors
    /// [`OpenStoreError`], when there is no store here or the secret does not open it.
    pub fn unlock(world: &World, secret: Option<&Secret>) -> Result<(StoreConfig, Log), OpenStoreError> {
        vault::unlock(world, secret)
    }

    /// Opens a store. Calls `progress` when directories have to be read because the index's
    /// checkpoint is missing, damaged or old.
    ///
    /// # Errors
    /// [`OpenStoreError`]. Damage to single arenas is no error here: the other arenas can be read.
    pub fn open(
        world: World,
        secret: Option<&Secret>,
        access: StoreAccess<'_>,
        progress: &mut dyn FnMut(RebuildProgress),
    ) -> Result<Self, OpenStoreError> {
        Self::open_vault(Vault::open(world, secret)?, access, progress)
    }

    /// Opens the same store once more for reading, with nothing of what this one has read: for a
    /// second look before damage is reported. Needs no secret.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_anew(&self) -> Result<Self, OpenStoreError> {
        Self::open_vault(self.vault.anew(), StoreAccess::Read, &mut |_| {})
    }

    fn open_vault(
        vault: Vault,
        access: StoreAccess<'_>,
        progress: &mut dyn FnMut(RebuildProgress),
    ) -> Result<Self, OpenStoreError> {
        let vault = Arc::new(vault);
        let world = vault.world();
        let lock = match access {
            StoreAccess::Read => None,
            StoreAccess::Write { holder } => Some(WriterLock::take(world.storage.as_ref(), holder)?),
        };
        vault.newest_version()?;
        let locked_since = lock.as_ref().map(|_| world.clock.now());
        if lock.is_some() {
            // A crash may have stopped the creation of the store before its folder was durable. The
            // writer makes the folder durable before it promises anything.
            world.storage.sync_folder("").map_err(OpenStoreError::Durable)?;
            vault.renew_format_page();
        }
        let session = lock.is_some().then(|| disk_index_session(world)).transpose();
        let session = session.map_err(OpenStoreError::Storage)?;
        let is_replaced = lock.is_some() && finish_replacing(&vault)?;
        let mut scans = UnsealedScans::new(vault.log());
        let (index, coverage) = load_index(&vault, &mut scans, session);
        let config = vault.config();
        let has_no_index = lock.is_none() && config.compare == CompareMode::Value && coverage.is_nothing();
        let drafts = Arc::new(Drafts::new(clump_goal(config)));
        let finder = Arc::new(Finder::new(Arc::clone(&vault), index, has_no_index, &coverage));
        let reader = Arc::new(Reader::new(Arc::clone(&vault), Arc::clone(&drafts), Arc::clone(&finder)));
        let opening = Opening::new(&vault, &finder, scans, lock.is_some());
        let opened = opening.catch_up(coverage, progress)?;
        let mut opened = opened;
        if let Some(appender) = opened.appender.as_mut().filter(|_| is_replaced) {
            // A writer that cannot read may have counted the replaced seals meanwhile.
            appender.note_replaced(&[])?;
        }
        let tail = Tail::new(Arc::clone(&vault), Arc::clone(&finder), opened.unread, opened.followed);
        if lock.is_none() {
            // Everything that a collector moves is at the end of the log before it replaces
            // anything, so the end is read last.
            tail.finish_opening()?;
        }
        let tail = Arc::new(tail);
        let below = IntakeParts {
            vault: Arc::clone(&vault),
            drafts: Arc::clone(&drafts),
            finder: Arc::clone(&finder),
            reader: Arc::clone(&reader),
            tail: Arc::clone(&tail),
        };
        let intake = lock.zip(opened.appender).map(|(lock, appender)| Intake::new(below, appender, lock));
        Ok(Self { vault, drafts, finder, reader, tail, intake, locked_since })
    }
}

/// Returns the size that clumps of a store should reach. In a by-value store, arenas are assigned
/// before they are written, so some clumps have to fit into one arena.
fn clump_goal(config: &StoreConfig) -> ClumpBytes {
    let part_of = |map: ArenaMap| u32::try_from(map.arena_bytes() / CLUMPS_PER_ARENA_MIN).ok();
    match config.compare {
        CompareMode::Hash => config.clump_bytes,
        CompareMode::Value => part_of(config.arena_map)
            .and_then(ClumpBytes::new)
            .map_or(config.clump_bytes, |part| part.min(config.clump_bytes)),
    }
}
