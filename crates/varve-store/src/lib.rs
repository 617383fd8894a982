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
//! A [`Store`] is a front over parts that own their fields. Each part is a folder and knows only those to the left of it;
//! its mod file says what it owns and what must always be true:
//!
//! ```text
//! vault ─▶ drafts ─▶ finder ─▶ reader ─▶ tail ─▶ intake ─▶ store
//! ```
//!
//! To be read first: `store.rs` and `store/open.rs` (the parts, from the lowest up), `intake/put.rs` (a block in), and
//! `reader/attempts.rs` (a block out).
//!
//! The store does not know what a snapshot is, or a file. It starts no threads: whoever calls it from many gets the work of
//! many done at the same time, since naming, packing and reading happen outside its locks.

mod cache;
mod config;
mod directory;
mod drafts;
mod finder;
mod intake;
mod keyring;
mod opening;
mod parity;
mod reader;
mod role;
mod saved_index;
mod store;
mod tail;
mod vault;

pub use config::{
    CompareMode, ConfigError, DiskIndexConfig, Encryption, IndexKind, Prefetch, ScoreAlgorithm, StoreConfig,
};
pub use finder::{CandidateCounts, SaveCheckpointError};
pub use intake::{CloseError, Intake, Put, ReplaceError, WriteParityError};
pub use keyring::{
    KeyEntry, KeyError, Keyring, NewKey, OpenedKey, PaperError, PaperKey, PassphraseCost, Secret,
};
pub use opening::{
    NeverBegun, NewestLedger, RebuildProgress, UnsealedScans, counted_before, may_be_missed, newest_ledger,
};
pub use parity::{
    GroupCodes, OpenParityError, ParityFile, ParityFiles, Shards, Unknown, padded_bytes, read_shards,
};
pub use role::{NotPermitted, Permission, Role};
pub use saved_index::{ChooseIndexError, ChoosePlacesError, IndexPlace, choose_index, choose_index_places};
pub use store::{Access, Store, StoreStats};
pub use tail::WithheldError;
pub use vault::{
    ArenaNames, BringBackError, CatalogRoot, CreateError, HINT_MAC_BYTES, Hint, LogMark, Namer, OpenError,
    OwnFileError, QUARANTINE, SessionEvent, SessionRecord, Sessions, SessionsError, SessionsRead, Vault,
    WrittenBlock, bring_back_settings, is_sound_key, settings_need_secret,
};
