//! The rows of a table of past jobs. Jobs that one cause has stopped in one run share a row.

use std::time::Duration;

use varve_daily::LoggedJob;

use super::snapshot_place::address_in;
use crate::archive::snapshot_view::parse_id;
use crate::show;
use crate::site::PageRequest;

/// Names of jobs that are shown in a row.
const NAMES_MAX: usize = 8;

/// One or more jobs of a run.
pub(crate) struct JobRow {
    pub(crate) time: String,
    /// The names of its jobs. In a row of several, all have ended in the same way.
    pub(crate) names: String,
    pub(crate) outcome: String,
    pub(crate) class: &'static str,
    pub(crate) took: String,
    pub(crate) read: String,
    pub(crate) new: String,
    pub(crate) stored: String,
    /// The snapshot that it made, if it is still there, with its short id.
    pub(crate) snapshot: Option<(String, String)>,
    /// The first line of its message, and the lines after it.
    pub(crate) cause: String,
    pub(crate) more: String,
}

/// Arranges lines of the run log, the newest first, as rows.
pub(crate) fn job_rows(request: &PageRequest, lines: &[LoggedJob]) -> Vec<JobRow> {
    let mut rows = Vec::new();
    let mut left = lines;
    while let Some((jobs, rest)) = split_first_row(left) {
        rows.extend(job_row(request, jobs));
        left = rest;
    }
    rows
}

/// Splits off the lines of the first row: different jobs, one after the other, with one message.
fn split_first_row(lines: &[LoggedJob]) -> Option<(&[LoggedJob], &[LoggedJob])> {
    let first = lines.first()?;
    let is_same = |line: &LoggedJob| (&line.outcome, &line.message) == (&first.outcome, &first.message);
    let follows = |at: &usize| {
        first.message.is_some()
            && is_same(&lines[*at])
            && lines[..*at].iter().all(|line| line.job != lines[*at].job)
    };
    let count = (1..lines.len()).take_while(follows).count();
    lines.split_at_checked(count + 1)
}

fn job_row(request: &PageRequest, jobs: &[LoggedJob]) -> Option<JobRow> {
    // The first job of a run is the last of its lines.
    let line = jobs.last()?;
    let sum = |figure: fn(&LoggedJob) -> Option<u64>| {
        let sum = jobs.iter().filter_map(figure).reduce(u64::saturating_add);
        sum.map_or_else(String::new, show::bytes)
    };
    let id = line.snapshot.as_deref().and_then(parse_id);
    let snapshot = id.and_then(|id| request.view.snapshot(&id));
    let message = line.message.as_deref().unwrap_or_default().trim();
    let (cause, more) = message.split_once('\n').unwrap_or((message, ""));
    let more: Vec<_> = more.lines().map(show::text_line).collect();
    Some(JobRow {
        time: line
            .began()
            .map_or_else(|| show::line(line.time.as_bytes()), |time| show::minute(time, request.zone())),
        names: names(jobs),
        outcome: show::name(line.outcome.as_bytes()),
        class: match line.outcome.as_str() {
            "done" => "good",
            "postponed" => "",
            "gaps" | "locked" | "interrupted" => "warn",
            _ => "bad",
        },
        took: took(jobs),
        read: sum(|line| line.size),
        new: sum(|line| line.new_bytes),
        stored: sum(|line| line.stored_bytes),
        snapshot: snapshot
            .map(|one| (address_in("/look/", one, b""), one.id.to_string().chars().take(8).collect())),
        cause: show::text_line(cause),
        more: more.join("\n"),
    })
}

/// The names of the jobs, in the order in which they ran.
fn names(jobs: &[LoggedJob]) -> String {
    let shown: Vec<_> = jobs.iter().rev().take(NAMES_MAX).map(|job| show::name(job.job.as_bytes())).collect();
    let more = match jobs.len().saturating_sub(NAMES_MAX) {
        0 => String::new(),
        more => format!(" and {}", show::count(more as u64, "more job")),
    };
    format!("{}{more}", shown.join(", "))
}

/// The time that the jobs took together.
fn took(jobs: &[LoggedJob]) -> String {
    let times = jobs.iter().filter_map(|job| Duration::try_from_secs_f64(job.seconds?).ok());
    let sum = times.reduce(Duration::saturating_add);
    sum.map_or_else(String::new, |sum| match sum.as_secs() {
        0..120 => format!("{:.1} s", sum.as_secs_f64()),
        seconds => show::span(seconds),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(job: &str, outcome: &str, message: Option<&str>) -> LoggedJob {
        let message = message.map(str::to_owned);
        LoggedJob { job: job.into(), outcome: outcome.into(), message, ..LoggedJob::default() }
    }

    #[test]
    fn jobs_that_one_cause_has_stopped_share_a_row() {
        let no_key = Some("the key file is not there");
        let lines = [
            line("verify main", "failed", no_key),
            line("snapshot etc", "failed", no_key),
            line("snapshot home", "failed", no_key),
            // The run before.
            line("verify main", "failed", no_key),
            line("snapshot home", "done", None),
            line("snapshot etc", "done", None),
            line("snapshot home", "gaps", Some("a")),
            line("snapshot etc", "gaps", Some("b")),
        ];
        let (mut left, mut counts) = (&lines[..], Vec::new());
        while let Some((row, rest)) = split_first_row(left) {
            counts.push(row.len());
            left = rest;
        }
        assert_eq!(counts, [3, 1, 1, 1, 1, 1]);
        assert_eq!(names(&lines[..3]), "snapshot home, snapshot etc, verify main");
        let many: Vec<_> =
            (0..10).map(|number| line(&format!("snapshot {number}"), "failed", no_key)).collect();
        assert!(names(&many).ends_with("snapshot 2 and 2 more jobs"), "{}", names(&many));
    }

    #[test]
    fn odd_times_are_no_times() {
        let with = |seconds| LoggedJob { seconds, ..LoggedJob::default() };
        assert_eq!(took(&[with(Some(0.25)), with(Some(1.0)), with(None)]), "1.2 s");
        assert_eq!(took(&[with(Some(7_200.0))]), "2 hours");
        for odd in [Some(-1.0), Some(f64::NAN), Some(1e300), None] {
            assert_eq!(took(&[with(odd)]), "");
        }
    }
}
