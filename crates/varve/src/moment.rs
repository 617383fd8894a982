//! Moments as people write and read them, in the zone of the machine.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use varve_serve::days::CivilTime;
use varve_world::Timestamp;

/// The last moment that a text means: `2026-05-01` is the end of that day, `2026-05-01T23:15` the end of that minute and
/// `2026-05-01T23:15:07` that of the second, with a zone (`2026-05-01T21:15:07Z`) or without.
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
    // Whatever lies beyond the moments that can be kept is before or after all of them.
    Some(Timestamp(i64::try_from(nanoseconds.clamp(i64::MIN.into(), i64::MAX.into())).ok()?))
}

/// How many nanoseconds have the time that a text tells: all of an hour, a minute or a second.
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

/// The moment that a text means, to be remembered with a snapshot: `2026-05-01` is the beginning of that day.
pub fn parse_exact(text: &str) -> Option<Timestamp> {
    let nanoseconds = match text.parse::<jiff::Timestamp>() {
        Ok(exact) => exact.as_nanosecond(),
        Err(_) => last(text.parse::<DateTime>().ok()?)?,
    };
    i64::try_from(nanoseconds).ok().map(Timestamp)
}

fn last(civil: DateTime) -> Option<i128> {
    Some(civil.to_zoned(TimeZone::system()).ok()?.timestamp().as_nanosecond())
}

/// What the calendar and the clock on the wall said at a moment.
pub fn civil(time: Timestamp) -> CivilTime {
    let moment = jiff::Timestamp::from_nanosecond(i128::from(time.0)).unwrap_or_default();
    let local = moment.to_zoned(TimeZone::system());
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

/// A moment, to the second.
pub fn show(time: Timestamp) -> String {
    match jiff::Timestamp::from_nanosecond(i128::from(time.0)) {
        Ok(time) => time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => format!("{} ns", time.0),
    }
}

/// A moment for programs: RFC 3339, UTC.
pub fn rfc3339(time: Timestamp) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(time.0))
        .map_or_else(|_| time.0.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

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
