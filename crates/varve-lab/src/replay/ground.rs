//! The disk and the time of a replay: a modelled device, or a real folder.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use tempfile::TempDir;
use varve_sim::{
    DeviceProfile, DeviceTimes, EmulatedStorage, FailingStorage, FailureProfile, PageCacheLimits,
    TimedStorage, VirtualClock,
};
use varve_world::{MemoryStorage, Storage, World};

use crate::forget::forget;
use crate::scratch;
use crate::uncached::UncachedStorage;

/// The disk and the time of a replay.
pub(super) enum ReplayGround {
    Simulated { clock: Arc<VirtualClock>, storage: Arc<TimedStorage>, failing: Option<Arc<FailingStorage>> },
    Real { folder: TempDir, storage: Arc<UncachedStorage> },
}

impl ReplayGround {
    /// Makes an empty storage on a device, which fails as the file `failures` says.
    pub(super) fn simulated(
        device: &DeviceProfile,
        limits: PageCacheLimits,
        failures: Option<&Path>,
        seed: u64,
    ) -> Result<Self> {
        let clock = Arc::new(VirtualClock::new());
        let emulated = Arc::new(EmulatedStorage::new(Arc::new(MemoryStorage::new())));
        let storage = Arc::new(TimedStorage::new(emulated, Arc::clone(&clock), device, limits));
        let failing = failures.map(|file| failing_storage(&storage, &clock, file, seed));
        Ok(Self::Simulated { failing: failing.transpose()?, clock, storage })
    }

    pub(super) fn real(folder: &Path) -> Result<Self> {
        let folder = scratch(folder)?;
        Ok(Self::Real { storage: Arc::new(UncachedStorage::new(folder.path())), folder })
    }

    pub(super) fn world(&self, seed: u64) -> World {
        match self {
            Self::Simulated { clock, storage, failing } => {
                let used: Arc<dyn Storage> = match failing {
                    Some(failing) => Arc::clone(failing) as _,
                    None => Arc::clone(storage) as _,
                };
                World { clock: Arc::clone(clock) as _, ..World::deterministic(used, seed) }
            }
            Self::Real { folder, storage } => {
                let deterministic = World::deterministic(Arc::clone(storage) as _, seed);
                World { clock: World::real(folder.path()).clock, ..deterministic }
            }
        }
    }

    /// Empties the page cache.
    pub(super) fn forget(&self) {
        match self {
            Self::Simulated { storage, .. } => storage.forget(),
            Self::Real { folder, .. } => forget(folder.path()),
        }
    }

    /// Lets a pause pass. Returns its nanoseconds, of which a real disk has none.
    pub(super) fn pause(&self, milliseconds: u64) -> u64 {
        let Self::Simulated { clock, .. } = self else { return 0 };
        let nanoseconds = milliseconds.saturating_mul(1_000_000);
        clock.advance(nanoseconds);
        nanoseconds
    }

    /// Lets the processor work on bytes at a rate. A real one has worked already.
    pub(super) fn work(&self, bytes_per_second: Option<u64>, bytes: u64) {
        if let (Self::Simulated { clock, .. }, Some(rate)) = (self, bytes_per_second) {
            clock.advance(bytes.saturating_mul(1_000_000_000) / rate.max(1));
        }
    }

    /// Returns the work of the device since the last call, for the index and for all else. That of
    /// a real disk is not known.
    pub(super) fn take_times(&self) -> [DeviceTimes; 2] {
        match self {
            Self::Simulated { storage, .. } => storage.take_times(),
            Self::Real { .. } => [DeviceTimes::default(); 2],
        }
    }

    pub(super) fn failing(&self) -> Option<&FailingStorage> {
        match self {
            Self::Simulated { failing, .. } => failing.as_deref(),
            Self::Real { .. } => None,
        }
    }
}

/// Puts the failures of a file before a storage.
fn failing_storage(
    storage: &Arc<TimedStorage>,
    clock: &Arc<VirtualClock>,
    file: &Path,
    seed: u64,
) -> Result<Arc<FailingStorage>> {
    let profile = FailureProfile::from_file(file)
        .with_context(|| format!("{} does not describe failures", file.display()))?;
    Ok(Arc::new(FailingStorage::new(Arc::clone(storage) as _, Arc::clone(clock), profile, seed)))
}
