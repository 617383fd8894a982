//! The items of an archive of borg: its records of files, folders and links.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io::Read;

use varve_content::{InodeFlags, Node, NodeKind};
use varve_image::{FileTime, Xattr};

use super::access_list::{access_list, is_only_a_mode};
use super::messages::{MessageError, MessageHead, Messages};
use crate::device_number::device_number;
use crate::seen_contents::ContentId;

/// The longest key of an item.
const KEY_BYTES_MAX: u64 = 256;
/// Upper bound on the bytes of the texts of one item.
const ITEM_BYTES_MAX: usize = 64 << 20;
/// The most extended attributes of one file.
const XATTR_COUNT_MAX: u64 = 10_000;

/// Flags as BSD numbers them, which is borg's way, and as Linux does.
const FLAGS: [(i128, u32); 4] = [(0x1, 0x40), (0x2, 0x10), (0x4, 0x20), (0x20, 0x4)];

/// Why the rest of an archive's items is unknown.
#[derive(Debug, thiserror::Error)]
pub enum BorgItemError {
    #[error("the items of the archive: {0}")]
    Message(#[from] MessageError),
    #[error("an item of the archive has more than {} MiB", ITEM_BYTES_MAX >> 20)]
    Large,
    #[error("an item of the archive has no path")]
    NoPath,
}

/// The content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BorgContent {
    /// Made from the ids of its chunks.
    pub id: ContentId,
    pub bytes: u64,
    /// True if `borg check --repair` has put zeros in place of chunks that were lost.
    pub has_lost_chunks: bool,
}

/// An item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BorgItem {
    /// As borg keeps it: without a slash at its start.
    pub path: Vec<u8>,
    /// The node, without its name and its content.
    pub node: Node,
    /// Set for all names of a file but the first: the path of the first one.
    pub linked_to: Option<Vec<u8>>,
    /// Absent for all but files, and for empty files.
    pub content: Option<BorgContent>,
    /// The reason why the item, or an attribute of it, cannot be imported.
    pub problem: Option<ItemProblem>,
}

/// A problem of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ItemProblem {
    #[error("it is of an unknown kind")]
    Kind,
    #[error("its access list is of a kind that Linux does not have, and is left out")]
    ForeignList,
    #[error("its access list is malformed, and is left out")]
    MalformedList,
}

/// Reads items from a stream in the format of `msgpack`.
pub struct BorgItems<R> {
    messages: Messages<R>,
}

/// The fields of an item.
#[derive(Default)]
struct ItemFields {
    path: Option<Vec<u8>>,
    source: Option<Vec<u8>>,
    mode: i128,
    uid: i128,
    gid: i128,
    mtime: i128,
    device: i128,
    flags: i128,
    content: Option<BorgContent>,
    has_lost_chunks: bool,
    is_part: bool,
    xattrs: Vec<Xattr>,
    access_list: Option<Vec<u8>>,
    default_list: Option<Vec<u8>>,
    has_foreign_list: bool,
    /// Bytes of all texts.
    bytes: usize,
}

impl<R: Read> BorgItems<R> {
    #[must_use]
    pub fn new(stream: R) -> Self {
        Self { messages: Messages::new(stream) }
    }

    /// The next item; `None` at the end. Parts of interrupted files are skipped, as borg does.
    ///
    /// # Errors
    /// [`BorgItemError`]; the rest is unreadable.
    pub fn next_item(&mut self) -> Result<Option<BorgItem>, BorgItemError> {
        loop {
            let count = match self.messages.next()? {
                None => return Ok(None),
                Some(MessageHead::Map { count }) => count,
                Some(_) => return Err(self.messages.unexpected("an item").into()),
            };
            let mut fields = ItemFields::default();
            for _ in 0..count {
                self.field(&mut fields)?;
                if fields.bytes > ITEM_BYTES_MAX {
                    return Err(BorgItemError::Large);
                }
            }
            if !fields.is_part {
                return fields.item().map(Some);
            }
        }
    }

    fn field(&mut self, fields: &mut ItemFields) -> Result<(), BorgItemError> {
        let key = match self.messages.inner()? {
            MessageHead::Text { bytes } if bytes <= KEY_BYTES_MAX => self.messages.bytes(bytes)?,
            _ => return Err(self.messages.unexpected("the name of a field").into()),
        };
        match key.as_slice() {
            b"path" => fields.path = self.text(&mut fields.bytes)?,
            b"source" => fields.source = self.text(&mut fields.bytes)?,
            b"mode" => fields.mode = self.integer()?,
            b"uid" => fields.uid = self.integer()?,
            b"gid" => fields.gid = self.integer()?,
            b"mtime" => fields.mtime = self.integer()?,
            b"rdev" => fields.device = self.integer()?,
            b"bsdflags" => fields.flags = self.integer()?,
            b"chunks" => fields.content = self.chunks()?,
            b"xattrs" => self.xattrs(fields)?,
            b"acl_access" => fields.access_list = self.text(&mut fields.bytes)?,
            b"acl_default" => fields.default_list = self.text(&mut fields.bytes)?,
            other => {
                fields.is_part |= other == b"part";
                fields.has_lost_chunks |= other == b"chunks_healthy";
                fields.has_foreign_list |= matches!(other, b"acl_extended" | b"acl_nfs4");
                let head = self.messages.inner()?;
                self.messages.skip(head)?;
            }
        }
        Ok(())
    }

    /// A text, or nothing.
    fn text(&mut self, total: &mut usize) -> Result<Option<Vec<u8>>, BorgItemError> {
        match self.messages.inner()? {
            MessageHead::Nil => Ok(None),
            MessageHead::Text { bytes } => {
                let text = self.messages.bytes(bytes)?;
                *total = total.saturating_add(text.len());
                Ok(Some(text))
            }
            _ => Err(self.messages.unexpected("a text").into()),
        }
    }

    /// A number. borg keeps a large one as bytes, the lowest first.
    fn integer(&mut self) -> Result<i128, BorgItemError> {
        match self.messages.inner()? {
            MessageHead::Nil => Ok(0),
            MessageHead::Integer(value) => Ok(value),
            MessageHead::Text { bytes } if bytes <= 16 => {
                let bytes = self.messages.bytes(bytes)?;
                let is_negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
                let mut whole = if is_negative { [0xff; 16] } else { [0; 16] };
                whole.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
                Ok(i128::from_le_bytes(whole))
            }
            _ => Err(self.messages.unexpected("a number").into()),
        }
    }

    /// The list of chunks: each has an id, a size, and a size in the repository.
    fn chunks(&mut self) -> Result<Option<BorgContent>, BorgItemError> {
        let MessageHead::Array { count } = self.messages.inner()? else { return Ok(None) };
        let mut hasher = blake3::Hasher::new();
        let mut bytes = 0_u64;
        for _ in 0..count {
            let MessageHead::Array { count: parts @ 2.. } = self.messages.inner()? else {
                return Err(self.messages.unexpected("a chunk").into());
            };
            let id = match self.messages.inner()? {
                MessageHead::Text { bytes: 32 } => self.messages.bytes(32)?,
                _ => return Err(self.messages.unexpected("the id of a chunk").into()),
            };
            let size = match self.messages.inner()? {
                MessageHead::Integer(size) => u64::try_from(size).ok(),
                _ => None,
            };
            let size = size.ok_or_else(|| self.messages.unexpected("the size of a chunk"))?;
            for _ in 2..parts {
                let head = self.messages.inner()?;
                self.messages.skip(head)?;
            }
            hasher.update(&id).update(&size.to_le_bytes());
            bytes = bytes.saturating_add(size);
        }
        let content = BorgContent { id: *hasher.finalize().as_bytes(), bytes, has_lost_chunks: false };
        Ok((bytes > 0).then_some(content))
    }

    fn xattrs(&mut self, fields: &mut ItemFields) -> Result<(), BorgItemError> {
        let count = match self.messages.inner()? {
            MessageHead::Nil => return Ok(()),
            MessageHead::Map { count } if count <= XATTR_COUNT_MAX => count,
            _ => return Err(self.messages.unexpected("a map of attributes").into()),
        };
        for _ in 0..count {
            let name = self.messages.text()?;
            fields.bytes = fields.bytes.saturating_add(name.len());
            let value = self.text(&mut fields.bytes)?.unwrap_or_default();
            if fields.bytes > ITEM_BYTES_MAX {
                return Err(BorgItemError::Large);
            }
            fields.xattrs.push(Xattr { name, value });
        }
        Ok(())
    }
}

impl ItemFields {
    fn item(self) -> Result<BorgItem, BorgItemError> {
        let path = self.path.ok_or(BorgItemError::NoPath)?;
        let mode = u32::try_from(self.mode).unwrap_or(0);
        let kind = match mode & 0o170_000 {
            0o040_000 => Some(NodeKind::Folder),
            0o120_000 => Some(NodeKind::SymbolicLink),
            0o100_000 => Some(NodeKind::File),
            0o010_000 => Some(NodeKind::Fifo),
            0o020_000 => Some(NodeKind::CharacterDevice),
            0o060_000 => Some(NodeKind::BlockDevice),
            _ => None,
        };
        let mut problem = kind.is_none().then_some(ItemProblem::Kind);
        let mut node = Node::new(Vec::new(), kind.unwrap_or(NodeKind::File));
        node.mode = u16::try_from(mode & 0o7777).unwrap_or(0);
        let owner = |id: i128| u32::try_from(id).unwrap_or(u32::MAX);
        (node.uid, node.gid) = (owner(self.uid), owner(self.gid));
        node.mtime = file_time(self.mtime);
        node.xattrs = self.xattrs;
        let lists = [
            (self.access_list.filter(|text| !is_only_a_mode(text)), &b"system.posix_acl_access"[..]),
            (self.default_list, &b"system.posix_acl_default"[..]),
        ];
        for (text, name) in lists {
            match text.map(|text| access_list(&text)) {
                Some(Some(value)) if !value.is_empty() => {
                    node.xattrs.push(Xattr { name: name.to_vec(), value });
                }
                Some(None) => problem = problem.or(Some(ItemProblem::MalformedList)),
                _ => {}
            }
        }
        if self.has_foreign_list {
            problem = problem.or(Some(ItemProblem::ForeignList));
        }
        let flags = FLAGS.iter().filter(|(bsd, _)| self.flags & bsd != 0);
        node.inode_flags = InodeFlags::of_system(flags.fold(0, |bits, (_, linux)| bits | linux));
        if matches!(node.kind, NodeKind::BlockDevice | NodeKind::CharacterDevice) {
            node.device = Some(device_number(u64::try_from(self.device).unwrap_or(0)));
        }
        let mut linked_to = None;
        if node.kind == NodeKind::SymbolicLink {
            node.target = self.source.unwrap_or_default();
        } else {
            linked_to = self.source;
        }
        let is_file = node.kind == NodeKind::File;
        let has_lost_chunks = self.has_lost_chunks;
        let content = self.content.filter(|_| is_file && linked_to.is_none());
        let content = content.map(|content| BorgContent { has_lost_chunks, ..content });
        Ok(BorgItem { path, node, linked_to, content, problem })
    }
}

/// A time in nanoseconds.
fn file_time(nanoseconds: i128) -> FileTime {
    const SECOND: i128 = 1_000_000_000;
    let part = u32::try_from(nanoseconds.rem_euclid(SECOND)).unwrap_or(0);
    match i64::try_from(nanoseconds.div_euclid(SECOND)) {
        Ok(seconds) => FileTime::new(seconds, part),
        Err(_) => FileTime::EPOCH,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    fn items(bytes: &[u8]) -> Vec<BorgItem> {
        let mut items = BorgItems::new(bytes);
        std::iter::from_fn(|| items.next_item().unwrap()).collect()
    }

    fn text(text: &[u8]) -> Vec<u8> {
        [&[0xc4, u8::try_from(text.len()).unwrap()][..], text].concat()
    }

    #[test]
    fn items_are_translated() {
        let chunk = [&b"\xa6chunks\x91\x93"[..], &text(&[7; 32]), b"\xcd\x01\x00\x2e"].concat();
        let file = [
            b"\x87\xa4path\xa3a/\xff\xa4mode\xcd\x89\xed\xa3uid\xcd\x03\xe8\xa5mtime\xd3\xff\xff\xff\xff\xff\xff\xff\xff".to_vec(),
            chunk.clone(),
            [&b"\xa6xattrs\x81"[..], &text(b"user.\xfe"), b"\xc0"].concat(),
            b"\xa8bsdflags\x01".to_vec(),
        ]
        .concat();
        let part = [&b"\x83\xa4path\xa1a\xa4part\x01"[..], &chunk].concat();
        let link = b"\x83\xa4path\xa1b\xa4mode\xcd\x81\xa4\xa6source\xa3a/\xff".to_vec();
        let soft = b"\x83\xa4path\xa1s\xa4mode\xcd\xa1\xff\xa6source\xa1t".to_vec();
        let device = b"\x83\xa4path\xa1d\xa4mode\xcd\x21\xa4\xa4rdev\xcd\x05\x01".to_vec();
        let found = items(&[file, part, link, soft, device].concat());
        let [file, link, soft, device] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((file.path.as_slice(), file.node.mode, file.node.uid), (&b"a/\xff"[..], 0o4755, 1000));
        assert_eq!(file.node.mtime, FileTime::new(-1, 999_999_999));
        assert_eq!(file.node.xattrs, [Xattr { name: b"user.\xfe".to_vec(), value: Vec::new() }]);
        assert_eq!(file.node.inode_flags, InodeFlags::of_system(0x40));
        assert_eq!(file.content.map(|content| content.bytes), Some(256));
        assert_eq!((link.linked_to.as_deref(), link.content), (Some(&b"a/\xff"[..]), None));
        assert_eq!((soft.node.target.as_slice(), soft.linked_to.as_ref()), (&b"t"[..], None));
        assert_eq!(device.node.device.map(|device| (device.major, device.minor)), Some((5, 1)));
    }

    #[test]
    fn malformed_items_end_in_an_error() {
        for bytes in [
            &b"\xa1x"[..],
            b"\x81\xa4mode\x01",
            b"\x81\xa4path",
            b"\x82\xa4path\xa1a\xa6chunks\x91\x91\x00",
            b"\x81\x01\x02",
        ] {
            assert!(BorgItems::new(bytes).next_item().is_err(), "{bytes:?}");
        }
    }
}
