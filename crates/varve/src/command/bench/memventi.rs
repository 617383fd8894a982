//! `varve bench memventi`

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use varve_block::BlockStore;
use varve_lab::{CountedStorage, DiskWork, Histogram, IndexLoad, IndexShape, UncachedStorage, index_shape};
use varve_remote::{Load, LoadAction, LoadOrder, VentiOptions, load};
use varve_serve::venti::{Access, Inherited, ListenAt, Listening, VentiServer, VentiSettings};
use varve_store::{Encryption, PassphraseCost, ScoreAlgorithm, Store, StoreConfig};
use varve_venti::Address;
use varve_world::World;

use super::super::Outcome;
use super::forget::forget;
use crate::arguments::BenchMemventi;
use crate::invocation::Invocation;
use crate::{say, show};

const HOLDER: &str = "varve bench memventi";

/// The rows of Table 7.1, with what memventi did, in MB/s; and what each is here.
const TABLE: [(&str, f64, LoadAction, LoadOrder); 7] = [
    ("write pristine", 11.30, LoadAction::Write, LoadOrder::Sequential),
    ("write duplicate sequential", 8.08, LoadAction::Write, LoadOrder::Sequential),
    ("write duplicate permuted", 0.90, LoadAction::Write, LoadOrder::Permuted),
    ("read sequential", 11.06, LoadAction::Read, LoadOrder::Sequential),
    ("read permuted", 0.88, LoadAction::Read, LoadOrder::Permuted),
    ("same write", 17.98, LoadAction::Write, LoadOrder::Same),
    ("same read", 17.41, LoadAction::Read, LoadOrder::Same),
];

pub(super) fn run(invocation: &Invocation, words: &BenchMemventi) -> Result<Outcome> {
    let failed = || format!("the engine could not be measured in {}", words.folder.display());
    let rows = table(invocation, words).with_context(failed)?;
    let mut shapes = Vec::new();
    for (block_count, block_bytes) in &words.index_blocks {
        let wanted = IndexLoad { block_count: *block_count, block_bytes: *block_bytes, seed: words.seed };
        let shape = index_shape(&wanted)?;
        if !invocation.json {
            print_shape(*block_bytes, &shape);
        }
        shapes.push(json!({ "block_bytes": block_bytes, "shape": shape }));
    }
    if invocation.json {
        say::record(
            "memventi_benchmark",
            json!({ "block_bytes": words.block_size, "depth": words.depth, "table": rows, "indexes": shapes }),
        );
    }
    Ok(Outcome::Done)
}

/// Makes a store, serves it, and works it in seven ways.
fn table(invocation: &Invocation, words: &BenchMemventi) -> Result<Vec<Value>> {
    let folder = tempfile::Builder::new().prefix("varve-bench-").tempdir_in(&words.folder)?;
    let storage = Arc::new(UncachedStorage::new(folder.path()));
    let counted = Arc::new(CountedStorage::new(Arc::clone(&storage) as _));
    let world = World { storage: Arc::clone(&counted) as _, ..World::real(folder.path()) };
    let mut config = StoreConfig::new([0x1c; 16]);
    (config.score, config.encryption) = (ScoreAlgorithm::Sha1, Encryption::None);
    Store::create(&world, &config, None, PassphraseCost::default())?;
    let store =
        Arc::new(Store::open(world, None, varve_store::Access::Write { holder: HOLDER }, &mut |_| ())?);
    // Memventi keeps no block in memory, and neither does the door.
    let settings = VentiSettings { recent_bytes: 0, ..VentiSettings::default() };
    let wanted =
        Listening { at: ListenAt::Address(Address::Tcp("127.0.0.1".into(), 0)), access: Access::ReadWrite };
    let blocks = Arc::clone(&store) as Arc<dyn BlockStore>;
    let server = VentiServer::start(&[wanted], false, &mut Inherited::none(), blocks, settings)?;
    let Some((address, _)) = server.addresses().first().cloned() else { bail!("nothing listens") };
    let count = (words.size / words.block_size as u64).max(1);
    if !invocation.json {
        let blocks = show::count(count, "block");
        say!("{blocks} of {}, {} at a time:", show::bytes(words.block_size as u64), words.depth);
        say!("  {:<28}{:>10}{:>12}{:>10}{:>14}", "", "MB/S", "MEMVENTI", "SEEKS", "BYTES READ");
    }
    let mut rows = Vec::new();
    for (name, theirs, action, order) in TABLE {
        let wanted = Load {
            action,
            order,
            block_bytes: words.block_size,
            count,
            among: count,
            depth: words.depth.into(),
            seed: words.seed,
        };
        forget(folder.path());
        let _before = counted.take();
        let result = load(&address, &VentiOptions::default(), &wanted)?;
        let seconds = (result.elapsed + result.sync).as_secs_f64().max(1e-9);
        let row = Row {
            name,
            theirs,
            seconds,
            count,
            bytes: count * words.block_size as u64,
            disk: counted.take(),
        };
        if !invocation.json {
            row.print();
        }
        rows.push(row.json());
    }
    if !invocation.json && !storage.is_direct() {
        say!("The file system has no direct access: the system's memory of files may have helped.");
    }
    server.drain();
    if let Some(store) = Arc::into_inner(store) {
        store.close()?;
    }
    Ok(rows)
}

struct Row {
    name: &'static str,
    theirs: f64,
    seconds: f64,
    count: u64,
    bytes: u64,
    disk: DiskWork,
}

#[expect(clippy::cast_precision_loss, reason = "figures are shown with few digits")]
impl Row {
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e6
    }

    fn print(&self) {
        let each = |count: u64| count as f64 / self.count as f64;
        say!(
            "  {:<28}{:>10.1}{:>12.2}{:>10.4}{:>14.1}",
            self.name,
            self.rate(),
            self.theirs,
            each(self.disk.seeks),
            each(self.disk.read_bytes)
        );
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

fn print_shape(block_bytes: u64, shape: &IndexShape) {
    say!("");
    say!(
        "An index of {} of {}: {}, {} bits of a fingerprint compared, {:.1} blocks expected that share them with an earlier one.",
        show::count(shape.block_count, "block"),
        show::bytes(block_bytes),
        show::bytes(shape.memory_bytes),
        shape.fingerprint_bits,
        shape.expected_shared
    );
    let lengths = &shape.segment_lengths;
    let ends = (lengths.first_key_value(), lengths.last_key_value());
    if let (Some((least, _)), Some((most, _))) = ends {
        let count: u64 = lengths.values().sum();
        say!("  {count} segments of {least} to {most} entries");
    }
    print_histogram("slots looked at", &shape.slots_looked_at);
    print_histogram("candidates of a new block", &shape.candidates_when_written);
    print_histogram("candidates of a block that is there", &shape.candidates_when_read);
}

fn print_histogram(name: &str, counts: &Histogram) {
    const SHOWN: usize = 16;
    say!("  {name}:");
    for (number, count) in counts.iter().take(SHOWN) {
        say!("  {number:>6}{count:>14}");
    }
    let more: u64 = counts.values().skip(SHOWN).sum();
    if more > 0 {
        say!("    more{more:>14}");
    }
}
