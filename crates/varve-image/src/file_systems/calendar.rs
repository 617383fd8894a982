//! Converts the dates and times of foreign formats.

use crate::file_systems::file_time::FileTime;

const HUNDREDTH_NANOSECONDS: u32 = 10_000_000;
const DAY_SECONDS: i64 = 86_400;

/// Converts a date of the Gregorian calendar to days since 1970. A month or day out of range is
/// replaced by the nearest one in range.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (month, day) = (month.clamp(1, 12), day.clamp(1, 31));
    // Years are counted from March, so that a leap day is the last day of its year.
    let year = if month <= 2 { year.saturating_sub(1) } else { year };
    let month = if month <= 2 { month.saturating_add(9) } else { month.saturating_sub(3) };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year =
        month.saturating_mul(153).saturating_add(2).div_euclid(5).saturating_add(day).saturating_sub(1);
    let leap_days = year_of_era.div_euclid(4).saturating_sub(year_of_era.div_euclid(100));
    let day_of_era = year_of_era.saturating_mul(365).saturating_add(leap_days).saturating_add(day_of_year);
    era.saturating_mul(146_097).saturating_add(day_of_era).saturating_sub(719_468)
}

/// Converts a date and time in UTC.
pub(crate) fn moment(date: [i64; 3], time: [i64; 3], nanoseconds: u32) -> FileTime {
    let [year, month, day] = date;
    let [hour, minute, second] = time;
    let seconds = days(year, month, day)
        .saturating_mul(DAY_SECONDS)
        .saturating_add(hour.saturating_mul(3600))
        .saturating_add(minute.saturating_mul(60))
        .saturating_add(second);
    FileTime::new(seconds, nanoseconds)
}

/// Converts a packed date and time of DOS, and up to 199 hundredths of a second.
pub(crate) fn dos_moment(date: u16, time: u16, hundredths: u8) -> FileTime {
    let (date, time) = (i64::from(date), i64::from(time));
    let year = (date >> 9).saturating_add(1980);
    let hundredths = u32::from(hundredths);
    let seconds = (time & 0x1f).saturating_mul(2).saturating_add(i64::from(hundredths / 100));
    let clock = [time >> 11, time >> 5 & 0x3f, seconds];
    let nanoseconds = (hundredths % 100).saturating_mul(HUNDREDTH_NANOSECONDS);
    moment([year, date >> 5 & 0xf, date & 0x1f], clock, nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_as_everybody_does() {
        for (date, expected) in [
            ([1970, 1, 1], 0),
            ([1969, 12, 31], -1),
            ([2000, 2, 29], 11_016),
            ([2000, 3, 1], 11_017),
            ([2026, 11, 21], 20_778),
            ([1601, 1, 1], -134_774),
            ([2100, 3, 1], 47_541),
        ] {
            let [year, month, day] = date;
            assert_eq!(days(year, month, day), expected, "{date:?}");
        }
    }

    #[test]
    fn dos_counts_from_1980() {
        assert_eq!(dos_moment(0x21, 0, 0), FileTime::new(315_532_800, 0));
        let date = (2026 - 1980) << 9 | 5 << 5 | 1;
        let time = (23 << 11) | (15 << 5) | 3;
        assert_eq!(dos_moment(date, time, 150), FileTime::new(1_777_677_306 + 1, 500_000_000));
        // Month 0 and day 0.
        assert_eq!(dos_moment(0, 0, 0), FileTime::new(315_532_800, 0));
    }
}
