//! Times of files, with all the range and precision that any file system has.

const NANOSECONDS_PER_SECOND: u32 = 1_000_000_000;

/// A time of a file: seconds since 1970-01-01 UTC, leap seconds not counted, and nanoseconds.
///
/// 64 bits of nanoseconds cover only 1677 to 2262. File systems store later times: ext4 up to 2446,
/// XFS up to 2486, NTFS up to 60056, and btrfs longer than the sun will shine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileTime {
    seconds: i64,
    /// Less than a second. Counts forward, also before 1970.
    nanoseconds: u32,
}

impl FileTime {
    /// The beginning of 1970.
    pub const EPOCH: Self = Self { seconds: 0, nanoseconds: 0 };

    /// Makes a time from seconds and nanoseconds. Nanoseconds beyond a whole second are clamped to
    /// the last nanosecond of that second.
    #[must_use]
    pub const fn new(seconds: i64, nanoseconds: u32) -> Self {
        let last = NANOSECONDS_PER_SECOND.saturating_sub(1);
        Self { seconds, nanoseconds: if nanoseconds > last { last } else { nanoseconds } }
    }

    /// Makes a time from nanoseconds since 1970.
    #[must_use]
    pub fn from_nanoseconds(nanoseconds: i64) -> Self {
        Self::from_wide_nanoseconds(i128::from(nanoseconds))
    }

    /// Makes a time from nanoseconds since 1970, clamped to the first or last time that can be
    /// represented.
    pub(crate) fn from_wide_nanoseconds(nanoseconds: i128) -> Self {
        let second = i128::from(NANOSECONDS_PER_SECOND);
        match i64::try_from(nanoseconds.div_euclid(second)) {
            // The remainder is less than a second.
            Ok(seconds) => Self::new(seconds, u32::try_from(nanoseconds.rem_euclid(second)).unwrap_or(0)),
            Err(_) if nanoseconds < 0 => Self::new(i64::MIN, 0),
            Err(_) => Self::new(i64::MAX, u32::MAX),
        }
    }

    /// Returns the whole seconds since 1970, rounded down.
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.seconds
    }

    /// Returns the nanoseconds after [`seconds`](Self::seconds), less than a whole second.
    #[must_use]
    pub const fn subsecond_nanoseconds(self) -> u32 {
        self.nanoseconds
    }

    /// Returns all nanoseconds since 1970.
    #[must_use]
    pub fn wide_nanoseconds(self) -> i128 {
        let second = i128::from(NANOSECONDS_PER_SECOND);
        i128::from(self.seconds).saturating_mul(second).saturating_add(i128::from(self.nanoseconds))
    }

    /// Returns all nanoseconds since 1970 if 64 bits can hold them: from 1677 to 2262.
    #[must_use]
    pub fn nanoseconds(self) -> Option<i64> {
        i64::try_from(self.wide_nanoseconds()).ok()
    }

    /// Returns the nanoseconds since 1970, clamped to the range of 64 bits.
    #[must_use]
    pub fn clamped_nanoseconds(self) -> i64 {
        self.nanoseconds().unwrap_or(if self.seconds < 0 { i64::MIN } else { i64::MAX })
    }

    /// Returns the time that is `seconds` earlier.
    #[must_use]
    pub(crate) fn minus_seconds(self, seconds: i64) -> Self {
        Self { seconds: self.seconds.saturating_sub(seconds), ..self }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::*;

    proptest! {
        #[test]
        fn nanoseconds_survive_the_round_trip(nanoseconds in any::<i64>()) {
            let time = FileTime::from_nanoseconds(nanoseconds);
            prop_assert_eq!(time.nanoseconds(), Some(nanoseconds));
            prop_assert_eq!(time.clamped_nanoseconds(), nanoseconds);
        }

        #[test]
        fn every_time_survives_the_round_trip(seconds in any::<i64>(), nanoseconds in 0..NANOSECONDS_PER_SECOND) {
            let time = FileTime::new(seconds, nanoseconds);
            prop_assert_eq!((time.seconds(), time.subsecond_nanoseconds()), (seconds, nanoseconds));
            prop_assert_eq!(FileTime::from_wide_nanoseconds(time.wide_nanoseconds()), time);
        }

        #[test]
        fn times_are_ordered_as_their_nanoseconds(
            one in (any::<i64>(), any::<u32>(), 0u32..64),
            other in (any::<i64>(), any::<u32>(), 0u32..64),
        ) {
            let time = |(seconds, nanoseconds, shift): (i64, u32, u32)| FileTime::new(seconds >> shift, nanoseconds);
            let (one, other) = (time(one), time(other));
            prop_assert_eq!(one.cmp(&other), one.wide_nanoseconds().cmp(&other.wide_nanoseconds()));
            prop_assert!(one.max(other).clamped_nanoseconds() >= one.min(other).clamped_nanoseconds());
        }
    }

    #[test]
    fn times_beyond_the_bounds_are_the_nearest() {
        let year_2400 = FileTime::new(13_569_465_600, 5);
        assert_eq!((year_2400.nanoseconds(), year_2400.clamped_nanoseconds()), (None, i64::MAX));
        let year_1600 = FileTime::new(-11_676_096_000, 5);
        assert_eq!((year_1600.nanoseconds(), year_1600.clamped_nanoseconds()), (None, i64::MIN));
        assert_eq!(FileTime::new(1, u32::MAX), FileTime::new(1, 999_999_999));
        assert_eq!(FileTime::from_wide_nanoseconds(i128::MAX), FileTime::new(i64::MAX, 999_999_999));
        assert_eq!(FileTime::from_wide_nanoseconds(i128::MIN), FileTime::new(i64::MIN, 0));
        assert_eq!(FileTime::from_nanoseconds(-1), FileTime::new(-1, 999_999_999));
    }
}
