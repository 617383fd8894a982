//! `varve diff`

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Result, bail};
use serde_json::json;
use varve_block::{BlockStore, with_causes};
use varve_content::folder::{PathChange, compare_folders};
use varve_content::image::ImagePart;
use varve_content::{ImageFiles, Node, NodeKind, Tree};

use super::text_lines;
use crate::arguments::DiffArgs;
use crate::colour::{Tone, paint};
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
            Ok(trees(invocation, args, old, new))
        }
        (PlaceContent::Node { files: from, node: old }, PlaceContent::Node { files: to, node: new }) => {
            let (old, new) = (Tree { files: &*from, root: &old }, Tree { files: &*to, root: &new });
            Ok(trees(invocation, args, old, new))
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

fn trees(invocation: &Invocation, args: &DiffArgs, old: Tree<'_>, new: Tree<'_>) -> CommandOutcome {
    let mut outcome = CommandOutcome::Done;
    let mut sums = ChangeSums::default();
    compare_folders(old, new, &mut |path, change| {
        sums.add(&change);
        let sizes = sizes(&change);
        let texts = texts(&change);
        let (sign, tone, what) = match change {
            PathChange::Added(_) => ("+", Tone::Good, "added"),
            PathChange::Removed(_) => ("-", Tone::Bad, "removed"),
            PathChange::Changed { content: true, .. } => ("M", Tone::Doubtful, "changed"),
            PathChange::Changed { .. } => ("m", Tone::Doubtful, "metadata"),
            PathChange::Unreadable(error) => {
                warning!("{}: {}", shown(path), with_causes(error.as_ref()));
                outcome = outcome.max(CommandOutcome::of_problem(error.as_ref()));
                return ControlFlow::Continue(());
            }
        };
        if invocation.json {
            let [old_size, new_size] = sizes;
            let mut line = json!({ "change": what, "old_size": old_size, "new_size": new_size });
            show::put_name(&mut line, "path", path.as_os_str().as_bytes());
            say::item("change", line);
        } else {
            list!("{} {}{}", paint(sign, tone), shown(path), shown_sizes(sizes));
            if let Some((one, other)) = texts.filter(|_| args.text) {
                let one = Tree { files: old.files, root: one };
                let other = Tree { files: new.files, root: other };
                if let Err(error) = text_lines::print(one, other) {
                    warning!("{}: {}", shown(path), with_causes(error.as_ref()));
                    outcome = outcome.max(CommandOutcome::of_problem(error.as_ref()));
                }
            }
        }
        ControlFlow::Continue(())
    });
    if !invocation.json && !invocation.quiet {
        sums.print();
    }
    outcome
}

/// The numbers of changes, and the bytes that files have gained and lost.
#[derive(Default)]
struct ChangeSums {
    added: u64,
    removed: u64,
    changed: u64,
    metadata: u64,
    more_bytes: u64,
    fewer_bytes: u64,
}

impl ChangeSums {
    fn add(&mut self, change: &PathChange<'_>) {
        let count = match change {
            PathChange::Added(_) => &mut self.added,
            PathChange::Removed(_) => &mut self.removed,
            PathChange::Changed { content: true, .. } => &mut self.changed,
            PathChange::Changed { .. } => &mut self.metadata,
            PathChange::Unreadable(_) => return,
        };
        *count += 1;
        let [old, new] = sizes(change).map(Option::unwrap_or_default);
        self.more_bytes = self.more_bytes.saturating_add(new.saturating_sub(old));
        self.fewer_bytes = self.fewer_bytes.saturating_add(old.saturating_sub(new));
    }

    fn print(&self) {
        if self.added + self.removed + self.changed + self.metadata == 0 {
            return;
        }
        notice!(
            "{} added, {} removed, {} changed, {} with other metadata only; {} more, {} less",
            self.added,
            self.removed,
            self.changed,
            self.metadata,
            show::bytes(self.more_bytes),
            show::bytes(self.fewer_bytes)
        );
    }
}

/// Returns the old and the new size of a file. Other nodes have none.
fn sizes(change: &PathChange<'_>) -> [Option<u64>; 2] {
    let size = |node: &Node| (node.kind == NodeKind::File).then_some(node.size);
    match change {
        PathChange::Added(new) => [None, size(new)],
        PathChange::Removed(old) => [size(old), None],
        PathChange::Changed { old, new, .. } => [size(old), size(new)],
        PathChange::Unreadable(_) => [None, None],
    }
}

fn shown_sizes(sizes: [Option<u64>; 2]) -> String {
    match sizes {
        [None, None] => String::new(),
        [Some(size), None] | [None, Some(size)] => format!("  {}", show::bytes(size)),
        [Some(old), Some(new)] if old == new => format!("  {}", show::bytes(new)),
        [Some(old), Some(new)] => format!("  {} → {}", show::bytes(old), show::bytes(new)),
    }
}

/// Returns the two versions of a file whose content differs.
fn texts<'a>(change: &PathChange<'a>) -> Option<(&'a Node, &'a Node)> {
    match change {
        PathChange::Changed { old, new, content: true, .. } => Some((old, new)),
        _ => None,
    }
}

fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { ".".into() } else { show::name(path.as_os_str().as_bytes()) }
}
