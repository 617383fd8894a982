//! Runs: the jobs of the daily work on this machine, the newest first.

use askama::Template;
use varve_block::with_causes;

use super::job_rows::{JobRow, job_rows};
use super::page::{Frame, PageError, PageHtml};
use crate::show;
use crate::site::PageRequest;
use crate::state::run_log::{RunLog, is_bad};

/// Jobs on one page.
const JOBS_MAX: usize = 100;

#[derive(Template)]
#[template(path = "runs.html")]
struct RunsTemplate {
    frame: Frame,
    /// Why there are no runs to show.
    absence: String,
    jobs: Vec<JobRow>,
    failed_only: bool,
    is_continued: bool,
    next: Option<String>,
}

/// The jobs of past runs.
pub(crate) fn runs(request: &PageRequest) -> Result<PageHtml, PageError> {
    let failed_only = request.value("failed").is_some();
    let skipped = request.value("skip").and_then(|skip| skip.parse::<usize>().ok()).unwrap_or(0);
    let mut next = None;
    let (jobs, absence) = match log_of(request) {
        Err(absence) => (Vec::new(), absence),
        Ok(log) => match log.newest() {
            Err(error) => (Vec::new(), show::line(with_causes(error.as_ref()).as_bytes())),
            Ok(lines) => {
                let chosen = lines.filter(|line| !failed_only || is_bad(line)).skip(skipped);
                let mut lines: Vec<_> = chosen.take(JOBS_MAX + 1).collect();
                if lines.len() > JOBS_MAX {
                    lines.truncate(JOBS_MAX);
                    let failed = if failed_only { "&failed=1" } else { "" };
                    next = Some(format!("/runs?skip={}{failed}", skipped.saturating_add(JOBS_MAX)));
                }
                let absence = match lines.is_empty() {
                    true if failed_only || skipped > 0 => "There are no such runs.",
                    true => "No run is noted yet: `varve run` does the daily work.",
                    false => "",
                };
                (job_rows(request, &lines), absence.to_owned())
            }
        },
    };
    PageHtml::of(&RunsTemplate {
        frame: Frame::new(request, "/runs", "Runs"),
        absence,
        jobs,
        failed_only,
        is_continued: skipped > 0,
        next,
    })
}

/// The run log, or the reason why there is none.
fn log_of(request: &PageRequest) -> Result<RunLog, String> {
    let Some(state) = &request.site.state else {
        return Err("This archive is at a server, and its runs are not noted here.".into());
    };
    match RunLog::of(&state.store) {
        Ok(Some(log)) => Ok(log),
        Ok(None) => Err("There is no configuration on this machine, so no daily work is noted.".into()),
        Err(error) => Err(show::line(with_causes(error.as_ref()).as_bytes())),
    }
}

/// The last jobs for a series on this machine, at most `count`; none if it is another machine's.
pub(crate) fn jobs_of_series(request: &PageRequest, host: &str, name: &str, count: usize) -> Vec<JobRow> {
    let Ok(log) = log_of(request) else { return Vec::new() };
    let jobs = log.jobs_of_series(host, name);
    let Ok(lines) = log.newest() else { return Vec::new() };
    let own = lines.filter(|line| jobs.contains(&line.job));
    job_rows(request, &own.take(if jobs.is_empty() { 0 } else { count }).collect::<Vec<_>>())
}

/// The last runs of jobs that were not good.
pub(crate) fn failing_jobs(request: &PageRequest) -> Vec<JobRow> {
    let failing = log_of(request).and_then(|log| log.failing().map_err(|error| error.to_string()));
    failing.map_or_else(|_| Vec::new(), |lines| job_rows(request, &lines))
}
