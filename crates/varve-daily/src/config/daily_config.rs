//! The settings of a machine's daily work.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use varve_archive::retention::RetentionRule;

use super::freeze::FreezeKind;
use super::notify::NotifyConfig;
use super::place::ConfigPlace;
use super::secrets::StoreKey;
use crate::promise::PromiseLimits;
use crate::timing::Every;
use crate::timing::RunConditions;
use crate::timing::UploadRates;

/// The settings of a machine's daily work: `varve.toml` with `conf.d/*.toml`.
#[derive(Debug, Clone)]
pub struct DailyConfig {
    /// The time zone of `every`; `None` for that of the machine.
    pub zone: Option<TimeZone>,
    /// The name of this machine in snapshots; `None` for its host name.
    pub machine: Option<String>,
    /// The folder for the run log; `None` for the usual one.
    pub state: Option<PathBuf>,
    pub stores: BTreeMap<String, ConfiguredStore>,
    pub sources: BTreeMap<String, ConfiguredSource>,
    pub replicas: BTreeMap<String, ConfiguredReplica>,
    pub care: CareConfig,
    pub promises: PromiseLimits,
    pub notify: NotifyConfig,
}

/// `[store.NAME]`
#[derive(Debug, Clone)]
pub struct ConfiguredStore {
    pub place: ConfigPlace,
    /// The folder or address of the store.
    pub at: String,
    /// The id of the store that the configuration was made for, in hexadecimal.
    pub id: Option<String>,
    pub ended: EndedSeries,
    pub key: Option<StoreKey>,
    /// The time to wait for another writer.
    pub wait: Duration,
}

/// `ended`: the series of a store that nothing continues, which is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndedSeries {
    Named(Vec<String>),
    /// Nothing is archived into the store any more.
    All,
}

impl EndedSeries {
    /// Reports whether nothing is meant to be archived into the store.
    #[must_use]
    pub fn has_all(&self) -> bool {
        *self == Self::All
    }

    /// Reports whether a series is meant to have ended.
    #[must_use]
    pub fn has(&self, series: &str) -> bool {
        match self {
            Self::Named(names) => names.iter().any(|name| name == series),
            Self::All => true,
        }
    }
}

impl Default for EndedSeries {
    fn default() -> Self {
        Self::Named(Vec::new())
    }
}

/// `[source.NAME]`
#[derive(Debug, Clone)]
pub struct ConfiguredSource {
    pub place: ConfigPlace,
    pub store: String,
    pub what: SourceWhat,
    pub options: ReadingOptions,
    /// The way in which it is frozen while it is read; `None` to read it as it changes.
    pub freeze: Option<FreezeKind>,
    pub every: Every,
    pub spread: Duration,
    pub conditions: RunConditions,
    /// The job is ended when it has worked for this time.
    pub timeout: Duration,
    /// The rules of retention; none to keep everything.
    pub keep: Vec<RetentionRule>,
    pub hooks: HookSet,
    /// The limit on the age of the newest snapshot, instead of the promise of all sources.
    pub snapshot_within: Option<Duration>,
}

/// How a source is read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct ReadingOptions {
    /// The patterns of entries that are left out of a folder.
    pub exclude: Vec<String>,
    /// A file with more such patterns.
    pub exclude_file: Option<PathBuf>,
    /// Folders with a file of such a name are left out.
    pub exclude_if_present: Vec<String>,
    /// Folders that are marked as caches are left out.
    pub exclude_caches: bool,
    /// Other file systems in the folder are left out.
    pub one_file_system: bool,
    /// The source may be empty although it was not before.
    pub allow_empty: bool,
    /// The blocks of a disk that its file systems do not use are left out.
    pub skip_free: bool,
    /// A disk is cut where its files begin.
    pub cut_at_files: bool,
    /// The contents of swap are archived.
    pub keep_swap: bool,
    /// The socket of the guest agent of a machine.
    pub agent: Option<PathBuf>,
    /// The drives of a machine that are archived; none for all.
    pub drives: Vec<String>,
}

/// The thing that is archived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceWhat {
    Folder(PathBuf),
    File(PathBuf),
    Disk(PathBuf),
    /// The output of a program, as a file of this name.
    Command {
        program: Vec<String>,
        name: String,
    },
    /// A machine that runs in QEMU, by its monitor socket.
    Machine(PathBuf),
}

/// Programs that run around a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HookSet {
    /// If it fails, there is no snapshot.
    pub before: Option<HookConfig>,
    /// Runs after a snapshot was made.
    pub after: Option<HookConfig>,
    /// Runs last, whatever happened.
    pub always: Option<HookConfig>,
}

/// A program that runs around a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookConfig {
    pub run: Vec<String>,
    pub timeout: Duration,
}

/// `[replica.NAME]`
#[derive(Debug, Clone)]
pub struct ConfiguredReplica {
    pub place: ConfigPlace,
    /// The store that is copied.
    pub of: String,
    /// The folder or URL of the target.
    pub at: String,
    pub trigger: ReplicaTrigger,
    /// The limit of the upload rate; `None` if none is set.
    pub upload: Option<UploadRates>,
    pub spread: Duration,
    pub conditions: RunConditions,
    /// The job is ended when it has worked for this time.
    pub timeout: Duration,
}

/// When a replica is brought up to date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicaTrigger {
    Every(Every),
    /// Whenever its folder is there and the store has something new.
    Present,
}

/// `[care]`
#[derive(Debug, Clone, Default)]
pub struct CareConfig {
    pub verify: Option<VerifyCare>,
    pub reclaim: Option<ReclaimCare>,
    pub drill: Option<DrillCare>,
    pub spread: Duration,
    pub conditions: RunConditions,
    /// Each job is ended when it has worked for this time.
    pub timeout: Duration,
}

/// Reading of the archive, a share each time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyCare {
    pub every: Every,
    /// The share of the data in percent; `None` for all of it.
    pub share: Option<String>,
}

/// Retention and the freeing of space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReclaimCare {
    pub every: Every,
    pub at_most: Option<Duration>,
}

/// Restoring of a few files of each source, to see that it works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrillCare {
    pub every: Every,
    /// The sources, by name; `None` for all.
    pub sources: Option<Vec<String>>,
    pub file_count: u32,
    /// True if machines are started from the archived disks.
    pub boot: bool,
}

impl DrillCare {
    /// Reports whether a source is drilled.
    #[must_use]
    pub fn has(&self, source: &str) -> bool {
        self.sources.as_ref().is_none_or(|sources| sources.iter().any(|name| name == source))
    }
}

impl DailyConfig {
    /// Returns the store of a name, which the reading has checked.
    #[must_use]
    pub fn store(&self, name: &str) -> Option<&ConfiguredStore> {
        self.stores.get(name)
    }

    /// Returns the time zone of `every`.
    #[must_use]
    pub fn zone_or(&self, system: &TimeZone) -> TimeZone {
        self.zone.clone().unwrap_or_else(|| system.clone())
    }
}
