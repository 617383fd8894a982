//! Folders: archives them with everything that a Linux system needs, and lists, compares and
//! restores them.
//!
//! Invariants:
//! - Nothing outside the source is read, and nothing outside the destination is written, whatever
//!   is renamed meanwhile and whatever a snapshot contains. Every step goes from an open folder to
//!   one name in it, and never through a symbolic link.
//! - A file that cannot be archived or restored is reported and counted. It affects no other file.
//! - Memory is bounded by the work in flight and by the names of one folder, plus one node for each
//!   file with several names.
//!
//! This module starts no threads: it passes work to [`Workers`](varve_world::Workers), and the
//! waiting thread helps.

mod archive;
mod cache_tag;
mod difference;
mod excludes;
mod files;
mod flags;
mod left_out;
mod list;
mod listed_paths;
mod lookup;
mod mounts;
mod news;
mod options;
mod outcome;
mod pages;
mod pipeline;
mod previous;
mod read;
mod restore;
mod selection;
mod sequence;
mod single;
mod status;
mod status_flags;
mod stored;
mod survey;
mod virtual_file_systems;
mod walk;
mod watch;
mod xattrs;

pub use archive::archive_folder;
pub(crate) use archive::{EarlierSnapshots, archive_folder_after};
pub use difference::{PathChange, compare_folders};
pub use excludes::{ExcludeRule, ExcludeRules, Excludes, ExcludesError, RuleOrigin, wrong_in_pattern};
pub use files::{FolderFiles, ROOT as FOLDER_ROOT};
pub use left_out::{LeftOutEntry, LeftOutOfFolder, LeftOutReason};
pub use list::{ListEvent, ListNext, list};
pub use listed_paths::{ListedPaths, PathLeadsOut};
pub use lookup::{LookupError, lookup};
pub use news::{FileNews, NewsCounts, NoteNews};
pub use options::FolderOptions;
pub use outcome::{ArchiveFolderError, ArchivedFolder};
pub use pages::FolderPages;
pub use restore::{
    LockedEntry, Overwrite, PlanCounts, PlannedEntry, RestoreAction, RestoreCounts, RestoreFilter,
    RestoreFolderError, RestoreOptions, RestoreReason, plan_restore, read_back, restore_folder,
};
pub use sequence::FolderCounts;
pub use single::StreamOwner;
pub(crate) use single::archive_stream;
pub use single::only_this_file;
pub use stored::StoredFiles;
pub(crate) use stored::lacks_all;
pub use survey::{FolderSurvey, SurveyEvent, survey_folder};
pub use watch::Watch;
