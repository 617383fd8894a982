//! Periods of the calendar.

use jiff::civil::DateTime;
use varve_world::Timestamp;

/// A period of the calendar of which a rule keeps the newest snapshot. Weeks are those of ISO 8601:
/// they begin on Monday, and the first week of a year has its first Thursday.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetentionPeriod {
    Hourly,
    Daily,
    Weekly,
    Monthly,
    Yearly,
}

impl RetentionPeriod {
    /// All periods, the shortest first.
    pub const ALL: [Self; 5] = [Self::Hourly, Self::Daily, Self::Weekly, Self::Monthly, Self::Yearly];

    /// The word for it in the names of rules, such as `daily`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Hourly => "hourly",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
            Self::Yearly => "yearly",
        }
    }

    /// A number that all times in one period have in common. A later period has a greater number.
    ///
    /// It depends on the time that the clock on the wall shows. So both halves of a doubled hour
    /// are in one period.
    pub(super) fn number(self, time: DateTime) -> i64 {
        let year = i64::from(time.year());
        let month = year * 100 + i64::from(time.month());
        let day = month * 100 + i64::from(time.day());
        match self {
            Self::Hourly => day * 100 + i64::from(time.hour()),
            Self::Daily => day,
            Self::Weekly => {
                let week = time.date().iso_week_date();
                i64::from(week.year()) * 100 + i64::from(week.week())
            }
            Self::Monthly => month,
            Self::Yearly => year,
        }
    }
}

/// The time in the calendar's form, which has a wider range.
pub(super) fn instant(time: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_nanosecond(i128::from(time.0)).unwrap_or_default()
}
