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
//! The log does not know where a block is (the index does), nor what blocks are for. It starts no threads and asks no time.

mod append;
mod arena;
mod arena_writer;
mod buckets;
mod cipher;
mod clump;
mod compress;
mod content;
mod decode;
mod file_part;
mod footer;
mod frames;
mod header;
mod hpke;
mod judge;
mod kept_keys;
mod keys;
mod locked;
mod page;
mod parity;
mod read;
mod record;
mod recover;
mod salvage;
mod scan;
mod seals;
mod sectors;
mod sync;
mod sync_failure;
mod unopened;
mod whole;
mod window;

pub use append::Appender;
pub use arena::{ArenaId, ArenaMap, GRANULE_BYTES, Granule};
pub use arena_writer::{AppendError, Appended};
pub use cipher::{WrapError, unwrap_secret, wrap_secret};
pub use clump::{ClumpBytes, ClumpDraft, Framing, NamedBlock, PackedClump};
pub use compress::{CompressionLevel, DecompressError};
pub use content::{ClumpContent, FrameContent, OpenClumpError};
pub use file_part::FilePart;
pub use footer::{Footer, FooterError, PageRow};
pub use frames::FramePlace;
pub use header::{ARENA_HEADER_BYTES, ArenaHeader, ArenaHeaderError};
pub use judge::ArenaEnd;
pub use keys::{DIGEST_BYTES, Digest, KEY_PAIR_BYTES, LogKeys};
pub use locked::LockedMemory;
pub use page::{ClumpRow, DirectoryPage, DirectoryPageError, PageBlock};
pub use parity::{
    PARITY_BLOCK_BYTES, PARITY_HEADER_BYTES, ParityHeader, ParityHeaderError, ParityKey, ParityLayout,
    ParityPercent, ShardCode, TooFewShards, rebuild, recovery_of,
};
pub use read::{ArenaState, Log, LogConfig, OpenLogError, OpenedArena, ReadLogError};
pub use record::{RECORD_BYTES_MAX, RecordError, RecordHeader, RecordKind};
pub use recover::{RecoverError, UNSEALED_MAX};
pub use salvage::{Replaced, Replacement, SalvagedClump};
pub use scan::{Proven, Recovered};
pub use seals::{Ledger, Seal, Seals};
pub use sync::{SyncLogError, SyncPlan};
pub use unopened::UnopenedEnd;
pub use whole::WholeArena;
pub use window::{ClumpMap, Window};
