//! `varve-lab foundation`: measures each kind of store in the six cases of Foundation's Figure 5.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use varve_block::to_usize;
use varve_plan::Engine;
use varve_sim::{DeviceProfile, PageCacheLimits};
use varve_world::World;

use crate::cases::{CaseResult, Workload, run_cases};
use crate::forget::forget;
use crate::simulated::{device, timed_storage};
use crate::uncached::UncachedStorage;
use crate::{amount, scratch};

#[derive(Debug, Clone, Args)]
pub(crate) struct Foundation {
    /// A folder on the disk
    #[arg(required_unless_present = "device")]
    folder: Option<PathBuf>,

    /// The block sizes, powers of two from 512 to 64K; several sizes are measured one after the
    /// other
    #[arg(long = "block-size", value_name = "BYTES", value_delimiter = ',', default_value = "512,4096,8192", value_parser = amount::bytes)]
    block_sizes: Vec<u64>,

    /// The number of blocks in a store
    #[arg(long, value_name = "BLOCKS", default_value = "200K", value_parser = amount::count)]
    blocks: u64,

    /// The number of blocks that are requested one by one
    #[arg(long, value_name = "BLOCKS", default_value = "2000", value_parser = amount::count)]
    sample: u64,

    /// The engines [default: all]
    #[arg(long = "engine", value_name = "ENGINE", value_delimiter = ',', value_enum)]
    engines: Vec<EngineChoice>,

    /// The share of a block that does not compress
    #[arg(long, value_name = "SHARE", default_value = "50%", value_parser = amount::share)]
    incompressible: f64,

    /// The memory of an index on disk, beside its filter
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = amount::bytes)]
    index_memory: u64,

    /// Simulate a device, in virtual time and without a page cache: the name of one that the
    /// program knows, or a TOML file
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "folder")]
    device: Option<String>,

    /// The seed of the blocks
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The subject of the six cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EngineChoice {
    /// By hash, with the index in memory
    HashMemory,
    /// By hash, with the index on disk
    HashDisk,
    /// By value, with the index in memory
    ValueMemory,
    /// By value, with the index on disk
    ValueDisk,
}

/// Runs the measurements. `done` receives one object for each kind of store and block size.
pub(crate) fn run(args: &Foundation, done: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
    for block_bytes in &args.block_sizes {
        for engine in chosen(&args.engines) {
            let workload = Workload {
                block_bytes: to_usize(*block_bytes),
                block_count: to_usize(args.blocks),
                sample_count: to_usize(args.sample),
                incompressible: args.incompressible,
                index_memory: args.index_memory,
                seed: args.seed,
            };
            let mut object = match (&args.device, &args.folder) {
                (Some(name), _) => simulated(&device(name)?, engine, &workload)?,
                (None, Some(folder)) => measured(folder, engine, &workload)?,
                (None, None) => bail!("name a folder or a device"),
            };
            object["type"] = json!("foundation_benchmark");
            object["engine"] = json!(engine.name());
            object["block_bytes"] = json!(block_bytes);
            object["block_count"] = json!(args.blocks);
            done(object)?;
        }
    }
    Ok(())
}

/// Puts an engine through the cases on the disk with `folder`.
fn measured(folder: &Path, engine: Engine, workload: &Workload) -> Result<Value> {
    let scratch = scratch(folder)?;
    let storage = Arc::new(UncachedStorage::new(scratch.path()));
    let world = World { storage: Arc::clone(&storage) as _, ..World::real(scratch.path()) };
    let results = run_cases(&world, engine, workload, &|| forget(scratch.path()), &mut |_| {});
    let failed = || format!("the engine could not be measured in {}", folder.display());
    let cases = results.with_context(failed)?.iter().map(case_json).collect::<Result<Vec<Value>>>()?;
    Ok(json!({ "is_direct": storage.is_direct(), "cases": cases }))
}

/// Puts an engine through the cases in virtual time, on a device without a page cache.
fn simulated(device: &DeviceProfile, engine: Engine, workload: &Workload) -> Result<Value> {
    let (storage, clock) = timed_storage(device, PageCacheLimits::default());
    let deterministic = World::deterministic(Arc::clone(&storage) as _, workload.seed);
    let world = World { clock, ..deterministic };
    let results = run_cases(&world, engine, workload, &|| storage.forget(), &mut |_| {});
    let failed = || format!("the engine could not be simulated on {}", device.name);
    let cases = results.with_context(failed)?.iter().map(case_json).collect::<Result<Vec<Value>>>()?;
    Ok(json!({ "device": device.name, "cases": cases }))
}

/// Returns the chosen engines in the order of output.
fn chosen(choices: &[EngineChoice]) -> Vec<Engine> {
    let [hash_memory, hash_disk, value_memory, value_disk] = Engine::CHOICES;
    let all = [
        (EngineChoice::HashMemory, hash_memory),
        (EngineChoice::HashDisk, hash_disk),
        (EngineChoice::ValueMemory, value_memory),
        (EngineChoice::ValueDisk, value_disk),
    ];
    let is_chosen = |choice: &EngineChoice| choices.is_empty() || choices.contains(choice);
    all.into_iter().filter(|(choice, _)| is_chosen(choice)).map(|(_, engine)| engine).collect()
}

fn case_json(result: &CaseResult) -> Result<Value> {
    let mut value = serde_json::to_value(result)?;
    value["megabytes_per_second"] = json!(result.rate());
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Foundation,
    }

    fn lines_of(args: &[&str]) -> Vec<Value> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let line = Line::parse_from(["foundation", path].iter().chain(args));
        let mut found = Vec::new();
        run(&line.args, &mut |value| {
            found.push(value);
            Ok(())
        })
        .unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "it leaves nothing behind");
        found
    }

    #[test]
    fn the_engine_is_put_through_the_six_cases() {
        let runs = lines_of(&["--blocks", "2K", "--sample", "30", "--block-size", "512,4096"]);
        assert_eq!(runs.len(), 8, "each kind of store, with each size of block");
        for run in &runs {
            let cases = run["cases"].as_array().unwrap();
            assert_eq!(cases.len(), 6);
            let of = |name: &str| cases.iter().find(|case| case["case"] == name).unwrap();
            assert_eq!(of("fresh-write")["blocks"], 2000);
            let index = &of("sequential-duplicate")["index"];
            assert_eq!(index["lookups"], 2000);
            assert_eq!(of("out-of-order-read")["blocks"], 30);
            assert!(of("out-of-order-read")["disk"]["reads"].as_u64().unwrap() > 0);
            assert!(of("fresh-write")["disk"]["written_bytes"].as_u64().unwrap() > 500_000);
        }
        let few =
            ["--blocks", "500", "--sample", "5", "--block-size", "512", "--engine", "value-disk,hash-disk"];
        let names: Vec<_> = lines_of(&few).iter().map(|run| run["engine"].clone()).collect();
        assert_eq!(names, ["by hash, index on disk", "by value, index on disk"]);
    }

    #[test]
    fn a_device_takes_the_place_of_a_folder() {
        let line = ["foundation", "--device", "foundation-maxtor", "--blocks", "500", "--sample", "5"];
        let line = Line::parse_from(line.iter().chain(&["--block-size", "4096", "--engine", "hash-disk"]));
        let mut found = Vec::new();
        run(&line.args, &mut |value| {
            found.push(value);
            Ok(())
        })
        .unwrap();
        assert_eq!(found[0]["cases"].as_array().unwrap().len(), 6);
        assert!(found[0]["device"].as_str().unwrap().contains("Maxtor"), "{}", found[0]);
        assert!(Line::try_parse_from(["foundation"]).is_err());
    }

    /// The bare medium of a shingled disk destroys the data behind a write in place. The engine
    /// only appends.
    #[test]
    fn on_overlapping_tracks_every_engine_is_unharmed() {
        let line = ["foundation", "--device", "wd800jb-shingled-bare", "--blocks", "8000", "--sample", "20"];
        let line = Line::parse_from(line.iter().chain(&["--block-size", "512"]));
        run(&line.args, &mut |_| Ok(())).unwrap();
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let line = Line::parse_from(["foundation", "/nowhere"]);
        let error = run(&line.args, &mut |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("there is no folder /nowhere"), "{error}");
    }
}
