//! Snapshots: disk images and folders, archived into a block store, listed in a catalog, and
//! restored.
//!
//! ```text
//! catalog root ─▶ list of snapshots ─▶ image: fixed tree
//!                                  └─▶ folder: node ─▶ nodes ─▶ … ─▶ file: tree cut by content
//! ```
//!
//! Invariants:
//! - A snapshot is in the catalog only once everything that it leads to is durable. The root of the
//!   catalog is written last.
//! - Memory is bounded, whatever the size of a file, an image or a folder.
//! - A restored file appears complete or not at all, and no data in a snapshot leads out of the
//!   destination.
//!
//! Read first: `taking/take.rs` (archiving a source, from content to catalog),
//! `folder/archiving/archive.rs` (a tree of files) and `restoring/unfinished_restore.rs` (makes it
//! safe to interrupt a restore).
//!
//! The modules [`folder`], [`image`], [`vac`] and [`venti_arenas`] have the names for one kind of
//! source each. The module [`retention`] decides which snapshots a policy keeps. The names at the
//! root are for all kinds of sources: the catalog, taking a snapshot, browsing, verify and repair.
//!
//! This crate starts no threads and reads no clock: the caller passes
//! [`Workers`](varve_world::Workers) and the time. It reads and writes the files that are archived
//! and restored. The store reads and writes its own files.

mod archive;
mod browsing;
mod catalog;
mod checking;
mod files;
pub mod folder;
mod forgetting;
pub mod image;
mod inode_flags;
mod nearest_key;
mod progress;
mod reading_content;
mod reclaiming;
mod records;
mod restoring;
pub mod retention;
mod space;
mod taking;
pub mod vac;
pub mod venti_arenas;

pub use archive::change::ChangeError;
pub use archive::{Archive, FollowError};
pub use browsing::collected::{CollectedError, lacks_block};
pub use browsing::name_index::{
    FoundPaths, IndexedPath, NameIndex, NamesUpdate, OpenedSnapshot, UpdateNamesError,
};
pub use browsing::snapshot_list::{FilteredSnapshots, SnapshotList, StoreSnapshots};
pub use catalog::catalog_root::{Catalog, LiveEntries, SaveCatalogError};
pub use catalog::hold::{Hold, HoldLabelError};
pub use catalog::left_out_record::LeftOutRecord;
pub use catalog::losses::{Losses, LostBlock, LostPlace, PlaceId};
pub use catalog::machine::{Firmware, Machine, MachineDrive};
pub use catalog::origin_record::OriginRecord;
pub use catalog::removed::{ReadRemovedError, TrashedSnapshot};
pub use catalog::root_record::LoadCatalogError;
pub use catalog::selection::{SelectError, Selected, select, series, split_place};
pub use catalog::snapshot::{DecodeSnapshotError, Growth, Snapshot, SnapshotContent};
pub use catalog::snapshot_filter::SnapshotFilter;
pub use catalog::snapshot_id::SnapshotId;
pub use catalog::snapshot_request::SnapshotRequest;
pub use catalog::source_names::{NameTaken, default_name};
pub use catalog::tags::{TagChanges, TagError};
pub use checking::repair::{
    AcceptLossError, AcceptPlan, RepairArchiveError, RepairPlan, RepairReport, RepairScope, accept_losses,
    plan_repair, plan_to_accept, repair,
};
pub use checking::verify::{
    ArchiveHarm, Harm, Verified, VerifiedArchive, VerifyArchiveError, VerifyError, harm_of, verify,
    verify_archive,
};
pub use files::allocated_bytes::allocated_bytes_in;
pub use files::inside_image::{ImageFiles, ListedVolume};
pub use files::{ContentKey, Files, Nodes, ReadProblem, Tree};
pub use forgetting::expiry::{ExpireTrashError, ExpiryPlan};
pub use forgetting::forget::{ForgetError, ForgetPlan};
pub use forgetting::holding::ProtectError;
pub use forgetting::listed::UnknownSnapshots;
pub use forgetting::protection::{ProtectedSnapshot, Protection};
pub use forgetting::undo::UndoForgetError;
pub use forgetting::work_days::{TimeLeap, WorkDays};
pub use inode_flags::InodeFlags;
pub use progress::{Problem, Progress, ProgressSnapshot};
pub use reading_content::{OnLoss, ReadContentError, TakeBytes};
pub use reclaiming::block_walk::{WalkBlocksError, WalkCounts};
pub use reclaiming::collect::{CollectError, CollectOptions, Collection, CollectionReport};
pub use reclaiming::mark::mark;
pub use reclaiming::mark_error::{MarkError, MarkTreeError};
pub use reclaiming::price_file::{PRICE_FILE, PriceFile, ReadPricesError};
pub use reclaiming::roots::{FindRootsError, ForeignRoots, LiveRoots, arenas_sealed_since, young_arenas};
pub use reclaiming::snapshot_walk::MarkReport;
pub use records::fields::{Field, FieldError, FieldReader, FieldWriter, UnknownFields, frame};
pub use records::folder_stack::{FolderStack, FolderStep, TooDeep};
pub use records::node::{DecodeNodeError, MODE_MASK, Node, NodeKind, NodeProblem};
pub use records::node_list::{NodeList, ReadFolderError};
pub use records::node_list_writer::{NodeListWriter, WriteNodeError};
pub use records::record_list::{RECORD_BYTES_MAX, ReadRecordsError, Records};
pub use restoring::comparison::ReadBackDifference;
pub use restoring::damage_list::DamageList;
pub use restoring::new_file::{NewFile, PRIVATE, PUBLIC};
pub use space::places::PlaceDensity;
pub use space::space_needs::{NameNeeds, SnapshotNeeds, SpaceNeeds, SpaceNeedsError};
pub use taking::copy::{CopySnapshotError, SnapshotCopier};
pub use taking::remote_archive::RemoteArchive;
pub use taking::take::{TakeError, TakenSnapshot};
