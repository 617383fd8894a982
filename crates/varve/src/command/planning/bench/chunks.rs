//! `varve-plan bench chunks`

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_plan::{BlockSizeCounter, BlockSizeStudy, CutComparison, CutCounts, MergeWay};
use varve_store::StoreConfig;
use varve_world::World;

use crate::arguments::BenchChunksArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{say, show};

const BUFFER_BYTES: usize = 1 << 20;

pub fn run(invocation: &Invocation, args: &BenchChunksArgs) -> Result<CommandOutcome> {
    let mut counter = BlockSizeCounter::new(args.memory);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut add = |file: &mut File| count_blocks(file, &mut counter, &mut buffer);
    for source in &args.sources {
        match is_folder(source)? {
            true => read_folder(source, &mut add)?,
            false => read_file(source, &mut add)?,
        }
    }
    let study = counter.finish(args.stored);
    if study.bytes == 0 {
        bail!("the sources have no data: name disk images, devices, or folders with files");
    }
    let cuts = compare_cuts(&args.sources)?;
    match invocation.json {
        true => say::record("chunk_benchmark", json!({ "study": study, "cuts": cuts })),
        false => print(&study, cuts),
    }
    Ok(CommandOutcome::Done)
}

/// Cuts disks in both ways, beside the folders. `None` if no disk has files.
fn compare_cuts(sources: &[PathBuf]) -> Result<Option<CutCounts>> {
    let world = World::real(Path::new("/"));
    let comparison = CutComparison::new(world.workers, StoreConfig::new([0; 16]).block_bytes);
    let mut place_count = 0;
    for source in sources {
        if is_folder(source)? {
            read_folder(source, &mut |file| Ok(comparison.add_file(file)?))?;
        } else {
            place_count += comparison.add_disk(source).with_context(|| source.display().to_string())?;
        }
    }
    Ok((place_count > 0).then(|| comparison.counts()))
}

/// Named sources are followed, also if they are links; files in folders are not.
fn is_folder(source: &Path) -> Result<bool> {
    Ok(fs::metadata(source).with_context(|| source.display().to_string())?.is_dir())
}

/// Reads all files below a folder in the order of their names, without links and special files.
fn read_folder(folder: &Path, add: &mut dyn FnMut(&mut File) -> Result<()>) -> Result<()> {
    let mut waiting = vec![folder.to_owned()];
    while let Some(path) = waiting.pop() {
        let place = || path.display().to_string();
        let kind = fs::symlink_metadata(&path).with_context(place)?;
        if kind.is_dir() {
            let listed: io::Result<Vec<_>> =
                fs::read_dir(&path).with_context(place)?.map(|entry| Ok(entry?.path())).collect();
            let mut listed = listed.with_context(place)?;
            listed.sort_by(|one, other| other.cmp(one));
            waiting.extend(listed);
        } else if kind.is_file() {
            read_file(&path, add)?;
        }
    }
    Ok(())
}

fn read_file(path: &Path, add: &mut dyn FnMut(&mut File) -> Result<()>) -> Result<()> {
    let place = || path.display().to_string();
    add(&mut File::open(path).with_context(place)?).with_context(place)
}

fn count_blocks(file: &mut File, counter: &mut BlockSizeCounter, buffer: &mut [u8]) -> Result<()> {
    loop {
        match file.read(buffer) {
            Ok(0) => break,
            Ok(count) => counter.add(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    counter.end_file();
    Ok(())
}

fn print(study: &BlockSizeStudy, cuts: Option<CutCounts>) {
    say!("{} read, {} of them zero", show::bytes(study.bytes), show::bytes(study.zero_bytes));
    say!("");
    let headings = ["block", "way", "blocks", "different", "metadata", "together", "index"];
    let mut table = show::table(&headings, &[0, 2, 3, 4, 5, 6]);
    for row in &study.rows {
        table.add_row([
            show::bytes(row.block_bytes),
            way(row.way).to_owned(),
            row.blocks.to_string(),
            bytes(row.unique_bytes),
            bytes(row.metadata_bytes),
            bytes(row.total(study.stored_share)),
            bytes(row.index_bytes),
        ]);
    }
    say!("{}", table.trim_fmt());
    say!("");
    if study.rows.iter().any(|row| row.sampled_share < 1.0) {
        say!("Some counts are estimates from samples: more --memory makes them exact.");
    }
    if let Some(row) = study.rows.get(study.smallest) {
        say!(
            "Blocks of {}, {}, take the least space together: {:.0}% of each block after compression, and 74 bytes beside it.",
            show::bytes(row.block_bytes),
            way(row.way),
            study.stored_share * 100.0
        );
    }
    if let Some(CutCounts { fixed, at_files }) = cuts {
        say!(
            "Cut where their files begin (`--cut files`), the disks have {} in {} different blocks with those that lead to them, instead of {} in {}.",
            show::bytes(at_files.bytes),
            at_files.blocks,
            show::bytes(fixed.bytes),
            fixed.blocks
        );
    }
}

fn way(way: MergeWay) -> &'static str {
    match way {
        MergeWay::Fixed => "fixed",
        MergeWay::ByContent => "by content",
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size that was counted")]
fn bytes(bytes: f64) -> String {
    show::bytes(bytes as u64)
}
