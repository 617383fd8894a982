//! `varve-plan trace`

mod profile_table;
mod store_walk;
mod workload;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use varve_archive::Archive;
use varve_content::{NewFile, PRIVATE};
use varve_trace::{
    SourceKind, TraceEnding, TraceHeader, TraceMaker, TraceProfile, TraceProfiler, TraceReader, TraceRecord,
    TraceRun, TraceWriter,
};
use varve_world::Timestamp;

use self::store_walk::StoreWalk;
use self::workload::{PlannedStore, SeriesSizes};
use crate::arguments::{StoreTraceArgs, TraceCommand, TraceFileArgs, TraceProfileArgs, TraceWorkloadArgs};
use crate::command::taking::trace_file;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show};

pub fn run(invocation: &Invocation, command: &TraceCommand) -> Result<CommandOutcome> {
    match command {
        TraceCommand::Show(args) => show_records(invocation, args),
        TraceCommand::Profile(args) => profile(invocation, args),
        TraceCommand::Workload(args) => workload(invocation, args),
        TraceCommand::FromStore(args) => from_store(invocation, args),
    }
}

fn open(file: &Path) -> Result<TraceReader<File>> {
    let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    TraceReader::new(opened).with_context(|| format!("cannot read {}", file.display()))
}

fn show_records(invocation: &Invocation, args: &TraceFileArgs) -> Result<CommandOutcome> {
    let mut reader = open(&args.file)?;
    show_header(invocation, reader.header());
    for record in reader.by_ref() {
        let record = record.with_context(|| format!("cannot read {}", args.file.display()))?;
        if invocation.json {
            say::item("trace_record", as_json(&record));
        } else {
            list!("{record}");
        }
    }
    show_ending(invocation, reader.ending());
    Ok(CommandOutcome::Done)
}

fn show_header(invocation: &Invocation, header: &TraceHeader) {
    let TraceHeader { maker, name, block_bytes } = header;
    let seed = match maker {
        TraceMaker::Recorder => None,
        TraceMaker::Generator { seed } => Some(*seed),
    };
    if invocation.json {
        say::item("trace", json!({ "maker": name, "seed": seed, "block_bytes": block_bytes }));
        return;
    }
    let origin = seed.map_or("recorded by".into(), |seed| format!("generated with seed {seed} by"));
    let blocks =
        block_bytes.map_or("blocks of several sizes".into(), |bytes| format!("blocks of {bytes} bytes"));
    list!("{origin} {name}, {blocks}");
}

fn show_ending(invocation: &Invocation, ending: Option<TraceEnding>) {
    let cut_at = match ending {
        Some(TraceEnding::Cut { offset }) => Some(offset),
        _ => None,
    };
    if invocation.json {
        say::record("trace_end", json!({ "complete": cut_at.is_none(), "cut_at": cut_at }));
    } else if let Some(offset) = cut_at {
        warning!("the trace has no end: it was cut after offset {offset}");
    }
}

/// A record for programs. All records have the same fields.
fn as_json(record: &TraceRecord) -> Value {
    let run = |kind: &str, run: &TraceRun| {
        json!({
            "record": kind,
            "place": run.place,
            "first_id": run.first_id,
            "block_count": run.block_count,
            "block_type": run.block_type.to_string(),
            "block_bytes": run.block_bytes,
            "size_class": run.size_class.eighths(),
        })
    };
    match record {
        TraceRecord::Open => json!({ "record": "open" }),
        TraceRecord::Close => json!({ "record": "close" }),
        TraceRecord::Sync => json!({ "record": "sync" }),
        TraceRecord::Gc => json!({ "record": "gc" }),
        TraceRecord::IdsFull => json!({ "record": "ids_full" }),
        TraceRecord::Idle { milliseconds } => json!({ "record": "idle", "milliseconds": milliseconds }),
        TraceRecord::Forget { snapshot } => json!({ "record": "forget", "snapshot": snapshot }),
        TraceRecord::Snapshot(begin) => {
            let source = match begin.source {
                SourceKind::Unknown => None,
                SourceKind::Image => Some("image"),
                SourceKind::Folder => Some("folder"),
            };
            let time = moment::rfc3339(Timestamp(begin.time.saturating_mul(1_000_000_000)));
            json!({ "record": "snapshot", "time": time, "series": begin.series, "source": source })
        }
        TraceRecord::Put(blocks) => run("put", blocks),
        TraceRecord::Get(blocks) => run("get", blocks),
    }
}

fn profile(invocation: &Invocation, args: &TraceProfileArgs) -> Result<CommandOutcome> {
    let mut profiler = TraceProfiler::new();
    match &args.file {
        Some(file) => {
            for record in open(file)? {
                profiler.add(&record.with_context(|| format!("cannot read {}", file.display()))?);
            }
        }
        None => walk_store(&invocation.session.read()?, args.read, &mut |record| {
            profiler.add(&record);
            Ok(())
        })?,
    }
    let profile: TraceProfile = profiler.finish();
    if invocation.json {
        say::record("workload_profile", json!({ "profile": profile }));
    } else {
        profile_table::print(&profile);
    }
    Ok(CommandOutcome::Done)
}

fn workload(invocation: &Invocation, args: &TraceWorkloadArgs) -> Result<CommandOutcome> {
    let archive = invocation.session.read()?;
    let (mut profiler, mut sizes) = (TraceProfiler::new(), SeriesSizes::default());
    walk_store(&archive, args.read, &mut |record| {
        profiler.add(&record);
        sizes.add(&record);
        Ok(())
    })?;
    let names: BTreeSet<_> = archive.snapshots().iter().map(|snapshot| snapshot.name.as_str()).collect();
    let store = PlannedStore {
        name: names.into_iter().take(3).collect::<Vec<_>>().join(", "),
        log_bytes: archive.store().stats()?.log_bytes,
        block_bytes: archive.store().config().block_bytes,
    };
    let found = workload::of_store(&profiler.finish(), &sizes, &store)?;
    if invocation.json {
        say::record("workload", json!({ "workload": found.workload, "text": found.text() }));
    } else {
        say!("{}", found.text().trim_end());
    }
    Ok(CommandOutcome::Done)
}

fn from_store(invocation: &Invocation, args: &StoreTraceArgs) -> Result<CommandOutcome> {
    let context = || format!("cannot make {}", args.file.display());
    let archive = invocation.session.read()?;
    let output = NewFile::create(&args.file, PRIVATE, false).with_context(context)?;
    let name = trace_file::maker();
    let header = TraceHeader { maker: TraceMaker::Recorder, name, block_bytes: None };
    let mut writer = TraceWriter::new(output, &header).with_context(context)?;
    let mut snapshot_count = 0_u64;
    walk_store(&archive, args.read, &mut |record| {
        snapshot_count += u64::from(matches!(record, TraceRecord::Snapshot(_)));
        writer.write(&record).with_context(context)
    })?;
    writer.finish().with_context(context)?.complete().with_context(context)?;
    if invocation.json {
        say::record("trace_written", json!({ "snapshots": snapshot_count }));
    } else if !invocation.quiet {
        say!("{}: {}", args.file.display(), show::count(snapshot_count, "snapshot"));
    }
    Ok(CommandOutcome::Done)
}

/// Makes the records of a trace of all snapshots, in the order of their times.
fn walk_store(archive: &Archive, reads: bool, take: &mut dyn FnMut(TraceRecord) -> Result<()>) -> Result<()> {
    let mut snapshots: Vec<_> = archive.snapshots().iter().collect();
    snapshots.sort_by_key(|snapshot| snapshot.time);
    let mut walk = StoreWalk::new(archive.store(), reads, take)?;
    for snapshot in snapshots {
        walk.snapshot(snapshot)
            .with_context(|| format!("the snapshot {} of {} cannot be read", snapshot.id, snapshot.name))?;
    }
    walk.finish()
}
