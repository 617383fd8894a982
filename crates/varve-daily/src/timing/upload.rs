//! The upload rate at each time of the week.
//!
//! As an option it is one text: `20M`, or `mon..fri 08:00-18:00=20M,else=unlimited`. A period that
//! ends at or before its beginning leads over midnight.

use std::fmt;
use std::str::FromStr;

use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp as Moment, Zoned};
use varve_world::Timestamp;

use super::every::{ParseEveryError, parse_time, parse_weekdays, show_weekdays};

/// The key of the rate at all other times.
const OTHERWISE: &str = "else";
const UNLIMITED: &str = "unlimited";

/// The limit of the upload rate at each time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadRates {
    periods: Vec<UploadPeriod>,
    otherwise: UploadRate,
}

/// A rate in bytes a second; `None` without a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadRate(pub Option<u64>);

/// A part of some days of the week.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UploadPeriod {
    /// The days on which it begins.
    days: Vec<Weekday>,
    from: Time,
    to: Time,
    rate: UploadRate,
}

/// Why a text is no upload rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseUploadError {
    #[error("{text:?} is not a rate: write 500K or 20M, in bytes a second, or unlimited")]
    Rate { text: String },
    #[error("{text:?} is not a time of the week: write \"mon..fri 08:00-18:00\", \"22:00-06:00\" or else")]
    Period { text: String },
    #[error(transparent)]
    Part(#[from] ParseEveryError),
    #[error("{text:?} names no rate: write \"mon..fri 08:00-18:00=20M,else=unlimited\"")]
    NoRate { text: String },
    #[error("else is given twice")]
    Twice,
}

impl UploadRates {
    /// Makes rates from pairs of a time of the week and a rate. Without `else`, the rate at all
    /// other times is not limited.
    ///
    /// # Errors
    /// [`ParseUploadError`] with the text that is wrong.
    pub fn new<'t>(pairs: impl IntoIterator<Item = (&'t str, &'t str)>) -> Result<Self, ParseUploadError> {
        let (mut periods, mut otherwise) = (Vec::new(), None);
        for (period, rate) in pairs {
            let rate = rate.parse()?;
            if period.trim() != OTHERWISE {
                periods.push(UploadPeriod::new(period.trim(), rate)?);
            } else if otherwise.replace(rate).is_some() {
                return Err(ParseUploadError::Twice);
            }
        }
        Ok(Self { periods, otherwise: otherwise.unwrap_or(UploadRate(None)) })
    }

    /// Returns the rate at a time. Where periods overlap, the lowest rate holds.
    #[must_use]
    pub fn at(&self, now: Timestamp, zone: &TimeZone) -> UploadRate {
        let Ok(moment) = Moment::from_nanosecond(i128::from(now.0)) else { return self.otherwise };
        let now = moment.to_zoned(zone.clone());
        let holding = self.periods.iter().filter(|period| period.contains(&now)).map(|period| period.rate);
        // No limit is above every limit.
        holding.min_by_key(|rate| rate.0.unwrap_or(u64::MAX)).unwrap_or(self.otherwise)
    }
}

impl UploadPeriod {
    fn new(text: &str, rate: UploadRate) -> Result<Self, ParseUploadError> {
        let wrong = || ParseUploadError::Period { text: text.to_owned() };
        let (days, times) = text.rsplit_once(' ').unwrap_or(("mon..sun", text));
        let (from, to) = times.split_once('-').ok_or_else(wrong)?;
        // A day ends at 24:00, which is the midnight of the next one.
        let to = if to.trim() == "24:00" { Time::midnight() } else { parse_time(to)? };
        Ok(Self { days: parse_weekdays(days)?, from: parse_time(from)?, to, rate })
    }

    fn contains(&self, now: &Zoned) -> bool {
        let (day, time) = (now.weekday(), now.time());
        let begins_on = |day| self.days.contains(&day);
        if self.from < self.to {
            return begins_on(day) && (self.from..self.to).contains(&time);
        }
        let yesterday = now.datetime().checked_sub(Span::new().days(1)).map(|day| day.weekday());
        (begins_on(day) && time >= self.from) || (time < self.to && yesterday.is_ok_and(begins_on))
    }
}

impl FromStr for UploadRate {
    type Err = ParseUploadError;

    fn from_str(text: &str) -> Result<Self, ParseUploadError> {
        let text = text.trim();
        if text == UNLIMITED {
            return Ok(Self(None));
        }
        let wrong = || ParseUploadError::Rate { text: text.to_owned() };
        let number = text.trim_end_matches(['b', 'B', 'i']).to_ascii_uppercase();
        let units = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
        let unit = units.iter().find_map(|(unit, shift)| Some((number.strip_suffix(*unit)?, *shift)));
        let (digits, shift) = unit.unwrap_or((&number, 0));
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        number.checked_mul(1 << shift).filter(|rate| *rate > 0).map(|rate| Self(Some(rate))).ok_or_else(wrong)
    }
}

impl FromStr for UploadRates {
    type Err = ParseUploadError;

    fn from_str(text: &str) -> Result<Self, ParseUploadError> {
        if !text.contains('=') {
            return Ok(Self { periods: Vec::new(), otherwise: text.parse()? });
        }
        let pair =
            |part: &str| part.split_once('=').map(|(period, rate)| (period.to_owned(), rate.to_owned()));
        let no_rate = || ParseUploadError::NoRate { text: text.to_owned() };
        // A comma also stands between days.
        let mut pairs: Vec<(String, String)> = Vec::new();
        let mut begun = String::new();
        for part in text.split(',') {
            begun.push_str(part);
            match pair(&begun) {
                Some(found) => {
                    pairs.push(found);
                    begun.clear();
                }
                None => begun.push(','),
            }
        }
        if !begun.is_empty() {
            return Err(no_rate());
        }
        Self::new(pairs.iter().map(|(period, rate)| (period.as_str(), rate.as_str())))
    }
}

impl fmt::Display for UploadRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str(UNLIMITED),
            Some(rate) => write!(f, "{rate}"),
        }
    }
}

/// The text that [`FromStr`] reads.
impl fmt::Display for UploadRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.periods.is_empty() {
            return self.otherwise.fmt(f);
        }
        for UploadPeriod { days, from, to, rate } in &self.periods {
            let time = |time: &Time| time.strftime("%H:%M").to_string();
            write!(f, "{} {}-{}={rate},", show_weekdays(days), time(from), time(to))?;
        }
        write!(f, "{OTHERWISE}={}", self.otherwise)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(rates: &UploadRates, text: &str) -> Option<u64> {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let moment: jiff::civil::DateTime = text.parse().unwrap();
        let time = moment.to_zoned(zone.clone()).unwrap().timestamp().as_nanosecond();
        rates.at(Timestamp(i64::try_from(time).unwrap()), &zone).0
    }

    #[test]
    fn the_rate_depends_on_the_day_and_the_time_of_the_zone() {
        let rates = UploadRates::new([
            ("mon..fri 08:00-18:00", "20M"),
            ("sat,sun 22:00-06:00", "1K"),
            ("else", "5M"),
        ]);
        let rates = rates.unwrap();
        // 2026-11-27 is a Friday.
        for (time, expected) in [
            ("2026-11-27T07:59:59", 5 << 20),
            ("2026-11-27T08:00", 20 << 20),
            ("2026-11-27T17:59:59", 20 << 20),
            ("2026-11-27T18:00", 5 << 20),
            ("2026-11-28T12:00", 5 << 20),
            ("2026-11-28T22:00", 1 << 10),
            ("2026-11-29T05:59", 1 << 10),
            // The period of Sunday ends on Monday. That of Friday does not exist.
            ("2026-11-30T05:59", 1 << 10),
            ("2026-11-28T05:59", 5 << 20),
        ] {
            assert_eq!(at(&rates, time), Some(expected), "{time}");
        }
        assert_eq!(rates.to_string().parse::<UploadRates>().unwrap(), rates);
        // Where two periods overlap, the lower rate holds.
        let both = UploadRates::new([("08:00-18:00", "unlimited"), ("12:00-24:00", "1M")]).unwrap();
        assert_eq!(at(&both, "2026-11-27T11:00"), None);
        assert_eq!([at(&both, "2026-11-27T13:00"), at(&both, "2026-11-27T23:59")], [Some(1 << 20); 2]);
        assert_eq!(at(&both, "2026-11-27T03:00"), None);
    }

    #[test]
    fn a_text_is_a_rate_or_many() {
        let read = |text: &str| text.parse::<UploadRates>();
        assert_eq!(at(&read("500K").unwrap(), "2026-11-27T03:00"), Some(500 << 10));
        assert_eq!(at(&read("unlimited").unwrap(), "2026-11-27T03:00"), None);
        for text in ["4096", "4k", "4KiB", "4 k"] {
            let rate = read(text).ok().and_then(|rates| at(&rates, "2026-11-27T03:00"));
            assert_eq!(rate, (text != "4 k").then_some(4096), "{text}");
        }
        let text = "mon,wed 08:00-18:00=2048,else=unlimited";
        assert_eq!(read(text).unwrap().to_string(), text);
        for wrong in
            ["", "fast", "0", "20X", "08:00-18:00", "mon=2M", "08:00-25:00=2M", "moon 08:00-18:00=2M"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        for wrong in [
            "else=1M,else=2M",
            "08:00-18:00=1M,else",
            "99999999999999999999M",
            "18446744073709551615G",
            "20MM",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
