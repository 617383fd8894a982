//! The command line that is typed, as far as it can be understood, and its store.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgMatches, FromArgMatches};
use varve_archive::Archive;
use varve_daily::{DailyConfig, LoadedConfig, session_at};
use varve_session::{Notice, StoreLocation, UserInterface};
use varve_store::RebuildProgress;
use varve_world::StopSignal;
use zeroize::Zeroizing;

use crate::arguments::{CommandNeeds, GlobalArgs, ProgramArguments};
use crate::command::daily::named_store::named_store;

/// A line that need not be complete, or correct.
pub(super) struct TypedLine {
    matches: Option<ArgMatches>,
}

impl TypedLine {
    pub(super) fn new<P: ProgramArguments>(words: Vec<OsString>) -> Self {
        Self { matches: P::completed_command().ignore_errors(true).try_get_matches_from(words).ok() }
    }

    /// Opens the store of the line, if it is a folder and can be opened without a question.
    pub(super) fn archive(&self) -> Option<Archive> {
        let mut arguments = GlobalArgs::from_arg_matches(self.matches.as_ref()?).ok()?;
        arguments.store = arguments.store.map(|store| at_home(&store));
        arguments.key_file = arguments.key_file.map(|file| at_home(&file));
        arguments.passphrase_file = arguments.passphrase_file.map(|file| at_home(&file));
        let (store, key) = named_store(&arguments, CommandNeeds::READER);
        if key.key_file_command.is_some() || key.passphrase_command.is_some() {
            return None;
        }
        let session = session_at(store.ok()?.to_str()?, key, Arc::new(NobodyAsked));
        match session.home() {
            Ok(StoreLocation::Folder(_)) => session.check().ok(),
            _ => None,
        }
    }

    /// Reads the configuration that the line names, or the usual one.
    pub(super) fn config(&self) -> Option<DailyConfig> {
        let file = self.last_command()?.try_get_one::<PathBuf>("config").ok().flatten();
        let file = file.map(|file| at_home(file));
        Some(LoadedConfig::load(file.as_deref(), Arc::new(NobodyAsked)).ok()?.config)
    }

    /// Returns the number of words that are given as this argument, with the last one.
    pub(super) fn count_of(&self, argument: &str) -> usize {
        let raw = self.last_command().and_then(|matches| matches.try_get_raw(argument).ok().flatten());
        raw.map_or(0, Iterator::count)
    }

    fn last_command(&self) -> Option<&ArgMatches> {
        let mut matches = self.matches.as_ref()?;
        while let Some((_, below)) = matches.subcommand() {
            matches = below;
        }
        Some(matches)
    }
}

/// Returns a path with the home folder in place of `~`, as the shell will pass it.
fn at_home(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(below), Some(home)) => Path::new(&home).join(below),
        _ => path.to_owned(),
    }
}

/// A user who sees and answers nothing.
struct NobodyAsked;

impl UserInterface for NobodyAsked {
    fn notice(&self, _: &Notice) {}

    fn waiting(&self, _: &str, _: Duration) {}

    fn rebuilding(&self) -> Box<dyn FnMut(RebuildProgress)> {
        Box::new(|_| {})
    }

    fn can_ask(&self) -> bool {
        false
    }

    fn ask(&self, _: &str) -> io::Result<Zeroizing<String>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn catch_signals(&self) -> io::Result<()> {
        Ok(())
    }

    fn stop_signal(&self) -> StopSignal {
        StopSignal::default()
    }
}
