//! `varve-lab snapshots`: Foundation's 400 snapshots of a disk, by the real engine in virtual time.

pub(crate) mod moved_blocks;
mod read_back;
mod setting;
mod source_disk;
mod take;
pub(crate) mod workload;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::amount;
use crate::simulated::device;
use setting::SnapshotSetting;
use take::take_snapshots;
use workload::DAYS;

#[derive(Debug, Clone, Args)]
pub(crate) struct Snapshots {
    /// Divides the disk, its changes, and the memory of the index and the page cache; blocks and
    /// arenas keep their size
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1024))]
    scale: u64,

    /// The days that pass
    #[arg(long, default_value_t = DAYS, value_parser = clap::value_parser!(u32).range(1..=i64::from(DAYS)))]
    days: u32,

    /// The settings of the store [default: both]
    #[arg(long = "setting", value_delimiter = ',', value_enum)]
    settings: Vec<SettingChoice>,

    /// The engines [default: all]
    #[arg(long = "engine", value_delimiter = ',', value_enum)]
    engines: Vec<SnapshotEngine>,

    /// Restore the disk of each Nth day
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(DAYS)))]
    restore_every: Option<u32>,

    /// The device of the log and the index: the name of one that the program knows, or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "foundation-maxtor")]
    device: String,

    /// The device with the disk that the snapshots are taken of
    #[arg(long, value_name = "NAME|FILE", default_value = "foundation-hitachi")]
    source: String,

    /// The page cache for data that was read or written, with the paper's settings
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = amount::bytes)]
    page_cache: u64,

    /// The seed of the disk and its changes
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The settings of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SettingChoice {
    /// Those of Foundation's paper: small arenas, an index on disk, and small caches
    Paper,
    /// Varve's own, on a machine with a page cache of a gigabyte
    Shipped,
}

/// The engine that takes the snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SnapshotEngine {
    /// By hash
    Hash,
    /// By value
    Value,
}

/// Takes the snapshots with each setting and engine. `done` receives one object for each.
pub(crate) fn run(args: &Snapshots, done: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
    let (log_device, source_device) = (device(&args.device)?, device(&args.source)?);
    let settings = chosen(&args.settings, &[SettingChoice::Paper, SettingChoice::Shipped]);
    let engines = chosen(&args.engines, &[SnapshotEngine::Hash, SnapshotEngine::Value]);
    for choice in settings {
        for engine in &engines {
            let setting = SnapshotSetting::new(choice, *engine, args.scale, args.page_cache)
                .context("a size of the settings is out of its bounds")?;
            let taken = take_snapshots(args, &setting, &log_device, &source_device)?;
            let restores = match args.restore_every {
                Some(_) => read_back::restore_all(&taken, &setting)?,
                None => Vec::new(),
            };
            done(json!({
                "type": "snapshot_simulation",
                "setting": setting.name,
                "engine": setting.engine_name,
                "scale": args.scale,
                "seed": args.seed,
                "device": log_device.name,
                "source": source_device.name,
                "page_cache_bytes": setting.page_cache.clean_bytes,
                "blocks": taken.columns(|day| day.blocks),
                "duplicates": taken.columns(|day| day.duplicates),
                "microseconds": taken.columns(|day| day.nanoseconds / 1000),
                "sum": taken.sum(),
                "restores": restores,
            }))?;
        }
    }
    Ok(())
}

fn chosen<T: Copy>(choices: &[T], all: &[T]) -> Vec<T> {
    if choices.is_empty() { all.to_vec() } else { choices.to_vec() }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::fs;
    use std::path::Path;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Snapshots,
    }

    fn simulated(args: &[&str]) -> Vec<Value> {
        let mut found = Vec::new();
        run(&Line::parse_from(["snapshots"].iter().chain(args)).args, &mut |value| {
            found.push(value);
            Ok(())
        })
        .unwrap();
        found
    }

    /// A change of the engine that costs or saves a transfer changes the stored result. `varve-lab
    /// snapshots` with these arguments writes it anew.
    #[test]
    fn a_small_run_gives_the_stored_result() {
        let runs = simulated(&["--scale", "256", "--days", "40", "--restore-every", "40"]);
        assert_eq!(runs.len(), 4, "two engines with each setting");
        let mut text = String::new();
        for run in &runs {
            writeln!(text, "{run}").unwrap();
        }
        let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/snapshots/small_run.json");
        assert!(
            text == fs::read_to_string(&stored).unwrap(),
            "{}: the result is now\n{text}",
            stored.display()
        );
        // The order of the engines is the paper's.
        let rate = |run: &Value| {
            let sum = &run["sum"];
            sum["blocks"].as_u64().unwrap() * 1_000_000_000 / sum["nanoseconds"].as_u64().unwrap()
        };
        let [hash, value] = [0, 1].map(|number| rate(&runs[number]));
        assert!(value < hash, "{value} {hash}");
    }

    #[test]
    fn a_device_that_is_not_there_is_named() {
        let line = Line::parse_from(["snapshots", "--device", "floppy"]);
        let error = run(&line.args, &mut |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("floppy"), "{error}");
    }
}
