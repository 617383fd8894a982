//! The numbers and spans of time in rules, and their text forms.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp, civil};

/// A number of snapshots or periods: `7` or `unlimited`.
///
/// It is never 0: a rule that keeps nothing is left out of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeepCount {
    AtMost(NonZeroU32),
    Unlimited,
}

/// Why a text is not a [`KeepCount`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseCountError {
    #[error("0 keeps nothing: leave the rule out")]
    Zero,
    #[error("{text:?} is not a number of snapshots: write 1 to {}, or unlimited", u32::MAX)]
    NotANumber { text: String },
}

impl FromStr for KeepCount {
    type Err = ParseCountError;

    fn from_str(text: &str) -> Result<Self, ParseCountError> {
        let not_a_number = || ParseCountError::NotANumber { text: text.to_owned() };
        if text == "unlimited" {
            return Ok(Self::Unlimited);
        }
        // Rust also reads `+7` as a number.
        let digits = text.bytes().all(|byte| byte.is_ascii_digit()).then_some(text);
        let number: u32 = digits.and_then(|digits| digits.parse().ok()).ok_or_else(not_a_number)?;
        NonZeroU32::new(number).map(Self::AtMost).ok_or(ParseCountError::Zero)
    }
}

impl fmt::Display for KeepCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(number) => number.fmt(f),
            Self::Unlimited => f.write_str("unlimited"),
        }
    }
}

/// A span of the calendar, as restic writes it: `1y5m7d2h`. A month is `m`. It is never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeepSpan {
    years: u32,
    months: u32,
    days: u32,
    hours: u32,
}

/// Why a text is not a [`KeepSpan`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseSpanError {
    #[error("an empty span keeps nothing: leave the rule out")]
    Zero,
    #[error("no number before {rest:?}: write a span such as 1y5m7d2h")]
    NoNumber { rest: String },
    #[error("no unit after {number}: write y, m, d or h (years, months, days, hours)")]
    NoUnit { number: String },
    #[error("{unit:?} is not a unit: write y, m, d or h (years, months, days, hours); a week is 7d")]
    UnknownUnit { unit: char },
    #[error("the unit {unit} is there twice")]
    UnitTwice { unit: char },
    #[error("{number}{unit} is too long: at most {}", KeepSpan::NUMBER_MAX)]
    TooLong { number: String, unit: char },
}

impl KeepSpan {
    /// Upper bound on the number before each unit.
    const NUMBER_MAX: u32 = 1_000_000;

    /// The latest time that is too early to be within the span before `start`. `None` if every time
    /// is within.
    ///
    /// Years and months are subtracted first. If the day does not exist in that month, the days
    /// that are missing are added: one month before 31 March is 3 March, or 2 March in a leap year.
    /// Hours are hours of the clock on the wall only if the clock is not changed.
    pub(super) fn limit(self, start: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let from = zone.to_datetime(start);
        let date = from.date();
        let months_back = i64::from(self.years).checked_mul(12)?.checked_add(self.months.into())?;
        let month =
            i64::from(date.year()).checked_mul(12)?.checked_add(i64::from(date.month()).checked_sub(1)?)?;
        let month = month.checked_sub(months_back)?;
        let year = i16::try_from(month.div_euclid(12)).ok()?;
        let month = i8::try_from(month.rem_euclid(12)).ok()?.checked_add(1)?;
        let days = i64::from(date.day()).checked_sub(1)?.checked_sub(self.days.into())?;
        let first_of_month = civil::Date::new(year, month, 1).ok()?;
        let date = first_of_month.checked_add(Span::new().try_days(days).ok()?).ok()?;
        // In a doubled hour, this is the earlier one: more is kept.
        let limit = zone.to_timestamp(date.to_datetime(from.time())).ok()?;
        limit.checked_sub(SignedDuration::from_hours(self.hours.into())).ok()
    }

    /// The same with the fixed units of borg: a day has 24 hours, a month 31 days, a year 365 days.
    pub(super) fn limit_like_borg(self, start: Timestamp) -> Option<Timestamp> {
        let days = [(self.years, 365), (self.months, 31), (self.days, 1)];
        let days = days
            .into_iter()
            .try_fold(0_i64, |sum, (number, days)| sum.checked_add(i64::from(number).checked_mul(days)?))?;
        let hours = days.checked_mul(24)?.checked_add(self.hours.into())?;
        start.checked_sub(SignedDuration::try_from_hours(hours)?).ok()
    }

    fn unit(&mut self, unit: char) -> Result<&mut u32, ParseSpanError> {
        match unit {
            'y' => Ok(&mut self.years),
            'm' => Ok(&mut self.months),
            'd' => Ok(&mut self.days),
            'h' => Ok(&mut self.hours),
            _ => Err(ParseSpanError::UnknownUnit { unit }),
        }
    }
}

impl FromStr for KeepSpan {
    type Err = ParseSpanError;

    fn from_str(text: &str) -> Result<Self, ParseSpanError> {
        let (mut span, mut seen) = (Self { years: 0, months: 0, days: 0, hours: 0 }, String::new());
        let mut rest = text;
        while !rest.is_empty() {
            let unit_on = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            let number = rest.strip_suffix(unit_on).unwrap_or_default();
            if number.is_empty() {
                return Err(ParseSpanError::NoNumber { rest: rest.to_owned() });
            }
            let mut letters = unit_on.chars();
            let unit = letters.next().ok_or_else(|| ParseSpanError::NoUnit { number: number.to_owned() })?;
            let part = span.unit(unit)?;
            if seen.contains(unit) {
                return Err(ParseSpanError::UnitTwice { unit });
            }
            let too_long = || ParseSpanError::TooLong { number: number.to_owned(), unit };
            let value = number.parse().ok().filter(|value| *value <= Self::NUMBER_MAX);
            *part = value.ok_or_else(too_long)?;
            seen.push(unit);
            rest = letters.as_str();
        }
        if [span.years, span.months, span.days, span.hours] == [0; 4] {
            return Err(ParseSpanError::Zero);
        }
        Ok(span)
    }
}

impl fmt::Display for KeepSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [(self.years, 'y'), (self.months, 'm'), (self.days, 'd'), (self.hours, 'h')];
        parts
            .iter()
            .filter(|(number, _)| *number > 0)
            .try_for_each(|(number, unit)| write!(f, "{number}{unit}"))
    }
}
