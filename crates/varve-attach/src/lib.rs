//! Reads disks from a publication, as random-access disks that are fetched when they are read.
//!
//! ```text
//!   PublishedDisk ─▶ BlockSupply ─▶ contents in memory ─▶ StoredCache on disk ─▶ Fetcher ─▶ mirrors
//!        │                                                                          │
//!        └ map: root and pages, by the same way              Schedule, ServerRanking: pure decisions
//!
//!   EditionOpener ─▶ head ─▶ believe_head ─▶ the images of a trusted edition
//! ```
//!
//! Read first: `trust.rs` (which head is believed), `published_disk.rs` (a read) and `schedule.rs`
//! (which block is fetched next).
//!
//! Invariants:
//! - No byte of a disk comes from anywhere without being checked against the signed head: each
//!   stored block is compared with its name, whether a server, the cache or its disk has it.
//! - A failure ends one read. Everything else goes on.
//! - Memory is bounded by the budget of contents, the pages of the map and a few requests. A cache
//!   on disk never fails its reader: without it everything is fetched.
//! - An edition is older than one that was believed before only on request.
//!
//! The crate is an edge: it has threads, which wait for servers. It does not know publishers,
//! archives, front ends or the command line.

mod block_supply;
mod edge;
mod edition;
mod fetcher;
mod fill;
mod line_window;
mod profile_prefetch;
mod profile_use;
mod published_disk;
mod schedule;
mod server_ranking;
mod stored_cache;
mod trust;

pub use block_supply::{AccessLog, AttachFigures, BlockAccess, BlockOrigin, BlockSupply, FalsifiedBlock};
pub use edition::{AttachedEdition, ChooseImageError, EditionOpener, OpenEditionError, choose_image};
pub use fetcher::{FetchError, FetchSettings, PublicationServer};
pub use fill::{FillError, FillReport, fill_cache};
pub use profile_prefetch::{PrefetchReport, prefetch_profile, published_machine, published_profile};
pub use published_disk::{PublishedDisk, ReadDiskError};
pub use stored_cache::{CACHE_BYTES_MIN, CacheBudget, CacheFigures, OpenCacheError, StoredCache};
pub use trust::{BelievedHead, TrustError, TrustRules, TrustWarning, believe_head};
