//! The histories of jobs: from the archive where it records them, otherwise from earlier runs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use varve_session::StoreLocation;
use varve_world::Timestamp;

use super::daily_job::{DailyJob, JobKind, jobs};
use super::empty_folders::is_empty_folder;
use crate::config::DailyConfig;
use crate::judging::{Drill, StoreFacts, is_of_source, is_series_of, store_mark};
use crate::loaded_config::LoadedConfig;
use crate::stores::read_facts;
use crate::timing::JobHistory;

/// The number of newest times that are kept of each history.
const TIMES_MAX: usize = 200;

const DAY: Duration = Duration::from_secs(86_400);
/// A look may be as late as this.
const GRACE: Duration = Duration::from_secs(2 * 3_600);

/// The histories of all jobs of a configuration.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Histories {
    jobs: BTreeMap<String, JobAttempts>,
    stores: BTreeMap<String, StoreRecord>,
    /// The time of the newest snapshot that each replica was known to hold.
    replicas: BTreeMap<String, Timestamp>,
    /// The number of entries in the last snapshot of each folder that a run of this machine took.
    /// A key that may not read has no other way to notice that the folder was emptied.
    entries: BTreeMap<String, u64>,
    /// The last time at which a run looked for due jobs. It is in a file of its own.
    looked: Option<Timestamp>,
}

/// The attempts of earlier runs at one job.
#[derive(Debug, Default, PartialEq, Eq)]
struct JobAttempts {
    successes: Vec<Timestamp>,
    failures: Vec<Timestamp>,
    /// The start of the period in which the job was last postponed.
    postponed: Option<Timestamp>,
}

/// The facts about a store when it was last read.
#[derive(Debug, Default, PartialEq, Eq)]
struct StoreRecord {
    mark: String,
    /// The times of the snapshots of each source; `None` if the key must not read them.
    sources: Option<BTreeMap<String, Vec<Timestamp>>>,
    /// The paths of which the newest snapshots of the sources are.
    paths: BTreeMap<String, Vec<u8>>,
    readings: Vec<Timestamp>,
    /// The times of the good drills of each source.
    drills: BTreeMap<String, Vec<Timestamp>>,
}

impl Histories {
    /// Reads the stores that have changed since they were last read. A store that does not open
    /// keeps no record: its jobs are judged by what earlier runs did.
    pub fn refresh(&mut self, loaded: &LoadedConfig) {
        for (name, store) in &loaded.config.stores {
            let Ok(session) = loaded.session(store) else {
                self.stores.remove(name);
                continue;
            };
            let folder = match session.home() {
                Ok(StoreLocation::Folder(folder)) => folder,
                _ => continue,
            };
            let mark = store_mark(&folder);
            if mark.is_some() && self.stores.get(name).map(|record| &record.mark) == mark.as_ref() {
                continue;
            }
            match (mark, read_facts(&session, store)) {
                (Some(mark), Ok(found)) => {
                    self.stores.insert(name.clone(), StoreRecord::new(mark, loaded, name, found.as_ref()));
                }
                _ => {
                    self.stores.remove(name);
                }
            }
        }
    }

    /// Returns the histories with the time of the last look for due jobs.
    #[must_use]
    pub fn with_look(self, looked: Option<Timestamp>) -> Self {
        Self { looked, ..self }
    }

    /// Returns the time for which no run has looked for due jobs, if that is longer than the time
    /// between two runs of any job, and than a day. `None` if no run has ever looked: then this
    /// machine may only judge.
    #[must_use]
    pub fn unlooked_for(&self, loaded: &LoadedConfig, now: Timestamp) -> Option<Duration> {
        let looked = self.looked.filter(|looked| *looked <= now)?;
        let all = jobs(loaded);
        let timetables = all.iter().filter_map(|job| job.timetable.as_ref());
        let shortest = timetables.map(|timetable| timetable.every().longest()).min()?;
        let silence = now.since(looked);
        (silence > shortest.max(DAY) + GRACE).then_some(silence)
    }

    /// Returns the history of a job.
    #[must_use]
    pub fn of(&self, job: &DailyJob<'_>) -> JobHistory {
        let empty = JobAttempts::default();
        let record = self.jobs.get(&job.id()).unwrap_or(&empty);
        let store = self.stores.get(job.store_name);
        let sources = store.and_then(|store| store.sources.as_ref());
        let successes = match (job.kind, store, sources) {
            (JobKind::Snapshot, _, Some(sources)) => sources.get(job.subject).cloned().unwrap_or_default(),
            (JobKind::Drill, Some(store), Some(_)) => {
                store.drills.get(job.subject).cloned().unwrap_or_default()
            }
            (JobKind::Verify, Some(store), _) => [store.readings.as_slice(), &record.successes].concat(),
            _ => record.successes.clone(),
        };
        JobHistory { successes, failures: record.failures.clone() }
    }

    /// Returns the time of the newest snapshot in a store, as it was last read.
    #[must_use]
    pub fn newest_snapshot(&self, store: &str) -> Option<Timestamp> {
        self.stores.get(store)?.sources.as_ref()?.values().flatten().copied().max()
    }

    /// Notes an attempt that began and ended at these times.
    pub fn note(&mut self, job: &DailyJob<'_>, begun: Timestamp, ended: Timestamp, has_succeeded: bool) {
        let record = self.jobs.entry(job.id()).or_default();
        if has_succeeded {
            record.successes.push(begun);
            if job.kind == JobKind::Replicate {
                self.replicas.insert(job.subject.to_owned(), begun);
            }
        } else {
            record.failures.push(ended);
        }
        for times in [&mut record.successes, &mut record.failures] {
            keep_newest(times);
        }
    }

    /// Notes the number of entries in the newest snapshot of a folder.
    pub fn note_entries(&mut self, source: &str, count: u64) {
        self.entries.insert(source.to_owned(), count);
    }

    /// Returns the sources whose folder has no entries now, although their last snapshot had as
    /// many and they may not be empty.
    #[must_use]
    pub fn emptied_sources(&self, config: &DailyConfig) -> BTreeMap<String, u64> {
        let known = self.entries.iter().filter(|(name, count)| {
            let source = config.sources.get(*name);
            **count > 0 && source.is_some_and(|source| !source.options.allow_empty && is_empty_folder(source))
        });
        known.map(|(name, count)| (name.clone(), *count)).collect()
    }

    /// Returns the path of which the newest snapshot of a source is, if it is known.
    #[must_use]
    pub fn earlier_path(&self, store: &str, source: &str) -> Option<&[u8]> {
        self.stores.get(store)?.paths.get(source).map(Vec::as_slice)
    }

    /// Reports whether a store was opened with a key that may not read.
    #[must_use]
    pub fn is_write_only(&self, store: &str) -> bool {
        self.stores.get(store).is_some_and(|record| record.sources.is_none())
    }

    /// Notes that a job is postponed. Returns false if that was noted before for its period.
    pub fn note_postponed(&mut self, job: &DailyJob<'_>, period_start: Timestamp) -> bool {
        let record = self.jobs.entry(job.id()).or_default();
        record.postponed.replace(period_start) != Some(period_start)
    }

    /// Returns the jobs of earlier runs, each with its last success and the number of failures
    /// since.
    pub fn known_jobs(&self) -> impl Iterator<Item = (&str, Option<Timestamp>, usize)> {
        self.jobs.iter().map(|(id, record)| {
            let last = record.successes.iter().copied().max();
            let failures = record.failures.iter().filter(|failure| last.is_none_or(|last| **failure > last));
            (id.as_str(), last, failures.count())
        })
    }

    /// Returns the time up to which a replica is known to have all snapshots.
    #[must_use]
    pub fn replica_state(&self, name: &str) -> Option<Timestamp> {
        self.replicas.get(name).copied()
    }

    /// Returns the form in the file.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let jobs: Map<_, _> = self.jobs.iter().map(|(id, record)| (id.clone(), record.to_json())).collect();
        let stores: Map<_, _> =
            self.stores.iter().map(|(name, record)| (name.clone(), record.to_json())).collect();
        let replicas: Map<_, _> =
            self.replicas.iter().map(|(name, time)| (name.clone(), json!(time.0))).collect();
        json!({ "jobs": jobs, "stores": stores, "replicas": replicas, "entries": self.entries })
    }

    /// Reads the form in the file. Anything that is not understood is left out.
    #[must_use]
    pub fn from_json(value: &Value) -> Self {
        let entries = |name: &str| value[name].as_object().into_iter().flatten();
        let name = String::clone;
        Self {
            jobs: entries("jobs").map(|(id, value)| (name(id), JobAttempts::from_json(value))).collect(),
            stores: entries("stores")
                .map(|(store, value)| (name(store), StoreRecord::from_json(value)))
                .collect(),
            replicas: entries("replicas")
                .filter_map(|(replica, time)| Some((name(replica), Timestamp(time.as_i64()?))))
                .collect(),
            entries: entries("entries")
                .filter_map(|(source, count)| Some((name(source), count.as_u64()?)))
                .collect(),
            looked: None,
        }
    }
}

impl StoreRecord {
    fn new(mark: String, loaded: &LoadedConfig, store_name: &str, found: Option<&StoreFacts>) -> Self {
        let Some(found) = found else { return Self { mark, ..Self::default() } };
        let (mut sources, mut paths) = (BTreeMap::new(), BTreeMap::new());
        for (name, source) in loaded.config.sources.iter().filter(|(_, source)| source.store == store_name) {
            let own = found
                .snapshots
                .iter()
                .filter(|snapshot| is_of_source(&loaded.config, &loaded.host, (name, source), snapshot));
            if let Some(newest) = own.clone().max_by_key(|snapshot| snapshot.time) {
                paths.insert(name.clone(), newest.source.clone());
            }
            let mut times: Vec<_> = own.map(|snapshot| snapshot.time).collect();
            keep_newest(&mut times);
            sources.insert(name.clone(), times);
        }
        let mut readings = found.readings.iter().copied().collect();
        keep_newest(&mut readings);
        let mut drills: BTreeMap<String, Vec<Timestamp>> = BTreeMap::new();
        for (name, source) in loaded.config.sources.iter().filter(|(_, source)| source.store == store_name) {
            let is_own = |drill: &&Drill| {
                drill.host == loaded.host
                    && drill.failure.is_none()
                    && is_series_of(&loaded.config, (name, source), &drill.series)
            };
            drills.insert(name.clone(), found.drills.iter().filter(is_own).map(|drill| drill.time).collect());
        }
        Self { mark, sources: Some(sources), paths, readings, drills }
    }

    fn to_json(&self) -> Value {
        let times = |times: &BTreeMap<String, Vec<Timestamp>>| {
            times.iter().map(|(name, found)| (name.clone(), numbers(found))).collect::<Map<_, _>>()
        };
        json!({
            "mark": self.mark,
            "sources": self.sources.as_ref().map(times),
            "paths": self.paths,
            "readings": numbers(&self.readings),
            "drills": times(&self.drills),
        })
    }

    fn from_json(value: &Value) -> Self {
        let sources = value["sources"].as_object();
        let times = |(name, times): (&String, &Value)| (name.clone(), times_in(times));
        Self {
            mark: value["mark"].as_str().unwrap_or_default().to_owned(),
            sources: sources.map(|sources| sources.iter().map(times).collect()),
            paths: serde_json::from_value(value["paths"].clone()).unwrap_or_default(),
            readings: times_in(&value["readings"]),
            drills: value["drills"].as_object().into_iter().flatten().map(times).collect(),
        }
    }
}

impl JobAttempts {
    fn to_json(&self) -> Value {
        json!({
            "successes": numbers(&self.successes),
            "failures": numbers(&self.failures),
            "postponed": self.postponed.map(|time| time.0),
        })
    }

    fn from_json(value: &Value) -> Self {
        Self {
            successes: times_in(&value["successes"]),
            failures: times_in(&value["failures"]),
            postponed: value["postponed"].as_i64().map(Timestamp),
        }
    }
}

fn numbers(times: &[Timestamp]) -> Value {
    times.iter().map(|time| time.0).collect()
}

fn keep_newest(times: &mut Vec<Timestamp>) {
    times.sort_unstable();
    let surplus = times.len().saturating_sub(TIMES_MAX);
    times.drain(..surplus);
}

fn times_in(value: &Value) -> Vec<Timestamp> {
    value.as_array().into_iter().flatten().filter_map(Value::as_i64).map(Timestamp).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histories_come_back_as_they_were_saved() {
        let mut histories = Histories::default();
        let record = JobAttempts {
            successes: vec![Timestamp(1), Timestamp(5)],
            failures: vec![Timestamp(3)],
            postponed: Some(Timestamp(4)),
        };
        histories.jobs.insert("snapshot home".into(), record);
        let store = StoreRecord {
            mark: "a".into(),
            sources: Some([("home".to_owned(), vec![Timestamp(1)])].into()),
            paths: [("home".to_owned(), b"/home".to_vec())].into(),
            readings: vec![Timestamp(2)],
            drills: [("home".to_owned(), vec![Timestamp(3)])].into(),
        };
        histories.stores.insert("main".into(), store);
        histories.replicas.insert("usb".into(), Timestamp(9));
        histories.note_entries("home", 7);
        assert_eq!(Histories::from_json(&histories.to_json()), histories);
        assert_eq!(Histories::from_json(&json!({ "jobs": 5 })), Histories::default());
    }
}
