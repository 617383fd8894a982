//! From the command line to an open store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use varve_archive::{Archive, Catalog};
use varve_block::BlockStore;
use varve_remote::{Target, VentiStore};
use varve_replica::Healing;
use varve_store::{Access, Encryption, Keyring, Permission, Secret, Store, WithheldError};
use varve_venti::Address;
use varve_world::{Clock, RealClock, Storage, Timestamp, World};

use crate::failure::{UsageError, WrongKey};
use crate::frontend::Frontend;
use crate::home::{self, Home, home_at};
use crate::host::host_name;
use crate::notice::Notice;
use crate::reading::{Reading, VentiSnapshots};
use crate::replica_home::{self, History, ReplicaHome, ReplicaReads, Replicas};
use crate::roots::Roots;
use crate::secret::{Asked, KeyOptions, Keys};
use crate::target::{self, NamedBy};
use crate::{healing, waiting};

/// What the command line and the environment say of the store.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The store, a replica of it, or a Venti server.
    pub store: Option<PathBuf>,
    /// What opens it.
    pub key: KeyOptions,
    /// How long to wait for another writer.
    pub wait: Duration,
    /// How replicas are read.
    pub replica_reads: ReplicaReads,
    /// The folder of the cache of replicas, instead of the user's.
    pub cache: Option<PathBuf>,
    /// How much the cache holds of each store.
    pub cache_bytes: u64,
    /// The file that notes the roots of a Venti server's catalog, instead of the user's.
    pub roots: Option<PathBuf>,
    /// How a moment is shown to other writers.
    pub show_moment: fn(Timestamp) -> String,
}

/// The store that a command works on, and all that it takes to open it. A clone shares the
/// passphrase that was typed.
#[derive(Clone)]
pub struct Session {
    store: Option<PathBuf>,
    keys: Keys,
    replicas: Replicas,
    wait: Duration,
    roots: Option<PathBuf>,
    show_moment: fn(Timestamp) -> String,
    frontend: Arc<dyn Frontend>,
}

impl Session {
    /// The session of a command. Nothing is opened yet.
    #[must_use]
    pub fn new(settings: Settings, frontend: Arc<dyn Frontend>) -> Self {
        let Settings { store, key, wait, replica_reads, cache, cache_bytes, roots, show_moment } = settings;
        let keys = Keys::new(key, Arc::clone(&frontend));
        let replicas = Replicas::new(replica_reads, cache, cache_bytes, Arc::clone(&frontend));
        Self { store, keys, replicas, wait, roots, show_moment, frontend }
    }

    /// The same session, which does not wait for other writers.
    pub(crate) fn without_waiting(&self) -> Self {
        Self { wait: Duration::ZERO, ..self.clone() }
    }

    /// The session of a store that is copied from. It may have another key than the one that is
    /// copied to, or none.
    ///
    /// # Errors
    /// When `path` names no store whose settings can be read.
    pub fn as_source(&self, path: &Path, key_file: Option<&Path>) -> Result<Self> {
        let source = Self { store: Some(path.into()), keys: self.keys.of_source(), ..self.clone() };
        if let Some(key_file) = key_file {
            return Ok(Self { keys: source.keys.with_key_file(key_file), ..source });
        }
        let name = path.display().to_string();
        let world = match home_at(path)? {
            Home::Folder(path) => World::real(&path),
            Home::Replica(text) => source.replica(&text, NamedBy::User)?.world,
            // It has no key.
            Home::Venti(_) => return Ok(source),
        };
        let config = Store::read_config(&world).with_context(|| format!("cannot open the store {name}"))?;
        if config.encryption == Encryption::None {
            // The key that was given is that of the other store.
            return Ok(Self { keys: source.keys.without_options(), ..source });
        }
        Ok(source)
    }

    pub(crate) fn notice(&self, notice: &Notice) {
        self.frontend.notice(notice);
    }
}

/// The place of the store.
impl Session {
    /// Whether a store was named at all.
    #[must_use]
    pub fn names_store(&self) -> bool {
        self.store.is_some()
    }

    /// The path or URL that names the store.
    ///
    /// # Errors
    /// [`UsageError`] if none was given.
    pub fn store_path(&self) -> Result<PathBuf> {
        let unnamed = || UsageError("which store? Name it with --store, or in VARVE_STORE".into());
        Ok(self.store.clone().ok_or_else(unnamed)?)
    }

    /// The place of the store: a folder, a replica, or a Venti server.
    ///
    /// # Errors
    /// [`UsageError`] if none was named, or the name means nothing.
    pub fn home(&self) -> Result<Home> {
        home_at(&self.store_path()?)
    }

    /// The store's folder, for what can be done neither at a replica nor at a Venti server.
    ///
    /// # Errors
    /// When something else was named.
    pub fn store_folder(&self) -> Result<PathBuf> {
        self.home()?.folder()
    }

    /// The folder in which a store is to be made.
    ///
    /// # Errors
    /// When something else was named.
    pub fn new_store_folder(&self) -> Result<PathBuf> {
        self.home()?.new_store_folder()
    }

    /// The key file that was named.
    #[must_use]
    pub fn key_file(&self) -> Option<&Path> {
        self.keys.key_file()
    }

    /// The file that was named for the roots of a Venti server's catalog.
    #[must_use]
    pub fn roots_file(&self) -> Option<&Path> {
        self.roots.as_deref()
    }

    /// The folder in which this machine keeps what it has read and seen of replicas.
    #[must_use]
    pub fn cache_folder(&self) -> Option<&Path> {
        self.replicas.cache_folder()
    }

    /// What other writers are told as long as this process writes to a store.
    #[must_use]
    pub fn holder(&self) -> String {
        let now = (self.show_moment)(RealClock.now());
        format!("process {} on {}, since {now}", std::process::id(), host_name())
    }
}

/// The store, opened.
impl Session {
    /// Opens the store to be read, with its catalog, which comes from a replica where it is lost
    /// here.
    ///
    /// # Errors
    /// When the store does not open, or the key does not permit reading.
    pub fn read(&self) -> Result<Archive> {
        let store = Arc::new(self.read_store()?);
        store.role().require(Permission::Read)?;
        let blocks = healing::blocks(self, Arc::clone(&store));
        let catalog = Catalog::load_all(&*blocks, &store.catalogs());
        self.report_lost(&blocks);
        Ok(Archive::with_catalog(store, catalog?))
    }

    /// Opens the store to be looked at as far as the key allows.
    ///
    /// # Errors
    /// When the store or its catalog does not open.
    pub fn check(&self) -> Result<Archive> {
        Ok(Archive::open(self.read_store()?)?)
    }

    /// Opens the store to be written, with its catalog.
    ///
    /// # Errors
    /// When the store or its catalog does not open.
    pub fn write(&self) -> Result<Archive> {
        Ok(Archive::open(self.write_store()?)?)
    }

    /// The snapshots of the store, and the blocks that they are made of.
    ///
    /// # Errors
    /// When the store or its catalog does not open.
    pub fn reading(&self) -> Result<Reading> {
        Reading::open(self)
    }

    /// The blocks of a store. Those that it has lost come from the replicas that it remembers.
    #[must_use]
    pub fn healing(&self, archive: &Archive) -> Arc<Healing> {
        healing::blocks(self, archive.blocks())
    }

    /// Reports the blocks that had to come from a replica since the last call, and stores them here
    /// again.
    pub fn report_lost(&self, blocks: &Healing) {
        healing::report_lost(self, blocks);
    }

    /// Opens the store to be read.
    ///
    /// # Errors
    /// When it does not open.
    pub fn read_store(&self) -> Result<Store> {
        self.read_store_at(&self.store_path()?)
    }

    /// Opens another store, or a replica of one, to be read.
    ///
    /// # Errors
    /// When it does not open.
    pub fn read_store_at(&self, path: &Path) -> Result<Store> {
        match home_at(path)? {
            Home::Folder(path) => {
                let name = path.display().to_string();
                let world = World::real(&path);
                let secret = self.secret_of(&world, &name)?;
                let store = self.open_store(world, &name, secret.as_ref(), Access::Read)?;
                self.notice_lost_end(&store, &name);
                Ok(store)
            }
            Home::Replica(text) => {
                let there = self.replica(&text, NamedBy::User)?;
                let name = target::shown(&text);
                let secret = self.secret_of(&there.world, &name)?;
                let store = self.open_store(there.world.clone(), &name, secret.as_ref(), Access::Read)?;
                self.notice_rollback(&store, &there, History::Unknown, &text);
                Ok(store)
            }
            Home::Venti(address) => Err(home::only_blocks(&address)),
        }
    }

    /// Opens the store to be written.
    ///
    /// # Errors
    /// When it does not open, or another writer has held it for longer than the session waits.
    pub fn write_store(&self) -> Result<Store> {
        self.write_store_at(&self.store_path()?)
    }

    /// Opens another store to be written.
    ///
    /// # Errors
    /// When it does not open, or another writer has held it for longer than the session waits.
    pub fn write_store_at(&self, path: &Path) -> Result<Store> {
        let path = home_at(path)?.folder()?;
        let holder = self.holder();
        let access = Access::Write { holder: &holder };
        let name = path.display().to_string();
        let secret = self.secret_of(&World::real(&path), &name)?;
        let open = || self.open_store(World::real(&path), &name, secret.as_ref(), access);
        let store = self.until_free(|| waiting::is_lock_free(&path, "lock"), open)?;
        self.notice_lost_end(&store, &name);
        Ok(store)
    }

    /// Opens the store of a world with a secret that is there already; `name` is what people call
    /// it.
    ///
    /// # Errors
    /// When it does not open.
    pub fn open_store(
        &self,
        world: World,
        name: &str,
        secret: Option<&Secret>,
        access: Access<'_>,
    ) -> Result<Store> {
        Store::open(world, secret, access, &mut self.frontend.rebuilding())
            .with_context(|| format!("cannot open the store {name}"))
    }

    /// Reports that the newest snapshots may be missing: a list of the others looks as if it were
    /// complete.
    fn notice_lost_end(&self, store: &Store, name: &str) {
        if let Err(WithheldError { arena, offset }) = store.check_nothing_withheld() {
            self.notice(&Notice::EndWithheld { store: name.to_owned(), arena, offset });
        } else if store.end_is_lost() {
            self.notice(&Notice::EndLost { store: name.to_owned() });
        }
    }

    /// Tries something that another writer may prevent, and tries it again for as long as the
    /// session waits. `is_free` is asked before each further attempt, which may be expensive.
    ///
    /// # Errors
    /// Those of the last attempt. [`Interrupted`](crate::Interrupted) after a signal.
    pub fn until_free<T>(&self, is_free: impl Fn() -> bool, attempt: impl FnMut() -> Result<T>) -> Result<T> {
        waiting::until_free(self.wait, self.frontend.as_ref(), is_free, attempt)
    }
}

/// Keys.
impl Session {
    /// What opens the store of a world, if it needs anything.
    ///
    /// # Errors
    /// When the settings cannot be read or no secret is found, and [`WrongKey`] if a secret was
    /// given for a store that needs none.
    pub fn secret_of(&self, world: &World, name: &str) -> Result<Option<Secret>> {
        let context = || format!("cannot open the store {name}");
        match Store::read_config(world).with_context(context)?.encryption {
            Encryption::Aes256Gcm => self.secret().map(Some),
            // Somebody who expects a key to be needed must not be served from a store that was put
            // in the place of theirs.
            Encryption::None => match self.keys.what_is_given() {
                Some(given) => bail!(WrongKey(format!(
                    "{name} is not encrypted, but {given} was given: it is not the store that the key is for"
                ))),
                None => Ok(None),
            },
        }
    }

    /// What opens the store: a key file, a passphrase from a file, a program or the environment, or
    /// an answer.
    ///
    /// # Errors
    /// When nothing was given and nobody can be asked.
    pub fn secret(&self) -> Result<Secret> {
        self.keys.given(Asked::Once)
    }

    /// What is to open a store that is made now. An answer is asked for twice: a slip would lock
    /// everybody out.
    ///
    /// # Errors
    /// When nothing was given and nobody can be asked, or the two answers differ.
    pub fn secret_of_new_store(&self) -> Result<Secret> {
        self.keys.given(Asked::Twice)
    }

    /// What is to open a new key: `key_file`, the environment, or an answer. With `is_asked`,
    /// whatever the environment says, the passphrase is asked for.
    ///
    /// # Errors
    /// When nothing was given and nobody can be asked, or the two answers differ.
    pub fn new_secret(&self, key_file: Option<&Path>, is_asked: bool) -> Result<Secret> {
        self.keys.new_secret(key_file, is_asked)
    }

    /// What the command line and the environment give to open the store with, if they give
    /// anything.
    #[must_use]
    pub fn what_is_given(&self) -> Option<&'static str> {
        self.keys.what_is_given()
    }

    /// The keys of the store.
    ///
    /// # Errors
    /// When there is no store, or its settings cannot be read.
    pub fn keyring(&self) -> Result<Keyring> {
        let path = self.store_path()?;
        Keyring::of(&World::real(&path)).with_context(|| format!("cannot open the store {}", path.display()))
    }
}

/// Replicas and servers.
impl Session {
    /// Opens the place that `text` names, a folder or a URL; `bytes_per_second` bounds what is sent
    /// there.
    ///
    /// # Errors
    /// When the text names no place, or it cannot be reached.
    pub fn target(
        &self,
        text: &str,
        named_by: NamedBy,
        bytes_per_second: Option<u64>,
    ) -> Result<Arc<dyn Target>> {
        target::open(text, named_by, bytes_per_second, self.frontend.as_ref())
    }

    /// Opens a target as the world of a store that is only read.
    ///
    /// # Errors
    /// When there is no replica, or it cannot be reached.
    pub fn replica(&self, text: &str, named_by: NamedBy) -> Result<ReplicaHome> {
        self.replicas.open(text, named_by)
    }

    /// Reports a replica that is older than what this machine has seen of its store, and notes what
    /// it sees now. Returns whether it is older.
    pub fn notice_rollback(&self, store: &Store, there: &ReplicaHome, history: History, text: &str) -> bool {
        let notice = replica_home::rollback(store, there, history, text);
        notice.iter().for_each(|notice| self.notice(notice));
        notice.is_some()
    }

    /// Forgets what this machine has seen at replicas of a store whose history goes another way
    /// from now on.
    pub fn forget_seen(&self, store_id: &[u8; 16]) {
        self.replicas.forget_seen(store_id);
    }

    /// The files of another store, or of a replica of one.
    ///
    /// # Errors
    /// When the replica does not open, or a Venti server was named.
    pub fn storage_at(&self, path: &Path) -> Result<Arc<dyn Storage>> {
        Ok(match home_at(path)? {
            Home::Folder(path) => World::real(&path).storage,
            Home::Replica(text) => self.replica(&text, NamedBy::User)?.world.storage,
            Home::Venti(address) => return Err(home::only_blocks(&address)),
        })
    }

    /// Blocks to be read: of another store, of a replica of one, or at a Venti server.
    ///
    /// # Errors
    /// When they do not open.
    pub fn read_blocks_at(&self, path: &Path) -> Result<Arc<dyn BlockStore>> {
        if let Home::Venti(address) = home_at(path)? {
            return Ok(home::connect(&address)?);
        }
        Ok(Arc::new(self.read_store_at(path)?))
    }

    /// Blocks to be written: of another store, or at a Venti server.
    ///
    /// # Errors
    /// When they do not open.
    pub fn write_blocks_at(&self, path: &Path) -> Result<Writable> {
        if let Home::Venti(address) = home_at(path)? {
            return Ok(Writable::Venti(home::connect(&address)?));
        }
        Ok(Writable::Store(Box::new(self.write_store_at(path)?)))
    }

    /// Connects to a Venti server.
    ///
    /// # Errors
    /// When it cannot be reached, or is not one.
    pub fn venti(&self, address: &Address) -> Result<Arc<VentiStore>> {
        home::connect(address)
    }

    /// The file that notes the roots of a Venti server's catalog: the one that was named, or else
    /// the user's.
    ///
    /// # Errors
    /// When none was named and the user has no folder for it.
    pub fn roots(&self, address: &Address) -> Result<Roots> {
        Roots::of(self.roots.clone(), address)
    }

    /// The roots file that was named.
    #[must_use]
    pub fn named_roots(&self) -> Option<Roots> {
        self.roots.clone().map(Roots::at)
    }

    /// The snapshots at a Venti server, and the server's blocks.
    ///
    /// # Errors
    /// When the server cannot be reached, or its catalog cannot be read.
    pub fn venti_snapshots(&self, address: &Address) -> Result<(VentiSnapshots, Arc<VentiStore>)> {
        let blocks = home::connect(address)?;
        let found = VentiSnapshots::open(self.roots(address)?, Arc::clone(&blocks) as _)?;
        Ok((found, blocks))
    }
}

/// A place that takes blocks.
#[expect(missing_docs, reason = "the names explain themselves")]
pub enum Writable {
    Store(Box<Store>),
    Venti(Arc<VentiStore>),
}

impl Writable {
    /// Its blocks.
    #[must_use]
    pub fn blocks(&self) -> &dyn BlockStore {
        match self {
            Self::Store(store) => &**store,
            Self::Venti(store) => &**store,
        }
    }

    /// Ends it in order, so that what was written is durable.
    ///
    /// # Errors
    /// When the last of it could not be made durable.
    pub fn close(self) -> Result<()> {
        match self {
            Self::Store(store) => Ok(store.close()?),
            Self::Venti(store) => Ok(store.sync()?),
        }
    }
}
