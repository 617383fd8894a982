//! Formats names, sizes, times and addresses for pages. The templates escape the results.

use std::fmt::Write;

use jiff::tz::TimeZone;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
pub(crate) use varve_block::show_bytes as bytes;
use varve_content::without_line_end;
use varve_image::FileTime;
use varve_world::Timestamp;

/// The bytes of a path that are escaped in addresses: all but letters, digits, `-`, `_`, `~`, `.`
/// and the slashes between names.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~').remove(b'.').remove(b'/');

/// A foreign name, with all characters made visible that could mislead a reader: control
/// characters, characters without a shape, and those that change the direction of text. Different
/// names always look different: a backslash is doubled.
pub(crate) fn name(bytes: &[u8]) -> String {
    escaped(bytes, |c| c == '\\' || is_misleading(c))
}

/// A line of foreign text, with the same characters made visible, except backslashes and tabs.
pub(crate) fn line(bytes: &[u8]) -> String {
    escaped(bytes, |c| c != '\t' && is_misleading(c))
}

/// Longer lines of text are cut.
const LINE_CHARS_MAX: usize = 400;

/// A line of a foreign text, without its end.
pub(crate) fn text_line(text: &str) -> String {
    let text = without_line_end(text);
    match text.char_indices().nth(LINE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", line(&text.as_bytes()[..end])),
        None => line(text.as_bytes()),
    }
}

fn escaped(bytes: &[u8], is_escaped: impl Fn(char) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match is_escaped(c) {
                true if c == '\\' || c.is_ascii_control() => text.extend(c.escape_default()),
                true => text.extend(c.escape_unicode()),
                false => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Reports whether a character has no shape of its own, or changes that of others.
pub(crate) fn is_misleading(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
        // Spaces other than the usual one look like it.
        || (c.is_whitespace() && c != ' ')
}

/// A path as a part of an address.
pub(crate) fn path_link(path: &[u8]) -> String {
    percent_encode(path, IN_PATH).to_string()
}

/// The bytes that a part of an address stands for.
pub(crate) fn path_of_link(link: &str) -> Vec<u8> {
    percent_decode(link.as_bytes()).collect()
}

/// A word of a command for a shell. A word with bytes that a reader could not see, or that are no
/// text, is written as `$'...'`, which bash, zsh and ksh know.
pub(crate) fn shell_word(word: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./:@%+=,".contains(byte);
    match str::from_utf8(word) {
        Ok(text) if !word.is_empty() && word.iter().all(is_plain) => text.to_owned(),
        Ok(text) if !text.chars().any(is_misleading) => format!("'{}'", text.replace('\'', "'\\''")),
        _ => {
            let mut quoted = "$'".to_owned();
            for chunk in word.utf8_chunks() {
                for c in chunk.valid().chars() {
                    match c {
                        '\'' | '\\' => quoted.extend(['\\', c]),
                        c if is_misleading(c) => {
                            push_octal(&mut quoted, c.encode_utf8(&mut [0; 4]).as_bytes())
                        }
                        c => quoted.push(c),
                    }
                }
                push_octal(&mut quoted, chunk.invalid());
            }
            quoted.push('\'');
            quoted
        }
    }
}

/// Bytes as `\ooo`. Three digits are never joined with a digit that follows.
fn push_octal(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "\\{byte:03o}");
    }
}

/// Text as a value in an address.
pub(crate) fn query_value(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// A count with its noun: `1 file`, `2 files`, `1,234 files`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let plural = match noun {
        "entry" => "entries".to_owned(),
        _ => format!("{noun}s"),
    };
    format!("{} {}", grouped(number), if number == 1 { noun } else { &plural })
}

/// A number with its digits in groups.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A date and time to the minute, in this time zone.
pub(crate) fn minute(time: Timestamp, zone: &TimeZone) -> String {
    zoned(i128::from(time.0), zone)
        .map_or_else(|| format!("{} ns", time.0), |time| time.strftime("%Y-%m-%d %H:%M").to_string())
}

/// The time of a file to the second, in this time zone.
pub(crate) fn file_time(time: FileTime, zone: &TimeZone) -> String {
    zoned(time.wide_nanoseconds(), zone).map_or_else(
        || format!("{} s", time.seconds()),
        |time| time.strftime("%Y-%m-%d %H:%M:%S").to_string(),
    )
}

/// The calendar day of a moment.
pub(crate) fn day(time: Timestamp, zone: &TimeZone) -> jiff::civil::Date {
    zoned(i128::from(time.0), zone).map_or(jiff::civil::Date::constant(1970, 1, 1), |time| time.date())
}

fn zoned(nanoseconds: i128, zone: &TimeZone) -> Option<jiff::Zoned> {
    Some(jiff::Timestamp::from_nanosecond(nanoseconds).ok()?.to_zoned(zone.clone()))
}

/// The time since a moment, in its largest unit: `3 days`.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    span(now.since(since).as_secs())
}

/// A time in its largest unit: `3 days`.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..120 => count(seconds, "second"),
        120..7_200 => count(seconds / 60, "minute"),
        7_200..172_800 => count(seconds / 3_600, "hour"),
        172_800..63_072_000 => count(seconds / 86_400, "day"),
        _ => count(seconds / 31_536_000, "year"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_they_look_like() {
        for (bytes, shown) in [
            (&b"caf\xc3\xa9.txt"[..], "caf\u{e9}.txt"),
            (b"a\nb\x1b[31m", "a\\nb\\u{1b}[31m"),
            (b"a\\n", "a\\\\n"),
            (b"\xff\xfe", "\\xff\\xfe"),
            ("invoice\u{202e}fdp.exe".as_bytes(), "invoice\\u{202e}fdp.exe"),
            ("a\u{200b}b\u{a0}c\u{2028}".as_bytes(), "a\\u{200b}b\\u{a0}c\\u{2028}"),
            ("\u{e0041}\u{feff}\u{3000}".as_bytes(), "\\u{e0041}\\u{feff}\\u{3000}"),
            (b"<b>&\"'", "<b>&\"'"),
        ] {
            assert_eq!(name(bytes), shown);
        }
        assert_eq!(line(b"C:\\x\ty\r"), "C:\\x\ty\\r");
        assert_eq!(text_line("other\u{202e}\r\n"), "other\\u{202e}");
        assert_eq!(text_line(&"x".repeat(10_000)).chars().count(), LINE_CHARS_MAX + 1);
    }

    #[test]
    fn addresses_hold_all_bytes() {
        let all: Vec<u8> = (0..=255).collect();
        let link = path_link(&all);
        assert!(link.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"%-_~./".contains(&byte)), "{link}");
        assert_eq!(path_of_link(&link), all);
        assert_eq!(path_of_link("a%2"), b"a%2");
        assert_eq!(query_value("a b&c=d"), "a+b%26c%3Dd");
    }

    #[test]
    fn a_shell_gets_the_same_word() {
        for (word, quoted) in [
            (&b"/a/b-1.txt"[..], "/a/b-1.txt"),
            (b"", "''"),
            (b"a b$(c)`d`\"\\", "'a b$(c)`d`\"\\'"),
            (b"it's", "'it'\\''s'"),
            ("caf\u{e9}".as_bytes(), "'caf\u{e9}'"),
            (b"a\n1\xff'\\", "$'a\\0121\\377\\'\\\\'"),
            ("x\u{202e}y".as_bytes(), "$'x\\342\\200\\256y'"),
        ] {
            assert_eq!(shell_word(word), quoted);
        }
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!((count(1, "file"), count(2, "entry")), ("1 file".into(), "2 entries".into()));
        assert_eq!([119, 120, 7_200, 172_800].map(span), ["119 seconds", "2 minutes", "2 hours", "2 days"]);
    }
}
