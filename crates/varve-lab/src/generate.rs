//! `varve-lab generate`: makes traces that were never recorded, from figures about real ones.

mod dice;
mod from_profile;
mod fsl;

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use varve_block::{BlockType, to_usize};
use varve_trace::{
    SizeClass, TraceHeader, TraceMaker, TraceProfile, TraceRecord, TraceRun, TraceWriter, WaitingRun,
};

use self::from_profile::{SourceShape, generate_source};
use self::fsl::{FslProfile, FslTree};

/// The longest profile, in bytes.
const PROFILE_BYTES_MAX: u64 = 16 << 20;

/// The days from one collection to the next.
const COLLECTION_DAYS: u32 = 7;

/// The generators.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Generate {
    /// A tree of files that changes, after Tarasov et al. (ATC 2012): a file changes, appears or
    /// vanishes by transition probabilities, and changes at its beginning, in its middle or at its
    /// end
    Fsl(GenerateArgs),
    /// A disk of blocks of one size, with the changes of the profile of `varve-plan trace profile`
    Images(GenerateArgs),
    /// Files in blocks of several sizes, with the changes of a profile of `varve-plan trace`
    Trees(GenerateArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct GenerateArgs {
    /// The new trace
    out: PathBuf,

    /// The profile in JSON. For fsl: any of the fields that the output shows; fields that are not
    /// there keep their default
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,

    /// The number of snapshots, one a day
    #[arg(long, value_name = "COUNT", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    snapshots: u32,

    /// Forget all but so many of the newest snapshots, and collect the store after each seventh one
    /// [default: keep all]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,

    /// The seed: the same seed and profile give the same trace
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Makes a trace. `done` receives one object.
pub(crate) fn run(command: &Generate, done: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
    let (name, args) = match command {
        Generate::Fsl(args) => ("fsl", args),
        Generate::Images(args) => ("images", args),
        Generate::Trees(args) => ("trees", args),
    };
    let fsl = match (command, &args.profile) {
        (Generate::Fsl(_), Some(file)) => Some(read_json::<FslProfile>(file)?),
        (Generate::Fsl(_), None) => Some(FslProfile::default()),
        _ => None,
    };
    let mut sink = TraceSink::create(args, name, fsl.as_ref().map(|profile| profile.chunk_bytes))?;
    let mut value = json!({ "type": "generated_trace", "generator": name, "seed": args.seed });
    if let Some(profile) = fsl {
        profile.check()?;
        let mut tree = FslTree::new(profile, args.seed);
        for day in 0..args.snapshots {
            if day > 0 {
                tree.next_day();
            }
            tree.emit(day, &mut sink)?;
        }
        value["profile"] = serde_json::to_value(tree.profile())?;
    } else {
        let Some(file) = &args.profile else {
            bail!("name a profile with --profile: `varve-plan --json trace profile` makes one");
        };
        let shape =
            if matches!(command, Generate::Images(_)) { SourceShape::Image } else { SourceShape::Tree };
        generate_source(&read_profile(file)?, shape, args.snapshots, args.seed, &mut sink)?;
    }
    value["records"] = json!(sink.finish()?);
    done(value)
}

/// Reads the output of `varve-plan --json trace profile`.
fn read_profile(file: &Path) -> Result<TraceProfile> {
    #[derive(serde::Deserialize)]
    struct ProfileLine {
        profile: TraceProfile,
    }
    let ProfileLine { profile } = read_json(file)?;
    ensure!(profile.is_sound(), "{}: the histograms contradict themselves", file.display());
    Ok(profile)
}

fn read_json<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let context = || format!("cannot read {}", file.display());
    let opened = File::open(file).with_context(context)?;
    let length = opened.metadata().with_context(context)?.len();
    ensure!(length <= PROFILE_BYTES_MAX, "{} is too long for a profile", file.display());
    serde_json::from_reader(std::io::BufReader::new(opened)).with_context(context)
}

/// Takes the records of a generator, and joins runs.
struct TraceSink {
    /// The number of snapshots that are not forgotten.
    keep: Option<u32>,
    waiting: WaitingRun,
    writer: TraceWriter<File>,
    record_count: u64,
    /// The id of each content in the trace, by the generator's own number; `None` before its first
    /// use.
    ids: Vec<Option<u64>>,
    next_id: u64,
}

impl TraceSink {
    fn create(args: &GenerateArgs, name: &str, block_bytes: Option<u32>) -> Result<Self> {
        let file =
            File::create_new(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
        let header = TraceHeader {
            maker: TraceMaker::Generator { seed: args.seed },
            name: format!("varve-lab {} {name}", env!("CARGO_PKG_VERSION")),
            block_bytes,
        };
        let writer = TraceWriter::new(file, &header)?;
        Ok(Self {
            keep: args.keep,
            waiting: WaitingRun::default(),
            writer,
            record_count: 0,
            ids: Vec::new(),
            next_id: 0,
        })
    }

    fn add(&mut self, record: TraceRecord) -> Result<()> {
        for record in self.waiting.add(record).into_iter().flatten() {
            self.writer.write(&record)?;
            self.record_count += 1;
        }
        Ok(())
    }

    /// Puts a block. The generator numbers contents in any order.
    fn put(&mut self, place: u64, content: u64, block_bytes: u32, size_class: SizeClass) -> Result<()> {
        let index = to_usize(content);
        if index >= self.ids.len() {
            self.ids.resize(index + 1, None);
        }
        let known = self.ids[index];
        let first_id = known.unwrap_or(self.next_id);
        if known.is_none() {
            self.ids[index] = Some(first_id);
            self.next_id += 1;
        }
        let size_class = if known.is_some() { SizeClass::UNKNOWN } else { size_class };
        let block_type = BlockType::DATA;
        self.add(TraceRecord::Put(TraceRun {
            place,
            first_id,
            block_count: 1,
            block_type,
            block_bytes,
            size_class,
        }))
    }

    /// Ends the snapshot of a day.
    fn end_snapshot(&mut self, day: u32) -> Result<()> {
        self.add(TraceRecord::Sync)?;
        let Some(keep) = self.keep else { return Ok(()) };
        if let Some(snapshot) = day.checked_sub(keep) {
            self.add(TraceRecord::Forget { snapshot: snapshot.into() })?;
        }
        if (day + 1).is_multiple_of(COLLECTION_DAYS) { self.add(TraceRecord::Gc) } else { Ok(()) }
    }

    fn finish(mut self) -> Result<u64> {
        self.add(TraceRecord::Close)?;
        self.writer.finish()?;
        Ok(self.record_count)
    }
}

#[cfg(test)]
mod tests;
