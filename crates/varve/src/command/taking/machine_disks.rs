//! `varve snapshot --qmp`

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use serde_json::json;
use varve_archive::{Progress, SnapshotRequest};
use varve_machine::{DriveTaken, NightError, NightOptions, NightWatch, Reading, archive_night};
use varve_session::WithHint;

use super::report::{as_line, warn_if_hidden, warn_of_fast_commits};
use super::snapshot_names::NAME_TAKEN;
use crate::arguments::TakeSnapshot;
use crate::command::looking::left_out::say_left_out;
use crate::command::looking::snapshot_list;
use crate::invocation::Invocation;
use crate::outcome::Outcome;
use crate::progress_bar::Shown;
use crate::signals::cancel_on_signal;
use crate::{moment, say, show};

/// Time limit for an answer of QEMU, and for freezing the guest.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn run(invocation: &Invocation, words: &TakeSnapshot, qmp: &Path) -> Result<Outcome> {
    let mut archive = invocation.session.write()?;
    let progress = Arc::new(Progress::new());
    cancel_on_signal(&progress)?;
    let options = NightOptions {
        qmp: qmp.into(),
        agent: words.machine.agent.clone(),
        drives: words.machine.drives.clone(),
        scratch: words.machine.scratch.clone(),
        whole: words.reread,
        keep_swap: words.keep_swap,
        patience: PATIENCE,
    };
    let request = SnapshotRequest {
        name: words.name.clone().unwrap_or_default(),
        time: words.time,
        host: varve_session::host_name(),
        tags: words.tags.clone(),
        comment: words.comment.clone().unwrap_or_default(),
        name_is_given: words.name.is_some(),
        read_in_pieces: !words.compact,
        ..SnapshotRequest::default()
    };
    let shown = Mutex::new(None);
    let show_bar = |bar: Option<Shown>| *shown.lock() = bar;
    let begun =
        |name: &str| show_bar(Some(Shown::start(name, &progress, invocation.quiet || invocation.json)));
    let taken = Mutex::new(Vec::new());
    let has_problems = AtomicBool::new(false);
    let done = |drive: &DriveTaken| {
        show_bar(None);
        warn_of_fast_commits(Path::new(&drive.drive), drive.left_out.fast_commits());
        has_problems.fetch_or(drive.taken.snapshot.problem_count > 0, Ordering::Relaxed);
        taken.lock().push(drive.taken.snapshot.clone());
        print(invocation, drive);
    };
    let warn = |said: &str| remark!("varve: {said}");
    let watch = NightWatch { progress: &progress, begun: &begun, done: &done, warn: &warn };
    let night = archive_night(&mut archive, &options, &request, watch);
    show_bar(None);
    if words.time.is_none() {
        let taken = taken.into_inner();
        taken.iter().for_each(|taken| warn_if_hidden(archive.snapshots(), taken));
    }
    archive.close()?;
    let night = night.with_hint(|error| matches!(error, NightError::Name(_)).then_some(NAME_TAKEN));
    night.with_context(|| format!("the machine at {} was not archived", qmp.display()))?;
    Ok(if has_problems.into_inner() { Outcome::Gaps } else { Outcome::Done })
}

fn print(invocation: &Invocation, drive: &DriveTaken) {
    let taken = &drive.taken.snapshot;
    if invocation.json {
        let (since, reason) = match &drive.reading {
            Reading::Since { night, .. } => (Some(night.to_string()), None),
            Reading::Whole { reason } => (None, Some(reason)),
        };
        let mut line = snapshot_list::as_json(taken);
        line["drive"] = json!(drive.drive);
        line["read_bytes"] = json!(drive.read_bytes);
        line["changed_since"] = json!(since);
        line["read_whole_because"] = json!(reason);
        say::record("snapshot", line);
    } else if !invocation.quiet {
        let why = match &drive.reading {
            Reading::Since { time, .. } => format!("the changes since {}", moment::show(*time)),
            Reading::Whole { reason } => format!("all of it: {reason}"),
        };
        say!("{}; read {}, {why}", as_line(taken), show::bytes(drive.read_bytes));
        say_left_out(&taken.left_out);
    }
}
