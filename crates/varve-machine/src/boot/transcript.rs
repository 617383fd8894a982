//! The output of a machine's console, and the search for the expected text in it.

/// The bytes that are kept of the end.
const BYTES_MAX: usize = 256 << 10;

/// The text of a console without control sequences.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    text: Vec<u8>,
    escape: Escape,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Escape {
    #[default]
    None,
    /// After the escape character.
    Begun,
    /// Within a control sequence: `ESC [ … letter`.
    Sequence,
    /// Within a text for the terminal: `ESC ] … BEL`.
    Text,
}

impl Transcript {
    /// Takes bytes that were received.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.escape = match (self.escape, byte) {
                (Escape::None, 0x1b) => Escape::Begun,
                (Escape::None, _) => {
                    if byte == b'\n' || byte == b'\t' || byte >= b' ' {
                        self.text.push(byte);
                    }
                    Escape::None
                }
                (Escape::Begun, b'[') => Escape::Sequence,
                (Escape::Begun, b']') => Escape::Text,
                (Escape::Begun, _) | (Escape::Sequence, 0x40..=0x7e) | (Escape::Text, 0x07 | 0x1b) => {
                    Escape::None
                }
                (escape, _) => escape,
            };
        }
        if self.text.len() > 2 * BYTES_MAX {
            drop(self.text.drain(..self.text.len() - BYTES_MAX));
        }
    }

    /// Returns true if the text has appeared.
    pub(super) fn has(&self, wanted: &str) -> bool {
        has(&self.text, wanted.as_bytes())
    }

    /// Returns true if the last output is a login prompt.
    pub(super) fn ends_with_login(&self) -> bool {
        is_login(&String::from_utf8_lossy(self.text.rsplit(|byte| *byte == b'\n').next().unwrap_or_default()))
    }

    /// Returns the last lines.
    pub(super) fn tail(&self, line_count: usize) -> String {
        let text = String::from_utf8_lossy(&self.text);
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        lines.get(lines.len().saturating_sub(line_count)..).unwrap_or_default().join("\n")
    }
}

/// Returns true if a line is a login prompt.
pub(super) fn is_login(line: &str) -> bool {
    line.trim_end().to_ascii_lowercase().ends_with("login:")
}

fn has(text: &[u8], wanted: &[u8]) -> bool {
    !wanted.is_empty() && text.windows(wanted.len()).any(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(bytes: &[u8]) -> Transcript {
        let mut transcript = Transcript::default();
        // Byte by byte, so that sequences are cut at every place.
        bytes.iter().for_each(|byte| transcript.receive(&[*byte]));
        transcript
    }

    #[test]
    fn a_text_is_found_whatever_its_colours() {
        let transcript = heard(b"\x1b[1;32mDAY-1\x1b[0m IS \x1b]0;title\x07UP\r\n");
        assert!(transcript.has("DAY-1 IS UP"));
        assert!(!transcript.has("title") && !transcript.has(""));
    }

    #[test]
    fn a_login_is_the_last_thing_that_is_said() {
        assert!(heard(b"Debian 12 days ttyS0\r\n\r\ndays login: ").ends_with_login());
        assert!(!heard(b"last login: yesterday").ends_with_login());
        assert!(!heard(b"login:\r\nstill starting").ends_with_login());
    }

    #[test]
    fn only_the_end_is_kept() {
        let mut transcript = Transcript::default();
        for number in 0..200_000 {
            transcript.receive(format!("line {number}\n").as_bytes());
        }
        assert!(transcript.text.len() <= 2 * BYTES_MAX);
        assert_eq!(transcript.tail(2), "line 199998\nline 199999");
    }
}
