//! One pattern, as `gitignore(5)` has them. Pure.

use globset::{ErrorKind, Glob, GlobBuilder};

/// What one pattern says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    /// It begins with `!`: what an earlier pattern leaves out goes in after all.
    pub(super) takes_back: bool,
    /// It ends with `/`.
    pub(super) only_folders: bool,
    /// The rest, with the `/` that it may begin with.
    body: String,
}

impl Pattern {
    /// A line of a file of patterns; `None` for an empty line and for a comment.
    pub(super) fn of_line(line: &str) -> Option<Self> {
        if line.starts_with('#') { None } else { Self::of_argument(line) }
    }

    /// A pattern that was given by itself, which is no comment; `None` for an empty one.
    pub(super) fn of_argument(text: &str) -> Option<Self> {
        let text = without_trailing_spaces(text);
        let (takes_back, body) = match text.strip_prefix('!') {
            Some(body) => (true, body),
            None => (false, text),
        };
        // A backslash before the last slash would protect what it need not.
        let folder = body.strip_suffix('/').map(|body| body.strip_suffix('\\').unwrap_or(body));
        let pattern =
            Self { takes_back, only_folders: folder.is_some(), body: folder.unwrap_or(body).into() };
        (!pattern.body.is_empty()).then_some(pattern)
    }

    /// This pattern for a source at `root`, an absolute path, if it begins with that path and goes on below it.
    pub(super) fn below(&self, root: &str) -> Option<Self> {
        let rest = after_literal(&self.body, root.trim_end_matches('/'))?;
        (rest.len() > 1 && rest.starts_with('/')).then(|| Self { body: rest.into(), ..self.clone() })
    }

    /// What it matches: paths from the root of the source on.
    pub(super) fn glob(&self, any_case: bool) -> Result<Glob, globset::Error> {
        let is_bound = self.body.contains('/');
        let body = self.body.strip_prefix('/').unwrap_or(&self.body);
        let mut glob = if is_bound { body.into() } else { format!("**/{body}") };
        // All that a folder holds is not the folder.
        if glob.ends_with("/**") {
            glob.push_str("/*");
        }
        GlobBuilder::new(&glob)
            .literal_separator(true)
            .backslash_escape(true)
            .case_insensitive(any_case)
            .build()
    }

    /// Why it cannot be used.
    pub(super) fn fault(&self) -> Option<String> {
        let error = self.glob(false).err()?;
        Some(match error.kind() {
            ErrorKind::UnclosedClass => "a [ has no ]; one that stands for itself is written \\[".into(),
            ErrorKind::DanglingEscape => "the \\ at its end protects nothing".into(),
            kind => kind.to_string(),
        })
    }
}

/// Spaces at the end do not count, but for one that a backslash protects, and those before it.
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

/// What follows `literal` in a pattern that begins with it, with or without backslashes before its characters.
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
        // The source itself is no part of it, and neither is a neighbour whose name begins in the same way.
        assert_eq!(below("/home/anna", "/home/anna"), None);
        assert_eq!(below("/home/anna/", "/home/anna"), None);
        assert_eq!(below("/home/anna2/src", "/home/anna"), None);
        assert_eq!(below("home/anna/src", "/home/anna"), None);
        // Wildcards do not stand for a part of the source's path, or `/*/src` would have two meanings.
        assert_eq!(below("/*/anna/src", "/home/anna"), None);
        // A source whose own name has special characters may be written with or without backslashes.
        for pattern in ["/a [b]/x", "/a \\[b\\]/x", "/a\\ [b]/x"] {
            assert_eq!(below(pattern, "/a [b]").unwrap(), "/x", "{pattern}");
        }
        // Everything lies below the root.
        assert_eq!(below("/home/x", "/").unwrap(), "/home/x");
        let folders = Pattern::of_line("/home/anna/cache/").unwrap().below("/home/anna").unwrap();
        assert!(folders.only_folders && folders.body == "/cache");
    }
}
