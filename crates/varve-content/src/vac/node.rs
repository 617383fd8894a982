//! Converts a record of vac to a node, and back.
//!
//! Data that has no place in vac's format is kept in a section of the record that vac's tools skip:
//! the fields of a node, as in a Varve folder. The section exists only if data would be lost
//! without it.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_image::{DeviceNumber, FileTime};
use varve_tree::{VacMode, VacRecord};

use super::owners::OwnerNames;
use crate::records::node::{Node, NodeKind};

/// The longest target of a symbolic link, and the longest text that describes a device.
pub(super) const TEXT_BYTES_MAX: u64 = 4096;
/// Any length of scores will do: a node in a record has no content.
const NO_SCORE_BYTES: usize = 20;

/// Bits that have different values in vac and in Unix.
const BITS: [(u32, u16); 3] =
    [(VacMode::STICKY, 0o1000), (VacMode::SETUID, 0o4000), (VacMode::SETGID, 0o2000)];

/// Converts a record. Size, content, target and device are in the file's bytes, and are not set
/// here. A device counts as a character device until then.
pub(super) fn node_of(record: VacRecord, owners: &OwnerNames) -> Node {
    let kind = kind_of(record.mode);
    let known = record.own.as_deref().and_then(|fields| Node::decode_root(fields, NO_SCORE_BYTES).ok());
    // A program that does not know the section may have changed the kind of the file.
    let known = known.filter(|known| kind_of(VacMode(kind_bits(known.kind))) == kind);
    let mode = BITS.iter().fold(record.mode.0 & VacMode::PERMISSIONS, |mode, (vac, unix)| {
        mode | if record.mode.has(*vac) { u32::from(*unix) } else { 0 }
    });
    let seconds = |seconds: u32| FileTime::new(i64::from(seconds), 0);
    let mut node = Node {
        mode: u16::try_from(mode).unwrap_or(0),
        uid: owners.user(&record.owner),
        gid: owners.group(&record.group),
        mtime: seconds(record.mtime),
        ctime: Some(seconds(record.ctime)),
        inode: record.qid,
        ..Node::new(record.name, kind)
    };
    if let Some(known) = known {
        node.kind = known.kind;
        node.mtime = known.mtime;
        node.link_group = known.link_group;
        node.xattrs = known.xattrs;
        node.problem = known.problem;
        node.inode_flags = known.inode_flags;
        node.target = known.target;
        node.device = known.device;
    }
    node
}

fn kind_of(mode: VacMode) -> NodeKind {
    if mode.has(VacMode::FOLDER) {
        NodeKind::Folder
    } else if mode.has(VacMode::LINK) {
        NodeKind::SymbolicLink
    } else if mode.has(VacMode::DEVICE) {
        NodeKind::CharacterDevice
    } else if mode.has(VacMode::PIPE) {
        NodeKind::Fifo
    } else {
        NodeKind::File
    }
}

/// The mode bits of a node's kind. A socket is a file without bytes.
fn kind_bits(kind: NodeKind) -> u32 {
    match kind {
        NodeKind::File | NodeKind::Socket => 0,
        NodeKind::Folder => VacMode::FOLDER,
        NodeKind::SymbolicLink => VacMode::LINK,
        NodeKind::CharacterDevice | NodeKind::BlockDevice => VacMode::DEVICE,
        NodeKind::Fifo => VacMode::PIPE,
    }
}

/// Parses the text that describes a device: `c MINOR MAJOR`, or `b` instead of `c`.
pub(super) fn device_of(text: &[u8]) -> Option<(NodeKind, DeviceNumber)> {
    let mut words = std::str::from_utf8(text).ok()?.trim_end_matches('\0').split(' ');
    let kind = match words.next()? {
        "c" => NodeKind::CharacterDevice,
        "b" => NodeKind::BlockDevice,
        _ => return None,
    };
    let (minor, major) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    words.next().is_none().then_some((kind, DeviceNumber { major, minor }))
}

/// The text that describes a device.
pub(super) fn device_text(node: &Node) -> Option<Vec<u8>> {
    let letter = if node.kind == NodeKind::BlockDevice { 'b' } else { 'c' };
    node.device.map(|device| format!("{letter} {} {}", device.minor, device.major).into_bytes())
}

/// Makes the record of a node. The caller sets its entries and its qid. With `with_xattrs` false,
/// the extended attributes are omitted, because there may be too many.
///
/// The record does not depend on the time of archiving, so that an unchanged folder always has the
/// same archive.
pub(super) fn record_of(node: &Node, owners: &OwnerNames, with_xattrs: bool) -> VacRecord {
    let in_seconds = |time: FileTime| u32::try_from(time.seconds()).unwrap_or(0);
    let seconds = in_seconds(node.mtime);
    let mode = BITS.iter().fold(u32::from(node.mode) & VacMode::PERMISSIONS, |mode, (vac, unix)| {
        mode | if node.mode & unix == 0 { 0 } else { *vac }
    });
    let mut record = VacRecord {
        name: node.name.clone(),
        owner: owners.user_name(node.uid),
        group: owners.group_name(node.gid),
        mtime: seconds,
        ctime: node.last_change.or(node.ctime).map_or(seconds, in_seconds),
        atime: seconds,
        mode: VacMode(mode | kind_bits(node.kind)),
        ..VacRecord::default()
    };
    let xattrs = if with_xattrs { node.xattrs.clone() } else { Vec::new() };
    let plain = FileTime::new(i64::from(seconds), 0) == node.mtime
        && node.kind != NodeKind::Socket
        && node.link_group.is_none()
        && node.problem.is_none()
        && node.inode_flags.is_empty()
        && xattrs.is_empty();
    if !plain {
        let own = Node {
            mtime: node.mtime,
            link_group: node.link_group,
            problem: node.problem,
            inode_flags: node.inode_flags,
            target: node.target.clone(),
            device: node.device,
            xattrs,
            ..Node::new(Vec::new(), node.kind)
        };
        record.own = Some(own.encode());
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode_flags::InodeFlags;
    use crate::records::node::NodeProblem;
    use varve_image::Xattr;

    fn owners() -> OwnerNames {
        OwnerNames::parse(b"root:x:0:\nme:x:7:\n", b"root:x:0:\n")
    }

    #[test]
    fn what_vac_can_say_needs_no_section() {
        let node = Node {
            mode: 0o6755,
            uid: 7,
            gid: 9,
            mtime: FileTime::new(5, 0),
            ctime: Some(FileTime::new(8, 0)),
            ..Node::new(b"x".to_vec(), NodeKind::Folder)
        };
        let record = record_of(&node, &owners(), true);
        assert_eq!(
            (record.own.as_ref(), record.owner.as_slice(), record.group.as_slice()),
            (None, &b"me"[..], &b"9"[..])
        );
        assert_eq!(node_of(record, &owners()), node);
    }

    #[test]
    fn what_vac_cannot_say_comes_back_all_the_same() {
        let base = Node { ctime: Some(FileTime::EPOCH), ..Node::new(b"x".to_vec(), NodeKind::File) };
        let device = DeviceNumber { major: 3, minor: 1 };
        for node in [
            Node { mtime: FileTime::from_nanoseconds(-1), ..base.clone() },
            Node { mtime: FileTime::new(1_600_000_000, 123_456_789), ..base.clone() },
            Node { mtime: FileTime::new(i64::from(u32::MAX) + 1, 0), ..base.clone() },
            Node { mtime: FileTime::new(1 << 40, 5), ..base.clone() },
            Node { kind: NodeKind::Socket, ..base.clone() },
            Node { link_group: Some(3), ..base.clone() },
            Node { kind: NodeKind::SymbolicLink, target: b"t".to_vec(), link_group: Some(1), ..base.clone() },
            Node { kind: NodeKind::BlockDevice, device: Some(device), link_group: Some(1), ..base.clone() },
            Node { problem: Some(NodeProblem::Changed), ..base.clone() },
            Node { inode_flags: InodeFlags::LOCKS, ..base.clone() },
            Node { xattrs: vec![Xattr { name: b"user.a".to_vec(), value: vec![1, 2] }], ..base.clone() },
        ] {
            let record = record_of(&node, &owners(), true);
            let back = node_of(VacRecord::decode(&record.encode().unwrap()).unwrap(), &owners());
            assert_eq!(back, node);
            // The record has another kind now, so the old section does not count.
            let other = VacRecord { mode: VacMode(VacMode::PIPE), ..record };
            let other = node_of(other, &owners());
            assert_eq!((other.kind, other.link_group, other.xattrs.len()), (NodeKind::Fifo, None, 0));
        }
    }

    #[test]
    fn the_time_of_the_last_change_is_that_of_the_file_whether_or_not_it_counts() {
        let at = |seconds: i64| Some(FileTime::new(seconds, 5));
        for (ctime, last_change, expected) in [
            (at(7), at(7), 7),
            (None, at(7), 7),
            (at(7), None, 7),
            (None, None, 3),
            (None, at(-1), 0),
            (None, at(1 << 33), 0),
        ] {
            let node = Node {
                ctime,
                last_change,
                mtime: FileTime::new(3, 0),
                ..Node::new(b"x".to_vec(), NodeKind::File)
            };
            assert_eq!(record_of(&node, &owners(), true).ctime, expected, "{ctime:?} {last_change:?}");
        }
    }

    #[test]
    fn devices_are_texts() {
        let (kind, device) = device_of(b"c 3 1").unwrap();
        assert_eq!((kind, device), (NodeKind::CharacterDevice, DeviceNumber { major: 1, minor: 3 }));
        let node = Node { device: Some(device), ..Node::new(Vec::new(), kind) };
        assert_eq!(device_text(&node).unwrap(), b"c 3 1");
        for bad in ["", "c", "c 1", "x 1 2", "c 1 2 3", "c -1 2", "b 1 99999999999"] {
            assert_eq!(device_of(bad.as_bytes()), None, "{bad}");
        }
    }
}
