//! Snapshots: disk images and folders, archived into a block store, kept in a catalog, and brought back.
//!
//! ```text
//! catalog root ─▶ list of snapshots ─▶ image: fixed tree
//!                                  └─▶ folder: node ─▶ nodes ─▶ … ─▶ file: tree cut by content
//! ```
//!
//! What must always be true:
//! - A snapshot is in the catalog only once all that it leads to is durable; the catalog's root is the last thing written.
//! - Memory is bounded, whatever the size of a file, an image or a folder.
//! - What is restored comes into place whole or not at all, and nothing that a snapshot says leads out of its destination.
//!
//! This crate starts no threads and asks no time: it is given [`Workers`](varve_world::Workers), and told what to call a
//! moment. It reads and writes the files that are archived and restored; a store's own files are the store's.

mod archived;
mod archived_bytes;
mod catalog;
mod compare;
mod copy;
mod damage;
mod elsewhere;
mod fields;
mod files;
mod filter;
mod folder;
mod image;
mod inode_flags;
mod inside;
mod last_night;
mod left_out;
mod losses;
mod machine;
mod naming;
mod node;
mod node_list;
mod partial;
mod progress;
mod records;
mod repair;
mod request;
mod select;
mod snapshot;
mod snapshot_id;
mod tags;
mod take;
mod unfinished;
mod vac;
mod venti_arenas;
mod verify;

pub use archived_bytes::allocated_bytes_in;
pub use catalog::{Catalog, LoadCatalogError, SaveCatalogError};
pub use compare::Unlike;
pub use copy::{CopySnapshotError, SnapshotCopier};
pub use damage::DamageList;
pub use elsewhere::Elsewhere;
pub use fields::{Field, FieldError, FieldReader, FieldWriter, UnknownFields, frame, split_record};
pub use files::{ContentKey, Files, Nodes, ReadContentError, Tree, Trouble};
pub use filter::SnapshotFilter;
pub use folder::{
    Action, ArchiveFolderError, ArchivedFolder, Change, ExcludeRule, ExcludeRules, Excludes, ExcludesError,
    FOLDER_ROOT, FileNews, FolderCounts, FolderFiles, FolderOptions, FolderPages, FolderSurvey, LeadsOut,
    LeftOutEntry, LeftOutOfFolder, LeftOutReason, ListNext, Listed, ListedPaths, Locked, LookupError,
    NewsCounts, NoteNews, Overwrite, PlanCounts, PlannedEntry, Reason, RestoreCounts, RestoreFilter,
    RestoreFolderError, RestoreOptions, RuleOrigin, StoredFiles, StreamOwner, Surveyed, Watch,
    archive_folder, compare_folders, list, lookup, plan_restore, read_back, restore_folder, survey_folder,
    wrong_in_pattern,
};
pub use image::{
    ArchiveImageError, ArchivedImage, CachedBlocks, ImageOptions, ImagePart, ImageReader, ImageSink,
    ImageSource, OpenSourceError, Place, PlaceError, RestoreImageError, ServedImage, Told, ToldRun,
    archive_image, fill_image, image_shape, make_image, mounted_for_writing, open_to_read, read_back_image,
    restore_image, write_image, write_image_around,
};
pub use inode_flags::InodeFlags;
pub use inside::{ImageFiles, ListedVolume};
pub use left_out::LeftOutRecord;
pub use losses::{Losses, LostBlock, LostPlace, PlaceId};
pub use machine::{Firmware, Machine, MachineDrive};
pub use naming::{NameTaken, default_name};
pub use node::{DecodeNodeError, DeviceNumber, MODE_MASK, Node, NodeKind, NodeProblem, Xattr};
pub use node_list::{NodeList, ReadFolderError};
pub use progress::{Problem, ProblemList, Progress, ProgressSnapshot};
pub use records::{RECORD_BYTES_MAX, ReadRecordsError, Records};
pub use repair::{
    AcceptLossError, AcceptPlan, RepairArchiveError, RepairReport, RepairScope, accept_losses, plan_repair,
    plan_to_accept, repair,
};
pub use request::Request;
pub use select::{SelectError, Selected, select, series, split_place};
pub use snapshot::{DecodeSnapshotError, Growth, Snapshot, SnapshotContent};
pub use snapshot_id::SnapshotId;
pub use tags::{TagChanges, TagError};
pub use take::{Archive, ChangeError, FollowError, TakeError, Taken};
pub use vac::{
    ArchivedVac, OpenVacError, OwnerNames, ParseVacLineError, VacArchive, VacContent, VacFiles, VacLine,
    VacOptions,
};
pub use venti_arenas::{
    ArenaDamage, ArenaObserver, ArenaReport, ClumpDamage, FoundRoot, ImportArenaError, OpenArenasError,
    SealCheck, VentiArenas, import_venti_arena,
};
pub use verify::{
    ArchiveHarm, Harm, Verified, VerifiedArchive, VerifyArchiveError, VerifyError, harm_of, verify,
    verify_archive,
};
