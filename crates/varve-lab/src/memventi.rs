//! `varve-lab memventi`: the seven measurements of the thesis's Table 7.1, and the shape of an
//! index in memory.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use varve_block::BlockStore;
use varve_remote::{Load, LoadAction, LoadOrder, VentiOptions, load};
use varve_serve::venti::{
    InheritedSockets, ListenAccess, ListenAddress, ListenAt, VentiServer, VentiSettings,
};
use varve_store::{Encryption, PassphraseCost, ScoreAlgorithm, Store, StoreConfig};
use varve_venti::Address;
use varve_world::World;

use crate::counted::{CountedStorage, DiskWork};
use crate::forget::forget;
use crate::index_shape::{IndexLoad, index_shape};
use crate::uncached::UncachedStorage;
use crate::{amount, scratch};

const HOLDER: &str = "varve-lab memventi";

#[derive(Debug, Clone, Args)]
pub(crate) struct Memventi {
    /// A folder on the disk
    folder: PathBuf,

    /// The amount that each measurement writes and reads
    #[arg(long, value_name = "BYTES", default_value = "2G", value_parser = amount::bytes)]
    size: u64,

    /// The size of each block, from 16 to 1M
    #[arg(long, value_name = "BYTES", default_value = "8K", value_parser = amount::block)]
    block_size: usize,

    /// The number of requests in flight; the thesis's program had one
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    depth: u16,

    /// The number and the size of blocks in an index whose shape is shown; several are shown one
    /// after the other
    #[arg(long, value_name = "BLOCKS:BYTES", value_delimiter = ',', default_value = "262144:8K,35651584:2K", value_parser = amount::index)]
    index_blocks: Vec<(u64, u64)>,

    /// The seed of the blocks
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The rows of Table 7.1: name, memventi's rate in MB/s, and the equivalent load here.
const TABLE: [(&str, f64, LoadAction, LoadOrder); 7] = [
    ("write pristine", 11.30, LoadAction::Write, LoadOrder::Sequential),
    ("write duplicate sequential", 8.08, LoadAction::Write, LoadOrder::Sequential),
    ("write duplicate permuted", 0.90, LoadAction::Write, LoadOrder::Permuted),
    ("read sequential", 11.06, LoadAction::Read, LoadOrder::Sequential),
    ("read permuted", 0.88, LoadAction::Read, LoadOrder::Permuted),
    ("same write", 17.98, LoadAction::Write, LoadOrder::Same),
    ("same read", 17.41, LoadAction::Read, LoadOrder::Same),
];

/// Runs the measurements. `done` receives one object.
pub(crate) fn run(args: &Memventi, done: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
    let rows = table(args)
        .with_context(|| format!("the engine could not be measured in {}", args.folder.display()))?;
    let mut shapes = Vec::new();
    for (block_count, block_bytes) in &args.index_blocks {
        let load = IndexLoad { block_count: *block_count, block_bytes: *block_bytes, seed: args.seed };
        shapes.push(json!({ "block_bytes": block_bytes, "shape": index_shape(&load)? }));
    }
    done(json!({
        "type": "memventi_benchmark",
        "block_bytes": args.block_size,
        "depth": args.depth,
        "table": rows,
        "indexes": shapes,
    }))
}

/// Makes a store, serves it, and measures the seven loads.
fn table(args: &Memventi) -> Result<Vec<Value>> {
    let folder = scratch(&args.folder)?;
    let storage = Arc::new(UncachedStorage::new(folder.path()));
    let counted = Arc::new(CountedStorage::new(Arc::clone(&storage) as _));
    let world = World { storage: Arc::clone(&counted) as _, ..World::real(folder.path()) };
    let mut config = StoreConfig::new([0x1c; 16]);
    (config.score, config.encryption) = (ScoreAlgorithm::Sha1, Encryption::None);
    Store::create(&world, &config, None, PassphraseCost::default())?;
    let store =
        Arc::new(Store::open(world, None, varve_store::StoreAccess::Write { holder: HOLDER }, &mut |_| ())?);
    // Memventi caches no blocks, so the front end must not either.
    let settings = VentiSettings { recent_bytes: 0, ..VentiSettings::default() };
    let wanted = ListenAddress {
        at: ListenAt::Address(Address::Tcp("127.0.0.1".into(), 0)),
        access: ListenAccess::ReadWrite,
    };
    let blocks = Arc::clone(&store) as Arc<dyn BlockStore>;
    let server = VentiServer::start(&[wanted], false, &mut InheritedSockets::none(), blocks, settings)?;
    let Some((address, _)) = server.addresses().first().cloned() else { bail!("nothing listens") };
    let count = (args.size / args.block_size as u64).max(1);
    let mut rows = Vec::new();
    for (name, theirs, action, order) in TABLE {
        let wanted = Load {
            action,
            order,
            block_bytes: args.block_size,
            count,
            among: count,
            depth: args.depth.into(),
            seed: args.seed,
        };
        forget(folder.path());
        let _before = counted.take();
        let result = load(&address, &VentiOptions::default(), &wanted)?;
        let seconds = (result.elapsed + result.sync).as_secs_f64().max(1e-9);
        let row = MemventiRow {
            name,
            theirs,
            seconds,
            count,
            bytes: count * args.block_size as u64,
            disk: counted.take(),
        };
        rows.push(row.json());
    }
    server.drain();
    if let Some(store) = Arc::into_inner(store) {
        store.close()?;
    }
    Ok(rows)
}

struct MemventiRow {
    name: &'static str,
    theirs: f64,
    seconds: f64,
    count: u64,
    bytes: u64,
    disk: DiskWork,
}

#[expect(clippy::cast_precision_loss, reason = "figures are shown with few digits")]
impl MemventiRow {
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e6
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "megabytes_per_second": self.rate(),
            "memventi_megabytes_per_second": self.theirs,
            "blocks": self.count,
            "disk": self.disk,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Memventi,
    }

    #[test]
    fn memventis_measurements_are_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let line =
            ["memventi", path, "--size", "1M", "--block-size", "4K", "--index-blocks", "2000:8K,30K:2K"];
        let mut found = Vec::new();
        run(&Line::parse_from(line).args, &mut |value| {
            found.push(value);
            Ok(())
        })
        .unwrap();
        let rows = found[0]["table"].as_array().unwrap();
        assert_eq!(rows.len(), 7);
        for row in rows {
            assert_eq!(row["blocks"], 256);
            assert!(row["megabytes_per_second"].as_f64().unwrap() > 0.0, "{row}");
        }
        assert!(
            rows[0]["disk"]["written_bytes"].as_u64().unwrap() > 1 << 20,
            "random blocks do not compress"
        );
        assert!(rows[1]["disk"]["written_bytes"].as_u64().unwrap() < 1 << 18, "duplicates are not stored");
        let indexes = found[0]["indexes"].as_array().unwrap();
        assert_eq!(indexes[1]["shape"]["candidates_when_read"]["1"], 30_000);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "it leaves nothing behind");
        assert!(Line::try_parse_from(["memventi", path, "--index-blocks", "12"]).is_err());
    }
}
