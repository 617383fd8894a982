//! Devices for experiments in virtual time, by name or from a file, and storage on them.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use varve_sim::{DEVICE_NAMES, DeviceProfile, EmulatedStorage, PageCacheLimits, TimedStorage, VirtualClock};
use varve_world::MemoryStorage;

/// Returns the device that the command line names.
pub(crate) fn device(name: &str) -> Result<DeviceProfile> {
    if let Some(known) = DeviceProfile::known(name) {
        return Ok(known);
    }
    DeviceProfile::from_file(Path::new(name)).with_context(|| {
        format!("{name} is no device: name a TOML file, or one of {}", DEVICE_NAMES.join(", "))
    })
}

/// Makes an empty storage on a device, and its clock.
pub(crate) fn timed_storage(
    device: &DeviceProfile,
    limits: PageCacheLimits,
) -> (Arc<TimedStorage>, Arc<VirtualClock>) {
    let clock = Arc::new(VirtualClock::new());
    let emulated = Arc::new(EmulatedStorage::new(Arc::new(MemoryStorage::new())));
    (Arc::new(TimedStorage::new(emulated, Arc::clone(&clock), device, limits)), clock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_device_is_named_beside_those_that_are_known() {
        let error = device("floppy").unwrap_err().to_string();
        assert!(error.contains("floppy") && error.contains("foundation-maxtor"), "{error}");
    }
}
