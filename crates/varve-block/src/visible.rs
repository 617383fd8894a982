//! Escapes text from outside for terminals and errors.

use std::fmt::Write as _;

/// Reports whether a character could mislead a terminal or its reader: it controls the terminal, or
/// it changes the direction in which others are written, or it ends a line.
#[must_use]
pub fn misleads_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the text in one line, with all characters escaped that could mislead a terminal.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match misleads_terminal(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

/// Returns a foreign name, with all characters made visible that could mislead a terminal.
/// Different names always look different: a backslash in a name is doubled.
#[must_use]
pub fn visible_name(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if misleads_terminal(c) || c == '\\' {
                text.extend(c.escape_default());
            } else {
                text.push(c);
            }
        }
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_works_on_a_terminal_is_left() {
        assert_eq!(visible("a\u{1b}[31mb\nc\u{9b}\u{7}"), "a\\u{1b}[31mb\\nc\\u{9b}\\u{7}");
        assert_eq!(visible("C:\\x\x07"), "C:\\x\\u{7}");
        assert_eq!(visible("caf\u{e9} \\ fine"), "caf\u{e9} \\ fine");
        assert_eq!(visible("invoice\u{202e}fdp.exe"), "invoice\\u{202e}fdp.exe");
        let family = "\u{1f468}\u{200d}\u{1f467}";
        assert_eq!(visible(family), family);
    }
}
