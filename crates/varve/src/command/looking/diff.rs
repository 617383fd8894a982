//! `varve diff`

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Result, bail};
use serde_json::json;
use varve_block::{BlockStore, with_causes};
use varve_content::folder::{PathChange, compare_folders};
use varve_content::image::ImagePart;
use varve_content::{ImageFiles, Tree};

use crate::arguments::DiffArgs;
use crate::command::choosing::chosen_snapshots::ChosenSnapshots;
use crate::command::choosing::place_in_snapshot::PlaceContent;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{say, show};

pub fn run(invocation: &Invocation, args: &DiffArgs) -> Result<CommandOutcome> {
    let archive = invocation.session.reading()?;
    let choice = ChosenSnapshots::new(invocation, archive.snapshots(), &args.which);
    let (from, to) = (choice.place(&args.from)?, choice.place(&args.to)?);
    let blocks = archive.blocks();
    let outcome = match (from.content(&blocks)?, to.content(&blocks)?) {
        (PlaceContent::Disk(from), PlaceContent::Disk(to)) if has_files(&from) && has_files(&to) => {
            let (old, new) = (from.root(), to.root());
            let (old, new) = (Tree { files: &from, root: &old }, Tree { files: &to, root: &new });
            Ok(trees(invocation, old, new))
        }
        (PlaceContent::Node { files: from, node: old }, PlaceContent::Node { files: to, node: new }) => {
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

fn bytes(content: &PlaceContent<'_>) -> Option<ImagePart> {
    match content {
        PlaceContent::Disk(disk) => Some(disk.raw()),
        PlaceContent::Raw(part) => Some(part.clone()),
        PlaceContent::Node { .. } => None,
    }
}

/// Prints the byte ranges in which two images differ. Adjacent ranges are merged.
fn ranges(
    blocks: &dyn BlockStore,
    invocation: &Invocation,
    from: &ImagePart,
    to: &ImagePart,
) -> Result<CommandOutcome> {
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
    Ok(CommandOutcome::Done)
}

fn trees(invocation: &Invocation, old: Tree<'_>, new: Tree<'_>) -> CommandOutcome {
    let mut outcome = CommandOutcome::Done;
    compare_folders(old, new, &mut |path, change| {
        let (sign, what) = match change {
            PathChange::Added(_) => ("+", "added"),
            PathChange::Removed(_) => ("-", "removed"),
            PathChange::Changed { content: true, .. } => ("M", "changed"),
            PathChange::Changed { .. } => ("m", "metadata"),
            PathChange::Unreadable(error) => {
                warning!("{}: {}", shown(path), with_causes(error.as_ref()));
                outcome = outcome.max(CommandOutcome::of_problem(error.as_ref()));
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
