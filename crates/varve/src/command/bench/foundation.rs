//! `varve bench foundation`

use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use varve_lab::{CaseResult, Engine, UncachedStorage, Workload, run_cases};
use varve_world::World;

use super::super::Outcome;
use super::forget::forget;
use crate::arguments::{BenchFoundation, EngineChoice};
use crate::invocation::Invocation;
use crate::{say, show};

pub(super) fn run(invocation: &Invocation, words: &BenchFoundation) -> Result<Outcome> {
    let failed = || format!("the engine could not be measured in {}", words.folder.display());
    for block_bytes in &words.block_sizes {
        for engine in chosen(&words.engines) {
            let folder = tempfile::Builder::new()
                .prefix("varve-bench-")
                .tempdir_in(&words.folder)
                .with_context(failed)?;
            let workload = Workload {
                block_bytes: *block_bytes as usize,
                block_count: usize::try_from(words.blocks)?,
                sample_count: usize::try_from(words.sample)?,
                incompressible: words.incompressible,
                index_memory: words.index_memory,
                seed: words.seed,
            };
            if !invocation.json {
                say!("{}, blocks of {}:", engine.name(), show::bytes((*block_bytes).into()));
                say!(
                    "  {:<24}{:>12}{:>10}{:>14}{:>14}{:>10}{:>10}{:>10}",
                    "A BLOCK:",
                    "MB/S",
                    "SEEKS",
                    "BYTES READ",
                    "WRITTEN",
                    "LOOK-UPS",
                    "ON DISK",
                    "CLOSING"
                );
            }
            let mut done = |result: &CaseResult| {
                if !invocation.json {
                    print(result);
                }
            };
            let storage = Arc::new(UncachedStorage::new(folder.path()));
            let world = World { storage: Arc::clone(&storage) as _, ..World::real(folder.path()) };
            let forget = || forget(folder.path());
            let results = run_cases(&world, engine, &workload, &forget, &mut done).with_context(failed)?;
            if invocation.json {
                let cases = results.iter().map(case_json).collect::<Result<Vec<Value>>>()?;
                let count = words.blocks;
                say::record(
                    "foundation_benchmark",
                    json!({ "engine": engine.name(), "block_bytes": block_bytes, "block_count": count, "is_direct": storage.is_direct(), "cases": cases }),
                );
            } else if !storage.is_direct() {
                say!("The file system has no direct access: the system's memory of files may have helped.");
            }
        }
    }
    Ok(Outcome::Done)
}

/// What was asked for, in the order in which it is shown.
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

#[expect(clippy::cast_precision_loss, reason = "figures are shown with few digits")]
fn print(result: &CaseResult) {
    let each = |count: u64| count as f64 / result.blocks.max(1) as f64;
    let disk = &result.disk;
    say!(
        "  {:<24}{:>12.1}{:>10.4}{:>14.1}{:>14.1}{:>10.4}{:>10.4}{:>8.2} s",
        result.case.name(),
        result.rate(),
        each(disk.seeks),
        each(disk.read_bytes),
        each(disk.written_bytes),
        each(result.index.lookups),
        each(result.index.pages_read),
        result.closing_nanoseconds as f64 / 1e9
    );
}
