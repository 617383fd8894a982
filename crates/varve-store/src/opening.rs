//! Making a store, and opening one: after a crash too, which needs no other step.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex};

use varve_block::{BlockType, LogAddress};
use varve_index::{MemoryIndex, ScoreIndex};
use varve_log::{
    AppendError, ArenaId, ArenaState, DirectoryPage, Granule, Log, LogConfig, OpenLogError, OpenedArena,
    PageRow, ReadLogError, RecoverError, Recovered, Seal, Seals,
};
use varve_world::{FileLock, FileName, LockError, World};

use crate::candidate_counts::CandidateCounters;
use crate::checkpoint::{self, Coverage, CoveredPart, LoadCheckpointError};
use crate::config::{CompareMode, ConfigError, Encryption, IndexKind, StoreConfig};
use crate::directory::Directory;
use crate::disk_index;
use crate::follow::Followed;
use crate::frames::FrameCache;
use crate::keyring::{self, KeyError, Keyring, PassphraseCost, Secret};
use crate::log_end::last_ledger;
use crate::lookup::Lookups;
use crate::lost::LostBlocks;
use crate::naming::Namer;
use crate::scans::Scans;
use crate::sealed::NotSealed;
use crate::store::{Admission, Store, goal_of_clumps};
use crate::unlock::unlocked;
use crate::withheld::Withheld;

pub(crate) const CONFIG_BYTES_MAX: u64 = 64 << 10;

/// The page that every store keeps beside its data.
pub(crate) const FORMAT_PAGE: &str = include_str!("../FORMAT.md");

/// What a creation leaves in the store's folder if it is not finished.
const LEFT_BY_CREATION: [&str; 3] = ["FORMAT.md", "FORMAT.md.new", "config.toml.new"];

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
    /// There is a file, and no folder.
    #[error("this is not a store: there is a file where its folder should be")]
    NotAFolder,
    /// There is a log, and no `config.toml`.
    #[error("this store has lost its config.toml")]
    ConfigLost,
    /// `config.toml` could not be read.
    #[error("cannot read config.toml")]
    Storage(#[source] io::Error),
    /// The store's own files may not survive power loss.
    #[error("cannot make config.toml durable")]
    Durable(#[source] io::Error),
    /// `config.toml` makes no sense, or is newer than this program.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// `config.toml` says that nothing is encrypted, and something else says that it is.
    #[error(
        "config.toml says that the store is not encrypted, and {found} says that it is: config.toml was changed"
    )]
    Downgraded {
        /// The file that says so.
        found: FileName,
    },
    /// The keys do not open.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// Somebody else writes to it.
    #[error("the store is being written: it is in use by {holder}")]
    Locked {
        /// Who.
        holder: String,
    },
    /// Whether somebody else writes to it could not be found out.
    #[error("the store cannot be written")]
    Lock(#[source] LockError),
    /// The arenas could not be listed.
    #[error(transparent)]
    List(#[from] OpenLogError),
    /// What a crash has left could not be read.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// An arena could not be read for a reason that may pass.
    #[error("the log cannot be read")]
    Read(#[from] ReadLogError),
    /// A saved index that does not hold any more could not be removed.
    #[error("cannot remove {file}, which does not hold any more")]
    Hint {
        /// Which file.
        file: FileName,
        /// What went wrong below.
        source: io::Error,
    },
    /// The log could not be continued.
    #[error("the log cannot be continued")]
    Append(#[from] AppendError),
}

impl From<LockError> for OpenError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Held { holder } => Self::Locked { holder },
            error @ LockError::Storage { .. } => Self::Lock(error),
        }
    }
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
        // An earlier attempt that a crash has ended is begun again. Where there is a log there was a store, and its keys
        // must not be replaced.
        let has_log = !storage.list(ArenaId::FOLDER).map_err(failed(&config_file))?.is_empty();
        let is_leftover = |file: &FileName| !has_log && LEFT_BY_CREATION.contains(&file.as_str());
        if let Some(stranger) = listed.into_iter().find(|file| !is_leftover(file)) {
            return Err(CreateError::NotEmpty { name: stranger });
        }
        // The keys of such an attempt open nothing; one of them must not be taken for a key of this store.
        for key in storage.list(keyring::FOLDER).map_err(failed(&config_file))? {
            storage.remove(&key).map_err(failed(&key))?;
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
    /// [`OpenError::NotAStore`], [`OpenError::NotAFolder`], [`OpenError::ConfigLost`], [`OpenError::Config`] or [`OpenError::Storage`].
    pub fn read_config(world: &World) -> Result<StoreConfig, OpenError> {
        let read = || match world.storage.read_whole(&name("config.toml"), CONFIG_BYTES_MAX) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(OpenError::NotAFolder),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(no_config(world)),
            Err(error) => Err(OpenError::Storage(error)),
        };
        let text = read()?;
        // Read twice: it has no code of its own, and with another identity a plain store would seem to be empty.
        if read()? != text {
            return Err(OpenError::Storage(io::Error::other(
                "it reads differently from one time to the next",
            )));
        }
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
        let (keys, role, own) = unlocked(world.storage.as_ref(), &config, secret)?;
        let lock = match access {
            Access::Read => None,
            Access::Write { holder } => Some(world.storage.lock(&name("lock"), holder)?),
        };
        if lock.is_some() {
            // Who made the store may have been stopped before it was durable: nothing may be promised without it.
            world.storage.sync_folder("").map_err(OpenError::Durable)?;
        }
        let log_config =
            LogConfig { store_id: config.id, map: config.arena_map, score_bytes: config.score_bytes() };
        let namer = Namer::new(config.score, config.compare, keys.clone());
        let log = Arc::new(Log::new(Arc::clone(&world.storage), keys, log_config));
        let clump_bytes = goal_of_clumps(&config);
        let scanned = Arc::clone(&log);
        let mut scans = Scans::new(&scanned);
        let session =
            lock.is_some().then(|| disk_index::session(&world)).transpose().map_err(OpenError::Storage)?;
        let (index, coverage) = load_index(&world, &config, &log, &mut scans, session);
        let is_reader = access == Access::Read;
        let has_no_index = is_reader && config.compare == CompareMode::Value && coverage.is_nothing();
        let mut store = Self {
            world,
            config,
            namer,
            directory: Directory::new(Arc::clone(&log)),
            log,
            frames: FrameCache::new(),
            read_in_pieces: AtomicBool::new(false),
            lost: LostBlocks::default(),
            index,
            has_no_index,
            lookups: Lookups::default(),
            candidate_counters: CandidateCounters::default(),
            admission: Mutex::new(Admission::new(clump_bytes, coverage.catalogs.clone())),
            drained: Condvar::new(),
            writer: None,
            unsaved_blocks: AtomicU64::new(0),
            role,
            own,
            believed: Mutex::new(coverage.sealed.clone()),
            followed: Mutex::default(),
            uncertain_catalogs: Vec::new(),
            is_end_lost: AtomicBool::new(false),
            withheld: Withheld::default(),
        };
        store.load_lost();
        store.catch_up(coverage, lock, &mut scans, progress)?;
        store.look_for_end();
        Ok(store)
    }

    /// Reads what the log has beyond the checkpoint, and takes the log's end if the store is to be written.
    fn catch_up(
        &mut self,
        mut coverage: Coverage,
        lock: Option<Box<dyn FileLock>>,
        scans: &mut Scans<'_>,
        progress: &mut dyn FnMut(RebuildProgress),
    ) -> Result<(), OpenError> {
        if lock.is_some() {
            self.log.remove_never_begun()?;
        }
        let ids = self.log.arenas()?;
        let mut to_read: Vec<_> = ids.iter().copied().filter(|id| !coverage.sealed.contains(*id)).collect();
        if self.has_no_index {
            to_read.reverse();
        }
        let NotSealed { unsealed, is_damaged } =
            self.read_sealed(&to_read, &coverage.part, &mut coverage.sealed, progress)?;
        match lock {
            None => {
                self.followed = Mutex::new(Followed::new(&coverage.sealed));
                self.read_unsealed(unsealed, &coverage.part, scans)?;
            }
            Some(lock) => {
                self.take_log_end(&ids, (unsealed, is_damaged), coverage, scans, lock)?;
            }
        }
        self.judge_withheld();
        Ok(())
    }

    /// Reads the pages of arenas without a seal, and leaves the arenas as they are.
    pub(crate) fn read_unsealed(
        &mut self,
        unsealed: Vec<Arc<OpenedArena>>,
        covered: &BTreeMap<ArenaId, CoveredPart>,
        scans: &mut Scans<'_>,
    ) -> Result<(), OpenError> {
        for arena in unsealed {
            let mut found = scans.take(&arena)?;
            self.withheld.note_scan(arena.id(), &found);
            self.leave_out_lost_roots(&arena, &mut found)?;
            self.take_in(&arena, &found, covered.get(&arena.id()).map(|part| part.end))?;
        }
        Ok(())
    }

    /// A power cut may have kept a page and lost the catalog's root that it names. A writer cuts such a page off; a reader does as
    /// if it were not there, and finds the root before it. All that a root leads to was durable before it was written.
    pub(crate) fn leave_out_lost_roots(
        &self,
        arena: &OpenedArena,
        found: &mut Recovered,
    ) -> Result<(), ReadLogError> {
        if !self.log.keys().can_read() {
            return Ok(());
        }
        let durable = found.durable();
        let mut window = self.log.window(arena, 0);
        let mut failed = None;
        found.pages.retain(|(row, page)| {
            let root = page.last_of_type(BlockType::CATALOG).filter(|root| root.granule >= durable);
            match root.map(|root| window.clump(root.granule)) {
                // What the disk does not give was not lost in a power cut.
                Some(Err(error)) if error.is_damage() && !error.is_unreadable() => {
                    tracing::warn!(arena = %arena.id(), offset = row.granule.byte_offset(), "a page outlived its root");
                    false
                }
                Some(Err(error)) if !error.is_damage() => {
                    failed.get_or_insert(error);
                    true
                }
                _ => true,
            }
        });
        failed.map_or(Ok(()), Err)
    }

    pub(crate) fn take_in(
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

    /// Takes what a page names into the index, while the log is being read.
    pub(crate) fn insert_page(&self, arena: ArenaId, page: &DirectoryPage) -> Result<(), AppendError> {
        self.insert_names(arena, page)?;
        self.note_catalog(arena, page, false);
        // How far the log has been read is not known here: what is written now is saved later.
        if let Some(index) = self.index.disk().filter(|index| index.is_due()) {
            index.begin(None);
        }
        Ok(())
    }

    /// Takes what a page names into the index.
    pub(crate) fn insert_names(&self, arena: ArenaId, page: &DirectoryPage) -> Result<(), AppendError> {
        let map = self.log.config().map;
        if !self.has_no_index {
            let entries = page.blocks().map(|block| {
                let address = map.address(arena, block.granule).ok_or(AppendError::LogFull)?;
                Ok((self.namer.fingerprint(&block.name), address))
            });
            let entries = entries.collect::<Result<Vec<_>, AppendError>>()?;
            let inserted = self.index.insert_all(&entries).map_err(|_| AppendError::LogFull)?;
            self.unsaved_blocks.fetch_add(inserted, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes note of the catalog's root that a page names, if it names one. `is_appended`: by this session, behind all that there is.
    pub(crate) fn note_catalog(&self, arena: ArenaId, page: &DirectoryPage, is_appended: bool) {
        let Some(root) = page.last_of_type(BlockType::CATALOG) else { return };
        let Some(address) = self.log.config().map.address(arena, root.granule) else { return };
        let is_final = self.is_final(address);
        let mut admission = self.admission();
        if is_final && is_appended {
            // Not even what lies behind it counts: only an index knows that, which was saved before the end of the log was lost.
            admission.catalogs.clear();
        }
        admission.catalogs.insert(address, root.name);
        // Arenas without a seal are taken in last, and others may lie behind them.
        let is_behind_others = admission.catalogs.keys().next_back() == Some(&address);
        if is_final || !is_behind_others {
            let newest = admission.catalogs.keys().rev().copied().find(|place| self.is_final(*place));
            admission.catalogs.retain(|place, _| newest.is_none_or(|newest| *place >= newest));
        }
    }

    /// Whether the root of a catalog is that of somebody who could read the one before it. Of any other nobody knows whether it leads to all
    /// that was there.
    pub(crate) fn is_final(&self, root: LogAddress) -> bool {
        let (arena, _) = self.log.config().map.locate(root);
        self.directory.arena(arena).is_ok_and(|arena| !arena.header().is_write_only())
    }
}

/// What a folder without `config.toml` is. One with the beginning of a `config.toml` is no store yet.
fn no_config(world: &World) -> OpenError {
    let is_any = |folder: &str| world.storage.list(folder).is_ok_and(|files| !files.is_empty());
    let is_begun = world.storage.length(&name("config.toml").unfinished()).is_ok();
    if is_any(ArenaId::FOLDER) && !is_begun { OpenError::ConfigLost } else { OpenError::NotAStore }
}

/// The index as it was saved last, and what part of the log is in it.
fn load_index(
    world: &World,
    config: &StoreConfig,
    log: &Log,
    scans: &mut Scans<'_>,
    session: Option<[u8; 16]>,
) -> (ScoreIndex, Coverage) {
    let loaded = match config.index {
        IndexKind::Memory => {
            checkpoint::load(world.storage.as_ref(), &checkpoint::checkpoint_key(log.keys()))
                .map(|(index, coverage)| (ScoreIndex::from(index), coverage))
        }
        IndexKind::Disk => disk_index::load(world, config, log.keys(), session),
    };
    let loaded = loaded.and_then(|loaded| {
        if covers(log, scans, &loaded.1) { Ok(loaded) } else { Err(LoadCheckpointError::Stale) }
    });
    loaded.unwrap_or_else(|error| {
        if !error.is_missing() {
            tracing::info!(%error, "the index is read from the log's directories");
        }
        let index = match config.index {
            IndexKind::Memory => MemoryIndex::new().into(),
            IndexKind::Disk => disk_index::empty(world, config, log.keys(), session),
        };
        (index, Coverage::default())
    })
}

/// Whether the log still has what a checkpoint covers.
fn covers(log: &Log, scans: &mut Scans<'_>, coverage: &Coverage) -> bool {
    let has_part = coverage.part.iter().all(|(id, part)| {
        last_page_before(log, scans, *id, part.end).is_ok_and(|code| code == part.last_page)
    });
    has_part && has_seals(log, scans, &coverage.sealed)
}

/// Whether these are the seals that arenas have. Those of a checkpoint that somebody has put back are not, if a repair has written an arena
/// anew since: the newest ledger tells, and then the arenas are asked.
fn has_seals(log: &Log, scans: &mut Scans<'_>, known: &Seals) -> bool {
    if known.is_empty() {
        return true;
    }
    let (mut seals, mut ledger) = (known.clone(), None);
    for id in log.arenas().unwrap_or_default().into_iter().rev() {
        if ledger.is_some() && known.contains(id) {
            continue;
        }
        let Ok(arena) = log.open_arena(id) else { continue };
        ledger = ledger.or_else(|| last_ledger(log, &arena, scans).ok()?.ledger);
        if !known.contains(id)
            && let Some(seal) = seal_of(log, &arena)
        {
            seals.insert(id, seal);
        }
    }
    let is_vouched_for = ledger.is_none_or(|ledger| seals.ledger(log.keys(), ledger.arena_count) == ledger);
    // What is gone, or cannot be read, is no fault of the checkpoint.
    let now = |id| seal_of(log, &log.open_arena(id).ok()?);
    is_vouched_for || known.iter().all(|(id, known)| now(id).is_none_or(|seal| seal == *known))
}

fn seal_of(log: &Log, arena: &OpenedArena) -> Option<Seal> {
    match log.state(arena).ok()? {
        ArenaState::Sealed { footer, .. } => Some(Seal::of(arena.header(), &footer)),
        ArenaState::Unsealed => None,
    }
}

/// The code of the last page before a place in an arena; zeros if there is none.
fn last_page_before(
    log: &Log,
    scans: &mut Scans<'_>,
    id: ArenaId,
    end: Granule,
) -> Result<[u8; 16], ReadLogError> {
    let arena = log.open_arena(id)?;
    let is_before = |row: &&PageRow| row.granule < end;
    let last = match log.state(&arena)? {
        ArenaState::Sealed { pages, .. } => pages.iter().rfind(is_before).map(|row| row.code),
        ArenaState::Unsealed => {
            scans.of(&arena)?.pages.iter().map(|(row, _)| row).rfind(is_before).map(|row| row.code)
        }
    };
    Ok(last.unwrap_or_default())
}
