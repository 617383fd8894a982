//! Times for people, in the time zone of the user, and the times of files.

use varve_image::FileTime;
use varve_serve::days::CivilTime;
pub use varve_session::moment::*;
use varve_world::Timestamp;

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

/// Formats the day of a moment.
pub fn show_day(time: Timestamp) -> String {
    let CivilTime { year, month, day, .. } = civil(time);
    format!("{year:04}-{month:02}-{day:02}")
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
}
