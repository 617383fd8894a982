//! Text in archived files: whether bytes are text, and how two texts differ.

use std::time::Duration;

use similar::{ChangeTag, TextDiff};

/// The comparison becomes coarser after this time.
const TIME_MAX: Duration = Duration::from_millis(500);
/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// A line of a difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DifferenceLine {
    pub kind: LineKind,
    pub text: String,
}

/// The place of a line in both texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineKind {
    Same,
    Removed,
    Added,
    /// The lines before and after it are not neighbours.
    Gap,
}

/// Returns the bytes as text; `None` if they are none. The bytes may end within a character.
pub fn as_text(bytes: &[u8]) -> Option<&str> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    let is_text = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t' | '\x0c' | '\x1b');
    text.chars().all(is_text).then_some(text)
}

/// Returns a line of a text without its end.
pub fn without_line_end(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

/// Returns the lines in which two texts differ, at most `bytes_max` bytes of them, with some lines
/// around them. `show` makes a foreign line fit to be seen. The second value reports whether lines
/// were left out at the end.
pub fn text_difference(
    old: &str,
    new: &str,
    bytes_max: usize,
    show: &dyn Fn(&str) -> String,
) -> (Vec<DifferenceLine>, bool) {
    let difference = TextDiff::configure().timeout(TIME_MAX).diff_lines(old, new);
    let mut lines = Vec::new();
    let mut room = bytes_max;
    for (number, group) in difference.grouped_ops(CONTEXT).iter().enumerate() {
        if number > 0 {
            lines.push(DifferenceLine { kind: LineKind::Gap, text: String::new() });
        }
        for change in group.iter().flat_map(|operation| difference.iter_changes(operation)) {
            let kind = match change.tag() {
                ChangeTag::Equal => LineKind::Same,
                ChangeTag::Delete => LineKind::Removed,
                ChangeTag::Insert => LineKind::Added,
            };
            let text = show(change.value());
            // A line costs some markup.
            let Some(left) = room.checked_sub(text.len() + 40) else { return (lines, true) };
            room = left;
            lines.push(DifferenceLine { kind, text });
        }
    }
    (lines, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_told_from_bytes() {
        assert_eq!(as_text(b"a\r\n\tb\xc3\xa9"), Some("a\r\n\tb\u{e9}"));
        assert_eq!(as_text(b"cut \xc3"), Some("cut "));
        for bytes in [&b"a\0b"[..], b"\xff\xfea", b"a\xc3b", b"\x7fELF\x02\x01"] {
            assert_eq!(as_text(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_difference_has_the_changed_lines_and_some_around_them() {
        let numbers: Vec<String> = (0..40).map(|number| format!("line {number}\n")).collect();
        let (old, mut changed) = (numbers.concat(), numbers);
        let show = |line: &str| line.trim_end().to_owned();
        changed[10] = "other\n".into();
        changed.push("last".into());
        let (lines, is_cut) = text_difference(&old, &changed.concat(), 10_000, &show);
        let shown: Vec<_> = lines.iter().map(|line| (line.kind, line.text.as_str())).collect();
        assert!(!is_cut && shown.len() == 7 + 2 + 1 + 3, "{shown:?}");
        assert!(shown.contains(&(LineKind::Removed, "line 10")));
        assert!(shown.contains(&(LineKind::Added, "other")));
        assert!(shown.contains(&(LineKind::Gap, "")));
        assert_eq!(shown.last(), Some(&(LineKind::Added, "last")));
        let (lines, is_cut) = text_difference(&old, "", 500, &show);
        assert!(is_cut && lines.len() < 12);
    }
}
