//! The location of a store: a folder, a replica, or a Venti server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use varve_remote::{TlsClientIdentity, VentiError, VentiOptions, VentiStore, VentiTls};
use varve_venti::Address;

use crate::failure::UsageError;
use crate::target;

/// Stands for the Venti server in the environment variable `venti`, as in programs of Plan 9.
const VENTI_VARIABLE: &str = "$venti";
/// The environment variable that names the client certificate, with its key, for Venti servers over
/// TLS.
const VENTI_CERTIFICATE: &str = "VARVE_VENTI_CERTIFICATE";

/// The location of a store.
pub enum StoreLocation {
    Folder(PathBuf),
    /// The text that names the target of a replica.
    Replica(String),
    /// A Venti server, which holds blocks and no store.
    Venti(Address),
}

/// Interprets a path or a URL.
pub fn home_at(path: &Path) -> Result<StoreLocation> {
    if let Some(text) = path.to_str().filter(|text| is_venti(text)) {
        let named = match text {
            VENTI_VARIABLE => {
                let value = std::env::var("venti").unwrap_or_default();
                if value.is_empty() {
                    bail!(UsageError(format!(
                        "{VENTI_VARIABLE} is not set: set it to the address of a Venti server"
                    )));
                }
                value
            }
            text => text.to_owned(),
        };
        return Ok(StoreLocation::Venti(named.parse().map_err(|error| UsageError(format!("{error}")))?));
    }
    path.to_str().map_or(Ok(()), target::refuse_other_spelling)?;
    let text = path.to_str().filter(|text| target::is_url(text) || target::is_replica_folder(path));
    Ok(match text {
        Some(text) => StoreLocation::Replica(text.to_owned()),
        None => StoreLocation::Folder(path.into()),
    })
}

/// Reports whether a text names a Venti server rather than a folder or a replica.
fn is_venti(text: &str) -> bool {
    text == VENTI_VARIABLE
        || ["venti://", "venti+tls://", "tcp!", "tls!", "unix!"].iter().any(|start| text.starts_with(start))
}

/// Returns the TLS settings for Venti servers: the client certificate and key that
/// VARVE_VENTI_CERTIFICATE names, if it is set.
pub fn venti_tls() -> Result<VentiTls> {
    let Some(text) = std::env::var_os(VENTI_CERTIFICATE) else { return Ok(VentiTls::default()) };
    let parts = text.to_str().and_then(|text| text.split_once(','));
    let Some((certificate, key)) = parts else {
        bail!(UsageError(format!(
            "{VENTI_CERTIFICATE} must name a certificate and its key: write CERT,KEY (PEM files)"
        )))
    };
    Ok(VentiTls::with_identity(TlsClientIdentity { certificate: certificate.into(), key: key.into() }))
}

/// Connects to a Venti server.
pub(crate) fn connect(address: &Address) -> Result<Arc<VentiStore>> {
    let options = VentiOptions { tls: venti_tls()?, ..VentiOptions::default() };
    let connected = VentiStore::connect(address.clone(), options).map_err(|error| match error {
        VentiError::Connect { .. } => anyhow::Error::new(error),
        error => anyhow::Error::new(error).context(address.to_string()),
    });
    Ok(Arc::new(connected?))
}

impl StoreLocation {
    /// Returns the folder for a new store.
    ///
    /// # Errors
    /// When this names a replica, a URL or a Venti server.
    pub(crate) fn new_store_folder(self) -> Result<PathBuf> {
        match self {
            Self::Replica(text) if target::is_url(&text) => {
                let shown = target::shown(&text);
                bail!(UsageError(format!(
                    "a store can only be made in a folder of this machine; `varve -s FOLDER replicate {shown}` then keeps a copy of it there"
                )))
            }
            home => home.folder(),
        }
    }

    /// Returns the folder of a store, for operations that need a folder.
    ///
    /// # Errors
    /// When this names a replica or a Venti server.
    pub(crate) fn folder(self) -> Result<PathBuf> {
        match self {
            Self::Folder(path) => Ok(path),
            Self::Replica(text) => Err(only_read(&text)),
            Self::Venti(address) => Err(only_blocks(&address)),
        }
    }
}

/// The error for an operation that a replica does not support.
fn only_read(text: &str) -> anyhow::Error {
    let shown = target::shown(text);
    anyhow::anyhow!(
        "{shown} is a replica, and cannot be written: name the store's own folder, or make one with `varve clone`"
    )
}

/// The error for an operation that a Venti server does not support.
pub(crate) fn only_blocks(address: &Address) -> anyhow::Error {
    anyhow::anyhow!(
        "{address} is a Venti server, which keeps only blocks: use snapshot, snapshots, ls, cat, find, diff, restore, mount, boot, serve, verify or copy there"
    )
}

/// Reports whether an absolute path leads into a folder, with links resolved. A path that does not
/// exist yet is judged by its nearest existing ancestor.
pub fn leads_into(path: &Path, folder: &Path) -> bool {
    let present = path.ancestors().find_map(|path| path.canonicalize().ok());
    present.zip(folder.canonicalize().ok()).is_some_and(|(present, folder)| present.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_only_read_is_named_without_its_password() {
        for (text, shown) in [
            ("webdav+http://u:hunter2@h/x", "webdav+http://u@h/x"),
            ("foo://u:hunter2@h", "foo://...@h"),
            ("s3://b11?endpoint=http://u:hunter2@h", "s3://...@h"),
        ] {
            let said = only_read(text).to_string();
            assert!(said.starts_with(&format!("{shown} is a replica")), "{said}");
        }
    }
}
