//! The jobs of a configuration.

use std::time::Duration;

use crate::config::{ConfiguredReplica, ConfiguredSource, ConfiguredStore, DailyConfig, ReplicaTrigger};
use crate::loaded_config::LoadedConfig;
use crate::timing::{Every, RunConditions, Timetable, spread_offset};

/// The kinds of jobs, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobKind {
    Snapshot,
    Replicate,
    Verify,
    Reclaim,
    Drill,
}

/// A job of a configuration.
pub struct DailyJob<'a> {
    pub kind: JobKind,
    /// The source, replica or store.
    pub subject: &'a str,
    pub store_name: &'a str,
    pub store: &'a ConfiguredStore,
    pub source: Option<&'a ConfiguredSource>,
    pub replica: Option<&'a ConfiguredReplica>,
    /// `None` for a replica that is brought up to date whenever its folder is there.
    pub timetable: Option<Timetable>,
    pub conditions: RunConditions,
    /// The job is ended when it has worked for this time.
    pub timeout: Duration,
}

impl JobKind {
    /// Returns the word for the kind in the names of jobs.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::Replicate => "replicate",
            Self::Verify => "verify",
            Self::Reclaim => "reclaim",
            Self::Drill => "drill",
        }
    }
}

impl DailyJob<'_> {
    /// Returns the table of the configuration that describes the job.
    #[must_use]
    pub fn table(&self) -> String {
        match self.kind {
            JobKind::Snapshot => format!("[source.{}]", self.subject),
            JobKind::Replicate => format!("[replica.{}]", self.subject),
            JobKind::Verify | JobKind::Reclaim | JobKind::Drill => "[care]".to_owned(),
        }
    }

    /// Returns the name of the job in the run log.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{} {}", self.kind.verb(), self.subject)
    }

    /// Reports whether a name means this job: the name of a source means its snapshot, that of a
    /// replica its update, and that of a store the care for it. Any other name is a kind of jobs,
    /// or the name of one in the run log.
    #[must_use]
    pub fn is_called(&self, name: &str, config: &DailyConfig) -> bool {
        let is_subject = name == self.subject;
        if config.sources.contains_key(name) {
            return is_subject && self.kind == JobKind::Snapshot;
        }
        if config.replicas.contains_key(name) {
            return is_subject && self.kind == JobKind::Replicate;
        }
        match config.stores.contains_key(name) {
            true => is_subject && matches!(self.kind, JobKind::Verify | JobKind::Reclaim),
            false => name == self.kind.verb() || name == self.id(),
        }
    }

    /// Says what the job does.
    #[must_use]
    pub fn title(&self) -> String {
        match self.kind {
            JobKind::Snapshot => format!("snapshot of {}", self.subject),
            JobKind::Replicate => format!("replica {}", self.subject),
            JobKind::Verify => format!("verification of {}", self.subject),
            JobKind::Reclaim => format!("retention and space of {}", self.subject),
            JobKind::Drill => format!("drill of {}", self.subject),
        }
    }
}

/// Lists the jobs of a configuration, in the order in which they run.
#[must_use]
pub fn jobs(loaded: &LoadedConfig) -> Vec<DailyJob<'_>> {
    let (snapshots, replications) = (snapshot_jobs(loaded), replication_jobs(loaded));
    snapshots.chain(replications).chain(store_jobs(loaded)).chain(drill_jobs(loaded)).collect()
}

fn snapshot_jobs(loaded: &LoadedConfig) -> impl Iterator<Item = DailyJob<'_>> {
    loaded.config.sources.iter().filter_map(move |(name, source)| {
        Some(DailyJob {
            kind: JobKind::Snapshot,
            subject: name,
            store_name: &source.store,
            store: loaded.config.store(&source.store)?,
            source: Some(source),
            replica: None,
            timetable: Some(timetable(loaded, &source.every, name, source.spread)),
            conditions: source.conditions,
            timeout: source.timeout,
        })
    })
}

fn replication_jobs(loaded: &LoadedConfig) -> impl Iterator<Item = DailyJob<'_>> {
    loaded.config.replicas.iter().filter_map(move |(name, replica)| {
        Some(DailyJob {
            kind: JobKind::Replicate,
            subject: name,
            store_name: &replica.of,
            store: loaded.config.store(&replica.of)?,
            source: None,
            replica: Some(replica),
            timetable: match &replica.trigger {
                ReplicaTrigger::Every(every) => Some(timetable(loaded, every, name, replica.spread)),
                ReplicaTrigger::Present => None,
            },
            conditions: replica.conditions,
            timeout: replica.timeout,
        })
    })
}

/// Lists the jobs that care for whole stores: all verifications, then all reclaims.
fn store_jobs(loaded: &LoadedConfig) -> impl Iterator<Item = DailyJob<'_>> {
    let care = &loaded.config.care;
    let verify = care.verify.as_ref().map(|verify| (JobKind::Verify, &verify.every));
    let reclaim = care.reclaim.as_ref().map(|reclaim| (JobKind::Reclaim, &reclaim.every));
    verify.into_iter().chain(reclaim).flat_map(move |(kind, every)| {
        loaded.config.stores.iter().map(move |(name, store)| DailyJob {
            kind,
            subject: name,
            store_name: name,
            store,
            source: None,
            replica: None,
            timetable: Some(timetable(loaded, every, name, care.spread)),
            conditions: care.conditions,
            timeout: care.timeout,
        })
    })
}

fn drill_jobs(loaded: &LoadedConfig) -> impl Iterator<Item = DailyJob<'_>> {
    let care = &loaded.config.care;
    loaded.config.sources.iter().filter_map(move |(name, source)| {
        let drill = care.drill.as_ref().filter(|drill| drill.has(name))?;
        Some(DailyJob {
            kind: JobKind::Drill,
            subject: name,
            store_name: &source.store,
            store: loaded.config.store(&source.store)?,
            source: Some(source),
            replica: None,
            timetable: Some(timetable(loaded, &drill.every, name, care.spread)),
            conditions: care.conditions,
            timeout: care.timeout,
        })
    })
}

fn timetable(loaded: &LoadedConfig, every: &Every, job: &str, spread: Duration) -> Timetable {
    Timetable::new(every.clone(), loaded.zone.clone(), spread_offset(&loaded.host, job, spread))
}
