//! `varve-lab foundation`: measures each kind of store in the six cases of Foundation's Figure 5.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use varve_plan::Engine;
use varve_world::World;

use crate::cases::{CaseResult, Workload, run_cases};
use crate::forget::forget;
use crate::uncached::UncachedStorage;
use crate::{amount, scratch};

#[derive(Debug, Clone, Args)]
pub(crate) struct Foundation {
    /// A folder on the disk
    folder: PathBuf,

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

    /// The seed of the blocks
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The subject of the six cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EngineChoice {
    /// Venti's own algorithm
    Venti,
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
            let folder = scratch(&args.folder)?;
            let workload = Workload {
                block_bytes: usize::try_from(*block_bytes)?,
                block_count: usize::try_from(args.blocks)?,
                sample_count: usize::try_from(args.sample)?,
                incompressible: args.incompressible,
                index_memory: args.index_memory,
                seed: args.seed,
            };
            let storage = Arc::new(UncachedStorage::new(folder.path()));
            let world = World { storage: Arc::clone(&storage) as _, ..World::real(folder.path()) };
            let forget = || forget(folder.path());
            let results = run_cases(&world, engine, &workload, &forget, &mut |_| {});
            let failed = || format!("the engine could not be measured in {}", args.folder.display());
            let cases =
                results.with_context(failed)?.iter().map(case_json).collect::<Result<Vec<Value>>>()?;
            done(json!({
                "type": "foundation_benchmark",
                "engine": engine.name(),
                "block_bytes": block_bytes,
                "block_count": args.blocks,
                "is_direct": storage.is_direct(),
                "cases": cases,
            }))?;
        }
    }
    Ok(())
}

/// Returns the chosen engines in the order of output.
fn chosen(choices: &[EngineChoice]) -> Vec<Engine> {
    let [hash_memory, hash_disk, value_memory, value_disk] = Engine::CHOICES;
    let all = [
        (EngineChoice::Venti, Engine::VENTI),
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

    fn measured(args: &[&str]) -> Vec<Value> {
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
        let runs = measured(&["--blocks", "2K", "--sample", "30", "--block-size", "512,4096"]);
        assert_eq!(runs.len(), 10, "each kind of store and Venti's algorithm, with each size of block");
        for run in &runs {
            let cases = run["cases"].as_array().unwrap();
            assert_eq!(cases.len(), 6);
            let of = |name: &str| cases.iter().find(|case| case["case"] == name).unwrap();
            assert_eq!(of("fresh-write")["blocks"], 2000);
            let index = &of("sequential-duplicate")["index"];
            assert_eq!(index["lookups"], 2000);
            if run["engine"] == "Venti's algorithm" {
                assert!(index["pages_read"].as_u64().unwrap() >= 2000, "{index}");
            }
            assert_eq!(of("out-of-order-read")["blocks"], 30);
            assert!(of("out-of-order-read")["disk"]["reads"].as_u64().unwrap() > 0);
            assert!(of("fresh-write")["disk"]["written_bytes"].as_u64().unwrap() > 500_000);
        }
        let few = ["--blocks", "500", "--sample", "5", "--block-size", "512", "--engine", "value-disk,venti"];
        let names: Vec<_> = measured(&few).iter().map(|run| run["engine"].clone()).collect();
        assert_eq!(names, ["Venti's algorithm", "by value, index on disk"]);
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let line = Line::parse_from(["foundation", "/nowhere"]);
        let error = run(&line.args, &mut |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("there is no folder /nowhere"), "{error}");
    }
}
