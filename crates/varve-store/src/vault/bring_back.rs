//! Puts back settings and keys that a store has lost, from a copy or a replica. Without these small
//! files nothing else opens.
//!
//! They are not secret and hardly ever change, so every copy has them. Only files that are missing
//! or unreadable are put back, and the old contents are copied to the quarantine first. Before
//! anything is written, the arenas show whether the copy is one of this store.

use std::io;

use varve_block::to_hex;
use varve_log::{ArenaHeader, ArenaId};
use varve_world::{FileName, Storage, World};

use super::unlock::{CONFIG_BYTES_MAX, sign_of_encryption};
use crate::config::{ConfigError, Encryption, StoreConfig};
use crate::keyring::{self, KeyError, Secret};

const CONFIG: &str = "config.toml";

/// The folder of damaged files that were replaced. Readers ignore it, and nothing refers to it.
pub const QUARANTINE: &str = "quarantine";

/// Settings were not put back. Files that the error does not name may have been.
#[derive(Debug, thiserror::Error)]
pub enum BringBackError {
    /// The copy's own settings are invalid.
    #[error("the copy's config.toml cannot be used")]
    Config(#[from] ConfigError),
    /// The arenas here belong to another store.
    #[error("the copy belongs to store {theirs}, but the arenas here do not")]
    OtherStore {
        /// The copy's identity.
        theirs: String,
    },
    /// Neither a key nor the arenas confirm the copy's settings.
    #[error(
        "the copy's config.toml does not match this store's keys: it was changed, or belongs to another store"
    )]
    Unfit,
    /// The keys of this store could not be read.
    #[error("{0}")]
    Keys(#[from] KeyError),
    /// A file of the copy could not be read, or a file here not written.
    #[error("{file}")]
    Storage { file: FileName, source: io::Error },
}

fn name(text: &str) -> FileName {
    FileName::new(text).expect("a plain name")
}

fn failed(file: &FileName) -> impl FnOnce(io::Error) -> BringBackError {
    let file = file.clone();
    move |source| BringBackError::Storage { file, source }
}

/// Reads a file; `None` if it is missing.
fn read(storage: &dyn Storage, file: &FileName) -> Result<Option<Vec<u8>>, BringBackError> {
    match storage.read_whole(file, CONFIG_BYTES_MAX) {
        Ok(contents) => Ok(Some(contents)),
        // A file that is far too long counts as damaged.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Some(Vec::new())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(file)(error)),
    }
}

fn parse(contents: &[u8]) -> Result<StoreConfig, ConfigError> {
    StoreConfig::from_text(&String::from_utf8_lossy(contents))
}

/// Returns true if a secret is needed to trust the settings of a copy.
///
/// # Errors
/// [`BringBackError`], when they cannot be read.
pub fn settings_need_secret(copy: &dyn Storage) -> Result<bool, BringBackError> {
    let theirs = read(copy, &name(CONFIG))?.map(|text| parse(&text)).transpose()?;
    Ok(theirs.is_some_and(|theirs| theirs.encryption != Encryption::None))
}

/// Puts back `config.toml` and the keys that the store in `world` has lost, from
/// `copy`, and returns the names of these files. Good files stay. A `config.toml` is trusted only
/// if `secret` opens one of the keys with it, since the keeper of the copy could have changed it.
/// Keys are put back only in the place of damaged ones, or if there is none at all: a key that was
/// removed must not come back.
///
/// # Errors
/// [`BringBackError`].
pub fn bring_back_settings(
    world: &World,
    copy: &dyn Storage,
    secret: Option<&Secret>,
) -> Result<Vec<FileName>, BringBackError> {
    let here = world.storage.as_ref();
    let config = name(CONFIG);
    let Some(text) = read(copy, &config)? else { return Ok(Vec::new()) };
    let theirs = parse(&text)?;
    let own = read(here, &config)?;
    let is_good =
        own.as_deref().and_then(|own| parse(own).ok()).is_some_and(|own| own.binding() == theirs.binding());
    let mut put_back = Vec::new();
    if !is_good {
        if !may_be_of(here, &theirs.id)? {
            return Err(BringBackError::OtherStore { theirs: to_hex(&theirs.id) });
        }
        if !fits(here, copy, &theirs, secret)? {
            return Err(BringBackError::Unfit);
        }
        if let Some(own) = own {
            set_aside(here, &config, &own)?;
        }
        here.replace(&config, &text).map_err(failed(&config))?;
        put_back.push(config);
    }
    if theirs.encryption != Encryption::None {
        bring_back_keys(here, copy, &mut put_back)?;
    }
    Ok(put_back)
}

/// Returns true if the copy's settings are confirmed by something that cannot be forged: a key
/// opens with them. If they say that nothing is encrypted, they are confirmed if nothing here is
/// encrypted.
fn fits(
    here: &dyn Storage,
    copy: &dyn Storage,
    theirs: &StoreConfig,
    secret: Option<&Secret>,
) -> Result<bool, BringBackError> {
    if theirs.encryption == Encryption::None {
        let sign = sign_of_encryption(here).map_err(failed(&name(CONFIG)))?;
        return Ok(sign.is_none());
    }
    let opens = |keys: &dyn Storage| -> Result<bool, BringBackError> {
        match keyring::open(keys, theirs, secret) {
            Ok(_) => Ok(true),
            Err(error @ (KeyError::Missing | KeyError::Storage(_) | KeyError::NotAllTried { .. })) => {
                Err(error.into())
            }
            Err(_) => Ok(false),
        }
    };
    // The keys of the copy are as good, since a key is bound to its settings.
    Ok(opens(here)? || opens(copy)?)
}

fn bring_back_keys(
    here: &dyn Storage,
    copy: &dyn Storage,
    put_back: &mut Vec<FileName>,
) -> Result<(), BringBackError> {
    let (sound_count, damaged) = keyring::sound_and_damaged(here)?;
    let wanted = match (sound_count, damaged.is_empty()) {
        (0, true) => copy.list(keyring::FOLDER).map_err(failed(&name(keyring::FOLDER)))?,
        _ => damaged,
    };
    for file in wanted.into_iter().filter(|file| file.as_str().ends_with(".toml")) {
        let Some(contents) = read(copy, &file)?.filter(|contents| keyring::is_sound(&file, contents)) else {
            continue;
        };
        if let Some(own) = read(here, &file)? {
            set_aside(here, &file, &own)?;
        }
        here.replace(&file, &contents).map_err(failed(&file))?;
        put_back.push(file);
    }
    Ok(())
}

/// Returns true if the arenas here may belong to this store: one of them says so, or none names
/// another store. Arenas that do not tell are ignored.
fn may_be_of(storage: &dyn Storage, id: &[u8; 16]) -> Result<bool, BringBackError> {
    let folder = name(ArenaId::FOLDER);
    let mut is_any_other = false;
    for file in storage.list(ArenaId::FOLDER).map_err(failed(&folder))? {
        let mut start = [0; 32];
        if ArenaId::of_file(&file).is_none() || storage.read_at(&file, 0, &mut start).is_err() {
            continue;
        }
        match ArenaHeader::claimed_store(&start) {
            Some(claimed) if claimed == *id => return Ok(true),
            claimed => is_any_other |= claimed.is_some(),
        }
    }
    Ok(!is_any_other)
}

/// Keeps a copy of a file that is about to be replaced.
fn set_aside(storage: &dyn Storage, file: &FileName, contents: &[u8]) -> Result<(), BringBackError> {
    let own = file.as_str().rsplit('/').next().unwrap_or_default();
    let taken = storage.list(QUARANTINE).map_err(failed(file))?;
    let free = (1..).map(|number: u32| name(&format!("{QUARANTINE}/{own}.{number}")));
    let free = free.into_iter().find(|name| !taken.contains(name)).expect("numbers do not end");
    storage.replace(&free, contents).map_err(failed(&free))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use varve_world::{FixedClock, MemoryStorage, RealWorkers, SeededRandom, Timestamp};
    use zeroize::Zeroizing;

    use super::*;
    use crate::{PassphraseCost, Secret, Store, StoreAccess};

    fn world(storage: &MemoryStorage, seed: u64) -> World {
        World {
            storage: Arc::new(storage.clone()),
            clock: Arc::new(FixedClock(Timestamp(0))),
            random: Arc::new(SeededRandom::new(seed)),
            workers: Arc::new(RealWorkers::new(1)),
        }
    }

    fn secret() -> Secret {
        Secret::KeyFile(Zeroizing::new(vec![7; 32]))
    }

    /// Makes a store with an arena.
    fn store(id: u8) -> MemoryStorage {
        let storage = MemoryStorage::new();
        let world = world(&storage, id.into());
        let config = StoreConfig::new([id; 16]);
        Store::create(&world, &config, Some(&secret()), PassphraseCost::default()).unwrap();
        let store =
            Store::open(world, Some(&secret()), StoreAccess::Write { holder: "test" }, &mut |_| {}).unwrap();
        let block = varve_block::Block { block_type: varve_block::BlockType::CATALOG, bytes: b"block" };
        varve_block::BlockStore::put(&store, block).unwrap();
        store.close().unwrap();
        storage
    }

    fn contents(storage: &MemoryStorage, file: &FileName) -> Vec<u8> {
        read(storage, file).unwrap().unwrap()
    }

    fn opens(storage: &MemoryStorage) -> bool {
        Store::open(world(storage, 9), Some(&secret()), StoreAccess::Read, &mut |_| {}).is_ok()
    }

    #[test]
    fn what_is_lost_comes_back_and_the_rest_stays() {
        let whole = store(1);
        let copy = whole.fork();
        let key = whole.list(keyring::FOLDER).unwrap().remove(0);
        assert_eq!(bring_back_settings(&world(&whole, 2), &copy, Some(&secret())).unwrap(), []);
        let config = name(CONFIG);
        let harms: [(&FileName, Option<&[u8]>); 4] =
            [(&config, None), (&config, Some(b"rubbish")), (&key, None), (&key, Some(b"rubbish"))];
        for (file, harm) in harms {
            let hurt = whole.fork();
            match harm {
                Some(bytes) => hurt.set_contents(file, bytes.to_vec()),
                None => hurt.remove(file).unwrap(),
            }
            assert!(!opens(&hurt), "{file}");
            assert_eq!(
                bring_back_settings(&world(&hurt, 2), &copy, Some(&secret())).unwrap(),
                std::slice::from_ref(file)
            );
            assert!(opens(&hurt), "{file}");
            assert_eq!(hurt.list(QUARANTINE).unwrap().len(), usize::from(harm.is_some()), "{file}");
        }
    }

    #[test]
    fn a_value_that_was_changed_comes_back_too() {
        let whole = store(1);
        let hurt = whole.fork();
        let text = String::from_utf8(contents(&hurt, &name(CONFIG))).unwrap();
        hurt.set_contents(&name(CONFIG), text.replace("blake3", "sha1").into_bytes());
        assert!(!opens(&hurt));
        assert_eq!(bring_back_settings(&world(&hurt, 2), &whole, Some(&secret())).unwrap(), [name(CONFIG)]);
        assert!(opens(&hurt));
    }

    #[test]
    fn another_stores_settings_are_not_taken() {
        let (own, other) = (store(1), store(2));
        own.remove(&name(CONFIG)).unwrap();
        let before = own.names();
        let refused = bring_back_settings(&world(&own, 2), &other, Some(&secret()));
        assert!(matches!(refused, Err(BringBackError::OtherStore { .. })), "{refused:?}");
        assert_eq!(own.names(), before);
        let nothing = bring_back_settings(&world(&own, 2), &MemoryStorage::new(), Some(&secret()));
        assert_eq!(nothing.unwrap(), []);
    }

    #[test]
    fn settings_that_no_key_vouches_for_are_not_taken() {
        let own = store(1);
        let text = String::from_utf8(contents(&own, &name(CONFIG))).unwrap();
        for (from, to) in [("aes-256-gcm", "none"), ("blake3", "sha1")] {
            let copy = own.fork();
            assert!(text.contains(from));
            copy.set_contents(&name(CONFIG), text.replace(from, to).into_bytes());
            for is_lost in [false, true] {
                let own = own.fork();
                if is_lost {
                    own.remove(&name(CONFIG)).unwrap();
                }
                let refused = bring_back_settings(&world(&own, 2), &copy, Some(&secret()));
                assert!(matches!(refused, Err(BringBackError::Unfit)), "{to}: {refused:?}");
                assert_eq!(opens(&own), !is_lost);
            }
        }
    }

    #[test]
    fn a_store_with_keys_or_encrypted_arenas_is_not_taken_for_a_plain_one() {
        let own = store(1);
        let text = String::from_utf8(contents(&own, &name(CONFIG))).unwrap();
        own.set_contents(&name(CONFIG), text.replace("aes-256-gcm", "none").into_bytes());
        let refused = || {
            let opened =
                Store::open(world(&own, 9), None, StoreAccess::Write { holder: "test" }, &mut |_| {});
            opened.map(drop).unwrap_err()
        };
        let crate::OpenStoreError::Downgraded { found } = refused() else {
            panic!("it is opened as a plain store")
        };
        own.remove(&found).unwrap();
        let crate::OpenStoreError::Downgraded { found } = refused() else {
            panic!("it is opened as a plain store")
        };
        assert!(ArenaId::of_file(&found).is_some(), "{found}");
        let unlocked = super::super::unlock(&world(&own, 9), None).map(drop);
        assert!(matches!(unlocked, Err(crate::OpenStoreError::Downgraded { .. })));
    }

    #[test]
    fn a_key_that_was_removed_does_not_come_back() {
        let own = store(1);
        let copy = own.fork();
        let key = own.list(keyring::FOLDER).unwrap().remove(0);
        let extra = name("keys/0123456789abcdef.toml");
        copy.set_contents(&extra, contents(&copy, &key));
        assert_eq!(bring_back_settings(&world(&own, 2), &copy, Some(&secret())).unwrap(), []);
        assert_eq!(own.list(keyring::FOLDER).unwrap(), [key]);
    }
}
