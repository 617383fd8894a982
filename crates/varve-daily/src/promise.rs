//! Promises: limits that the owner of an archive sets, judged from facts about the archive.

use std::time::Duration;

use varve_world::Timestamp;

use crate::timing::{age, show_time_span};

/// Free space that lasts for longer than this is enough for anybody.
const ROOM_SECONDS_MAX: u64 = 100 * 366 * 86_400;

/// `[promise]`: the limits that hold for all sources, stores and replicas. `None` is no promise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PromiseLimits {
    /// The age of the newest snapshot of each source.
    pub snapshot_within: Option<Duration>,
    /// The age of the oldest snapshot that a replica lacks.
    pub replica_within: Option<Duration>,
    /// The age of the oldest reading of a part of the log.
    pub verified_within: Option<Duration>,
    /// The time for which dead data may wait after its undo has ended.
    pub reclaimed_within: Option<Duration>,
    /// The age of the newest good drill of each source that is drilled.
    pub drill_within: Option<Duration>,
    /// The time for which the free space lasts at the present growth.
    pub room_for: Option<Duration>,
}

/// The kind of a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PromiseKind {
    SnapshotWithin,
    ReplicaWithin,
    VerifiedWithin,
    ReclaimedWithin,
    DrillWithin,
    RoomFor,
    /// Work is looked for, and the series of this machine go on.
    Continued,
    Clock,
    /// The store opens, and its log is whole as far as is known.
    Store,
}

impl PromiseKind {
    /// Returns the name, as in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SnapshotWithin => "snapshot-within",
            Self::ReplicaWithin => "replica-within",
            Self::VerifiedWithin => "verified-within",
            Self::ReclaimedWithin => "reclaimed-within",
            Self::DrillWithin => "drill-within",
            Self::RoomFor => "room-for",
            Self::Continued => "continued",
            Self::Clock => "clock",
            Self::Store => "store",
        }
    }
}

/// The state of a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PromiseState {
    Broken,
    /// The facts cannot be read here. It does not count as kept.
    Unknown,
    Kept,
}

/// A promise and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedPromise {
    pub kind: PromiseKind,
    /// The source, store or replica.
    pub subject: String,
    pub limit: Option<Duration>,
    pub state: PromiseState,
    /// The figure that the limit is for, if it is known.
    pub figure: Option<Duration>,
    /// The figure in words, and the reason if the promise is not kept. It has no name of an
    /// archived file, and may leave the machine.
    pub text: String,
    /// More about the reason, such as the names of files and the messages of programs. It stays on
    /// the machine unless its owner allows it to leave.
    pub detail: Option<String>,
    /// The store that cannot be read, if this promise could not be judged because of it.
    pub follows_from_store: Option<String>,
}

impl JudgedPromise {
    /// A promise with a state that follows from something else than an age.
    #[must_use]
    pub fn new(
        kind: PromiseKind,
        subject: &str,
        limit: Option<Duration>,
        state: PromiseState,
        text: impl Into<String>,
    ) -> Self {
        let (subject, text) = (subject.to_owned(), text.into());
        Self { kind, subject, limit, state, figure: None, text, detail: None, follows_from_store: None }
    }

    /// Returns the promise with more about its reason.
    #[must_use]
    pub fn with_detail(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }
}

impl PromiseState {
    /// Returns the name for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Unknown => "unknown",
            Self::Kept => "ok",
        }
    }

    /// Returns the state with a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Broken, Self::Unknown, Self::Kept].into_iter().find(|state| state.name() == name)
    }
}

/// Judges a promise about an age. `since` is the moment from which the age counts; `None` if it
/// never happened, which breaks the promise. `text` says what happened then.
#[must_use]
pub fn judge_age(
    kind: PromiseKind,
    subject: &str,
    limit: Duration,
    since: Option<Timestamp>,
    now: Timestamp,
    text: (&str, &str),
) -> JudgedPromise {
    let figure = since.map(|since| age(since, now));
    let is_kept = figure.is_some_and(|figure| figure <= limit);
    let (what, never) = text;
    let text = match figure {
        Some(figure) => format!("{what} {} ago", show_time_span(figure)),
        None => never.to_owned(),
    };
    let state = if is_kept { PromiseState::Kept } else { PromiseState::Broken };
    JudgedPromise { figure, ..JudgedPromise::new(kind, subject, Some(limit), state, text) }
}

/// Judges the promise about free space: whether `free_bytes` last for `limit` if the store grows by
/// `grown_bytes` in `span`.
#[must_use]
pub fn judge_room(
    subject: &str,
    limit: Duration,
    free_bytes: u64,
    grown_bytes: u64,
    span: Duration,
) -> JudgedPromise {
    let seconds = u128::from(free_bytes)
        .saturating_mul(u128::from(span.as_secs()))
        .checked_div(u128::from(grown_bytes))
        .map(|seconds| u64::try_from(seconds).unwrap_or(u64::MAX));
    // Without growth, the space lasts for ever.
    let lasts = Duration::from_secs(seconds.unwrap_or(u64::MAX).min(ROOM_SECONDS_MAX));
    let state = if lasts >= limit { PromiseState::Kept } else { PromiseState::Broken };
    let days = lasts.as_secs() / 86_400;
    let text = match seconds {
        None => "the store does not grow".to_owned(),
        Some(seconds) if seconds >= ROOM_SECONDS_MAX => {
            "the free space lasts for more than 100 years at the growth of the last 60 days".to_owned()
        }
        Some(_) => format!("the free space lasts for {days} days at the growth of the last 60 days"),
    };
    let judged = JudgedPromise::new(PromiseKind::RoomFor, subject, Some(limit), state, text);
    JudgedPromise { figure: Some(lasts), ..judged }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    #[test]
    fn an_age_is_kept_up_to_its_limit() {
        let limit = Duration::from_secs(30 * 3_600);
        let judged = |hours: Option<i64>| {
            let since = hours.map(|hours| Timestamp(-hours * HOUR));
            judge_age(PromiseKind::SnapshotWithin, "home", limit, since, Timestamp(0), ("made", "never"))
        };
        assert_eq!(judged(Some(30)).state, PromiseState::Kept);
        assert_eq!(judged(Some(31)).state, PromiseState::Broken);
        assert_eq!(judged(Some(31)).text, "made 1d 7h ago");
        assert_eq!((judged(None).state, judged(None).text.as_str()), (PromiseState::Broken, "never"));
    }

    #[test]
    fn room_lasts_by_the_growth() {
        let day = Duration::from_secs(86_400);
        let room = |free, grown| judge_room("main", 45 * day, free, grown, 60 * day);
        assert_eq!(room(1_000, 600).state, PromiseState::Kept);
        assert_eq!(room(1_000, 600).figure, Some(100 * day));
        assert_eq!(room(400, 600).state, PromiseState::Broken);
        assert_eq!(room(0, 1).state, PromiseState::Broken);
        assert_eq!(room(0, 0).state, PromiseState::Kept);
        assert_eq!(room(u64::MAX, 1).state, PromiseState::Kept);
    }
}
