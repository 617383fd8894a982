//! Checks that a store is the one that the configuration was made for.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};
use varve_block::to_hex;
use varve_store::StoreConfig;

use crate::config::ConfiguredStore;

/// Reads the id of the store in a folder. `None` if there is none that can be read, or if the place
/// is no folder: opening it reports that.
#[must_use]
pub fn id_at(at: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new(at).join("config.toml")).ok()?;
    StoreConfig::from_text(&text).ok().map(|config| to_hex(&config.id))
}

/// Checks the store in a folder before a command opens it.
///
/// # Errors
/// When it has another id than the configuration says.
pub fn check_identity(store: &ConfiguredStore) -> Result<()> {
    id_at(&store.at).map_or(Ok(()), |found| require_identity(store, &found))
}

/// Checks the id of an open store.
///
/// # Errors
/// When the configuration says another one.
pub fn require_identity(store: &ConfiguredStore, found: &str) -> Result<()> {
    match &store.id {
        Some(expected) if expected != found => {
            bail!(
                "{} is another store: its id is {found}, and the configuration was made for {expected}: mount the right disk, or correct id if this one is meant ({})",
                store.at,
                store.place
            );
        }
        _ => Ok(()),
    }
}
