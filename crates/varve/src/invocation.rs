//! One run of the program: its session, and the options of its output.

use std::path::PathBuf;
use std::sync::Arc;

use varve_session::{CommandSession, KeyOptions, ReplicaReads, SessionSettings, UserInterface};

use crate::arguments::GlobalArgs;
use crate::terminal::Terminal;

/// The input of every command beside its own arguments.
#[derive(Clone)]
pub struct Invocation {
    /// The session of the named store.
    pub session: CommandSession,
    pub json: bool,
    pub quiet: bool,
    /// Passphrases may be asked for at the terminal.
    pub asks: bool,
    /// The number of `-v` options.
    pub verbose: u8,
    /// The maximum size of the cache of attached disks.
    pub cache_bytes: u64,
}

impl Invocation {
    /// Returns the user, for the stores of a configuration.
    pub fn frontend(&self) -> Arc<dyn UserInterface> {
        Arc::new(Terminal { quiet: self.quiet, asks: self.asks })
    }

    /// Creates the invocation for these arguments. `store` is the store, or the reason why none is
    /// known.
    pub fn new(
        arguments: &GlobalArgs,
        replica_reads: ReplicaReads,
        store: Result<PathBuf, String>,
        key: KeyOptions,
    ) -> Self {
        let settings = SessionSettings {
            store,
            key,
            wait: arguments.wait.unwrap_or_default(),
            replica_reads,
            cache: arguments.cache.clone(),
            cache_bytes: arguments.cache_size,
            roots: arguments.roots.clone(),
            requests_per_second: arguments.requests_per_second,
        };
        let session =
            CommandSession::new(settings, Arc::new(Terminal { quiet: arguments.quiet, asks: true }));
        let (json, quiet, verbose) = (arguments.json, arguments.quiet, arguments.verbose);
        Self { session, json, quiet, asks: true, verbose, cache_bytes: arguments.cache_size }
    }
}
