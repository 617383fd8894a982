//! The world as the engine sees it: a folder of files, a clock, random bytes, and workers.
//!
//! No crate above this one opens a store's files, reads the time, draws random bytes or starts
//! threads by itself; it uses the [`World`] that it was given. The same engine therefore runs on a
//! disk, in memory, and in a simulation.
//!
//! Read first: `storage.rs` (a folder of files), `workers.rs` (threads) and `in_order.rs` (work on
//! many threads whose results are taken over in order).
//!
//! Invariant: the in-memory implementations promise exactly what the real ones do. `contract` tests
//! this.

mod clock;
#[cfg(any(test, feature = "contract"))]
pub mod contract;
mod forward;
mod in_order;
mod locked_file;
mod memory;
mod other_program;
mod page_buffer;
mod random;
mod real;
mod stop_signal;
mod storage;
mod support;
mod trusted_file;
mod uncached;
mod weighted_cache;
mod workers;

use std::path::Path;
use std::sync::Arc;

pub use clock::{Clock, FixedClock, RealClock, Timestamp};
pub use in_order::{Claims, Turn, work_in_order};
pub use locked_file::LockedFile;
pub use memory::MemoryStorage;
pub use other_program::bounded_run::{FinishedProgram, RunProgramError, one_line};
pub use other_program::hidden_secrets::other_program;
pub use other_program::program_group::{EarlyEnd, PROGRAM_GRACE, ProgramGroup, signal_program_groups};
pub use page_buffer::{PAGE_BYTES, PageBuffer};
pub use random::{Random, RealRandom, SeededRandom};
pub use real::RealStorage;
pub use stop_signal::StopSignal;
pub use storage::{
    FileLock, FileName, FileNameError, FreeSpace, LockError, Storage, is_exhausted, is_out_of_descriptors,
};
pub use support::{is_unsupported, sync_open_folder};
pub use trusted_file::{DistrustError, FileUse, open_trusted, require_trusted, require_trusted_program};
pub use uncached::open_uncached;
pub use weighted_cache::{FixedHasher, weighted_cache};
pub use workers::{InlineWorkers, RealWorkers, Task, Workers, both, read_each, read_each_with};

/// The parts of a world. Cloning it costs as much as cloning four pointers.
#[derive(Clone)]
pub struct World {
    /// The store's folder.
    pub storage: Arc<dyn Storage>,
    pub clock: Arc<dyn Clock>,
    /// Unpredictable bytes.
    pub random: Arc<dyn Random>,
    pub workers: Arc<dyn Workers>,
}

impl World {
    /// The real world: files in `folder`, the machine's clock, the system's random bytes, and a
    /// worker for each core.
    #[must_use]
    pub fn real(folder: &Path) -> Self {
        Self {
            storage: Arc::new(RealStorage::new(folder)),
            clock: Arc::new(RealClock),
            random: Arc::new(RealRandom),
            workers: Arc::new(RealWorkers::one_a_core()),
        }
    }

    /// A world in which the same work always gives the same bytes: the time is always 1970, random
    /// bytes come from `seed`, and tasks run at once on the caller's thread. For tests and
    /// simulations only: a store made in it is not secret.
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
