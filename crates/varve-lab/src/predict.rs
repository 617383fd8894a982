//! `varve-lab predict`: the times of the six cases on a real disk beside those that the simulator
//! predicts for it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};
use varve_plan::{Case, Engine};
use varve_sim::{DeviceProfile, PageCacheLimits};
use varve_world::{InlineWorkers, MemoryStorage, World};

use crate::cases::{Workload, run_cases};
use crate::forget::forget;
use crate::simulated::{device, timed_storage};
use crate::uncached::UncachedStorage;
use crate::{amount, scratch};

#[derive(Debug, Clone, Args)]
pub(crate) struct Predict {
    /// A folder on the disk
    folder: PathBuf,

    /// The same disk as a device: the output of `varve --json bench device`, or a TOML file
    #[arg(long, value_name = "FILE")]
    device: String,

    /// The block sizes, powers of two from 512 to 64K
    #[arg(long = "block-size", value_name = "BYTES", value_delimiter = ',', default_value = "512,4096,8192", value_parser = amount::bytes)]
    block_sizes: Vec<u64>,

    /// The number of blocks in a store
    #[arg(long, value_name = "BLOCKS", default_value = "50K", value_parser = amount::count)]
    blocks: u64,

    /// The number of blocks that are requested one by one
    #[arg(long, value_name = "BLOCKS", default_value = "500", value_parser = amount::count)]
    sample: u64,

    /// The runs on the disk and in memory, of which the fastest count
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// The seed of the blocks
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the cases on the disk, in memory, and on the device. `done` receives one object for each
/// case, and one for all of them.
///
/// The work in memory is that of the processor. The prediction is its time, and the time of the
/// device. All of them run one task at a time.
pub(crate) fn run(args: &Predict, done: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
    let device = device(&args.device)?;
    let mut errors = Vec::new();
    for block_bytes in &args.block_sizes {
        for engine in [&[Engine::VENTI], &Engine::CHOICES[..]].concat() {
            let workload = Workload {
                block_bytes: usize::try_from(*block_bytes)?,
                block_count: usize::try_from(args.blocks)?,
                sample_count: usize::try_from(args.sample)?,
                incompressible: 0.5,
                index_memory: 1 << 20,
                seed: args.seed,
            };
            let device_times = on_device(&device, engine, &workload)?;
            let (mut disk_times, mut memory_times) = (vec![u64::MAX; 6], vec![u64::MAX; 6]);
            for _ in 0..args.rounds {
                keep_fastest(&mut disk_times, on_disk(args, engine, &workload)?);
                keep_fastest(&mut memory_times, in_memory(args, engine, &workload)?);
            }
            for (place, (case, on_device)) in device_times.into_iter().enumerate() {
                let (measured, processor) = (disk_times[place], memory_times[place]);
                let error = percent_between(processor + on_device, measured);
                errors.push(error.abs());
                done(json!({
                    "type": "predicted_case",
                    "engine": engine.name(),
                    "block_bytes": block_bytes,
                    "case": case,
                    "measured_nanoseconds": measured,
                    "processor_nanoseconds": processor,
                    "device_nanoseconds": on_device,
                    "error_percent": error,
                }))?;
            }
        }
    }
    errors.sort_by(f64::total_cmp);
    done(json!({
        "type": "prediction",
        "cases": errors.len(),
        "median_error_percent": errors.get(errors.len() / 2),
        "worst_error_percent": errors.last(),
    }))
}

/// Returns the error of a prediction in percent of the measurement.
#[expect(clippy::cast_precision_loss, reason = "errors are shown with few digits")]
fn percent_between(predicted: u64, measured: u64) -> f64 {
    (predicted as f64 / (measured as f64).max(1.0) - 1.0) * 100.0
}

fn keep_fastest(kept: &mut [u64], run: Vec<u64>) {
    for (kept, new) in kept.iter_mut().zip(run) {
        *kept = new.min(*kept);
    }
}

/// Returns the time of each case in nanoseconds, in the order of cases.
fn times(world: &World, engine: Engine, workload: &Workload, forget: &dyn Fn()) -> Result<Vec<(Case, u64)>> {
    let results = run_cases(world, engine, workload, forget, &mut |_| {})?;
    Ok(results.iter().map(|result| (result.case, result.nanoseconds)).collect())
}

fn on_device(device: &DeviceProfile, engine: Engine, workload: &Workload) -> Result<Vec<(Case, u64)>> {
    let (storage, clock) = timed_storage(device, PageCacheLimits::default());
    let deterministic = World::deterministic(Arc::clone(&storage) as _, workload.seed);
    let world = World { clock, ..deterministic };
    times(&world, engine, workload, &|| storage.forget()).context("the engine could not be simulated")
}

fn on_disk(args: &Predict, engine: Engine, workload: &Workload) -> Result<Vec<u64>> {
    let scratch = scratch(&args.folder)?;
    let storage = Arc::new(UncachedStorage::new(scratch.path()));
    let real = World::real(scratch.path());
    let world = World { storage, workers: Arc::new(InlineWorkers), ..real };
    let found = times(&world, engine, workload, &|| forget(scratch.path()));
    let failed = || format!("the engine could not be measured in {}", args.folder.display());
    Ok(found.with_context(failed)?.into_iter().map(|(_, time)| time).collect())
}

fn in_memory(args: &Predict, engine: Engine, workload: &Workload) -> Result<Vec<u64>> {
    let real = World::real(&args.folder);
    let storage = Arc::new(MemoryStorage::new());
    let world = World { storage, workers: Arc::new(InlineWorkers), ..real };
    let found = times(&world, engine, workload, &|| ());
    Ok(found
        .context("the engine could not be measured in memory")?
        .into_iter()
        .map(|(_, time)| time)
        .collect())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Predict,
    }

    /// The times of this machine are no part of the test: their difference is.
    #[test]
    fn each_case_is_measured_and_predicted() {
        let folder = tempfile::tempdir().unwrap();
        let line = ["predict", folder.path().to_str().unwrap(), "--device", "mems-first"];
        let few = ["--block-size", "4096", "--blocks", "300", "--sample", "20", "--rounds", "1"];
        let mut found = Vec::new();
        run(&Line::parse_from(line.iter().chain(&few)).args, &mut |value| {
            found.push(value);
            Ok(())
        })
        .unwrap();
        assert_eq!(found.len(), 5 * 6 + 1);
        for case in &found[..30] {
            let of = |name: &str| case[name].as_u64().unwrap();
            let predicted = of("processor_nanoseconds") + of("device_nanoseconds");
            let error = percent_between(predicted, of("measured_nanoseconds"));
            assert!((case["error_percent"].as_f64().unwrap() - error).abs() < 1e-6, "{case}");
        }
        assert_eq!(found[30]["cases"], 30);
        assert!((percent_between(150, 100) - 50.0).abs() < 1e-9);
    }
}
