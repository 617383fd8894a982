//! `varve bench foundation`

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use varve_lab::{CaseResult, Engine, Workload, run_cases};
use varve_store::IndexKind;
use varve_world::World;

use super::super::Outcome;
use crate::arguments::{Arguments, BenchFoundation};
use crate::show;

/// What does the six cases: all kinds of stores.
const ENGINES: [Engine; 4] = [
    Engine { index: IndexKind::Memory, by_value: false },
    Engine { index: IndexKind::Disk, by_value: false },
    Engine { index: IndexKind::Memory, by_value: true },
    Engine { index: IndexKind::Disk, by_value: true },
];

pub(super) fn run(arguments: &Arguments, words: &BenchFoundation) -> Result<Outcome> {
    let failed = || format!("the engine could not be measured in {}", words.folder.display());
    for block_bytes in &words.block_sizes {
        for engine in ENGINES {
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
            if !arguments.json {
                say!("{}, blocks of {}:", engine.name(), show::bytes((*block_bytes).into()));
                say!(
                    "  {:<24}{:>12}{:>10}{:>10}{:>14}{:>14}{:>10}",
                    "A BLOCK:",
                    "MB/S",
                    "SEEKS",
                    "READS",
                    "BYTES READ",
                    "WRITTEN",
                    "CLOSING"
                );
            }
            let mut done = |result: &CaseResult| {
                if !arguments.json {
                    print(result);
                }
            };
            let world = World::real(folder.path());
            let forget = || forget(folder.path());
            let results = run_cases(&world, engine, &workload, &forget, &mut done).with_context(failed)?;
            if arguments.json {
                let cases = results.iter().map(case_json).collect::<Result<Vec<Value>>>()?;
                let count = words.blocks;
                say!(
                    "{}",
                    json!({ "engine": engine.name(), "block_bytes": block_bytes, "block_count": count, "cases": cases })
                );
            }
        }
    }
    Ok(Outcome::Done)
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
        "  {:<24}{:>12.1}{:>10.4}{:>10.4}{:>14.1}{:>14.1}{:>8.2} s",
        result.case.name(),
        result.rate(),
        each(disk.seeks),
        each(disk.reads),
        each(disk.read_bytes),
        each(disk.written_bytes),
        result.closing_nanoseconds as f64 / 1e9
    );
}

/// Lets the system forget what it remembers of the files in a folder, as far as it does.
fn forget(folder: &Path) {
    for path in files_below(folder) {
        if let Ok(file) = File::open(&path) {
            // Only what is on disk can be forgotten.
            let _ = file.sync_data();
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() { found.extend(files_below(&path)) } else { found.push(path) }
    }
    found
}
