//! From the words of a command to an open store.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use varve_archive::{Archive, OwnerNames};
use varve_block::BlockStore;
use varve_remote::VentiStore;
use varve_store::{Access, Encryption, Keyring, RebuildProgress, Secret, Store, StoreConfig, WithheldError};
use varve_world::{Clock, RealClock, Storage, World};

use crate::arguments::Arguments;
use crate::exit_status::WrongKey;
use crate::home::{self, Home};
use crate::moment;
use crate::replica_home::{self, History};
use crate::secret::{self, Asked};
use crate::target::{self, NamedBy};
use crate::waiting;

/// The machine's name, to be remembered with a snapshot.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Whose numbers the names of owners stand for on this machine, and the other way round.
pub fn owner_names() -> OwnerNames {
    // Who is not known has a number and no name, or the other way round.
    let file = |path: &str| std::fs::read(path).unwrap_or_default();
    OwnerNames::parse(&file("/etc/passwd"), &file("/etc/group"))
}

/// Opens the store to be looked at as far as the key allows.
pub fn check(arguments: &Arguments) -> Result<Archive> {
    Ok(Archive::open(read_store(arguments)?)?)
}

/// Opens the store to be written, with its catalog.
pub fn write(arguments: &Arguments) -> Result<Archive> {
    Ok(Archive::open(write_store(arguments)?)?)
}

/// Opens the store to be read.
pub fn read_store(arguments: &Arguments) -> Result<Store> {
    read_store_at(arguments, &home::store_path(arguments)?)
}

/// Opens another store, or a replica of one, to be read.
pub fn read_store_at(arguments: &Arguments, path: &Path) -> Result<Store> {
    match home::at(path)? {
        Home::Folder(path) => {
            let name = path.display().to_string();
            let store = open_store(arguments, World::real(&path), &name, Access::Read)?;
            notice_lost_end(&store, &name);
            Ok(store)
        }
        Home::Replica(text) => {
            let home = replica_home::open(arguments, &text, NamedBy::User)?;
            let store = open_store(arguments, home.world.clone(), &target::shown(&text), Access::Read)?;
            replica_home::notice_rollback(&store, &home, History::Unknown, &text);
            Ok(store)
        }
        Home::Venti(address) => Err(home::only_blocks(&address)),
    }
}

/// The words for a store that is copied from: it may have another key than the one that is copied to, or none.
pub fn as_source(arguments: &Arguments, path: &Path, key_file: Option<&Path>) -> Result<Arguments> {
    let mut arguments = Arguments { is_source: true, store: Some(path.into()), ..arguments.clone() };
    if let Some(key_file) = key_file {
        arguments.key_file = Some(key_file.into());
        return Ok(arguments);
    }
    let name = path.display().to_string();
    let world = match home::at(path)? {
        Home::Folder(path) => World::real(&path),
        Home::Replica(text) => replica_home::open(&arguments, &text, NamedBy::User)?.world,
        // It has no key.
        Home::Venti(_) => return Ok(arguments),
    };
    let config = Store::read_config(&world).with_context(|| format!("cannot open the store {name}"))?;
    if config.encryption == Encryption::None {
        // The key that was given is that of the other one.
        (arguments.key_file, arguments.passphrase_file, arguments.passphrase_command) = (None, None, None);
    }
    Ok(arguments)
}

/// Blocks to be read: of another store, of a replica of one, or at a Venti server.
pub fn read_blocks_at(arguments: &Arguments, path: &Path) -> Result<Arc<dyn BlockStore>> {
    if let Home::Venti(address) = home::at(path)? {
        return Ok(home::venti(&address)?);
    }
    Ok(Arc::new(read_store_at(arguments, path)?))
}

/// Blocks to be written: of another store, or at a Venti server.
pub fn write_blocks_at(arguments: &Arguments, path: &Path) -> Result<Writable> {
    if let Home::Venti(address) = home::at(path)? {
        return Ok(Writable::Venti(home::venti(&address)?));
    }
    Ok(Writable::Store(Box::new(write_store_at(arguments, path)?)))
}

/// Where blocks can be written.
pub enum Writable {
    Store(Box<Store>),
    Venti(Arc<VentiStore>),
}

impl Writable {
    pub fn blocks(&self) -> &dyn BlockStore {
        match self {
            Self::Store(store) => &**store,
            Self::Venti(store) => &**store,
        }
    }

    /// Ends it in order, so that what was written is durable.
    pub fn close(self) -> Result<()> {
        match self {
            Self::Store(store) => Ok(store.close()?),
            Self::Venti(store) => Ok(store.sync()?),
        }
    }
}

/// The files of another store, or of a replica of one.
pub fn storage_at(arguments: &Arguments, path: &Path) -> Result<Arc<dyn Storage>> {
    Ok(match home::at(path)? {
        Home::Folder(path) => World::real(&path).storage,
        Home::Replica(text) => replica_home::open(arguments, &text, NamedBy::User)?.world.storage,
        Home::Venti(address) => return Err(home::only_blocks(&address)),
    })
}

/// What others are told who want to write to a store that we write to.
pub fn holder() -> String {
    let now = moment::show(RealClock.now());
    format!("process {} on {}, since {now}", std::process::id(), host_name())
}

/// Opens the store to be written.
pub fn write_store(arguments: &Arguments) -> Result<Store> {
    write_store_at(arguments, &home::store_path(arguments)?)
}

/// Opens another store to be written.
pub fn write_store_at(arguments: &Arguments, path: &Path) -> Result<Store> {
    let path = match home::at(path)? {
        Home::Folder(path) => path,
        Home::Replica(text) => return Err(home::only_read(&text)),
        Home::Venti(address) => return Err(home::only_blocks(&address)),
    };
    let holder = holder();
    let access = Access::Write { holder: &holder };
    let name = path.display().to_string();
    let secret = secret_of(arguments, &World::real(&path), &name)?;
    let open = || open_store_with(arguments, World::real(&path), &name, secret.as_ref(), access);
    let store = waiting::until_free(arguments, || waiting::is_lock_free(&path, "lock"), open)?;
    notice_lost_end(&store, &name);
    Ok(store)
}

/// Says that the newest snapshots may be missing: a list of the others looks as if it were whole.
fn notice_lost_end(store: &Store, name: &str) {
    if let Err(WithheldError { arena, offset }) = store.check_nothing_withheld() {
        // It may be there all the same: nothing is said to be lost.
        remark!(
            "varve: {name}: the disk does not give what is at offset {offset} of arena {arena}: the newest snapshots may be missing here"
        );
        remark!("hint: look after the disk; `varve verify` says what else it does not give");
    } else if store.end_is_lost() {
        remark!(
            "varve: {name} has lost the end of its log: the newest snapshots may be missing, and cannot be named"
        );
        remark!(
            "hint: `varve repair --from COPY` brings back what a copy or a replica of the store still has"
        );
    }
}

/// Opens the store of a world; `name` is what people call it.
pub fn open_store(arguments: &Arguments, world: World, name: &str, access: Access<'_>) -> Result<Store> {
    let secret = secret_of(arguments, &world, name)?;
    open_store_with(arguments, world, name, secret.as_ref(), access)
}

/// Opens the store of a world with a secret that is there already.
pub fn open_store_with(
    arguments: &Arguments,
    world: World,
    name: &str,
    secret: Option<&Secret>,
    access: Access<'_>,
) -> Result<Store> {
    let mut bar = RebuildBar::new(arguments.quiet);
    Store::open(world, secret, access, &mut |progress| bar.show(progress))
        .with_context(|| format!("cannot open the store {name}"))
}

/// What opens the store of a world, if it needs anything.
pub fn secret_of(arguments: &Arguments, world: &World, name: &str) -> Result<Option<Secret>> {
    let context = || format!("cannot open the store {name}");
    match Store::read_config(world).with_context(context)?.encryption {
        Encryption::Aes256Gcm => secret::given(arguments, Asked::Once).map(Some),
        // Somebody who expects a key to be needed must not be served from a store that was put in the place of theirs.
        Encryption::None => match secret::what_is_given(arguments) {
            Some(given) => bail!(WrongKey(format!(
                "{name} is not encrypted, but {given} was given: it is not the store that the key is for"
            ))),
            None => Ok(None),
        },
    }
}

/// The keys of the store.
pub fn keyring(arguments: &Arguments) -> Result<Keyring> {
    let path = home::store_path(arguments)?;
    Keyring::of(&World::real(&path)).with_context(|| format!("cannot open the store {}", path.display()))
}

/// The settings of a store that is about to be made.
pub fn new_config(world: &World) -> Result<StoreConfig> {
    let mut id = [0; 16];
    world.random.fill(&mut id).context("the system gives no random bytes")?;
    Ok(StoreConfig::new(id))
}

/// Shows that an index is being read from the log, once that takes long enough to be noticed.
struct RebuildBar {
    quiet: bool,
    bar: Option<ProgressBar>,
}

/// Fewer arenas than this are read before anybody would see a bar.
const ARENAS_WORTH_A_BAR: u64 = 50;

impl RebuildBar {
    fn new(quiet: bool) -> Self {
        Self { quiet: quiet || !std::io::stderr().is_terminal(), bar: None }
    }

    fn show(&mut self, progress: RebuildProgress) {
        if self.quiet || progress.arenas_total < ARENAS_WORTH_A_BAR {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            ProgressBar::new(progress.arenas_total).with_message("reading the log's directories")
        });
        bar.set_position(progress.arenas_done);
        if progress.arenas_done == progress.arenas_total {
            bar.finish_and_clear();
        }
    }
}
