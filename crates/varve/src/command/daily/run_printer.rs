//! Prints what a run reports.

use serde_json::Value;
use varve_daily::{DailyJob, JobOutcome, JobRecord, LoggedJob, RunObserver};

use crate::invocation::Invocation;
use crate::{say, show};

/// Prints the reports of a run, and of its jobs.
pub struct RunPrinter<'a>(pub &'a Invocation);

impl RunObserver for RunPrinter<'_> {
    fn warning(&self, text: &str) {
        warning!("{text}");
    }

    fn notice(&self, text: &str) {
        if !self.0.quiet {
            notice!("{text}");
        }
    }

    fn postponed(&self, job: &DailyJob<'_>, reason: &str) {
        // Others are postponed as the user has set it.
        if !self.0.quiet && job.kind == varve_daily::JobKind::Reclaim {
            warning!("{}: {reason}", job.title());
        }
    }

    fn record(&self, record: &JobRecord, line: &Value) {
        if self.0.json {
            return say::result(format_args!("{line}"));
        }
        match record {
            JobRecord::Error { hint: Some(hint), .. } => hint!("{hint}"),
            JobRecord::Problem { path, message } => warning!("{}: {message}", path.as_deref().unwrap_or(".")),
            JobRecord::Warning { message } | JobRecord::Waiting { message } => warning!("{message}"),
            JobRecord::Hint { message } => hint!("{message}"),
            JobRecord::Notice { message } => notice!("{message}"),
            JobRecord::ForgetVerdict { verdict, id, name, time, reasons }
                if verdict == "forget" && !self.0.quiet =>
            {
                let (id, name) = (show::short_id(id), show::name(name.as_bytes()));
                say!("forgot {id} {name} {time}: {}", reasons.join("; "));
            }
            _ => {}
        }
    }

    fn ended(&self, job: &DailyJob<'_>, logged: &LoggedJob) {
        if self.0.json {
            return say::record("job", as_json(logged));
        }
        let LoggedJob { outcome, message, seconds, .. } = logged;
        if outcome != JobOutcome::Done.name() {
            let message = message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
            warning!("{} ({outcome}){message}", job.title());
        } else if !self.0.quiet {
            let sizes = logged.size.zip(logged.new_bytes).zip(logged.stored_bytes);
            let sizes = sizes.map(|((size, new), stored)| {
                let [size, new, stored] = [size, new, stored].map(show::bytes);
                let id = show::short_id(logged.snapshot.as_deref().unwrap_or_default());
                format!(": {id}, {size}, {new} new, {stored} stored")
            });
            let took = show::seconds(seconds.unwrap_or_default());
            say!("{}: {outcome}{}, {took}", job.title(), sizes.unwrap_or_default());
        }
    }
}

/// Returns a line of the run log for programs.
pub fn as_json(logged: &LoggedJob) -> Value {
    // A struct of texts and numbers has a form in JSON.
    serde_json::to_value(logged).unwrap_or_default()
}
