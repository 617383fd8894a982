//! Formats sizes, names and tables for output.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::Value;
pub use varve_block::{show_bytes as bytes, show_count as count, visible_name as name};
use varve_block::{to_hex, visible};
use varve_content::{Node, NodeKind};
use varve_daily::show_time_span;

use crate::moment;

/// Formats a time span for people, with tenths of a second below a minute.
pub fn duration(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    match seconds {
        0..60 => format!("{}.{} s", seconds, nanoseconds % 1_000_000_000 / 100_000_000),
        _ => show_time_span(Duration::from_nanos(nanoseconds)),
    }
}

/// Formats a number of seconds in the same way.
pub fn seconds(seconds: f64) -> String {
    duration(
        u64::try_from(Duration::try_from_secs_f64(seconds).unwrap_or_default().as_nanos())
            .unwrap_or(u64::MAX),
    )
}

/// Returns foreign text of several lines, with all characters made visible that could mislead a
/// terminal.
pub fn lines(text: &str) -> String {
    text.lines().map(visible).collect::<Vec<_>>().join("\n")
}

/// Returns text for people. Characters that control a terminal are made visible, and the system's
/// error number after an error message is removed.
pub fn plain(text: &str) -> String {
    let mut parts = text.split(ERROR_NUMBER);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => plain.push_str(rest),
            _ => {
                plain.push_str(ERROR_NUMBER);
                plain.push_str(part);
            }
        }
    }
    lines(&plain)
}

/// The beginning of an error number in messages of Rust's library.
const ERROR_NUMBER: &str = " (os error ";

/// Returns the first digits of the id of a snapshot, which are enough for people.
pub fn short_id(id: &str) -> &str {
    const DIGITS: usize = 8;
    id.get(..DIGITS).unwrap_or(id)
}

/// Adds a name to an object for programs, as text. If the name is not valid UTF-8, its bytes are
/// added in hexadecimal as `FIELD_bytes`.
pub fn put_name(object: &mut Value, field: &str, name: &[u8]) {
    object[field] = String::from_utf8_lossy(name).into();
    if std::str::from_utf8(name).is_err() {
        object[format!("{field}_bytes")] = to_hex(name).into();
    }
}

/// Returns the end of a text, with an ellipsis in front if the text has more than `room`
/// characters.
pub fn end_of(text: &str, room: usize) -> String {
    let count = text.chars().count();
    if count <= room {
        return text.into();
    }
    let end = text.chars().skip(count - room.saturating_sub(1));
    std::iter::once('…').chain(end).collect()
}

/// Returns the start of a text, shortened in the same way.
pub fn start_of(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.into();
    }
    text.chars().take(room.saturating_sub(1)).chain(std::iter::once('…')).collect()
}

/// Returns the lines of a table whose cells have no line ends: the heading, and each row.
pub fn heading_and_rows(table: &Table) -> (String, Vec<String>) {
    let text = table.trim_fmt();
    let mut lines = text.lines().map(str::to_owned);
    (lines.next().unwrap_or_default(), lines.collect())
}

/// Returns the width of a terminal in characters; `None` if the output is no terminal.
pub fn terminal_width(output: &(impl IsTerminal + AsFd)) -> Option<usize> {
    if !output.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(output).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// Breaks a text at blanks, for lines of `width` characters. The first line has less room, as much
/// as is `taken`; the others are indented.
pub fn wrapped(text: &str, taken: usize, indent: usize, width: usize) -> String {
    let (mut lines, mut room) = (String::new(), width.saturating_sub(taken));
    for (number, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        let needed = length + usize::from(number > 0);
        if number > 0 && needed > room {
            let _ = write!(lines, "\n{:indent$}", "");
            room = width.saturating_sub(indent + length);
        } else {
            lines.push_str(if number > 0 { " " } else { "" });
            room = room.saturating_sub(needed);
        }
        lines.push_str(word);
    }
    lines
}

/// Formats a line as `ls -l` does.
pub fn long_line(node: &Node, path: &[u8]) -> String {
    let size = match node.device {
        Some(device) => format!("{},{}", device.major, device.minor),
        None => node.size.to_string(),
    };
    let mut line = format!(
        "{} {:>5} {:>5} {size:>12} {} {}",
        node.symbolic_mode(),
        node.uid,
        node.gid,
        moment::show_file_time(node.mtime),
        name(path)
    );
    if node.kind == NodeKind::SymbolicLink {
        line.push_str(" -> ");
        line.push_str(&name(&node.target));
    }
    if let Some(problem) = node.problem {
        let _ = write!(line, "  ({problem})");
    }
    line
}

/// Creates a table without lines, with headings in capitals. The columns in `right` hold numbers.
pub fn table(headings: &[&str], right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(headings.iter().map(|heading| heading.to_uppercase()));
    for (number, column) in table.column_iter_mut().enumerate() {
        let left = if number == 0 { 0 } else { 1 };
        column.set_padding((left, 1));
        if right.contains(&number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_shortened_to_their_room() {
        assert_eq!((end_of("/srv/docs", 9), end_of("/srv/docs", 5)), ("/srv/docs".into(), "…docs".into()));
        assert_eq!((start_of("grün.example", 5), start_of("grün", 4)), ("grün…".into(), "grün".into()));
        assert_eq!((end_of("ab", 1), end_of("", 0)), ("…".into(), String::new()));
    }

    #[test]
    fn a_long_text_is_broken_at_blanks() {
        assert_eq!(wrapped("one two three", 4, 2, 80), "one two three");
        assert_eq!(wrapped("one two three four", 4, 2, 12), "one two\n  three four");
        assert_eq!(wrapped("a averyverylongword b", 0, 2, 6), "a\n  averyverylongword\n  b");
        assert_eq!(wrapped("", 0, 2, 6), "");
    }

    #[test]
    fn one_is_not_several() {
        let shown =
            [count(0, "block"), count(1, "block"), count(2, "block"), count(1, "pass"), count(3, "pass")];
        assert_eq!(shown, ["0 blocks", "1 block", "2 blocks", "1 pass", "3 passes"]);
    }

    #[test]
    fn names_cannot_mislead_a_terminal() {
        assert_eq!(name(b"a\x1b[2Jb\n\xffc"), "a\\u{1b}[2Jb\\n\\xffc");
        assert_eq!(name("grün".as_bytes()), "grün");
        assert_eq!([name(b"\xff"), name(b"\\xff")], ["\\xff", "\\\\xff"], "no two look the same");
        assert_eq!(lines("C:\\x\x07\nD:"), "C:\\x\\u{7}\nD:");
    }

    #[test]
    fn the_numbers_of_errors_are_left_out() {
        for (text, shown) in [
            ("a: Read-only file system (os error 30)", "a: Read-only file system"),
            ("x (os error 2): y (os error 13)\nz", "x: y\nz"),
            ("a file (os error x) of that name (os error 5", "a file (os error x) of that name (os error 5"),
            ("", ""),
        ] {
            assert_eq!(plain(text), shown);
        }
    }
}
