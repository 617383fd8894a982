//! The time of day.

use std::time::Duration;

/// Nanoseconds since 1970-01-01 00:00 UTC, without leap seconds. The range is 1677 to 2262.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Returns the time from `earlier` to this time; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        let nanoseconds = i128::from(self.0) - i128::from(earlier.0);
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0))
    }

    /// Returns the time that is later by `span`, or the last one of the range.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanoseconds(span)))
    }

    /// Returns the time that is earlier by `span`, or the first one of the range.
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanoseconds(span)))
    }
}

fn nanoseconds(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

/// A source of the time of day.
pub trait Clock: Send + Sync {
    /// The current time.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealClock;

impl Clock for RealClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the machine")]
    fn now(&self) -> Timestamp {
        let nanoseconds = match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanos| -nanos),
        };
        Timestamp(nanoseconds)
    }
}

/// A clock that always shows the same time.
#[derive(Debug, Clone, Copy)]
pub struct FixedClock(pub Timestamp);

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_stay_in_the_range() {
        let (early, late) = (Timestamp(-5), Timestamp(7));
        assert_eq!((late.since(early), early.since(late)), (Duration::from_nanos(12), Duration::ZERO));
        let (first, last) = (Timestamp(i64::MIN), Timestamp(i64::MAX));
        assert_eq!(last.since(first), Duration::from_nanos(u64::MAX));
        assert_eq!(early.plus(Duration::from_nanos(12)), late);
        assert_eq!(late.minus(Duration::from_nanos(12)), early);
        assert_eq!((late.plus(Duration::MAX), early.minus(Duration::MAX)), (last, first));
    }
}
