//! Finds a text in names, without regard to case.

/// A text that is searched in names.
pub(super) struct NameMatcher {
    lowercase: String,
    is_ascii: bool,
}

impl NameMatcher {
    pub(super) fn new(text: &str) -> Self {
        Self { lowercase: text.to_lowercase(), is_ascii: text.is_ascii() }
    }

    pub(super) fn matches(&self, name: &[u8]) -> bool {
        if !self.is_ascii {
            return String::from_utf8_lossy(name).to_lowercase().contains(&self.lowercase);
        }
        let text = self.lowercase.as_bytes();
        match text.first() {
            None => true,
            Some(first) => name.windows(text.len()).any(|part| {
                part.first().is_some_and(|byte| byte.eq_ignore_ascii_case(first))
                    && part.eq_ignore_ascii_case(text)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_does_not_matter() {
        let matches = |text: &str, name: &str| NameMatcher::new(text).matches(name.as_bytes());
        assert!(matches("LETTER", "my letter.txt") && matches("letter", "MY LETTER.TXT") && matches("", "x"));
        assert!(matches("größe", "GRÖSSE und Größe") && matches("ÄÖ", "äö"));
        assert!(!matches("letters", "letter") && !matches("x", "") && !matches("größe", "grosse"));
        assert!(NameMatcher::new("a").matches(b"\xff\xfeA"));
    }
}
