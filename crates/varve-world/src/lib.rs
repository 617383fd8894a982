//! The world, as the engine sees it: a folder of files, a clock, random bytes, and hands to do work.
//!
//! Nothing above this crate opens a file of a store, asks the time, draws a random byte or starts a thread by itself; it
//! asks the [`World`] it was given. So the same engine runs on a disk, in memory, and in a simulation.
//!
//! What must always be true: the in-memory forms promise exactly what the real ones do. `contract` holds them to it.

mod clock;
#[cfg(any(test, feature = "contract"))]
pub mod contract;
mod in_order;
mod memory;
mod page_buffer;
mod random;
mod real;
mod storage;
mod uncached;
mod workers;

use std::path::Path;
use std::sync::Arc;

pub use clock::{Clock, FixedClock, RealClock, Timestamp};
pub use in_order::{Claims, Turn, work_in_order};
pub use memory::MemoryStorage;
pub use page_buffer::{PAGE_BYTES, PageBuffer};
pub use random::{Random, RealRandom, SeededRandom};
pub use real::RealStorage;
pub use storage::{
    FileLock, FileName, FileNameError, LockError, Storage, is_exhausted, is_out_of_descriptors,
};
pub use uncached::open_uncached;
pub use workers::{InlineWorkers, RealWorkers, Task, Workers, both, read_each, read_each_with};

/// All of it together, as cheap to clone as four pointers.
#[derive(Clone)]
pub struct World {
    /// The store's folder.
    pub storage: Arc<dyn Storage>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Bytes that nobody can guess.
    pub random: Arc<dyn Random>,
    /// Who does the work.
    pub workers: Arc<dyn Workers>,
}

impl World {
    /// The world as it is: files in `folder`, the time of day, bytes from the system, and a hand for each core.
    #[must_use]
    pub fn real(folder: &Path) -> Self {
        Self {
            storage: Arc::new(RealStorage::new(folder)),
            clock: Arc::new(RealClock),
            random: Arc::new(RealRandom),
            workers: Arc::new(RealWorkers::one_a_core()),
        }
    }

    /// A world in which the same work always gives the same bytes: time stands still at 1970, random bytes come from
    /// `seed`, and work is done at once. For tests and simulations; a store made in it keeps no secret.
    #[must_use]
    pub fn deterministic(storage: Arc<dyn Storage>, seed: u64) -> Self {
        Self {
            storage,
            clock: Arc::new(FixedClock(Timestamp(0))),
            random: Arc::new(SeededRandom::new(seed)),
            workers: Arc::new(InlineWorkers),
        }
    }
}
