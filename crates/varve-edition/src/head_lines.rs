//! The lines of a head: `key = value`, each ended by a line feed, with the signatures last.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The beginning of a line with a signature.
pub(crate) const SIGNATURE: &str = "signature = ";

/// The bytes of a word that are written as `%` and two digits: everything but letters, digits and
/// these marks.
const WORD: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Writes a text as one word: without blanks, line ends and `%`.
pub(crate) fn encode_word(text: &str) -> String {
    utf8_percent_encode(text, WORD).to_string()
}

/// Reads a word in exactly the form in which it is written.
pub(crate) fn decode_word(word: &str) -> Option<String> {
    let text = percent_decode_str(word).decode_utf8().ok()?.into_owned();
    (!text.is_empty() && encode_word(&text) == word).then_some(text)
}

/// Reads a number in exactly the form in which it is written.
pub(crate) fn decode_number<N: std::str::FromStr + ToString>(word: &str) -> Option<N> {
    word.parse::<N>().ok().filter(|number| number.to_string() == word)
}

/// Splits a head before its first signature. Both parts are text, and end with a line feed.
pub(crate) fn split(bytes: &[u8]) -> Option<(&str, &str)> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.ends_with('\n'))?;
    let at = text.find(&format!("\n{SIGNATURE}"))?.saturating_add(1);
    text.split_at_checked(at)
}

/// The keys and values of lines; `None` for a line without ` = `.
pub(crate) fn pairs(lines: &str) -> impl Iterator<Item = Option<(&str, &str)>> {
    lines.split_terminator('\n').map(|line| line.split_once(" = "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_word_has_one_spelling() {
        assert_eq!(encode_word("a b/ü%\n"), "a%20b/%C3%BC%25%0A");
        for word in ["", "a b", "%61", "%2f", "%C3", "%", "a\n"] {
            assert_eq!(decode_word(word), None, "{word}");
        }
        for word in ["", "01", "+1", "-1", " 1", "18446744073709551616"] {
            assert_eq!(decode_number::<u64>(word), None, "{word}");
        }
    }

    proptest! {
        #[test]
        fn every_text_is_a_word(text in "\\PC{1,30}|[ \\n\\r%=#]{1,9}") {
            let word = encode_word(&text);
            prop_assert!(word.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert_eq!(decode_word(&word), Some(text));
        }
    }
}
