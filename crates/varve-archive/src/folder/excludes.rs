//! What of a folder is left out: patterns as in `.gitignore`, and caches that say so themselves.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use globset::{ErrorKind, GlobBuilder};
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::status::open_file;

/// The name of the file by which a folder says that it is a cache: <https://bford.info/cachedir/>.
pub(super) const CACHE_TAG_NAME: &[u8] = b"CACHEDIR.TAG";
/// What that file begins with.
const CACHE_TAG_SIGNATURE: &[u8; 43] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// Patterns of what to leave out, with the meaning that they have in a `.gitignore` at the root of the source: the last that
/// matches decides, `!` takes back, a `/` at the front or in the middle binds to the root, one at the end means folders.
#[derive(Debug, Clone)]
pub struct Excludes {
    patterns: Gitignore,
}

/// Why patterns cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ExcludesError {
    /// A pattern given by itself.
    #[error("the pattern {pattern:?} cannot be used")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        source: ignore::Error,
    },
    /// A line of a file of patterns has a slip.
    #[error("{}, line {number}: {line:?} is not a pattern: {what}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line, counted from 1.
        number: u64,
        /// What it says.
        line: String,
        /// What is wrong with it.
        what: String,
    },
    /// A file of patterns.
    #[error("the patterns in {} cannot be used", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ignore::Error,
    },
    /// All of them together.
    #[error("the patterns cannot be used together")]
    Together {
        /// What is wrong with them.
        source: ignore::Error,
    },
}

impl Default for Excludes {
    fn default() -> Self {
        Self::none()
    }
}

impl Excludes {
    /// Leaves nothing out.
    #[must_use]
    pub fn none() -> Self {
        Self { patterns: Gitignore::empty() }
    }

    /// What the lines of these files say, in their order, and then these patterns.
    ///
    /// # Errors
    /// [`ExcludesError`] names the pattern, or the file, that cannot be read or understood.
    pub fn new(patterns: &[String], files: &[PathBuf]) -> Result<Self, ExcludesError> {
        // Paths are matched as they are from the root of the source on.
        let mut builder = GitignoreBuilder::new("");
        for path in files {
            let unusable = |source| ExcludesError::File { path: path.clone(), source };
            // Once: it may be a pipe.
            let text = fs::read_to_string(path).map_err(|error| unusable(error.into()))?;
            // As git has it, the mark with which some editors begin a file is none of the first pattern.
            for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
                if let Some(what) = wrong_in_pattern(line) {
                    return Err(ExcludesError::Line { path: path.clone(), number, line: line.into(), what });
                }
                builder.add_line(Some(path.clone()), line).map_err(unusable)?;
            }
        }
        for pattern in patterns {
            if let Err(source) = builder.add_line(None, pattern) {
                return Err(ExcludesError::Pattern { pattern: pattern.clone(), source });
            }
        }
        let patterns = builder.build().map_err(|source| ExcludesError::Together { source })?;
        Ok(Self { patterns })
    }

    /// Whether it leaves nothing out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether `path`, from the root of the source on, is left out. What lies in a folder that is left out is not asked for.
    #[must_use]
    pub fn leave_out(&self, path: &Path, is_folder: bool) -> bool {
        self.patterns.matched(path, is_folder).is_ignore()
    }
}

/// What is wrong with a line as a `.gitignore` has them. A `[` without its `]`, which git and what reads such lines for us would take for
/// itself, or for nothing, is a slip.
#[must_use]
pub fn wrong_in_pattern(line: &str) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let error = GlobBuilder::new(line.trim_end()).literal_separator(true).build().err()?;
    Some(match error.kind() {
        ErrorKind::UnclosedClass => "a [ has no ]; one that stands for itself is written \\[".into(),
        kind => kind.to_string(),
    })
}

/// Whether the tag in this folder is one: a file that begins with the signature.
pub(super) fn is_cache(folder: impl AsFd) -> bool {
    let read = || -> io::Result<bool> {
        let tag = open_file(folder, CACHE_TAG_NAME)?;
        let mut start = [0; CACHE_TAG_SIGNATURE.len()];
        Ok(rustix::io::pread(tag, &mut start, 0)? == start.len() && start == *CACHE_TAG_SIGNATURE)
    };
    // One that cannot be read says nothing; that it cannot is reported when it is archived.
    read().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_in_patterns_are_told() {
        for good in ["*.o", "!keep", "/target/", "a[bc]", "[!a]", "[]]", "\\[", "# a [ in words", "", "a  "] {
            assert_eq!(wrong_in_pattern(good), None, "{good:?}");
        }
        for (bad, said) in
            [("[", "has no ]"), ("!a[b", "has no ]"), ("{a,b", "alternate"), ("a[z-a]", "range")]
        {
            assert!(wrong_in_pattern(bad).is_some_and(|wrong| wrong.contains(said)), "{bad:?}");
        }
    }
}
