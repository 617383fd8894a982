//! From the words of a command to an open store.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use varve_archive::Archive;
use varve_store::{
    Access, Encryption, Keyring, PassphraseCost, Permission, RebuildProgress, Secret, Store, StoreConfig,
};
use varve_world::{Clock, RealClock, RealRandom, RealStorage, RealWorkers, World};
use zeroize::Zeroizing;

use crate::arguments::{Arguments, Cost, NewSecret, WrongWords};
use crate::moment;

const PASSPHRASE: &str = "VARVE_PASSPHRASE";
const NEW_PASSPHRASE: &str = "VARVE_NEW_PASSPHRASE";
const KEY_FILE_BYTES_MAX: u64 = 1 << 20;

/// The store's folder.
pub fn store_path(arguments: &Arguments) -> Result<PathBuf> {
    let unnamed = || WrongWords("which store? Name it with --store, or in VARVE_STORE".into());
    Ok(arguments.store.clone().ok_or_else(unnamed)?)
}

/// The real world, with the store's folder as its storage.
pub fn world(path: &Path) -> World {
    World {
        storage: Arc::new(RealStorage::new(path)),
        clock: Arc::new(RealClock),
        random: Arc::new(RealRandom),
        workers: Arc::new(RealWorkers::one_a_core()),
    }
}

/// The machine's name, to be remembered with a snapshot.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Opens the store to be read, with its catalog.
pub fn read(arguments: &Arguments) -> Result<Archive> {
    let store = read_store(arguments)?;
    store.role().require(Permission::Read)?;
    Ok(Archive::open(store)?)
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

/// Opens another store to be read.
pub fn read_store_at(arguments: &Arguments, path: &Path) -> Result<Store> {
    open(arguments, path, Access::Read)
}

/// Opens the store to be written.
pub fn write_store(arguments: &Arguments) -> Result<Store> {
    let now = moment::show(RealClock.now());
    let holder = format!("process {} on {}, since {now}", std::process::id(), host_name());
    open(arguments, &store_path(arguments)?, Access::Write { holder: &holder })
}

fn open(arguments: &Arguments, path: &Path, access: Access<'_>) -> Result<Store> {
    let world = world(path);
    let context = || format!("cannot open the store {}", path.display());
    let secret = match Store::read_config(&world).with_context(context)?.encryption {
        Encryption::Aes256Gcm => Some(secret(arguments, Asked::Once)?),
        // Somebody who expects a key to be needed must not be served from a store that was put in the place of theirs.
        Encryption::None if arguments.key_file.is_some() => {
            bail!(
                "{} is not encrypted, but a key file was given: it is not the store that the key is for",
                path.display()
            )
        }
        Encryption::None => None,
    };
    let mut bar = RebuildBar::new(arguments.quiet);
    Store::open(world, secret.as_ref(), access, &mut |progress| bar.show(progress)).with_context(context)
}

/// How often a passphrase is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// It is known already.
    Once,
    /// It is new, and a slip would lock everybody out.
    Twice,
}

/// What opens the store: a key file, the environment, or an answer.
pub fn secret(arguments: &Arguments, asked: Asked) -> Result<Secret> {
    if let Some(file) = &arguments.key_file {
        return key_file(file);
    }
    if let Ok(passphrase) = std::env::var(PASSPHRASE) {
        return Ok(Secret::Passphrase(Zeroizing::new(passphrase)));
    }
    if !std::io::stdin().is_terminal() {
        return Err(varve_store::KeyError::Missing.into());
    }
    ask("Passphrase: ", asked)
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
    Keyring::of(&world(&path)).with_context(|| format!("cannot open the store {}", path.display()))
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
