//! What can be asked of a restore.

use std::path::{Path, PathBuf};

use super::super::excludes::{Excludes, ExcludesError};
use crate::restoring::damage_list::DamageList;

/// When something that is there already is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overwrite {
    /// Always: every file is written anew.
    Always,
    /// When its kind, size or time of change differs from what the snapshot has.
    IfChanged,
    /// When what the snapshot has was changed later.
    IfNewer,
    /// Never: only what is missing is added.
    Never,
}

/// How a node is restored.
#[derive(Clone, Copy)]
pub struct RestoreOptions<'a> {
    /// When something that is there already is replaced. `None`: the destination must be new, or an empty folder.
    pub overwrite: Option<Overwrite>,
    /// Whether a folder may be replaced by something else, and something else by a folder.
    pub replace_types: bool,
    /// Whether everything is removed that the snapshot does not have. Needs `overwrite`.
    pub delete: bool,
    /// Which paths take part.
    pub filter: &'a RestoreFilter,
    /// Files and folders that must stay: nothing replaces or removes them, and nothing is written into them.
    pub kept: &'a [PathBuf],
    /// Whether owners and groups are restored, and the attributes that only root may set. Without, a file that would run as
    /// somebody else loses its setuid and setgid bits.
    pub owners: bool,
    /// Names what is restored. An interrupted restore is continued only by one from the same source; with an empty one, by none.
    pub source: &'a [u8],
    /// After how many bytes the progress is made durable, so that even a power cut costs no more.
    pub note_bytes: u64,
    /// Takes the ranges that cannot be read, which then become holes. `None`: such a file is left out.
    pub damaged: Option<&'a DamageList>,
}

/// See [`RestoreOptions::note_bytes`]: some tens of seconds of work.
const NOTE_BYTES: u64 = 8 << 30;

impl Default for RestoreOptions<'_> {
    /// Overwrites nothing, and restores owners if the process may.
    fn default() -> Self {
        Self {
            overwrite: None,
            replace_types: false,
            delete: false,
            filter: &RestoreFilter::ALL,
            kept: &[],
            owners: rustix::process::geteuid().is_root(),
            source: &[],
            note_bytes: NOTE_BYTES,
            damaged: None,
        }
    }
}

/// Which paths of a snapshot, and of a destination, take part in a restore.
#[derive(Debug, Clone)]
pub struct RestoreFilter {
    /// `None`: everything.
    includes: Option<Excludes>,
    excludes: Option<Excludes>,
}

impl RestoreFilter {
    /// Everything takes part.
    pub const ALL: Self = Self { includes: None, excludes: None };

    /// Only what matches one of `includes`, if there are any, or lies in a folder that does; and nothing that matches `excludes`. The
    /// patterns are those of a `.gitignore` at the root of what is restored.
    ///
    /// # Errors
    /// [`ExcludesError`] names the pattern that cannot be used.
    pub fn new(includes: &[String], excludes: &[String]) -> Result<Self, ExcludesError> {
        let patterns =
            |patterns: &[String]| (!patterns.is_empty()).then(|| Excludes::new(patterns, &[])).transpose();
        Ok(Self { includes: patterns(includes)?, excludes: patterns(excludes)? })
    }

    /// Whether everything takes part.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.includes.is_none() && self.excludes.is_none()
    }

    /// Whether an exclude keeps this path out. What lies in a folder that is kept out is not asked for.
    pub(super) fn excludes(&self, path: &Path, is_folder: bool) -> bool {
        self.excludes.as_ref().is_some_and(|excludes| excludes.rule_against(path, is_folder).is_some())
    }

    /// Whether an include names this path, or everything is included.
    pub(super) fn includes(&self, path: &Path, is_folder: bool) -> bool {
        self.includes.as_ref().is_none_or(|includes| includes.rule_against(path, is_folder).is_some())
    }
}
