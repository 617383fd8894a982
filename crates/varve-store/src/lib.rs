//! The engine: log, index and caches together make the local block store.
//!
//! ```text
//! put   name the blocks ─▶ known? (index, then directory page) ─▶ draft ─▶ pack ─▶ append ─▶ page ─▶ index
//! get   pending or index ─▶ candidate addresses ─▶ clump ─▶ the frame that may hold it ─▶ name the block ─▶ the one that was asked for
//! ```
//!
//! What must always be true:
//! - An index only proposes. A duplicate is believed by the full score in a directory page, a block by the score of its
//!   bytes; so a wrong index costs time, never data. In a by-value store a duplicate is believed when its bytes have been compared.
//! - When [`sync`](varve_block::BlockStore::sync) has returned, everything put before it survives power loss.
//! - A store has one writer at a time; readers need no lock, and see what was there when they opened it, or last followed the
//!   writer.
//!
//! The store does not know what a snapshot is, or a file. It starts no threads: whoever calls it from many gets the work of
//! many done at the same time, since naming, packing and reading happen outside its locks.

mod audit;
mod by_value;
mod cache;
mod candidate_counts;
mod catalog_roots;
mod check;
mod check_order;
mod checkpoint;
mod config;
mod damage;
mod damaged;
mod directory;
mod disk_index;
mod follow;
mod frames;
mod get;
mod hint;
mod in_place;
mod keyring;
mod log_end;
mod lookup;
mod loss;
mod lost;
mod mark;
mod mend_from_copy;
mod names;
mod naming;
mod never_begun;
mod newest;
mod open;
mod own;
mod parity;
mod placement;
mod places;
mod put;
mod reindex;
mod repair;
mod role;
mod scans;
mod sealed;
mod sessions;
mod settings;
mod stats;
mod store;
mod stretch;
mod sync;
mod unlock;
mod withheld;

pub use audit::{Audit, AuditShare};
pub use candidate_counts::CandidateCounts;
pub use catalog_roots::CatalogRoot;
pub use check::BegunCheck;
pub use checkpoint::SaveCheckpointError;
pub use config::{
    CompareMode, ConfigError, DiskIndexConfig, Encryption, IndexKind, Prefetch, ScoreAlgorithm, StoreConfig,
};
pub use damage::{ArenaCheck, CheckArenaError, Damage, DamageKind, Unfinished};
pub use keyring::{
    KeyEntry, KeyError, Keyring, NewKey, OpenedKey, PaperError, PaperKey, PassphraseCost, Secret,
};
pub use loss::{ArenaLoss, LostEnd, LostRange, Witness};
pub use mark::LogMark;
pub use names::ArenaNames;
pub use naming::Namer;
pub use open::{Access, CreateError, OpenError, RebuildProgress};
pub use own::OwnFileError;
pub use parity::{CheckParityError, MendError, Mended, ParityDamage, WriteParityError};
pub use places::{ChoosePlacesError, IndexPlace};
pub use put::Put;
pub use reindex::ChooseIndexError;
pub use repair::{RepairError, RepairPlan, Repaired};
pub use role::{NotPermitted, Permission, Role};
pub use sessions::{SessionEvent, SessionRecord, SessionsError, SessionsRead, WrittenBlock};
pub use settings::BringBackError;
pub use stats::StoreStats;
pub use store::{CloseError, Store};
pub use stretch::Stretch;
pub use withheld::WithheldError;
