//! `varve-lab devices`: the models of devices beside the published figures of these devices.

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Value, json};
use varve_sim::DEVICE_NAMES;

use crate::simulated::device;

#[derive(Debug, Clone, Args)]
pub(crate) struct Devices {
    /// The names of devices that the program knows, or files: TOML, or the output of `varve --json
    /// bench device` [default: all that it knows]
    #[arg(value_name = "NAME|FILE")]
    devices: Vec<String>,
}

/// Compares each device with its published figures. `done` receives one object for each figure.
/// Fails at the end if a figure differs by more than its file accepts.
pub(crate) fn run(args: &Devices, done: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
    let all: Vec<_> = DEVICE_NAMES.iter().map(|name| (*name).to_owned()).collect();
    let names = if args.devices.is_empty() { &all } else { &args.devices };
    let mut failed = Vec::new();
    for name in names {
        let device = device(name)?;
        for row in &device.published {
            let milliseconds = device.time_of(&row.pattern);
            let difference_percent = (milliseconds / row.milliseconds - 1.0) * 100.0;
            if difference_percent.abs() > row.accept_percent {
                failed.push(format!("{name}, {}: {difference_percent:.1} %", row.place));
            }
            done(json!({
                "type": "device_figure",
                "device": name,
                "name": device.name,
                "place": row.place,
                "pattern": row.pattern,
                "published_milliseconds": row.milliseconds,
                "milliseconds": milliseconds,
                "difference_percent": difference_percent,
                "accept_percent": row.accept_percent,
            }))?;
        }
    }
    if !failed.is_empty() {
        bail!(
            "models that differ from published figures by more than their file accepts: {}",
            failed.join("; ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn figures(devices: &[&str]) -> (Vec<Value>, Result<()>) {
        let args = Devices { devices: devices.iter().map(|name| (*name).to_owned()).collect() };
        let mut found = Vec::new();
        let outcome = run(&args, &mut |value| {
            found.push(value);
            Ok(())
        });
        (found, outcome)
    }

    #[test]
    fn a_device_is_compared_with_its_figures() {
        let (found, outcome) = figures(&["compact-flash-ide", "mems-first"]);
        outcome.unwrap();
        assert_eq!(found.len(), 10);
        assert_eq!(found[0]["place"], "Table 4.8");
    }

    #[test]
    fn one_file_adds_a_device() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mine.toml");
        let text = r#"
            name = "mine"
            source = "measured"
            model = { kind = "constant", seek_ms = 5, read_bytes_per_second = 1e8, write_bytes_per_second = 1e8 }
            [[published]]
            place = "a note"
            pattern = { action = "read", is_random = true, bytes = 4096, depth = 1, span_bytes = 1000000000 }
            milliseconds = 5
            accept_percent = 5
        "#;
        fs::write(&file, text).unwrap();
        let (found, outcome) = figures(&[file.to_str().unwrap()]);
        outcome.unwrap();
        assert_eq!(found[0]["name"], "mine");
        fs::write(&file, text.replace("milliseconds = 5", "milliseconds = 6")).unwrap();
        let (found, outcome) = figures(&[file.to_str().unwrap()]);
        assert_eq!(found.len(), 1);
        assert!(outcome.unwrap_err().to_string().contains("a note: -16.0 %"));
    }
}
