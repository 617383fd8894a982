//! The log: arenas of clumps, written once and never changed.
//!
//! ```text
//! arena  │ header │ clump │ clump │ … │ page │ clump │ … │ page │ rows │ footer │
//!                   └──── named by ────┘      └ named by ┘        └── seal ──┘
//! ```
//!
//! An *arena* is a bounded, append-only file. A *clump* holds the bytes of one or several blocks,
//! compressed and encrypted together. A directory *page* names the blocks of the clumps before it.
//! Records after the last page were never acknowledged. A full arena is *sealed*: it ends with a
//! code over all its pages, which cover their clumps. `docs/internals/format.md`, section 3,
//! describes the bytes.
//!
//! Invariants:
//! - Data is trusted only after its code has been checked. A [`DirectoryPage`] or a
//!   [`FrameContent`] exists only for bytes that this store's keys have written at that place of
//!   that arena.
//! - A footer is written only after everything before it is durable. So a sealed arena is whole, or
//!   it was damaged.
//! - No key encrypts two records with one nonce. A session's salt is drawn when a writer opens the
//!   log. Its counter grows with every record, even if the record could not be written.
//!
//! Read first: `records/clump.rs` (blocks become bytes), `writing/appender.rs` (bytes become
//! durable) and `recovery/scan.rs` (the pages that survive a crash).
//!
//! The log does not know where a block is; the index does. It does not know the use of a block. It
//! starts no threads and does not read the clock.

mod append_error;
mod arenas;
mod keys;
mod parity;
mod reading;
mod records;
mod recovery;
mod sync_failure;
mod writing;

pub use append_error::{AppendError, WriteFailure};
pub use arenas::address::{ArenaId, ArenaMap};
pub use arenas::footer::{Footer, FooterError, PageRow};
pub use arenas::header::{ARENA_HEADER_BYTES, ArenaHeader, ArenaHeaderError, ArenaVersion};
pub use arenas::seals::{Seal, Seals};
pub use keys::cipher::{WrapError, unwrap_secret, wrap_secret};
pub use keys::locked_memory::LockedMemory;
pub use keys::log_keys::{DIGEST_BYTES, Digest, KEY_PAIR_BYTES, LogKeys, WRITER_KEYS_BYTES};
pub use parity::{
    PARITY_BLOCK_BYTES, PARITY_HEADER_BYTES, ParityHeader, ParityHeaderError, ParityKey, ParityLayout,
    ParityPercent, ShardCode, TooFewShards, rebuild, recovery_of,
};
pub use reading::delta_bases::{BaseError, DeltaBases};
pub use reading::file_part::FilePart;
pub use reading::log::{ArenaState, Log, LogConfig, OpenLogError, OpenedArena, ReadLogError};
pub use reading::steady_arena::ArenaFile;
pub use reading::whole_arena::WholeArena;
pub use reading::window::{ArenaWindow, ClumpMap};
pub use records::clump::{BaseBlock, ClumpBytes, ClumpDraft, FrameBytes, Framing, NamedBlock, PackedClump};
pub use records::clump_content::{ClumpContent, FrameContent, OpenClumpError};
pub use records::compression::{CompressionLevel, DecompressError};
pub use records::directory_page::{ClumpRow, DirectoryPage, DirectoryPageError, PageBlock};
pub use records::frame_table::FramePlace;
pub use records::granule::{GRANULE_BYTES, Granule};
pub use records::ledger::Ledger;
pub use records::record_header::{RecordError, RecordHeader, RecordKind};
pub use records::record_sizes::RECORD_BYTES_MAX;
pub use recovery::crash_or_damage::ArenaEnd;
pub use recovery::headerless_arena::UnopenedEnd;
pub use recovery::recover::{RecoverError, UNSEALED_MAX};
pub use recovery::salvage::SalvagedClump;
pub use recovery::scan::{ProvenPages, RecoveredArena};
pub use writing::appender::Appender;
pub use writing::arena_writer::AppendedPage;
pub use writing::replacement::{ReplacedArena, Replacement, Successor};
pub use writing::sync::{SyncLogError, SyncPlan};
