//! Parses and formats times in the time zone of the user: that of the configuration, otherwise that
//! of the machine.

use std::sync::OnceLock;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Span, Zoned};
use varve_image::FileTime;
use varve_serve::days::CivilTime;
use varve_world::{Clock, RealClock, Timestamp};

/// The zone of the configuration.
static ZONE: OnceLock<TimeZone> = OnceLock::new();

/// Sets the zone for the rest of the process. A second zone is ignored.
pub fn use_zone(zone: &TimeZone) {
    ZONE.get_or_init(|| zone.clone());
}

/// Returns the zone of days and of times without a zone.
pub fn zone() -> TimeZone {
    ZONE.get().cloned().unwrap_or_else(TimeZone::system)
}

/// Parses a time, and returns the last moment that it covers. `2026-05-01` means the end of that
/// day, `2026-05-01T23:15` the end of that minute and `2026-05-01T23:15:07` the end of that second.
/// A zone may follow (`2026-05-01T21:15:07Z`).
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

/// Parses a time in the past, as [`parse_last`] does, or one of [`relative`].
pub fn parse_last_past(text: &str) -> Option<Timestamp> {
    parse_last(text).or_else(|| relative(text, &now()).map(|(_, last)| last))
}

/// Parses a time in the past, and returns the first moment that it covers.
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

/// Returns the calendar date and the wall-clock time of a moment.
pub fn civil(time: Timestamp) -> CivilTime {
    let moment = jiff::Timestamp::from_nanosecond(i128::from(time.0)).unwrap_or_default();
    let local = moment.to_zoned(zone());
    let small = |number: i8| u8::try_from(number).unwrap_or(0);
    CivilTime {
        year: local.year(),
        month: small(local.month()),
        day: small(local.day()),
        hour: small(local.hour()),
        minute: small(local.minute()),
        second: small(local.second()),
    }
}

/// Formats a time to the second.
pub fn show(time: Timestamp) -> String {
    match jiff::Timestamp::from_nanosecond(i128::from(time.0)) {
        Ok(time) => time.to_zoned(zone()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => format!("{} ns", time.0),
    }
}

/// Formats a time for programs: RFC 3339, UTC.
pub fn rfc3339(time: Timestamp) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(time.0))
        .map_or_else(|_| time.0.to_string(), |time| time.to_string())
}

/// Formats the time of a file to the second.
pub fn show_file_time(time: FileTime) -> String {
    match near(time) {
        Some(near) => near.to_zoned(zone()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        None => format!("{}Z", far(time.seconds(), ' ')),
    }
}

/// Formats the time of a file for programs: RFC 3339, UTC. Years outside RFC 3339 are written as in
/// ISO 8601, with a sign and at least six digits.
pub fn file_time_rfc3339(time: FileTime) -> String {
    if let Some(near) = near(time) {
        return near.to_string();
    }
    let fraction = format!(".{:09}", time.subsecond_nanoseconds());
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    format!("{}{fraction}Z", far(time.seconds(), 'T'))
}

/// Converts the time of a file. Returns `None` outside the library's calendar, whose years have
/// four digits.
fn near(time: FileTime) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_nanosecond(time.wide_nanoseconds()).ok()
}

/// Formats the date and clock of a second of any year, in UTC.
fn far(seconds: i64, between: char) -> String {
    const DAY_SECONDS: i64 = 86_400;
    // The calendar repeats after 400 years. Years begin in March here, so that a leap day is the
    // last day of its year.
    const ERA_DAYS: i64 = 146_097;
    let (days, clock) = (seconds.div_euclid(DAY_SECONDS) + 719_468, seconds.rem_euclid(DAY_SECONDS));
    let (era, day) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    format!("{year:+07}-{month:02}-{day_of_month:02}{between}{hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert_eq, proptest};

    use super::*;

    proptest! {
        #[test]
        fn the_calendar_of_far_years_is_that_of_near_ones(seconds in -62_135_596_800..253_402_207_200_i64) {
            let near = file_time_rfc3339(FileTime::new(seconds, 0));
            prop_assert_eq!(far(seconds, 'T'), format!("+00{}", near.trim_end_matches('Z')));
        }
    }

    #[test]
    fn every_time_of_a_file_has_a_text() {
        let text = |seconds, nanoseconds| file_time_rfc3339(FileTime::new(seconds, nanoseconds));
        assert_eq!(text(13_569_465_600, 5), "2400-01-01T00:00:00.000000005Z");
        assert_eq!(text(-11_676_096_000, 0), "1600-01-01T00:00:00Z");
        // The last time that a broken clock of NTFS can produce, and the limits of the type.
        assert_eq!(text(910_692_730_085, 477_580_700), "+030828-09-14T02:48:05.4775807Z");
        assert_eq!(text(i64::MAX, 999_999_999), "+292277026596-12-04T15:30:07.999999999Z");
        assert_eq!(text(i64::MIN, 0), "-292277022657-01-27T08:29:52Z");
        assert_eq!(show_file_time(FileTime::new(910_692_730_085, 5)), "+030828-09-14 02:48:05Z");
    }

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
