//! A time in the name of a folder or a file. Pure.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use varve_world::Timestamp;

/// The digits of a number of seconds since 1970, from 2001 to 2286.
const SECONDS_DIGITS: usize = 10;

/// The time in a name such as `2026-05-01`, `backup-2026-05-01_231500`, `20260501T2315` or
/// `20260501-231500-123`: the first date of this century or the last, and the time of day behind
/// it. A date alone means its midnight. `None` if there is no date.
#[must_use]
pub fn time_in_name(name: &str, zone: &TimeZone) -> Option<Timestamp> {
    let bytes = name.as_bytes();
    let is_start = |at: &usize| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        !before.is_some_and(u8::is_ascii_digit)
    };
    (0..bytes.len()).filter(is_start).find_map(|at| time_at(bytes.get(at..)?, zone))
}

/// The part of a name before the first date, or before a number of seconds since 1970, without
/// separators at its end. The whole name if there is neither.
pub(crate) fn before_date(name: &str) -> &str {
    let bytes = name.as_bytes();
    let is_date = |at: &usize| {
        let rest = bytes.get(*at..).unwrap_or_default();
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        let is_start = !before.is_some_and(u8::is_ascii_digit);
        let digit_count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        is_start && (digit_count == SECONDS_DIGITS || time_at(rest, &TimeZone::UTC).is_some())
    };
    let end = (0..bytes.len()).find(is_date).unwrap_or(bytes.len());
    name.get(..end).unwrap_or(name).trim_end_matches(['-', '_', '.', ':', ' ', '@'])
}

fn time_at(bytes: &[u8], zone: &TimeZone) -> Option<Timestamp> {
    let mut rest = bytes;
    let year = digits(&mut rest, 4).filter(|year| (1970..2200).contains(year))?;
    let is_spaced = separator(&mut rest, b"-._");
    let month = digits(&mut rest, 2)?;
    if separator(&mut rest, b"-._") != is_spaced {
        return None;
    }
    let day = digits(&mut rest, 2)?;
    let date = DateTime::new(
        i16::try_from(year).ok()?,
        i8::try_from(month).ok()?,
        i8::try_from(day).ok()?,
        0,
        0,
        0,
        0,
    );
    let date = date.ok()?;
    let time = time_of_day(rest)
        .and_then(|(hour, minute, second)| date.with().hour(hour).minute(minute).second(second).build().ok());
    let moment = zone.to_timestamp(time.unwrap_or(date)).ok()?;
    i64::try_from(moment.as_nanosecond()).ok().map(Timestamp)
}

fn time_of_day(mut rest: &[u8]) -> Option<(i8, i8, i8)> {
    separator(&mut rest, b"T_-. @").then_some(())?;
    let hour = digits(&mut rest, 2).filter(|hour| *hour < 24)?;
    separator(&mut rest, b":-._h");
    let minute = digits(&mut rest, 2).filter(|minute| *minute < 60)?;
    separator(&mut rest, b":-._m");
    let second = digits(&mut rest, 2).filter(|second| *second < 60).unwrap_or(0);
    Some((i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, i8::try_from(second).ok()?))
}

/// Takes exactly `count` digits.
fn digits(rest: &mut &[u8], count: usize) -> Option<u32> {
    let (taken, left) = rest.split_at_checked(count)?;
    let value = taken.iter().try_fold(0_u32, |value, digit| {
        let digit = char::from(*digit).to_digit(10)?;
        value.checked_mul(10)?.checked_add(digit)
    })?;
    *rest = left;
    Some(value)
}

/// Takes one of these characters, if it is next.
fn separator(rest: &mut &[u8], separators: &[u8]) -> bool {
    match rest.split_first() {
        Some((first, left)) if separators.contains(first) => {
            *rest = left;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_found_in_names() {
        let found = |name: &str| {
            let Timestamp(nanoseconds) = time_in_name(name, &TimeZone::UTC)?;
            Some(jiff::Timestamp::from_nanosecond(nanoseconds.into()).ok()?.to_string())
        };
        let cases = [
            ("2026-05-01", Some("2026-05-01T00:00:00Z")),
            ("home-2026-05-01_231500.tar", Some("2026-05-01T23:15:00Z")),
            ("20260501T2315", Some("2026-05-01T23:15:00Z")),
            ("20260501-231501-123", Some("2026-05-01T23:15:01Z")),
            ("2026-05-01T23:15:02", Some("2026-05-01T23:15:02Z")),
            ("2026.05.01", Some("2026-05-01T00:00:00Z")),
            ("2026-05-01-backup", Some("2026-05-01T00:00:00Z")),
            ("daily.0", None),
            ("2026-0501", None),
            ("2026-13-01", None),
            ("120260501", None),
            ("v1.2026", None),
            ("", None),
            ("é2026-05-01", Some("2026-05-01T00:00:00Z")),
        ];
        for (name, time) in cases {
            assert_eq!(found(name).as_deref(), time, "{name}");
        }
    }

    #[test]
    fn the_name_of_a_series_has_no_date() {
        let cases = [
            ("home-2026-05-01T02:00:00.123", "home"),
            ("web1_20260501", "web1"),
            ("db 1777600000", "db"),
            ("2026-05-01-home", ""),
            ("monday", "monday"),
            ("v-12345678901", "v-12345678901"),
        ];
        for (name, series) in cases {
            assert_eq!(before_date(name), series, "{name}");
        }
    }
}
