//! `varve-lab randtest`: the thesis's measurements of memventi, in virtual time.

use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};
use varve_block::{Block, BlockName, BlockStore, BlockType, to_usize};
use varve_log::ClumpBytes;
use varve_plan::Engine;
use varve_sim::{GeneratedBlock, PageCacheLimits, SeededDraw, VirtualClock};
use varve_store::{
    CompareMode, DiskIndexConfig, Encryption, PassphraseCost, Prefetch, Store, StoreAccess, StoreConfig,
};
use varve_world::World;

use crate::amount;
use crate::simulated::device;
use crate::two_devices::TwoDevices;

const HOLDER: &str = "varve-lab randtest";
/// A megabyte of the thesis.
const MEGABYTE: f64 = 1_048_576.0;
/// The thesis's disk block cache.
const LOG_CACHE_BYTES: u64 = 32 << 20;
/// The thesis's index cache.
const INDEX_CACHE_BYTES: u64 = 256 << 20;
/// The thesis's lump cache.
const BLOCK_CACHE_BYTES: u64 = 16 << 20;

#[derive(Debug, Clone, Args)]
pub(crate) struct Randtest {
    /// The amount that each measurement writes and reads
    #[arg(long, value_name = "BYTES", default_value = "2G", value_parser = amount::bytes)]
    size: u64,

    /// The size of each block, from 16 to 1M
    #[arg(long, value_name = "BYTES", default_value = "8K", value_parser = amount::block)]
    block_size: usize,

    /// The device of the log: the name of one that the program knows, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "wd800jb-read-ahead")]
    device: String,

    /// The device of the index
    #[arg(long, value_name = "NAME|FILE", default_value = "compaq-bd009222bb")]
    index_device: String,

    /// The seed of the order of permuted reads and writes
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A table of the thesis, and the engine here that works as its program did.
struct ThesisTable {
    name: &'static str,
    engine: Engine,
    engine_name: &'static str,
    /// The thesis's rates in MB/s, in the order of `LOADS`. The last two are those of a block that
    /// is always the same one: the speed of its processor, its protocol and its network.
    rates: [f64; 7],
}

/// The name of a load, and its action and order.
const LOADS: [(&str, RandtestAction, RandtestOrder); 7] = [
    ("write pristine", RandtestAction::Write, RandtestOrder::Sequential),
    ("write duplicate sequential", RandtestAction::Write, RandtestOrder::Sequential),
    ("write duplicate permuted", RandtestAction::Write, RandtestOrder::Permuted),
    ("read sequential", RandtestAction::Read, RandtestOrder::Sequential),
    ("read permuted", RandtestAction::Read, RandtestOrder::Permuted),
    ("same write", RandtestAction::Write, RandtestOrder::Same),
    ("same read", RandtestAction::Read, RandtestOrder::Same),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RandtestAction {
    Write,
    Read,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RandtestOrder {
    Sequential,
    Permuted,
    Same,
}

fn tables() -> [ThesisTable; 2] {
    let [hash_memory, _, value_memory, _] = Engine::CHOICES;
    let memventi = [11.30, 8.08, 0.90, 11.06, 0.88, 17.98, 17.41];
    [
        ThesisTable { name: "Table 7.1", engine: value_memory, engine_name: "value-memory", rates: memventi },
        ThesisTable { name: "Table 7.1", engine: hash_memory, engine_name: "hash-memory", rates: memventi },
    ]
}

/// Runs the loads of each table. `done` receives one object for each load.
pub(crate) fn run(args: &Randtest, done: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
    for table in tables() {
        let mut bench = RandtestBench::new(args, &table)
            .with_context(|| format!("the store for {} could not be made", table.name))?;
        for ((name, action, order), theirs) in LOADS.into_iter().zip(table.rates) {
            let nanoseconds = bench.run(action, order)?;
            #[expect(clippy::cast_precision_loss, reason = "a rate is shown with few digits")]
            let rate = (bench.count * args.block_size as u64) as f64 / MEGABYTE / (nanoseconds as f64 / 1e9);
            let [[of_index, _], [_, of_log]] =
                [bench.storage.index.take_times(), bench.storage.log.take_times()];
            done(json!({
                "type": "randtest_simulation",
                "table": table.name,
                "engine": table.engine_name,
                "load": name,
                "blocks": bench.count,
                "thesis_megabytes_per_second": theirs,
                "megabytes_per_second": rate,
                "of_index": of_index,
                "of_log": of_log,
            }))?;
        }
    }
    Ok(())
}

/// A store on its two devices, and the processor of the thesis.
struct RandtestBench {
    store: Store,
    storage: Arc<TwoDevices>,
    clock: Arc<VirtualClock>,
    names: Vec<BlockName>,
    count: u64,
    block_bytes: u32,
    seed: u64,
    /// Nanoseconds of the processor and the network for a write and for a read.
    per_write: u64,
    per_read: u64,
}

impl RandtestBench {
    fn new(args: &Randtest, table: &ThesisTable) -> Result<Self> {
        let block_bytes = u32::try_from(args.block_size)?;
        let count = (args.size / u64::from(block_bytes)).max(1);
        let log_cache = PageCacheLimits { dirty_bytes: LOG_CACHE_BYTES, clean_bytes: LOG_CACHE_BYTES };
        let index_cache = PageCacheLimits { dirty_bytes: INDEX_CACHE_BYTES, clean_bytes: INDEX_CACHE_BYTES };
        let (log, index) = (device(&args.device)?, device(&args.index_device)?);
        let (storage, clock) = TwoDevices::new(&log, &index, log_cache, index_cache);
        let mut config = StoreConfig::new([0x1e; 16]);
        // Emulated storage recognises the blocks in the log only in clear.
        config.encryption = Encryption::None;
        config.index = table.engine.index;
        config.compare = if table.engine.by_value { CompareMode::Value } else { CompareMode::Hash };
        // A record of both logs is one block.
        config.clump_bytes = ClumpBytes::new(block_bytes).context("the block size")?;
        config.disk_index = DiskIndexConfig {
            memory_bytes: DiskIndexConfig::MEMORY_BYTES_MIN,
            expected_blocks: count,
            prefetch: Prefetch::None,
            ..DiskIndexConfig::default()
        };
        let deterministic = World::deterministic(Arc::clone(&storage) as _, args.seed);
        let world = World { clock: Arc::clone(&clock) as _, ..deterministic };
        Store::create(&world, &config, None, PassphraseCost::default())?;
        let store = Store::open(world, None, StoreAccess::Write { holder: HOLDER }, &mut |_| ())?;
        store.bound_caches(BLOCK_CACHE_BYTES);
        let [.., same_write, same_read] = table.rates;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates are above zero")]
        let per = |rate: f64| (f64::from(block_bytes) / MEGABYTE / rate * 1e9) as u64;
        let (per_write, per_read) = (per(same_write), per(same_read));
        let (names, seed) = (Vec::new(), args.seed);
        Ok(Self { store, storage, clock, names, count, block_bytes, seed, per_write, per_read })
    }

    /// Runs a load. Returns its time in nanoseconds.
    fn run(&mut self, action: RandtestAction, order: RandtestOrder) -> Result<u64> {
        let started = self.clock.nanoseconds();
        let is_first = self.names.is_empty();
        for number in self.numbers(order) {
            let block = GeneratedBlock { number, bytes: self.block_bytes };
            if action == RandtestAction::Write {
                let bytes = &block.contents()[..];
                let score = self.store.put(Block { block_type: BlockType::DATA, bytes })?;
                if is_first {
                    self.names.push(BlockName { score, block_type: BlockType::DATA });
                }
                self.clock.advance(self.per_write);
            } else {
                #[expect(clippy::cast_possible_truncation, reason = "as many as there are names")]
                let found = self.store.get(&self.names[number as usize])?;
                assert!(found.len() == self.block_bytes as usize, "the engine returns the block");
                self.clock.advance(self.per_read);
            }
        }
        if action == RandtestAction::Write {
            self.store.sync()?;
        }
        Ok(self.clock.nanoseconds() - started)
    }

    /// Returns the blocks of a load.
    fn numbers(&self, order: RandtestOrder) -> Vec<u64> {
        match order {
            RandtestOrder::Sequential => (0..self.count).collect(),
            RandtestOrder::Same => vec![0; to_usize(self.count)],
            RandtestOrder::Permuted => {
                let mut draw = SeededDraw::new(self.seed);
                let mut numbers: Vec<u64> = (0..self.count).collect();
                for left in (1..numbers.len()).rev() {
                    numbers.swap(left, draw.index(left + 1));
                }
                numbers
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Randtest,
    }

    #[test]
    fn the_order_of_the_loads_is_the_theses() {
        let mut found = Vec::new();
        run(&Line::parse_from(["randtest", "--size", "64M"]).args, &mut |value| {
            found.push(value);
            Ok(())
        })
        .unwrap();
        assert_eq!(found.len(), 14);
        let rate =
            |table: usize, load: usize| found[7 * table + load]["megabytes_per_second"].as_f64().unwrap();
        for table in 0..2 {
            assert!(rate(table, 4) * 3.0 < rate(table, 3), "permuted reads are slower than sequential ones");
        }
        assert!((17.0..18.1).contains(&rate(0, 5)), "the thesis's processor limits a block in memory");
        assert!(rate(0, 2) * 3.0 < rate(0, 1), "by value, each duplicate is read");
    }
}
