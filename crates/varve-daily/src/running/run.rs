//! A run: what is due, in the order of its kinds.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use varve_block::with_causes;
use varve_session::{Interrupted, moment};
use varve_world::{Clock, RealClock, Timestamp};

use super::beside_another_run::end_beside;
use super::hooks::HookRunner;
use super::job_end::{JobEnd, JobOutcome};
use super::observer::RunObserver;
use super::request::{RunEnd, RunRequest};
use super::run_notices::after_run;
use crate::freeze::UndoStep;
use crate::jobs::{DailyJob, Histories, JobDecision, JobKind};
use crate::loaded_config::LoadedConfig;
use crate::state::{LoggedJob, RunLock, StateFolder, WorkingRun};

/// Sources that have become due while another job was at work for this time come before the next
/// one.
const SOURCES_EVERY: Duration = Duration::from_secs(60);
const KINDS: [JobKind; 5] =
    [JobKind::Snapshot, JobKind::Replicate, JobKind::Verify, JobKind::Reclaim, JobKind::Drill];

/// Returns all jobs of a request, with the decision about each. Nothing is changed.
///
/// # Errors
/// A usage error when a name means no job.
pub fn planned_jobs<'a>(
    loaded: &'a LoadedConfig,
    request: &RunRequest,
) -> Result<Vec<(DailyJob<'a>, JobDecision)>> {
    let chosen = request.chosen(loaded)?;
    let state = StateFolder::to_read(&loaded.state);
    let mut histories = state.histories();
    histories.refresh(loaded);
    let pause = state.paused_until(RealClock.now()).filter(|_| !request.is_by_hand());
    let planned = chosen.into_iter().map(|job| {
        let mut decision = request.decide(&job, loaded, &histories);
        if let Some(until) = pause.filter(|_| decision.runs) {
            decision.runs = false;
            decision.reason = format!("daily work is paused until {}", moment::show(until));
        }
        (job, decision)
    });
    Ok(planned.collect())
}

/// Runs the jobs that are due, or those that are named.
///
/// # Errors
/// A usage error when a name means no job, [`Interrupted`] after a signal, and when the
/// state folder cannot be used. A job that fails is no error of the run.
#[expect(clippy::disallowed_methods, reason = "jobs take real time")]
pub fn run_due_jobs(
    loaded: &LoadedConfig,
    request: &RunRequest,
    observer: &dyn RunObserver,
) -> Result<RunEnd> {
    let chosen = request.chosen(loaded)?;
    let state = StateFolder::open(&loaded.state)?;
    if !request.is_by_hand() {
        // On a full disk the look is lost, and the work goes on.
        let _ = state.note_look(RealClock.now());
    }
    let Some(lock) = state.try_lock()? else { return end_beside(loaded, &state, request, observer) };
    let mut run = DailyRun {
        loaded,
        request,
        observer,
        histories: state.histories(),
        left_frozen: state.frozen(),
        state,
        lock,
        begun: RealClock.now(),
        job_end: None,
        end: RunEnd::idle(),
        has_lost_notes: false,
    };
    run.note_work(None);
    run.clear_away_earlier_run();
    if let Some(until) = run.pause() {
        observer.notice(&format!("daily work is paused until {}", moment::show(until)));
        run.notify();
        return Ok(run.end);
    }
    let of_kind = |kind| chosen.iter().filter(move |job| job.kind == kind);
    let mut sources_done = Instant::now();
    for kind in KINDS.into_iter().filter(|kind| of_kind(*kind).next().is_some()) {
        run.histories.refresh(loaded);
        for job in of_kind(kind) {
            let may_be_due = kind != JobKind::Snapshot && !request.is_by_hand();
            if may_be_due && sources_done.elapsed() >= SOURCES_EVERY {
                of_kind(JobKind::Snapshot).try_for_each(|source| run.job(source))?;
                sources_done = Instant::now();
            }
            run.job(job)?;
        }
        if kind == JobKind::Snapshot {
            sources_done = Instant::now();
        }
    }
    let saved = run.state.save_histories(&run.histories);
    run.remember(saved);
    run.notify();
    Ok(run.end)
}

/// A run of the jobs of a configuration.
pub(super) struct DailyRun<'a> {
    pub(super) loaded: &'a LoadedConfig,
    pub(super) request: &'a RunRequest,
    pub(super) observer: &'a dyn RunObserver,
    pub(super) state: StateFolder,
    pub(super) lock: RunLock,
    begun: Timestamp,
    /// The moment at which the current job is ended.
    pub(super) job_end: Option<Instant>,
    /// The steps that remove frozen views of earlier runs, and have failed so far.
    pub(super) left_frozen: Vec<UndoStep>,
    pub(super) histories: Histories,
    pub(super) end: RunEnd,
    /// True if the state folder could not be written.
    has_lost_notes: bool,
}

impl DailyRun<'_> {
    /// Runs a job if it is due.
    #[expect(clippy::disallowed_methods, reason = "jobs have time limits in real time")]
    fn job(&mut self, job: &DailyJob<'_>) -> Result<()> {
        if self.was_signalled() {
            bail!(Interrupted("interrupted: the remaining jobs are due again"));
        }
        let begun = RealClock.now();
        let decision = self.request.decide(job, self.loaded, &self.histories);
        if decision.is_postponed {
            self.note_postponed(job, &decision, begun);
        }
        if !decision.runs {
            return Ok(());
        }
        self.note_work(Some(job.id()));
        self.job_end = Instant::now().checked_add(job.timeout);
        let end = match job.kind {
            JobKind::Snapshot => self.snapshot(job),
            JobKind::Replicate => self.replicate(job),
            JobKind::Verify => self.verify(job),
            JobKind::Reclaim => self.reclaim(job),
            JobKind::Drill => self.drill(job),
        };
        let end = end.unwrap_or_else(|error| JobEnd::of_error(&error));
        self.note_work(None);
        let ended = RealClock.now();
        if self.was_signalled() && !end.has_succeeded {
            bail!(Interrupted("interrupted: what was stored so far will not be stored again"));
        }
        self.note_end(job, &end, (begun, ended));
        Ok(())
    }

    /// Notes the end of a job in the histories and in the run log, and reports it.
    fn note_end(&mut self, job: &DailyJob<'_>, end: &JobEnd, (begun, ended): (Timestamp, Timestamp)) {
        if !end.is_postponed {
            self.end.job_count += 1;
            self.end.outcome = self.end.outcome.max(end.outcome);
            self.histories.note(job, begun, ended, end.has_succeeded);
            if let (JobKind::Snapshot, Some(count)) = (job.kind, end.entry_count) {
                self.histories.note_entries(job.subject, count);
            }
        }
        let saved = self.state.save_histories(&self.histories);
        self.remember(saved);
        let logged = LoggedJob {
            seconds: Some(ended.since(begun).as_secs_f64()),
            snapshot: end.snapshot.clone(),
            size: end.sizes.map(|sizes| sizes.size),
            new_bytes: end.sizes.map(|sizes| sizes.new_bytes),
            stored_bytes: end.sizes.map(|sizes| sizes.stored_bytes),
            forgotten: end.forgotten.clone(),
            ..LoggedJob::new(begun, job.id(), end.name(), end.message.clone())
        };
        let written = self.state.log(&logged);
        self.remember(written);
        self.observer.ended(job, &logged);
    }

    /// Notes that a job is postponed, once for each of its periods.
    fn note_postponed(&mut self, job: &DailyJob<'_>, decision: &JobDecision, now: Timestamp) {
        let is_new = decision.period_start.is_some_and(|start| self.histories.note_postponed(job, start));
        if !is_new {
            return;
        }
        self.observer.postponed(job, &decision.reason);
        let line = LoggedJob::new(now, job.id(), "postponed", Some(decision.reason.clone()));
        let written = self.state.log(&line).and_then(|()| self.state.save_histories(&self.histories));
        self.remember(written);
    }

    /// Notes what this run does, for others that find it at work.
    fn note_work(&self, job: Option<String>) {
        self.lock.note(&WorkingRun { since: self.begun, job });
    }

    /// Goes on after the state folder could not be written, as on a full disk: the remaining jobs
    /// and the notices are more important than the notes about them.
    pub(super) fn remember(&mut self, written: Result<()>) {
        if let Err(error) = written {
            self.end.outcome = self.end.outcome.max(JobOutcome::Failed);
            if !std::mem::replace(&mut self.has_lost_notes, true) {
                self.observer.warning(&format!("the state folder: {}", with_causes(error.as_ref())));
            }
        }
    }

    /// Sends notices about promises that have changed.
    fn notify(&self) {
        let has_done = self.end.job_count > 0;
        after_run(self.loaded, &self.state, &self.histories, has_done, self.observer);
    }

    /// Returns the end of a pause, if this run must observe one.
    fn pause(&self) -> Option<Timestamp> {
        self.state.paused_until(RealClock.now()).filter(|_| !self.request.is_by_hand())
    }

    pub(super) fn was_signalled(&self) -> bool {
        self.loaded.stop_signal().is_set()
    }

    pub(super) fn hooks(&self) -> HookRunner<'_> {
        HookRunner { observer: self.observer, stop: self.loaded.stop_signal() }
    }
}
