//! One pattern in the syntax of `gitignore(5)`. Pure.

use globset::{ErrorKind, Glob, GlobBuilder};

/// A parsed pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    /// True if it begins with `!`: files that an earlier pattern excludes are included again.
    pub(super) takes_back: bool,
    /// True if it ends with `/`.
    pub(super) only_folders: bool,
    /// The rest, including a leading `/`.
    body: String,
}

impl Pattern {
    /// Parses a line of a pattern file. `None` for an empty line or a comment.
    pub(super) fn of_line(line: &str) -> Option<Self> {
        if line.starts_with('#') { None } else { Self::of_argument(line) }
    }

    /// Parses a pattern argument, in which `#` begins no comment. `None` for an empty one.
    pub(super) fn of_argument(text: &str) -> Option<Self> {
        let text = without_trailing_spaces(text);
        let (takes_back, body) = match text.strip_prefix('!') {
            Some(body) => (true, body),
            None => (false, text),
        };
        // A backslash before the last slash would escape nothing.
        let folder = body.strip_suffix('/').map(|body| body.strip_suffix('\\').unwrap_or(body));
        let pattern =
            Self { takes_back, only_folders: folder.is_some(), body: folder.unwrap_or(body).into() };
        (!pattern.body.is_empty()).then_some(pattern)
    }

    /// The pattern relative to a source at `root`, an absolute path, if it begins with that path
    /// and continues below it.
    pub(super) fn below(&self, root: &str) -> Option<Self> {
        let rest = after_literal(&self.body, root.trim_end_matches('/'))?;
        (rest.len() > 1 && rest.starts_with('/')).then(|| Self { body: rest.into(), ..self.clone() })
    }

    /// The glob for paths relative to the root of the source.
    pub(super) fn glob(&self, any_case: bool) -> Result<Glob, globset::Error> {
        let is_bound = self.body.contains('/');
        let body = self.body.strip_prefix('/').unwrap_or(&self.body);
        let mut glob = if is_bound { body.into() } else { format!("**/{body}") };
        // The pattern matches everything in the folder, but not the folder itself.
        if glob.ends_with("/**") {
            glob.push_str("/*");
        }
        GlobBuilder::new(&glob)
            .literal_separator(true)
            .backslash_escape(true)
            .case_insensitive(any_case)
            .build()
    }

    /// The reason why it is unusable, if it is.
    pub(super) fn fault(&self) -> Option<String> {
        let error = self.glob(false).err()?;
        Some(match error.kind() {
            ErrorKind::UnclosedClass => "a [ has no ]; write a literal [ as \\[".into(),
            ErrorKind::DanglingEscape => "the \\ at its end escapes nothing".into(),
            kind => kind.to_string(),
        })
    }
}

/// Removes trailing spaces. A space that a backslash escapes is kept, with everything before it.
fn without_trailing_spaces(text: &str) -> &str {
    let mut end = 0;
    let mut is_protected = false;
    for (at, character) in text.char_indices() {
        if is_protected || character != ' ' {
            end = at + character.len_utf8();
        }
        is_protected = !is_protected && character == '\\';
    }
    &text[..end]
}

/// The rest of a pattern after the prefix `literal`, whose characters may be escaped with
/// backslashes.
fn after_literal<'a>(pattern: &'a str, literal: &str) -> Option<&'a str> {
    let mut rest = pattern;
    for character in literal.chars() {
        let protected = rest.strip_prefix('\\').and_then(|rest| rest.strip_prefix(character));
        rest = protected.or_else(|| rest.strip_prefix(character))?;
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let pattern = Pattern::of_line(pattern).unwrap();
        pattern.glob(false).unwrap().compile_matcher().is_match(Path::new(path))
    }

    #[test]
    fn only_protected_spaces_end_a_pattern() {
        for (line, kept) in [
            ("a  ", "a"),
            ("a\\ ", "a\\ "),
            ("a \\ ", "a \\ "),
            ("a\\  ", "a\\ "),
            ("a\\\\ ", "a\\\\"),
            ("  ", ""),
        ] {
            assert_eq!(without_trailing_spaces(line), kept, "{line:?}");
        }
        assert!(matches("sp\\ ", "x/sp ") && !matches("sp\\ ", "sp"));
        assert!(matches("a b ", "a b"));
    }

    #[test]
    fn comments_and_empty_lines_say_nothing() {
        for nothing in ["", "   ", "# text", "!", "! ", "/"] {
            assert_eq!(Pattern::of_line(nothing), None, "{nothing:?}");
        }
        assert!(Pattern::of_argument("#saved#").is_some(), "an argument is no comment");
        assert!(matches("\\#saved", "a/#saved") && matches("\\!important", "!important"));
    }

    #[test]
    fn a_pattern_below_a_source_is_taken_relative_to_it() {
        let below = |pattern: &str, root: &str| {
            Pattern::of_line(pattern).unwrap().below(root).map(|found| found.body)
        };
        assert_eq!(below("/home/anna/src", "/home/anna").unwrap(), "/src");
        assert_eq!(below("!/home/anna/*.o/", "/home/anna").unwrap(), "/*.o");
        assert_eq!(below("/home/anna/a/b", "/home").unwrap(), "/anna/a/b");
        // The source itself is not below the source, and neither is a sibling whose name has the
        // same prefix.
        assert_eq!(below("/home/anna", "/home/anna"), None);
        assert_eq!(below("/home/anna/", "/home/anna"), None);
        assert_eq!(below("/home/anna2/src", "/home/anna"), None);
        assert_eq!(below("home/anna/src", "/home/anna"), None);
        // Wildcards do not match parts of the source's path. Otherwise `/*/src` would have two
        // meanings.
        assert_eq!(below("/*/anna/src", "/home/anna"), None);
        // Special characters in the path of a source may be escaped or not.
        for pattern in ["/a [b]/x", "/a \\[b\\]/x", "/a\\ [b]/x"] {
            assert_eq!(below(pattern, "/a [b]").unwrap(), "/x", "{pattern}");
        }
        // Every path is below the root.
        assert_eq!(below("/home/x", "/").unwrap(), "/home/x");
        let folders = Pattern::of_line("/home/anna/cache/").unwrap().below("/home/anna").unwrap();
        assert!(folders.only_folders && folders.body == "/cache");
    }
}
