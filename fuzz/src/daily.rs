//! The configuration of daily work.

use std::path::Path;

use varve_daily::{ConfigText, DailyConfig};

/// The files of a configuration, separated by lines of `---`.
pub fn daily_config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let parts = text.split("\n---\n").enumerate();
    let file =
        |(number, text): (usize, &str)| ConfigText { name: format!("{number}.toml"), text: text.to_owned() };
    let files: Vec<_> = parts.map(file).collect();
    match DailyConfig::read(&files, Path::new("/etc/varve")) {
        Ok(config) => {
            for source in config.sources.values() {
                assert!(config.store(&source.store).is_some(), "a source has a store");
                assert!(source.spread < source.every.shortest(), "a spread ends before the next boundary");
            }
        }
        Err(errors) => {
            assert!(!errors.faults().is_empty());
            for fault in errors.faults() {
                let file = files.iter().find(|file| file.name == *fault.place.file);
                let line_count = file.map_or(1, |file| file.text.split('\n').count());
                assert!((1..=line_count).contains(&fault.place.line), "{fault}");
            }
        }
    }
}

/// A configuration of two files.
#[must_use]
pub fn daily_config_seeds() -> Vec<Vec<u8>> {
    let whole = r#"time-zone = "Europe/Berlin"
state = "/var/lib/varve"
[store.main]
at = "/backup/store"
key-file = "credential:main"
wait = "2h"
[defaults]
every = "day at 02:00, 14:00"
spread = "45m"
only-when = { power = "mains or 60%" }
at-the-latest = "3d"
keep = { daily = 30, yearly = "all", within = "1m15d" }
[source.home]
folder = "/home"
exclude = ["*.tmp"]
one-file-system = true
[source.db]
command = ["pg_dump", "orders"]
as = "orders.dump"
every = "6h"
[source.db.hooks]
before = { run = ["true"], timeout = "2m" }
[replica.usb]
at = "/media/usb"
when = "present"
---
[replica.cloud]
at = "s3://bucket/x"
every = "week on mon..fri,sun at 03:00"
[care]
verify = { share = "3%", every = "month on last at 01:00" }
reclaim = { every = "week", at-most = "2h" }
[promise]
snapshot-within = "30h"
room-for = "45d"
"#;
    vec![whole.as_bytes().to_vec()]
}
