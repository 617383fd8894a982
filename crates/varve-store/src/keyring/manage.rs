//! Makes, changes and removes keys. Stored data does not change: only the wrapping of the keys
//! does.

use std::sync::Arc;

use varve_block::to_hex;
use varve_log::{LockedMemory, LogKeys};
use varve_world::{Clock, FileLock, FileName, Random, Storage, World};
use zeroize::Zeroizing;

use super::paper::PaperKey;
use super::slot::LABEL_BYTES_MAX;
use super::{
    FOLDER, KEYS_MAX, KeyEntry, KeyError, KeySlot, OpenedKey, PassphraseCost, Secret, open, own_key, slots,
};
use crate::config::{CompareMode, StoreConfig};
use crate::origin::Origin;
use crate::role::{Permission, Role};

const NANOSECONDS: i64 = 1_000_000_000;

/// The description of a key that is to be made.
pub struct NewKey<'a> {
    /// The secret that will open it.
    pub secret: &'a Secret,
    /// The cost of trying a passphrase.
    pub cost: PassphraseCost,
    /// The owner's name for it.
    pub label: &'a str,
    pub role: Role,
}

/// The keys of one store.
pub struct Keyring {
    storage: Arc<dyn Storage>,
    random: Arc<dyn Random>,
    clock: Arc<dyn Clock>,
    config: StoreConfig,
}

impl Keyring {
    pub(crate) fn new(world: &World, config: StoreConfig) -> Self {
        let World { storage, random, clock, .. } = world;
        Self { storage: Arc::clone(storage), random: Arc::clone(random), clock: Arc::clone(clock), config }
    }

    /// Draws a master key for a new store, and writes it wrapped with one secret. Returns the keys
    /// that it gives.
    pub(crate) fn create(&self, secret: &Secret, cost: PassphraseCost) -> Result<LogKeys, KeyError> {
        let mut master = LockedMemory::<[u8; 32]>::default();
        self.random.fill(&mut *master)?;
        let new = NewKey { secret, cost, label: "", role: Role::Full };
        self.write(&new, |_| Ok(Zeroizing::new(master.to_vec())))?;
        Ok(LogKeys::from_master(&master))
    }

    /// Lists the sound keys, and the files of the damaged ones. Opens none.
    ///
    /// # Errors
    /// [`KeyError::Storage`].
    pub fn list(&self) -> Result<(Vec<KeyEntry>, Vec<FileName>), KeyError> {
        let found = slots(self.storage.as_ref())?;
        let mut entries: Vec<_> = found.sound.into_values().map(|slot| slot.entry).collect();
        entries.sort_by(|one, other| (one.created, &one.id).cmp(&(other.created, &other.id)));
        Ok((entries, found.damaged))
    }

    /// Lists the files of keys that a newer program made.
    ///
    /// # Errors
    /// [`KeyError::Storage`].
    pub fn newer(&self) -> Result<Vec<FileName>, KeyError> {
        Ok(slots(self.storage.as_ref())?.newer)
    }

    /// Opens the key that a secret opens.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn unlock(&self, secret: &Secret) -> Result<OpenedKey, KeyError> {
        open(self.storage.as_ref(), &self.config, Some(secret))
    }

    /// Makes a key. It is durable when this returns.
    ///
    /// # Errors
    /// [`KeyError`]; the keys are as they were.
    pub fn add(&self, by: &OpenedKey, new: &NewKey<'_>) -> Result<KeyEntry, KeyError> {
        let _lock = self.lock()?;
        self.add_locked(by, new)
    }

    /// Makes a key of the same role and label as the key `by`, and then removes the file of `by`. A
    /// crash in between leaves both.
    ///
    /// # Errors
    /// [`KeyError`]; the keys are as they were, or the old one could not be removed and both exist.
    pub fn change(
        &self,
        by: &OpenedKey,
        secret: &Secret,
        cost: PassphraseCost,
    ) -> Result<KeyEntry, KeyError> {
        let _lock = self.lock()?;
        let label = &by.entry.label;
        let new = self.add_locked(by, &NewKey { secret, cost, label, role: by.entry.role })?;
        self.remove_file(&by.entry.file())?;
        Ok(new)
    }

    /// Removes the key whose id begins with `id`. Copies of its file that somebody has kept still
    /// open the store.
    ///
    /// # Errors
    /// [`KeyError::Last`] when no other full key would be left.
    pub fn remove(&self, by: &OpenedKey, id: &str) -> Result<String, KeyError> {
        by.entry.role.require(Permission::ManageKeys)?;
        let _lock = self.lock()?;
        let found = slots(self.storage.as_ref())?;
        let damaged = found.damaged.iter().chain(&found.newer).filter_map(|file| {
            file.as_str().strip_prefix(FOLDER)?.strip_prefix('/')?.strip_suffix(".toml").map(String::from)
        });
        let all = found.sound.values().map(|slot| slot.entry.id.clone()).chain(damaged);
        let mut candidates: Vec<_> = all.filter(|known| !id.is_empty() && known.starts_with(id)).collect();
        if let Some(exact) = candidates.iter().find(|known| *known == id).cloned() {
            candidates = vec![exact];
        }
        let chosen = match candidates.as_slice() {
            [one] => one.clone(),
            [] => return Err(KeyError::NoSuchKey { id: id.into() }),
            _ => return Err(KeyError::Ambiguous { id: id.into(), candidates }),
        };
        let is_full = |slot: &&KeySlot| slot.entry.role == Role::Full && slot.entry.id != chosen;
        if !found.sound.values().any(|slot| is_full(&slot)) {
            return Err(KeyError::Last { id: chosen });
        }
        self.remove_file(&FileName::new(&format!("{FOLDER}/{chosen}.toml")).expect("the name of a file"))?;
        Ok(chosen)
    }

    /// Returns the master key in a form that can be kept on paper.
    ///
    /// # Errors
    /// [`KeyError::NotPermitted`] for all but a full key.
    pub fn export(&self, by: &OpenedKey) -> Result<PaperKey, KeyError> {
        Ok(PaperKey::new(self.master_of(by)?, &self.config))
    }

    /// Opens the store with a paper key that was typed in.
    ///
    /// # Errors
    /// [`KeyError::Paper`] when it has a typing error, or is another store's.
    pub fn unlock_paper(&self, text: &str) -> Result<OpenedKey, KeyError> {
        let master = PaperKey::read(text, &self.config)?;
        let entry = KeyEntry {
            id: "paper".into(),
            label: String::new(),
            created: None,
            role: Role::Full,
            passphrase: None,
        };
        let (keys, own) = (LogKeys::from_master(&master), own_key(&master));
        Ok(OpenedKey { entry, keys, master: Some(master), own })
    }

    fn add_locked(&self, by: &OpenedKey, new: &NewKey<'_>) -> Result<KeyEntry, KeyError> {
        let master = self.master_of(by)?;
        if new.role == Role::WriteOnly && !tells_duplicates_by_name(self.config.compare) {
            return Err(KeyError::ByValue);
        }
        if slots(self.storage.as_ref())?.sound.len() >= KEYS_MAX {
            return Err(KeyError::TooMany);
        }
        if let Ok(known) = self.unlock(new.secret) {
            return Err(KeyError::Duplicate { what: new.secret.what(), id: known.entry.id });
        }
        let keys = by.log_keys();
        self.write(new, |id| match new.role {
            Role::Full => Ok(Zeroizing::new(master.to_vec())),
            Role::AppendOnly => wrappable(keys.read_and_names()),
            Role::WriteOnly => wrappable(keys.writer_keys(&Origin::new(Role::WriteOnly, id).holder())),
        })
    }

    /// Writes a new key, which wraps the keys that `keys_of` returns for its id.
    fn write(
        &self,
        new: &NewKey<'_>,
        keys_of: impl FnOnce(&str) -> Result<Zeroizing<Vec<u8>>, KeyError>,
    ) -> Result<KeyEntry, KeyError> {
        new.secret.check()?;
        if new.label.len() > LABEL_BYTES_MAX || new.label.chars().any(char::is_control) {
            return Err(KeyError::Label);
        }
        let (mut id, mut salt) = ([0; 8], [0; 16]);
        self.random.fill(&mut id)?;
        self.random.fill(&mut salt)?;
        let entry = KeyEntry {
            id: to_hex(&id),
            label: new.label.into(),
            created: Some(u64::try_from(self.clock.now().0 / NANOSECONDS).unwrap_or(0)),
            role: new.role,
            passphrase: matches!(new.secret, Secret::Passphrase(_)).then_some(new.cost),
        };
        let keys = keys_of(&entry.id)?;
        let (slot, _) = KeySlot::wrap(entry.clone(), &self.config, new.secret, salt, &keys)?;
        self.storage.replace(&entry.file(), slot.to_text().as_bytes())?;
        Ok(entry)
    }

    fn master_of<'a>(&self, by: &'a OpenedKey) -> Result<&'a [u8; 32], KeyError> {
        by.entry.role.require(Permission::ManageKeys)?;
        by.master.as_deref().ok_or(KeyError::Missing)
    }

    fn remove_file(&self, file: &FileName) -> Result<(), KeyError> {
        self.storage.remove(file)?;
        Ok(self.storage.sync_folder(FOLDER)?)
    }

    /// One process at a time: two that each remove one of the last two keys would leave none.
    fn lock(&self) -> Result<Box<dyn FileLock>, KeyError> {
        let file = FileName::new("keys-lock").expect("a plain name");
        Ok(self.storage.lock(&file, "another process that changes keys")?)
    }
}

/// A new way to compare has to state here whether it works without reading.
fn tells_duplicates_by_name(compare: CompareMode) -> bool {
    match compare {
        CompareMode::Hash => true,
        CompareMode::Value => false,
    }
}

fn wrappable<const N: usize>(keys: Option<Zeroizing<[u8; N]>>) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    keys.map(|keys| Zeroizing::new(keys.to_vec())).ok_or(KeyError::Missing)
}
