//! `varve-lab replay`: runs a trace through the real engine, in virtual time or on a real disk.

mod collect;
mod ground;
mod traced_snapshots;

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use varve_block::{Block, BlockKind, BlockName, BlockStore, BlockType, to_usize};
use varve_log::{ArenaMap, CompressionLevel};
use varve_plan::Engine;
use varve_sim::{DeviceTimes, GeneratedBlock, PageCacheLimits};
use varve_store::{CompareMode, Encryption, PassphraseCost, Store, StoreAccess, StoreConfig};
use varve_trace::{SizeClass, SnapshotBegin, SourceKind, TraceReader, TraceRecord, TraceRun};
use varve_world::World;

use crate::amount;
use crate::simulated::device;
use collect::{CollectedSpace, collect};
use ground::ReplayGround;
use traced_snapshots::TracedSnapshots;

const HOLDER: &str = "varve-lab replay";
/// Blocks that are put or read together.
const BATCH_BLOCKS: u64 = 64;
/// Blocks that a restore reads together.
const RESTORED_BLOCKS: usize = 1024;
/// Smaller blocks have no room for the header of a generated block.
const GENERATED_BYTES_MIN: u32 = 32;

#[derive(Debug, Clone, Args)]
pub(crate) struct Replay {
    /// The trace
    trace: PathBuf,

    /// The device of the store: the name of one that the program knows, or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "foundation-maxtor")]
    device: String,

    /// Run the trace in real time instead, in a new store in this folder of a real disk, which is
    /// removed at the end. Reads bypass the page cache, and pauses are left out
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["device", "failures"])]
    folder: Option<PathBuf>,

    /// The engine
    #[arg(long, value_enum, default_value = "hash-memory")]
    engine: ReplayEngine,

    /// The size of an arena
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = amount::bytes)]
    arena_size: u64,

    /// Bytes that may wait to be written to the device
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = amount::bytes)]
    write_cache: u64,

    /// Bytes that the page cache keeps after they were read or written
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = amount::bytes)]
    page_cache: u64,

    /// The bytes a second at which the processor names blocks [default: it takes no time]
    #[arg(long, value_name = "BYTES", value_parser = amount::bytes)]
    naming_rate: Option<u64>,

    /// The bytes a second at which it packs new blocks [default: it takes no time]
    #[arg(long, value_name = "BYTES", value_parser = amount::bytes)]
    packing_rate: Option<u64>,

    /// The bytes a second at which it unpacks blocks that are read [default: it takes no time]
    #[arg(long, value_name = "BYTES", value_parser = amount::bytes)]
    unpacking_rate: Option<u64>,

    /// At the end, restore the newest snapshot: open the store with empty caches, and read all
    /// blocks that the snapshot has put
    #[arg(long)]
    restore: bool,

    /// At the end, forget all but so many of the newest snapshots, and collect the store
    #[arg(long, value_name = "COUNT")]
    keep: Option<usize>,

    /// Let no block compress: the simulated log then needs little memory
    #[arg(long)]
    incompressible: bool,

    /// Let the device fail in the course of time: a TOML file with a `name`, a `source`, and rates
    /// a year. The run goes on after errors, and the output says how many blocks were lost
    #[arg(long, value_name = "FILE")]
    failures: Option<PathBuf>,

    /// The seed of everything that the store draws at random, and of the failures
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The engine that runs the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReplayEngine {
    /// By hash, with the index in memory
    HashMemory,
    /// By hash, with the index on disk
    HashDisk,
    /// By value, with the index in memory
    ValueMemory,
    /// By value, with the index on disk
    ValueDisk,
}

impl ReplayEngine {
    fn engine(self) -> Engine {
        let [hash_memory, hash_disk, value_memory, value_disk] = Engine::CHOICES;
        match self {
            Self::HashMemory => hash_memory,
            Self::HashDisk => hash_disk,
            Self::ValueMemory => value_memory,
            Self::ValueDisk => value_disk,
        }
    }
}

/// Runs the trace. `done` receives one object for each snapshot, and one for all of it.
pub(crate) fn run(args: &Replay, done: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
    let not_read = || format!("cannot read {}", args.trace.display());
    let reader = TraceReader::new(File::open(&args.trace).with_context(not_read)?).with_context(not_read)?;
    let ground = match &args.folder {
        Some(folder) => ReplayGround::real(folder)?,
        None => {
            let limits =
                PageCacheLimits { dirty_bytes: args.write_cache.max(1 << 20), clean_bytes: args.page_cache };
            ReplayGround::simulated(&device(&args.device)?, limits, args.failures.as_deref(), args.seed)?
        }
    };
    let mut replay = TraceReplay::new(args, ground)?;
    for record in reader {
        let record = record.with_context(not_read)?;
        if let Err(error) = replay.apply(&record, done) {
            replay.note_failure(error)?;
        }
        if replay.is_dead() {
            break;
        }
    }
    if args.restore && !replay.is_dead() {
        replay.restore(done)?;
    }
    if let Some(keep) = args.keep
        && !replay.is_dead()
    {
        replay.thin(keep, done)?;
    }
    replay.finish(done)
}

/// The work of a part of the trace.
#[derive(Debug, Clone, Copy, Default)]
struct ReplayedWork {
    put_blocks: u64,
    put_bytes: u64,
    new_bytes: u64,
    read_blocks: u64,
    read_bytes: u64,
    /// Reads of blocks that the trace has not put before, which cannot be repeated.
    unknown_reads: u64,
    collected: CollectedSpace,
    nanoseconds: u64,
    index: DeviceTimes,
    log: DeviceTimes,
}

/// A store at work, and the blocks that it has.
struct TraceReplay {
    world: World,
    ground: ReplayGround,
    store: Option<Store>,
    compresses: bool,
    /// Rates of the processor in bytes a second.
    naming_rate: Option<u64>,
    packing_rate: Option<u64>,
    unpacking_rate: Option<u64>,
    /// The names of blocks by their ids; `None` for one that was never put.
    names: Vec<Option<BlockName>>,
    /// The class of each block at its first use. Later uses need not have one.
    classes: Vec<SizeClass>,
    begin: Option<SnapshotBegin>,
    snapshot_count: u64,
    part: ReplayedWork,
    all: ReplayedWork,
    part_started: u64,
    snapshots: TracedSnapshots,
    /// The number of records that failed, and the first error.
    failed_records: u64,
    first_error: Option<String>,
}

impl TraceReplay {
    fn new(args: &Replay, ground: ReplayGround) -> Result<Self> {
        let engine = args.engine.engine();
        let world = ground.world(args.seed);
        let mut config = StoreConfig::new([0x1d; 16]);
        // Emulated storage recognises the blocks in the log only in clear.
        config.encryption = Encryption::None;
        config.compression_level = CompressionLevel::new(1).context("level 1 exists")?;
        config.arena_map = ArenaMap::new(args.arena_size).context("an arena cannot have this size")?;
        config.index = engine.index;
        config.compare = if engine.by_value { CompareMode::Value } else { CompareMode::Hash };
        Store::create(&world, &config, None, PassphraseCost::default())?;
        let mut replay = Self {
            world,
            ground,
            store: None,
            compresses: !args.incompressible,
            naming_rate: args.naming_rate,
            packing_rate: args.packing_rate,
            unpacking_rate: args.unpacking_rate,
            names: Vec::new(),
            classes: Vec::new(),
            begin: None,
            snapshot_count: 0,
            part: ReplayedWork::default(),
            all: ReplayedWork::default(),
            part_started: 0,
            snapshots: TracedSnapshots::default(),
            failed_records: 0,
            first_error: None,
        };
        replay.open()?;
        let _making = replay.ground.take_times();
        replay.part_started = replay.nanoseconds();
        Ok(replay)
    }

    /// Returns the time.
    fn nanoseconds(&self) -> u64 {
        u64::try_from(self.world.clock.now().0).unwrap_or(0)
    }

    /// Opens the store with empty caches, unless it is open.
    fn open(&mut self) -> Result<&Store> {
        if self.store.is_none() {
            self.ground.forget();
            let access = StoreAccess::Write { holder: HOLDER };
            self.store = Some(Store::open(self.world.clone(), None, access, &mut |_| ())?);
        }
        self.store.as_ref().context("the store was opened")
    }

    /// Goes on after a failure of a record, if failures were asked for. The store is opened anew.
    fn note_failure(&mut self, error: anyhow::Error) -> Result<()> {
        if self.ground.failing().is_none() {
            return Err(error);
        }
        self.failed_records += 1;
        self.first_error.get_or_insert_with(|| varve_block::with_causes(error.as_ref()));
        self.store = None;
        Ok(())
    }

    /// Reports whether the device has ended.
    fn is_dead(&self) -> bool {
        self.ground.failing().is_some_and(|failing| failing.tally().died_at.is_some())
    }

    /// Reads all blocks. Returns the number of those that cannot be read.
    fn lost_blocks(&mut self) -> u64 {
        let names: Vec<_> = self.names.iter().copied().flatten().collect();
        let mut lost = 0;
        for name in &names {
            // A read that fails once may succeed when it is repeated.
            let found = (0..2).any(|_| self.open().is_ok_and(|store| store.get(name).is_ok()));
            lost += u64::from(!found);
        }
        lost
    }

    fn apply(&mut self, record: &TraceRecord, done: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
        match record {
            TraceRecord::Open => drop(self.open()?),
            TraceRecord::Close => {
                self.snapshots.end();
                if let Some(store) = self.store.take() {
                    store.close()?;
                }
            }
            TraceRecord::Idle { milliseconds } => {
                // The device may write meanwhile, but the pause belongs to no snapshot.
                let nanoseconds = self.ground.pause(*milliseconds);
                self.part_started = self.part_started.saturating_add(nanoseconds);
            }
            TraceRecord::Snapshot(begin) => {
                self.end_part(done)?;
                self.begin = Some(*begin);
                self.snapshots.begin(begin);
            }
            TraceRecord::Put(run) => self.put(run)?,
            TraceRecord::Get(run) => self.get(run)?,
            TraceRecord::Sync => self.open()?.sync()?,
            TraceRecord::Forget { snapshot } => self.snapshots.forget(*snapshot)?,
            TraceRecord::Gc => self.collect()?,
            TraceRecord::IdsFull => {}
        }
        Ok(())
    }

    /// The bytes of a block: a part that does not compress, and zeros.
    fn contents(&self, run: &TraceRun, id: u64) -> Vec<u8> {
        let first = self.classes.get(to_usize(id));
        let eighths = match first.unwrap_or(&run.size_class).eighths() {
            0 => 8,
            _ if !self.compresses => 8,
            eighths => u32::from(eighths),
        };
        let noise = (run.block_bytes / 8 * eighths + run.block_bytes % 8)
            .clamp(GENERATED_BYTES_MIN.min(run.block_bytes), run.block_bytes);
        let mut contents = GeneratedBlock { number: id, bytes: noise }.contents();
        contents.resize(run.block_bytes as usize, 0);
        if run.block_bytes < GENERATED_BYTES_MIN {
            // Only so many different blocks are so small; the rest are equal here.
            let number = id.to_le_bytes();
            let length = contents.len().min(number.len());
            contents[..length].copy_from_slice(&number[..length]);
        }
        contents
    }

    fn put(&mut self, run: &TraceRun) -> Result<()> {
        let block_type = plain_type(run.block_type);
        let mut id = run.first_id;
        while id < run.end_id() {
            let end = run.end_id().min(id + BATCH_BLOCKS);
            let contents: Vec<_> = (id..end).map(|id| self.contents(run, id)).collect();
            let blocks: Vec<_> = contents.iter().map(|bytes| Block { block_type, bytes }).collect();
            let scores = self.open()?.put_batch(&blocks)?;
            let new_before = self.part.new_bytes;
            for (id, score) in (id..end).zip(scores) {
                let place = to_usize(id);
                let is_new = self.names.get(place).is_none_or(Option::is_none);
                self.part.new_bytes += if is_new { u64::from(run.block_bytes) } else { 0 };
                self.note_used(place + 1, run.size_class);
                self.names[place] = Some(BlockName { score, block_type });
            }
            self.ground.work(self.naming_rate, (end - id) * u64::from(run.block_bytes));
            self.ground.work(self.packing_rate, self.part.new_bytes - new_before);
            id = end;
        }
        self.snapshots.put(run);
        self.part.put_blocks += run.block_count;
        self.part.put_bytes += run.bytes();
        Ok(())
    }

    /// Frees the blocks that no snapshot has. Later reads of them cannot be repeated.
    fn collect(&mut self) -> Result<()> {
        let live = self.snapshots.live();
        for (id, name) in (0..).zip(&mut self.names) {
            name.take_if(|_| !live.contains(&id));
        }
        let names: Vec<_> = self.names.iter().copied().flatten().collect();
        let done = collect(self.open()?, &names)?;
        self.part.collected.add(&done);
        Ok(())
    }

    /// Forgets all but some of the newest snapshots, and collects the store. That is a part by
    /// itself.
    fn thin(&mut self, keep: usize, done: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
        self.snapshots.end();
        self.end_part(done)?;
        self.snapshots.forget_all_but(keep);
        match self.collect() {
            Err(error) => self.note_failure(error),
            Ok(()) => Ok(()),
        }
    }

    /// Reads all blocks of the newest snapshot, in the order in which it has them. That is a part
    /// by itself.
    fn restore(&mut self, done: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
        self.snapshots.end();
        self.end_part(done)?;
        let ids = self.snapshots.newest().context("the trace has no snapshot that could be restored")?;
        if let Some(store) = self.store.take() {
            store.close()?;
        }
        let _closing = self.ground.take_times();
        self.part_started = self.nanoseconds();
        for ids in ids.chunks(RESTORED_BLOCKS) {
            let read = self.read(ids.iter().copied());
            if let Err(error) = read {
                self.note_failure(error)?;
            }
        }
        self.end_part_as("replayed_restore", done)
    }

    /// Reads blocks together.
    fn read(&mut self, ids: impl Iterator<Item = u64>) -> Result<()> {
        let found = ids.map(|id| self.names.get(to_usize(id)).copied().flatten());
        let asked: Vec<_> = found.collect();
        let names: Vec<_> = asked.iter().copied().flatten().collect();
        let found = self.open()?.get_batch(&names);
        let mut bytes = 0;
        for found in found {
            bytes += found?.len() as u64;
        }
        self.ground.work(self.unpacking_rate, bytes);
        self.part.read_bytes += bytes;
        self.part.read_blocks += names.len() as u64;
        self.part.unknown_reads += (asked.len() - names.len()) as u64;
        Ok(())
    }

    fn get(&mut self, run: &TraceRun) -> Result<()> {
        let mut id = run.first_id;
        while id < run.end_id() {
            let end = run.end_id().min(id + BATCH_BLOCKS);
            self.read(id..end)?;
            id = end;
        }
        // Ids that a read has used first stay without a block.
        let end = to_usize(run.end_id());
        self.note_used(end, run.size_class);
        Ok(())
    }

    /// Makes room for the blocks before the id `end`.
    fn note_used(&mut self, end: usize, size_class: SizeClass) {
        if end > self.names.len() {
            self.names.resize(end, None);
            self.classes.resize(end, size_class);
        }
    }

    /// Reports the work since the last part, if there was any.
    fn end_part(&mut self, done: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
        self.end_part_as("replayed_part", done)
    }

    /// Reports the work since the last part, if there was any, as one of this kind.
    fn end_part_as(&mut self, kind: &str, done: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
        let now = self.nanoseconds();
        let [index, log] = self.ground.take_times();
        let mut part = std::mem::take(&mut self.part);
        part.nanoseconds = now.saturating_sub(self.part_started);
        (part.index, part.log) = (index, log);
        self.part_started = now;
        self.all.add(&part);
        let begin = self.begin.take();
        let requests = part.put_blocks + part.read_blocks + part.unknown_reads + part.collected.collections;
        if begin.is_none() && requests == 0 {
            return Ok(());
        }
        let mut value = part.as_json(kind);
        if let Some(begin) = begin {
            value["type"] = json!("replayed_snapshot");
            value["number"] = json!(self.snapshot_count);
            value["series"] = json!(begin.series);
            value["time"] = json!(begin.time);
            value["source"] = json!(match begin.source {
                SourceKind::Unknown => None,
                SourceKind::Image => Some("image"),
                SourceKind::Folder => Some("folder"),
            });
            self.snapshot_count += 1;
        }
        done(value)
    }

    fn finish(mut self, done: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
        self.end_part(done)?;
        if let Some(store) = self.store.take()
            && let Err(error) = store.close()
        {
            self.note_failure(error.into())?;
        }
        if self.all.put_blocks + self.all.read_blocks == 0 {
            bail!("the trace has no puts and no reads that can be repeated");
        }
        let mut value = self.all.as_json("replayed_trace");
        value["snapshots"] = json!(self.snapshot_count);
        let failures = self.ground.failing().map(|failing| (failing.profile().name, failing.tally()));
        if let Some((profile, before)) = failures {
            value["failures"] = json!({
                "profile": profile,
                "happened": before.happened,
                "failed_reads": before.failed_reads,
                "died_at_nanoseconds": before.died_at,
                "failed_records": self.failed_records,
                "first_error": self.first_error,
                "lost_blocks": self.lost_blocks(),
            });
        }
        done(value)
    }
}

impl ReplayedWork {
    fn add(&mut self, more: &Self) {
        self.put_blocks += more.put_blocks;
        self.put_bytes += more.put_bytes;
        self.new_bytes += more.new_bytes;
        self.read_blocks += more.read_blocks;
        self.read_bytes += more.read_bytes;
        self.unknown_reads += more.unknown_reads;
        self.collected.add(&more.collected);
        self.nanoseconds += more.nanoseconds;
        self.index += more.index;
        self.log += more.log;
    }

    fn as_json(&self, kind: &str) -> Value {
        json!({
            "type": kind,
            "put_blocks": self.put_blocks,
            "put_bytes": self.put_bytes,
            "new_bytes": self.new_bytes,
            "read_blocks": self.read_blocks,
            "read_bytes": self.read_bytes,
            "unknown_reads": self.unknown_reads,
            "collected": {
                "collections": self.collected.collections,
                "replaced_arenas": self.collected.replaced_arenas,
                "freed_bytes": self.collected.freed_bytes,
                "written_bytes": self.collected.written_bytes,
                "left_bytes": self.collected.left_bytes,
            },
            "nanoseconds": self.nanoseconds,
            "index": device_json(&self.index),
            "log": device_json(&self.log),
        })
    }
}

fn device_json(times: &DeviceTimes) -> Value {
    json!({
        "reading": times.reading,
        "writing": times.writing,
        "seeking": times.seeking,
        "reads": times.reads,
        "writes": times.writes,
        "seeks": times.seeks,
        "read_bytes": times.read_bytes,
        "written_bytes": times.written_bytes,
    })
}

/// The type under which a block is put. Roots of catalogs and notes have a meaning to the store,
/// and their contents here would be no such thing.
fn plain_type(block_type: BlockType) -> BlockType {
    match block_type.kind() {
        BlockKind::Data | BlockKind::Directory => block_type,
        BlockKind::Root | BlockKind::Catalog | BlockKind::Note => BlockType::DIRECTORY,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use varve_trace::{TraceHeader, TraceMaker, TraceWriter};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Replay,
    }

    fn replayed(records: &[TraceRecord], args: &[&str]) -> Vec<Value> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("work.vtrace");
        let header = TraceHeader { maker: TraceMaker::Recorder, name: "test".into(), block_bytes: None };
        let mut writer = TraceWriter::new(File::create(&path).unwrap(), &header).unwrap();
        records.iter().for_each(|record| writer.write(record).unwrap());
        writer.finish().unwrap();
        let line = ["replay", path.to_str().unwrap()];
        let line = Line::parse_from(line.iter().chain(args));
        let mut found = Vec::new();
        run(&line.args, &mut |value| {
            found.push(value);
            Ok(())
        })
        .unwrap();
        found
    }

    fn two_days() -> Vec<TraceRecord> {
        let begin =
            |time| TraceRecord::Snapshot(SnapshotBegin { time, series: 0, source: SourceKind::Image });
        let run = |place: u64, first_id, block_count| TraceRun {
            place,
            first_id,
            block_count,
            block_type: BlockType::DATA,
            block_bytes: 4096,
            size_class: SizeClass::new(4).unwrap(),
        };
        vec![
            TraceRecord::Open,
            begin(0),
            TraceRecord::Put(run(0, 0, 1000)),
            TraceRecord::Sync,
            TraceRecord::Close,
            TraceRecord::Open,
            TraceRecord::Idle { milliseconds: 86_400_000 },
            begin(86_400),
            TraceRecord::Put(run(0, 0, 900)),
            TraceRecord::Put(run(0, 1000, 100)),
            TraceRecord::Sync,
            TraceRecord::Get(run(0, 0, 200)),
            TraceRecord::Get(run(0, 1100, 5)),
            TraceRecord::Close,
        ]
    }

    /// Two days. The first one's blocks are forgotten, and collected but for the shared ones.
    fn a_forgotten_day() -> Vec<TraceRecord> {
        let run = |first_id, block_count| TraceRun {
            place: 0,
            first_id,
            block_count,
            block_type: BlockType::DATA,
            block_bytes: 4096,
            size_class: SizeClass::INCOMPRESSIBLE,
        };
        let begin =
            |time| TraceRecord::Snapshot(SnapshotBegin { time, series: 0, source: SourceKind::Folder });
        vec![
            begin(0),
            TraceRecord::Put(run(0, 1000)),
            TraceRecord::Sync,
            begin(86_400),
            TraceRecord::Put(run(900, 100)),
            TraceRecord::Put(run(1000, 900)),
            TraceRecord::Sync,
            TraceRecord::Close,
            TraceRecord::Gc,
            TraceRecord::Get(run(0, 1900)),
            TraceRecord::Forget { snapshot: 0 },
            TraceRecord::Gc,
            TraceRecord::Get(run(0, 1900)),
            begin(172_800),
            TraceRecord::Put(run(0, 10)),
            TraceRecord::Get(run(0, 10)),
        ]
    }

    /// Two snapshots of 4 MB in arenas of 1 MB.
    #[test]
    fn a_collection_frees_the_forgotten_blocks_as_on_a_real_disk() {
        for engine in ["hash-memory", "hash-disk", "value-memory"] {
            let args = ["--engine", engine, "--arena-size", "1M"];
            let found = replayed(&a_forgotten_day(), &args);
            let [first, second, third, all] = &found[..] else { panic!("{found:#?}") };
            assert_eq!(first["collected"]["collections"], 0);
            let collected = &second["collected"];
            assert_eq!((&collected["collections"], &all["collected"]), (&json!(2), collected));
            // Arenas of the first day are freed, but for the last one, which both days share.
            let freed = collected["freed_bytes"].as_u64().unwrap();
            assert!((3_000_000..3_900_000).contains(&freed), "{engine}: {collected}");
            assert!(collected["written_bytes"].as_u64().unwrap() < 1_100_000, "{engine}: {collected}");
            assert_eq!((&second["read_blocks"], &second["unknown_reads"]), (&json!(2900), &json!(900)));
            // Blocks that were freed are new when they are put again.
            assert_eq!((&third["new_bytes"], &third["read_blocks"]), (&json!(40_960), &json!(10)));

            let folder = tempfile::tempdir().unwrap();
            let on_disk = [&args[..], &["--folder", folder.path().to_str().unwrap()]].concat();
            let real = replayed(&a_forgotten_day(), &on_disk);
            for (one, other) in real.iter().zip(&found) {
                assert_eq!(one["collected"], other["collected"], "{engine}");
            }
        }
    }

    /// A recorded trace forgets nothing. The first of the two days goes at the end.
    #[test]
    fn old_snapshots_of_a_recorded_trace_are_forgotten_at_its_end() {
        let args = ["--arena-size", "1M"];
        let records = &a_forgotten_day()[..8];
        let found = replayed(records, &[&args[..], &["--keep", "1"]].concat());
        let kinds: Vec<_> = found.iter().map(|value| value["type"].as_str().unwrap()).collect();
        let parts = ["replayed_snapshot", "replayed_snapshot", "replayed_part", "replayed_trace"];
        assert_eq!(kinds, parts, "{found:#?}");
        assert!(found[2]["collected"]["freed_bytes"].as_u64().unwrap() > 3_000_000, "{found:#?}");
        let all_kept = replayed(records, &[&args[..], &["--keep", "2"]].concat());
        assert_eq!(all_kept[3]["collected"]["freed_bytes"], 0);
    }

    #[test]
    fn a_snapshot_is_not_forgotten_before_it_begins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("work.vtrace");
        let header = TraceHeader { maker: TraceMaker::Recorder, name: "test".into(), block_bytes: None };
        let writer = TraceWriter::new(File::create(&path).unwrap(), &header).unwrap();
        writer.finish().unwrap();
        let line = Line::parse_from(["replay", path.to_str().unwrap()]);
        let ground = ReplayGround::simulated(
            &device(&line.args.device).unwrap(),
            PageCacheLimits { dirty_bytes: 1 << 20, clean_bytes: 0 },
            None,
            1,
        );
        let mut replay = TraceReplay::new(&line.args, ground.unwrap()).unwrap();
        let error = replay.apply(&TraceRecord::Forget { snapshot: 0 }, &mut |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("snapshot 0"), "{error}");
    }

    #[test]
    fn a_trace_is_run_and_each_snapshot_is_reported() {
        let found = replayed(&two_days(), &[]);
        let kinds: Vec<_> = found.iter().map(|value| value["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["replayed_snapshot", "replayed_snapshot", "replayed_trace"], "{found:#?}");
        let [first, second, all] = &found[..] else { panic!() };
        assert_eq!((&first["put_blocks"], &first["new_bytes"]), (&json!(1000), &json!(4_096_000)));
        assert_eq!((&second["put_blocks"], &second["new_bytes"]), (&json!(1000), &json!(409_600)));
        assert_eq!((&second["read_blocks"], &second["unknown_reads"]), (&json!(200), &json!(5)));
        assert!(first["nanoseconds"].as_u64() > second["nanoseconds"].as_u64(), "{found:#?}");
        assert!(second["nanoseconds"].as_u64().unwrap() < 10_000_000_000, "pauses are left out");
        assert_eq!((&all["snapshots"], &all["collected"]["collections"]), (&json!(2), &json!(0)));
        let written = |value: &Value| value["log"]["written_bytes"].as_u64().unwrap();
        assert!((2_000_000..3_000_000).contains(&written(first)), "{first:#?}");
        assert!(written(second) < 500_000, "{second:#?}");
    }

    /// The second day has 900 blocks of the first one, and 100 of its own.
    #[test]
    fn the_newest_snapshot_is_restored_at_the_end_with_empty_caches() {
        let found = replayed(&two_days(), &["--restore", "--unpacking-rate", "1M"]);
        let [_, _, restored, all] = &found[..] else { panic!("{found:#?}") };
        assert_eq!((&restored["read_blocks"], &restored["put_blocks"]), (&json!(1000), &json!(0)));
        assert!(restored["log"]["read_bytes"].as_u64().unwrap() > 2_000_000, "half of it compresses");
        assert!(restored["nanoseconds"].as_u64().unwrap() > 3_900_000_000, "the processor's part");
        assert_eq!(all["read_blocks"], 1200);
    }

    #[test]
    fn a_real_disk_does_the_same_work() {
        let folder = tempfile::tempdir().unwrap();
        let real = replayed(&two_days(), &["--restore", "--folder", folder.path().to_str().unwrap()]);
        let simulated = replayed(&two_days(), &["--restore"]);
        assert_eq!(real.len(), 4);
        for (one, other) in real.iter().zip(&simulated) {
            for figure in ["put_blocks", "put_bytes", "new_bytes", "read_blocks", "read_bytes"] {
                assert_eq!(one[figure], other[figure], "{figure}");
            }
        }
        assert_eq!((&real[2]["type"], &real[2]["read_blocks"]), (&json!("replayed_restore"), &json!(1000)));
        assert!(real[3]["nanoseconds"].as_u64().unwrap() > 0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it leaves nothing behind");
    }

    #[test]
    fn a_device_that_fails_in_time_loses_blocks_and_the_run_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("failures.toml");
        let fails = |rates: &str| {
            std::fs::write(&file, format!("name = \"test\"\nsource = \"made up\"\n{rates}")).unwrap();
            let found = replayed(&two_days(), &["--failures", file.to_str().unwrap()]);
            found.last().unwrap()["failures"].clone()
        };
        let none = fails("");
        assert_eq!((&none["lost_blocks"], &none["failed_records"]), (&json!(0), &json!(0)), "{none}");
        // A day's pause has some 27 of these, on 2 MB. Each makes the whole clump unreadable.
        let some = fails("latent_sector_errors_per_year = 10000");
        assert!(
            some["lost_blocks"].as_u64().unwrap() > 0 && some["failed_reads"].as_u64().unwrap() > 0,
            "{some}"
        );
        assert!(some["first_error"].as_str().unwrap().contains("a sector is unreadable"), "{some}");
        let dead = fails("deaths_per_year = 100000");
        assert_eq!(dead["lost_blocks"], 1000, "the first day's blocks: {dead}");
        assert!(dead["died_at_nanoseconds"].as_u64().unwrap() < 86_500_000_000_000, "{dead}");
        assert!(dead["first_error"].as_str().unwrap().contains("the device has ended"), "{dead}");
    }

    #[test]
    fn the_same_trace_takes_the_same_time() {
        for engine in ["hash-memory", "hash-disk", "value-memory", "value-disk"] {
            let args = ["--engine", engine, "--incompressible"];
            assert_eq!(replayed(&two_days(), &args), replayed(&two_days(), &args), "{engine}");
        }
    }
}
