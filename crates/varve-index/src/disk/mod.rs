//! The index on disk, for stores with too many blocks for one word of memory each.
//!
//! ```text
//! filter    │ a key is certainly absent, or may be present        memory, 2 bytes a block
//! active    │ new entries, in order with gaps                     memory, a fixed share
//! frozen    │ a full buffer that is being merged                  memory, a fixed share
//! nearby    │ neighbours of the entries that were found last      memory, a fixed share
//! run       │▪▪▪▪▪▪▪▪│▪▪▪▪▪▪▪▪│▪▪▪▪▪▪▪▪│…  all others, in order   disk, 8 to 10 bytes a block
//!             fence    fence    fence   first key of each page  memory, 8 bytes for 400 blocks
//! ```
//!
//! A look-up of a key that the filter rejects costs nothing more. Other keys are searched in the
//! buffers and in the cache of neighbours, and only then on disk, in one page. When the active
//! buffer is full, it is frozen. Then a [pass](pass) merges it with the present run into the next
//! run, in the order of keys. The work is divided among the insertions, so that none waits long; so
//! is the preparation of the [memory](spare) that is needed next.
//!
//! Nothing is written in place. A [summary](summary) names the valid run, and is replaced when the
//! next run is durable. So a crash leaves the previous run, with the note that names the part of
//! the log that it covers.
//!
//! Entries are not removed one by one. A collector that replaces a part of the log marks its
//! addresses as [outdated], and the next pass leaves out the entries of the run there.

mod buffer;
mod disk_index;
mod filter;
mod nearby;
mod outdated;
mod page;
mod pass;
mod run;
mod spare;
mod state;
mod stats;
mod summary;
mod table;

use varve_block::LogAddress;

pub use disk_index::{
    DiskIndex, DiskIndexSettings, FoundAddresses, NearAddresses, ReadyRun, SaveDiskIndexError,
};
pub use stats::DiskIndexStats;
pub use summary::OpenDiskIndexError;

/// The leading bits of a fingerprint with zeros after them, and the candidate address of that
/// block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct IndexEntry {
    key: u64,
    address: LogAddress,
}
