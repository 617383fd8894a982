//! The jobs of replicas and of `[care]`, and how a run carries out an order.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use varve_archive::retention::ContentKind;
use varve_session::HOST_VARIABLE;
use varve_world::{Clock, RealClock};

use super::carry_out::{JobSurroundings, carry_out};
use super::job_end::{JobEnd, JobOutcome};
use super::notices_meanwhile::NoticesMeanwhile;
use super::order::{DrillOrder, ForgetOrder, JobOrder, OrderedWork, ReplicateOrder};
use super::run::DailyRun;
use crate::config::ConfiguredSource;
use crate::jobs::{DailyJob, JobKind, machine_state};
use crate::judging::{SnapshotFact, is_of_source};
use crate::loaded_config::store_environment;
use crate::stores::{check_identity, read_facts};
use crate::timing::{RunConditions, show_time_span};

/// A running job asks for the state of the network each time that it has asked for that of the
/// power supply this often: every ten seconds.
const NETWORK_EVERY: u32 = 10;
/// The variable with the password of a target.
const REMOTE_PASSWORD: &str = "VARVE_REMOTE_PASSWORD";

impl DailyRun<'_> {
    pub(super) fn replicate(&self, job: &DailyJob<'_>) -> Result<JobEnd> {
        let replica = job.replica.context("a replication has a replica")?;
        let (target, password) = varve_remote::split_password(&replica.at);
        let upload = replica.upload.as_ref().map(ToString::to_string);
        self.carry_out(job, OrderedWork::Replicate(ReplicateOrder { target, upload }), password)
    }

    pub(super) fn verify(&self, job: &DailyJob<'_>) -> Result<JobEnd> {
        let verify = self.loaded.config.care.verify.as_ref().context("verification is set")?;
        self.carry_out(job, OrderedWork::Verify { share: verify.share.clone() }, None)
    }

    /// Applies the rules of each source to its own snapshots on this machine, and frees space.
    pub(super) fn reclaim(&self, job: &DailyJob<'_>) -> Result<JobEnd> {
        let reclaim = self.loaded.config.care.reclaim.as_ref().context("reclaiming is set")?;
        let mut forgotten = Vec::new();
        for (source, series) in self.judged_series(job)? {
            let order = ForgetOrder {
                host: self.loaded.host.clone(),
                series: series.into_iter().collect(),
                rules: source.keep.iter().map(ToString::to_string).collect(),
                zone: self.zone_name(),
            };
            let mut forgot = self.carry_out(job, OrderedWork::Forget(order), None)?;
            forgotten.append(&mut forgot.forgotten);
            if forgot.outcome != JobOutcome::Done {
                return Ok(JobEnd { forgotten, has_succeeded: false, ..forgot });
            }
        }
        let freed = self.carry_out(job, OrderedWork::Reclaim { at_most: reclaim.at_most }, None)?;
        Ok(JobEnd { forgotten, ..freed })
    }

    /// Returns the sources whose snapshots have rules, each with the names that its snapshots have.
    /// The store is read once for all of them.
    fn judged_series(&self, job: &DailyJob<'_>) -> Result<Vec<(&ConfiguredSource, BTreeSet<String>)>> {
        let sources = self.loaded.config.sources.iter();
        let has_rules = |(_, source): &(&String, &ConfiguredSource)| {
            source.store == job.store_name && !source.keep.is_empty()
        };
        let judged: Vec<_> = sources.filter(has_rules).collect();
        if judged.is_empty() {
            return Ok(Vec::new());
        }
        let session = self.loaded.session(job.store)?;
        let found = read_facts(&session, job.store)?
            .context("this key cannot read the snapshots, so it cannot judge them")?;
        let series = |(name, source): (&String, _)| {
            let (config, host) = (&self.loaded.config, self.loaded.host.as_str());
            let own = found.snapshots.iter().filter(|one| is_of_source(config, host, (name, source), one));
            (source, own.map(|one| one.name.clone()).collect::<BTreeSet<_>>())
        };
        Ok(judged.into_iter().map(series).filter(|(_, names)| !names.is_empty()).collect())
    }

    /// Drills the newest snapshot of each series of a source.
    pub(super) fn drill(&self, job: &DailyJob<'_>) -> Result<JobEnd> {
        let care = self.loaded.config.care.drill.as_ref().context("drills are set")?;
        let source = job.source.context("a drill has a source")?;
        let session = self.loaded.session(job.store)?;
        let found = read_facts(&session, job.store)?.context("this key cannot read, so it cannot restore")?;
        let (config, host) = (&self.loaded.config, self.loaded.host.as_str());
        let own = found.snapshots.iter().filter(|one| is_of_source(config, host, (job.subject, source), one));
        let mut newest: BTreeMap<&str, &SnapshotFact> = BTreeMap::new();
        for one in own {
            let known = newest.entry(&one.name).or_insert(one);
            if one.time > known.time {
                *known = one;
            }
        }
        if newest.is_empty() {
            bail!("{} has no snapshot yet", job.subject);
        }
        let mut end = JobEnd { has_succeeded: true, ..JobEnd::new() };
        for one in newest.into_values() {
            let boot = care.boot && one.dated.kind == ContentKind::Image;
            let order = DrillOrder { snapshot: one.id.to_string(), file_count: care.file_count, boot };
            let drilled = self.carry_out(job, OrderedWork::Drill(order), None)?;
            let is_worse = drilled.outcome > end.outcome || end.message.is_none();
            if is_worse {
                end.message = drilled.message.or(end.message);
            }
            end.outcome = end.outcome.max(drilled.outcome);
            end.has_succeeded &= drilled.has_succeeded;
            end.is_postponed |= drilled.is_postponed;
        }
        Ok(end)
    }

    /// Carries out an order of a job, and reports its records. It is ended early when the time of
    /// the job is over, or when the conditions of the machine no longer hold.
    #[expect(clippy::disallowed_methods, reason = "jobs have time limits in real time")]
    pub(super) fn carry_out(
        &self,
        job: &DailyJob<'_>,
        work: OrderedWork,
        password: Option<String>,
    ) -> Result<JobEnd> {
        check_identity(job.store)?;
        let order = JobOrder { wait: job.store.wait, work };
        let environment = self.environment(job, password)?;
        let mut end = JobEnd::new();
        let (mut obstacle, mut asked_count, mut is_too_long) = (None, 0_u32, false);
        let mut meanwhile = NoticesMeanwhile::new(&self.state, self.notified_config());
        let must_end = || {
            meanwhile.look();
            is_too_long = self.job_end.is_some_and(|end| Instant::now() >= end);
            if is_too_long {
                return true;
            }
            // A program asks for the state of the network. It is started less often.
            let unmetered = job.conditions.unmetered && asked_count.is_multiple_of(NETWORK_EVERY);
            asked_count = asked_count.wrapping_add(1);
            obstacle = self.reason_to_end(job, RunConditions { unmetered, ..job.conditions });
            obstacle.is_some()
        };
        let around = JobSurroundings { loaded: self.loaded, state: &self.state, lock: &self.lock };
        let status = carry_out(&around, &order, &environment, must_end, |record, line| {
            end.take(record);
            self.observer.record(record, line);
        })?;
        end.outcome = JobOutcome::of_status(status);
        let is_done = matches!(end.outcome, JobOutcome::Done | JobOutcome::Gaps);
        // A verification that finds damage has done its work.
        end.has_succeeded = is_done || (job.kind == JobKind::Verify && end.outcome == JobOutcome::Damage);
        if end.outcome == JobOutcome::Damage && end.message.is_none() {
            end.message = Some("damage was found: `varve verify` lists it".to_owned());
        }
        if is_too_long && !end.has_succeeded {
            end.outcome = JobOutcome::Failed;
            end.message = Some(format!(
                "it did not end within {}, and was ended: what it has stored stays; timeout in {} sets another limit",
                show_time_span(job.timeout),
                job.table()
            ));
        } else if let Some(reason) = obstacle.filter(|_| !end.has_succeeded) {
            end.is_postponed = true;
            end.message = Some(format!("ended early: {reason}"));
        } else if status.is_none() {
            end.message = Some("a signal ended the program".to_owned());
        }
        Ok(end)
    }

    /// Returns the reason why a job that works must end. A job that is too late to be postponed is
    /// not ended either.
    fn reason_to_end(&self, job: &DailyJob<'_>, asked: RunConditions) -> Option<String> {
        let now = RealClock.now();
        let last = self.histories.of(job).last_success(now);
        let machine = machine_state(&self.request.system_root, asked);
        let reason = job.conditions.reason_to_end(machine, last, now);
        reason.filter(|_| !self.request.is_by_hand())
    }

    /// Returns the environment of the process of a job.
    fn environment(
        &self,
        job: &DailyJob<'_>,
        password: Option<String>,
    ) -> Result<Vec<(&'static str, OsString)>> {
        let mut environment = store_environment(job.store)?;
        environment.push((HOST_VARIABLE, OsString::from(&self.loaded.host)));
        environment.extend(password.map(|password| (REMOTE_PASSWORD, password.into())));
        // The times of upload rates are those of the configuration.
        let zone = self.zone_name().filter(|_| job.kind == JobKind::Replicate);
        environment.extend(zone.map(|zone| ("TZ", zone.into())));
        Ok(environment)
    }

    /// Returns the name of the zone that the configuration sets.
    fn zone_name(&self) -> Option<String> {
        self.loaded.config.zone.as_ref()?.iana_name().map(str::to_owned)
    }

    /// Returns the file of the configuration, if somebody is to be notified.
    fn notified_config(&self) -> Option<PathBuf> {
        self.loaded.files.first().filter(|_| self.loaded.config.notify.is_set()).cloned()
    }
}
