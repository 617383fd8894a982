//! The vault: the settings, keys and log of a store, and everything that can be read without an
//! index.
//!
//! It owns the world that the store lives in, `config.toml`, the keys and their role, the log, and
//! the caches of the log's directories. Every other part depends on it, and it depends on none of
//! them.
//!
//! Always true:
//! - The vault appends nothing to an arena and changes none. It writes only the small files beside
//!   the log: settings, keys, and hints in `index/`.
//! - A hint is used only if the store's own code on it matches. A missing hint costs time, never
//!   data.
//! - Settings, keys, role and log do not change while a store is open.

mod arena_extent;
mod arena_names;
pub(crate) mod barren_hint;
mod bring_back;
mod catalog_roots;
mod create;
mod format_page;
mod hint;
mod hint_pieces;
mod later_generation;
mod log_extent;
mod namer;
mod newest_page;
mod open_error;
mod private_file;
mod sessions;
mod successors;
mod unfinished_file;
mod unlock;
mod writer_lock;

pub use arena_extent::ArenaExtent;
pub use arena_names::ArenaNames;
pub use bring_back::{BringBackError, QUARANTINE, bring_back_settings, settings_need_secret};
pub use catalog_roots::CatalogRoot;
pub use create::{CreateError, create};
pub use format_page::FormatPage;
pub use hint::{HINT_MAC_BYTES, Hint};
pub use log_extent::LogExtent;
pub use namer::Namer;
pub use newest_page::NotedPage;
pub use open_error::OpenStoreError;
pub use private_file::PrivateFileError;
pub use sessions::{SessionEvent, SessionRecord, SessionsError, SessionsFile, SessionsRead, WrittenBlock};
pub use unfinished_file::UnfinishedFile;
pub use unlock::{is_sound_key, read_config, unlock};
pub(crate) use writer_lock::WriterLock;

use std::sync::Arc;

use varve_log::{ArenaId, ArenaMap, ArenaVersion, LockedMemory, Log, LogConfig, OpenedArena, ReadLogError};
use varve_world::{Storage, World};

use crate::config::StoreConfig;
use crate::directory::Directory;
use crate::keyring::{self, Secret};
use crate::origin::Origin;
use crate::parity::ParityFiles;
use crate::role::{Permission, Role};
use unlock::Unlocked;

/// The settings, keys and log of an open store.
pub struct Vault {
    world: World,
    config: StoreConfig,
    log: Arc<Log>,
    namer: Namer,
    directory: Directory,
    /// The role of the key that opened the store.
    role: Role,
    /// The id of that key; `None` if the store is not encrypted.
    key_id: Option<String>,
    /// Encrypts files that only the holder of that one key may read.
    own: Arc<LockedMemory<[u8; 32]>>,
}

impl Vault {
    /// Reads the settings and opens the keys. Takes no lock, changes nothing and reads no arena.
    pub(crate) fn open(world: World, secret: Option<&Secret>) -> Result<Self, OpenStoreError> {
        let config = read_config(&world)?;
        let Unlocked { keys, role, key_id, own } = unlock::unlocked(world.storage.as_ref(), &config, secret)?;
        let namer = Namer::new(config.score, config.compare, keys.clone());
        let log_config =
            LogConfig { store_id: config.id, map: config.arena_map, score_bytes: config.score_bytes() };
        let log = Arc::new(Log::new(Arc::clone(&world.storage), keys, log_config));
        let directory = Directory::new(Arc::clone(&log));
        Ok(Self { world, config, log, namer, directory, role, key_id, own: Arc::new(own) })
    }

    /// Returns the same vault with empty caches, for a second look at the log.
    pub(crate) fn anew(&self) -> Self {
        let log = Arc::new(self.log.over(Arc::clone(&self.world.storage)));
        Self {
            world: self.world.clone(),
            config: self.config.clone(),
            directory: Directory::new(Arc::clone(&log)),
            log,
            namer: self.namer.clone(),
            role: self.role,
            key_id: self.key_id.clone(),
            own: Arc::clone(&self.own),
        }
    }

    /// Returns the world that the store lives in.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Returns the storage of the store's own folder.
    #[must_use]
    pub fn storage(&self) -> &dyn Storage {
        self.world.storage.as_ref()
    }

    pub(crate) fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// Returns the log, for reading.
    #[must_use]
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Returns the map from log addresses to arenas.
    #[must_use]
    pub fn map(&self) -> ArenaMap {
        self.config.arena_map
    }

    pub(crate) fn namer(&self) -> &Namer {
        &self.namer
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Returns the id of the key that opened the store; `None` if the store is not encrypted.
    #[must_use]
    pub fn key_id(&self) -> Option<&str> {
        self.key_id.as_deref()
    }

    /// Returns the origin of what this key adds; `None` if the store is not encrypted.
    #[must_use]
    pub fn own_origin(&self) -> Option<Origin> {
        self.key_id().map(|key| Origin::new(self.role, key))
    }

    /// Computes the code that proves the origin of `message`. `None` if this key cannot: a
    /// write-only key proves its own origin only, and an early one not even that.
    #[must_use]
    pub fn origin_code(&self, origin: &Origin, message: &[&[u8]]) -> Option<[u8; 32]> {
        let is_provable = self.role.allows(Permission::Read) || self.own_origin().as_ref() == Some(origin);
        is_provable.then(|| self.log.keys().origin_code(&origin.holder(), message)).flatten()
    }

    /// Returns whether the store shows a trace of a write-only key: an arena that one has begun, or
    /// a key that can begin one. An arena or a key that is unreadable counts as a trace.
    #[must_use]
    pub fn knows_write_only_keys(&self) -> bool {
        let is_of_reader = |id: &ArenaId| self.arena(*id).is_ok_and(|arena| !arena.header().is_write_only());
        self.key_id.is_some()
            && !(keyring::all_can_read(self.storage())
                && self.log.arenas().is_ok_and(|arenas| arenas.iter().all(is_of_reader)))
    }

    /// Returns an arena's checked header and keys.
    ///
    /// # Errors
    /// [`ReadLogError`] when it cannot be opened.
    pub fn arena(&self, id: ArenaId) -> Result<Arc<OpenedArena>, ReadLogError> {
        self.directory.arena(id)
    }

    /// Returns the version of the last arena that can be opened. No arena of the store has a higher
    /// one.
    ///
    /// # Errors
    /// [`OpenStoreError::List`], and [`OpenStoreError::Read`] if a newer program wrote the arena.
    /// This program must then neither write to the store, nor take the catalog in the arenas before
    /// for the newest.
    pub(crate) fn newest_version(&self) -> Result<ArenaVersion, OpenStoreError> {
        for id in self.log.arenas()?.into_iter().rev() {
            match self.directory.arena(id) {
                Ok(arena) => return Ok(arena.header().version()),
                Err(error) if error.is_newer() => return Err(error.into()),
                Err(_) => {}
            }
        }
        Ok(ArenaVersion::default())
    }

    /// Returns the parity files.
    #[must_use]
    pub fn parity(&self) -> ParityFiles<'_> {
        ParityFiles::new(&self.log, self.storage())
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }
}
