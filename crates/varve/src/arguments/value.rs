//! Parsers of argument values: sizes, shares, ages, names. Each error message is specific to the
//! kind of value.

use std::time::Duration;

use varve_archive::Hold;
use varve_content::folder::wrong_in_pattern;
use varve_daily::{ParseTimeSpanError, parse_time_span};
use varve_log::{ArenaMap, ClumpBytes, CompressionLevel, ParityPercent};
use varve_machine::ImageFormat;
use varve_store::{DiskIndexConfig, StoreConfig};
use varve_world::Timestamp;

use super::Parity;
use crate::moment;

/// Parses a number of bytes: `8192`, `8K`, `64M`, `1G`. `MB` and `MiB` mean the same as `M`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|end: char| end.is_ascii_alphabetic());
    let unit = text.get(digits.len()..).unwrap_or_default().to_ascii_uppercase();
    let wrong = || format!("{text} is not a size: write 8192, 8K or 64M");
    let shift = match unit.as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.trim_end().parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is too large"))
}

/// Sizes for which plans are made one after the other.
#[derive(Debug, Clone)]
pub struct Sizes(pub Vec<u64>);

/// Parses several sizes: `4K,8K,64K`, or `1T..8T`, which doubles from the first to the last.
pub fn parse_sizes(text: &str) -> Result<Sizes, String> {
    let mut sizes = Vec::new();
    for part in text.split(',') {
        let Some((first, last)) = part.split_once("..") else {
            sizes.push(parse_size(part)?);
            continue;
        };
        let (first, last) = (parse_size(first)?, parse_size(last)?);
        if first == 0 || last < first {
            return Err(format!("{part} is not a range of sizes: write the smaller one first, as in 1T..8T"));
        }
        sizes.extend(
            std::iter::successors(Some(first), |size| size.checked_mul(2)).take_while(|size| *size <= last),
        );
    }
    Ok(Sizes(sizes))
}

/// Parses several block sizes, in the same notation.
pub fn parse_block_sizes(text: &str) -> Result<Sizes, String> {
    let sizes = parse_sizes(text)?;
    let is_good = |size: &u64| u32::try_from(*size).is_ok_and(StoreConfig::block_bytes_is_good);
    match sizes.0.iter().all(is_good) {
        true => Ok(sizes),
        false => Err("write powers of two from 512 to 64K".into()),
    }
}

/// Parses a count with K, M or G for thousands, millions and billions: `1000`, `10M`.
pub fn parse_interval(text: &str) -> Result<u64, String> {
    parse_blocks(text).map_err(|_| "write a count of blocks, such as 1000 or 10M".into())
}

/// Parses a count of blocks: `500000`, `100M`.
pub fn parse_blocks(text: &str) -> Result<u64, String> {
    let unit = text.chars().last().filter(char::is_ascii_alphabetic);
    let factor = match unit.map(|unit| unit.to_ascii_uppercase()) {
        None => Some(1),
        Some('K') => Some(1_000),
        Some('M') => Some(1_000_000),
        Some('G') => Some(1_000_000_000),
        Some(_) => None,
    };
    let digits = text.trim_end_matches(|end| Some(end) == unit);
    let number =
        digits.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    let good = number.filter(|number| (1..=DiskIndexConfig::EXPECTED_BLOCKS_MAX).contains(number));
    good.ok_or_else(|| "write a count of blocks, such as 500000 or 100M".into())
}

/// With less memory than this, an index on disk spends most of its time on writing.
const INDEX_MEMORY_MIN: u64 = 1 << 20;

pub fn parse_index_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    let good = (INDEX_MEMORY_MIN..=1 << 44).contains(&bytes);
    if good { Ok(bytes) } else { Err("write a size of at least 1M".into()) }
}

/// Parses a format of disk images: `qcow2`.
pub fn parse_format(text: &str) -> Result<ImageFormat, String> {
    ImageFormat::from_name(text).ok_or_else(|| "write raw, qcow2, vmdk, vhdx, vdi or vhd".into())
}

pub fn parse_block_size(text: &str) -> Result<u32, String> {
    let bytes =
        u32::try_from(parse_size(text)?).ok().filter(|bytes| StoreConfig::block_bytes_is_good(*bytes));
    bytes.ok_or_else(|| "write a power of two from 512 to 64K".into())
}

pub fn parse_arena_size(text: &str) -> Result<ArenaMap, String> {
    ArenaMap::new(parse_size(text)?).ok_or_else(|| "write a multiple of 128 from 1M to 16G".into())
}

pub fn parse_clump_size(text: &str) -> Result<ClumpBytes, String> {
    let bytes = u32::try_from(parse_size(text)?).ok().and_then(ClumpBytes::new);
    bytes.ok_or_else(|| "write a size from 4K to 2M".into())
}

pub fn parse_compression(text: &str) -> Result<CompressionLevel, String> {
    text.parse().ok().and_then(CompressionLevel::new).ok_or_else(|| "write a level from 1 to 19".into())
}

pub fn parse_parity(text: &str) -> Result<Parity, String> {
    let number: Result<u8, _> = text.strip_suffix('%').unwrap_or(text).parse();
    match number {
        Ok(0) => Ok(Parity(None)),
        Ok(percent) => ParityPercent::new(percent).map(Some).map(Parity).ok_or(()),
        Err(_) => Err(()),
    }
    .map_err(|()| "write a share from 0% to 100%, like 5%".into())
}

/// Parses a snapshot name. It must be usable in `SNAPSHOT[:PATH]` and `NAME@WHEN`.
pub fn parse_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains([':', '@', '/']) || text == "latest" {
        return Err(format!(
            "{text:?} cannot name a snapshot: names have no `:`, `@` or `/`, and are not `latest`"
        ));
    }
    if text.contains(char::is_control) {
        return Err(format!("{text:?} cannot name a snapshot: names have no control characters"));
    }
    if text.len() > NAME_BYTES_MAX {
        let length = text.len();
        return Err(format!(
            "a snapshot's name has at most {NAME_BYTES_MAX} bytes, like a file name; this one has {length}"
        ));
    }
    Ok(text.into())
}

/// Upper bound on the length of a name: mounts use it as a file name.
const NAME_BYTES_MAX: usize = 255;

/// Parses an exclude pattern.
pub fn parse_exclude(text: &str) -> Result<String, String> {
    match wrong_in_pattern(text) {
        None => Ok(text.into()),
        Some(wrong) => Err(wrong),
    }
}

pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    moment::parse_exact(text).ok_or_else(|| "write a time, such as 2026-05-01 or 2026-05-01T23:15".into())
}

/// Parses a share of a whole: `3%`. It must not be zero.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let share = parse_any_share(text).ok().filter(|share| *share > 0.0);
    share.ok_or_else(|| "write a share above 0%, such as 3%".into())
}

/// Parses a share of a whole that may be zero: `0%`, `60%`.
pub fn parse_any_share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let percent = number.filter(|number| (0.0..=100.0).contains(number));
    percent.map(|percent| percent / 100.0).ok_or_else(|| "write a share from 0% to 100%, such as 60%".into())
}

/// Parses a share: `5%`, `0.1%`.
pub fn parse_sample(text: &str) -> Result<varve_replica::ClumpShare, String> {
    let wrong = || format!("{text} is not a share: write 5% or 0.1%");
    let number = text.trim_end_matches('%');
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.chars().all(|digit| digit.is_ascii_digit());
    if whole.is_empty() || part.len() > 4 || !digits(whole) || !digits(part) {
        return Err(wrong());
    }
    let scaled: u32 = format!("{whole}{part:0<4}").parse().map_err(|_| wrong())?;
    varve_replica::ClumpShare::from_millionths(scaled).ok_or_else(wrong)
}

/// Parses an age: `30d`, `12h`, `1d12h`, `0h`.
pub fn parse_age(text: &str) -> Result<Duration, String> {
    match parse_time_span(text) {
        Ok(span) => Ok(span),
        Err(ParseTimeSpanError::Zero { .. }) => Ok(Duration::ZERO),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a duration: `30s`, `10m`, `2h`, `1d12h`, `2w`. A number without a unit means seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => parse_age(text),
    }
}

/// Parses a comment, which is a single line.
pub fn parse_comment(text: &str) -> Result<String, String> {
    match text {
        _ if text.contains(char::is_control) => Err("write one line without control characters".into()),
        _ if text.len() > COMMENT_BYTES_MAX => {
            Err(format!("a comment has at most {COMMENT_BYTES_MAX} bytes; this one has {}", text.len()))
        }
        _ => Ok(text.into()),
    }
}

const COMMENT_BYTES_MAX: usize = 4096;

/// Parses the label of a hold.
pub fn parse_label(text: &str) -> Result<String, String> {
    match Hold::new(text, Timestamp(0)) {
        Ok(hold) => Ok(hold.label),
        Err(_) => Err("write 1 to 200 bytes without control characters".into()),
    }
}

/// Parses a tag or the key of tags: `why=upgrade`, `why`.
pub fn parse_filter_tag(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some(("", _)) => Err("write KEY or KEY=VALUE".into()),
        None if text.is_empty() => Err("write KEY or KEY=VALUE".into()),
        _ => Ok(text.into()),
    }
}

/// Parses a time in the past, and returns the earliest moment that it covers.
pub fn parse_since(text: &str) -> Result<Timestamp, String> {
    moment::parse_first_past(text).ok_or_else(no_past_time)
}

/// Parses a time in the past, and returns the latest moment that it covers: the end of a day, for a
/// date.
pub fn parse_until(text: &str) -> Result<Timestamp, String> {
    moment::parse_last_past(text).ok_or_else(no_past_time)
}

fn no_past_time() -> String {
    "write a time, such as 2026-05-01, 2026-05-01T23:15, yesterday or 3d".into()
}

/// Parses the end of a hold, and returns the latest moment that it covers.
pub fn parse_end(text: &str) -> Result<Timestamp, String> {
    moment::parse_last(text).ok_or_else(|| "write a time, such as 2026-05-01 or 2026-05-01T23:15".into())
}

pub fn parse_tag(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((key, _)) if !key.is_empty() => Ok(text.into()),
        None if !text.is_empty() => Err(format!("write KEY=VALUE, such as tag={text}")),
        _ => Err("write KEY=VALUE".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read() {
        let millionths = |number| varve_replica::ClumpShare::from_millionths(number).unwrap();
        for (text, number) in [("5%", 50_000), ("0.1%", 1000), ("100", 1_000_000), ("0.0001%", 1), ("0", 0)] {
            assert_eq!(parse_sample(text), Ok(millionths(number)), "{text}");
        }
        for bad in ["", "%", "101%", "-1%", "0.00001%", "5 %", "five"] {
            assert!(parse_sample(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse_size("8192"), Ok(8192));
        assert_eq!(parse_size("8K"), Ok(8192));
        assert_eq!(parse_size("64m"), Ok(64 << 20));
        assert_eq!(parse_size("1G"), Ok(1 << 30));
        for text in ["5M", "5MB", "5mib", "5 MiB"] {
            assert_eq!(parse_size(text), Ok(5 << 20), "{text}");
        }
        for bad in ["", "K", "MB", "5i", "5BM", "8X", "-1", "99999999999G"] {
            assert!(parse_size(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn shares_and_ages_are_read() {
        assert_eq!(parse_share("50%"), Ok(0.5));
        assert_eq!(parse_age("2d"), Ok(Duration::from_secs(172_800)));
        for bad in ["", "3", "0%", "101%", "-1%", "NaN%", "x%"] {
            assert!(parse_share(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "d", "3", "3y", "-1d", "1µ", "99999999999999999999d"] {
            assert!(parse_age(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn durations_are_read() {
        for (text, seconds) in [("0", 0), ("30", 30), ("30s", 30), ("10m", 600), ("2h", 7200), ("1d", 86_400)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse_duration("1d12h"), Ok(Duration::from_secs(129_600)));
        for bad in ["", "s", "-1", "1.5h", "3y", "3 m", "3µ", "99999999999999999999s"] {
            assert!(parse_duration(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn parity_is_read() {
        assert_eq!(parse_parity("0"), Ok(Parity(None)));
        for text in ["5", "5%", "005%"] {
            assert_eq!(parse_parity(text), Ok(Parity(ParityPercent::new(5))));
        }
        assert_eq!(parse_parity("100%"), Ok(Parity(ParityPercent::new(100))));
        for bad in ["", "%", "101", "-1", "5%%", "0.5", "5 %", "256%"] {
            assert!(parse_parity(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn conditions_are_read() {
        assert_eq!([parse_filter_tag("a"), parse_filter_tag("a=")], [Ok("a".into()), Ok("a=".into())]);
        assert!(["", "=", "=b"].iter().all(|bad| parse_filter_tag(bad).is_err()));
        let (since, until) = (parse_since("2026-05-01").unwrap(), parse_until("2026-05-01").unwrap());
        assert_eq!(until.0 - since.0, 86_400_000_000_000 - 1);
        assert!(parse_since("soon").is_err() && parse_until("soon").is_err());
        assert!(parse_comment("one line: ünd").is_ok() && parse_comment("").is_ok());
        assert!(parse_comment("two\nlines").is_err() && parse_comment(&"x".repeat(4097)).is_err());
    }

    #[test]
    fn names_must_be_speakable() {
        assert_eq!(parse_name("web-1"), Ok("web-1".into()));
        for bad in ["", "a:b", "a@b", "a/b", "latest", "a\tb", "\u{85}"] {
            assert!(parse_name(bad).is_err(), "{bad:?}");
        }
        assert!(parse_name(&"n".repeat(255)).is_ok());
        assert!(parse_name(&"ü".repeat(128)).unwrap_err().contains("256"));
    }
}
