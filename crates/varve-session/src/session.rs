//! Opens stores for a command.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use varve_archive::Archive;
use varve_block::BlockStore;
use varve_remote::{Pace, Target, VentiStore};
use varve_store::{Encryption, Keyring, Secret, Store, StoreAccess, WithheldError, remove_stale_leases};
use varve_venti::Address;
use varve_world::{Clock, RealClock, Storage, World};

use crate::failure::{UsageError, WrongKey};
use crate::host::host_name;
use crate::moment;
use crate::notice::Notice;
use crate::replica_home::{self, History, ReplicaHome, ReplicaReads, Replicas};
use crate::roots_file::RootsFile;
use crate::secret::{KeyOptions, PromptCount, SecretFinder};
use crate::store_location::{self, StoreLocation, home_at};
use crate::target::{self, NamedBy, ReaderPatience, TargetPaces};
use crate::user_interface::UserInterface;
use crate::waiting;

/// The settings that the command line and the environment give.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    /// The path or URL of a store, a replica of it, or a Venti server; or the reason why none is
    /// known.
    pub store: Result<PathBuf, String>,
    pub key: KeyOptions,
    /// The time limit for waiting for another writer.
    pub wait: Duration,
    pub replica_reads: ReplicaReads,
    /// The cache folder for replicas, instead of the user's.
    pub cache: Option<PathBuf>,
    /// Size limit of the cache of each store.
    pub cache_bytes: u64,
    /// The file with the catalog roots of a Venti server, instead of the user's.
    pub roots: Option<PathBuf>,
    /// The most requests over HTTP in a second, of all targets together.
    pub requests_per_second: Option<NonZeroU32>,
}

/// A replica in which a store was opened in place.
pub struct ReadReplica {
    /// The replica, as it was listed, and its world.
    pub home: ReplicaHome,
    /// It is older than this machine has seen it, or another replica of its store.
    pub is_older: bool,
}

/// The store of a command, and everything that is needed to open it. A clone shares the typed
/// passphrase.
#[derive(Clone)]
pub struct CommandSession {
    store: Result<PathBuf, String>,
    keys: SecretFinder,
    replicas: Replicas,
    wait: Duration,
    roots: Option<PathBuf>,
    requests: Option<Arc<Pace>>,
    frontend: Arc<dyn UserInterface>,
}

impl CommandSession {
    /// Creates the session of a command. Nothing is opened yet.
    #[must_use]
    pub fn new(settings: SessionSettings, frontend: Arc<dyn UserInterface>) -> Self {
        let SessionSettings {
            store,
            key,
            wait,
            replica_reads,
            cache,
            cache_bytes,
            roots,
            requests_per_second,
        } = settings;
        let requests = requests_per_second.map(|rate| Arc::new(Pace::new(rate.get().into())));
        let keys = SecretFinder::new(key, Arc::clone(&frontend));
        let replicas =
            Replicas::new(replica_reads, cache, cache_bytes, requests.clone(), Arc::clone(&frontend));
        Self { store, keys, replicas, wait, roots, requests, frontend }
    }

    /// Returns the same session without any waiting for other writers.
    pub(crate) fn without_waiting(&self) -> Self {
        Self { wait: Duration::ZERO, ..self.clone() }
    }

    /// Returns the session of the source store of a copy. Its key may differ from that of the
    /// destination, and it may have none.
    ///
    /// # Errors
    /// When `path` names no store whose settings can be read.
    pub fn as_source(&self, path: &Path, key_file: Option<&Path>) -> Result<Self> {
        let source = Self { store: Ok(path.into()), keys: self.keys.of_source(), ..self.clone() };
        if let Some(key_file) = key_file {
            return Ok(Self { keys: source.keys.with_key_file(key_file), ..source });
        }
        let name = path.display().to_string();
        let world = match home_at(path)? {
            StoreLocation::Folder(path) => World::real(&path),
            StoreLocation::Replica(text) => source.replica(&text, NamedBy::User)?.world,
            // A Venti server needs no key.
            StoreLocation::Venti(_) => return Ok(source),
        };
        let config = Store::read_config(&world).with_context(|| format!("cannot open the store {name}"))?;
        if config.encryption == Encryption::None {
            // The given key belongs to the destination store.
            return Ok(Self { keys: source.keys.without_options(), ..source });
        }
        Ok(source)
    }

    pub(crate) fn notice(&self, notice: &Notice) {
        self.frontend.notice(notice);
    }
}

/// Location of the store.
impl CommandSession {
    /// Reports whether a store was named.
    #[must_use]
    pub fn names_store(&self) -> bool {
        self.store.is_ok()
    }

    /// Returns the path or URL that names the store.
    ///
    /// # Errors
    /// [`UsageError`] if none was given.
    pub fn store_path(&self) -> Result<PathBuf> {
        Ok(self.store.clone().map_err(UsageError)?)
    }

    /// Returns the location of the store: a folder, a replica, or a Venti server.
    ///
    /// # Errors
    /// [`UsageError`] if no store was named, or the name cannot be interpreted.
    pub fn home(&self) -> Result<StoreLocation> {
        home_at(&self.store_path()?)
    }

    /// Returns the store's folder, for operations that need a folder.
    ///
    /// # Errors
    /// When the name is that of a replica or a Venti server.
    pub fn store_folder(&self) -> Result<PathBuf> {
        self.home()?.folder()
    }

    /// Returns the folder for a new store.
    ///
    /// # Errors
    /// When the name is that of a replica, a URL or a Venti server.
    pub fn new_store_folder(&self) -> Result<PathBuf> {
        self.home()?.new_store_folder()
    }

    /// Returns the key file that the command line names.
    #[must_use]
    pub fn key_file(&self) -> Option<&Path> {
        self.keys.key_file()
    }

    /// Returns the file that the command line names for the catalog roots of a Venti server.
    #[must_use]
    pub fn roots_file(&self) -> Option<&Path> {
        self.roots.as_deref()
    }

    /// Returns the folder in which this machine keeps the cached data of replicas and the notes on
    /// them.
    #[must_use]
    pub fn cache_folder(&self) -> Option<&Path> {
        self.replicas.cache_folder()
    }

    /// Returns the text that describes this process to other writers while it holds a store.
    #[must_use]
    pub fn holder(&self) -> String {
        let now = moment::show(RealClock.now());
        format!("process {} on {}, since {now}", std::process::id(), host_name())
    }
}

/// Opening the store.
impl CommandSession {
    /// Opens the store for inspection, as far as the key allows.
    ///
    /// # Errors
    /// When the store or its catalog does not open.
    pub fn check(&self) -> Result<Archive> {
        Ok(Archive::open(self.read_store()?)?)
    }

    /// Opens the store for writing, with its catalog.
    ///
    /// # Errors
    /// When the store or its catalog does not open.
    pub fn write(&self) -> Result<Archive> {
        Ok(Archive::open(self.write_store()?)?)
    }

    /// Opens the store for reading.
    ///
    /// # Errors
    /// When it does not open.
    pub fn read_store(&self) -> Result<Store> {
        self.read_store_at(&self.store_path()?)
    }

    /// Opens another store, or a replica of one, for reading.
    ///
    /// # Errors
    /// When it does not open.
    pub fn read_store_at(&self, path: &Path) -> Result<Store> {
        Ok(self.read_at(path)?.0)
    }

    /// Opens a store for reading, or a replica of one, which is returned also.
    ///
    /// # Errors
    /// When it does not open.
    pub fn read_at(&self, path: &Path) -> Result<(Store, Option<ReadReplica>)> {
        match home_at(path)? {
            StoreLocation::Folder(path) => {
                let name = path.display().to_string();
                let world = World::real(&path);
                let secret = self.secret_of(&world, &name)?;
                let store = self.open_store(world, &name, secret.as_ref(), StoreAccess::Read)?;
                self.notice_lost_end(&store, &name);
                Ok((store, None))
            }
            StoreLocation::Replica(text) => {
                let there = self.replica(&text, NamedBy::User)?;
                let name = target::shown(&text);
                let secret = self.secret_of(&there.world, &name)?;
                let store =
                    self.open_store(there.world.clone(), &name, secret.as_ref(), StoreAccess::Read)?;
                let is_older = self.notice_rollback(&store, &there, History::Unknown, &text);
                Ok((store, Some(ReadReplica { home: there, is_older })))
            }
            StoreLocation::Venti(address) => Err(store_location::only_blocks(&address)),
        }
    }

    /// Opens the store for writing.
    ///
    /// # Errors
    /// When it does not open, or another writer has held it for longer than the session waits.
    pub fn write_store(&self) -> Result<Store> {
        self.write_store_at(&self.store_path()?)
    }

    /// Opens another store for writing.
    ///
    /// # Errors
    /// When it does not open, or another writer has held it for longer than the session waits.
    pub fn write_store_at(&self, path: &Path) -> Result<Store> {
        let path = home_at(path)?.folder()?;
        let holder = self.holder();
        let access = StoreAccess::Write { holder: &holder };
        let name = path.display().to_string();
        let secret = self.secret_of(&World::real(&path), &name)?;
        let open = || self.open_store(World::real(&path), &name, secret.as_ref(), access);
        let store = self.until_free(Some(&|| waiting::is_store_free(&path)), open)?;
        remove_stale_leases(store.vault().storage());
        self.notice_lost_end(&store, &name);
        Ok(store)
    }

    /// Opens the store of a world with a given secret. Messages call it `name`.
    ///
    /// # Errors
    /// When it does not open.
    pub fn open_store(
        &self,
        world: World,
        name: &str,
        secret: Option<&Secret>,
        access: StoreAccess<'_>,
    ) -> Result<Store> {
        Store::open(world, secret, access, &mut self.frontend.rebuilding())
            .with_context(|| format!("cannot open the store {name}"))
    }

    /// Reports that the newest snapshots may be missing: the list of the remaining ones looks
    /// complete.
    fn notice_lost_end(&self, store: &Store, name: &str) {
        if let Err(WithheldError { arena, offset }) = store.check_nothing_withheld() {
            self.notice(&Notice::EndWithheld { store: name.to_owned(), arena, offset });
        } else if store.end_is_lost() {
            self.notice(&Notice::EndLost { store: name.to_owned() });
        }
    }

    /// Repeats `attempt` while another writer prevents it, for as long as the session waits.
    /// `is_free` looks at the lock before each further attempt, which may be expensive.
    ///
    /// # Errors
    /// The error of the last attempt. [`Interrupted`](crate::Interrupted) after a signal.
    pub fn until_free<T>(
        &self,
        is_free: Option<&dyn Fn() -> bool>,
        attempt: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        waiting::until_free(self.wait, self.frontend.as_ref(), is_free, attempt)
    }
}

/// Keys.
impl CommandSession {
    /// Returns the secret of the store of a world, if the store needs one.
    ///
    /// # Errors
    /// When the settings cannot be read or no secret is found, and [`WrongKey`] if a secret was
    /// given for a store that needs none.
    pub fn secret_of(&self, world: &World, name: &str) -> Result<Option<Secret>> {
        let context = || format!("cannot open the store {name}");
        match Store::read_config(world).with_context(context)?.encryption {
            Encryption::Aes256Gcm => self.secret().map(Some),
            // A user who expects encryption must not be served from an unencrypted store that was
            // put in the place of theirs.
            Encryption::None => match self.keys.what_is_given() {
                Some(given) => bail!(WrongKey(format!(
                    "{name} is not encrypted, but {given} was given: it is not the store of that key"
                ))),
                None => Ok(None),
            },
        }
    }

    /// Returns the secret that opens the store: a key file, a passphrase from a file, a program or
    /// the environment, or an answer.
    ///
    /// # Errors
    /// When no secret was given and no user can be asked.
    pub fn secret(&self) -> Result<Secret> {
        self.keys.given(PromptCount::Once)
    }

    /// Returns the secret for a new store. A passphrase is asked for twice: a typing error would
    /// lock everybody out.
    ///
    /// # Errors
    /// When no secret was given and no user can be asked, or the two answers differ.
    pub fn secret_of_new_store(&self) -> Result<Secret> {
        self.keys.given(PromptCount::Twice)
    }

    /// Returns the secret of a new key: `key_file`, the environment, or an answer. If `is_asked`,
    /// the passphrase is asked for even if the environment has one.
    ///
    /// # Errors
    /// When no secret was given and no user can be asked, or the two answers differ.
    pub fn new_secret(&self, key_file: Option<&Path>, is_asked: bool) -> Result<Secret> {
        self.keys.new_secret(key_file, is_asked)
    }

    /// Names the option or environment variable that gives a secret, if there is one.
    #[must_use]
    pub fn what_is_given(&self) -> Option<&'static str> {
        self.keys.what_is_given()
    }

    /// Returns the keys of the store.
    ///
    /// # Errors
    /// When there is no store, or its settings cannot be read.
    pub fn keyring(&self) -> Result<Keyring> {
        let path = self.store_path()?;
        Keyring::of(&World::real(&path)).with_context(|| format!("cannot open the store {}", path.display()))
    }
}

/// Replicas and servers.
impl CommandSession {
    /// Opens the target that `text` names, a folder or a URL. `up` is the pace of uploads.
    ///
    /// # Errors
    /// When the text names no target, or the target cannot be reached.
    pub fn target(&self, text: &str, named_by: NamedBy, up: Option<Arc<Pace>>) -> Result<Arc<dyn Target>> {
        target::open(
            text,
            named_by,
            TargetPaces { up, requests: self.requests.clone() },
            self.frontend.as_ref(),
        )
    }

    /// Opens a target for the reader of a publication, who soon turns to another place. Without
    /// `may_be_own`, a place on the own network of the reader is refused.
    ///
    /// # Errors
    /// As [`target`](Self::target).
    pub fn target_for_reader(
        &self,
        text: &str,
        named_by: NamedBy,
        reader: ReaderPatience,
        may_be_own: bool,
    ) -> Result<Arc<dyn Target>> {
        target::open_for_reader(
            text,
            named_by,
            reader,
            may_be_own,
            self.requests.clone(),
            self.frontend.as_ref(),
        )
    }

    /// Opens a target as the world of a read-only store.
    ///
    /// # Errors
    /// When there is no replica, or it cannot be reached.
    pub fn replica(&self, text: &str, named_by: NamedBy) -> Result<ReplicaHome> {
        self.replicas.open(text, named_by)
    }

    /// Reports a replica that is older than this machine's notes on its store, and notes its
    /// present state. Returns whether the replica is older.
    pub fn notice_rollback(&self, store: &Store, there: &ReplicaHome, history: History, text: &str) -> bool {
        let notice = replica_home::rollback(store, there, history, text);
        notice.iter().for_each(|notice| self.notice(notice));
        notice.is_some()
    }

    /// Removes all notes on the replicas of a store, because the history of the store now diverges
    /// from theirs.
    pub fn forget_seen(&self, store_id: &[u8; 16]) {
        self.replicas.forget_seen(store_id);
    }

    /// Returns the storage of another store, or of a replica of one.
    ///
    /// # Errors
    /// When the replica does not open, or a Venti server was named.
    pub fn storage_at(&self, path: &Path) -> Result<Arc<dyn Storage>> {
        Ok(match home_at(path)? {
            StoreLocation::Folder(path) => World::real(&path).storage,
            StoreLocation::Replica(text) => self.replica(&text, NamedBy::User)?.world.storage,
            StoreLocation::Venti(address) => return Err(store_location::only_blocks(&address)),
        })
    }

    /// Opens the blocks of another store, of a replica, or of a Venti server for reading.
    ///
    /// # Errors
    /// When they do not open.
    pub fn read_blocks_at(&self, path: &Path) -> Result<Arc<dyn BlockStore>> {
        if let StoreLocation::Venti(address) = home_at(path)? {
            return Ok(store_location::connect(&address)?);
        }
        Ok(Arc::new(self.read_store_at(path)?))
    }

    /// Opens the blocks of another store, or of a Venti server, for writing.
    ///
    /// # Errors
    /// When they do not open.
    pub fn write_blocks_at(&self, path: &Path) -> Result<WritableStore> {
        if let StoreLocation::Venti(address) = home_at(path)? {
            return Ok(WritableStore::Venti(store_location::connect(&address)?));
        }
        Ok(WritableStore::Store(Box::new(self.write_store_at(path)?)))
    }

    /// Connects to a Venti server.
    ///
    /// # Errors
    /// When it cannot be reached, or is no Venti server.
    pub fn venti(&self, address: &Address) -> Result<Arc<VentiStore>> {
        store_location::connect(address)
    }

    /// Returns the file with the catalog roots of a Venti server: the named file, or else the
    /// user's.
    ///
    /// # Errors
    /// When none was named and the user has no folder for it.
    pub fn roots(&self, address: &Address) -> Result<RootsFile> {
        RootsFile::of(self.roots.clone(), address)
    }

    /// Returns the roots file that the command line names.
    #[must_use]
    pub fn named_roots(&self) -> Option<RootsFile> {
        self.roots.clone().map(RootsFile::at)
    }
}

/// A destination for blocks.
#[expect(missing_docs, reason = "the names explain themselves")]
pub enum WritableStore {
    Store(Box<Store>),
    Venti(Arc<VentiStore>),
}

impl WritableStore {
    /// Returns the blocks.
    #[must_use]
    pub fn blocks(&self) -> &dyn BlockStore {
        match self {
            Self::Store(store) => &**store,
            Self::Venti(store) => &**store,
        }
    }

    /// Closes the destination. All written blocks are durable when this returns.
    ///
    /// # Errors
    /// When the last blocks could not be made durable.
    pub fn close(self) -> Result<()> {
        match self {
            Self::Store(store) => Ok(store.close()?),
            Self::Venti(store) => Ok(store.sync()?),
        }
    }
}
