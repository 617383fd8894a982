//! The index: from the fingerprint of a score to the few places in the log where that block may be.
//!
//! There are two, and either is a [`ScoreIndex`]: [`MemoryIndex`], and [`DiskIndex`] for stores whose blocks are too many for a word
//! of memory each. What follows is of the first; `disk` tells of the second.
//!
//! This is memventi's index (Lukkien 2008, chapter 7) made to grow: every block costs one word of memory, which holds some
//! bits of its fingerprint and its address, and no block costs a seek.
//!
//! ```text
//! fingerprint  │ prefix │ remainder      │ not kept │         prefix: which segment
//!                       └──────┬─────────┘
//! slot                  │ remainder      │ address  │         64 bits; slots of a segment ascend, with gaps between them
//!
//! segment      │ ▪▪·▪▪▪▪·▪▪▪▪ │ ▪▪▪▪·▪▪▪▪·▪▪ │ ▪▪▪·▪▪▪▪▪··· │ pages of 512 slots, 8 of 9 to 12 of 13 taken
//! ```
//!
//! Segments are split one at a time, in a fixed order, as blocks are added (linear hashing, Litwin 1980), and each grows by
//! one page or two when it is nearly full. All of it is made of equal pages, so that nothing fragments, and every stop is
//! as short as one pass over one segment: about 32,000 slots.
//!
//! What must always be true:
//! - Whatever was inserted, and not removed, is among the [candidates](ScoreIndex::candidates) of its fingerprint; or it is said
//!   that these are not all.
//! - A candidate is only that: it agrees in at least [`FINGERPRINT_BITS_MIN`] bits. Whoever asks verifies it by the full
//!   score.
//! - The same operations in the same order give the same index; it starts no thread, asks no time, and reads and writes nothing but
//!   through the `Storage` it was given.
//! - A [checkpoint](MemoryIndex::read_checkpoint), or a saved index on disk, comes back as it was written, or not at all. Lost or damaged, it costs the
//!   time of reading the log's directories: the index is a hint, the log is the truth.
//!
//! The index does not know what an address means, and never asks the log.

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
    DiskIndex, DiskIndexSettings, DiskIndexStats, Found, Near, OpenDiskIndexError, Ready, SaveDiskIndexError,
};
pub use memory_index::{BLOCK_COUNT_MAX, FINGERPRINT_BITS_MIN, IndexFull, MemoryIndex};
pub use score_index::ScoreIndex;
pub use spread::Spread;
pub use stats::IndexStats;
