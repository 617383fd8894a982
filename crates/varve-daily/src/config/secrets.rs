//! The places of secrets.

use std::path::{Path, PathBuf};

use super::reader::{TableReader, local_path};

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
    /// A program that prints the contents of the key file, and its arguments.
    KeyFileCommand(Vec<String>),
    PassphraseFile(Credential),
    /// A program that prints the passphrase, and its arguments.
    PassphraseCommand(Vec<String>),
}

/// Reads the secret of a store; `None` if none is set.
pub(super) fn read_store_key(reader: &mut TableReader<'_>, folder: &Path) -> Option<StoreKey> {
    let key_file = reader.parsed("key-file", |text| credential(text, folder));
    let key_file_command = reader.program("key-file-command");
    let passphrase_file = reader.parsed("passphrase-file", |text| credential(text, folder));
    let command = reader.program("passphrase-command");
    let places = [
        key_file.as_ref().map(|found| &found.place),
        key_file_command.as_ref().map(|found| &found.place),
        passphrase_file.as_ref().map(|found| &found.place),
        command.as_ref().map(|found| &found.place),
    ];
    if let [_, second, ..] = places.into_iter().flatten().collect::<Vec<_>>().as_slice() {
        let text = "a store has one of key-file, key-file-command, passphrase-file and passphrase-command";
        reader.faults().add(second, text);
    }
    None.or(key_file.map(|found| StoreKey::KeyFile(found.value)))
        .or(key_file_command.map(|found| StoreKey::KeyFileCommand(found.value)))
        .or(passphrase_file.map(|found| StoreKey::PassphraseFile(found.value)))
        .or(command.map(|found| StoreKey::PassphraseCommand(found.value)))
}

fn credential(text: &str, folder: &Path) -> Result<Credential, String> {
    match text.strip_prefix(SYSTEMD) {
        Some(name) if name.is_empty() || name.contains('/') || name.starts_with('.') => {
            Err(format!("{name:?} is not the name of a credential"))
        }
        Some(name) => Ok(Credential::Systemd(name.to_owned())),
        None => local_path(text, folder).map(Credential::File),
    }
}
