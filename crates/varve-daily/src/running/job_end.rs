//! How a job ended.

use varve_block::with_causes;

use super::record::JobRecord;
use crate::state::ForgottenSnapshot;

/// A longer message of a job is cut.
const MESSAGE_CHARS_MAX: usize = 4_000;

/// The outcome of a job, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobOutcome {
    Done,
    /// The work is done, but something is missing, such as an unreadable file.
    Gaps,
    /// Another writer held the store for too long.
    Locked,
    Failed,
    /// Damage was found: stored bytes are lost or changed.
    Damage,
}

impl JobOutcome {
    /// Every outcome, with the exit status of the process of a job.
    pub const STATUSES: [(Self, u8); 5] =
        [(Self::Done, 0), (Self::Gaps, 3), (Self::Locked, 11), (Self::Failed, 1), (Self::Damage, 5)];

    /// Returns the outcome of a process. A status that says nothing else means a failure, as does
    /// the end by a signal.
    #[must_use]
    pub fn of_status(status: Option<i32>) -> Self {
        let named = Self::STATUSES.into_iter().find(|(_, named)| status == Some(i32::from(*named)));
        named.map_or(Self::Failed, |(outcome, _)| outcome)
    }

    /// Returns the name in the run log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Gaps => "gaps",
            Self::Locked => "locked",
            Self::Failed => "failed",
            Self::Damage => "damage",
        }
    }
}

/// The sizes of a snapshot in bytes: all of it, its new blocks, and what they take in the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SnapshotSizes {
    pub size: u64,
    pub new_bytes: u64,
    pub stored_bytes: u64,
}

/// The end of a job.
pub(super) struct JobEnd {
    pub outcome: JobOutcome,
    /// True if the job counts as done for its period.
    pub has_succeeded: bool,
    /// Set if it was left for another time.
    pub is_postponed: bool,
    pub message: Option<String>,
    pub snapshot: Option<String>,
    /// The figures of the snapshot, or the sums of those of a machine's disks.
    pub sizes: Option<SnapshotSizes>,
    /// The number of entries of an archived folder, without itself.
    pub entry_count: Option<u64>,
    pub forgotten: Vec<ForgottenSnapshot>,
}

impl JobEnd {
    /// Returns the end of a job of which nothing is known yet.
    pub fn new() -> Self {
        Self {
            outcome: JobOutcome::Done,
            has_succeeded: false,
            is_postponed: false,
            message: None,
            snapshot: None,
            sizes: None,
            entry_count: None,
            forgotten: Vec::new(),
        }
    }

    /// Returns the end of a job that has failed.
    pub fn failed(message: String) -> Self {
        Self { outcome: JobOutcome::Failed, message: Some(message), ..Self::new() }
    }

    /// Returns the end of a job that this error has stopped.
    pub fn of_error(error: &anyhow::Error) -> Self {
        Self::failed(with_causes(error.as_ref()))
    }

    /// Returns its name in the run log.
    pub fn name(&self) -> &'static str {
        if self.is_postponed { "postponed" } else { self.outcome.name() }
    }

    /// Notes a failure that came after what has happened so far.
    pub fn add_failure(&mut self, message: &str) {
        self.outcome = self.outcome.max(JobOutcome::Failed);
        let earlier = self.message.take().map(|earlier| format!("{earlier}; ")).unwrap_or_default();
        self.message = Some(format!("{earlier}{message}"));
    }

    /// Takes over what a record of the job's process says.
    pub fn take(&mut self, record: &JobRecord) {
        let cut = |text: &str| text.chars().take(MESSAGE_CHARS_MAX).collect();
        match record {
            JobRecord::Error { message, .. } => self.message = Some(cut(message)),
            JobRecord::Drill { failure: Some(failure) } => self.message = Some(cut(failure)),
            JobRecord::Snapshot { id, size, new_bytes, stored_bytes, entries } => {
                let sums = self.sizes.unwrap_or_default();
                let sum = |sum: u64, own: &Option<u64>| sum.saturating_add(own.unwrap_or(0));
                self.snapshot.clone_from(id);
                self.sizes = Some(SnapshotSizes {
                    size: sum(sums.size, size),
                    new_bytes: sum(sums.new_bytes, new_bytes),
                    stored_bytes: sum(sums.stored_bytes, stored_bytes),
                });
                self.entry_count = entries.map(|count| count.saturating_sub(1));
            }
            JobRecord::ForgetVerdict { verdict, id, name, time, .. } if verdict == "forget" => {
                let (id, name, time) = (id.clone(), name.clone(), time.clone());
                self.forgotten.push(ForgottenSnapshot { id, name, time });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_without_a_meaning_is_a_failure() {
        assert_eq!(JobOutcome::of_status(Some(0)), JobOutcome::Done);
        assert_eq!(JobOutcome::of_status(Some(3)), JobOutcome::Gaps);
        for status in [Some(2), Some(-1), Some(259), None] {
            assert_eq!(JobOutcome::of_status(status), JobOutcome::Failed, "{status:?}");
        }
    }

    #[test]
    fn the_figures_of_several_disks_are_added() {
        let mut end = JobEnd::new();
        for (id, size) in [("a", 5), ("b", 7)] {
            let size = Some(size);
            let id = Some(id.to_owned());
            end.take(&JobRecord::Snapshot { id, size, new_bytes: None, stored_bytes: size, entries: None });
        }
        assert_eq!(end.snapshot.as_deref(), Some("b"));
        assert_eq!(end.sizes, Some(SnapshotSizes { size: 12, new_bytes: 0, stored_bytes: 12 }));
        end.take(&JobRecord::Error { message: "x".repeat(5_000), hint: None });
        assert_eq!(end.message.as_ref().map(String::len), Some(MESSAGE_CHARS_MAX));
        end.add_failure("and more");
        assert_eq!(end.outcome, JobOutcome::Failed);
        assert!(end.message.unwrap().ends_with("x; and more"));
    }
}
