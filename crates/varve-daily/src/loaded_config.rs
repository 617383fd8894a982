//! Finds and reads the configuration of daily work.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use jiff::tz::TimeZone;
use varve_session::{
    CommandSession, KeyOptions, ReplicaReads, SessionSettings, UsageError, UserInterface, moment,
};
use varve_world::{FileUse, StopSignal, open_trusted, require_trusted, require_trusted_program};

use crate::config::{ConfigText, ConfiguredReplica, ConfiguredStore, Credential, DailyConfig, StoreKey};

const OF_THE_MACHINE: &str = "/etc/varve/varve.toml";
const STATE_OF_THE_MACHINE: &str = "/var/lib/varve";
const CACHE_BYTES: u64 = 1 << 30;

/// A configuration that was read, with the facts about its place.
pub struct LoadedConfig {
    pub config: DailyConfig,
    /// The main file, followed by those of `conf.d`.
    pub files: Vec<PathBuf>,
    /// The folder for the run log and the histories of jobs.
    pub state: PathBuf,
    /// The name of this machine in snapshots.
    pub host: String,
    /// The zone of all days and times.
    pub zone: TimeZone,
    /// Gets what the user must know while stores are opened.
    frontend: Arc<dyn UserInterface>,
    stop: StopSignal,
}

impl LoadedConfig {
    /// Reads the configuration: the named file, that of the machine, or that of the user.
    ///
    /// # Errors
    /// [`UsageError`] if there is none, or if it has faults.
    pub fn load(named: Option<&Path>, frontend: Arc<dyn UserInterface>) -> Result<Self> {
        let file = match named {
            Some(file) => std::path::absolute(file)?,
            None => usual_file()?,
        };
        let (config, files) = read(&file)?;
        let state = match &config.state {
            Some(state) => state.clone(),
            None => usual_state(&file)?,
        };
        let zone = config.zone_or(&TimeZone::system());
        moment::use_zone(&zone);
        let host = config.machine.clone().unwrap_or_else(varve_session::snapshot_host);
        let stop = frontend.stop_signal();
        Ok(Self { config, files, state, host, zone, frontend, stop })
    }

    /// Reads the configuration; `None` if none is named, and there is none at a usual place.
    ///
    /// # Errors
    /// [`UsageError`] if it has faults.
    pub fn load_if_there(named: Option<&Path>, frontend: Arc<dyn UserInterface>) -> Result<Option<Self>> {
        if named.is_none() && usual_file().is_err() {
            return Ok(None);
        }
        Self::load(named, frontend).map(Some)
    }

    /// Returns the session of a store of the configuration.
    ///
    /// # Errors
    /// [`UsageError`] if its credential is not there.
    pub fn session(&self, store: &ConfiguredStore) -> Result<CommandSession> {
        Ok(session_at(&store.at, key_options(store)?, Arc::clone(&self.frontend)))
    }

    /// Starts to catch the signals that end the process.
    ///
    /// # Errors
    /// When they cannot be caught.
    pub fn catch_signals(&self) -> Result<()> {
        Ok(self.frontend.catch_signals()?)
    }

    /// Returns the request to end, which a caught signal sets.
    #[must_use]
    pub fn stop_signal(&self) -> &StopSignal {
        &self.stop
    }
}

/// Reads a configuration from its main file and those of `conf.d`. Returns these files, too.
fn read(file: &Path) -> Result<(DailyConfig, Vec<PathBuf>)> {
    let folder = file.parent().unwrap_or(Path::new("/")).to_owned();
    let mut files = vec![file.to_owned()];
    files.extend(parts(&folder.join("conf.d"))?);
    require_trusted_folder(&folder)?;
    let texts: Vec<_> = files.iter().map(|path| read_text(path)).collect::<Result<_>>()?;
    let config = DailyConfig::read(&texts, &folder).map_err(|errors| UsageError(errors.to_string()))?;
    Ok((config, files))
}

/// A replica of the usual configuration.
#[expect(missing_docs, reason = "the names explain themselves")]
pub struct UsualReplica {
    pub name: String,
    pub at: String,
    /// The place of its store.
    pub store: String,
}

/// Returns the replicas of the usual configuration. There are none if it cannot be read.
#[must_use]
pub fn usual_replicas() -> Vec<UsualReplica> {
    let Ok((config, _)) = usual_file().and_then(|file| read(&file)) else { return Vec::new() };
    let replica = |(name, replica): (&String, &ConfiguredReplica)| {
        let store = config.store(&replica.of)?.at.clone();
        Some(UsualReplica { name: name.clone(), at: replica.at.clone(), store })
    };
    config.replicas.iter().filter_map(replica).collect()
}

/// Returns the address and the key of a store of the usual configuration: the one with this name,
/// or the only one.
///
/// # Errors
/// [`UsageError`] if there is no such store, or no configuration that can be read.
pub fn usual_store(name: Option<&str>, frontend: Arc<dyn UserInterface>) -> Result<(PathBuf, KeyOptions)> {
    let stores = LoadedConfig::load(None, frontend)?.config.stores;
    let found = match name {
        Some(name) => stores.get(name),
        None if stores.len() == 1 => stores.values().next(),
        None => None,
    };
    let Some(store) = found else {
        let names: Vec<_> = stores.keys().map(String::as_str).collect();
        bail!(UsageError(format!("the configuration has the stores {}", names.join(", "))));
    };
    Ok((PathBuf::from(&store.at), key_options(store)?))
}

fn key_options(store: &ConfiguredStore) -> Result<KeyOptions> {
    let mut key = KeyOptions::default();
    match &store.key {
        Some(StoreKey::KeyFile(file)) => key.key_file = Some(credential_path(file)?),
        Some(StoreKey::KeyFileCommand(program)) => key.key_file_command = Some(command_line(program)?),
        Some(StoreKey::PassphraseFile(file)) => key.passphrase_file = Some(credential_path(file)?),
        Some(StoreKey::PassphraseCommand(program)) => key.passphrase_command = Some(command_line(program)?),
        None => {}
    }
    Ok(key)
}

/// Reads a file of the configuration. Its programs are started, so nobody else may write it.
fn read_text(path: &Path) -> Result<ConfigText> {
    let name = path.display().to_string();
    let mut text = String::new();
    let read = open_trusted(path, FileUse::Settings).and_then(|mut file| file.read_to_string(&mut text));
    read.map_err(|error| UsageError(format!("the configuration {name} cannot be read: {error}")))?;
    Ok(ConfigText { name, text })
}

/// Requires that nobody else can put files into a folder of the configuration, or take some away.
fn require_trusted_folder(folder: &Path) -> Result<()> {
    let context = || folder.display().to_string();
    let trusted = require_trusted(folder, &fs::metadata(folder).with_context(context)?, FileUse::Settings);
    Ok(trusted.map_err(|error| UsageError(format!("the folder of the configuration: {error}")))?)
}

/// Returns the session of a store at this place, which waits for no other writer.
#[must_use]
pub fn session_at(store: &str, key: KeyOptions, frontend: Arc<dyn UserInterface>) -> CommandSession {
    let settings = SessionSettings {
        store: Ok(PathBuf::from(store)),
        key,
        wait: Duration::ZERO,
        replica_reads: ReplicaReads::Cached,
        cache: None,
        cache_bytes: CACHE_BYTES,
        roots: None,
        requests_per_second: None,
    };
    CommandSession::new(settings, frontend)
}

/// Returns the environment of a program for a store. All users of the machine can see a command
/// line, and the address of a store may have a password.
pub fn store_environment(store: &ConfiguredStore) -> Result<Vec<(&'static str, OsString)>> {
    let mut variables = vec![("VARVE_STORE", OsString::from(&store.at))];
    match &store.key {
        Some(StoreKey::KeyFile(file)) => variables.push(("VARVE_KEY_FILE", credential_path(file)?.into())),
        Some(StoreKey::KeyFileCommand(program)) => {
            variables.push(("VARVE_KEY_FILE_COMMAND", command_line(program)?.into()));
        }
        Some(StoreKey::PassphraseFile(file)) => {
            variables.push(("VARVE_PASSPHRASE_FILE", credential_path(file)?.into()));
        }
        Some(StoreKey::PassphraseCommand(program)) => {
            variables.push(("VARVE_PASSPHRASE_COMMAND", command_line(program)?.into()));
        }
        None => {}
    }
    Ok(variables)
}

/// Returns the file of a credential.
fn credential_path(credential: &Credential) -> Result<PathBuf> {
    match credential {
        Credential::File(path) => Ok(path.clone()),
        Credential::Systemd(name) => match std::env::var_os("CREDENTIALS_DIRECTORY") {
            Some(folder) => Ok(Path::new(&folder).join(name)),
            None => bail!(UsageError(format!(
                "credential:{name} is passed by systemd, and this process is not its service: CREDENTIALS_DIRECTORY is not set"
            ))),
        },
    }
}

/// Writes a program and its arguments as one line, which is split at blanks outside of quotes. The
/// program reveals a secret, so nobody else may write it.
fn command_line(program: &[String]) -> Result<String> {
    program.first().map_or(Ok(()), |program| require_trusted_program(program))?;
    let quoted = |word: &String| format!("'{}'", word.replace('\'', "'\\''"));
    Ok(program.iter().map(quoted).collect::<Vec<_>>().join(" "))
}

/// Returns the place of a new configuration: that of the machine for root, otherwise that of the
/// user.
pub fn own_file() -> Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(OF_THE_MACHINE.into());
    }
    let folder =
        below_home("XDG_CONFIG_HOME", ".config").context("HOME is not set: name a file with --config")?;
    Ok(folder.join("varve/varve.toml"))
}

fn usual_file() -> Result<PathBuf> {
    let of_user = below_home("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("varve/varve.toml"));
    let candidates = [Some(PathBuf::from(OF_THE_MACHINE)), of_user];
    let found = candidates.iter().flatten().find(|file| file.exists());
    match found {
        Some(file) => Ok(file.clone()),
        None => {
            let names: Vec<_> = candidates.iter().flatten().map(|file| file.display().to_string()).collect();
            bail!(UsageError(format!(
                "there is no configuration, neither {}: `varve setup` writes one",
                names.join(" nor ")
            )))
        }
    }
}

/// Returns the state folder of a configuration: one folder for each.
fn usual_state(file: &Path) -> Result<PathBuf> {
    if file.starts_with("/etc") {
        return Ok(STATE_OF_THE_MACHINE.into());
    }
    let folder =
        below_home("XDG_STATE_HOME", ".local/state").context("HOME is not set: name a folder with state")?;
    let name: String = file.to_string_lossy().chars().map(|c| if c == '/' { '-' } else { c }).collect();
    Ok(folder.join("varve/run").join(name.trim_start_matches('-')))
}

fn below_home(variable: &str, usual: &str) -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named(variable).or_else(|| Some(named("HOME")?.join(usual)))
}

/// Lists the files of `conf.d`, in the order of their names.
fn parts(folder: &Path) -> Result<Vec<PathBuf>> {
    let listed = match fs::read_dir(folder) {
        Ok(listed) => listed,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| folder.display().to_string()),
    };
    require_trusted_folder(folder)?;
    let mut files = Vec::new();
    for entry in listed {
        let path = entry?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if path.extension().is_some_and(|extension| extension == "toml") && !is_hidden {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
