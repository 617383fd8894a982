//! From the words of a command to an open store.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use varve_archive::{Archive, Catalog, OwnerNames};
use varve_block::{BlockName, BlockStore, to_hex};
use varve_remote::{VentiOptions, VentiStore};
use varve_replica::{Healing, RangeCache, Remembered, Replica, ReplicaStorage, name_for_notes};
use varve_store::{
    Access, Encryption, Keyring, PassphraseCost, Permission, RebuildProgress, Secret, Store, StoreConfig,
    WithheldError,
};
use varve_venti::Address;
use varve_world::{Clock, MemoryStorage, RealClock, RealStorage, Storage, World};
use zeroize::Zeroizing;

use crate::arguments::{Arguments, Command, Cost, NewSecret, WrongWords};
use crate::{moment, target};

/// How much of a replica is kept in memory while it is verified.
const VERIFY_CACHE_BYTES: u64 = 64 << 20;
/// The Venti server that the environment names, as programs of Plan 9 look for it.
const VENTI_VARIABLE: &str = "$venti";
const PASSPHRASE: &str = "VARVE_PASSPHRASE";
const FROM_PASSPHRASE: &str = "VARVE_FROM_PASSPHRASE";
/// Below a store's folder in the cache: a folder for each replica, with what was seen there.
const SEEN: &str = "seen";
const NEW_PASSPHRASE: &str = "VARVE_NEW_PASSPHRASE";
const KEY_FILE_BYTES_MAX: u64 = 1 << 20;

/// The store's folder.
pub fn store_path(arguments: &Arguments) -> Result<PathBuf> {
    let unnamed = || WrongWords("which store? Name it with --store, or in VARVE_STORE".into());
    Ok(arguments.store.clone().ok_or_else(unnamed)?)
}

/// Where a store is.
pub enum Home {
    /// In a folder.
    Folder(PathBuf),
    /// At a target, as a replica.
    Replica(String),
    /// Blocks at a Venti server.
    Venti(Address),
}

/// The store that was named: a folder, or a replica of one.
pub fn home(arguments: &Arguments) -> Result<Home> {
    home_at(&store_path(arguments)?)
}

pub fn home_at(path: &Path) -> Result<Home> {
    if let Some(text) = path.to_str().filter(|text| is_venti(text)) {
        let named = match text {
            VENTI_VARIABLE => {
                let value = std::env::var("venti").unwrap_or_default();
                if value.is_empty() {
                    bail!(WrongWords(format!("{VENTI_VARIABLE} is not set: it is to name a Venti server")));
                }
                value
            }
            text => text.to_owned(),
        };
        return Ok(Home::Venti(named.parse().map_err(|error| WrongWords(format!("{error}")))?));
    }
    let text = path.to_str().filter(|text| target::is_url(text) || target::is_replica_folder(path));
    Ok(match text {
        Some(text) => Home::Replica(text.to_owned()),
        None => Home::Folder(path.into()),
    })
}

/// Whether a word names a Venti server, and no folder or replica.
fn is_venti(text: &str) -> bool {
    text == VENTI_VARIABLE || ["venti://", "tcp!", "unix!"].iter().any(|start| text.starts_with(start))
}

/// Connects to a Venti server.
pub fn venti(address: &Address) -> Result<Arc<VentiStore>> {
    Ok(Arc::new(VentiStore::connect(address.clone(), VentiOptions::default())?))
}

fn only_blocks(address: &Address) -> anyhow::Error {
    anyhow::anyhow!(
        "{address} is a Venti server, which keeps blocks and nothing else: snapshot, snapshots, ls, cat, find, diff, restore, mount, boot, serve, verify and copy work there"
    )
}

/// The folder of a store that is not a replica, for what a replica cannot do.
pub fn store_folder(arguments: &Arguments) -> Result<PathBuf> {
    match home(arguments)? {
        Home::Folder(path) => Ok(path),
        Home::Replica(text) => Err(only_read(&text)),
        Home::Venti(address) => Err(only_blocks(&address)),
    }
}

fn only_read(text: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "{text} is a replica, and a replica is only read: name the store's own folder, or make one with `varve clone`"
    )
}

/// A replica, and the world in which it is a store to be read.
pub struct ReplicaHome {
    pub replica: Arc<Replica>,
    pub world: World,
    /// What this machine has seen at other replicas of the store.
    seen_elsewhere: Vec<RealStorage>,
}

/// Opens a target as the world of a store that is only read.
pub fn replica_home(arguments: &Arguments, text: &str) -> Result<ReplicaHome> {
    let there = target::open(text, None)?;
    let context = || format!("cannot open the replica {text}");
    let replica = Arc::new(Replica::open(there).with_context(context)?);
    // Who verifies is told with all else that was found.
    if !matches!(arguments.command, Command::Verify(_)) {
        replica.in_the_way().iter().for_each(|found| remark!("varve: {text}: {found}"));
    }
    let id = replica.config().with_context(context)?.id;
    let own = cache_folder(arguments).map(|folder| folder.join(to_hex(&id)));
    // Two copies of a store may go different ways: what is seen at the replica of one says nothing of the other's.
    let place = name_for_notes(replica.target().as_ref());
    let seen = own.as_ref().map(|own| own.join(SEEN).join(place));
    let mut elsewhere = own.as_deref().map(seen_in).unwrap_or_default();
    elsewhere.retain(|folder| Some(folder) != seen.as_ref());
    // Who verifies asks the replica itself, and not what was there once; what is read twice is kept while it lasts.
    let cache = match arguments.command {
        Command::Verify(_) => Some(RangeCache::new(Arc::new(MemoryStorage::new()), VERIFY_CACHE_BYTES)),
        _ => own.map(|own| RangeCache::new(Arc::new(RealStorage::new(&own)), arguments.cache_size)),
    };
    let hints = seen.map(|seen| Arc::new(RealStorage::new(&seen)) as Arc<dyn Storage>);
    let storage = Arc::new(ReplicaStorage::new(Arc::clone(&replica), cache, hints));
    let world = World { storage, ..World::real(Path::new("")) };
    let seen_elsewhere = elsewhere.iter().map(|folder| RealStorage::new(folder)).collect();
    Ok(ReplicaHome { replica, world, seen_elsewhere })
}

/// The folders that tell what was seen at the replicas of a store, below its folder in the cache; that one too: builds before 0.1.0 kept one
/// note for all of them, there.
fn seen_in(own: &Path) -> Vec<PathBuf> {
    let places = std::fs::read_dir(own.join(SEEN)).into_iter().flatten().flatten();
    std::iter::once(own.to_owned()).chain(places.map(|place| place.path())).collect()
}

/// Where this machine keeps what it has read and seen of replicas.
fn cache_folder(arguments: &Arguments) -> Option<PathBuf> {
    let named =
        |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let found = arguments.cache.clone();
    let found = found.or_else(|| named("XDG_CACHE_HOME").map(|folder| folder.join("varve")));
    found.or_else(|| named("HOME").map(|folder| folder.join(".cache/varve")))
}

/// What is known of the history that a replica holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// Nothing but what this machine has seen at replicas.
    Unknown,
    /// It is that of a store that it was compared with.
    Own,
    /// It is not that of the store that it was compared with.
    Other,
}

/// Notices a replica that is older than what this machine has seen of its store, and remembers what it sees now. What is at a replica of
/// another history is not remembered: the place may be one's own, to be cleared of what somebody else has put there.
pub fn notice_rollback(store: &Store, there: &ReplicaHome, history: History, text: &str) -> bool {
    if history == History::Other {
        return false;
    }
    if !store.newest_is_there().unwrap_or(false) {
        remark!(
            "varve: {text} does not have the newest that this machine has seen there: it was put back to an older state, or has lost \
             its end"
        );
        return true;
    }
    // Who has seen a place knows what to expect of it. Of a new one the others tell, if nothing better does.
    let is_new = history == History::Unknown && !store.has_noted_newest();
    let lacks = |seen: &RealStorage| !store.has_newest_noted_in(seen).unwrap_or(false);
    if is_new && there.seen_elsewhere.iter().any(lacks) {
        remark!(
            "varve: {text} does not have the newest that this machine has seen at another replica of the store: it was put back to an \
             older state, was not brought up to date, or holds another history of the store"
        );
        remark!("hint: `varve -s STORE verify --replica {text}` compares it with the store itself");
        return true;
    }
    if let Err(error) = store.note_newest_seen() {
        tracing::warn!(%error, "what is at the replica could not be noted");
    }
    false
}

/// Forgets what this machine has seen at replicas of a store that goes another way from now on.
pub fn forget_seen(arguments: &Arguments, store_id: &[u8; 16]) {
    let Some(folder) = cache_folder(arguments) else { return };
    for seen in seen_in(&folder.join(to_hex(store_id))) {
        let seen = seen.join("index/newest");
        match std::fs::remove_file(&seen) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(%error, file = %seen.display(), "what was seen of the store cannot be forgotten");
            }
            _ => {}
        }
    }
}

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

/// Opens the store to be read, with its catalog.
pub fn read(arguments: &Arguments) -> Result<Archive> {
    let store = Arc::new(read_store(arguments)?);
    store.role().require(Permission::Read)?;
    let blocks = healing_of(arguments, Arc::clone(&store));
    let catalog = Catalog::load_all(&*blocks, &store.catalogs());
    report_lost(arguments, &blocks);
    Ok(Archive::with_catalog(store, catalog?))
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
    read_store_at(arguments, &store_path(arguments)?)
}

/// Opens another store, or a replica of one, to be read.
pub fn read_store_at(arguments: &Arguments, path: &Path) -> Result<Store> {
    match home_at(path)? {
        Home::Folder(path) => {
            let name = path.display().to_string();
            let store = open_store(arguments, World::real(&path), &name, Access::Read)?;
            notice_lost_end(&store, &name);
            Ok(store)
        }
        Home::Replica(text) => {
            let home = replica_home(arguments, &text)?;
            let store = open_store(arguments, home.world.clone(), &text, Access::Read)?;
            notice_rollback(&store, &home, History::Unknown, &text);
            Ok(store)
        }
        Home::Venti(address) => Err(only_blocks(&address)),
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
    let world = match home_at(path)? {
        Home::Folder(path) => World::real(&path),
        Home::Replica(text) => replica_home(&arguments, &text)?.world,
        // It has no key.
        Home::Venti(_) => return Ok(arguments),
    };
    let config = Store::read_config(&world).with_context(|| format!("cannot open the store {name}"))?;
    if config.encryption == Encryption::None {
        // The key that was given is that of the other one.
        arguments.key_file = None;
    }
    Ok(arguments)
}

/// Blocks to be read: of another store, of a replica of one, or at a Venti server.
pub fn read_blocks_at(arguments: &Arguments, path: &Path) -> Result<Arc<dyn BlockStore>> {
    if let Home::Venti(address) = home_at(path)? {
        return Ok(venti(&address)?);
    }
    Ok(Arc::new(read_store_at(arguments, path)?))
}

/// Blocks to be written: of another store, or at a Venti server.
pub fn write_blocks_at(arguments: &Arguments, path: &Path) -> Result<Writable> {
    if let Home::Venti(address) = home_at(path)? {
        return Ok(Writable::Venti(venti(&address)?));
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
    Ok(match home_at(path)? {
        Home::Folder(path) => World::real(&path).storage,
        Home::Replica(text) => replica_home(arguments, &text)?.world.storage,
        Home::Venti(address) => return Err(only_blocks(&address)),
    })
}

/// What others are told who want to write to a store that we write to.
pub fn holder() -> String {
    let now = moment::show(RealClock.now());
    format!("process {} on {}, since {now}", std::process::id(), host_name())
}

/// Opens the store to be written.
pub fn write_store(arguments: &Arguments) -> Result<Store> {
    write_store_at(arguments, &store_path(arguments)?)
}

/// Opens another store to be written.
pub fn write_store_at(arguments: &Arguments, path: &Path) -> Result<Store> {
    let path = match home_at(path)? {
        Home::Folder(path) => path,
        Home::Replica(text) => return Err(only_read(&text)),
        Home::Venti(address) => return Err(only_blocks(&address)),
    };
    let holder = holder();
    let access = Access::Write { holder: &holder };
    let name = path.display().to_string();
    let store = open_store(arguments, World::real(&path), &name, access)?;
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
        Encryption::Aes256Gcm => secret(arguments, Asked::Once).map(Some),
        // Somebody who expects a key to be needed must not be served from a store that was put in the place of theirs.
        Encryption::None if arguments.key_file.is_some() => {
            bail!(
                "{name} is not encrypted, but a key file was given: it is not the store that the key is for"
            )
        }
        Encryption::None => Ok(None),
    }
}

/// The blocks of a store. What it has lost comes from the replicas that it remembers.
pub fn healing(arguments: &Arguments, archive: &Archive) -> Arc<Healing> {
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
    let store = write_store(arguments)?;
    let count = blocks.heal(&store, lost)?;
    store.close()?;
    Ok(count)
}

fn open_remembered(arguments: &Arguments, config: &StoreConfig) -> Vec<Box<dyn BlockStore>> {
    let Ok(Home::Folder(path)) = home(arguments) else { return Vec::new() };
    let targets = match Remembered::read(&RealStorage::new(&path)) {
        Ok(remembered) => remembered.targets,
        Err(error) => {
            tracing::warn!(%error, "no replica can be asked for what is lost here");
            return Vec::new();
        }
    };
    let mut stores: Vec<Box<dyn BlockStore>> = Vec::new();
    for text in targets {
        let opened = replica_home(arguments, &text).and_then(|there| {
            if there.replica.config()?.binding() != config.binding() {
                bail!("{text} is a replica of another store");
            }
            open_store(arguments, there.world, &text, Access::Read)
        });
        match opened {
            Ok(store) => stores.push(Box::new(store)),
            Err(error) => remark!("varve: {text} cannot be asked for what is lost here: {error:#}"),
        }
    }
    stores
}

/// How often a passphrase is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// It is known already.
    Once,
    /// It is new, and a slip would lock everybody out.
    Twice,
}

/// A command may open the store twice, and its replicas; the first answer does for all of them.
/// The second one is that for a store which is copied from.
static ANSWER: Mutex<[Option<Zeroizing<String>>; 2]> = Mutex::new([None, None]);

/// Wipes the passphrase that was typed: nothing is opened any more.
pub fn forget_answer() {
    *ANSWER.lock().unwrap_or_else(PoisonError::into_inner) = [None, None];
}

/// What opens the store: a key file, the environment, or an answer.
pub fn secret(arguments: &Arguments, asked: Asked) -> Result<Secret> {
    if let Some(file) = &arguments.key_file {
        return key_file(file);
    }
    let of_source = arguments.is_source.then(|| std::env::var(FROM_PASSPHRASE).ok()).flatten();
    if let Some(passphrase) = of_source.or_else(|| std::env::var(PASSPHRASE).ok()) {
        return Ok(Secret::Passphrase(Zeroizing::new(passphrase)));
    }
    if !std::io::stdin().is_terminal() {
        return Err(varve_store::KeyError::Missing.into());
    }
    let mut answers = ANSWER.lock().unwrap_or_else(PoisonError::into_inner);
    let [answer, of_source] = &mut *answers;
    let answer = if arguments.is_source { of_source } else { answer };
    if let Some(known) = answer.as_ref().filter(|_| asked == Asked::Once) {
        return Ok(Secret::Passphrase(known.clone()));
    }
    let prompt = if arguments.is_source { "Passphrase of the store to copy from: " } else { "Passphrase: " };
    let secret = ask(prompt, asked)?;
    if let Secret::Passphrase(passphrase) = &secret {
        *answer = Some(passphrase.clone());
    }
    Ok(secret)
}

fn ask(prompt: &str, asked: Asked) -> Result<Secret> {
    let passphrase = Zeroizing::new(rpassword::prompt_password(prompt)?);
    if asked == Asked::Twice && *Zeroizing::new(rpassword::prompt_password("Again: ")?) != *passphrase {
        bail!("the two passphrases differ");
    }
    Ok(Secret::Passphrase(passphrase))
}

/// What is to open a new key: a key file, the environment, or an answer.
pub fn new_secret(words: &NewSecret) -> Result<Secret> {
    if let Some(file) = &words.new_key_file {
        return key_file(file);
    }
    if let Ok(passphrase) = std::env::var(NEW_PASSPHRASE)
        && !words.new_passphrase
    {
        return Ok(Secret::Passphrase(Zeroizing::new(passphrase)));
    }
    if !std::io::stdin().is_terminal() {
        bail!("what is to open the new key? Name it with --new-key-file, or set {NEW_PASSPHRASE}");
    }
    ask("New passphrase: ", Asked::Twice)
}

/// What trying a new passphrase is to cost.
pub fn cost(words: &Cost) -> Result<PassphraseCost> {
    let memory_kib = u32::try_from(words.memory >> 10).ok();
    let chosen = memory_kib.and_then(|memory_kib| PassphraseCost::chosen(memory_kib, words.passes));
    chosen.with_context(|| {
        format!("--memory {} --passes {}: from 8M to 4G, and from 1 to 64 passes", words.memory, words.passes)
    })
}

/// The keys of the store.
pub fn keyring(arguments: &Arguments) -> Result<Keyring> {
    let path = store_path(arguments)?;
    Keyring::of(&World::real(&path)).with_context(|| format!("cannot open the store {}", path.display()))
}

fn key_file(file: &Path) -> Result<Secret> {
    use std::io::Read;
    let mut contents = Zeroizing::new(Vec::new());
    std::fs::File::open(file)
        .and_then(|opened| opened.take(KEY_FILE_BYTES_MAX).read_to_end(&mut contents))
        .with_context(|| format!("cannot read the key file {}", file.display()))?;
    Ok(Secret::KeyFile(contents))
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
