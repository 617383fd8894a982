//! `varve drill`: restores a part of a snapshot, compares it, and records the result in the store.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_archive::{Snapshot, SnapshotContent};
use varve_block::{to_usize, with_causes};
use varve_content::folder::{
    ListEvent, ListNext, RestoreOptions, StoredFiles, Watch, list, read_back, restore_folder,
};
use varve_content::{Files, ImageFiles, Node, NodeKind, Problem, Progress, ReadContentError};
use varve_daily::{Drill, DrillRecord};
use varve_session::{Interrupted, OpenArchive, UsageError};
use varve_world::{Clock, Random, RealClock, RealRandom, Workers};

use crate::arguments::{BootArgs, DrillArgs};
use crate::command::choosing::chosen_snapshots::ChosenSnapshots;
use crate::command::choosing::place_in_snapshot::open_image;
use crate::command::serving;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::progress_bar::ShownProgress;
use crate::signals::cancellable_progress;
use crate::{exit_status, moment, say, show, signals};

/// The length of a piece of a disk.
const PIECE_BYTES: u64 = 1 << 20;
/// The share of the free scratch space that one file may take.
const SCRATCH_SHARE: u64 = 2;
/// The number of differences that a failure names.
const PROBLEMS_MAX: usize = 3;

/// The work of a drill.
#[derive(Default)]
struct DrillCounts {
    file_count: u64,
    bytes: u64,
    problem_count: usize,
    /// The first problems.
    problems: Vec<String>,
    is_damaged: bool,
}

pub fn run(invocation: &Invocation, args: &DrillArgs) -> Result<CommandOutcome> {
    let archive = invocation.session.reading()?;
    let snapshot =
        ChosenSnapshots::new(invocation, archive.snapshots(), &args.which).named(&args.snapshot)?;
    if args.boot && !matches!(snapshot.content, SnapshotContent::Image(_)) {
        bail!(UsageError("--boot is for snapshots of disks".into()));
    }
    let _lease = archive.lease(&[snapshot])?;
    let begun = RealClock.now();
    let mut counts = DrillCounts::default();
    let drilled = restore_sample(invocation, args, &archive, snapshot, &mut counts);
    if signals::was_signalled() {
        bail!(Interrupted("interrupted: the drill is not recorded"));
    }
    let boot = match (&drilled, args.boot) {
        (Ok(()), true) => Some(boot(invocation, args, snapshot)),
        _ => None,
    };
    let failure = match (&drilled, &boot) {
        (Err(error), _) => Some(with_causes(error.as_ref())),
        _ if counts.problem_count > 0 => Some(counts.problems.join("; ")),
        (_, Some(Err(error))) => Some(with_causes(error.as_ref())),
        _ => None,
    };
    let ended = RealClock.now();
    let drill = Drill {
        host: snapshot.host.clone(),
        series: snapshot.name.clone(),
        snapshot: snapshot.id.to_string(),
        time: begun,
        file_count: counts.file_count,
        bytes: counts.bytes,
        boot_seconds: boot.and_then(Result::ok),
        failure,
    };
    record(invocation, &drill)?;
    print(invocation, &drill, snapshot, ended.since(begun).as_secs_f64());
    Ok(match (&drill.failure, counts.is_damaged) {
        (None, _) => CommandOutcome::Done,
        (Some(_), true) => CommandOutcome::Damage,
        (Some(_), false) => CommandOutcome::Failed,
    })
}

/// Adds the drill to the record of the store.
fn record(invocation: &Invocation, drill: &Drill) -> Result<()> {
    let archive = invocation.session.check()?;
    let vault = archive.store().vault();
    let mut record = DrillRecord::read(vault);
    record.add(drill.clone());
    record.save(vault).context("the drill cannot be recorded in the store")
}

fn print(invocation: &Invocation, drill: &Drill, snapshot: &Snapshot, seconds: f64) {
    let (name, time) = (show::name(drill.series.as_bytes()), moment::show(snapshot.time));
    if invocation.json {
        return say::record(
            "drill",
            json!({
                "snapshot": drill.snapshot,
                "name": drill.series,
                "files": drill.file_count,
                "bytes": drill.bytes,
                "seconds": seconds,
                "boot_seconds": drill.boot_seconds,
                "failure": drill.failure,
            }),
        );
    }
    let files = format!("{}, {}", show::count(drill.file_count, "file"), show::bytes(drill.bytes));
    match &drill.failure {
        Some(failure) => warning!("drill of {name} {time} failed: {}", show::plain(failure)),
        None if invocation.quiet => {}
        None => {
            let booted = drill.boot_seconds.map(|seconds| format!("; its machine started in {seconds:.0} s"));
            say!("drill of {name} {time}: {files} restored and compared{}", booted.unwrap_or_default());
        }
    }
}

/// Starts a machine from the archived disk. Returns the seconds until it had started.
#[expect(clippy::disallowed_methods, reason = "a machine starts in real time")]
fn boot(invocation: &Invocation, args: &DrillArgs, snapshot: &Snapshot) -> Result<f64> {
    let begun = Instant::now();
    let outcome = serving::boot::run(invocation, &BootArgs::to_check(snapshot.id.to_string(), args.timeout))?;
    match outcome {
        CommandOutcome::Done => Ok(begun.elapsed().as_secs_f64()),
        _ => bail!("its machine did not start within {}", varve_daily::show_time_span(args.timeout)),
    }
}

/// Restores a sample of the files of a snapshot, one after the other.
fn restore_sample(
    invocation: &Invocation,
    args: &DrillArgs,
    archive: &OpenArchive,
    snapshot: &Snapshot,
    counts: &mut DrillCounts,
) -> Result<()> {
    let scratch = match &args.scratch {
        Some(folder) => tempfile::Builder::new().prefix(".varve-drill-").tempdir_in(folder),
        None => tempfile::Builder::new().prefix("varve-drill-").tempdir(),
    };
    let scratch = scratch.context("there is no scratch folder")?;
    let free = rustix::fs::statvfs(scratch.path())?;
    let bytes_max = free.f_bavail.saturating_mul(free.f_frsize) / SCRATCH_SHARE;
    let blocks = archive.blocks();
    let progress = cancellable_progress()?;
    let shown = ShownProgress::start(&snapshot.name, &progress, invocation.quiet);
    let count = to_usize(args.files);
    let drill = SampleDrill { workers: archive.workers(), scratch: scratch.path(), progress: &progress };
    let done = match &snapshot.content {
        SnapshotContent::Folder(root) => {
            let files = StoredFiles::new(&*blocks);
            let sample = sample(&files, root, count, bytes_max, &|_| true, counts)?;
            sample.iter().try_for_each(|(path, node)| drill.file(&files, path, node, counts))
        }
        SnapshotContent::Image(entry) => {
            let disk = open_image(&blocks, entry);
            let is_file = |node: &Node| disk.raw_of(node).is_none();
            let sample = sample(&disk, &disk.root(), count, bytes_max, &is_file, counts)?;
            match sample.is_empty() {
                true => drill.pieces(&disk, count, counts),
                false => sample.iter().try_for_each(|(path, node)| drill.file(&disk, path, node, counts)),
            }
        }
    };
    drop(shown);
    invocation.session.report_lost(&blocks);
    done
}

/// Chooses files at random, each with the same probability (Vitter's algorithm R).
fn sample(
    files: &dyn Files,
    root: &Node,
    count: usize,
    bytes_max: u64,
    is_file: &dyn Fn(&Node) -> bool,
    counts: &mut DrillCounts,
) -> Result<Vec<(PathBuf, Node)>> {
    let mut chosen = Vec::new();
    let mut seen = 0_u64;
    let mut failed = None;
    list(files, root, &mut |event| {
        match event {
            ListEvent::Node { path, node }
                if node.kind == NodeKind::File
                    && node.problem.is_none()
                    && node.size <= bytes_max
                    && is_file(node) =>
            {
                seen += 1;
                if chosen.len() < count {
                    chosen.push((path.to_owned(), node.clone()));
                } else {
                    match below(seen) {
                        Ok(place) => {
                            let place = to_usize(place);
                            if let Some(old) = chosen.get_mut(place) {
                                *old = (path.to_owned(), node.clone());
                            }
                        }
                        Err(error) => {
                            failed = Some(error);
                            return ListNext::Stop;
                        }
                    }
                }
            }
            ListEvent::Node { .. } => {}
            ListEvent::Unreadable { path, error } => counts.note(path, &*error),
        }
        ListNext::Descend
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(chosen),
    }
}

/// Draws a number below `limit`.
fn below(limit: u64) -> Result<u64> {
    let mut bytes = [0; 8];
    RealRandom.fill(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes) % limit.max(1))
}

impl DrillCounts {
    fn note(&mut self, path: &Path, error: &(dyn std::error::Error + 'static)) {
        self.is_damaged |= exit_status::is_damage(error);
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(format!("{}: {}", path.display(), with_causes(error)));
        }
    }
}

struct SampleDrill<'a> {
    workers: &'a dyn Workers,
    scratch: &'a Path,
    progress: &'a Progress,
}

impl SampleDrill<'_> {
    /// Restores a file, reads it back from the disk, compares it, and removes it.
    fn file(&self, files: &dyn Files, path: &Path, node: &Node, counts: &mut DrillCounts) -> Result<()> {
        let destination = self.scratch.join("restored");
        let options = RestoreOptions { owners: false, ..RestoreOptions::default() };
        let problems = parking_lot::Mutex::new(Vec::new());
        let report = |problem: Problem| problems.lock().push(problem.error);
        let watch = || Watch { progress: self.progress, report: &report };
        let done = restore_folder(files, self.workers, node, &destination, options, watch());
        let compared = match done {
            Ok(_) => read_back(files, self.workers, node, &destination, options, watch()).map(|_| ()),
            Err(error) if problems.lock().is_empty() => return Err(error.into()),
            Err(_) => Ok(()),
        };
        compared?;
        for error in problems.into_inner() {
            counts.note(path, &*error);
        }
        if destination.exists() {
            std::fs::remove_file(&destination)?;
        }
        counts.file_count += 1;
        counts.bytes += node.size;
        Ok(())
    }

    /// Restores pieces of a disk, and compares what lies on the scratch disk.
    fn pieces(&self, disk: &ImageFiles, count: usize, counts: &mut DrillCounts) -> Result<()> {
        let root = disk.root();
        let raw = disk.nodes(&root).filter_map(Result::ok).find(|node| disk.raw_of(node).is_some());
        let raw = raw.context("the disk has no contents")?;
        for _ in 0..count {
            let start = below(raw.size.saturating_sub(PIECE_BYTES).max(1))?;
            let end = raw.size.min(start + PIECE_BYTES);
            match piece(disk, &raw, start..end) {
                Ok(bytes) if write_and_compare(&self.scratch.join("piece"), &bytes)? => {}
                Ok(_) => counts.note(Path::new(""), &std::io::Error::other("a piece came back changed")),
                Err(error) => counts.note(Path::new(""), &error),
            }
            counts.file_count += 1;
            counts.bytes += end - start;
        }
        Ok(())
    }
}

/// Reads a piece of a disk. Gaps are zeros.
fn piece(disk: &ImageFiles, raw: &Node, range: Range<u64>) -> Result<Vec<u8>, ReadContentError> {
    let mut bytes = vec![0; to_usize(range.end - range.start)];
    disk.read(raw, range.clone(), &mut |offset, read| {
        let start = to_usize(offset.saturating_sub(range.start));
        match bytes.get_mut(start..start.saturating_add(read.len())) {
            Some(place) => place.copy_from_slice(read),
            None => return Err(std::io::ErrorKind::InvalidData.into()),
        }
        Ok(())
    })?;
    Ok(bytes)
}

/// Writes bytes to a scratch file, makes them durable, reads them back and compares them.
fn write_and_compare(file: &Path, bytes: &[u8]) -> Result<bool> {
    let mut written = File::options().read(true).write(true).create(true).truncate(true).open(file)?;
    written.write_all(bytes)?;
    written.sync_data()?;
    // The bytes come from the disk if the system can drop its copy of them.
    let _ = rustix::fs::fadvise(&written, 0, None, rustix::fs::Advice::DontNeed);
    written.seek(SeekFrom::Start(0))?;
    let mut back = Vec::with_capacity(bytes.len());
    written.read_to_end(&mut back)?;
    Ok(back == bytes)
}
