//! Tree blobs: the nodes of a folder. Pure.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use varve_content::{Node, NodeKind};
use varve_image::{FileTime, Xattr};

use super::go_text::unquote;
use super::restic_id::ResticId;
use crate::device_number::device_number;

/// Bits of a mode, as Go numbers them.
const GO_SETUID: u32 = 1 << 23;
const GO_SETGID: u32 = 1 << 22;
const GO_STICKY: u32 = 1 << 20;

/// Why a tree blob is not used.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("the list of files is malformed")]
    Json(#[source] serde_json::Error),
}

/// A node of a tree, translated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResticNode {
    /// Without content.
    pub node: Node,
    /// The data blobs of a file.
    pub content: Vec<ResticId>,
    /// The tree blob of a folder.
    pub subtree: Option<ResticId>,
    /// The device and the inode of a file with several names.
    pub links: Option<(u64, u64)>,
    /// The reason why it cannot be archived.
    pub problem: Option<&'static str>,
}

#[derive(Deserialize)]
struct TreeJson {
    nodes: Option<Vec<NodeJson>>,
}

#[derive(Deserialize)]
struct NodeJson {
    name: String,
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    mode: u32,
    mtime: Option<String>,
    ctime: Option<String>,
    #[serde(default)]
    uid: u32,
    #[serde(default)]
    gid: u32,
    #[serde(default)]
    inode: u64,
    #[serde(default)]
    device_id: u64,
    #[serde(default)]
    links: u64,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    linktarget: String,
    linktarget_raw: Option<String>,
    extended_attributes: Option<Vec<XattrJson>>,
    #[serde(default)]
    device: u64,
    content: Option<Vec<ResticId>>,
    subtree: Option<ResticId>,
}

#[derive(Deserialize)]
struct XattrJson {
    name: String,
    value: Option<String>,
}

/// The nodes of a tree blob, in ascending order of the bytes of their names. Of nodes with the same
/// name, all but the first have a problem.
///
/// # Errors
/// [`TreeError`].
pub fn parse_tree(bytes: &[u8]) -> Result<Vec<ResticNode>, TreeError> {
    let tree: TreeJson = serde_json::from_slice(bytes).map_err(TreeError::Json)?;
    let mut nodes: Vec<ResticNode> = tree.nodes.unwrap_or_default().into_iter().map(translate).collect();
    nodes.sort_by(|one, other| one.node.name.cmp(&other.node.name));
    for place in 1..nodes.len() {
        if let Some([one, next]) = nodes.get_mut(place.saturating_sub(1)..=place)
            && one.node.name == next.node.name
        {
            next.problem = next.problem.or(Some("another file of the folder has its name"));
        }
    }
    Ok(nodes)
}

fn translate(json: NodeJson) -> ResticNode {
    let mut problem = None;
    let kind = match json.kind.as_str() {
        "file" => NodeKind::File,
        "dir" => NodeKind::Folder,
        "symlink" => NodeKind::SymbolicLink,
        "dev" => NodeKind::BlockDevice,
        "chardev" => NodeKind::CharacterDevice,
        "fifo" => NodeKind::Fifo,
        "socket" => NodeKind::Socket,
        _ => {
            problem = Some("it is of a kind that cannot be archived");
            NodeKind::File
        }
    };
    let name = unquote(&json.name).unwrap_or_else(|| {
        problem = Some("its name is malformed");
        json.name.clone().into_bytes()
    });
    let is_name =
        !matches!(name.as_slice(), b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
    if !is_name {
        problem = Some("its name is malformed");
    }
    let mut node = Node::new(name, kind);
    let special = [(GO_SETUID, 0o4000), (GO_SETGID, 0o2000), (GO_STICKY, 0o1000)];
    let special = special.iter().filter(|(go, _)| json.mode & go != 0).map(|(_, bit)| *bit);
    let permissions = u16::try_from(json.mode & 0o777).unwrap_or(0);
    node.mode = special.fold(permissions, |mode, bit| mode | bit);
    (node.uid, node.gid, node.inode, node.size) = (json.uid, json.gid, json.inode, json.size);
    node.mtime = json.mtime.as_deref().and_then(time).unwrap_or(FileTime::EPOCH);
    node.ctime = json.ctime.as_deref().and_then(time);
    if kind == NodeKind::SymbolicLink {
        let raw = json.linktarget_raw.and_then(|raw| STANDARD.decode(raw).ok());
        node.target = raw.filter(|raw| !raw.is_empty()).unwrap_or_else(|| json.linktarget.into_bytes());
    }
    if matches!(kind, NodeKind::BlockDevice | NodeKind::CharacterDevice) {
        node.device = Some(device_number(json.device));
    }
    for xattr in json.extended_attributes.unwrap_or_default() {
        let Ok(value) = STANDARD.decode(xattr.value.unwrap_or_default()) else {
            problem = Some("its extended attributes are malformed");
            continue;
        };
        node.xattrs.push(Xattr { name: xattr.name.into_bytes(), value });
    }
    ResticNode {
        links: (json.links > 1 && kind != NodeKind::Folder).then_some((json.device_id, json.inode)),
        content: json.content.unwrap_or_default(),
        subtree: json.subtree,
        node,
        problem,
    }
}

/// A time as Go writes it.
pub(super) fn time(text: &str) -> Option<FileTime> {
    const SECOND: i128 = 1_000_000_000;
    let nanoseconds = text.parse::<jiff::Timestamp>().ok()?.as_nanosecond();
    let seconds = i64::try_from(nanoseconds.div_euclid(SECOND)).ok()?;
    Some(FileTime::new(seconds, u32::try_from(nanoseconds.rem_euclid(SECOND)).ok()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use varve_image::DeviceNumber;

    use super::*;

    fn one(json: &str) -> ResticNode {
        let nodes = parse_tree(format!("{{\"nodes\":[{json}]}}").as_bytes()).unwrap();
        nodes.into_iter().next().unwrap()
    }

    #[test]
    fn nodes_are_translated() {
        let file = one(
            r#"{"name":"a\\xff","type":"file","mode":8389101,"mtime":"1969-12-31T23:59:59.5Z","ctime":"2026-11-28T11:09:49.303487533+01:00",
            "uid":7,"gid":8,"inode":9,"device_id":65024,"size":5,"links":2,"extended_attributes":[{"name":"user.x","value":"eQ=="}],
            "content":["d3751d33f9cd5049c4af2b462735457e4d3baf130bcbb87f389e349fbaeb20b9"]}"#,
        );
        assert_eq!((file.node.name.as_slice(), file.node.mode), (&b"a\xff"[..], 0o4755));
        assert_eq!(file.node.mtime, FileTime::new(-1, 500_000_000));
        assert_eq!(file.node.ctime, Some(FileTime::from_nanoseconds(1_795_860_589_303_487_533)));
        assert_eq!((file.links, file.content.len(), file.problem), (Some((65024, 9)), 1, None));
        assert_eq!(file.node.xattrs, [Xattr { name: b"user.x".to_vec(), value: b"y".to_vec() }]);
        let link = one(
            r#"{"name":"l","type":"symlink","mode":134218239,"linktarget":"\ufffd","linktarget_raw":"/w=="}"#,
        );
        assert_eq!(link.node.target, b"\xff");
        let device = one(r#"{"name":"d","type":"dev","device":1048577}"#);
        assert_eq!(device.node.device, Some(DeviceNumber { major: 0, minor: 257 }));
        for bad in [
            r#"{"name":"..","type":"file"}"#,
            r#"{"name":"a/b","type":"dir"}"#,
            r#"{"name":"","type":"file"}"#,
            r#"{"name":"a","type":"irregular"}"#,
        ] {
            assert!(one(bad).problem.is_some(), "{bad}");
        }
    }

    #[test]
    fn names_are_sorted_and_unique() {
        let text = r#"{"nodes":[{"name":"b","type":"fifo"},{"name":"a","type":"fifo"},{"name":"b","type":"socket"}]}"#;
        let nodes = parse_tree(text.as_bytes()).unwrap();
        let names: Vec<_> = nodes.iter().map(|node| (node.node.name.as_slice(), node.node.kind)).collect();
        assert_eq!(names[..2], [(&b"a"[..], NodeKind::Fifo), (&b"b"[..], NodeKind::Fifo)]);
        let problems: Vec<_> = nodes.iter().map(|node| node.problem.is_some()).collect();
        assert_eq!(problems, [false, false, true]);
        assert!(parse_tree(b"{\"nodes\":null}").unwrap().is_empty());
        assert!(parse_tree(b"[").is_err());
    }
}
