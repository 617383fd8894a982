//! The index on disk: for stores whose blocks are too many to keep a word of memory for each.
//!
//! ```text
//! filter    │ a key is surely not there, or may be                        memory, 2 bytes a block
//! active    │ new entries, in order with gaps                             memory, a fixed share
//! frozen    │ the same, full: on its way into the next run                memory, a fixed share
//! nearby    │ entries that stand beside what was found last               memory, a fixed share
//! run       │▪▪▪▪▪▪▪▪│▪▪▪▪▪▪▪▪│▪▪▪▪▪▪▪▪│…  all others, in order           disk, 8 to 10 bytes a block
//!             fence     fence     fence    the first key of each page     memory, 8 bytes for 400 blocks
//! ```
//!
//! A new key that the filter does not know costs nothing more. One that it knows is looked for in the buffers and in the cache
//! of neighbours, and only then on disk, in one page. When the active buffer is full it is frozen, and a [pass](pass) writes the
//! next run from it and the run before, in the order of keys. The work is divided among the insertions, so none waits long; so is making
//! ready the [memory](spare) that is needed next.
//!
//! Nothing is written in place, if the index was not made [to be](in_place) for comparison: a [summary](summary) names the run that holds, and is replaced when the next run is durable. So
//! a crash leaves the run before, with the note that says which part of the log it covers.

mod buffer;
mod disk_index;
mod filter;
mod in_place;
mod nearby;
mod page;
mod pass;
mod run;
mod spare;
mod state;
mod stats;
mod summary;
mod table;

use varve_block::LogAddress;

pub use disk_index::{DiskIndex, DiskIndexSettings, Found, Near, Ready, SaveDiskIndexError};
pub use stats::DiskIndexStats;
pub use summary::OpenDiskIndexError;

/// The leading bits of a fingerprint, the rest zeros; and where that block may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    key: u64,
    address: LogAddress,
}
