//! What of a folder is left out: patterns as in `.gitignore`, and caches that say so themselves.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

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
            if let Some(source) = builder.add(path) {
                return Err(ExcludesError::File { path: path.clone(), source });
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
