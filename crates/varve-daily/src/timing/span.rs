//! Spans of time as text: `90s`, `45m`, `30h`, `8d`, `2w`, `1d12h`.

use std::time::Duration;

/// Each unit with its seconds, the greatest first.
const UNITS: [(char, u64); 5] = [('w', 604_800), ('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];
/// A longer span is surely a mistake.
const SECONDS_MAX: u64 = 100 * 366 * 86_400;

/// Why a text is not a span of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseTimeSpanError {
    #[error("{text:?} is not a time span: write 90s, 45m, 30h, 8d, 2w or 1d12h")]
    Malformed { text: String },
    #[error("{text:?} is longer than 100 years")]
    TooLong { text: String },
    #[error("{text:?} is no time at all")]
    Zero { text: String },
}

/// Parses a span of time. It is never zero.
///
/// # Errors
/// [`ParseTimeSpanError`].
pub fn parse_time_span(text: &str) -> Result<Duration, ParseTimeSpanError> {
    let malformed = || ParseTimeSpanError::Malformed { text: text.to_owned() };
    let too_long = || ParseTimeSpanError::TooLong { text: text.to_owned() };
    let (mut rest, mut seconds) = (text.trim(), 0_u64);
    if rest.is_empty() {
        return Err(malformed());
    }
    // Units get smaller, so that a repeated one is noticed.
    let mut last_unit = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|end| *end > 0).ok_or_else(malformed)?;
        let (number, after) = rest.split_at(digits);
        let unit = after.chars().next().ok_or_else(malformed)?;
        let (_, unit_seconds) = UNITS.iter().find(|(known, _)| *known == unit).ok_or_else(malformed)?;
        if *unit_seconds >= last_unit {
            return Err(malformed());
        }
        last_unit = *unit_seconds;
        let number: u64 = number.parse().map_err(|_| too_long())?;
        let part = number.checked_mul(*unit_seconds).ok_or_else(too_long)?;
        seconds = seconds.checked_add(part).filter(|sum| *sum <= SECONDS_MAX).ok_or_else(too_long)?;
        rest = &after[unit.len_utf8()..];
    }
    match seconds {
        0 => Err(ParseTimeSpanError::Zero { text: text.to_owned() }),
        seconds => Ok(Duration::from_secs(seconds)),
    }
}

/// Formats a span of time with its two greatest units, rounded down: `2d 4h`, `52m`, `8s`.
#[must_use]
pub fn show_time_span(span: Duration) -> String {
    let mut seconds = span.as_secs();
    let mut parts = Vec::new();
    for (unit, unit_seconds) in UNITS.into_iter().filter(|(unit, _)| *unit != 'w') {
        let count = seconds / unit_seconds;
        seconds %= unit_seconds;
        if count > 0 || (unit == 's' && parts.is_empty()) {
            parts.push(format!("{count}{unit}"));
        } else if !parts.is_empty() {
            break;
        }
        if parts.len() == 2 {
            break;
        }
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_shown() {
        for (text, seconds, shown) in [
            ("90s", 90, "1m 30s"),
            ("45m", 2_700, "45m"),
            ("30h", 108_000, "1d 6h"),
            ("8d", 691_200, "8d"),
            ("2w", 1_209_600, "14d"),
            ("1d12h", 129_600, "1d 12h"),
        ] {
            let span = parse_time_span(text).unwrap();
            assert_eq!((span.as_secs(), show_time_span(span).as_str()), (seconds, shown), "{text}");
        }
        assert_eq!(show_time_span(Duration::ZERO), "0s");
        assert_eq!(show_time_span(Duration::from_secs(86_405)), "1d");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "h", "5", "5x", "5h3d", "1h1h", "-1h", "1.5h", "99999999999999999999h", "3000w9h0"] {
            assert!(parse_time_span(text).is_err(), "{text}");
        }
        assert_eq!(parse_time_span("0h").unwrap_err().to_string(), "\"0h\" is no time at all");
        assert!(matches!(parse_time_span("6000w"), Err(ParseTimeSpanError::TooLong { .. })));
    }
}
