//! `varve run`

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use varve_archive::retention::ContentKind;
use varve_block::with_causes;
use varve_daily::{SnapshotFact, is_of_source};
use varve_session::{HOST_VARIABLE, Interrupted, UsageError};
use varve_watch::{ConfiguredSource, RunConditions, SourceWhat, age, show_time_span};
use varve_world::{Clock, RealClock, Timestamp, require_trusted_program};

use super::beside_another_run;
use super::config_file::{LoadedConfig, store_environment};
use super::dry_run;
use super::freeze::{self, FreezeOrder, FrozenView, UndoStep};
use super::hooks::{self, HookEnd, OnSignal};
use super::job_history::Histories;
use super::jobs::{DailyJob, JobKind, jobs};
use super::known_time;
use super::machine_state::machine_state;
use super::notices_meanwhile::NoticesMeanwhile;
use super::notify;
use super::open_store;
use super::program_run;
use super::retention;
use super::sentences::{JobDecision, decide, title};
use super::state_folder::{RunLock, StateFolder, WorkingRun};
use super::store_identity;
use super::taken_over;
use crate::arguments::RunArgs;
use crate::exit_status;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{complaint, moment, say, show, signals};

/// The time between two looks for a signal.
const LOOK: Duration = Duration::from_millis(200);
/// A running job asks for the state of the network each time that it has asked for that of the
/// power supply this often: every ten seconds.
const NETWORK_EVERY: u32 = 10;
/// Sources that have become due while another job was at work for this time come before the next
/// one.
const SOURCES_EVERY: Duration = Duration::from_secs(60);
/// The variable with the password of a target.
const REMOTE_PASSWORD: &str = "VARVE_REMOTE_PASSWORD";
/// A longer message of a job is cut.
const MESSAGE_CHARS_MAX: usize = 4_000;

/// A run of the jobs of a configuration.
struct DailyRun<'a> {
    invocation: &'a Invocation,
    loaded: &'a LoadedConfig,
    state: StateFolder,
    lock: RunLock,
    begun: Timestamp,
    /// The moment at which the current job is ended.
    job_end: Option<Instant>,
    /// The steps that remove frozen views of earlier runs, and have failed so far.
    left_frozen: Vec<UndoStep>,
    histories: Histories,
    outcome: CommandOutcome,
    done_count: usize,
    /// True if the state folder could not be written.
    has_lost_notes: bool,
    /// The folder with the state of the machine.
    system_root: &'a Path,
    /// True if the sources were named: they run whatever the conditions are.
    is_by_hand: bool,
}

/// The sizes of a snapshot in bytes: all of it, its new blocks, and what they take in the store.
#[derive(Clone, Copy, Default)]
struct SnapshotSizes {
    size: u64,
    new_bytes: u64,
    stored_bytes: u64,
}

impl SnapshotSizes {
    /// Adds the sizes in the record of a snapshot. A key that may not read does not know all of
    /// them.
    fn with(self, record: &Value) -> Self {
        let sum = |own: u64, field: &str| own.saturating_add(record[field].as_u64().unwrap_or(0));
        Self {
            size: sum(self.size, "size"),
            new_bytes: sum(self.new_bytes, "new_bytes"),
            stored_bytes: sum(self.stored_bytes, "stored_bytes"),
        }
    }
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
    /// The figures of the snapshot, or the sums of those of a machine's disks.
    sizes: Option<SnapshotSizes>,
    /// The number of entries of an archived folder, without itself.
    entry_count: Option<u64>,
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
            sizes: None,
            entry_count: None,
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
    let Some(pause) = args.watch else { return run_once(invocation, args) };
    signals::watch()?;
    loop {
        match run_once(invocation, args) {
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => complaint::print(&error),
            Ok(_) => {}
        }
        let begun = RealClock.now();
        while age(begun, RealClock.now()) < pause {
            if signals::was_signalled() {
                bail!(Interrupted("interrupted: what is due is done by the next run"));
            }
            #[expect(clippy::disallowed_methods, reason = "the next look is awaited in real time")]
            std::thread::sleep(LOOK);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "jobs take real time")]
fn run_once(invocation: &Invocation, args: &RunArgs) -> Result<CommandOutcome> {
    let loaded = LoadedConfig::load(args.file.config.as_deref())?;
    retention::check_rules(&loaded)?;
    for name in &args.sources {
        if !loaded.config.sources.contains_key(name) {
            let known: Vec<_> = loaded.config.sources.keys().map(String::as_str).collect();
            bail!(UsageError(format!("there is no source {name}: known are {}", known.join(", "))));
        }
    }
    if args.dry_run {
        return dry_run::dry_run(invocation, &loaded, args);
    }
    let state = StateFolder::open(&loaded.state)?;
    if args.sources.is_empty() {
        // On a full disk the look is lost, and the work goes on.
        let _ = state.note_look(RealClock.now());
    }
    let Some(lock) = state.try_lock()? else {
        return beside_another_run::end(invocation, &loaded, &state, args);
    };
    let mut run = DailyRun {
        invocation,
        loaded: &loaded,
        histories: state.histories(),
        left_frozen: state.frozen(),
        state,
        lock,
        begun: RealClock.now(),
        job_end: None,
        outcome: CommandOutcome::Done,
        done_count: 0,
        has_lost_notes: false,
        system_root: &args.system_root,
        is_by_hand: !args.sources.is_empty(),
    };
    run.note_work(None);
    let removed = run.remove_left_views();
    run.remember(removed);
    let finished = run.finish_open_hooks();
    run.remember(finished);
    if !run.is_by_hand
        && let Some(until) = run.state.paused_until(RealClock.now())
    {
        if !invocation.quiet {
            notice!("daily work is paused until {}", moment::show(until));
        }
        run.notify();
        return Ok(if args.or_fail { CommandOutcome::NothingDone } else { run.outcome });
    }
    let all = jobs(&loaded);
    let mut sources_done = Instant::now();
    for kind in [JobKind::Snapshot, JobKind::Replicate, JobKind::Verify, JobKind::Reclaim, JobKind::Drill] {
        let of_kind: Vec<_> = all.iter().filter(|job| job.kind == kind).collect();
        if of_kind.is_empty() || (kind != JobKind::Snapshot && !args.sources.is_empty()) {
            continue;
        }
        run.histories.refresh(invocation, &loaded);
        for job in of_kind {
            if kind != JobKind::Snapshot && sources_done.elapsed() >= SOURCES_EVERY {
                for source in all.iter().filter(|job| job.kind == JobKind::Snapshot) {
                    run.job(source, args)?;
                }
                sources_done = Instant::now();
            }
            run.job(job, args)?;
        }
        if kind == JobKind::Snapshot {
            sources_done = Instant::now();
        }
    }
    let saved = run.state.save_histories(&run.histories);
    run.remember(saved);
    run.notify();
    Ok(match run.done_count {
        0 if args.or_fail && run.outcome == CommandOutcome::Done => CommandOutcome::NothingDone,
        _ => run.outcome,
    })
}

impl DailyRun<'_> {
    /// Sends notices about promises that have changed.
    fn notify(&self) {
        let has_done = self.done_count > 0;
        notify::after_run(self.invocation, self.loaded, &self.state, &self.histories, has_done);
    }

    /// Notes what this run does, for others that find it at work.
    fn note_work(&self, job: Option<String>) {
        self.lock.note(&WorkingRun { since: self.begun, job });
    }

    /// Runs a job if it is due.
    #[expect(clippy::disallowed_methods, reason = "jobs have time limits in real time")]
    fn job(&mut self, job: &DailyJob<'_>, args: &RunArgs) -> Result<()> {
        if !job.is_chosen(args) {
            return Ok(());
        }
        if signals::was_signalled() {
            bail!(Interrupted("interrupted: the remaining jobs are due again"));
        }
        let begun = RealClock.now();
        let mut decision = match args.sources.is_empty() {
            true => decide(job, &self.histories, &args.system_root, begun),
            false => JobDecision::named_by_hand(),
        };
        if decision.runs {
            // A store that does not open is an error of the job itself.
            let obstacle = known_time::obstacle(self.invocation, self.loaded, job).ok().flatten();
            decision = decision.unless(obstacle);
        }
        if decision.is_postponed {
            let is_new = decision.period_start.is_some_and(|start| self.histories.note_postponed(job, start));
            if is_new {
                if !self.invocation.quiet && job.kind == JobKind::Reclaim {
                    warning!("{}: {}", title(job), decision.reason);
                }
                let line = json!({ "time": moment::rfc3339(begun), "job": job.id(), "outcome": "postponed", "message": decision.reason });
                let written = self.state.log(line).and_then(|()| self.state.save_histories(&self.histories));
                self.remember(written);
            }
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
        let end = end.unwrap_or_else(|error| JobEnd::failed(with_causes(error.as_ref())));
        self.note_work(None);
        let ended = RealClock.now();
        if signals::was_signalled() && !end.has_succeeded {
            bail!(Interrupted("interrupted: what was stored so far will not be stored again"));
        }
        if !end.is_postponed {
            self.done_count += 1;
            self.outcome = self.outcome.max(end.outcome);
            self.histories.note(job, begun, ended, end.has_succeeded);
            if let (JobKind::Snapshot, Some(count)) = (job.kind, end.entry_count) {
                self.histories.note_entries(job.subject, count);
            }
        }
        let saved = self.state.save_histories(&self.histories);
        self.remember(saved);
        let seconds = age(begun, ended).as_secs_f64();
        let line = json!({
            "time": moment::rfc3339(begun),
            "job": job.id(),
            "outcome": end.word(),
            "seconds": seconds,
            "snapshot": end.snapshot,
            "size": end.sizes.map(|sizes| sizes.size),
            "new_bytes": end.sizes.map(|sizes| sizes.new_bytes),
            "stored_bytes": end.sizes.map(|sizes| sizes.stored_bytes),
            "forgotten": end.forgotten,
            "message": end.message,
        });
        let logged = self.state.log(line.clone());
        self.remember(logged);
        self.print_end(job, &end, seconds, line);
        Ok(())
    }

    /// Goes on after the state folder could not be written, as on a full disk: the remaining jobs
    /// and the notices are more important than the notes about them.
    fn remember(&mut self, written: Result<()>) {
        if let Err(error) = written {
            self.outcome = self.outcome.max(CommandOutcome::Failed);
            if !std::mem::replace(&mut self.has_lost_notes, true) {
                warning!("the state folder: {}", with_causes(error.as_ref()));
            }
        }
    }

    fn print_end(&self, job: &DailyJob<'_>, end: &JobEnd, seconds: f64, line: Value) {
        if self.invocation.json {
            say::record("job", line);
        } else if end.outcome != CommandOutcome::Done {
            let message = end.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
            warning!("{} ({}){message}", title(job), end.word());
        } else if !self.invocation.quiet {
            let sizes = end.sizes.map(|sizes| {
                let [size, new, stored] = [sizes.size, sizes.new_bytes, sizes.stored_bytes].map(show::bytes);
                let id = show::short_id(end.snapshot.as_deref().unwrap_or_default());
                format!(": {id}, {size}, {new} new, {stored} stored")
            });
            let took = show::seconds(seconds);
            say!("{}: {}{}, {took}", title(job), end.word(), sizes.unwrap_or_default());
        }
    }

    /// Removes the frozen views that a killed run has left.
    fn remove_left_views(&mut self) -> Result<()> {
        if self.left_frozen.is_empty() {
            return Ok(());
        }
        for step in std::mem::take(&mut self.left_frozen) {
            if let Err(error) = step.apply() {
                warning!("{}", with_causes(error.as_ref()));
                self.outcome = CommandOutcome::Failed;
                self.left_frozen.push(step);
            }
        }
        self.state.note_frozen(&self.left_frozen)
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
                        warning!("the hook always of {name} failed: {message}");
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

    /// Takes a snapshot, of a frozen view if the source has one.
    fn take_snapshot(&mut self, job: &DailyJob<'_>, source: &ConfiguredSource) -> Result<JobEnd> {
        let (place, is_disk) = match &source.what {
            SourceWhat::Folder(place) | SourceWhat::File(place) => (place, false),
            SourceWhat::Disk(place) => (place, true),
            _ => return self.read_source(job, source, None),
        };
        let Some(kind) = source.freeze else { return self.read_source(job, source, None) };
        let name = varve_watch::frozen_view_name(self.state.path(), job.subject);
        let order = FreezeOrder {
            kind,
            source: place,
            is_disk,
            has_one_file_system: source.has_one_file_system(),
            mount_at: self.state.mount_point(&name),
            name,
        };
        let mut undo = Vec::new();
        let frozen = freeze::freeze(&order, &mut |steps| {
            undo = steps.to_vec();
            self.state.note_frozen(&[self.left_frozen.as_slice(), steps].concat())
        });
        let end = frozen.context("the source was not frozen");
        let end = end.and_then(|view| self.read_source(job, source, Some(&view)));
        let mut end = end.unwrap_or_else(|error| JobEnd::failed(with_causes(error.as_ref())));
        // A view that was not whole to the end has caused the error or the gaps. A file system may
        // show fewer names in place of an error, so nothing is believed of such a view.
        if matches!(end.outcome, CommandOutcome::Done | CommandOutcome::Failed | CommandOutcome::Gaps)
            && !end.is_postponed
            && let Some(fault) = undo.iter().find_map(UndoStep::fault)
        {
            let earlier = end.message.take().map(|message| format!("; {message}")).unwrap_or_default();
            let snapshot = end.snapshot.take();
            end = JobEnd { snapshot, ..JobEnd::failed(format!("{fault}{earlier}")) };
        }
        for step in undo {
            if let Err(error) = step.apply() {
                let earlier = end.message.take().map(|message| format!("{message}; ")).unwrap_or_default();
                end.message = Some(format!("{earlier}{}", with_causes(error.as_ref())));
                end.outcome = end.outcome.max(CommandOutcome::Failed);
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
        view: Option<&FrozenView>,
    ) -> Result<JobEnd> {
        // With a key that may read, the snapshot itself compares with the one before.
        if self.histories.is_write_only(job.store_name)
            && let Some(count) = self.histories.emptied_sources(&self.loaded.config).get(job.subject)
        {
            bail!(
                "the folder is empty, but its last snapshot has {}: its disk is not mounted, or it was emptied (allow-empty = true archives it)",
                show::count(*count, "entry")
            );
        }
        let earlier = self.histories.earlier_path(job.store_name, job.subject);
        taken_over::check(self.invocation, self.loaded, job.store, (job.subject, source), earlier)?;
        let mut arguments = vec!["snapshot".to_owned()];
        arguments.extend(source.options.iter().cloned());
        let path = |path: &Path| path.to_string_lossy().into_owned();
        arguments.extend(view.map(|view| format!("--read-from={}", path(&view.path))));
        match &source.what {
            SourceWhat::Command { program, name } => {
                program.first().map_or(Ok(()), |program| require_trusted_program(program))?;
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
        let rates = replica.upload.as_ref().map(|rates| format!("--limit-rate={rates}"));
        let head = std::iter::once("replicate".to_owned()).chain(rates);
        // The password is not on the command line, which all users of the machine can see.
        let (at, password) = varve_remote::split_password(&replica.at);
        let secret = password.map(|password| (REMOTE_PASSWORD, password));
        self.program_with(job, &head.chain(["--".to_owned(), at]).collect::<Vec<_>>(), secret)
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

    /// Drills the newest snapshot of each series of a source.
    fn drill(&self, job: &DailyJob<'_>) -> Result<JobEnd> {
        let care = self.loaded.config.care.drill.as_ref().context("drills are set")?;
        let source = job.source.context("a drill has a source")?;
        let session = self.loaded.session(self.invocation, job.store)?;
        let found =
            open_store::read(&session, job.store)?.context("this key cannot read, so it cannot restore")?;
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
            let mut arguments = vec!["drill".to_owned(), format!("--files={}", care.file_count)];
            if care.boot && one.dated.kind == ContentKind::Image {
                arguments.push("--boot".to_owned());
            }
            arguments.push(one.id.to_string());
            let drilled = self.program(job, &arguments)?;
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
        let found = open_store::read(&session, job.store)?
            .context("this key cannot read the snapshots, so it cannot judge them")?;
        let series = |(name, source): (&String, _)| {
            let (config, host) = (&self.loaded.config, self.loaded.host.as_str());
            let own = found.snapshots.iter().filter(|one| is_of_source(config, host, (name, source), one));
            (source, own.map(|one| one.name.clone()).collect::<BTreeSet<_>>())
        };
        Ok(judged.into_iter().map(series).filter(|(_, names)| !names.is_empty()).collect())
    }

    fn program(&self, job: &DailyJob<'_>, arguments: &[String]) -> Result<JobEnd> {
        self.program_with(job, arguments, None)
    }

    /// Runs a command of this program for a job, and reports its records. `secret` is a variable of
    /// its environment.
    #[expect(clippy::disallowed_methods, reason = "jobs have time limits in real time")]
    fn program_with(
        &self,
        job: &DailyJob<'_>,
        arguments: &[String],
        secret: Option<(&'static str, String)>,
    ) -> Result<JobEnd> {
        store_identity::check(job.store)?;
        let wait = format!("--wait={}s", job.store.wait.as_secs());
        let all = [&[wait], arguments].concat();
        let mut environment = store_environment(job.store)?;
        environment.push((HOST_VARIABLE, OsString::from(&self.loaded.host)));
        environment.extend(secret.map(|(name, secret)| (name, secret.into())));
        let mut end = JobEnd::new();
        let mut obstacle = None;
        // The times of upload rates are those of the configuration.
        let zone = self.loaded.config.zone.as_ref().and_then(|zone| zone.iana_name());
        let zone = zone.filter(|_| job.kind == JobKind::Replicate);
        environment.extend(zone.map(|zone| ("TZ", zone.into())));
        let mut asked_count = 0_u32;
        let mut is_too_long = false;
        let mut meanwhile = NoticesMeanwhile::new(&self.state, self.notified_config());
        let must_end = || {
            meanwhile.look();
            is_too_long = self.job_end.is_some_and(|end| Instant::now() >= end);
            if is_too_long {
                return true;
            }
            // A job that is too late to be postponed is not ended either.
            let last = self.histories.of(job).last_success(RealClock.now());
            // A program asks for the state of the network. It is started less often.
            let unmetered = job.conditions.unmetered && asked_count.is_multiple_of(NETWORK_EVERY);
            asked_count = asked_count.wrapping_add(1);
            let machine = machine_state(self.system_root, RunConditions { unmetered, ..job.conditions });
            let reason = job.conditions.reason_to_end(machine, last, RealClock.now());
            obstacle = reason.filter(|_| !self.is_by_hand);
            obstacle.is_some()
        };
        let status = program_run::run(&self.state, &self.lock, (&all, &environment), must_end, |record| {
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
        if is_too_long && !end.has_succeeded {
            end.outcome = CommandOutcome::Failed;
            end.message = Some(format!(
                "it did not end within {}, and was ended: what it has stored stays; timeout in {} sets another limit",
                show_time_span(job.timeout),
                job.table()
            ));
        } else if let Some(reason) = obstacle
            && !end.has_succeeded
        {
            end.is_postponed = true;
            end.message = Some(format!("ended early: {reason}"));
        } else if status.is_none() {
            end.message = Some("a signal ended the program".to_owned());
        }
        Ok(end)
    }

    /// Returns the file of the configuration, if somebody is to be notified.
    fn notified_config(&self) -> Option<PathBuf> {
        self.loaded.files.first().filter(|_| self.loaded.config.notify.is_set()).cloned()
    }

    /// Takes over a record of a command that this run has started.
    fn take_record(&self, record: &Value, end: &mut JobEnd) {
        let kind = record["type"].as_str().unwrap_or_default();
        let message = record["message"].as_str().unwrap_or_default();
        match kind {
            "error" => end.message = Some(message.chars().take(MESSAGE_CHARS_MAX).collect()),
            "drill" => {
                if let Some(failure) = record["failure"].as_str() {
                    end.message = Some(failure.chars().take(MESSAGE_CHARS_MAX).collect());
                }
            }
            "snapshot" => {
                end.snapshot = record["id"].as_str().map(str::to_owned);
                end.sizes = Some(end.sizes.unwrap_or_default().with(record));
                end.entry_count = record["entries"].as_u64().map(|count| count.saturating_sub(1));
            }
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
                    hint!("{hint}");
                }
            }
            "problem" => warning!("{}: {message}", record["path"].as_str().unwrap_or(".")),
            "warning" | "waiting" => warning!("{message}"),
            "hint" => hint!("{message}"),
            "notice" => notice!("{message}"),
            "forget_verdict" if record["verdict"] == "forget" && !self.invocation.quiet => {
                let text = |field: &str| record[field].as_str().unwrap_or_default().to_owned();
                let reasons: Vec<_> =
                    record["reasons"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                let id = show::short_id(record["id"].as_str().unwrap_or_default());
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
