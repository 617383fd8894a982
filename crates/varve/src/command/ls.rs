//! `varve ls`

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use varve_archive::{Files, ImageFiles, ListNext, Listed, ListedVolume, Node, NodeKind, list};
use varve_image::VolumeContent;

use super::Outcome;
use super::place::{Content, place};
use crate::arguments::{Arguments, Ls};
use crate::reading::Reading;
use crate::{complaint, moment, session, show};

pub(super) fn run(arguments: &Arguments, words: &Ls) -> Result<Outcome> {
    let archive = Reading::open(arguments)?;
    let place = place(archive.snapshots(), &words.snapshot)?;
    let blocks = archive.blocks();
    let (files, root) = match place.content(&blocks)? {
        Content::Disk(disk) if words.recursive => {
            let root = Box::new(disk.root());
            (Box::new(disk) as Box<dyn Files>, root)
        }
        Content::Disk(disk) => {
            volumes(arguments, &disk);
            session::report_lost(arguments, &blocks);
            return Ok(Outcome::Done);
        }
        Content::Raw(part) => {
            if arguments.json {
                say!("{}", json!({ "path": place.path, "kind": "image", "size": part.size() }));
            } else {
                say!("{} is {} of a disk image", words.snapshot, show::bytes(part.size()));
            }
            return Ok(Outcome::Done);
        }
        Content::Node { files, node } => (files, node),
    };
    let mut outcome = Outcome::Done;
    let is_folder = root.kind == NodeKind::Folder;
    list(&*files, &root, &mut |listed| match listed {
        Listed::Node { path, .. } if is_folder && path.as_os_str().is_empty() => ListNext::Descend,
        Listed::Node { path, node } => {
            print(arguments, words, path, node);
            if words.recursive { ListNext::Descend } else { ListNext::Skip }
        }
        Listed::Unreadable { path, error } => {
            eprintln!("varve: {}: {}", show::name(path.as_os_str().as_bytes()), complaint::chain(&error));
            outcome = Outcome::Found;
            ListNext::Skip
        }
    });
    session::report_lost(arguments, &blocks);
    if !is_folder && words.recursive && root.kind != NodeKind::File {
        bail!("{} is a {}", words.snapshot, root.kind);
    }
    Ok(outcome)
}

/// Prints what a disk is made of.
fn volumes(arguments: &Arguments, disk: &ImageFiles) {
    let mut table = show::table(&["name", "holds", "size", "label", ""], &[2]);
    for ListedVolume { volume, unreadable } in disk.volumes() {
        // Of what was never meant to hold files nobody wonders why it shows none.
        let is_file_system = matches!(volume.content(), VolumeContent::FileSystem(_));
        let problem = unreadable.filter(|_| is_file_system).map(|error| complaint::chain(error));
        if arguments.json {
            say!(
                "{}",
                json!({
                    "path": volume.name(),
                    "kind": "volume",
                    "holds": volume.content().to_string(),
                    "size": volume.size(),
                    "start": volume.start(),
                    "label": volume.label(),
                    "files": unreadable.is_none(),
                    "problem": problem,
                })
            );
        }
        table.add_row([
            format!("{}{}", volume.name(), if unreadable.is_none() { "/" } else { "" }),
            volume.content().to_string(),
            show::bytes(volume.size()),
            show::name(volume.label().unwrap_or_default().as_bytes()),
            problem.map_or_else(String::new, |problem| show::name(problem.as_bytes())),
        ]);
    }
    let size = disk.raw().size();
    if arguments.json {
        say!("{}", json!({ "path": "disk.raw", "kind": "image", "size": size }));
    } else {
        table.add_row(["disk.raw", "all of the disk", &show::bytes(size), "", ""]);
        say!("{}", table.trim_fmt());
    }
    for problem in disk.problems() {
        eprintln!("varve: {}", show::name(problem.to_string().as_bytes()));
    }
}

fn print(arguments: &Arguments, words: &Ls, path: &Path, node: &Node) {
    // A file that was named itself has no path below itself.
    let shown = if path.as_os_str().is_empty() { node.name.as_slice() } else { path.as_os_str().as_bytes() };
    if arguments.json {
        say!("{}", as_json(shown, node));
    } else if words.long {
        say!("{}", show::long_line(node, shown));
    } else {
        let slash = if node.kind == NodeKind::Folder { "/" } else { "" };
        say!("{}{slash}", show::name(shown));
    }
}

/// A node for programs, one on a line.
pub(super) fn as_json(path: &[u8], node: &Node) -> Value {
    json!({
        "path": String::from_utf8_lossy(path),
        "kind": node.kind.to_string(),
        "mode": format!("{:04o}", node.mode),
        "uid": node.uid,
        "gid": node.gid,
        "size": node.size,
        "mtime": moment::rfc3339(node.mtime),
        "target": (node.kind == NodeKind::SymbolicLink).then(|| String::from_utf8_lossy(&node.target)),
        "problem": node.problem.map(|problem| problem.to_string()),
    })
}
