//! `varve-lab sizes`: stores with arenas, frames, caches and batches of several sizes, on several
//! devices.
//!
//! The engine takes the snapshots of Foundation's disk, restores the newest one with one reader
//! and with many, and reads single blocks of it. One size is changed at a time, and the others are
//! the defaults.

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};
use varve_block::to_usize;
use varve_log::{ArenaMap, FrameBytes};
use varve_sim::{PageCacheLimits, SeededDraw};
use varve_store::{CacheBytes, StoreConfig};

use super::accesses::CachedWorkload;
use super::workload_store::{READERS, StoreSizes, StoreWork, WorkloadStore};
use crate::simulated::device;
use crate::snapshots::workload::DAYS;

/// The devices, and the bytes of the page cache above them that the scale divides.
const DEVICES: [&str; 4] = ["wd800jb-read-ahead", "exos-x24", "870-evo", "object-store"];
const ARENAS: [u64; 4] = [16 << 20, 64 << 20, 256 << 20, 1 << 30];
const FRAMES: [u32; 4] = [16 << 10, 32 << 10, 64 << 10, 128 << 10];
const FRAME_CACHES: [u64; 3] = [24 << 20, 96 << 20, 384 << 20];
const BATCHES: [usize; 5] = [64, 256, 1024, 4096, 16384];
/// Blocks that a restore requests together.
const BATCH: usize = 1024;
const CLEAN_BYTES: u64 = 1 << 30;
const DIRTY_BYTES: u64 = 256 << 20;
const DIRTY_BYTES_MIN: u64 = 2 << 20;
/// Each block of Foundation's disk is cut into as many: 16 KiB, as a new store cuts disks.
const PARTS: u32 = 2;
/// Four of five single reads go to so many bytes of the disk.
const HOT_BYTES: u64 = 256 << 20;

#[derive(Debug, Clone, Args)]
pub(crate) struct StoreSizeStudy {
    /// The devices: names of those that the program knows, or TOML files [default: an old and a new
    /// disk, an SSD, and an object store]
    #[arg(value_name = "NAME|FILE")]
    devices: Vec<String>,

    /// Divides Foundation's disk, its changes, and the page cache
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1024))]
    scale: u64,

    /// The days that pass
    #[arg(long, default_value_t = DAYS, value_parser = clap::value_parser!(u32).range(1..=i64::from(DAYS)))]
    days: u32,

    /// The single reads
    #[arg(long, value_name = "COUNT", default_value_t = 50_000)]
    reads: u32,

    /// The seed of the disk, its changes, and the reads
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs each combination. `done` receives one object for each.
pub(crate) fn run(args: &StoreSizeStudy, done: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
    let workload = CachedWorkload::foundation(args.scale, args.days, args.seed).cut(PARTS);
    let single = single_reads(&workload, args);
    let defaults: Vec<_> = DEVICES.iter().map(|name| (*name).to_owned()).collect();
    let devices = if args.devices.is_empty() { &defaults } else { &args.devices };
    let limits = PageCacheLimits {
        dirty_bytes: (DIRTY_BYTES / args.scale).max(DIRTY_BYTES_MIN),
        clean_bytes: CLEAN_BYTES / args.scale,
    };
    for name in devices {
        let device = device(name)?;
        for sizes in store_sizes()? {
            let store = WorkloadStore::fill(&workload, &device, limits, sizes)?;
            let is_default =
                sizes.arena == StoreSizes::default().arena && sizes.frame == FrameBytes::default();
            for (cache, batch) in readings(is_default) {
                let caches = CacheBytes { frames: cache, ..CacheBytes::default() };
                let restored = store.read(&workload.newest, batch, caches)?;
                // Fewer batches than readers would say little about many readers.
                let has_enough = workload.newest.len() >= batch * READERS;
                let restored_by_many =
                    has_enough.then(|| store.read_by_many(&workload.newest, batch, caches)).transpose()?;
                let looked = if batch == BATCH { Some(store.read(&single, 1, caches)?) } else { None };
                done(json!({
                    "type": "store_sizes",
                    "device": name,
                    "scale": args.scale,
                    "arena_bytes": sizes.arena.arena_bytes(),
                    "frame_bytes": sizes.frame.get(),
                    "cache_bytes": cache,
                    "batch_blocks": batch,
                    "snapshots": work(&store.taken, workload.later_bytes()),
                    "readers": READERS,
                    "restore_by_readers":
                        restored_by_many.map(|restored| work(&restored, workload.bytes_of(&workload.newest))),
                    "restore": work(&restored, workload.bytes_of(&workload.newest)),
                    "single_reads": looked.map(|looked| work(&looked, workload.bytes_of(&single))),
                }))?;
            }
        }
    }
    Ok(())
}

/// Returns the sizes of stores: those of a new one, and those that differ in one of them.
fn store_sizes() -> Result<Vec<StoreSizes>> {
    let base = StoreSizes::default();
    let default_arena = StoreConfig::new([0; 16]).arena_map.arena_bytes();
    let mut found = vec![base];
    for bytes in ARENAS.into_iter().filter(|bytes| *bytes != default_arena) {
        found.push(StoreSizes { arena: ArenaMap::new(bytes).context("an arena of this size")?, ..base });
    }
    for bytes in FRAMES.into_iter().filter(|bytes| *bytes != FrameBytes::default().get()) {
        found.push(StoreSizes { frame: FrameBytes::new(bytes).context("a frame of this size")?, ..base });
    }
    Ok(found)
}

/// Returns the caches and batches with which a store is read.
fn readings(is_default: bool) -> Vec<(u64, usize)> {
    let cache = CacheBytes::default().frames;
    let mut found = vec![(cache, BATCH)];
    if is_default {
        found.extend(FRAME_CACHES.into_iter().filter(|bytes| *bytes != cache).map(|bytes| (bytes, BATCH)));
        found.extend(BATCHES.into_iter().filter(|blocks| *blocks != BATCH).map(|blocks| (cache, blocks)));
    }
    found
}

/// Draws single reads of the newest disk. Four of five go to one part of it.
fn single_reads(workload: &CachedWorkload, args: &StoreSizeStudy) -> Vec<u32> {
    let newest = &workload.newest;
    let block_bytes = workload.sizes.first().map_or(1, |size| u64::from(*size));
    let hot = to_usize(HOT_BYTES / block_bytes).clamp(1, newest.len() / 4 + 1);
    let mut draw = SeededDraw::new(args.seed);
    let hot_start = draw.index(newest.len() - hot);
    let read = |_| {
        let place = if draw.below(5) > 0 { hot_start + draw.index(hot) } else { draw.index(newest.len()) };
        newest[place]
    };
    (0..args.reads).map(read).collect()
}

fn work(work: &StoreWork, bytes: u64) -> Value {
    json!({
        "bytes": bytes,
        "nanoseconds": work.nanoseconds,
        "reads": work.log.reads,
        "writes": work.log.writes,
        "seeks": work.log.seeks,
        "read_bytes": work.log.read_bytes,
        "price_billionths": work.log.price_billionths,
    })
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
        args: StoreSizeStudy,
    }

    /// `varve-lab sizes` with these arguments writes the stored result anew.
    #[test]
    fn a_small_study_of_sizes_gives_the_stored_result() {
        let line = ["sizes", "870-evo", "--scale", "512", "--days", "20", "--reads", "500"];
        let mut text = String::new();
        let mut rows = Vec::new();
        run(&Line::parse_from(line).args, &mut |value| {
            writeln!(text, "{value}")?;
            rows.push(value);
            Ok(())
        })
        .unwrap();
        let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/caches/small_sizes.json");
        assert!(
            text == fs::read_to_string(&stored).unwrap(),
            "{}: the result is now\n{text}",
            stored.display()
        );
        let found = |key: &str, size: u64| rows.iter().find(|row| row[key] == size).unwrap();
        let read = |row: &Value| row["single_reads"]["read_bytes"].as_u64().unwrap();
        // Larger frames bring more that nobody has asked for.
        assert!(read(found("frame_bytes", 16 << 10)) < read(found("frame_bytes", 128 << 10)), "{text}");
        assert_eq!(rows.len(), 1 + 3 + 3 + 2 + 4);
        let few = found("batch_blocks", 64);
        let reads = |of: &str| few[of]["reads"].as_u64().unwrap();
        assert!(reads("restore_by_readers") > reads("restore"), "readers have caches of their own: {text}");
        assert!(found("batch_blocks", 16384)["restore_by_readers"].is_null(), "too few batches");
    }

    #[test]
    fn many_readers_restore_faster_from_an_object_store() {
        let line = ["sizes", "object-store", "--scale", "1024", "--days", "3", "--reads", "10"];
        let mut factors = Vec::new();
        run(&Line::parse_from(line).args, &mut |row| {
            if let Some(many) = row["restore_by_readers"]["nanoseconds"].as_f64() {
                factors.push(row["restore"]["nanoseconds"].as_f64().unwrap() / many);
            }
            Ok(())
        })
        .unwrap();
        assert!(!factors.is_empty() && factors.iter().all(|factor| *factor > 3.0), "{factors:?}");
    }
}
