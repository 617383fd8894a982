//! The files that a configuration names and that are not believed: programs that others can write,
//! and secrets that others can read. Each is refused when it is used; this finds them before.

use std::fs;
use std::path::Path;

use varve_world::{DistrustError, FileUse, require_trusted, require_trusted_program};

use crate::config::{Credential, DailyConfig, PushConfig, SourceWhat, StoreKey};

/// Describes each of them once, with its remedy.
#[must_use]
pub fn distrusted_files(config: &DailyConfig) -> Vec<String> {
    let mut found: Vec<_> = programs(config)
        .filter_map(|program| require_trusted_program(program).err())
        .chain(secrets(config).filter_map(|secret| require_trusted_secret(secret).err()))
        .map(|error| error.to_string())
        .collect();
    found.sort();
    found.dedup();
    found
}

fn require_trusted_secret(file: &Path) -> Result<(), DistrustError> {
    // A file that is missing is reported where it is used.
    fs::metadata(file).map_or(Ok(()), |found| require_trusted(file, &found, FileUse::Secret))
}

fn programs(config: &DailyConfig) -> impl Iterator<Item = &str> {
    let of_sources = config.sources.values().flat_map(|source| {
        let command = match &source.what {
            SourceWhat::Command { program, .. } => Some(program),
            _ => None,
        };
        let hooks = [&source.hooks.before, &source.hooks.after, &source.hooks.always];
        command.into_iter().chain(hooks.into_iter().flatten().map(|hook| &hook.run))
    });
    let of_stores = config.stores.values().filter_map(|store| match &store.key {
        Some(StoreKey::KeyFileCommand(program) | StoreKey::PassphraseCommand(program)) => Some(program),
        _ => None,
    });
    of_sources.chain(of_stores).filter_map(|program| program.first()).map(String::as_str)
}

fn secrets(config: &DailyConfig) -> impl Iterator<Item = &Path> {
    let of_stores = config.stores.values().filter_map(|store| match &store.key {
        Some(
            StoreKey::KeyFile(Credential::File(file)) | StoreKey::PassphraseFile(Credential::File(file)),
        ) => Some(file),
        _ => None,
    });
    let notify = &config.notify;
    let pushes = [&notify.ntfy, &notify.gotify, &notify.webhook].into_iter().flatten();
    let of_pushes = pushes.filter_map(|push: &PushConfig| push.token.as_ref());
    let of_mail = notify.mail.iter().filter_map(|mail| mail.password.as_ref());
    of_stores.chain(of_pushes).chain(of_mail).map(|file| file.as_path())
}
