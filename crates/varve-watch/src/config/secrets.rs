//! The places of secrets.

use std::path::{Path, PathBuf};

use super::reader::TableReader;

/// The prefix of a credential that systemd passes to a service.
const SYSTEMD: &str = "credential:";

/// The file with a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    File(PathBuf),
    /// A file of this name in `$CREDENTIALS_DIRECTORY`.
    Systemd(String),
}

/// The way to open a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreKey {
    KeyFile(Credential),
    PassphraseFile(Credential),
    /// A program that prints the passphrase, and its arguments.
    PassphraseCommand(Vec<String>),
}

/// Reads the secret of a store; `None` if none is set.
pub(super) fn read_store_key(reader: &mut TableReader<'_>, folder: &Path) -> Option<StoreKey> {
    let key_file = reader.parsed("key-file", |text| credential(text, folder));
    let passphrase_file = reader.parsed("passphrase-file", |text| credential(text, folder));
    let command = reader.program("passphrase-command");
    let places = [
        key_file.as_ref().map(|found| &found.place),
        passphrase_file.as_ref().map(|found| &found.place),
        command.as_ref().map(|found| &found.place),
    ];
    if let [_, second, ..] = places.into_iter().flatten().collect::<Vec<_>>().as_slice() {
        reader.faults().add(second, "a store has one of key-file, passphrase-file and passphrase-command");
    }
    let key_file = key_file.map(|found| StoreKey::KeyFile(found.value));
    let passphrase_file = passphrase_file.map(|found| StoreKey::PassphraseFile(found.value));
    key_file.or(passphrase_file).or(command.map(|found| StoreKey::PassphraseCommand(found.value)))
}

fn credential(text: &str, folder: &Path) -> Result<Credential, String> {
    match text.strip_prefix(SYSTEMD) {
        Some(name) if name.is_empty() || name.contains('/') || name.starts_with('.') => {
            Err(format!("{name:?} is not the name of a credential"))
        }
        Some(name) => Ok(Credential::Systemd(name.to_owned())),
        None => Ok(Credential::File(folder.join(text))),
    }
}
