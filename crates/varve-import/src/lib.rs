//! Snapshots of other programs, moved into an archive: restic and rustic, borg, folders of hard
//! links such as rsnapshot's, tar files and zip files.
//!
//! ```text
//! ForeignArchive ── snapshots, oldest first ──> Importer ── folder snapshots ──> Archive
//!       └── tree: one step after the other ──┘      └── contents that were seen before are linked
//! ```
//!
//! Read first: `foreign.rs` (the seam), `importer.rs` (takes what is new),
//! `restic/restic_folder.rs`.
//!
//! Invariants:
//! - The other program's files are opened for reading only. No lock is written beside them, except
//!   by borg itself while it reads.
//! - Bytes from outside are claims: each length is compared with a limit before memory is
//!   allocated, and no input panics. A content with a hash is compared with it before it is
//!   archived.
//! - A snapshot that was imported has the tag `import=KIND:ID`, and is not imported again.
//! - A file that the other program's own restore could not deliver has a problem in the snapshot.
//!   All else is archived.
//!
//! This crate is one of the edges: it reads the files of other programs, and starts borg.

pub mod borg;
mod checked_tree;
mod dated_file;
mod dated_name;
mod device_number;
mod foreign;
mod importer;
mod link_trees;
mod lost_entries;
mod own_restore;
pub mod restic;
mod seen_contents;
mod series_names;
mod sorted_tree;
pub mod tar;
pub mod zip;

pub use checked_tree::{AttributeCheck, check_attributes};
pub use dated_file::OpenDatedFileError;
pub use dated_name::time_in_name;
pub use foreign::{ForeignArchive, ForeignContents, ForeignSnapshot, ForeignStep, ForeignTree, ImportError};
pub use importer::{ImportPlan, Importer, import_tag};
pub use link_trees::{LinkTrees, OpenLinkTreesError, TimeSource};
pub use own_restore::{BorgRestore, OwnRestore, OwnRestoreError, ResticProgram, TarProgram, UnzipProgram};
pub use seen_contents::ContentId;
pub use series_names::{ForeignSource, series_names};
