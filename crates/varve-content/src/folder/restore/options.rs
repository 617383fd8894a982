//! The options of a restore.

use std::path::{Path, PathBuf};

use crate::folder::source::excludes::{Excludes, ExcludesError};
use crate::restoring::damage_list::DamageList;

/// The condition under which an existing file is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overwrite {
    /// Always: every file is written anew.
    Always,
    /// If its kind, size or modification time differs from the snapshot's.
    IfChanged,
    /// If the snapshot's modification time is later.
    IfNewer,
    /// Never: only missing files are added.
    Never,
}

/// The options of a restore.
#[derive(Clone, Copy)]
pub struct RestoreOptions<'a> {
    /// The condition under which an existing file is replaced. `None` demands a destination that is
    /// new, or an empty folder.
    pub overwrite: Option<Overwrite>,
    /// True if a folder may replace a node of another kind, and the other way round.
    pub replace_types: bool,
    /// True if everything is removed that the snapshot does not have. Needs `overwrite`.
    pub delete: bool,
    /// Selects the paths that take part.
    pub filter: &'a RestoreFilter,
    /// Files and folders that must stay: they are neither replaced, removed, nor written into.
    pub kept: &'a [PathBuf],
    /// True if owners, groups and the attributes that only root may set are restored. Otherwise a
    /// file that would run as another user loses its setuid and setgid bits.
    pub owners: bool,
    /// Identifies the source of the restore. A later restore continues an interrupted one only if
    /// both have the same source. An empty source is never continued.
    pub source: &'a [u8],
    /// Progress is made durable each time after this many bytes, which bounds the work that a power
    /// cut costs.
    pub note_bytes: u64,
    /// Receives the unreadable ranges, which become holes. With `None`, a file with unreadable
    /// ranges is left out.
    pub damaged: Option<&'a DamageList>,
}

/// The default of [`RestoreOptions::note_bytes`]: some tens of seconds of work.
const NOTE_BYTES: u64 = 8 << 30;

impl Default for RestoreOptions<'_> {
    /// Overwrites nothing, and restores owners if the process is permitted to.
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

/// Selects the paths of a snapshot, and of a destination, that take part in a restore.
#[derive(Debug, Clone)]
pub struct RestoreFilter {
    /// `None` includes everything.
    includes: Option<Excludes>,
    excludes: Option<Excludes>,
}

impl RestoreFilter {
    /// Selects every path.
    pub const ALL: Self = Self { includes: None, excludes: None };

    /// Selects the paths that match one of `includes`, if there are any, or that are in a folder
    /// that matches. Paths that match `excludes` are not selected. The patterns are those of a
    /// `.gitignore` at the root of the restore.
    ///
    /// # Errors
    /// [`ExcludesError`] names the unusable pattern.
    pub fn new(includes: &[String], excludes: &[String]) -> Result<Self, ExcludesError> {
        let patterns =
            |patterns: &[String]| (!patterns.is_empty()).then(|| Excludes::new(patterns, &[])).transpose();
        Ok(Self { includes: patterns(includes)?, excludes: patterns(excludes)? })
    }

    /// Returns whether every path takes part.
    pub(crate) fn is_all(&self) -> bool {
        self.includes.is_none() && self.excludes.is_none()
    }

    /// Returns whether an exclude matches this path. Callers do not ask for paths inside an
    /// excluded folder.
    pub(super) fn excludes(&self, path: &Path, is_folder: bool) -> bool {
        self.excludes.as_ref().is_some_and(|excludes| excludes.rule_against(path, is_folder).is_some())
    }

    /// Returns whether an include matches this path, or there are no includes.
    pub(super) fn includes(&self, path: &Path, is_folder: bool) -> bool {
        self.includes.as_ref().is_none_or(|includes| includes.rule_against(path, is_folder).is_some())
    }
}
