//! One file of `keys/`: the keys of a store, wrapped with one secret.
//! `docs/internals/format.md`, section 1.

use serde::{Deserialize, Serialize};
use varve_block::{from_hex, to_hex};
use varve_log::{KEY_PAIR_BYTES, WRITER_KEYS_BYTES, unwrap_secret, wrap_secret};
use varve_world::FileName;
use zeroize::Zeroizing;

use super::secret::{PassphraseCost, Secret, WrappingKey, key_file_key, passphrase_key};
use super::{FOLDER, KeyError};
use crate::config::StoreConfig;
use crate::role::Role;

/// The longest label, in bytes.
pub(super) const LABEL_BYTES_MAX: usize = 200;
/// The length of the code behind wrapped keys.
const TAG_BYTES: usize = 16;

/// The form of the file.
#[derive(Serialize, Deserialize)]
struct SlotFile {
    kind: SecretKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<Role>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_kib: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    passes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lanes: Option<u32>,
    salt: String,
    wrapped: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SecretKind {
    Passphrase,
    KeyFile,
}

/// The description of a key in its file. It is known to be unchanged once the key opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyEntry {
    /// The name of the file, without the ending.
    pub id: String,
    /// The owner's name for the key.
    pub label: String,
    /// The time when it was made, in seconds since 1970; unknown for the first keys of early
    /// stores.
    pub created: Option<u64>,
    pub role: Role,
    /// The cost of the passphrase that opens the key; `None` if a key file opens it.
    pub passphrase: Option<PassphraseCost>,
}

/// Wrapped keys.
pub(super) struct KeySlot {
    pub(super) entry: KeyEntry,
    /// Early files have no id, and their keys are bound to less of the file.
    has_id: bool,
    salt: Vec<u8>,
    wrapped: Vec<u8>,
}

/// The reason why a file is not a key that this program can open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotFault {
    Damaged,
    /// A newer program made the key: it has another kind or another role.
    Newer,
}

impl KeyEntry {
    /// Returns the name of the key's file.
    pub(super) fn file(&self) -> FileName {
        FileName::new(&format!("{FOLDER}/{}.toml", self.id))
            .expect("ids are checked when they are read or made")
    }

    /// Returns the text that a wrapped key is bound to. The label comes last, since it may hold any
    /// characters.
    fn text(&self) -> String {
        let kind = if self.passphrase.is_some() { "passphrase" } else { "key-file" };
        let (id, role, created) = (&self.id, self.role, self.created.unwrap_or_default());
        let label = &self.label;
        format!(
            "varve key 1\nid = {id}\nkind = {kind}\nrole = {role}\ncreated = {created}\nlabel = {label}\n"
        )
    }
}

impl KeySlot {
    /// Wraps `keys` for a new file.
    pub(super) fn wrap(
        entry: KeyEntry,
        config: &StoreConfig,
        secret: &Secret,
        salt: [u8; 16],
        keys: &[u8],
    ) -> Result<(Self, WrappingKey), KeyError> {
        let mut slot = Self { entry, has_id: true, salt: salt.to_vec(), wrapped: Vec::new() };
        let key = slot.wrapping_key(secret).ok_or(KeyError::Cost)?;
        slot.wrapped = wrap_secret(&key, &slot.associated(config), keys);
        Ok((slot, key))
    }

    /// Returns the key that the keys are wrapped with; `None` if the secret is of the other kind,
    /// or the settings of Argon2id are out of bounds.
    pub(super) fn wrapping_key(&self, secret: &Secret) -> Option<WrappingKey> {
        match (self.entry.passphrase, secret) {
            (Some(cost), Secret::Passphrase(passphrase)) => passphrase_key(passphrase, &self.salt, cost),
            (None, Secret::KeyFile(contents)) => Some(key_file_key(contents, &self.salt)),
            _ => None,
        }
    }

    /// Returns the memory that is filled to try a passphrase, in all passes together, in KiB; 0 for
    /// a key file.
    pub(super) fn work(&self) -> u64 {
        self.entry.passphrase.map_or(0, PassphraseCost::work)
    }

    pub(super) fn is_for(&self, secret: &Secret) -> bool {
        self.entry.passphrase.is_some() == matches!(secret, Secret::Passphrase(_))
    }

    /// Returns the keys, if `key` is the one that they are wrapped with.
    pub(super) fn unwrap(&self, config: &StoreConfig, key: &WrappingKey) -> Option<Zeroizing<Vec<u8>>> {
        let keys = unwrap_secret(key, &self.associated(config), &self.wrapped).ok()?;
        wraps(self.entry.role, keys.len()).then_some(keys)
    }

    fn associated(&self, config: &StoreConfig) -> Vec<u8> {
        let mut associated = config.binding().to_vec();
        if self.has_id {
            associated.extend_from_slice(self.entry.text().as_bytes());
        }
        associated
    }

    /// Returns a checksum that distinguishes a damaged file from a wrong secret. It finds accidents
    /// only: the wrapped keys have a code of their own.
    fn check(&self) -> String {
        let cost = self.entry.passphrase.map_or(String::new(), |cost| {
            let PassphraseCost { memory_kib, passes, lanes } = cost;
            format!("memory_kib = {memory_kib}\npasses = {passes}\nlanes = {lanes}\n")
        });
        let (salt, wrapped) = (to_hex(&self.salt), to_hex(&self.wrapped));
        checksum(&format!("{}{cost}salt = {salt}\nwrapped = {wrapped}\n", self.entry.text()))
    }

    /// Returns the file's contents.
    pub(super) fn to_text(&self) -> String {
        let KeyEntry { id, label, created, role, passphrase } = &self.entry;
        let file = SlotFile {
            kind: if passphrase.is_some() { SecretKind::Passphrase } else { SecretKind::KeyFile },
            id: Some(id.clone()),
            role: Some(*role),
            created: *created,
            label: Some(label.clone()),
            memory_kib: passphrase.map(|cost| cost.memory_kib),
            passes: passphrase.map(|cost| cost.passes),
            lanes: passphrase.map(|cost| cost.lanes),
            salt: to_hex(&self.salt),
            wrapped: to_hex(&self.wrapped),
            check: Some(self.check()),
        };
        toml::to_string(&file).expect("plain values always serialise")
    }

    /// Parses a file.
    pub(super) fn parse(name: &FileName, contents: &[u8]) -> Result<Self, SlotFault> {
        let is_newer = || is_of_unknown_kind(contents).unwrap_or(false);
        Self::parsed(name, contents)
            .ok_or_else(|| if is_newer() { SlotFault::Newer } else { SlotFault::Damaged })
    }

    fn parsed(name: &FileName, contents: &[u8]) -> Option<Self> {
        let stem = name.as_str().strip_prefix(FOLDER)?.strip_prefix('/')?.strip_suffix(".toml")?;
        let file: SlotFile = toml::from_str(std::str::from_utf8(contents).ok()?).ok()?;
        let passphrase = match (file.kind, file.memory_kib, file.passes, file.lanes) {
            (SecretKind::Passphrase, Some(memory_kib), Some(passes), Some(lanes)) => {
                Some(PassphraseCost { memory_kib, passes, lanes })
            }
            (SecretKind::KeyFile, None, None, None) => None,
            _ => return None,
        };
        // Early files have none of these fields; all others have every one.
        let says = [
            file.id.is_some(),
            file.role.is_some(),
            file.created.is_some(),
            file.label.is_some(),
            file.check.is_some(),
        ];
        let has_id = says.contains(&true);
        if has_id && says.contains(&false) || file.id.is_some_and(|id| id != stem) {
            return None;
        }
        let (role, label) = (file.role.unwrap_or(Role::Full), file.label.unwrap_or_default());
        let created = file.created;
        let (salt, wrapped) = (from_hex(&file.salt).ok()?, from_hex(&file.wrapped).ok()?);
        let entry = KeyEntry { id: stem.into(), label, created, role, passphrase };
        let slot = Self { entry, has_id, salt, wrapped };
        let is_sound = slot.salt.len() == 16
            && slot.wrapped.len().checked_sub(TAG_BYTES).is_some_and(|length| wraps(role, length))
            && slot.entry.label.len() <= LABEL_BYTES_MAX
            && (!has_id || file.check == Some(slot.check()));
        is_sound.then_some(slot)
    }
}

/// Returns true if a file is undamaged, and its kind or its role is none that this program knows.
/// `check` covers the same keys in all versions.
fn is_of_unknown_kind(contents: &[u8]) -> Option<bool> {
    let file: toml::Table = toml::from_str(std::str::from_utf8(contents).ok()?).ok()?;
    let text = |key: &str| file.get(key).and_then(toml::Value::as_str);
    let number = |key: &str| file.get(key).and_then(toml::Value::as_integer);
    let (kind, role) = (text("kind")?, text("role")?);
    let is_known = SecretKind::deserialize(file.get("kind")?.clone()).is_ok()
        && Role::deserialize(file.get("role")?.clone()).is_ok();
    let (id, created, label) = (text("id")?, number("created")?, text("label")?);
    let mut covered = format!(
        "varve key 1\nid = {id}\nkind = {kind}\nrole = {role}\ncreated = {created}\nlabel = {label}\n"
    );
    for key in ["memory_kib", "passes", "lanes"] {
        covered.extend(number(key).map(|value| format!("{key} = {value}\n")));
    }
    covered.extend([format!("salt = {}\nwrapped = {}\n", text("salt")?, text("wrapped")?)]);
    Some(!is_known && text("check")? == checksum(&covered))
}

fn checksum(text: &str) -> String {
    to_hex(&blake3::hash(text.as_bytes()).as_bytes()[..8])
}

/// Returns whether a slot of this role wraps keys of this length. An early write-only key has no
/// origin key.
fn wraps(role: Role, keys_bytes: usize) -> bool {
    match role {
        Role::Full => keys_bytes == 32,
        Role::AppendOnly => keys_bytes == KEY_PAIR_BYTES,
        Role::WriteOnly => keys_bytes == KEY_PAIR_BYTES || keys_bytes == WRITER_KEYS_BYTES,
    }
}
