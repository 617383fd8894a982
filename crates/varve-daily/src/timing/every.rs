//! The forms of `every`: how often a job is to run.
//!
//! `6h` and `hour` are fixed distances, counted from 1970 in UTC. `day`, `week` and `month` are
//! civil times in a time zone: `day at 02:00`, `week on sun at 04:00`, `month on last at 03:00`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::civil::{Time, Weekday};

use super::span::{parse_time_span, show_time_span};

const WEEKDAYS: [(&str, Weekday); 7] = [
    ("mon", Weekday::Monday),
    ("tue", Weekday::Tuesday),
    ("wed", Weekday::Wednesday),
    ("thu", Weekday::Thursday),
    ("fri", Weekday::Friday),
    ("sat", Weekday::Saturday),
    ("sun", Weekday::Sunday),
];
const INTERVAL_MIN: Duration = Duration::from_secs(60);
const INTERVAL_MAX: Duration = Duration::from_secs(31 * 86_400);
const DAY: Duration = Duration::from_secs(86_400);

/// How often a job is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Every {
    /// At a fixed distance, counted from 1970 in UTC.
    Interval(Duration),
    /// At each of these times of each day. Never empty, in ascending order.
    Days(Vec<Time>),
    /// At each of these times, on these days of the week. Neither is ever empty.
    Weeks(Vec<Weekday>, Vec<Time>),
    /// At each of these times, on one day of each month.
    Months(MonthDay, Vec<Time>),
}

/// A day that every month has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MonthDay {
    /// From 1 to 28.
    Number(i8),
    Last,
}

/// Why a text does not say how often a job is to run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseEveryError {
    #[error(
        "{text:?} is not a rhythm: write 6h, hour, \"day at 02:00\", \"week on sun at 04:00\" or \"month on 1 at 03:00\""
    )]
    Malformed { text: String },
    #[error("{text:?} is not a time of day: write 02:00 or 14:30")]
    Time { text: String },
    #[error("{text:?} is not a day of the week: write mon, tue, wed, thu, fri, sat or sun, or mon..fri")]
    Weekday { text: String },
    #[error("{text:?} is not a day of every month: write 1 to 28, or last")]
    MonthDay { text: String },
    #[error("{text:?}: write a distance from 1m to 31d, or day, week or month")]
    Distance { text: String },
}

impl Every {
    /// Returns a lower limit of the time between two boundaries.
    #[must_use]
    pub fn shortest(&self) -> Duration {
        let times = match self {
            Self::Interval(distance) => return *distance,
            Self::Days(times) | Self::Weeks(_, times) | Self::Months(_, times) => times,
        };
        let seconds = |time: &Time| u64::from(time_seconds(*time));
        let gaps = times.windows(2).map(|pair| match pair {
            [first, second] => seconds(second).saturating_sub(seconds(first)),
            _ => DAY.as_secs(),
        });
        let over_midnight = match (times.first(), times.last()) {
            (Some(first), Some(last)) => seconds(first) + DAY.as_secs() - seconds(last),
            _ => DAY.as_secs(),
        };
        // A day may be shorter than 24 hours by one.
        let shortest = gaps.chain([over_midnight]).min().unwrap_or(DAY.as_secs());
        Duration::from_secs(shortest.saturating_sub(3_600).max(60))
    }

    /// Returns an upper limit of the time between two boundaries.
    #[must_use]
    pub fn longest(&self) -> Duration {
        match self {
            Self::Interval(distance) => *distance,
            Self::Days(_) => DAY,
            Self::Weeks(days, _) if days.len() == 7 => DAY,
            Self::Weeks(..) => 7 * DAY,
            Self::Months(..) => 31 * DAY,
        }
    }
}

fn time_seconds(time: Time) -> u32 {
    let part = |number: i8| u32::try_from(number).unwrap_or(0);
    part(time.hour()) * 3_600 + part(time.minute()) * 60
}

impl FromStr for Every {
    type Err = ParseEveryError;

    fn from_str(text: &str) -> Result<Self, ParseEveryError> {
        let malformed = || ParseEveryError::Malformed { text: text.to_owned() };
        let text = text.trim();
        if text.starts_with(|c: char| c.is_ascii_digit()) || text == "hour" {
            let distance = if text == "hour" { "1h" } else { text };
            let distance = parse_time_span(distance).map_err(|_| malformed())?;
            return match (INTERVAL_MIN..=INTERVAL_MAX).contains(&distance) {
                true => Ok(Self::Interval(distance)),
                false => Err(ParseEveryError::Distance { text: text.to_owned() }),
            };
        }
        let (days, times) = match text.split_once(" at ") {
            Some((days, times)) => (days.trim(), parse_times(times)?),
            None => (text, vec![Time::midnight()]),
        };
        let (unit, on) = match days.split_once(" on ") {
            Some((unit, on)) => (unit.trim(), Some(on.trim())),
            None => (days, None),
        };
        match (unit, on) {
            ("day", None) => Ok(Self::Days(times)),
            ("week", on) => Ok(Self::Weeks(parse_weekdays(on.unwrap_or("mon"))?, times)),
            ("month", on) => Ok(Self::Months(parse_month_day(on.unwrap_or("1"))?, times)),
            _ => Err(malformed()),
        }
    }
}

fn parse_times(text: &str) -> Result<Vec<Time>, ParseEveryError> {
    let mut times: Vec<Time> = text.split(',').map(parse_time).collect::<Result<_, _>>()?;
    times.sort();
    times.dedup();
    Ok(times)
}

pub(super) fn parse_time(text: &str) -> Result<Time, ParseEveryError> {
    let text = text.trim();
    let wrong = || ParseEveryError::Time { text: text.to_owned() };
    let (hour, minute) = text.split_once(':').ok_or_else(wrong)?;
    let number = |digits: &str, count_min: usize| {
        let is_number =
            (count_min..=2).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse::<i8>().ok()).flatten()
    };
    let (hour, minute) = number(hour, 1).zip(number(minute, 2)).ok_or_else(wrong)?;
    Time::new(hour, minute, 0, 0).map_err(|_| wrong())
}

pub(super) fn parse_weekdays(text: &str) -> Result<Vec<Weekday>, ParseEveryError> {
    let place = |text: &str| {
        let found = WEEKDAYS.iter().position(|(name, _)| *name == text.trim());
        found.ok_or_else(|| ParseEveryError::Weekday { text: text.trim().to_owned() })
    };
    let mut is_chosen = [false; 7];
    for part in text.split(',') {
        let (first, last) = match part.split_once("..") {
            Some((first, last)) => (place(first)?, place(last)?),
            None => (place(part)?, place(part)?),
        };
        // A range may lead over the end of the week: sat..mon.
        for day in 0..7 {
            let is_inside =
                if first <= last { (first..=last).contains(&day) } else { day >= first || day <= last };
            if let Some(chosen) = is_chosen.get_mut(day) {
                *chosen |= is_inside;
            }
        }
    }
    Ok(WEEKDAYS.iter().zip(is_chosen).filter(|(_, chosen)| *chosen).map(|((_, day), _)| *day).collect())
}

/// Writes days of the week as [`parse_weekdays`] reads them.
pub(super) fn show_weekdays(days: &[Weekday]) -> String {
    let name = |day: &Weekday| WEEKDAYS.iter().find(|(_, known)| known == day).map_or("", |(name, _)| *name);
    days.iter().map(name).collect::<Vec<_>>().join(",")
}

fn parse_month_day(text: &str) -> Result<MonthDay, ParseEveryError> {
    if text == "last" {
        return Ok(MonthDay::Last);
    }
    let number = text.parse().ok().filter(|number| (1..=28).contains(number));
    number.map(MonthDay::Number).ok_or_else(|| ParseEveryError::MonthDay { text: text.to_owned() })
}

/// A phrase for a sentence: `each day at 02:00`.
impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |times: &[Time]| {
            let times: Vec<_> = times.iter().map(|time| time.strftime("%H:%M").to_string()).collect();
            times.join(" and ")
        };
        match self {
            Self::Interval(distance) => write!(f, "every {}", show_time_span(*distance)),
            Self::Days(times) => write!(f, "each day at {}", at(times)),
            Self::Weeks(days, times) => {
                let name = |day: &Weekday| {
                    WEEKDAYS.iter().find(|(_, known)| known == day).map_or("", |(name, _)| *name)
                };
                let days: Vec<_> = days.iter().map(name).collect();
                write!(f, "each week on {} at {}", days.join(", "), at(times))
            }
            Self::Months(MonthDay::Number(day), times) => {
                write!(f, "each month on day {day} at {}", at(times))
            }
            Self::Months(MonthDay::Last, times) => write!(f, "each month on its last day at {}", at(times)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_said() {
        for (text, phrase) in [
            ("6h", "every 6h"),
            ("hour", "every 1h"),
            ("day", "each day at 00:00"),
            ("day at 2:00", "each day at 02:00"),
            ("day at 14:00, 02:30", "each day at 02:30 and 14:00"),
            ("week", "each week on mon at 00:00"),
            ("week on sun at 04:00", "each week on sun at 04:00"),
            ("week on mon..wed,sat at 04:00", "each week on mon, tue, wed, sat at 04:00"),
            ("week on sat..mon", "each week on mon, sat, sun at 00:00"),
            ("month", "each month on day 1 at 00:00"),
            ("month on last at 03:00", "each month on its last day at 03:00"),
        ] {
            assert_eq!(text.parse::<Every>().unwrap().to_string(), phrase, "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "daily",
            "day at",
            "day at 24:00",
            "day at 2",
            "day at 02:60",
            "day on mon",
            "week on",
            "30s",
            "40d",
            "week on caturday",
            "month on 29",
            "month on 0",
            "fortnight",
            "day at +2:00",
            "6 h",
        ] {
            assert!(text.parse::<Every>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_shortest_distance_is_known() {
        for (text, hours) in [("6h", 6), ("day", 23), ("day at 02:00, 14:00", 11), ("day at 01:00, 23:00", 1)]
        {
            assert_eq!(
                text.parse::<Every>().unwrap().shortest(),
                Duration::from_secs(hours * 3_600),
                "{text}"
            );
        }
    }
}
