//! Times as text: RFC 3339 in UTC, with as many digits of a second as are needed.

use varve_world::Timestamp;

/// Writes a time: `2026-05-01T21:00:00Z`.
pub(crate) fn format_time(time: Timestamp) -> String {
    // An `i64` of nanoseconds is far inside the range of jiff.
    jiff::Timestamp::from_nanosecond(i128::from(time.0))
        .map_or_else(|_| String::new(), |time| time.to_string())
}

/// Reads a time in exactly the form in which it is written.
pub(crate) fn parse_time(text: &str) -> Option<Timestamp> {
    let time: jiff::Timestamp = text.parse().ok()?;
    let time = Timestamp(i64::try_from(time.as_nanosecond()).ok()?);
    (format_time(time) == text).then_some(time)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_time_has_one_spelling() {
        assert_eq!(format_time(Timestamp(0)), "1970-01-01T00:00:00Z");
        assert_eq!(parse_time("2026-05-01T21:00:00.5Z"), Some(Timestamp(1_777_669_200_500_000_000)));
        for text in
            ["", "2026-05-01", "2026-05-01T21:00:00+00:00", "2026-05-01 21:00:00Z", "2026-05-01T21:00:00.50Z"]
        {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_time_is_read_again(nanoseconds: i64) {
            prop_assert_eq!(parse_time(&format_time(Timestamp(nanoseconds))), Some(Timestamp(nanoseconds)));
        }
    }
}
