//! Moments as people write and read them, in the zone of the machine.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use varve_serve::days::CivilTime;
use varve_world::Timestamp;

/// The last moment that a text means: `2026-05-01` is the end of that day, `2026-05-01T23:15` the end of that minute. With a
/// zone (`2026-05-01T21:15:00Z`) it is that moment.
pub fn parse_last(text: &str) -> Option<Timestamp> {
    let nanoseconds = if let Ok(exact) = text.parse::<jiff::Timestamp>() {
        exact.as_nanosecond()
    } else if let Ok(day) = text.parse::<Date>()
        && !text.contains([':', 'T', ' '])
    {
        last(day.to_datetime(jiff::civil::Time::MAX))?
    } else {
        let minute: DateTime = text.parse().ok()?;
        let is_to_the_minute = text.matches(':').count() == 1;
        last(if is_to_the_minute {
            minute.with().second(59).subsec_nanosecond(999_999_999).build().ok()?
        } else {
            minute
        })?
    };
    // Whatever lies beyond the moments that can be kept is before or after all of them.
    Some(Timestamp(i64::try_from(nanoseconds.clamp(i64::MIN.into(), i64::MAX.into())).ok()?))
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
    fn a_day_means_its_end_and_a_minute_its_last_second() {
        let exact = |text| parse_exact(text).unwrap().0;
        let last = |text| parse_last(text).unwrap().0;
        assert_eq!(last("2026-05-01") - exact("2026-05-01"), 86_400_000_000_000 - 1);
        assert_eq!(last("2026-05-01T23:15") - exact("2026-05-01T23:15"), 60_000_000_000 - 1);
        assert_eq!(last("2026-05-01T23:15:07"), exact("2026-05-01T23:15:07"));
        assert_eq!(last("1970-01-01T00:00:01Z"), 1_000_000_000);
        assert_eq!(last("2999-01-01"), i64::MAX);
        assert_eq!(parse_exact("2999-01-01"), None);
        for bad in ["", "yesterday", "2026-13-01", "2026-05"] {
            assert_eq!(parse_last(bad), None, "{bad:?}");
            assert_eq!(parse_exact(bad), None, "{bad:?}");
        }
    }
}
