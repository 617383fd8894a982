//! `varve ls`

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use varve_archive::LeftOutRecord;
use varve_block::{visible, with_causes};
use varve_content::folder::{ListEvent, ListNext, list};
use varve_content::{Files, ImageFiles, ListedVolume, Node, NodeKind};
use varve_image::VolumeContent;

use crate::arguments::LsArgs;
use crate::command::choosing::chosen_snapshots::ChosenSnapshots;
use crate::command::choosing::place_in_snapshot::{PlaceContent, warn_of};
use crate::command::looking::left_out::{left_out_json, left_out_lines};
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;
use crate::{moment, say, show};

pub fn run(invocation: &Invocation, args: &LsArgs) -> Result<CommandOutcome> {
    let archive = invocation.session.reading()?;
    let place = ChosenSnapshots::new(invocation, archive.snapshots(), &args.which).place(&args.snapshot)?;
    let blocks = archive.blocks();
    let (files, root) = match place.content(&blocks)? {
        PlaceContent::Disk(disk) => {
            let outcome = if args.recursive {
                let holds = |node: &Node| disk.content_of(node).map(|content| content.to_string());
                print_tree(invocation, args, &disk, &disk.root(), &holds)
            } else {
                volumes(invocation, &disk, &place.left_out());
                CommandOutcome::Done
            };
            warn_of(&disk);
            invocation.session.report_lost(&blocks);
            return Ok(outcome);
        }
        PlaceContent::Raw(part) => {
            let records = place.left_out();
            if invocation.json {
                let mut fields =
                    json!({ "kind": "image", "size": part.size(), "left_out": left_out_json(records) });
                show::put_name(&mut fields, "path", place.path.as_os_str().as_bytes());
                say::item("image", fields);
            } else {
                list!("{} is {} of a disk image", shown(args), show::bytes(part.size()));
                left_out_lines(records, true).iter().for_each(|line| list!("{line}"));
            }
            return Ok(CommandOutcome::Done);
        }
        PlaceContent::Node { files, node } => (files, node),
    };
    let outcome = print_tree(invocation, args, &*files, &root, &|_| None);
    if !invocation.json && !invocation.quiet {
        left_out_lines(place.left_out(), true).iter().for_each(|line| notice!("{line}"));
    }
    invocation.session.report_lost(&blocks);
    if root.kind != NodeKind::Folder && args.recursive && root.kind != NodeKind::File {
        bail!("{} is a {}", shown(args), root.kind);
    }
    Ok(outcome)
}

/// Returns the requested place, for messages.
fn shown(args: &LsArgs) -> String {
    show::name(args.snapshot.as_bytes())
}

/// Prints the contents of a folder. `holds` describes the contents of a volume that is shown as
/// bytes. The outcome reports whether something was unreadable.
fn print_tree(
    invocation: &Invocation,
    args: &LsArgs,
    files: &dyn Files,
    root: &Node,
    holds: &dyn Fn(&Node) -> Option<String>,
) -> CommandOutcome {
    let mut outcome = CommandOutcome::Done;
    let is_folder = root.kind == NodeKind::Folder;
    list(files, root, &mut |listed| match listed {
        ListEvent::Node { path, .. } if is_folder && path.as_os_str().is_empty() => ListNext::Descend,
        ListEvent::Node { path, node } => {
            let is_volume = path.components().count() == 1;
            print(invocation, args, path, node, is_volume.then(|| holds(node)).flatten().as_deref());
            if args.recursive { ListNext::Descend } else { ListNext::Skip }
        }
        ListEvent::Unreadable { path, error } => {
            let path = show::name(path.as_os_str().as_bytes());
            let path = if path.is_empty() { shown(args) } else { path };
            warning!("{path}: {}", with_causes(error.as_ref()));
            outcome = outcome.max(CommandOutcome::of_problem(error.as_ref()));
            ListNext::Skip
        }
    });
    outcome
}

/// Prints the volumes of a disk.
fn volumes(invocation: &Invocation, disk: &ImageFiles, left_out: &[&LeftOutRecord]) {
    let mut table = show::table(&["name", "holds", "size", "label", ""], &[2]);
    for ListedVolume { volume, unreadable } in disk.volumes() {
        // No reason is given for volumes that never hold files.
        let is_file_system = matches!(volume.content(), VolumeContent::FileSystem(_));
        let left_out = left_out.iter().copied().filter(|record| record.volume == volume.name());
        let problem = unreadable.filter(|_| is_file_system).map(|error| with_causes(error));
        if invocation.json {
            say::item(
                "volume",
                json!({
                    "path": volume.name(),
                    "kind": "volume",
                    "holds": volume.content().to_string(),
                    "size": volume.size(),
                    "start": volume.start(),
                    "label": volume.label(),
                    "files": unreadable.is_none(),
                    "problem": problem,
                    "left_out": left_out_json(left_out),
                }),
            );
        }
        table.add_row([
            format!("{}{}", volume.name(), if unreadable.is_none() { "/" } else { "" }),
            volume.content().to_string(),
            show::bytes(volume.size()),
            show::name(volume.label().unwrap_or_default().as_bytes()),
            problem.map_or_else(String::new, |problem| visible(&problem)),
        ]);
    }
    let size = disk.raw().size();
    if invocation.json {
        say::item("image", json!({ "path": "disk.raw", "kind": "image", "size": size }));
    } else {
        table.add_row(["disk.raw", "all of the disk", &show::bytes(size), "", ""]);
        list!("{}", table.trim_fmt());
        left_out_lines(left_out.iter().copied(), true).iter().for_each(|line| list!("{line}"));
    }
    for problem in disk.problems() {
        warning!("{}", visible(&problem.to_string()));
    }
}

fn print(invocation: &Invocation, args: &LsArgs, path: &Path, node: &Node, holds: Option<&str>) {
    // If the named place is a file, its path below itself is empty.
    let shown = if path.as_os_str().is_empty() { node.name.as_slice() } else { path.as_os_str().as_bytes() };
    if invocation.json {
        let mut line = as_json(shown, node);
        if let Some(holds) = holds {
            line["holds"] = holds.into();
        }
        say::item("node", line);
        return;
    }
    let holds = holds.map(|holds| format!("  ({holds})")).unwrap_or_default();
    if args.long {
        list!("{}{holds}", show::long_line(node, shown));
    } else {
        let slash = if node.kind == NodeKind::Folder { "/" } else { "" };
        list!("{}{slash}{holds}", show::name(shown));
    }
}

/// Formats a node for programs, on one line.
pub(super) fn as_json(path: &[u8], node: &Node) -> Value {
    let mut line = json!({
        "kind": node.kind.to_string(),
        "mode": format!("{:04o}", node.mode),
        "uid": node.uid,
        "gid": node.gid,
        "size": node.size,
        "mtime": moment::file_time_rfc3339(node.mtime),
        "flags": node.inode_flags.names().collect::<Vec<_>>(),
        "target": null,
        "problem": node.problem.map(|problem| problem.to_string()),
    });
    show::put_name(&mut line, "path", path);
    if node.kind == NodeKind::SymbolicLink {
        show::put_name(&mut line, "target", &node.target);
    }
    line
}
