//! The engine: log, index and caches together make the local block store.
//!
//! ```text
//! put   name the blocks ─▶ known? (index, then page) ─▶ draft ─▶ pack ─▶ append ─▶ page ─▶ index
//! get   pending or index ─▶ candidates ─▶ clump ─▶ its frame ─▶ name the block ─▶ compare names
//! ```
//!
//! Always true:
//! - An index only proposes candidates. A block counts as stored already if a directory page has
//!   its full score, and a block is returned if its bytes have the requested score. So a wrong
//!   index costs time, never data. In a by-value store a block counts as stored already if its
//!   bytes were compared with the stored ones.
//! - When [`sync`](varve_block::BlockStore::sync) has returned, every block put before it survives
//!   a power loss.
//! - A store has one writer at a time. Readers need no lock. They see the log as it was when they
//!   opened the store, or when they last followed the writer.
//!
//! A [`Store`] is a front over parts that own their fields. Each part is a folder and knows only
//! the parts to the left of it. Its module file states the fields that it owns and its invariants:
//!
//! ```text
//! vault ─▶ drafts ─▶ finder ─▶ reader ─▶ tail ─▶ intake ─▶ store
//! ```
//!
//! Callers use the front. They ask the vault and the intake directly only for the operations that
//! the front does not have: files of the store, single arenas, the writer's repairs.
//!
//! Read first: `store.rs` and `store/open.rs` (the parts, from the lowest up), `intake/put.rs` (a
//! block is put), and `reader/attempts.rs` (a block is read).
//!
//! The store does not know snapshots or files. It starts no threads. Callers on many threads work
//! in parallel, since naming, packing and reading happen outside its locks.

mod cache;
mod config;
mod directory;
mod drafts;
mod finder;
mod intake;
mod keyring;
mod leases;
mod notes;
mod opening;
mod origin;
mod parity;
mod reader;
mod role;
mod saved_index;
mod store;
mod tail;
mod vault;
mod without_barren;

pub use cache::CacheBytes;
pub use config::{
    CompareMode, ConfigError, DiskIndexConfig, Encryption, IndexKind, Prefetch, ScoreAlgorithm, StoreConfig,
};
pub use directory::ClumpPlace;
pub use finder::{CandidateCounts, SaveCheckpointError};
pub use intake::{
    CloseError, Intake, PutResult, ReadySuccessor, ReplaceError, UsedReserve, WriteParityError,
};
pub use keyring::{
    KeyEntry, KeyError, Keyring, NewKey, OpenedKey, PaperError, PaperKey, PassphraseCost, Secret,
};
pub use leases::{
    FindLeasesError, FoundLease, HeldLease, LeaseHolder, LeasedSnapshots, held_leases, remove_stale_leases,
    take_lease,
};
pub use notes::{BarrenPart, LogNote, ReplacedSeal, is_structure, note_fingerprint};
pub use opening::{
    NeverBegun, NewestLedger, RebuildProgress, UnsealedScans, counted_before, may_be_missed, newest_ledger,
};
pub use origin::Origin;
pub use parity::{
    GroupCodes, OpenParityError, ParityFile, ParityFiles, ParityShards, UnknownShard, padded_bytes,
    read_shards,
};
pub use role::{NotPermitted, Permission, Role};
pub use saved_index::{ChooseIndexError, ChoosePlacesError, IndexPlace, choose_index, choose_index_places};
pub use store::{Store, StoreAccess, StoreStats};
pub use tail::WithheldError;
pub use vault::{
    ArenaExtent, ArenaNames, BringBackError, CatalogRoot, CreateError, FormatPage, HINT_MAC_BYTES, Hint,
    LogExtent, Namer, NotedPage, OpenStoreError, PrivateFileError, QUARANTINE, SessionEvent, SessionRecord,
    SessionsError, SessionsFile, SessionsRead, UnfinishedFile, Vault, WrittenBlock, bring_back_settings,
    is_sound_key, settings_need_secret,
};
pub use without_barren::WithoutBarren;
