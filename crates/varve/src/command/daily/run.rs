//! `varve run`

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use varve_block::with_causes;
use varve_daily::is_of_source;
use varve_session::{Interrupted, UsageError};
use varve_watch::{ConfiguredSource, SourceWhat, age};
use varve_world::{Clock, RealClock};

use super::config_file::{LoadedConfig, store_options};
use super::hooks::{self, HookEnd, OnSignal};
use super::job_history::Histories;
use super::jobs::{DailyJob, JobKind, jobs};
use super::open_store;
use super::program_run;
use super::retention;
use super::sentences::{JobDecision, decide, title};
use super::state_folder::{RunLock, StateFolder};
use crate::arguments::RunArgs;
use crate::exit_status;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show, signals};

/// A longer message of a job is cut.
const MESSAGE_CHARS_MAX: usize = 4_000;

/// A run of the jobs of a configuration.
struct DailyRun<'a> {
    invocation: &'a Invocation,
    loaded: &'a LoadedConfig,
    state: StateFolder,
    lock: RunLock,
    histories: Histories,
    outcome: CommandOutcome,
    done_count: usize,
}

/// The end of a job.
struct JobEnd {
    outcome: CommandOutcome,
    /// True if the job counts as done for its period.
    has_succeeded: bool,
    /// Set if it was left for another time.
    is_postponed: bool,
    message: Option<String>,
    snapshot: Option<String>,
    forgotten: Vec<Value>,
}

impl JobEnd {
    fn failed(message: String) -> Self {
        Self { outcome: CommandOutcome::Failed, message: Some(message), ..Self::new() }
    }

    fn new() -> Self {
        Self {
            outcome: CommandOutcome::Done,
            has_succeeded: false,
            is_postponed: false,
            message: None,
            snapshot: None,
            forgotten: Vec::new(),
        }
    }

    fn word(&self) -> &'static str {
        match self.outcome {
            _ if self.is_postponed => "postponed",
            CommandOutcome::Done => "done",
            CommandOutcome::Gaps => "gaps",
            CommandOutcome::Damage => "damage",
            CommandOutcome::Locked => "locked",
            _ => "failed",
        }
    }
}

pub fn run(invocation: &Invocation, args: &RunArgs) -> Result<CommandOutcome> {
    let loaded = LoadedConfig::load(args.file.config.as_deref())?;
    retention::check_rules(&loaded)?;
    for name in &args.sources {
        if !loaded.config.sources.contains_key(name) {
            let known: Vec<_> = loaded.config.sources.keys().map(String::as_str).collect();
            bail!(UsageError(format!("there is no source {name}: known are {}", known.join(", "))));
        }
    }
    if args.dry_run {
        return dry_run(invocation, &loaded, args);
    }
    let state = StateFolder::open(&loaded.state)?;
    let Some(lock) = state.try_lock()? else {
        if !args.sources.is_empty() {
            bail!(varve_session::Hinted::new(
                anyhow::anyhow!("another run of this configuration is at work"),
                "run it again when that run has ended"
            ));
        }
        if !invocation.quiet {
            remark!("another run of this configuration is at work");
        }
        return Ok(if args.or_fail { CommandOutcome::NothingDone } else { CommandOutcome::Done });
    };
    let histories = state.histories();
    let outcome = CommandOutcome::Done;
    let mut run = DailyRun { invocation, loaded: &loaded, state, lock, histories, outcome, done_count: 0 };
    run.finish_open_hooks()?;
    let all = jobs(&loaded);
    for kind in [JobKind::Snapshot, JobKind::Replicate, JobKind::Verify, JobKind::Reclaim] {
        let of_kind: Vec<_> = all.iter().filter(|job| job.kind == kind).collect();
        if of_kind.is_empty() || (kind != JobKind::Snapshot && !args.sources.is_empty()) {
            continue;
        }
        run.histories.refresh(invocation, &loaded);
        for job in of_kind {
            run.job(job, args)?;
        }
    }
    run.state.save_histories(&run.histories)?;
    Ok(match run.done_count {
        0 if args.or_fail && run.outcome == CommandOutcome::Done => CommandOutcome::NothingDone,
        _ => run.outcome,
    })
}

fn is_chosen(job: &DailyJob<'_>, args: &RunArgs) -> bool {
    args.sources.is_empty()
        || (job.kind == JobKind::Snapshot && args.sources.iter().any(|name| name == job.subject))
}

fn dry_run(invocation: &Invocation, loaded: &LoadedConfig, args: &RunArgs) -> Result<CommandOutcome> {
    let state = StateFolder::to_read(&loaded.state);
    let mut histories = state.histories();
    histories.refresh(invocation, loaded);
    let now = RealClock.now();
    let mut run_count = 0;
    for job in jobs(loaded).iter().filter(|job| is_chosen(job, args)) {
        let decision = match args.sources.is_empty() {
            true => decide(job, &histories, &args.system_root, now),
            false => named_by_hand(),
        };
        run_count += usize::from(decision.runs);
        if invocation.json {
            say::record("planned_job", decision.as_json(job));
        } else {
            let next =
                decision.next.map(|next| format!("; next at {}", moment::show(next))).unwrap_or_default();
            let verb = if decision.runs { "would run" } else { "would not run" };
            say!("{}: {verb}: {}{next}", title(job), decision.reason);
        }
    }
    Ok(if args.or_fail && run_count == 0 { CommandOutcome::NothingDone } else { CommandOutcome::Done })
}

/// The decision about a source that the user names: it runs in any case.
fn named_by_hand() -> JobDecision {
    JobDecision {
        runs: true,
        is_postponed: false,
        reason: "named by hand".to_owned(),
        period_start: None,
        next: None,
    }
}

impl DailyRun<'_> {
    /// Runs a job if it is due.
    fn job(&mut self, job: &DailyJob<'_>, args: &RunArgs) -> Result<()> {
        if !is_chosen(job, args) {
            return Ok(());
        }
        if signals::was_signalled() {
            bail!(Interrupted("interrupted: the remaining jobs are due again"));
        }
        let begun = RealClock.now();
        let decision = match args.sources.is_empty() {
            true => decide(job, &self.histories, &args.system_root, begun),
            false => named_by_hand(),
        };
        if decision.is_postponed {
            let is_new = decision.period_start.is_some_and(|start| self.histories.note_postponed(job, start));
            if is_new {
                let line = json!({ "time": moment::rfc3339(begun), "job": job.id(), "outcome": "postponed", "message": decision.reason });
                self.state.log(line)?;
                self.state.save_histories(&self.histories)?;
            }
        }
        if !decision.runs {
            return Ok(());
        }
        let end = match job.kind {
            JobKind::Snapshot => self.snapshot(job),
            JobKind::Replicate => self.replicate(job),
            JobKind::Verify => self.verify(job),
            JobKind::Reclaim => self.reclaim(job),
        };
        let end = end.unwrap_or_else(|error| JobEnd::failed(with_causes(error.as_ref())));
        let ended = RealClock.now();
        if signals::was_signalled() && !end.has_succeeded {
            bail!(Interrupted("interrupted: what was stored so far will not be stored again"));
        }
        if !end.is_postponed {
            self.done_count += 1;
            self.outcome = self.outcome.max(end.outcome);
            self.histories.note(job, begun, ended, end.has_succeeded);
        }
        self.state.save_histories(&self.histories)?;
        let seconds = age(begun, ended).as_secs_f64();
        let line = json!({
            "time": moment::rfc3339(begun),
            "job": job.id(),
            "outcome": end.word(),
            "seconds": seconds,
            "snapshot": end.snapshot,
            "forgotten": end.forgotten,
            "message": end.message,
        });
        self.state.log(line.clone())?;
        self.print_end(job, &end, line);
        Ok(())
    }

    fn print_end(&self, job: &DailyJob<'_>, end: &JobEnd, line: Value) {
        if self.invocation.json {
            say::record("job", line);
        } else if end.outcome != CommandOutcome::Done {
            let message = end.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
            remark!("varve: {} ({}){message}", title(job), end.word());
        } else if !self.invocation.quiet {
            say!("{}: {}", title(job), end.word());
        }
    }

    /// Runs the hooks `always` of snapshots that a crash has cut off.
    fn finish_open_hooks(&mut self) -> Result<()> {
        let open = self.state.open_hooks();
        for name in &open {
            let source = self.loaded.config.sources.get(name);
            if let Some(hook) = source.and_then(|source| source.hooks.always.as_ref()) {
                let end = hooks::run(
                    hook,
                    &[("VARVE_SOURCE", name), ("VARVE_OUTCOME", "interrupted"), ("VARVE_SNAPSHOT", "")],
                    &json!({ "source": name, "outcome": "interrupted", "snapshot": null, "message": null }),
                    OnSignal::GoOn,
                );
                let message = match end {
                    HookEnd::Failed(message) => {
                        remark!("varve: the hook always of {name} failed: {message}");
                        self.outcome = CommandOutcome::Failed;
                        Some(message)
                    }
                    _ => None,
                };
                self.state.log(json!({
                    "time": moment::rfc3339(RealClock.now()),
                    "job": format!("snapshot {name}"),
                    "outcome": "interrupted",
                    "message": message.unwrap_or_else(|| "the run before was cut off; its hook always has run now".to_owned()),
                }))?;
            }
        }
        if open.is_empty() { Ok(()) } else { self.state.note_open_hooks(&[]) }
    }

    /// Takes a snapshot, with its hooks around it.
    fn snapshot(&mut self, job: &DailyJob<'_>) -> Result<JobEnd> {
        let source = job.source.context("a snapshot has a source")?;
        if source.hooks.always.is_some() {
            self.state.note_open_hooks(&[job.subject.to_owned()])?;
        }
        let before = match &source.hooks.before {
            Some(hook) => hooks::run(
                hook,
                &[("VARVE_SOURCE", job.subject), ("VARVE_OUTCOME", ""), ("VARVE_SNAPSHOT", "")],
                &json!({ "source": job.subject, "outcome": null, "snapshot": null, "message": null }),
                OnSignal::End,
            ),
            None => HookEnd::Done,
        };
        let mut end = match before {
            HookEnd::Done => self
                .take_snapshot(job, source)
                .unwrap_or_else(|error| JobEnd::failed(with_causes(error.as_ref()))),
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
    fn hook_after(
        &self,
        job: &DailyJob<'_>,
        hook: Option<&varve_watch::HookConfig>,
        name: &str,
        end: &mut JobEnd,
    ) {
        let Some(hook) = hook else { return };
        let environment = [
            ("VARVE_SOURCE", job.subject),
            ("VARVE_OUTCOME", end.word()),
            ("VARVE_SNAPSHOT", end.snapshot.as_deref().unwrap_or("")),
        ];
        let outcome = json!({ "source": job.subject, "outcome": end.word(), "snapshot": end.snapshot, "message": end.message });
        let on_signal = if name == "always" { OnSignal::GoOn } else { OnSignal::End };
        if let HookEnd::Failed(message) = hooks::run(hook, &environment, &outcome, on_signal) {
            end.outcome = end.outcome.max(CommandOutcome::Failed);
            let earlier = end.message.take().map(|message| format!("{message}; ")).unwrap_or_default();
            end.message = Some(format!("{earlier}the hook {name} failed: {message}"));
        }
    }

    fn take_snapshot(&self, job: &DailyJob<'_>, source: &varve_watch::ConfiguredSource) -> Result<JobEnd> {
        let mut arguments = vec!["snapshot".to_owned()];
        arguments.extend(source.options.iter().cloned());
        let path = |path: &std::path::Path| path.to_string_lossy().into_owned();
        match &source.what {
            SourceWhat::Command { program, name } => {
                arguments.extend([format!("--command={name}"), "--".to_owned()]);
                arguments.extend(program.iter().cloned());
            }
            SourceWhat::Machine(socket) => {
                arguments.extend([format!("--name={}", job.subject), format!("--qmp={}", path(socket))]);
            }
            SourceWhat::File(file) => {
                arguments.extend([
                    format!("--name={}", job.subject),
                    "--as=file".to_owned(),
                    "--".to_owned(),
                    path(file),
                ]);
            }
            SourceWhat::Folder(place) | SourceWhat::Disk(place) => {
                arguments.extend([format!("--name={}", job.subject), "--".to_owned(), path(place)]);
            }
        }
        self.program(job, &arguments)
    }

    fn replicate(&self, job: &DailyJob<'_>) -> Result<JobEnd> {
        let replica = job.replica.context("a replication has a replica")?;
        self.program(job, &["replicate".to_owned(), "--".to_owned(), replica.at.clone()])
    }

    fn verify(&self, job: &DailyJob<'_>) -> Result<JobEnd> {
        let verify = self.loaded.config.care.verify.as_ref().context("verification is set")?;
        let what = match &verify.share {
            Some(share) => format!("--share={share}"),
            None => "--data".to_owned(),
        };
        self.program(job, &["verify".to_owned(), what])
    }

    /// Applies the rules of each source to its own snapshots on this machine, and frees space.
    fn reclaim(&self, job: &DailyJob<'_>) -> Result<JobEnd> {
        let reclaim = self.loaded.config.care.reclaim.as_ref().context("reclaiming is set")?;
        let mut end = JobEnd::new();
        for (source, series) in self.judged_series(job)? {
            let mut arguments = vec!["forget".to_owned(), format!("--host={}", self.loaded.host)];
            arguments.extend(series.iter().map(|series| format!("--name={series}")));
            arguments.extend(retention::options(self.loaded, source));
            let forgot = self.program(job, &arguments)?;
            end.forgotten.extend(forgot.forgotten);
            if forgot.outcome != CommandOutcome::Done {
                return Ok(JobEnd {
                    forgotten: end.forgotten,
                    has_succeeded: false,
                    outcome: forgot.outcome,
                    message: forgot.message,
                    ..JobEnd::new()
                });
            }
        }
        let mut arguments = vec!["gc".to_owned()];
        arguments.extend(reclaim.at_most.map(|limit| format!("--max-time={}s", limit.as_secs())));
        let freed = self.program(job, &arguments)?;
        Ok(JobEnd { forgotten: end.forgotten, ..freed })
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
        let session = self.loaded.session(self.invocation, job.store)?;
        let found = open_store::read(&session)?
            .context("this key cannot read the snapshots, so it cannot judge them")?;
        let series = |(name, source): (&String, _)| {
            let (config, host) = (&self.loaded.config, self.loaded.host.as_str());
            let own = found.snapshots.iter().filter(|one| is_of_source(config, host, (name, source), one));
            (source, own.map(|one| one.name.clone()).collect::<BTreeSet<_>>())
        };
        Ok(judged.into_iter().map(series).filter(|(_, names)| !names.is_empty()).collect())
    }

    /// Runs a command of this program for a job, and reports its records.
    fn program(&self, job: &DailyJob<'_>, arguments: &[String]) -> Result<JobEnd> {
        let all = [store_options(job.store)?, arguments.to_vec()].concat();
        let mut end = JobEnd::new();
        let status = program_run::run(&self.state, &self.lock, &all, |record| {
            self.take_record(record, &mut end);
        })?;
        end.outcome = match status.and_then(|status| u8::try_from(status).ok()) {
            Some(exit_status::DONE) => CommandOutcome::Done,
            Some(exit_status::GAPS) => CommandOutcome::Gaps,
            Some(exit_status::DAMAGE) => CommandOutcome::Damage,
            Some(exit_status::LOCKED) => CommandOutcome::Locked,
            _ => CommandOutcome::Failed,
        };
        let is_done = matches!(end.outcome, CommandOutcome::Done | CommandOutcome::Gaps);
        // A verification that finds damage has done its work.
        end.has_succeeded = is_done || (job.kind == JobKind::Verify && end.outcome == CommandOutcome::Damage);
        if end.outcome == CommandOutcome::Damage && end.message.is_none() {
            end.message = Some("damage was found: `varve verify` lists it".to_owned());
        }
        if status.is_none() {
            end.message = Some("a signal ended the program".to_owned());
        }
        Ok(end)
    }

    /// Takes over a record of a command that this run has started.
    fn take_record(&self, record: &Value, end: &mut JobEnd) {
        let kind = record["type"].as_str().unwrap_or_default();
        let message = record["message"].as_str().unwrap_or_default();
        match kind {
            "error" => end.message = Some(message.chars().take(MESSAGE_CHARS_MAX).collect()),
            "snapshot" => end.snapshot = record["id"].as_str().map(str::to_owned),
            "forget_verdict" if record["verdict"] == "forget" => {
                end.forgotten
                    .push(json!({ "id": record["id"], "name": record["name"], "time": record["time"] }));
            }
            _ => {}
        }
        if self.invocation.json {
            return say::result(format_args!("{record}"));
        }
        match kind {
            "error" => {
                if let Some(hint) = record["hint"].as_str() {
                    remark!("hint: {hint}");
                }
            }
            "problem" => remark!("varve: {}: {message}", record["path"].as_str().unwrap_or(".")),
            "warning" | "waiting" => remark!("varve: {message}"),
            "hint" => remark!("hint: {message}"),
            "notice" => remark!("{message}"),
            "forget_verdict" if record["verdict"] == "forget" && !self.invocation.quiet => {
                let text = |field: &str| record[field].as_str().unwrap_or_default().to_owned();
                let reasons: Vec<_> =
                    record["reasons"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                let id: String = text("id").chars().take(8).collect();
                say!(
                    "forgot {id} {} {}: {}",
                    show::name(text("name").as_bytes()),
                    text("time"),
                    reasons.join("; ")
                );
            }
            _ => {}
        }
    }
}
