//! Devices for experiments in virtual time, by name or from a file, and storage on them.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use varve_sim::{
    DEVICE_NAMES, DeviceProfile, EmulatedStorage, FittedDevice, PageCacheLimits, TimedStorage, VirtualClock,
};
use varve_world::MemoryStorage;

/// Returns the device that the command line names.
pub(crate) fn device(name: &str) -> Result<DeviceProfile> {
    if let Some(known) = DeviceProfile::known(name) {
        return Ok(known);
    }
    if Path::new(name).extension().is_some_and(|extension| extension == "json") {
        return measured(name).with_context(|| format!("{name} has no measurements of a device"));
    }
    DeviceProfile::from_file(Path::new(name)).with_context(|| {
        format!("{name} is no device: name a TOML file, or one of {}", DEVICE_NAMES.join(", "))
    })
}

/// Reads the output of `varve-plan --json bench device`.
fn measured(name: &str) -> Result<DeviceProfile> {
    let mut output: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(name)?)?;
    let figures = FittedDevice {
        rows: serde_json::from_value(output["rows"].take())?,
        is_direct: output["is_direct"].as_bool().unwrap_or(false),
        sync_seconds: output["sync_seconds"].as_f64(),
        budget: serde_json::from_value(output["budget"].take())?,
    };
    Ok(DeviceProfile::fitted(name, "varve-plan bench device", figures)?)
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

    #[test]
    fn the_measurements_of_a_disk_are_a_device() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("device.json");
        let row = |action: &str, order: &str, per_second: u32| {
            format!(
                r#"{{"action":"{action}","order":"{order}","bytes":4096,"depth":1,"per_second":{per_second}}}"#
            )
        };
        let rows =
            [row("read", "sequential", 900), row("write", "sequential", 500), row("read", "random", 100)];
        let write = |rows: &[String]| {
            let rows = rows.join(",");
            std::fs::write(
                &file,
                format!(r#"{{"type":"device_benchmark","is_direct":true,"rows":[{rows}]}}"#),
            )
        };
        write(&rows).unwrap();
        assert_eq!(device(file.to_str().unwrap()).unwrap().source, "varve-plan bench device");
        write(&rows[..2]).unwrap();
        assert!(device(file.to_str().unwrap()).unwrap_err().to_string().contains("device.json"));
    }
}
