//! `varve snapshot --qmp`

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use serde_json::json;
use varve_archive::SnapshotRequest;
use varve_machine::{
    MachineSnapshotError, MachineSnapshotOptions, MachineSnapshotWatch, ReadExtent, TakenDrive,
    archive_machine_snapshot,
};
use varve_session::WithHint;

use super::report::{as_line, warn_if_hidden, warn_of_fast_commits};
use super::snapshot_names::NAME_TAKEN;
use crate::arguments::{CutChoice, TakeSnapshotArgs};
use crate::command::looking::left_out::say_left_out;
use crate::command::looking::snapshot_list;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::signals::cancellable_progress;
use crate::{moment, say, show};

/// Time limit for an answer of QEMU, and for freezing the guest.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn run(invocation: &Invocation, args: &TakeSnapshotArgs, qmp: &Path) -> Result<CommandOutcome> {
    let mut archive = invocation.session.write()?;
    let progress = cancellable_progress()?;
    let options = MachineSnapshotOptions {
        qmp: qmp.into(),
        agent: args.machine.agent.clone(),
        drives: args.machine.drives.clone(),
        scratch: args.machine.scratch.clone(),
        whole: args.reread,
        keep_swap: args.keep_swap,
        cut_at_files: args.cut == CutChoice::Files,
        patience: PATIENCE,
    };
    let request = SnapshotRequest {
        name: args.name.clone().unwrap_or_default(),
        time: args.time,
        host: varve_session::snapshot_host(),
        tags: args.tags.clone(),
        comment: args.comment.clone().unwrap_or_default(),
        name_is_given: args.name.is_some(),
        read_in_pieces: !args.compact,
        ..SnapshotRequest::default()
    };
    let shown = Mutex::new(None);
    let show_bar = |bar: Option<ShownProgress>| *shown.lock() = bar;
    let begun = |name: &str| {
        show_bar(Some(ShownProgress::start(name, &progress, invocation.quiet || invocation.json)))
    };
    let taken = Mutex::new(Vec::new());
    let is_first = AtomicBool::new(true);
    let has_problems = AtomicBool::new(false);
    let done = |drive: &TakenDrive| {
        show_bar(None);
        warn_of_fast_commits(Path::new(&drive.drive), drive.left_out.fast_commits());
        has_problems.fetch_or(drive.taken.snapshot.problem_count > 0, Ordering::Relaxed);
        taken.lock().push(drive.taken.snapshot.clone());
        print(invocation, drive, is_first.fetch_and(false, Ordering::Relaxed));
    };
    let warn = |said: &str| warning!("{said}");
    let watch = MachineSnapshotWatch { progress: &progress, begun: &begun, done: &done, warn: &warn };
    let archived = archive_machine_snapshot(&mut archive, &options, &request, watch);
    show_bar(None);
    if args.time.is_none() {
        let taken = taken.into_inner();
        taken.iter().for_each(|taken| warn_if_hidden(archive.snapshots(), taken));
    }
    archive.close()?;
    let archived =
        archived.with_hint(|error| matches!(error, MachineSnapshotError::Name(_)).then_some(NAME_TAKEN));
    archived.with_context(|| format!("the machine at {} was not archived", qmp.display()))?;
    Ok(if has_problems.into_inner() { CommandOutcome::Gaps } else { CommandOutcome::Done })
}

/// Reports a drive. The parts of the machine that are not archived are reported with the first one.
fn print(invocation: &Invocation, drive: &TakenDrive, is_first: bool) {
    let taken = &drive.taken.snapshot;
    if invocation.json {
        let (since, reason) = match &drive.reading {
            ReadExtent::Since { snapshot, .. } => (Some(snapshot.to_string()), None),
            ReadExtent::Whole { reason } => (None, Some(reason)),
        };
        let mut line = snapshot_list::as_json(taken);
        line["drive"] = json!(drive.drive);
        line["read_bytes"] = json!(drive.read_bytes);
        line["changed_since"] = json!(since);
        line["read_whole_because"] = json!(reason);
        say::record("snapshot", line);
    } else if !invocation.quiet {
        let why = match &drive.reading {
            ReadExtent::Since { time, .. } => format!("the changes since {}", moment::show(*time)),
            ReadExtent::Whole { reason } => format!("all of it: {reason}"),
        };
        let what = if drive.is_firmware { "; the UEFI variables of the machine" } else { "" };
        say!("{}; read {}, {why}{what}", as_line(taken), show::bytes(drive.read_bytes));
        say_left_out(taken.left_out.iter().filter(|part| is_first || !part.is_beside_the_disk()));
    }
}
