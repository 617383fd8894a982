//! `varve-lab caches`: the hits of caches of many sizes, by the blocks that a cache loads and
//! evicts together.
//!
//! This is the study of Wallace et al. (*Characteristics of Backup Workloads in Production
//! Systems*, FAST 2012), with the log's own units: blocks, frames, clumps, and directory pages. All
//! caches evict what was used least recently. With `--engine`, the engine does the same work with
//! its own caches, and the reads of the device are counted.

mod accesses;
mod recency;
pub(crate) mod sizes;
mod workload_store;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use varve_sim::PageCacheLimits;
use varve_store::CacheBytes;

use crate::simulated::device;
use crate::snapshots::workload::DAYS;
use accesses::{CacheUnit, CacheUse, CachedWorkload};
use recency::RecencyStack;
use workload_store::{StoreSizes, WorkloadStore};

/// 64 KiB to 4 GiB.
const SIZES: std::ops::RangeInclusive<u32> = 16..=32;
/// The engine's caches take real memory: up to 256 MiB.
const ENGINE_SIZES: std::ops::RangeInclusive<u32> = 16..=28;
/// Where the engine does the work. Only its reads are of interest here, and not their time.
const ENGINE_DEVICE: &str = "foundation-maxtor";
const DIRTY_BYTES: u64 = 64 << 20;

#[derive(Debug, Clone, Args)]
pub(crate) struct Caches {
    /// Traces whose data is put and read [default: Foundation's disk of 41.7 GB, which changes for
    /// 400 days]
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// Divides Foundation's disk and its changes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    scale: u64,

    /// The days of Foundation's disk
    #[arg(long, default_value_t = DAYS, value_parser = clap::value_parser!(u32).range(1..=i64::from(DAYS)))]
    days: u32,

    /// The seed of Foundation's disk
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Do the work with the engine as well, and count its reads. This takes some seconds for each
    /// gigabyte of the log, and of the source for each size of a cache
    #[arg(long)]
    engine: bool,
}

/// Loads of caches that evict what was used least recently, one figure for each size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct CacheLoads {
    /// Uses that had to load their unit.
    misses: Vec<u64>,
    /// The bytes of the loaded units.
    loaded_bytes: Vec<u64>,
}

/// Counts the misses. `done` receives one object for each workload and use.
pub(crate) fn run(args: &Caches, done: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
    if args.traces.is_empty() {
        return study(args, &CachedWorkload::foundation(args.scale, args.days, args.seed), done);
    }
    args.traces.iter().try_for_each(|trace| study(args, &CachedWorkload::of_trace(trace)?, done))
}

fn study(args: &Caches, workload: &CachedWorkload, done: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
    let sizes: Vec<u64> = SIZES.map(|power| 1 << power).collect();
    let limits = PageCacheLimits { dirty_bytes: DIRTY_BYTES, clean_bytes: 0 };
    let fill = || WorkloadStore::fill(workload, &device(ENGINE_DEVICE)?, limits, StoreSizes::default());
    let store = if args.engine { Some(fill()?) } else { None };
    for of in CacheUse::ALL {
        let uses = uses(workload, of);
        let counted = uses.iter().filter(|(_, is_counted)| *is_counted);
        let requested: u64 =
            counted.clone().map(|(block, _)| u64::from(workload.sizes[*block as usize])).sum();
        let loads: BTreeMap<CacheUnit, CacheLoads> =
            of.units().iter().map(|unit| (*unit, loads(workload, of, *unit, &uses, &sizes))).collect();
        let engine_sizes: Vec<u64> = ENGINE_SIZES.map(|power| 1 << power).collect();
        let engine = match &store {
            Some(store) => engine_reads(store, of, &engine_sizes)?,
            None => None,
        };
        done(json!({
            "type": "cache_loads",
            "workload": workload.name,
            "scale": if args.traces.is_empty() { args.scale } else { 1 },
            "blocks": workload.sizes.len(),
            "bytes": workload.sizes.iter().map(|size| u64::from(*size)).sum::<u64>(),
            "use": of,
            "requests": counted.count(),
            "requested_bytes": requested,
            "sizes": sizes,
            "units": loads,
            "engine": engine,
        }))?;
    }
    Ok(())
}

/// Counts the engine's reads, with its cache of each size. `None` for a use that this does not
/// repeat.
fn engine_reads(store: &WorkloadStore<'_>, of: CacheUse, sizes: &[u64]) -> Result<Option<Value>> {
    if of == CacheUse::Duplicates {
        return Ok(None);
    }
    let (mut reads, mut read_bytes) = (Vec::new(), Vec::new());
    for size in sizes {
        let work = if of.is_of_contents() {
            store.read(&store.workload.read, 1, CacheBytes { frames: *size, ..CacheBytes::default() })?
        } else {
            store.put_again(&store.workload.newest, CacheBytes { pages: *size, ..CacheBytes::default() })?
        };
        reads.push(work.log.reads);
        read_bytes.push(work.log.read_bytes);
    }
    Ok(Some(json!({ "sizes": sizes, "reads": reads, "read_bytes": read_bytes })))
}

/// Returns the blocks in the order in which they are used. Only those with `true` are counted: a
/// new block is in the cache from then on, but nothing is loaded for it.
fn uses(workload: &CachedWorkload, of: CacheUse) -> Vec<(u32, bool)> {
    match of {
        CacheUse::Duplicates => {
            let mut known = 0;
            let blocks = workload.snapshots.iter().flatten();
            let is_known = |block: &u32| {
                let is_known = *block < known;
                known = known.max(*block + 1);
                (*block, is_known)
            };
            blocks.map(is_known).collect()
        }
        CacheUse::Again => workload.newest.iter().map(|block| (*block, true)).collect(),
        CacheUse::Restore => workload.read.iter().map(|block| (*block, true)).collect(),
    }
}

fn loads(
    workload: &CachedWorkload,
    of: CacheUse,
    unit: CacheUnit,
    uses: &[(u32, bool)],
    sizes: &[u64],
) -> CacheLoads {
    let units = workload.units(unit);
    let mut stack = RecencyStack::new(workload.weights(&units, of.is_of_contents()));
    // The hits of each size that the size before does not have, and their bytes.
    let mut hits = vec![(0, 0); sizes.len() + 1];
    let (mut requests, mut bytes) = (0, 0);
    for (block, is_counted) in uses {
        let unit = units[*block as usize] as usize;
        let distance = stack.touch(unit);
        if *is_counted {
            let weight = stack.weight(unit);
            (requests, bytes) = (requests + 1, bytes + weight);
            let smallest =
                distance.map_or(sizes.len(), |distance| sizes.partition_point(|size| *size < distance));
            hits[smallest] = (hits[smallest].0 + 1, hits[smallest].1 + weight);
        }
    }
    let mut found = CacheLoads { misses: Vec::new(), loaded_bytes: Vec::new() };
    for (more_hits, more_bytes) in &hits[..sizes.len()] {
        (requests, bytes) = (requests - more_hits, bytes - more_bytes);
        found.misses.push(requests);
        found.loaded_bytes.push(bytes);
    }
    found
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
        args: Caches,
    }

    fn studied(args: &[&str]) -> Vec<Value> {
        let mut found = Vec::new();
        run(&Line::parse_from(["caches"].iter().chain(args)).args, &mut |value| {
            found.push(value);
            Ok(())
        })
        .unwrap();
        found
    }

    fn figures(value: &Value) -> Vec<u64> {
        value.as_array().unwrap().iter().map(|figure| figure.as_u64().unwrap()).collect()
    }

    /// `varve-lab caches` with these arguments writes the stored result anew.
    #[test]
    fn a_small_study_gives_the_stored_result() {
        let found = studied(&["--scale", "256", "--days", "40", "--engine"]);
        let mut text = String::new();
        for line in &found {
            writeln!(text, "{line}").unwrap();
        }
        let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/caches/small_study.json");
        assert!(
            text == fs::read_to_string(&stored).unwrap(),
            "{}: the result is now\n{text}",
            stored.display()
        );
        let [duplicates, again, restore] = &found[..] else { panic!("{text}") };
        assert!(duplicates["engine"].is_null());
        for (of, unit) in [(again, "page"), (restore, "frame")] {
            let (reads, misses) = (figures(&of["engine"]["reads"]), figures(&of["units"][unit]["misses"]));
            assert!(reads.first() >= reads.last() && misses.first() >= misses.last(), "{of:#}");
        }
        // A clump brings its other blocks with it.
        let misses = |unit: &str| figures(&restore["units"][unit]["misses"]);
        assert!(misses("clump").last() < misses("frame").last());
        assert_eq!(misses("frame"), misses("block"), "a block of 32 KiB is a frame of its own");
    }
}
