//! The self-test of the device files: each model reproduces the published figures of its device.

use std::fs;
use std::path::{Path, PathBuf};

use varve_sim::{DeviceProfile, DeviceProfileError};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("devices");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn models_reproduce_the_published_figures() {
    let mut findings = Vec::new();
    let mut row_count = 0;
    for file in files() {
        let device = DeviceProfile::from_file(&file).unwrap();
        assert!(!device.published.is_empty(), "{}: a device has published figures", file.display());
        for row in &device.published {
            row_count += 1;
            let time = device.time_of(&row.pattern);
            let difference = (time / row.milliseconds - 1.0) * 100.0;
            let line = format!(
                "{}, {}: {:?} takes {time:.3} ms, published are {} ms: {difference:.1} %",
                device.name, row.place, row.pattern, row.milliseconds
            );
            println!("{line}");
            if difference.abs() > row.accept_percent {
                findings.push(line);
            }
        }
    }
    assert!(row_count > 80, "only {row_count} figures were compared");
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn a_file_that_describes_no_device_is_refused() {
    let changed_file = |name: &str, from: &str, to: &str| {
        let file = files().into_iter().find(|file| file.ends_with(format!("{name}.toml"))).unwrap();
        let text = fs::read_to_string(file).unwrap();
        assert!(text.contains(from), "{from}");
        DeviceProfile::from_text(&text.replacen(from, to, 1))
    };
    let changed = |from: &str, to: &str| changed_file("compaq-bd009222bb", from, to);
    for (from, to) in [("queue = 32", "queue = 0"), ("seek_full_ms = 10.5", "seek_full_ms = 0.5")] {
        assert!(matches!(changed(from, to), Err(DeviceProfileError::Shape { .. })), "{to}");
    }
    for (from, to) in [("command_ms = 0.1", "command_ms = nan"), ("bytes = 9100e6", "bytes = -1.0")] {
        assert!(matches!(changed(from, to), Err(DeviceProfileError::Value { .. })), "{to}");
    }
    for (from, to) in [("\"rotating\"", "\"round\""), ("queue", "queues"), ("depth = 1,", "")] {
        assert!(matches!(changed(from, to), Err(DeviceProfileError::Parse(_))), "{to}");
    }
    for (name, from, to) in [
        ("nand-module", "erase_block_bytes = 131072", "erase_block_bytes = 1000"),
        ("nand-module", "bytes = 1073741824", "bytes = 131072"),
        ("nand-module", "channels = 4", "channels = 0"),
        ("object-store", "connections = 32", "connections = 0"),
        ("wd800jb-shingled", "band_bytes = 33554432", "band_bytes = 1000"),
    ] {
        let found = changed_file(name, from, to);
        assert!(matches!(found, Err(DeviceProfileError::Shape { .. })), "{to}");
    }
}
