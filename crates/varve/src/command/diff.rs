//! `varve diff`

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Result, bail};
use serde_json::json;
use varve_archive::{Change, Node, compare_folders};
use varve_block::BlockStore;
use varve_tree::{Entry, difference};

use super::Outcome;
use super::place::{Content, place};
use crate::arguments::{Arguments, Diff};
use crate::{complaint, session, show};

pub(super) fn run(arguments: &Arguments, words: &Diff) -> Result<Outcome> {
    let archive = session::read(arguments)?;
    let (from, to) = (place(&archive, &words.from)?, place(&archive, &words.to)?);
    let blocks = session::healing(arguments, &archive);
    let outcome = match (from.content(&blocks)?, to.content(&blocks)?) {
        (Content::Image(from), Content::Image(to)) => images(&blocks, arguments, from, to),
        (Content::Node(from), Content::Node(to)) => Ok(nodes(&blocks, arguments, &from, &to)),
        _ => bail!("a disk image and a folder cannot be compared"),
    };
    session::report_lost(arguments, &blocks);
    outcome
}

/// Prints the ranges of bytes in which two images differ, neighbours as one.
fn images(blocks: &dyn BlockStore, arguments: &Arguments, from: &Entry, to: &Entry) -> Result<Outcome> {
    let mut open: Option<Range<u64>> = None;
    let mut total = 0;
    let mut print = |range: Range<u64>| {
        total += range.end - range.start;
        if arguments.json {
            say!("{}", json!({ "start": range.start, "end": range.end }));
        } else {
            say!("bytes {}..{}", range.start, range.end);
        }
    };
    for range in difference(blocks, from, to) {
        let range = range?;
        match &mut open {
            Some(open) if open.end == range.start => open.end = range.end,
            _ => {
                if let Some(done) = open.replace(range) {
                    print(done);
                }
            }
        }
    }
    if let Some(last) = open {
        print(last);
    }
    if !arguments.json && !arguments.quiet {
        say!("{} of {} differ", show::bytes(total), show::bytes(to.size().max(from.size())));
    }
    Ok(Outcome::Done)
}

fn nodes(blocks: &dyn BlockStore, arguments: &Arguments, from: &Node, to: &Node) -> Outcome {
    let mut outcome = Outcome::Done;
    compare_folders(blocks, from, to, &mut |path, change| {
        let (sign, what) = match change {
            Change::Added(_) => ("+", "added"),
            Change::Removed(_) => ("-", "removed"),
            Change::Changed { content: true, .. } => ("M", "changed"),
            Change::Changed { .. } => ("m", "metadata"),
            Change::Unreadable(error) => {
                eprintln!("varve: {}: {}", shown(path), complaint::chain(&error));
                outcome = Outcome::Found;
                return;
            }
        };
        if arguments.json {
            say!("{}", json!({ "path": path.to_string_lossy(), "change": what }));
        } else {
            say!("{sign} {}", shown(path));
        }
    });
    outcome
}

fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { ".".into() } else { show::name(path.as_os_str().as_bytes()) }
}
