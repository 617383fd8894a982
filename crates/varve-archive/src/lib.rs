//! The archive: snapshots of disk images and folders in a store, listed in a catalog.
//!
//! ```text
//! catalog root ─▶ list of snapshots ─▶ image: fixed tree
//!                                  └─▶ folder: node ─▶ nodes ─▶ … ─▶ file: tree cut by content
//! ```
//!
//! The contents, which are everything right of the list, are the subject of `varve-content`.
//!
//! Invariant: a snapshot is in the catalog only once everything that it leads to is durable. The
//! root of the catalog is written last.
//!
//! Read first: `archive/home.rs` (the operations of a home of snapshots), `archive.rs` (a home with
//! its catalog) and `taking/take.rs` (archiving a source, from content to catalog).
//!
//! The module [`venti_arenas`] has the names for the arenas of Venti as a source. The module
//! [`retention`] decides which snapshots a policy keeps. The names at the root are for all kinds of
//! sources: the catalog, taking a snapshot, browsing, verify and repair.
//!
//! This crate starts no threads and reads no clock: the store has a world with
//! [`Workers`](varve_world::Workers) and the time.

mod archive;
mod browsing;
mod catalog;
mod checking;
mod forgetting;
mod nearest_key;
mod reclaiming;
pub mod retention;
mod space;
mod taking;
pub mod venti_arenas;

pub use archive::Archive;
pub use archive::change::ChangeError;
pub use archive::home::{ContentForm, FollowError, HomeError, SnapshotHome};
pub use archive::local_home::LocalHome;
pub use browsing::collected::{CollectedError, lacks_block};
pub use browsing::name_index::{
    FoundPaths, IndexedPath, NameIndex, NamesUpdate, OpenedSnapshot, UpdateNamesError,
};
pub use browsing::snapshot_list::{FilteredSnapshots, SnapshotList};
pub use catalog::catalog_root::{Catalog, LiveEntries, SaveCatalogError};
pub use catalog::hold::{Hold, HoldLabelError};
pub use catalog::left_out_record::LeftOutRecord;
pub use catalog::losses::{Losses, LostBlock, LostPlace, PlaceId};
pub use catalog::machine::{Firmware, Machine, MachineDrive};
pub use catalog::origin_record::OriginRecord;
pub use catalog::removed::{ReadRemovedError, TrashedSnapshot};
pub use catalog::root_record::LoadCatalogError;
pub use catalog::selection::{SelectError, Selected, select, series, split_place, unknown};
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
    verify_archive, verify_blocks,
};
pub use forgetting::expiry::{ExpireTrashError, ExpiryPlan};
pub use forgetting::forget::{ForgetError, ForgetPlan};
pub use forgetting::holding::ProtectError;
pub use forgetting::listed::UnknownSnapshots;
pub use forgetting::protection::{ProtectedSnapshot, Protection};
pub use forgetting::undo::UndoForgetError;
pub use forgetting::work_days::{TimeLeap, WorkDays};
pub use reclaiming::block_walk::{WalkBlocksError, WalkCounts};
pub use reclaiming::collect::{CollectError, CollectOptions, Collection, CollectionReport};
pub use reclaiming::mark::mark;
pub use reclaiming::mark_error::{MarkError, MarkTreeError};
pub use reclaiming::price_file::{PRICE_FILE, PriceFile, ReadPricesError};
pub use reclaiming::roots::{FindRootsError, ForeignRoots, LiveRoots, arenas_sealed_since, young_arenas};
pub use reclaiming::snapshot_walk::MarkReport;
pub use space::places::PlaceDensity;
pub use space::space_needs::{NameNeeds, SnapshotNeeds, SpaceNeeds, SpaceNeedsError};
pub use taking::copy::{CopySnapshotError, SnapshotCopier};
pub use taking::take::{TakeError, TakenSnapshot};
