//! Finds the store of a command: that of the command line, or one of the configuration.

use std::path::PathBuf;
use std::sync::Arc;

use varve_block::with_causes;
use varve_daily::usual_store;
use varve_session::KeyOptions;

use crate::arguments::{CommandNeeds, GlobalArgs};
use crate::terminal::Terminal;

/// Returns the store that the command line names, or a store of the configuration, and the key. A
/// key of the command line goes before that of the configuration.
pub fn named_store(arguments: &GlobalArgs, needs: CommandNeeds) -> (Result<PathBuf, String>, KeyOptions) {
    let given = KeyOptions {
        key_file: arguments.key_file.clone(),
        key_file_command: arguments.key_file_command.clone(),
        passphrase_file: arguments.passphrase_file.clone(),
        passphrase_command: arguments.passphrase_command.clone(),
    };
    let configured = |name| {
        if !needs.configured_store {
            return Err(None);
        }
        match usual_store(name, Arc::new(Terminal { quiet: arguments.quiet, asks: true })) {
            Ok((store, key)) if given == KeyOptions::default() => Ok((Ok(store), key)),
            Ok((store, _)) => Ok((Ok(store), given.clone())),
            Err(reason) => Err(Some(with_causes(reason.as_ref()))),
        }
    };
    match &arguments.store {
        None => configured(None).unwrap_or_else(|reason| (Err(unnamed(reason)), given.clone())),
        Some(store) => {
            let name = store.to_str().filter(|name| !name.contains(['/', ':', '!', '$']) && !store.exists());
            let named = name.and_then(|name| configured(Some(name)).ok());
            named.unwrap_or_else(|| (Ok(store.clone()), given.clone()))
        }
    }
}

fn unnamed(reason: Option<String>) -> String {
    match reason {
        Some(reason) => format!("no store is given with --store or in VARVE_STORE, and {reason}"),
        None => "no store is given: name it with --store, or in VARVE_STORE".to_owned(),
    }
}
