//! Nodes: the records of files and folders, and their encoding. Pure.
//!
//! | number | field       | value                                                                                       |
//! |-------:|-------------|---------------------------------------------------------------------------------------------|
//! |      1 | name        | bytes; empty for the root of a snapshot                                                     |
//! |      2 | kind        | 1 file, 2 folder, 3 symbolic link, 4 character device, 5 block device, 6 fifo, 7 socket     |
//! |      3 | mode        | the permission bits, 12 of them                                                             |
//! |      4 | uid         |                                                                                             |
//! |      5 | gid         |                                                                                             |
//! |      6 | mtime       | signed varint: nanoseconds since 1970-01-01 UTC                                             |
//! |      7 | ctime       | the same; with inode and size it shows that a file is unchanged; not restored               |
//! |      8 | inode       |                                                                                             |
//! |      9 | link_group  | nodes of one snapshot with the same value are hard links to one file                        |
//! |     10 | size        | bytes of a file                                                                             |
//! |     11 | content     | entry: a file's bytes (absent for an empty file), or a folder's nodes (absent: no nodes)    |
//! |     12 | target      | of a symbolic link, bytes                                                                   |
//! |     13 | device      | major and minor number, two varints                                                         |
//! |     14 | xattr *     | length of the name as varint, name, value; ACLs and capabilities are xattrs                 |
//! |     15 | problem     | 1 could not be read, 2 changed while it was read, 3 vanished                                 |
//! |     16 | mtime_wide  | where field 6 cannot hold the mtime: its seconds since 1970-01-01 UTC (signed varint) and nanoseconds (varint, less than 10⁹) |
//! |     17 | ctime_wide  | the same for field 7                                                                         |
//! |     18 | inode_flags | flags that `chattr` sets, as `ioctl_iflags(2)` numbers them                                  |
//!
//! Field 6 holds times from 1677 to 2262. For a time outside this range, it holds the nearest time
//! in it, and `mtime_wide` holds the exact time. An older reader shows field 6.
//!
//! Invariants of a decoded node:
//! - Its name is one path component, and never leads out of its folder.
//! - Its content is a tree of the kind that matches the kind of the node.
//! - The size of a file is the size of its content.
//!
//! [`Node::check`] has these rules for both sides: a list of nodes refuses to write a node that it
//! would refuse to read ([`NodeListWriter`](super::node_list_writer::NodeListWriter)).

use varve_block::{BlockKind, has_kind};
use varve_image::{DeviceNumber, FileTime, Xattr};
use varve_tree::{DecodeEntryError, Entry};

use crate::inode_flags::InodeFlags;
use crate::records::fields::{
    Field, FieldError, FieldReader, FieldWriter, UnknownFields, push_signed, push_varint, split_record,
    split_signed, split_varint,
};

const NAME: u8 = 1;
const KIND: u8 = 2;
const MODE: u8 = 3;
const UID: u8 = 4;
const GID: u8 = 5;
const MTIME: u8 = 6;
const CTIME: u8 = 7;
const INODE: u8 = 8;
const LINK_GROUP: u8 = 9;
const SIZE: u8 = 10;
const CONTENT: u8 = 11;
const TARGET: u8 = 12;
const DEVICE: u8 = 13;
const XATTR: u8 = 14;
const PROBLEM: u8 = 15;
const MTIME_WIDE: u8 = 16;
const CTIME_WIDE: u8 = 17;
const INODE_FLAGS: u8 = 18;

/// The permission bits: read, write and execute for user, group and others, and setuid, setgid and
/// sticky.
pub const MODE_MASK: u16 = 0o7777;

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum NodeKind {
    File = 1,
    Folder = 2,
    SymbolicLink = 3,
    CharacterDevice = 4,
    BlockDevice = 5,
    /// A named pipe.
    Fifo = 6,
    /// A Unix domain socket.
    Socket = 7,
}

impl NodeKind {
    fn from_number(number: u8) -> Option<Self> {
        [
            Self::File,
            Self::Folder,
            Self::SymbolicLink,
            Self::CharacterDevice,
            Self::BlockDevice,
            Self::Fifo,
            Self::Socket,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == number)
    }

    /// Returns whether it is a character or a block device.
    pub(crate) fn is_device(self) -> bool {
        matches!(self, Self::CharacterDevice | Self::BlockDevice)
    }
}

impl std::fmt::Display for NodeKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Folder => "folder",
            Self::SymbolicLink => "symbolic link",
            Self::CharacterDevice => "character device",
            Self::BlockDevice => "block device",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
        })
    }
}

/// A problem that occurred while a node was archived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum NodeProblem {
    /// The node, or a part of it, was unreadable. The missing part existed.
    Unreadable = 1,
    /// The node changed while it was read. Its content may be partly old and partly new.
    Changed = 2,
    /// The node vanished before it was read.
    Vanished = 3,
}

impl NodeProblem {
    fn from_number(number: u8) -> Option<Self> {
        [Self::Unreadable, Self::Changed, Self::Vanished].into_iter().find(|problem| *problem as u8 == number)
    }
}

impl std::fmt::Display for NodeProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unreadable => "could not be read",
            Self::Changed => "changed while it was read",
            Self::Vanished => "vanished",
        })
    }
}

/// A file, folder, link or device in a snapshot, with everything that is needed to create it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// One path component, as bytes; empty for the root of a snapshot.
    pub name: Vec<u8>,
    pub kind: NodeKind,
    /// The permission bits: [`MODE_MASK`].
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// The time of the last change to the content.
    pub mtime: FileTime,
    /// The time of the last change of any kind. `None` if it is not reliable evidence of a change.
    pub ctime: Option<FileTime>,
    /// For a file that is being archived: the time of its last change of any kind, even if `ctime`
    /// is absent. Not stored.
    pub last_change: Option<FileTime>,
    /// The inode number in its file system.
    pub inode: u64,
    /// Set if the file has several names. All nodes of a snapshot with this value are the same
    /// file.
    pub link_group: Option<u64>,
    /// Bytes of a file; 0 for other kinds.
    pub size: u64,
    /// The bytes of a file, or the nodes of a folder; `None` if empty.
    pub content: Option<Entry>,
    /// For a folder that vac archived: the tree with the names of the files in `content`. Not
    /// stored.
    pub meta: Option<Entry>,
    /// The target of a symbolic link.
    pub target: Vec<u8>,
    /// `Some` for devices only.
    pub device: Option<DeviceNumber>,
    /// Sorted by name, ascending.
    pub xattrs: Vec<Xattr>,
    /// The problem that occurred while it was archived.
    pub problem: Option<NodeProblem>,
    /// The flags that `chattr` sets.
    pub inode_flags: InodeFlags,
    /// Fields that this version does not know.
    pub unknown: UnknownFields,
}

/// Why a node can be neither written nor read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeNodeError {
    /// The bytes are not valid fields of a node's record.
    #[error("{0}")]
    Field(#[from] FieldError),
    /// The name is not one path component.
    #[error("{:?} is not a name", String::from_utf8_lossy(name))]
    Name { name: Vec<u8> },
    /// The field `kind` is missing.
    #[error("a node has no kind")]
    NoKind,
    /// The content is not an entry.
    #[error("the content of a node is malformed")]
    Content { source: DecodeEntryError },
    /// The content does not match the kind or the size of the node.
    #[error("the content of a {kind} of {size} bytes is a tree of another kind or size")]
    ContentMismatch { kind: NodeKind, size: u64 },
    /// A symbolic link without a target, or a target or device number in a node of another kind.
    #[error("a {kind} lacks its target or device number")]
    Incomplete { kind: NodeKind },
    /// No system can make such a link.
    #[error("the target of the symbolic link has a zero byte")]
    Target,
    /// No system has such an attribute.
    #[error("the name of an extended attribute is empty, or has a zero byte")]
    XattrName,
    /// The mode has more than the permission bits.
    #[error("the mode {mode:o} has bits that no file has")]
    Mode { mode: u16 },
}

has_kind!(DecodeNodeError: _ => Damage);

impl Node {
    /// A node with a name and a kind; all else is empty.
    #[must_use]
    pub fn new(name: Vec<u8>, kind: NodeKind) -> Self {
        Self {
            name,
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            mtime: FileTime::EPOCH,
            ctime: None,
            last_change: None,
            inode: 0,
            link_group: None,
            size: 0,
            content: None,
            meta: None,
            target: Vec::new(),
            device: None,
            xattrs: Vec::new(),
            problem: None,
            inode_flags: InodeFlags::NONE,
            unknown: UnknownFields::default(),
        }
    }

    /// Formats the kind and the mode as `ls -l` does: `drwxr-x---`.
    #[must_use]
    pub fn symbolic_mode(&self) -> String {
        let kind = match self.kind {
            NodeKind::File => '-',
            NodeKind::Folder => 'd',
            NodeKind::SymbolicLink => 'l',
            NodeKind::CharacterDevice => 'c',
            NodeKind::BlockDevice => 'b',
            NodeKind::Fifo => 'p',
            NodeKind::Socket => 's',
        };
        let mut text = String::from(kind);
        for (shift, special, with, without) in
            [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
        {
            let bits = self.mode >> shift;
            text.push(if bits & 4 != 0 { 'r' } else { '-' });
            text.push(if bits & 2 != 0 { 'w' } else { '-' });
            text.push(match (bits & 1 != 0, self.mode & special != 0) {
                (true, true) => with,
                (false, true) => without,
                (true, false) => 'x',
                (false, false) => '-',
            });
        }
        text
    }

    /// Encodes the fields of the node, without their length. Only a node that passes the
    /// [`check`](Self::check) can be decoded again.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let content = self.content.map(|entry| entry.encode());
        let device = self.device.map(encode_device);
        let mtime_wide = encode_wide(self.mtime);
        let ctime_wide = self.ctime.and_then(encode_wide);
        let writer = FieldWriter::new()
            .bytes(NAME, &self.name)
            .number(KIND, u64::from(self.kind as u8))
            .number(MODE, u64::from(self.mode))
            .number(UID, u64::from(self.uid))
            .number(GID, u64::from(self.gid))
            .signed(MTIME, self.mtime.clamped_nanoseconds())
            .optional_signed(CTIME, self.ctime.map(FileTime::clamped_nanoseconds))
            .number(INODE, self.inode)
            .optional_number(LINK_GROUP, self.link_group)
            .optional_number(SIZE, (self.size > 0).then_some(self.size))
            .optional_bytes(CONTENT, content.as_deref())
            .optional_bytes(TARGET, (!self.target.is_empty()).then_some(&self.target))
            .optional_bytes(DEVICE, device.as_deref());
        let xattrs = self.xattrs.iter().map(encode_xattr);
        xattrs
            .fold(writer, |writer, xattr| writer.bytes(XATTR, &xattr))
            .optional_number(PROBLEM, self.problem.map(|problem| u64::from(problem as u8)))
            .optional_bytes(MTIME_WIDE, mtime_wide.as_deref())
            .optional_bytes(CTIME_WIDE, ctime_wide.as_deref())
            .optional_number(
                INODE_FLAGS,
                (!self.inode_flags.is_empty()).then(|| u64::from(self.inode_flags.bits())),
            )
            .finish_with(&self.unknown)
    }

    /// Decodes a node of a folder. The scores of its store have `score_bytes` bytes.
    ///
    /// # Errors
    /// [`DecodeNodeError`]: no writer would have written these fields.
    pub fn decode(fields: &[u8], score_bytes: usize) -> Result<Self, DecodeNodeError> {
        let node = Self::decode_any(fields, score_bytes)?;
        node.check_name()?;
        Ok(node)
    }

    /// Decodes the root of a snapshot, which has no name. The scores of its store have
    /// `score_bytes` bytes.
    ///
    /// # Errors
    /// [`DecodeNodeError`]: no writer would have written these fields.
    pub fn decode_root(fields: &[u8], score_bytes: usize) -> Result<Self, DecodeNodeError> {
        let node = Self::decode_any(fields, score_bytes)?;
        if node.name.is_empty() { Ok(node) } else { Err(DecodeNodeError::Name { name: node.name }) }
    }

    fn decode_any(fields: &[u8], score_bytes: usize) -> Result<Self, DecodeNodeError> {
        let mut node = Self::new(Vec::new(), NodeKind::File);
        let mut kind = None;
        for field in FieldReader::new(fields) {
            let field = field?;
            match field.number {
                NAME => node.name = field.bytes.to_vec(),
                KIND => kind = Some(NodeKind::from_number(field.value()?).ok_or_else(|| field.unexpected())?),
                MODE => node.mode = field.value()?,
                UID => node.uid = field.value()?,
                GID => node.gid = field.value()?,
                MTIME => node.mtime = FileTime::from_nanoseconds(field.signed()?),
                CTIME => node.ctime = Some(FileTime::from_nanoseconds(field.signed()?)),
                INODE => node.inode = field.value()?,
                LINK_GROUP => node.link_group = Some(field.value()?),
                SIZE => node.size = field.value()?,
                CONTENT => node.content = Some(decode_content(&field, score_bytes)?),
                TARGET => node.target = field.bytes.to_vec(),
                DEVICE => node.device = Some(decode_device(&field)?),
                XATTR => node.xattrs.push(decode_xattr(&field)?),
                PROBLEM => {
                    let problem = NodeProblem::from_number(field.value()?);
                    node.problem = Some(problem.ok_or_else(|| field.unexpected())?);
                }
                MTIME_WIDE => node.mtime = decode_wide(&field)?,
                CTIME_WIDE => node.ctime = Some(decode_wide(&field)?),
                INODE_FLAGS => node.inode_flags = InodeFlags::from_bits(field.value()?),
                _ => node.unknown.keep(&field),
            }
        }
        node.kind = kind.ok_or(DecodeNodeError::NoKind)?;
        // Earlier versions have written such links, with the files of a folder behind them.
        if node.target.contains(&0) {
            node.target.clear();
            node.problem = Some(NodeProblem::Unreadable);
        }
        node.check()?;
        Ok(node)
    }

    /// Checks that the name is one path component, as in every node but the root of a snapshot.
    ///
    /// # Errors
    /// [`DecodeNodeError::Name`].
    pub fn check_name(&self) -> Result<(), DecodeNodeError> {
        if is_component(&self.name) { Ok(()) } else { Err(DecodeNodeError::Name { name: self.name.clone() }) }
    }

    /// Checks that the fields are valid, and agree with each other.
    ///
    /// # Errors
    /// [`DecodeNodeError`].
    pub fn check(&self) -> Result<(), DecodeNodeError> {
        let Self { kind, size, mode, .. } = *self;
        if mode & !MODE_MASK != 0 {
            return Err(DecodeNodeError::Mode { mode });
        }
        if self.target.contains(&0) {
            return Err(DecodeNodeError::Target);
        }
        if self.xattrs.iter().any(|xattr| xattr.name.is_empty() || xattr.name.contains(&0)) {
            return Err(DecodeNodeError::XattrName);
        }
        let content_fits = match (kind, &self.content) {
            (NodeKind::File, Some(content)) => {
                content.leaf_kind() == BlockKind::Data && content.size() == size && size > 0
            }
            (NodeKind::File, None) => size == 0 || self.problem.is_some(),
            (NodeKind::Folder, content) => {
                size == 0 && content.is_none_or(|content| content.leaf_kind() == BlockKind::Directory)
            }
            (_, content) => size == 0 && content.is_none(),
        };
        if !content_fits {
            return Err(DecodeNodeError::ContentMismatch { kind, size });
        }
        let has_target = !self.target.is_empty();
        let target_fits = has_target == (kind == NodeKind::SymbolicLink);
        let device_fits = self.device.is_some() == kind.is_device();
        // A node that vanished or was unreadable may lack the fields of its kind.
        let lacks_only = self.problem.is_some() && !has_target && self.device.is_none();
        if target_fits && device_fits || lacks_only {
            Ok(())
        } else {
            Err(DecodeNodeError::Incomplete { kind })
        }
    }
}

/// Returns whether a name is one path component, and so stays inside its folder.
#[must_use]
pub fn is_component(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

fn decode_content(field: &Field<'_>, score_bytes: usize) -> Result<Entry, DecodeNodeError> {
    Entry::decode(field.bytes, score_bytes).map_err(|source| DecodeNodeError::Content { source })
}

/// Encodes a time that does not fit 64 bits of nanoseconds. `None` for all other times, which fit
/// the narrow field.
fn encode_wide(time: FileTime) -> Option<Vec<u8>> {
    if time.nanoseconds().is_some() {
        return None;
    }
    let mut bytes = Vec::new();
    push_signed(&mut bytes, time.seconds());
    push_varint(&mut bytes, u64::from(time.subsecond_nanoseconds()));
    Some(bytes)
}

fn decode_wide(field: &Field<'_>) -> Result<FileTime, FieldError> {
    let time = || {
        let (seconds, rest) = split_signed(field.bytes)?;
        let (nanoseconds, []) = split_varint(rest)? else { return None };
        let nanoseconds = u32::try_from(nanoseconds).ok()?;
        let time = FileTime::new(seconds, nanoseconds);
        (time.subsecond_nanoseconds() == nanoseconds).then_some(time)
    };
    time().ok_or_else(|| field.unexpected())
}

fn encode_device(device: DeviceNumber) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_varint(&mut bytes, u64::from(device.major));
    push_varint(&mut bytes, u64::from(device.minor));
    bytes
}

fn decode_device(field: &Field<'_>) -> Result<DeviceNumber, FieldError> {
    let numbers = || {
        let (major, rest) = split_varint(field.bytes)?;
        let (minor, []) = split_varint(rest)? else { return None };
        Some(DeviceNumber { major: u32::try_from(major).ok()?, minor: u32::try_from(minor).ok()? })
    };
    numbers().ok_or_else(|| field.unexpected())
}

fn encode_xattr(xattr: &Xattr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(xattr.name.len().saturating_add(xattr.value.len()).saturating_add(2));
    push_varint(&mut bytes, xattr.name.len() as u64);
    bytes.extend_from_slice(&xattr.name);
    bytes.extend_from_slice(&xattr.value);
    bytes
}

fn decode_xattr(field: &Field<'_>) -> Result<Xattr, FieldError> {
    let (name, value) = split_record(field.bytes).ok_or_else(|| field.unexpected())?;
    Ok(Xattr { name: name.to_vec(), value: value.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_look_as_in_ls() {
        let mut node = Node::new(b"x".to_vec(), NodeKind::File);
        for (bits, shown) in
            [(0o755, "-rwxr-xr-x"), (0o4755, "-rwsr-xr-x"), (0o1644, "-rw-r--r-T"), (0, "----------")]
        {
            node.mode = bits;
            assert_eq!(node.symbolic_mode(), shown);
        }
        node.kind = NodeKind::Folder;
        assert_eq!(node.symbolic_mode(), "d---------");
    }
}
