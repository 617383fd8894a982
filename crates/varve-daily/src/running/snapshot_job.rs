//! The job of a source: its hooks, its frozen view, and the snapshot.

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_block::{show_count, with_causes};
use varve_world::{Clock, RealClock, require_trusted_program};

use super::hooks::{HookEnd, OnSignal};
use super::job_end::{JobEnd, JobOutcome};
use super::order::{OrderedWork, SnapshotOrder};
use super::run::DailyRun;
use crate::config::{ConfiguredSource, HookConfig, SourceWhat, frozen_view_name};
use crate::freeze::{FreezeOrder, FrozenView, UndoStep, freeze};
use crate::jobs::DailyJob;
use crate::state::LoggedJob;
use crate::stores::check_series;

impl DailyRun<'_> {
    /// Takes a snapshot, with its hooks around it.
    pub(super) fn snapshot(&mut self, job: &DailyJob<'_>) -> Result<JobEnd> {
        let source = job.source.context("a snapshot has a source")?;
        if source.hooks.always.is_some() {
            self.state.note_open_hooks(&[job.subject.to_owned()])?;
        }
        let before = match &source.hooks.before {
            Some(hook) => self.hooks().run(
                hook,
                &[("VARVE_SOURCE", job.subject), ("VARVE_OUTCOME", ""), ("VARVE_SNAPSHOT", "")],
                &json!({ "source": job.subject, "outcome": null, "snapshot": null, "message": null }),
                OnSignal::End,
            ),
            None => HookEnd::Done,
        };
        let mut end = match before {
            HookEnd::Done => self.take_snapshot(job, source).unwrap_or_else(|error| JobEnd::of_error(&error)),
            HookEnd::NotNow => JobEnd {
                is_postponed: true,
                message: Some("the hook before said: not now".to_owned()),
                ..JobEnd::new()
            },
            HookEnd::Failed(message) => JobEnd::failed(format!("the hook before failed: {message}")),
        };
        if end.has_succeeded {
            self.hook_after(job, source.hooks.after.as_ref(), "after", &mut end);
        }
        self.hook_after(job, source.hooks.always.as_ref(), "always", &mut end);
        if source.hooks.always.is_some() {
            self.state.note_open_hooks(&[])?;
        }
        Ok(end)
    }

    /// Runs a hook after a snapshot. If it fails, the job has failed, but the snapshot counts.
    fn hook_after(&self, job: &DailyJob<'_>, hook: Option<&HookConfig>, name: &str, end: &mut JobEnd) {
        let Some(hook) = hook else { return };
        let environment = [
            ("VARVE_SOURCE", job.subject),
            ("VARVE_OUTCOME", end.name()),
            ("VARVE_SNAPSHOT", end.snapshot.as_deref().unwrap_or("")),
        ];
        let outcome = json!({ "source": job.subject, "outcome": end.name(), "snapshot": end.snapshot, "message": end.message });
        let on_signal = if name == "always" { OnSignal::GoOn } else { OnSignal::End };
        if let HookEnd::Failed(message) = self.hooks().run(hook, &environment, &outcome, on_signal) {
            end.add_failure(&format!("the hook {name} failed: {message}"));
        }
    }

    /// Takes a snapshot, of a frozen view if the source has one.
    fn take_snapshot(&mut self, job: &DailyJob<'_>, source: &ConfiguredSource) -> Result<JobEnd> {
        let (place, is_disk) = match &source.what {
            SourceWhat::Folder(place) | SourceWhat::File(place) => (place, false),
            SourceWhat::Disk(place) => (place, true),
            _ => return self.read_source(job, source, None),
        };
        let Some(kind) = source.freeze else { return self.read_source(job, source, None) };
        let name = frozen_view_name(self.state.path(), job.subject);
        let order = FreezeOrder {
            kind,
            source: place,
            is_disk,
            has_one_file_system: source.options.one_file_system,
            mount_at: self.state.mount_point(&name),
            name,
        };
        let mut undo = Vec::new();
        let frozen = freeze(&order, &mut |steps| {
            undo = steps.to_vec();
            self.state.note_frozen(&[self.left_frozen.as_slice(), steps].concat())
        });
        let end = frozen.context("the source was not frozen");
        let end = end.and_then(|view| self.read_source(job, source, Some(view)));
        let mut end = end.unwrap_or_else(|error| JobEnd::of_error(&error));
        // A view that was not whole to the end has caused the error or the gaps. A file system may
        // show fewer names in place of an error, so nothing is believed of such a view.
        if matches!(end.outcome, JobOutcome::Done | JobOutcome::Failed | JobOutcome::Gaps)
            && !end.is_postponed
            && let Some(fault) = undo.iter().find_map(UndoStep::fault)
        {
            let earlier = end.message.take().map(|message| format!("; {message}")).unwrap_or_default();
            let snapshot = end.snapshot.take();
            end = JobEnd { snapshot, ..JobEnd::failed(format!("{fault}{earlier}")) };
        }
        for step in undo {
            if let Err(error) = step.apply() {
                end.add_failure(&with_causes(error.as_ref()));
                self.left_frozen.push(step);
            }
        }
        self.state.note_frozen(&self.left_frozen)?;
        Ok(end)
    }

    fn read_source(
        &self,
        job: &DailyJob<'_>,
        source: &ConfiguredSource,
        view: Option<FrozenView>,
    ) -> Result<JobEnd> {
        // With a key that may read, the snapshot itself compares with the one before.
        if self.histories.is_write_only(job.store_name)
            && let Some(count) = self.histories.emptied_sources(&self.loaded.config).get(job.subject)
        {
            bail!(
                "the folder is empty, but its last snapshot has {}: its disk is not mounted, or it was emptied (allow-empty = true archives it)",
                show_count(*count, "entry")
            );
        }
        let earlier = self.histories.earlier_path(job.store_name, job.subject);
        check_series(self.loaded, job.store, (job.subject, source), earlier)?;
        if let SourceWhat::Command { program, .. } = &source.what {
            program.first().map_or(Ok(()), |program| require_trusted_program(program))?;
        }
        let order = SnapshotOrder {
            what: source.what.clone(),
            name: job.subject.to_owned(),
            options: source.options.clone(),
            read_from: view.map(|view| view.path),
        };
        self.carry_out(job, OrderedWork::Snapshot(order), None)
    }

    /// Removes the frozen views that a killed run has left, and runs the hooks `always` of
    /// snapshots that it has begun.
    pub(super) fn clear_away_earlier_run(&mut self) {
        let removed = self.remove_left_views();
        self.remember(removed);
        let finished = self.finish_open_hooks();
        self.remember(finished);
    }

    fn remove_left_views(&mut self) -> Result<()> {
        if self.left_frozen.is_empty() {
            return Ok(());
        }
        for step in std::mem::take(&mut self.left_frozen) {
            if let Err(error) = step.apply() {
                self.observer.warning(&with_causes(error.as_ref()));
                self.end.outcome = JobOutcome::Failed;
                self.left_frozen.push(step);
            }
        }
        self.state.note_frozen(&self.left_frozen)
    }

    fn finish_open_hooks(&mut self) -> Result<()> {
        let open = self.state.open_hooks();
        for name in &open {
            let source = self.loaded.config.sources.get(name);
            let Some(hook) = source.and_then(|source| source.hooks.always.as_ref()) else { continue };
            let end = self.hooks().run(
                hook,
                &[("VARVE_SOURCE", name), ("VARVE_OUTCOME", "interrupted"), ("VARVE_SNAPSHOT", "")],
                &json!({ "source": name, "outcome": "interrupted", "snapshot": null, "message": null }),
                OnSignal::GoOn,
            );
            let message = match end {
                HookEnd::Failed(message) => {
                    self.observer.warning(&format!("the hook always of {name} failed: {message}"));
                    self.end.outcome = JobOutcome::Failed;
                    message
                }
                _ => "the run before was cut off; its hook always has run now".to_owned(),
            };
            let job = format!("snapshot {name}");
            self.state.log(&LoggedJob::new(RealClock.now(), job, "interrupted", Some(message)))?;
        }
        if open.is_empty() { Ok(()) } else { self.state.note_open_hooks(&[]) }
    }
}
