//! `varve diff`

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Result, bail};
use serde_json::json;
use varve_archive::{ImageFiles, ImagePart, PathChange, Tree, compare_folders};
use varve_block::{BlockStore, with_causes};

use crate::arguments::Diff;
use crate::command::choosing::chosen_snapshots::Choice;
use crate::command::choosing::place_in_snapshot::Content;
use crate::invocation::Invocation;
use crate::outcome::Outcome;
use crate::{say, show};

pub fn run(invocation: &Invocation, words: &Diff) -> Result<Outcome> {
    let archive = invocation.session.reading()?;
    let choice = Choice::new(invocation, archive.snapshots(), &words.which);
    let (from, to) = (choice.place(&words.from)?, choice.place(&words.to)?);
    let blocks = archive.blocks();
    let outcome = match (from.content(&blocks)?, to.content(&blocks)?) {
        (Content::Disk(from), Content::Disk(to)) if has_files(&from) && has_files(&to) => {
            let (old, new) = (from.root(), to.root());
            let (old, new) = (Tree { files: &from, root: &old }, Tree { files: &to, root: &new });
            Ok(trees(invocation, old, new))
        }
        (Content::Node { files: from, node: old }, Content::Node { files: to, node: new }) => {
            let (old, new) = (Tree { files: &*from, root: &old }, Tree { files: &*to, root: &new });
            Ok(trees(invocation, old, new))
        }
        (from, to) => match (bytes(&from), bytes(&to)) {
            (Some(from), Some(to)) => ranges(&*blocks, invocation, &from, &to),
            _ => bail!(
                "the bytes of a disk and a file system's files cannot be compared; name a volume of the disk"
            ),
        },
    };
    invocation.session.report_lost(&blocks);
    outcome
}

/// Reports whether a disk image has readable volumes, so that more than its bytes can be compared.
fn has_files(disk: &ImageFiles) -> bool {
    disk.volumes().any(|listed| listed.unreadable.is_none())
}

fn bytes(content: &Content<'_>) -> Option<ImagePart> {
    match content {
        Content::Disk(disk) => Some(disk.raw()),
        Content::Raw(part) => Some(part.clone()),
        Content::Node { .. } => None,
    }
}

/// Prints the byte ranges in which two images differ. Adjacent ranges are merged.
fn ranges(
    blocks: &dyn BlockStore,
    invocation: &Invocation,
    from: &ImagePart,
    to: &ImagePart,
) -> Result<Outcome> {
    let mut total = 0;
    from.differences(blocks, to, &mut |range| {
        total += range.end - range.start;
        if invocation.json {
            say::item("range", json!({ "start": range.start, "end": range.end }));
        } else {
            list!("bytes {}..{}", range.start, range.end);
        }
    })?;
    let size = to.size().max(from.size());
    if invocation.json {
        say::record("ranges", json!({ "differing_bytes": total, "size": size }));
    } else if !invocation.quiet {
        list!("{} of {} differ", show::bytes(total), show::bytes(size));
    }
    Ok(Outcome::Done)
}

fn trees(invocation: &Invocation, old: Tree<'_>, new: Tree<'_>) -> Outcome {
    let mut outcome = Outcome::Done;
    compare_folders(old, new, &mut |path, change| {
        let (sign, what) = match change {
            PathChange::Added(_) => ("+", "added"),
            PathChange::Removed(_) => ("-", "removed"),
            PathChange::Changed { content: true, .. } => ("M", "changed"),
            PathChange::Changed { .. } => ("m", "metadata"),
            PathChange::Unreadable(error) => {
                remark!("varve: {}: {}", shown(path), with_causes(error.as_ref()));
                outcome = outcome.max(Outcome::of_problem(error.as_ref()));
                return;
            }
        };
        if invocation.json {
            let mut line = json!({ "change": what });
            show::put_name(&mut line, "path", path.as_os_str().as_bytes());
            say::item("change", line);
        } else {
            list!("{sign} {}", shown(path));
        }
    });
    outcome
}

fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { ".".into() } else { show::name(path.as_os_str().as_bytes()) }
}
