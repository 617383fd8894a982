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
    let config = &loaded.config;
    let mut jobs = Vec::new();
    let timetable = |every: &Every, job: &str, spread| {
        Timetable::new(every.clone(), loaded.zone.clone(), spread_offset(&loaded.host, job, spread))
    };
    for (name, source) in &config.sources {
        let Some(store) = config.store(&source.store) else { continue };
        jobs.push(DailyJob {
            kind: JobKind::Snapshot,
            subject: name,
            store_name: &source.store,
            store,
            source: Some(source),
            replica: None,
            timetable: Some(timetable(&source.every, name, source.spread)),
            conditions: source.conditions,
            timeout: source.timeout,
        });
    }
    for (name, replica) in &config.replicas {
        let Some(store) = config.store(&replica.of) else { continue };
        jobs.push(DailyJob {
            kind: JobKind::Replicate,
            subject: name,
            store_name: &replica.of,
            store,
            source: None,
            replica: Some(replica),
            timetable: match &replica.trigger {
                ReplicaTrigger::Every(every) => Some(timetable(every, name, replica.spread)),
                ReplicaTrigger::Present => None,
            },
            conditions: replica.conditions,
            timeout: replica.timeout,
        });
    }
    let care = &config.care;
    let verify = care.verify.as_ref().map(|verify| (JobKind::Verify, &verify.every));
    let reclaim = care.reclaim.as_ref().map(|reclaim| (JobKind::Reclaim, &reclaim.every));
    for (kind, every) in verify.into_iter().chain(reclaim) {
        for (name, store) in &config.stores {
            jobs.push(DailyJob {
                kind,
                subject: name,
                store_name: name,
                store,
                source: None,
                replica: None,
                timetable: Some(timetable(every, name, care.spread)),
                conditions: care.conditions,
                timeout: care.timeout,
            });
        }
    }
    for (name, source) in &config.sources {
        let Some(drill) = care.drill.as_ref().filter(|drill| drill.has(name)) else { continue };
        let Some(store) = config.store(&source.store) else { continue };
        jobs.push(DailyJob {
            kind: JobKind::Drill,
            subject: name,
            store_name: &source.store,
            store,
            source: Some(source),
            replica: None,
            timetable: Some(timetable(&drill.every, name, care.spread)),
            conditions: care.conditions,
            timeout: care.timeout,
        });
    }
    jobs
}
