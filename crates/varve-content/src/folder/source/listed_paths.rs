//! A set of paths that are archived, to the exclusion of all others: the contents of a list of
//! files. Pure.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// A set of paths from the root of a source. A listed folder includes its contents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedPaths {
    is_whole: bool,
    below: BTreeMap<Vec<u8>, ListedPaths>,
}

/// A path leads out of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is outside of the source")]
pub struct PathLeadsOut;

impl ListedPaths {
    /// Adds a path that is relative to the root of the source. An empty path, or `.`, is the source
    /// itself.
    ///
    /// # Errors
    /// [`PathLeadsOut`]: the path is absolute, or contains `..`.
    pub fn add(&mut self, path: &Path) -> Result<(), PathLeadsOut> {
        let mut place = self;
        for component in path.components() {
            match component {
                Component::CurDir => {}
                Component::Normal(name) => place = place.below.entry(name.as_bytes().to_vec()).or_default(),
                Component::Prefix(_) | Component::RootDir | Component::ParentDir => return Err(PathLeadsOut),
            }
        }
        place.is_whole = true;
        Ok(())
    }

    /// Returns whether everything at this level is included.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The names at this level, in ascending order of their bytes.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.below.keys().map(Vec::as_slice)
    }

    /// The listed paths below a name. `None` if everything there is included.
    pub(crate) fn below(&self, name: &[u8]) -> Option<&Self> {
        self.below.get(name).filter(|below| !below.is_whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_folder_is_whole_and_others_are_passed_through() {
        let mut listed = ListedPaths::default();
        for path in ["a/b/c", "./a/d", "whole/x", "whole", "whole/y", "a//b/e"] {
            listed.add(Path::new(path)).unwrap();
        }
        assert!(!listed.is_whole());
        assert_eq!(listed.names().collect::<Vec<_>>(), [b"a".as_slice(), b"whole"]);
        assert!(listed.below(b"whole").is_none(), "all of it");
        let a = listed.below(b"a").unwrap();
        assert_eq!(a.names().collect::<Vec<_>>(), [b"b".as_slice(), b"d"]);
        assert_eq!(a.below(b"b").unwrap().names().count(), 2);
        for bad in ["/a", "..", "a/../b"] {
            assert_eq!(listed.add(Path::new(bad)), Err(PathLeadsOut), "{bad}");
        }
        listed.add(Path::new(".")).unwrap();
        assert!(listed.is_whole());
    }
}
