//! The promises and the jobs of a configuration in the text format of Prometheus.

use varve_world::Timestamp;

use super::metrics_text::MetricsText;
use crate::jobs::Histories;
use crate::judging::StatusReport;
use crate::promise::{JudgedPromise, PromiseState};

/// Returns a figure of a promise, if it has one.
type PromiseFigure = fn(&JudgedPromise) -> Option<u64>;

/// Returns the page.
#[must_use]
pub fn metrics_page(report: &StatusReport, histories: &Histories, now: Timestamp) -> String {
    let mut page = MetricsText::default();
    let promises = &report.promises;
    let figures: [(&str, &str, PromiseFigure); 3] = [
        ("varve_promise_ok", "1 if the promise is kept, 0 if it is broken or cannot be judged.", |promise| {
            Some(u64::from(promise.state == PromiseState::Kept))
        }),
        ("varve_promise_figure_seconds", "The age or the time that the promise limits.", |promise| {
            promise.figure.map(|figure| figure.as_secs())
        }),
        ("varve_promise_limit_seconds", "The limit of the promise.", |promise| {
            promise.limit.map(|limit| limit.as_secs())
        }),
    ];
    for (name, help, figure) in figures {
        page.head(name, help, "gauge");
        for promise in promises {
            if let Some(value) = figure(promise) {
                let labels = [("promise", promise.kind.name()), ("subject", promise.subject.as_str())];
                page.labelled(name, &labels, value);
            }
        }
    }
    let name = "varve_job_last_success_time_seconds";
    page.head(name, "The time of the last success of the job, in seconds since 1970.", "gauge");
    for (job, last, _) in histories.known_jobs() {
        if let Some(last) = last {
            page.labelled(name, &[("job", job)], seconds(last));
        }
    }
    let name = "varve_job_failures";
    page.head(name, "The failures of the job since its last success.", "gauge");
    for (job, _, failures) in histories.known_jobs() {
        page.labelled(name, &[("job", job)], failures);
    }
    let name = "varve_status_time_seconds";
    page.gauge(name, "The time when the promises were judged, in seconds since 1970.", seconds(now));
    page.into_text()
}

fn seconds(time: Timestamp) -> u64 {
    u64::try_from(time.0 / 1_000_000_000).unwrap_or(0)
}
