//! Folders: archives them with everything that a Linux system needs, and lists, compares and
//! restores them.
//!
//! Invariants:
//! - Nothing outside the source is read, and nothing outside the destination is written, whatever
//!   is renamed meanwhile and whatever a snapshot contains. Every step goes from an open folder to
//!   one name in it, and never through a symbolic link.
//! - A file that cannot be archived or restored is reported and counted. It affects no other file.
//! - Memory is bounded by the work in flight, by the names of one folder, and by those of a few
//!   small folders that are listed ahead, plus one node for each file with several names.
//!
//! This module starts no threads: it passes work to [`Workers`](varve_world::Workers), and the
//! waiting thread helps.

mod archived;
mod archiving;
mod restore;
mod source;
mod watch;

pub use crate::files::stored::StoredFiles;
pub use archived::difference::{ChangeVisitor, PathChange, compare_folders};
pub use archived::files::{FolderFiles, ROOT as FOLDER_ROOT};
pub use archived::list::{ListEvent, ListNext, list};
pub use archived::lookup::{LookupError, lookup};
pub use archived::pages::FolderPages;
pub use archiving::archive::{EarlierSnapshots, archive_folder, archive_folder_after};
pub use archiving::described::{
    ContentSink, DescribedTree, DescriptionError, FileContent, FileContents, SinkClosed, StoredContent,
    TreeStep, archive_described,
};
pub use archiving::left_out::{LeftOutEntry, LeftOutOfFolder, LeftOutReason};
pub use archiving::news::{FileNews, NewsCounts, NoteNews};
pub use archiving::options::FolderOptions;
pub use archiving::outcome::{ArchiveFolderError, ArchivedFolder};
pub use archiving::path_limit::{
    FOLDER_DEPTH_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, PathTooLong, TARGET_BYTES_MAX,
};
pub use archiving::remembered::{ContentOrigin, RememberedFiles};
pub use archiving::sequence::FolderCounts;
pub use archiving::single::{StreamOwner, archive_stream, only_this_file};
pub use archiving::survey::{FolderSurvey, SurveyEvent, survey_folder};
pub use restore::{
    LockedEntry, Overwrite, PlanCounts, PlannedEntry, RestoreAction, RestoreCounts, RestoreFilter,
    RestoreFolderError, RestoreOptions, RestoreReason, plan_restore, read_back, restore_folder,
};
pub use source::excludes::{
    ExcludeRule, ExcludeRules, Excludes, ExcludesError, RuleOrigin, wrong_in_pattern,
};
pub use source::host_folder::{
    HostAttributes, HostEntry, HostFile, HostFolder, HostListing, HostState, HostStatus, ListedName,
};
pub use source::listed_paths::{ListedPaths, PathLeadsOut};
pub use watch::Watch;
