//! Formats numbers of bytes, and counts.

use std::fmt;

/// Formats a number of bytes for people: three digits and a binary unit.
#[must_use]
pub fn show_bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut value = count as f64;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match (unit, value) {
        (0, _) => format!("{count} B"),
        (_, value) if value < 9.995 => format!("{value:.2} {}", UNITS[unit]),
        (_, value) if value < 99.95 => format!("{value:.1} {}", UNITS[unit]),
        (_, value) => format!("{value:.0} {}", UNITS[unit]),
    }
}

/// Formats a count: `1 block`, `2 blocks`, `2 passes`.
#[must_use]
pub fn show_count<N: fmt::Display + PartialEq + From<u8>>(number: N, what: &str) -> String {
    match what {
        _ if number == N::from(1) => format!("1 {what}"),
        "entry" => format!("{number} entries"),
        _ if what.ends_with('s') => format!("{number} {what}es"),
        _ => format!("{number} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        for (count, shown) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "0.98 KiB"),
            (8192, "8.00 KiB"),
            (67_108_864, "64.0 MiB"),
            (1_048_576_000, "0.98 GiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(show_bytes(count), shown);
        }
    }
}
