//! Nodes: what a folder holds, and how it is written. Pure.
//!
//! | number | field       | value                                                                                       |
//! |-------:|-------------|---------------------------------------------------------------------------------------------|
//! |      1 | name        | bytes; empty for the root of a snapshot                                                     |
//! |      2 | kind        | 1 file, 2 folder, 3 symbolic link, 4 character device, 5 block device, 6 fifo, 7 socket     |
//! |      3 | mode        | the permission bits, 12 of them                                                             |
//! |      4 | uid         |                                                                                             |
//! |      5 | gid         |                                                                                             |
//! |      6 | mtime       | signed varint: nanoseconds since 1970-01-01 UTC                                             |
//! |      7 | ctime       | the same; with inode and size tells whether a file is unchanged; not restored               |
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
//! Field 6 holds times from 1677 to 2262. For a time beyond them it has the nearest one, which is all that an older reader shows, and
//! `mtime_wide` has the exact time.
//!
//! Invariant of a decoded node: its name is one component of a path, and never leads out of the folder it is in; its
//! content is a tree of the kind that its own kind asks for, and a file's size is its content's.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use varve_block::BlockKind;
use varve_image::FileTime;
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

/// The permission bits: read, write and execute for three, and setuid, setgid and sticky.
pub const MODE_MASK: u16 = 0o7777;

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum NodeKind {
    /// A regular file.
    File = 1,
    /// A folder.
    Folder = 2,
    /// A symbolic link.
    SymbolicLink = 3,
    /// A character device.
    CharacterDevice = 4,
    /// A block device.
    BlockDevice = 5,
    /// A named pipe.
    Fifo = 6,
    /// A socket of the Unix kind.
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

    /// Whether it is a device of either kind.
    #[must_use]
    pub fn is_device(self) -> bool {
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

/// What went wrong while a node was archived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum NodeProblem {
    /// It, or some of it, could not be read: what the node lacks was there.
    Unreadable = 1,
    /// It changed while it was read: its content may be part old and part new.
    Changed = 2,
    /// It was gone before it could be read.
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

/// The numbers of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceNumber {
    /// Which driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

/// An extended attribute, as the kernel gives it: ACLs and file capabilities are such.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// With its namespace: `user.comment`, `system.posix_acl_access`.
    pub name: Vec<u8>,
    /// Any bytes.
    pub value: Vec<u8>,
}

/// Something that a folder holds, with all that is needed to make it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// One component of a path, as bytes; empty for the root of a snapshot.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: NodeKind,
    /// The permission bits: [`MODE_MASK`].
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// When its content last changed.
    pub mtime: FileTime,
    /// When it last changed in any way; `None` where nothing may be concluded from it.
    pub ctime: Option<FileTime>,
    /// Of a file that is being archived: when it last changed in any way, also where `ctime` is left out. Not stored.
    pub last_change: Option<FileTime>,
    /// Its number in its file system.
    pub inode: u64,
    /// Set where the file has other names: all nodes of one snapshot with this value are the same file.
    pub link_group: Option<u64>,
    /// Bytes of a file; 0 for all else.
    pub size: u64,
    /// The bytes of a file, or the nodes of a folder; `None` where there are none.
    pub content: Option<Entry>,
    /// Of a folder that vac archived: the tree that names what `content` leads to. Not stored.
    pub meta: Option<Entry>,
    /// Where a symbolic link points.
    pub target: Vec<u8>,
    /// Set for devices.
    pub device: Option<DeviceNumber>,
    /// In ascending order of their names.
    pub xattrs: Vec<Xattr>,
    /// What went wrong while it was archived.
    pub problem: Option<NodeProblem>,
    /// What `chattr` sets.
    pub inode_flags: InodeFlags,
    /// Fields that a later version has written.
    pub unknown: UnknownFields,
}

/// Why bytes are not a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeNodeError {
    /// Not the fields of a record, or not those of a node.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A name that is not one component of a path.
    #[error("{:?} is not a name", String::from_utf8_lossy(name))]
    Name {
        /// What was found.
        name: Vec<u8>,
    },
    /// There is no field `kind`.
    #[error("a node of no kind")]
    NoKind,
    /// The content is not an entry.
    #[error("the content of a node cannot be found")]
    Content {
        /// What is wrong with the entry.
        source: DecodeEntryError,
    },
    /// The content is not what a node of this kind has.
    #[error("a {kind} of {size} bytes whose content is a tree of another kind or size")]
    ContentMismatch {
        /// What the node is.
        kind: NodeKind,
        /// Its size.
        size: u64,
    },
    /// A symbolic link with no target, or a target or device with something that has none.
    #[error("a {kind} without what makes it one")]
    Incomplete {
        /// What the node is.
        kind: NodeKind,
    },
}

impl Node {
    /// A node of which nothing else is known.
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

    /// The fields of the node, without their length.
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

    /// Reads a node of a folder, of a store whose scores have `score_bytes` bytes.
    ///
    /// # Errors
    /// [`DecodeNodeError`] says what no writer would have written.
    pub fn decode(fields: &[u8], score_bytes: usize) -> Result<Self, DecodeNodeError> {
        let node = Self::decode_any(fields, score_bytes)?;
        if is_component(&node.name) { Ok(node) } else { Err(DecodeNodeError::Name { name: node.name }) }
    }

    /// Reads the root of a snapshot, which has no name, of a store whose scores have `score_bytes` bytes.
    ///
    /// # Errors
    /// [`DecodeNodeError`] says what no writer would have written.
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
                MODE => node.mode = decode_mode(&field)?,
                UID => node.uid = field.value()?,
                GID => node.gid = field.value()?,
                MTIME => node.mtime = FileTime::from_nanoseconds(field.signed()?),
                CTIME => node.ctime = Some(FileTime::from_nanoseconds(field.signed()?)),
                INODE => node.inode = field.value()?,
                LINK_GROUP => node.link_group = Some(field.value()?),
                SIZE => node.size = field.value()?,
                CONTENT => node.content = Some(decode_content(&field, score_bytes)?),
                TARGET => node.target = decode_target(&field)?,
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
        node.check()?;
        Ok(node)
    }

    /// Whether the fields agree with each other.
    fn check(&self) -> Result<(), DecodeNodeError> {
        let Self { kind, size, .. } = *self;
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
        // What vanished or could not be read may lack what makes it what it was.
        let lacks_only = self.problem.is_some() && !has_target && self.device.is_none();
        if target_fits && device_fits || lacks_only {
            Ok(())
        } else {
            Err(DecodeNodeError::Incomplete { kind })
        }
    }
}

/// Whether a name is one component of a path: it stays in the folder that it is in.
pub(crate) fn is_component(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

fn decode_mode(field: &Field<'_>) -> Result<u16, FieldError> {
    let mode = field.value()?;
    if mode & !MODE_MASK == 0 { Ok(mode) } else { Err(field.unexpected()) }
}

fn decode_content(field: &Field<'_>, score_bytes: usize) -> Result<Entry, DecodeNodeError> {
    Entry::decode(field.bytes, score_bytes).map_err(|source| DecodeNodeError::Content { source })
}

fn decode_target(field: &Field<'_>) -> Result<Vec<u8>, FieldError> {
    if field.bytes.contains(&0) { Err(field.unexpected()) } else { Ok(field.bytes.to_vec()) }
}

/// A time that 64 bits of nanoseconds cannot hold; `None` for all others, which have a field of their own.
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
    match split_record(field.bytes) {
        Some((name, value)) if !name.is_empty() && !name.contains(&0) => {
            Ok(Xattr { name: name.to_vec(), value: value.to_vec() })
        }
        _ => Err(field.unexpected()),
    }
}
