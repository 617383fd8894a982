//! The one who watches a run.

use serde_json::Value;

use super::record::JobRecord;
use crate::jobs::DailyJob;
use crate::state::LoggedJob;

/// Gets what a run reports while it works. The program prints it.
pub trait RunObserver {
    /// Something is wrong, or was left out.
    fn warning(&self, text: &str);

    /// Something that is worth knowing, and no more.
    fn notice(&self, text: &str);

    /// A job is due, and is left for another time.
    fn postponed(&self, job: &DailyJob<'_>, reason: &str);

    /// The process of a job has printed a record. `line` has all of its fields.
    fn record(&self, record: &JobRecord, line: &Value);

    /// A job has ended, as it stands in the run log.
    fn ended(&self, job: &DailyJob<'_>, logged: &LoggedJob);
}
