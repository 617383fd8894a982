//! The log: arenas of clumps, written once and never changed.
//!
//! ```text
//! arena  │ header │ clump │ clump │ … │ page │ clump │ … │ page │ rows │ footer │
//!                   └──── named by ────┘      └ named by ┘        └── seal ──┘
//! ```
//!
//! An *arena* is a bounded, append-only file. A *clump* holds the bytes of one or several blocks, compressed and encrypted
//! together. A directory *page* names the blocks of the clumps before it; whatever follows the last page was never
//! acknowledged. A full arena is *sealed*: a code over all its pages, which cover their clumps, ends it.
//! `docs/internals/format.md` has the bytes, section 3.
//!
//! What must always be true:
//! - Nothing that is read is believed before its code has been checked: [`DirectoryPage`] and [`FrameContent`] exist only for
//!   bytes that this store's keys have written at that place of that arena.
//! - A footer is written only once everything before it is durable; so a sealed arena is whole, or it was damaged.
//! - No key encrypts two records with one nonce: a session's salt is drawn when a writer opens the log, and its counter
//!   moves on with every record, whether or not the record could be written.
//!
//! Read first: `records/clump.rs` (blocks become bytes), `writing/appender.rs` (bytes become durable) and
//! `recovery/scan.rs` (what a crash has left of them).
//!
//! The log does not know where a block is (the index does), nor what blocks are for. It starts no threads and asks no time.

mod arenas;
mod keys;
mod parity;
mod reading;
mod records;
mod recovery;
mod writing;

pub use arenas::address::{ArenaId, ArenaMap, GRANULE_BYTES, Granule};
pub use arenas::footer::{Footer, FooterError, PageRow};
pub use arenas::header::{ARENA_HEADER_BYTES, ArenaHeader, ArenaHeaderError};
pub use arenas::seals::{Ledger, Seal, Seals};
pub use keys::cipher::{WrapError, unwrap_secret, wrap_secret};
pub use keys::locked_memory::LockedMemory;
pub use keys::log_keys::{DIGEST_BYTES, Digest, KEY_PAIR_BYTES, LogKeys};
pub use parity::{
    PARITY_BLOCK_BYTES, PARITY_HEADER_BYTES, ParityHeader, ParityHeaderError, ParityKey, ParityLayout,
    ParityPercent, ShardCode, TooFewShards, rebuild, recovery_of,
};
pub use reading::file_part::FilePart;
pub use reading::log::{ArenaState, Log, LogConfig, OpenLogError, OpenedArena, ReadLogError};
pub use reading::whole_arena::WholeArena;
pub use reading::window::{ClumpMap, Window};
pub use records::clump::{ClumpBytes, ClumpDraft, Framing, NamedBlock, PackedClump};
pub use records::clump_content::{ClumpContent, FrameContent, OpenClumpError};
pub use records::compression::{CompressionLevel, DecompressError};
pub use records::directory_page::{ClumpRow, DirectoryPage, DirectoryPageError, PageBlock};
pub use records::frame_table::FramePlace;
pub use records::record_header::{RECORD_BYTES_MAX, RecordError, RecordHeader, RecordKind};
pub use recovery::crash_or_damage::ArenaEnd;
pub use recovery::headerless_arena::UnopenedEnd;
pub use recovery::recover::{RecoverError, UNSEALED_MAX};
pub use recovery::salvage::{Replaced, Replacement, SalvagedClump};
pub use recovery::scan::{Proven, Recovered};
pub use writing::appender::Appender;
pub use writing::arena_writer::{AppendError, Appended};
pub use writing::sync::{SyncLogError, SyncPlan};
