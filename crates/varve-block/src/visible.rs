//! Escapes text from outside for terminals and errors.

/// Returns the text in one line, with all control characters escaped that could mislead a terminal.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_works_on_a_terminal_is_left() {
        assert_eq!(visible("a\u{1b}[31mb\nc\u{9b}\u{7}"), "a\\u{1b}[31mb\\nc\\u{9b}\\u{7}");
        assert_eq!(visible("C:\\x\x07"), "C:\\x\\u{7}");
        assert_eq!(visible("caf\u{e9} \\ fine"), "caf\u{e9} \\ fine");
    }
}
