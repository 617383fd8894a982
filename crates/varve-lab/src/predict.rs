//! `varve-lab predict`: the times of the six cases on a real disk beside those that the simulator
//! predicts for it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};
use varve_block::to_usize;
use varve_plan::{Case, Engine};
use varve_sim::{DeviceProfile, PageCacheLimits};
use varve_world::{InlineWorkers, MemoryStorage, World};

use crate::cases::{CaseResult, Workload, run_paced_cases};
use crate::forget::forget;
use crate::simulated::{device, timed_storage};
use crate::uncached::UncachedStorage;
use crate::{amount, scratch};

/// Bytes that may wait to be written: more than a case writes.
const DIRTY_BYTES: u64 = 1 << 30;

#[derive(Debug, Clone, Args)]
pub(crate) struct Predict {
    /// A folder on the disk
    folder: PathBuf,

    /// The same disk as a device: the output of `varve-plan --json bench device`, or a TOML file
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

    /// A folder in memory, such as /dev/shm, where the processor's time is measured [default: the
    /// memory of this program]
    #[arg(long, value_name = "FOLDER")]
    memory: Option<PathBuf>,

    /// Measure nothing: take the times on the disk and in memory from the output of this command
    /// for the same blocks, and predict them for another device
    #[arg(long, value_name = "FILE", conflicts_with_all = ["memory", "rounds"])]
    measured: Option<PathBuf>,

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
/// The work in memory is that of the processor. On the device, each step takes its part of that
/// time, and what the device adds: it writes behind the processor, as the disk does. All of them
/// run one task at a time.
pub(crate) fn run(args: &Predict, done: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
    let device = device(&args.device)?;
    let measured = args.measured.as_deref().map(earlier).transpose()?;
    let mut errors = Vec::new();
    for block_bytes in &args.block_sizes {
        for engine in Engine::CHOICES {
            let workload = Workload {
                block_bytes: to_usize(*block_bytes),
                block_count: to_usize(args.blocks),
                sample_count: to_usize(args.sample),
                incompressible: 0.5,
                index_memory: 1 << 20,
                seed: args.seed,
            };
            let (mut disk_times, mut processor_times) = (CaseTimes::new(), CaseTimes::new());
            match &measured {
                Some(measured) => {
                    let steps = in_memory(args, engine, &workload)?;
                    (disk_times, processor_times) = taken(measured, engine, *block_bytes, steps)?;
                }
                None => {
                    for _ in 0..args.rounds {
                        keep_fastest(&mut disk_times, on_disk(&args.folder, engine, &workload)?);
                        keep_fastest(&mut processor_times, in_memory(args, engine, &workload)?);
                    }
                }
            }
            let predicted_times = on_device(&device, engine, &workload, &processor_times)?;
            for (case, CaseTime { nanoseconds: predicted, .. }) in predicted_times {
                let [measured, processor] =
                    [&disk_times, &processor_times].map(|times| times[&case].nanoseconds);
                let error = percent_between(predicted, measured);
                errors.push(error.abs());
                done(json!({
                    "type": "predicted_case",
                    "engine": engine.name(),
                    "block_bytes": block_bytes,
                    "case": case,
                    "measured_nanoseconds": measured,
                    "processor_nanoseconds": processor,
                    "predicted_nanoseconds": predicted,
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

/// The time of a case, and the number of its measured steps.
#[derive(Debug, Clone, Copy)]
struct CaseTime {
    nanoseconds: u64,
    steps: u64,
}

type CaseTimes = BTreeMap<Case, CaseTime>;

/// Reads the output of an earlier run.
fn earlier(file: &Path) -> Result<Vec<Value>> {
    let not_read = || format!("{} is no output of this command", file.display());
    let text = std::fs::read_to_string(file).with_context(not_read)?;
    text.lines().map(|line| serde_json::from_str(line).with_context(not_read)).collect()
}

/// Returns the times of an earlier run on the disk and in memory, with the numbers of steps of
/// another one.
fn taken(
    earlier: &[Value],
    engine: Engine,
    block_bytes: u64,
    steps: CaseTimes,
) -> Result<(CaseTimes, CaseTimes)> {
    let (mut disk_times, mut processor_times) = (CaseTimes::new(), CaseTimes::new());
    for (case, CaseTime { steps, .. }) in steps {
        let fits = |found: &&Value| {
            found["engine"] == engine.name()
                && found["block_bytes"] == block_bytes
                && found["case"] == json!(case)
        };
        let found = earlier.iter().find(fits);
        let time = |key: &str| {
            let nanoseconds = found.and_then(|found| found[key].as_u64());
            let missing = || format!("the earlier run has no {case:?} of {block_bytes} bytes");
            Ok::<_, anyhow::Error>(CaseTime { nanoseconds: nanoseconds.with_context(missing)?, steps })
        };
        disk_times.insert(case, time("measured_nanoseconds")?);
        processor_times.insert(case, time("processor_nanoseconds")?);
    }
    Ok((disk_times, processor_times))
}

/// Returns the error of a prediction in percent of the measurement.
#[expect(clippy::cast_precision_loss, reason = "errors are shown with few digits")]
fn percent_between(predicted: u64, measured: u64) -> f64 {
    (predicted as f64 / (measured as f64).max(1.0) - 1.0) * 100.0
}

fn keep_fastest(kept: &mut CaseTimes, run: CaseTimes) {
    for (case, new) in run {
        let fastest = kept.entry(case).or_insert(new);
        fastest.nanoseconds = fastest.nanoseconds.min(new.nanoseconds);
    }
}

/// Runs the cases. `work` is called once for each measured step.
fn times(
    world: &World,
    engine: Engine,
    workload: &Workload,
    forget: &dyn Fn(),
    work: &dyn Fn(Case),
) -> Result<CaseTimes> {
    let steps = RefCell::new(BTreeMap::new());
    let count = |case| {
        *steps.borrow_mut().entry(case).or_insert(0_u64) += 1;
        work(case);
    };
    let results = run_paced_cases(world, engine, workload, forget, &count, &mut |_| {})?;
    let steps = steps.into_inner();
    let time = |result: &CaseResult| {
        let steps = steps.get(&result.case).copied().unwrap_or(0);
        (result.case, CaseTime { nanoseconds: result.nanoseconds, steps })
    };
    Ok(results.iter().map(time).collect())
}

fn on_device(
    device: &DeviceProfile,
    engine: Engine,
    workload: &Workload,
    processor: &CaseTimes,
) -> Result<CaseTimes> {
    let limits = PageCacheLimits { dirty_bytes: DIRTY_BYTES, clean_bytes: 0 };
    let (timed, clock) = timed_storage(device, limits);
    let deterministic = World::deterministic(Arc::clone(&timed) as _, workload.seed);
    let world = World { clock: Arc::clone(&clock) as _, ..deterministic };
    let work = |case| {
        let time = processor.get(&case);
        clock.advance(time.map_or(0, |time| time.nanoseconds / time.steps.max(1)));
    };
    times(&world, engine, workload, &|| timed.forget(), &work).context("the engine could not be simulated")
}

fn on_disk(folder: &Path, engine: Engine, workload: &Workload) -> Result<CaseTimes> {
    let scratch = scratch(folder)?;
    let storage = Arc::new(UncachedStorage::new(scratch.path()));
    let real = World::real(scratch.path());
    let world = World { storage, workers: Arc::new(InlineWorkers), ..real };
    let found = times(&world, engine, workload, &|| forget(scratch.path()), &|_| ());
    found.with_context(|| format!("the engine could not be measured in {}", folder.display()))
}

fn in_memory(args: &Predict, engine: Engine, workload: &Workload) -> Result<CaseTimes> {
    if let Some(folder) = &args.memory {
        return on_disk(folder, engine, workload);
    }
    let real = World::real(&args.folder);
    let storage = Arc::new(MemoryStorage::new());
    let world = World { storage, workers: Arc::new(InlineWorkers), ..real };
    times(&world, engine, workload, &|| (), &|_| ()).context("the engine could not be measured in memory")
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
        assert_eq!(found.len(), 4 * 6 + 1);
        for case in &found[..24] {
            let of = |name: &str| case[name].as_u64().unwrap();
            let error = percent_between(of("predicted_nanoseconds"), of("measured_nanoseconds"));
            // The device adds to the processor's time, but for a part of each step.
            assert!(of("predicted_nanoseconds") * 10 >= of("processor_nanoseconds") * 9, "{case}");
            assert!((case["error_percent"].as_f64().unwrap() - error).abs() < 1e-6, "{case}");
        }
        assert_eq!(found[24]["cases"], 24);

        let earlier = folder.path().join("earlier.json");
        std::fs::write(&earlier, found.iter().map(|value| format!("{value}\n")).collect::<String>()).unwrap();
        let again = ["--block-size", "4096", "--blocks", "300", "--sample", "20", "--measured"];
        let args = Line::parse_from(line.iter().chain(&again).chain(&[earlier.to_str().unwrap()])).args;
        let mut predicted = Vec::new();
        run(&args, &mut |value| {
            predicted.push(value);
            Ok(())
        })
        .unwrap();
        assert_eq!(predicted, found, "the same times and the same device give the same predictions");
        assert!((percent_between(150, 100) - 50.0).abs() < 1e-9);
    }
}
