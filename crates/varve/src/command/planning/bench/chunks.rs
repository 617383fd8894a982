//! `varve-plan bench chunks`

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_plan::{BlockSizeCounter, BlockSizeStudy, MergeWay};

use crate::arguments::BenchChunksArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{say, show};

const BUFFER_BYTES: usize = 1 << 20;

pub fn run(invocation: &Invocation, args: &BenchChunksArgs) -> Result<CommandOutcome> {
    let mut counter = BlockSizeCounter::new(args.memory);
    let mut buffer = vec![0; BUFFER_BYTES];
    for source in &args.sources {
        // Named sources are followed, also if they are links; files in folders are not.
        let kind = fs::metadata(source).with_context(|| source.display().to_string())?;
        if kind.is_dir() {
            read_folder(source, &mut counter, &mut buffer)?;
        } else {
            read_file(source, &mut counter, &mut buffer)?;
        }
    }
    let study = counter.finish(args.stored);
    if study.bytes == 0 {
        bail!("the sources have no data: name disk images, devices, or folders with files");
    }
    match invocation.json {
        true => say::record("chunk_benchmark", json!({ "study": study })),
        false => print(&study),
    }
    Ok(CommandOutcome::Done)
}

/// Reads all files below a folder in the order of their names, without links and special files.
fn read_folder(folder: &Path, counter: &mut BlockSizeCounter, buffer: &mut [u8]) -> Result<()> {
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
            read_file(&path, counter, buffer)?;
        }
    }
    Ok(())
}

fn read_file(path: &Path, counter: &mut BlockSizeCounter, buffer: &mut [u8]) -> Result<()> {
    let place = || path.display().to_string();
    let mut file = File::open(path).with_context(place)?;
    loop {
        match file.read(buffer) {
            Ok(0) => break,
            Ok(count) => counter.add(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).with_context(place),
        }
    }
    counter.end_file();
    Ok(())
}

fn print(study: &BlockSizeStudy) {
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
