//! Making a store, and opening one: after a crash too, which needs no other step.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};

use varve_block::{BlockName, BlockType, LogAddress};
use varve_index::MemoryIndex;
use varve_log::{
    AppendError, Appender, ArenaId, ArenaState, DirectoryPage, Granule, Ledger, LockedMemory, Log, LogConfig,
    LogKeys, OpenLogError, OpenedArena, PageRow, Proven, ReadLogError, RecoverError, Recovered, Seal, Seals,
};
use varve_world::{FileLock, FileName, LockError, World};

use crate::checkpoint::{self, Coverage, CoveredPart, LoadCheckpointError};
use crate::config::{ConfigError, Encryption, StoreConfig};
use crate::directory::Directory;
use crate::get::clump_cache;
use crate::keyring::{self, KeyError, Keyring, PassphraseCost, Secret};
use crate::lost::LostBlocks;
use crate::naming::Namer;
use crate::parity::ParityDue;
use crate::role::Role;
use crate::scans::Scans;
use crate::store::{Admission, Durable, Store, Writer};

const CONFIG_BYTES_MAX: u64 = 64 << 10;
/// How many arenas a crash may have left without a seal: the open one and those that waited.
const UNSEALED_MAX: usize = 4;

/// The page that every store keeps beside its data.
const FORMAT_PAGE: &str = include_str!("../FORMAT.md");

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
    /// `config.toml` could not be read.
    #[error("cannot read config.toml")]
    Storage(#[source] io::Error),
    /// The store's own files may not survive power loss.
    #[error("cannot make config.toml durable")]
    Durable(#[source] io::Error),
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
        // An earlier attempt that a crash has ended is begun again. Where there is a log there was a store, and its keys
        // must not be replaced.
        let has_log = !storage.list(ArenaId::FOLDER).map_err(failed(&config_file))?.is_empty();
        let is_leftover = |file: &FileName| !has_log && LEFT_BY_CREATION.contains(&file.as_str());
        if let Some(stranger) = listed.into_iter().find(|file| !is_leftover(file)) {
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
        let read = || match world.storage.read_whole(&name("config.toml"), CONFIG_BYTES_MAX) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(OpenError::NotAStore),
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
        let (keys, role, own) = match config.encryption {
            Encryption::Aes256Gcm => keyring::open(world.storage.as_ref(), &config, secret)?.into_parts(),
            Encryption::None => (LogKeys::plain(&config.binding()), Role::Full, LockedMemory::default()),
        };
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
        let namer = Namer::new(config.score, keys.clone());
        let log = Arc::new(Log::new(Arc::clone(&world.storage), keys, log_config));
        let clump_bytes = config.clump_bytes;
        let scanned = Arc::clone(&log);
        let mut scans = Scans::new(&scanned);
        let (index, coverage) = load_checkpoint(&world, &log, &mut scans);
        let mut store = Self {
            world,
            config,
            namer,
            directory: Directory::new(Arc::clone(&log)),
            log,
            clumps: clump_cache(),
            lost: LostBlocks::default(),
            index: RwLock::new(index),
            admission: Mutex::new(Admission::new(clump_bytes, coverage.catalogs.clone())),
            drained: Condvar::new(),
            writer: None,
            unsaved_blocks: AtomicU64::new(0),
            role,
            own,
            uncertain_catalogs: Vec::new(),
        };
        store.load_lost();
        store.catch_up(coverage, lock, &mut scans, progress)?;
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
        let to_read: Vec<_> = ids.iter().copied().filter(|id| !coverage.sealed.contains(*id)).collect();
        let arenas_total = to_read.len() as u64;
        let (mut unsealed, mut is_damaged) = (Vec::new(), false);
        for (arenas_done, id) in (0_u64..).zip(to_read) {
            progress(RebuildProgress { arenas_done, arenas_total });
            let from = coverage.part.get(&id).map(|part| part.end);
            match self.read_arena(id, from, &mut coverage.sealed) {
                Ok(None) => {}
                Ok(Some(arena)) => unsealed.push(arena),
                Err(error) if error.is_damage() => {
                    tracing::error!(arena = %id, %error, "an arena is damaged; what else there is can be read");
                    is_damaged = true;
                }
                Err(error) => return Err(error.into()),
            }
        }
        progress(RebuildProgress { arenas_done: arenas_total, arenas_total });
        match lock {
            None => self.read_unsealed(unsealed, &coverage.part, scans)?,
            Some(lock) => self.take_log_end(&ids, (unsealed, is_damaged), coverage, scans, lock)?,
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
        let (footer, pages) = match self.log.state(&arena) {
            Ok(ArenaState::Sealed { footer, pages }) => (footer, pages),
            // A seal that a power cut has torn, or one that is damaged: the pages are there all the same.
            Ok(ArenaState::Unsealed) | Err(ReadLogError::Seal { .. }) => return Ok(Some(arena)),
            Err(error) => return Err(error),
        };
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
        scans: &mut Scans<'_>,
    ) -> Result<(), OpenError> {
        for arena in unsealed {
            let mut found = scans.take(&arena)?;
            self.leave_out_lost_roots(&arena, &mut found)?;
            self.take_in(&arena, &found, covered.get(&arena.id()).map(|part| part.end))?;
        }
        Ok(())
    }

    /// A power cut may have kept a page and lost the catalog's root that it names. A writer cuts such a page off; a reader does as
    /// if it were not there, and finds the root before it. All that a root leads to was durable before it was written.
    fn leave_out_lost_roots(&self, arena: &OpenedArena, found: &mut Recovered) -> Result<(), ReadLogError> {
        if !self.log.keys().can_read() {
            return Ok(());
        }
        let durable = found.durable();
        let mut window = self.log.window(arena, 0);
        let mut failed = None;
        found.pages.retain(|(row, page)| {
            let root = page.last_of_type(BlockType::CATALOG).filter(|root| root.granule >= durable);
            match root.map(|root| window.clump(root.granule)) {
                Some(Err(error)) if error.is_damage() => {
                    tracing::warn!(arena = %arena.id(), offset = row.granule.byte_offset(), "a page outlived its root");
                    false
                }
                Some(Err(error)) => {
                    failed.get_or_insert(error);
                    true
                }
                _ => true,
            }
        });
        failed.map_or(Ok(()), Err)
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
        scans: &mut Scans<'_>,
    ) -> Result<Option<Recovered>, OpenError> {
        let proven = Proven::of(scans.take(arena)?);
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
        (unsealed, is_damaged): (Vec<Arc<OpenedArena>>, bool),
        mut coverage: Coverage,
        scans: &mut Scans<'_>,
        lock: Box<dyn FileLock>,
    ) -> Result<(), OpenError> {
        // If every seal that the newest page's ledger counts is there, an arena without one never had it. Else only the last
        // arenas can lack it for lack of time; an earlier one has lost it: its pages are read, and it is left for `verify`
        // to report.
        let mut counted = self.newest_ledger(ids, scans).map_or(0, |ledger| ledger.arena_count);
        if is_damaged || !self.newest_is_there().unwrap_or(false) {
            // The ledger that held may be gone: a place without a seal is taken for lost, not for that of a seal that never was.
            let after_last = coverage.sealed.places().last().map_or(0, |(place, ..)| place.saturating_add(1));
            self.secure_uncounted(ids, counted, &coverage.sealed)?;
            counted = counted.max(after_last);
        }
        let is_any_lost = coverage.sealed.missing_count(counted) > 0;
        self.secure_uncounted(ids, counted, &coverage.sealed)?;
        let mut good = self.take_off_parted_seals(ids, counted, &mut coverage.sealed)?;
        for arena in unsealed {
            let place = ids.partition_point(|id| *id < arena.id());
            let header = arena.header();
            // Parity is made only of sealed arenas: it tells of a seal that no ledger has covered yet.
            let was_sealed = self.was_sealed_by_parity(arena.id(), header.generation, header.code());
            let is_tail = place + UNSEALED_MAX >= ids.len() && place as u64 >= counted;
            let is_lost = was_sealed || (is_any_lost && !is_tail);
            let covered = coverage.part.get(&arena.id()).map(|part| part.end);
            if is_lost {
                tracing::error!(arena = %arena.id(), "an arena has lost its seal");
            }
            let found = if !self.log.keys().can_read() {
                self.take_in_proven(&arena, covered, scans)?
            } else if is_lost {
                self.read_unsealed(vec![Arc::clone(&arena)], &coverage.part, scans)?;
                None
            } else {
                let found = self.log.recover(&arena, scans.take(&arena)?)?;
                self.take_in(&arena, &found, covered)?;
                Some(found).filter(|found| found.gap.is_none())
            };
            if let Some(found) = found.filter(|_| !is_lost) {
                // A second opening, since the writer's arena is the writer's own.
                good.push((self.log.open_arena(arena.id())?, found));
            }
        }
        good.sort_by_key(|(arena, _)| arena.id());
        // An arena that has parity was there, though its file may be gone: its number is not given away.
        let last = ids.last().copied();
        let known = last.max(self.last_known_by_parity(last).map_err(|source| OpenLogError { source })?);
        let next = known.map_or(ArenaId(0), |last| ArenaId(last.0 + 1));
        let random = Arc::clone(&self.world.random);
        let appender = Appender::new(Arc::clone(&self.log), random, (coverage.sealed, counted), good, next)?;
        self.writer = Some(Writer {
            appender: Mutex::new(appender),
            sync_gate: Mutex::new(Durable::default()),
            parity: ParityDue::default(),
            _lock: lock,
        });
        Ok(())
    }

    /// Makes sure that seals which no page has counted survive: they may be such that can only be read for now.
    fn secure_uncounted(&self, ids: &[ArenaId], counted: u64, seals: &Seals) -> Result<(), RecoverError> {
        for (_, id, _) in seals.places().skip_while(|(place, ..)| *place < counted) {
            // If only a checkpoint knows it, its file is gone, which `verify` reports.
            if ids.binary_search(&id).is_ok() {
                self.log.write_anew(id, None)?;
            }
        }
        Ok(())
    }

    /// Takes off the seals that a power cut has parted from those that are counted, so that no place stays free, and hands back
    /// their arenas, to be sealed again.
    fn take_off_parted_seals(
        &self,
        ids: &[ArenaId],
        counted: u64,
        seals: &mut Seals,
    ) -> Result<Vec<(OpenedArena, Recovered)>, OpenError> {
        let free = seals.free_place(counted);
        let parted = seals.places().filter(|(place, ..)| *place >= free).map(|(_, id, _)| id);
        let parted: Vec<_> = parted.filter(|id| ids.binary_search(id).is_ok()).collect();
        let mut unsealed = Vec::new();
        for id in parted {
            let arena = self.log.open_arena(id)?;
            let found = self.log.take_off_seal(&arena)?;
            for (row, _) in &found.pages {
                self.directory.note_unsealed(id, *row);
            }
            seals.remove(id);
            unsealed.push((arena, found));
        }
        Ok(unsealed)
    }

    /// The ledger that holds: that of the last page in the last arena that has one.
    pub(crate) fn newest_ledger(&self, ids: &[ArenaId], scans: &mut Scans<'_>) -> Option<Ledger> {
        ids.iter().rev().find_map(|id| self.last_ledger(*id, scans).ok().flatten())
    }

    fn last_ledger(&self, id: ArenaId, scans: &mut Scans<'_>) -> Result<Option<Ledger>, ReadLogError> {
        let arena = self.directory.arena(id)?;
        Ok(match self.log.state(&arena)? {
            ArenaState::Sealed { pages, .. } => match pages.last() {
                Some(row) => Some(self.log.read_page(&arena, row)?.ledger()),
                None => None,
            },
            ArenaState::Unsealed => scans.of(&arena)?.pages.last().map(|(_, page)| page.ledger()),
        })
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

fn load_checkpoint(world: &World, log: &Log, scans: &mut Scans<'_>) -> (MemoryIndex, Coverage) {
    let loaded = checkpoint::load(world.storage.as_ref(), &checkpoint::checkpoint_key(log.keys())).and_then(
        |loaded| if covers(log, scans, &loaded.1) { Ok(loaded) } else { Err(LoadCheckpointError::Stale) },
    );
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
fn covers(log: &Log, scans: &mut Scans<'_>, coverage: &Coverage) -> bool {
    coverage.part.iter().all(|(id, part)| {
        last_page_before(log, scans, *id, part.end).is_ok_and(|code| code == part.last_page)
    })
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
