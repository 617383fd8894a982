//! Parses and formats times in the time zone of the user: that of the configuration, otherwise that
//! of the machine.

use std::sync::OnceLock;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Span, Zoned};
use varve_world::{Clock, RealClock, Timestamp};

/// The zone of the configuration.
static ZONE: OnceLock<TimeZone> = OnceLock::new();

/// Sets the zone for the rest of the process. A second zone is ignored.
pub fn use_zone(zone: &TimeZone) {
    ZONE.get_or_init(|| zone.clone());
}

/// Returns the zone of days and of times without a zone.
#[must_use]
pub fn zone() -> TimeZone {
    ZONE.get().cloned().unwrap_or_else(TimeZone::system)
}

/// Parses a time, and returns the last moment that it covers. `2026-05-01` means the end of that
/// day, `2026-05-01T23:15` the end of that minute and `2026-05-01T23:15:07` the end of that second.
/// A zone may follow (`2026-05-01T21:15:07Z`).
#[must_use]
pub fn parse_last(text: &str) -> Option<Timestamp> {
    let nanoseconds = if let Ok(first) = text.parse::<jiff::Timestamp>() {
        first.as_nanosecond() + span(text) - 1
    } else if let Ok(day) = text.parse::<Date>()
        && !text.contains([':', 'T', ' '])
    {
        last(day.to_datetime(jiff::civil::Time::MAX))?
    } else {
        last(text.parse().ok()?)? + span(text) - 1
    };
    // Times beyond the range of [`Timestamp`] become its first or last moment.
    Some(Timestamp(i64::try_from(nanoseconds.clamp(i64::MIN.into(), i64::MAX.into())).ok()?))
}

/// Parses a time in the past, as [`parse_last`] does, or a time before now, such as `yesterday` or
/// `3d`.
#[must_use]
pub fn parse_last_past(text: &str) -> Option<Timestamp> {
    parse_last(text).or_else(|| relative(text, &now()).map(|(_, last)| last))
}

/// Parses a time in the past, and returns the first moment that it covers.
#[must_use]
pub fn parse_first_past(text: &str) -> Option<Timestamp> {
    parse_exact(text).or_else(|| relative(text, &now()).map(|(first, _)| first))
}

fn now() -> Zoned {
    let now = jiff::Timestamp::from_nanosecond(i128::from(RealClock.now().0)).unwrap_or_default();
    now.to_zoned(zone())
}

/// Parses a time before `now`, and returns the first and the last moment that it covers: `today`
/// and `yesterday` are whole days, and an age is a moment (`3d`, `2 weeks ago`).
fn relative(text: &str, now: &Zoned) -> Option<(Timestamp, Timestamp)> {
    let day = match text {
        "today" => Some(now.date()),
        "yesterday" => now.date().yesterday().ok(),
        _ => None,
    };
    let (first, last) = if let Some(day) = day {
        let first = day.to_zoned(now.time_zone().clone()).ok()?;
        (first.timestamp().as_nanosecond(), first.tomorrow().ok()?.timestamp().as_nanosecond() - 1)
    } else {
        let span: Span = text.parse().ok()?;
        if span.is_negative() != text.ends_with(" ago") {
            return None;
        }
        let moment = now.checked_sub(span.abs()).ok()?.timestamp().as_nanosecond();
        (moment, moment)
    };
    Some((Timestamp(i64::try_from(first).ok()?), Timestamp(i64::try_from(last).ok()?)))
}

/// Returns the span of a text's time in nanoseconds: an hour, a minute or a second.
fn span(text: &str) -> i128 {
    let clock = text.split_once(['T', 't', ' ']).map_or("", |(_, clock)| clock);
    let clock = clock.split(['Z', 'z', '+', '-', '[']).next().unwrap_or("");
    match clock.bytes().filter(u8::is_ascii_digit).count() {
        _ if clock.contains(['.', ',']) => 1,
        2 => 3_600_000_000_000,
        4 => 60_000_000_000,
        _ => 1_000_000_000,
    }
}

/// Parses the time of a snapshot: `2026-05-01` means the beginning of that day.
#[must_use]
pub fn parse_exact(text: &str) -> Option<Timestamp> {
    let nanoseconds = match text.parse::<jiff::Timestamp>() {
        Ok(exact) => exact.as_nanosecond(),
        Err(_) => last(text.parse::<DateTime>().ok()?)?,
    };
    i64::try_from(nanoseconds).ok().map(Timestamp)
}

fn last(civil: DateTime) -> Option<i128> {
    Some(civil.to_zoned(zone()).ok()?.timestamp().as_nanosecond())
}

/// Formats a time to the second.
#[must_use]
pub fn show(time: Timestamp) -> String {
    match jiff::Timestamp::from_nanosecond(i128::from(time.0)) {
        Ok(time) => time.to_zoned(zone()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => format!("{} ns", time.0),
    }
}

/// Formats a time for programs: RFC 3339, UTC.
#[must_use]
pub fn rfc3339(time: Timestamp) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(time.0))
        .map_or_else(|_| time.0.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On the second day the clocks of this zone go forward.
    #[test]
    fn a_time_may_be_relative_to_now() {
        let now: Zoned = "2026-03-29T10:00:00[Europe/Berlin]".parse().unwrap();
        let relative = |text| {
            let (first, last) = relative(text, &now)?;
            Some((rfc3339(first), (last.0 - first.0) / 1_000_000_000))
        };
        let day = |first: &str, seconds: i64| Some((first.to_owned(), seconds - 1));
        assert_eq!(relative("today"), day("2026-03-28T23:00:00Z", 23 * 3600));
        assert_eq!(relative("yesterday"), day("2026-03-27T23:00:00Z", 24 * 3600));
        for (text, moment) in [
            ("3d", "2026-03-26T09:00:00Z"),
            ("3 days ago", "2026-03-26T09:00:00Z"),
            ("2 weeks ago", "2026-03-15T09:00:00Z"),
            ("1mo", "2026-02-28T09:00:00Z"),
            ("1d12h", "2026-03-27T21:00:00Z"),
            ("90m", "2026-03-29T06:30:00Z"),
        ] {
            assert_eq!(relative(text), Some((moment.into(), 0)), "{text}");
        }
        for bad in ["", "tomorrow", "-3d", "3", "ago", "3 d d", "99999y", "2026-03-01", "Yesterday evening"] {
            assert_eq!(relative(bad), None, "{bad:?}");
        }
        assert!(parse_last_past("yesterday") < parse_last_past("today"));
        assert!(parse_first_past("today") <= parse_last_past("1s"));
    }

    #[test]
    fn a_moment_is_all_of_what_was_named() {
        let exact = |text| parse_exact(text).unwrap().0;
        let last = |text| parse_last(text).unwrap().0;
        assert_eq!(last("2026-05-01") - exact("2026-05-01"), 86_400_000_000_000 - 1);
        assert_eq!(last("2026-05-01T23:15") - exact("2026-05-01T23:15"), 60_000_000_000 - 1);
        for second in [
            "2026-05-01T23:15:07",
            "2026-05-01 23:15:07",
            "2026-05-01T23:15:07Z",
            "2026-05-01T23:15:07-02:30",
        ] {
            assert_eq!(last(second) - exact(second), 1_000_000_000 - 1, "{second}: all of that second");
        }
        assert_eq!(last("2026-05-01T23:15:07.25"), exact("2026-05-01T23:15:07.25"));
        assert_eq!(last("1970-01-01T00:00:01.5Z"), 1_500_000_000);
        assert_eq!(last("2999-01-01"), i64::MAX);
        assert_eq!(parse_exact("2999-01-01"), None);
        for bad in ["", "yesterday", "2026-13-01", "2026-05"] {
            assert_eq!(parse_last(bad), None, "{bad:?}");
            assert_eq!(parse_exact(bad), None, "{bad:?}");
        }
    }
}
