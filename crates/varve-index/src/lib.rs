//! The index: maps the fingerprint of a score to the few addresses in the log at which that block
//! may be.
//!
//! There are two kinds, and either is a [`ScoreIndex`]: [`MemoryIndex`], and [`DiskIndex`] for
//! stores with too many blocks for one word of memory each. The rest of this page describes the
//! first; the module `disk` describes the second.
//!
//! This is memventi's index (Lukkien 2008, chapter 7), extended to grow: every block costs one word
//! of memory, with some bits of its fingerprint and its address, and no block costs a seek.
//!
//! ```text
//! fingerprint  │ prefix │ remainder      │ not kept │         prefix: the segment
//!                       └──────┬─────────┘
//! slot                  │ remainder      │ address  │         64 bits; slots of a segment ascend, with gaps
//!
//! segment      │ ▪▪·▪▪▪▪·▪▪▪▪ │ ▪▪▪▪·▪▪▪▪·▪▪ │ ▪▪▪·▪▪▪▪▪··· │ pages of 512 slots, 8/9 to 12/13 taken
//! ```
//!
//! Segments are split one at a time, in a fixed order, as blocks are added (linear hashing, Litwin
//! 1980), and each grows by a page or two when it is nearly full. All memory is in pages of equal
//! size, so that it does not fragment. The longest pause is one pass over one segment: about 32,000
//! slots.
//!
//! Read first: `score_index.rs` (the questions that an index answers), `memory_index.rs` and
//! `disk/disk_index.rs` (the two kinds).
//!
//! Invariants:
//! - Every address that was inserted, and not removed, is among the
//!   [candidates](ScoreIndex::candidates) of its fingerprint; or the answer is marked as
//!   incomplete.
//! - A candidate is a hint: it agrees in at least [`FINGERPRINT_BITS_MIN`] bits. The caller checks
//!   it by the full score.
//! - The same operations in the same order give the same index. It starts no thread, reads no
//!   clock, and does no I/O except through the given `Storage`.
//! - A [checkpoint](MemoryIndex::read_checkpoint), or a saved index on disk, is read back exactly
//!   as it was written, or not at all. If it is lost or damaged, it is rebuilt from the log's
//!   directories: the index is a hint, the log is the truth.
//!
//! The index does not interpret addresses, and never reads the log.

mod checkpoint;
mod disk;
mod memory_index;
mod pages;
mod score_index;
mod segment;
mod spread;
mod stats;

pub use checkpoint::{CHECKPOINT_NOTE_BYTES_MAX, ReadCheckpointError};
pub use disk::{
    DiskIndex, DiskIndexSettings, DiskIndexStats, FoundAddresses, NearAddresses, OpenDiskIndexError,
    ReadyRun, SaveDiskIndexError,
};
pub use memory_index::{BLOCK_COUNT_MAX, IndexFull, MemoryIndex};
pub use score_index::ScoreIndex;
pub use segment::FINGERPRINT_BITS_MIN;
pub use spread::SpreadStorage;
pub use stats::IndexStats;
