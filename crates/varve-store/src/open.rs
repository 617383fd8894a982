//! Making a store, and opening one: after a crash too, which needs no other step.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};

use varve_block::{BlockName, BlockType, LogAddress};
use varve_index::MemoryIndex;
use varve_log::{
    AppendError, Appender, ArenaId, ArenaState, DirectoryPage, Granule, Ledger, LockedMemory, Log, LogConfig,
    LogKeys, OpenLogError, OpenedArena, ReadLogError, RecoverError, Recovered, Seal, Seals,
};
use varve_world::{FileLock, FileName, LockError, World};

use crate::checkpoint::{self, Coverage, CoveredPart, LoadCheckpointError};
use crate::config::{ConfigError, Encryption, StoreConfig};
use crate::directory::Directory;
use crate::get::clump_cache;
use crate::keyring::{self, KeyError, Keyring, PassphraseCost, Secret};
use crate::naming::Namer;
use crate::role::Role;
use crate::store::{Admission, Durable, Store, Writer};

const CONFIG_BYTES_MAX: u64 = 64 << 10;
/// How many arenas a crash may have left without a seal: the open one and those that waited.
const UNSEALED_MAX: usize = 4;

/// The page that every store keeps beside its data.
const FORMAT_PAGE: &str = include_str!("../FORMAT.md");

/// What a store is opened for.
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

/// How far the reading of directories has come, while an index is made from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebuildProgress {
    /// Arenas read.
    pub arenas_done: u64,
    /// Arenas to be read.
    pub arenas_total: u64,
}

/// Why a store was not made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// There is a store already.
    #[error("there is a store already")]
    Exists,
    /// There is something else.
    #[error("the folder is not empty: it holds {name}")]
    NotEmpty {
        /// Something in it.
        name: FileName,
    },
    /// Its keys could not be made.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// Its files could not be written.
    #[error("cannot write {file}")]
    Storage {
        /// Which file.
        file: FileName,
        /// What went wrong below.
        source: io::Error,
    },
}

/// Why a store was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no `config.toml`.
    #[error("this is not a store: it has no config.toml")]
    NotAStore,
    /// `config.toml` could not be read.
    #[error("cannot read config.toml")]
    Storage(#[source] io::Error),
    /// `config.toml` makes no sense, or is newer than this program.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The keys do not open.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// Somebody else writes to it.
    #[error("the store is being written: {0}")]
    Locked(#[from] LockError),
    /// The arenas could not be listed.
    #[error(transparent)]
    List(#[from] OpenLogError),
    /// What a crash has left could not be read.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// An arena could not be read for a reason that may pass.
    #[error("the log cannot be read")]
    Read(#[from] ReadLogError),
    /// The log could not be continued.
    #[error("the log cannot be continued")]
    Append(#[from] AppendError),
}

fn name(text: &str) -> FileName {
    FileName::new(text).expect("a plain name")
}

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
        let storage = world.storage.as_ref();
        let config_file = name("config.toml");
        let failed = |file: &FileName| {
            let file = file.clone();
            move |source| CreateError::Storage { file, source }
        };
        let listed = storage.list("").map_err(failed(&config_file))?;
        if listed.contains(&config_file) {
            return Err(CreateError::Exists);
        }
        if let Some(stranger) = listed.into_iter().next() {
            return Err(CreateError::NotEmpty { name: stranger });
        }
        if config.encryption == Encryption::Aes256Gcm {
            let secret = secret.ok_or(KeyError::Missing)?;
            Keyring::new(world, config.clone()).create(secret, cost)?;
        }
        let page = name("FORMAT.md");
        storage.replace(&page, FORMAT_PAGE.as_bytes()).map_err(failed(&page))?;
        // Last: a folder without it is not a store, and a crash before this leaves none.
        storage.replace(&config_file, config.to_text().as_bytes()).map_err(failed(&config_file))
    }

    /// What was chosen when the store was made: readable without a key.
    ///
    /// # Errors
    /// [`OpenError::NotAStore`], [`OpenError::Config`] or [`OpenError::Storage`].
    pub fn read_config(world: &World) -> Result<StoreConfig, OpenError> {
        let text = match world.storage.read_whole(&name("config.toml"), CONFIG_BYTES_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(OpenError::NotAStore),
            Err(error) => return Err(OpenError::Storage(error)),
        };
        Ok(StoreConfig::from_text(&String::from_utf8_lossy(&text))?)
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
        let config = Self::read_config(&world)?;
        let (keys, role, own) = match config.encryption {
            Encryption::Aes256Gcm => keyring::open(world.storage.as_ref(), &config, secret)?.into_parts(),
            Encryption::None => (LogKeys::plain(&config.binding()), Role::Full, LockedMemory::default()),
        };
        let lock = match access {
            Access::Read => None,
            Access::Write { holder } => Some(world.storage.lock(&name("lock"), holder)?),
        };
        let log_config =
            LogConfig { store_id: config.id, map: config.arena_map, score_bytes: config.score_bytes() };
        let namer = Namer::new(config.score, keys.clone());
        let log = Arc::new(Log::new(Arc::clone(&world.storage), keys, log_config));
        let clump_bytes = config.clump_bytes;
        let (index, coverage) = load_checkpoint(&world, &log);
        let mut store = Self {
            world,
            config,
            namer,
            directory: Directory::new(Arc::clone(&log)),
            log,
            clumps: clump_cache(),
            index: RwLock::new(index),
            admission: Mutex::new(Admission::new(clump_bytes, coverage.catalogs.clone())),
            drained: Condvar::new(),
            writer: None,
            unsaved_blocks: AtomicU64::new(0),
            role,
            own,
            uncertain_catalogs: Vec::new(),
        };
        store.catch_up(coverage, lock, progress)?;
        Ok(store)
    }

    /// Reads what the log has beyond the checkpoint, and takes the log's end if the store is to be written.
    fn catch_up(
        &mut self,
        mut coverage: Coverage,
        lock: Option<Box<dyn FileLock>>,
        progress: &mut dyn FnMut(RebuildProgress),
    ) -> Result<(), OpenError> {
        if lock.is_some() {
            self.log.remove_never_begun()?;
        }
        let ids = self.log.arenas()?;
        let to_read: Vec<_> = ids.iter().copied().filter(|id| !coverage.sealed.contains(*id)).collect();
        let arenas_total = to_read.len() as u64;
        let mut unsealed = Vec::new();
        for (arenas_done, id) in (0_u64..).zip(to_read) {
            progress(RebuildProgress { arenas_done, arenas_total });
            let from = coverage.part.get(&id).map(|part| part.end);
            match self.read_arena(id, from, &mut coverage.sealed) {
                Ok(None) => {}
                Ok(Some(arena)) => unsealed.push(arena),
                Err(error) if error.is_damage() => {
                    tracing::error!(arena = %id, %error, "an arena is damaged; what else there is can be read");
                }
                Err(error) => return Err(error.into()),
            }
        }
        progress(RebuildProgress { arenas_done: arenas_total, arenas_total });
        match lock {
            None => self.read_unsealed(unsealed, &coverage.part)?,
            Some(lock) => self.take_log_end(&ids, unsealed, coverage, lock)?,
        }
        Ok(())
    }

    /// Reads an arena's pages into the index, if it has a seal; else hands it back.
    fn read_arena(
        &self,
        id: ArenaId,
        from: Option<Granule>,
        seals: &mut Seals,
    ) -> Result<Option<Arc<OpenedArena>>, ReadLogError> {
        let arena = self.directory.arena(id)?;
        let ArenaState::Sealed { footer, pages } = self.log.state(&arena)? else { return Ok(Some(arena)) };
        seals.insert(id, Seal::of(arena.header(), &footer));
        for row in pages.iter().filter(|row| from.is_none_or(|from| row.granule >= from)) {
            match self.log.read_page(&arena, row) {
                Ok(page) => self.insert_page(id, &page).unwrap_or_else(|error| tracing::error!(%error)),
                Err(error) if error.is_damage() => tracing::error!(%error, "a directory page is damaged"),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Reads the pages of arenas without a seal, and leaves the arenas as they are.
    fn read_unsealed(
        &self,
        unsealed: Vec<Arc<OpenedArena>>,
        covered: &BTreeMap<ArenaId, CoveredPart>,
    ) -> Result<(), OpenError> {
        for arena in unsealed {
            let found = self.log.scan(&arena)?;
            self.take_in(&arena, &found, covered.get(&arena.id()).map(|part| part.end))?;
        }
        Ok(())
    }

    fn take_in(
        &self,
        arena: &OpenedArena,
        found: &Recovered,
        covered: Option<Granule>,
    ) -> Result<(), AppendError> {
        for (row, page) in &found.pages {
            self.directory.note_unsealed(arena.id(), *row);
            if covered.is_none_or(|covered| row.granule >= covered) {
                self.insert_page(arena.id(), page)?;
            }
        }
        Ok(())
    }

    /// Reads what is surely good in an arena without a seal, for a writer who cannot read clumps and so cannot recover it.
    /// Hands it back if that is all of it: then it needs nothing but its seal. Else it is left as it is, for somebody who can.
    fn take_in_proven(
        &mut self,
        arena: &OpenedArena,
        covered: Option<Granule>,
    ) -> Result<Option<Recovered>, OpenError> {
        let proven = self.log.prove(arena)?;
        let is_whole = proven.is_whole();
        self.take_in(arena, &proven.proven, covered)?;
        if !is_whole {
            tracing::info!(arena = %arena.id(), "an arena that a crash has left waits for a key that can read it");
        }
        for (_, page) in &proven.unproven {
            if let Some(root) = page.last_of_type(BlockType::CATALOG) {
                let address = self.log.config().map.address(arena.id(), root.granule);
                self.uncertain_catalogs.extend(address.map(|address| (address, root.name)));
            }
        }
        Ok(Some(proven.proven).filter(|_| is_whole))
    }

    /// Recovers the arenas that a crash may have left without a seal, and goes on with the last one.
    fn take_log_end(
        &mut self,
        ids: &[ArenaId],
        unsealed: Vec<Arc<OpenedArena>>,
        coverage: Coverage,
        lock: Box<dyn FileLock>,
    ) -> Result<(), OpenError> {
        // If every seal that the newest page's ledger counts is there, an arena without one never had it. Else only the last
        // arenas can lack it for lack of time; an earlier one has lost it: its pages are read, and it is left for `verify`
        // to report.
        let sealed_count = self.newest_ledger(ids).map_or(0, |ledger| ledger.arena_count);
        let is_any_lost = sealed_count > coverage.sealed.len() as u64;
        let mut good = Vec::new();
        for arena in unsealed {
            let place = ids.partition_point(|id| *id < arena.id());
            let is_tail = place + UNSEALED_MAX >= ids.len() && place as u64 >= sealed_count;
            let is_lost = is_any_lost && !is_tail;
            let covered = coverage.part.get(&arena.id()).map(|part| part.end);
            if is_lost {
                tracing::error!(arena = %arena.id(), "an arena has lost its seal");
            }
            let found = if !self.log.keys().can_read() {
                self.take_in_proven(&arena, covered)?
            } else if is_lost {
                self.read_unsealed(vec![Arc::clone(&arena)], &coverage.part)?;
                None
            } else {
                let found = self.log.recover(&arena)?;
                self.take_in(&arena, &found, covered)?;
                Some(found).filter(|found| found.gap.is_none())
            };
            if let Some(found) = found.filter(|_| !is_lost) {
                // A second opening, since the writer's arena is the writer's own.
                good.push((self.log.open_arena(arena.id())?, found));
            }
        }
        let next = ids.last().map_or(ArenaId(0), |last| ArenaId(last.0 + 1));
        let random = Arc::clone(&self.world.random);
        let appender = Appender::new(Arc::clone(&self.log), random, coverage.sealed, good, next)?;
        self.writer = Some(Writer {
            appender: Mutex::new(appender),
            sync_gate: Mutex::new(Durable::default()),
            _lock: lock,
        });
        Ok(())
    }

    /// The ledger that holds: that of the last page in the last arena that has one.
    pub(crate) fn newest_ledger(&self, ids: &[ArenaId]) -> Option<Ledger> {
        ids.iter().rev().find_map(|id| self.last_ledger(*id).ok().flatten())
    }

    fn last_ledger(&self, id: ArenaId) -> Result<Option<Ledger>, ReadLogError> {
        let arena = self.directory.arena(id)?;
        let last = match self.log.state(&arena)? {
            ArenaState::Sealed { pages, .. } => match pages.last() {
                Some(row) => Some(self.log.read_page(&arena, row)?),
                None => None,
            },
            ArenaState::Unsealed => self.log.scan(&arena)?.pages.pop().map(|(_, page)| page),
        };
        Ok(last.map(|page| page.ledger()))
    }

    /// Takes what a page names into the index.
    pub(crate) fn insert_page(&self, arena: ArenaId, page: &DirectoryPage) -> Result<(), AppendError> {
        let map = self.log.config().map;
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        let mut inserted = 0;
        for block in page.blocks() {
            let address = map.address(arena, block.granule).ok_or(AppendError::LogFull)?;
            let fingerprint = self.namer.fingerprint(&block.name);
            let new = index.insert(fingerprint, address).map_err(|_| AppendError::LogFull)?;
            inserted += u64::from(new);
        }
        drop(index);
        self.unsaved_blocks.fetch_add(inserted, std::sync::atomic::Ordering::Relaxed);
        if let Some(root) = page.last_of_type(BlockType::CATALOG)
            && let Some(address) = map.address(arena, root.granule)
        {
            // Of a root that is not whoever's who can read, nobody knows whether it leads to all that was there before.
            let is_final = self.directory.arena(arena).is_ok_and(|arena| !arena.header().is_write_only());
            self.note_catalog(address, root.name, is_final);
        }
        Ok(())
    }

    fn note_catalog(&self, address: LogAddress, name: BlockName, is_final: bool) {
        let mut admission = self.admission();
        admission.catalogs.insert(address, name);
        if is_final {
            admission.catalogs = admission.catalogs.split_off(&address);
        }
    }
}

fn load_checkpoint(world: &World, log: &Log) -> (MemoryIndex, Coverage) {
    let loaded = checkpoint::load(world.storage.as_ref(), &checkpoint::checkpoint_key(log.keys()))
        .and_then(|loaded| if covers(log, &loaded.1) { Ok(loaded) } else { Err(LoadCheckpointError::Stale) });
    match loaded {
        Ok(loaded) => loaded,
        Err(LoadCheckpointError::Missing) => (MemoryIndex::new(), Coverage::default()),
        Err(error) => {
            tracing::info!(%error, "the index is read from the log's directories");
            (MemoryIndex::new(), Coverage::default())
        }
    }
}

/// Whether the log still has what a checkpoint covers.
fn covers(log: &Log, coverage: &Coverage) -> bool {
    coverage
        .part
        .iter()
        .all(|(id, part)| last_page_before(log, *id, part.end).is_ok_and(|code| code == part.last_page))
}

/// The code of the last page before a place in an arena; zeros if there is none.
fn last_page_before(log: &Log, id: ArenaId, end: Granule) -> Result<[u8; 16], ReadLogError> {
    let arena = log.open_arena(id)?;
    let rows = match log.state(&arena)? {
        ArenaState::Sealed { pages, .. } => pages,
        ArenaState::Unsealed => log.scan(&arena)?.pages.into_iter().map(|(row, _)| row).collect(),
    };
    Ok(rows.iter().rfind(|row| row.granule < end).map(|row| row.code).unwrap_or_default())
}
