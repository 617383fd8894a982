//! A line of the run log.

use serde::{Deserialize, Serialize};
use varve_session::moment;
use varve_world::Timestamp;

/// A line of the run log: a job of a run, or an attempt to send a notice. Earlier versions wrote
/// fewer fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoggedJob {
    /// The time when it began: RFC 3339, UTC.
    pub time: String,
    /// The job with its subject, such as `snapshot home`.
    pub job: String,
    /// `done`, `gaps`, `damage`, `locked`, `failed`, `postponed` or `interrupted`.
    pub outcome: String,
    /// The seconds that it took.
    pub seconds: Option<f64>,
    /// The id of the snapshot that it made.
    pub snapshot: Option<String>,
    /// The bytes of the snapshot, of its new blocks, and what these take in the store.
    pub size: Option<u64>,
    pub new_bytes: Option<u64>,
    pub stored_bytes: Option<u64>,
    pub forgotten: Vec<ForgottenSnapshot>,
    pub message: Option<String>,
}

/// A snapshot that the rules of its source have dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ForgottenSnapshot {
    pub id: String,
    pub name: String,
    /// RFC 3339, UTC.
    pub time: String,
}

impl LoggedJob {
    /// Describes the end of something that has no figures.
    #[must_use]
    pub fn new(time: Timestamp, job: String, outcome: &str, message: Option<String>) -> Self {
        Self { time: moment::rfc3339(time), job, outcome: outcome.to_owned(), message, ..Self::default() }
    }

    /// Returns the source, replica, store or channel that it was about.
    #[must_use]
    pub fn subject(&self) -> &str {
        self.job.split_once(' ').map_or("", |(_, subject)| subject)
    }

    /// Returns the time when it began; `None` if the line is damaged.
    #[must_use]
    pub fn began(&self) -> Option<Timestamp> {
        moment::parse_exact(&self.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_earlier_versions_are_read() {
        let line = r#"{"time":"2026-05-01T02:00:00Z","job":"snapshot home","outcome":"done","seconds":2.5,"snapshot":"ab","other":1}"#;
        let read: LoggedJob = serde_json::from_str(line).unwrap();
        assert_eq!((read.subject(), read.began()), ("home", Some(Timestamp(1_777_600_800_000_000_000))));
        assert_eq!((read.seconds, read.size, read.forgotten.len()), (Some(2.5), None, 0));
        let again: LoggedJob = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
        assert_eq!(again, read);
    }
}
