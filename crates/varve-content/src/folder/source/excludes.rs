//! Excludes files by their names: patterns as in `.gitignore`.

mod pattern;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use globset::{GlobSet, GlobSetBuilder};

use self::pattern::Pattern;

/// Exclude patterns for any number of sources, in the order in which they were given.
///
/// A pattern has the meaning that it has in a `.gitignore` at the root of the source. The last
/// pattern that matches decides, and `!` includes a file again. A `/` at the front or in the middle
/// anchors the pattern at the root, and one at the end restricts it to folders. A pattern that
/// begins with the absolute path of a source and continues below it is relative to that source, and
/// does not apply to the others.
#[derive(Debug, Clone, Default)]
pub struct ExcludeRules {
    rules: Vec<Arc<ExcludeRule>>,
}

/// One exclude pattern.
#[derive(Debug)]
pub struct ExcludeRule {
    pattern: Pattern,
    any_case: bool,
    text: String,
    origin: RuleOrigin,
    has_matched: AtomicBool,
}

/// The place where a pattern was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleOrigin {
    /// A command-line argument.
    Argument,
    /// A line of a file.
    Line {
        path: PathBuf,
        /// The line number, from 1.
        number: u64,
    },
}

/// Exclude patterns that are bound to one source.
#[derive(Debug, Clone)]
pub struct Excludes {
    globs: GlobSet,
    /// The rule of each glob.
    bound: Vec<BoundRule>,
}

#[derive(Debug, Clone)]
struct BoundRule {
    rule: Arc<ExcludeRule>,
    takes_back: bool,
    only_folders: bool,
}

/// Why patterns are unusable.
#[derive(Debug, thiserror::Error)]
pub enum ExcludesError {
    /// A pattern argument is malformed.
    #[error("the pattern {pattern:?} is invalid: {what}")]
    Pattern { pattern: String, what: String },
    /// A line of a pattern file is malformed.
    #[error("{}, line {number}: {line:?} is not a pattern: {what}", path.display())]
    Line {
        path: PathBuf,
        /// The line number, from 1.
        number: u64,
        /// The text of the line.
        line: String,
        what: String,
    },
    /// A pattern file is unreadable.
    #[error("the patterns in {} cannot be used", path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// The patterns cannot be combined.
    #[error("the patterns cannot be used together")]
    Together { source: globset::Error },
}

impl ExcludeRules {
    /// Adds a pattern. With `any_case`, it ignores the case of letters.
    ///
    /// # Errors
    /// [`ExcludesError::Pattern`].
    pub fn add_pattern(&mut self, text: &str, any_case: bool) -> Result<(), ExcludesError> {
        let Some(pattern) = Pattern::of_argument(text) else { return Ok(()) };
        if let Some(what) = pattern.fault() {
            return Err(ExcludesError::Pattern { pattern: text.into(), what });
        }
        self.add(pattern, any_case, text, RuleOrigin::Argument);
        Ok(())
    }

    /// Adds the lines of a pattern file.
    ///
    /// # Errors
    /// [`ExcludesError`] names the unusable file or line.
    pub fn add_file(&mut self, path: &Path) -> Result<(), ExcludesError> {
        // Read the file only once, because it may be a pipe.
        let text = fs::read_to_string(path)
            .map_err(|source| ExcludesError::File { path: path.to_path_buf(), source })?;
        // As in git, the byte order mark with which some editors begin a file is not part of the
        // first pattern.
        for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
            let Some(pattern) = Pattern::of_line(line) else { continue };
            let path = path.to_path_buf();
            if let Some(what) = pattern.fault() {
                return Err(ExcludesError::Line { path, number, line: line.into(), what });
            }
            self.add(pattern, false, line, RuleOrigin::Line { path, number });
        }
        Ok(())
    }

    fn add(&mut self, pattern: Pattern, any_case: bool, text: &str, origin: RuleOrigin) {
        let has_matched = AtomicBool::new(false);
        self.rules.push(Arc::new(ExcludeRule { pattern, any_case, text: text.into(), origin, has_matched }));
    }

    /// Binds the patterns to one of several sources. The caller passes all absolute paths by which
    /// users may know each source.
    ///
    /// # Errors
    /// [`ExcludesError::Together`].
    pub fn bind(&self, source: &[PathBuf], other_sources: &[PathBuf]) -> Result<Excludes, ExcludesError> {
        let together = |source| ExcludesError::Together { source };
        let mut globs = GlobSetBuilder::new();
        let mut bound = Vec::new();
        let below = |rule: &ExcludeRule, roots: &[PathBuf]| -> Vec<Pattern> {
            let roots = roots.iter().filter_map(|root| root.to_str());
            let mut found: Vec<_> = roots.filter_map(|root| rule.pattern.below(root)).collect();
            found.dedup();
            found
        };
        for rule in &self.rules {
            let mut patterns = below(rule, source);
            if patterns.is_empty() && below(rule, other_sources).is_empty() {
                patterns.push(rule.pattern.clone());
            }
            for pattern in patterns {
                globs.add(pattern.glob(rule.any_case).map_err(together)?);
                let (takes_back, only_folders) = (pattern.takes_back, pattern.only_folders);
                bound.push(BoundRule { rule: Arc::clone(rule), takes_back, only_folders });
            }
        }
        Ok(Excludes { globs: globs.build().map_err(together)?, bound })
    }

    /// The patterns that have not matched anything in any source so far.
    pub fn unmatched(&self) -> impl Iterator<Item = &ExcludeRule> {
        self.rules.iter().map(AsRef::as_ref).filter(|rule| !rule.has_matched.load(Ordering::Relaxed))
    }
}

impl ExcludeRule {
    /// The pattern as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The place where the pattern was written.
    #[must_use]
    pub fn origin(&self) -> &RuleOrigin {
        &self.origin
    }
}

impl Default for Excludes {
    fn default() -> Self {
        Self::none()
    }
}

impl Excludes {
    /// Excludes that match nothing.
    #[must_use]
    pub fn none() -> Self {
        Self { globs: GlobSet::empty(), bound: Vec::new() }
    }

    /// Combines the lines of these files, in order, and then these patterns, for a source with any
    /// path.
    ///
    /// # Errors
    /// [`ExcludesError`] names the unusable pattern or file.
    pub fn new(patterns: &[String], files: &[PathBuf]) -> Result<Self, ExcludesError> {
        let mut rules = ExcludeRules::default();
        files.iter().try_for_each(|file| rules.add_file(file))?;
        patterns.iter().try_for_each(|pattern| rules.add_pattern(pattern, false))?;
        rules.bind(&[], &[])
    }

    /// Returns whether there are no patterns.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bound.is_empty()
    }

    /// The rule that excludes `path`, which is relative to the root of the source. Callers do not
    /// ask for paths inside an excluded folder.
    pub(crate) fn rule_against(&self, path: &Path, is_folder: bool) -> Option<&ExcludeRule> {
        if self.bound.is_empty() {
            return None;
        }
        let mut last = None;
        for place in self.globs.matches(path) {
            let bound = self.bound.get(place).filter(|bound| is_folder || !bound.only_folders);
            if let Some(bound) = bound {
                bound.rule.has_matched.store(true, Ordering::Relaxed);
                last = Some(bound);
            }
        }
        last.filter(|bound| !bound.takes_back).map(|bound| bound.rule.as_ref())
    }
}

/// The fault of a pattern argument, if it has one. A `[` without `]` is a fault, although git and
/// the glob library accept it as a literal or as nothing.
#[must_use]
pub fn wrong_in_pattern(text: &str) -> Option<String> {
    Pattern::of_argument(text)?.fault()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_in_patterns_are_told() {
        for good in
            ["*.o", "!keep", "/target/", "a[bc]", "[!a]", "[]]", "\\[", "# a word", "", "a  ", "sp\\ "]
        {
            assert_eq!(wrong_in_pattern(good), None, "{good:?}");
        }
        for (bad, said) in [
            ("[", "has no ]"),
            ("!a[b", "has no ]"),
            ("{a,b", "alternate"),
            ("a[z-a]", "range"),
            ("a\\", "escapes nothing"),
        ] {
            assert!(wrong_in_pattern(bad).is_some_and(|wrong| wrong.contains(said)), "{bad:?}");
        }
    }

    fn rules(patterns: &[&str]) -> ExcludeRules {
        let mut rules = ExcludeRules::default();
        patterns.iter().for_each(|pattern| rules.add_pattern(pattern, false).unwrap());
        rules
    }

    #[test]
    fn an_absolute_pattern_is_for_the_source_that_it_names() {
        let rules = rules(&["/home/anna/src", "/src", "*.o"]);
        let (anna, bob) = ([PathBuf::from("/home/anna")], [PathBuf::from("/home/bob")]);
        let of_anna = rules.bind(&anna, &bob).unwrap();
        let of_bob = rules.bind(&bob, &anna).unwrap();
        let text = |excludes: &Excludes, path: &str| {
            excludes.rule_against(Path::new(path), true).map(|rule| rule.text().to_owned())
        };
        assert_eq!(text(&of_anna, "src").as_deref(), Some("/src"), "the last that matches decides");
        assert_eq!(text(&of_anna, "deep/src"), None);
        assert_eq!(text(&of_bob, "home/anna/src"), None);
        assert_eq!(text(&of_bob, "a/b.o").as_deref(), Some("*.o"));
        assert_eq!(rules.unmatched().count(), 0);
        // A pattern that is below no source is anchored at the root of each.
        let elsewhere = rules.bind(&[PathBuf::from("/srv")], &bob).unwrap();
        assert_eq!(text(&elsewhere, "home/anna/src").as_deref(), Some("/home/anna/src"));
    }

    #[test]
    fn what_has_matched_nothing_is_known() {
        let rules = rules(&["*.o", "!keep.o", "nothing/", "gone"]);
        let excludes = rules.bind(&[], &[]).unwrap();
        assert!(excludes.rule_against(Path::new("keep.o"), false).is_none());
        assert!(excludes.rule_against(Path::new("nothing"), false).is_none(), "only folders");
        let unmatched: Vec<_> = rules.unmatched().map(ExcludeRule::text).collect();
        assert_eq!(unmatched, ["nothing/", "gone"]);
    }

    #[test]
    fn letters_are_the_same_if_asked() {
        let mut rules = ExcludeRules::default();
        rules.add_pattern("*.JPG", true).unwrap();
        rules.add_pattern("Thumbs.db", false).unwrap();
        let excludes = rules.bind(&[], &[]).unwrap();
        for (path, is_out) in [("a.jpg", true), ("b/A.JpG", true), ("Thumbs.db", true), ("thumbs.db", false)]
        {
            assert_eq!(excludes.rule_against(Path::new(path), false).is_some(), is_out, "{path}");
        }
    }
}
