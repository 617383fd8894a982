//! Writes a folder as a tar file, while it is read.

use std::collections::BTreeMap;
use std::io::Write;

use varve_content::{Files, Node, NodeKind};

use super::folder_walk::walk_below;
use super::sent_bytes::SentBytes;
use super::tar_header::{TAR_BLOCK_BYTES, header};

/// Files with several names that are remembered. The names beyond are written as separate files.
const LINKS_MAX: usize = 100_000;
const DEPTH_MAX: usize = 4096;

/// Writes a folder and everything below it. `file_name` is the name of the tar file; without its
/// ending it becomes the name of the folder.
///
/// A file or folder that is unreadable ends the tar file in its middle.
pub(crate) fn write_tar(
    files: &dyn Files,
    folder: &Node,
    file_name: &[u8],
    sent: &mut SentBytes,
) -> Result<(), String> {
    let name = file_name.strip_suffix(b".tar").unwrap_or(file_name);
    // The name of a snapshot is free text.
    let name: Vec<u8> = name.iter().map(|byte| if *byte == b'/' { b'_' } else { *byte }).collect();
    let root = if matches!(name.as_slice(), b"" | b"." | b"..") { b"folder".to_vec() } else { name };
    let mut links = BTreeMap::new();
    write_node(files, folder, &root, &mut links, sent)?;
    walk_below(files, folder, root, DEPTH_MAX, |path, node, _| {
        let below = [path.as_slice(), b"/", &node.name].concat();
        write_node(files, node, &below, &mut links, sent)?;
        Ok(Some(below))
    })?;
    sent.send_zeros(2 * TAR_BLOCK_BYTES as u64).map_err(|error| error.to_string())
}

fn write_node(
    files: &dyn Files,
    node: &Node,
    path: &[u8],
    links: &mut BTreeMap<u64, Vec<u8>>,
    sent: &mut SentBytes,
) -> Result<(), String> {
    let group = node.link_group.filter(|_| node.kind != NodeKind::Folder);
    let linked = group.and_then(|group| links.get(&group));
    let Some(head) = header(path, node, linked.map(Vec::as_slice)) else { return Ok(()) };
    sent.write_all(&head).map_err(|error| error.to_string())?;
    if node.kind == NodeKind::File && linked.is_none() {
        sent.send_range(files, node, 0..node.size)?;
        let padding = node.size.next_multiple_of(TAR_BLOCK_BYTES as u64) - node.size;
        sent.send_zeros(padding).map_err(|error| error.to_string())?;
    }
    if let (Some(group), true) = (group, links.len() < LINKS_MAX) {
        links.entry(group).or_insert_with(|| path.to_vec());
    }
    Ok(())
}
