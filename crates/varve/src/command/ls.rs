//! `varve ls`

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use varve_archive::{ListNext, Listed, Node, NodeKind, list};

use super::Outcome;
use super::place::{Content, place};
use crate::arguments::{Arguments, Ls};
use crate::{complaint, moment, session, show};

pub(super) fn run(arguments: &Arguments, words: &Ls) -> Result<Outcome> {
    let archive = session::read(arguments)?;
    let place = place(&archive, &words.snapshot)?;
    let blocks = session::healing(arguments, &archive);
    let root = match place.content(&blocks)? {
        Content::Node(node) => node,
        Content::Image(entry) => {
            if arguments.json {
                say!("{}", json!({ "path": "", "kind": "image", "size": entry.size() }));
            } else {
                say!("{} is a disk image of {}", words.snapshot, show::bytes(entry.size()));
            }
            return Ok(Outcome::Done);
        }
    };
    let mut outcome = Outcome::Done;
    let is_folder = root.kind == NodeKind::Folder;
    list(&blocks, &root, &mut |listed| match listed {
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
