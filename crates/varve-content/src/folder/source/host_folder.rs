//! A folder of this machine for other programs' trees: each entry described as a node, and opened
//! in the same safe way as the entries of a source.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use varve_block::to_usize;
use varve_image::{FileTime, Xattr};
use varve_world::Timestamp;

use super::flags;
use super::status::{FolderNames, HostFileId, NodeSettings, Status, open_file, open_folder};
use super::xattrs::XattrPlace;
use crate::folder::archiving::described::{ContentSink, DescriptionError};
use crate::folder::archiving::source_file::{next_data, read_full};
use crate::inode_flags::InodeFlags;
use crate::records::node::{Node, NodeKind};

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// An open folder of this machine.
#[derive(Debug)]
pub struct HostFolder {
    descriptor: OwnedFd,
}

/// An entry of a folder of this machine.
#[derive(Debug, Clone)]
pub struct HostEntry {
    /// Without content. Its change time is absent, because links that are made later change it.
    pub node: Node,
    /// The number of its device, and its inode.
    pub file_id: (u32, u32, u64),
}

/// The status of an entry: all that is known of it without opening it.
#[derive(Debug, Clone, Copy)]
pub struct HostStatus(Status);

/// The part of a status that changes whenever the file or its attributes change, or one of its
/// names comes or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostState {
    /// Bytes.
    pub size: u64,
    pub mtime: FileTime,
    pub ctime: FileTime,
}

/// The attributes of an entry that its status does not show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostAttributes {
    /// The target of a symbolic link.
    target: Vec<u8>,
    flags: InodeFlags,
    xattrs: Vec<Xattr>,
}

/// The names in a folder, in ascending order of their bytes.
#[derive(Debug)]
pub struct HostListing(FolderNames);

/// A name, as the listing of its folder reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedName<'a> {
    pub name: &'a [u8],
    /// `None` if the file system does not report kinds, and for an unknown kind.
    pub kind: Option<NodeKind>,
    /// Some file systems report other numbers here than in a status.
    pub inode: u64,
}

impl HostFolder {
    /// Opens a folder by a path from the user, following symbolic links. Also returns its node,
    /// which has no name.
    ///
    /// # Errors
    /// It cannot be opened, or its attributes cannot be read.
    pub fn open(path: &Path) -> io::Result<(Self, Node)> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        let mut node = Node::new(Vec::new(), NodeKind::Folder);
        describe(&Status::of_open(&descriptor)?, &mut node);
        node.xattrs = XattrPlace::open(&descriptor).read()?;
        Ok((Self { descriptor }, node))
    }

    /// The names in the folder, in ascending order of their bytes.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn names(&self) -> io::Result<Vec<Vec<u8>>> {
        let (mut names, read) = FolderNames::read(&self.descriptor);
        read?;
        let mut listed = Vec::with_capacity(names.len());
        while let Some((name, _)) = names.next() {
            listed.push(name.to_vec());
        }
        Ok(listed)
    }

    /// Opens the folder with this name, and not through a symbolic link.
    ///
    /// # Errors
    /// It is not a folder, or cannot be opened.
    pub fn folder(&self, name: &[u8]) -> io::Result<Self> {
        Ok(Self { descriptor: open_folder(&self.descriptor, name)? })
    }

    /// The names in the folder, of which the statuses can be read.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn list(&self) -> io::Result<HostListing> {
        let (names, read) = FolderNames::read(&self.descriptor);
        read?;
        Ok(HostListing(names))
    }

    /// The status of the folder itself.
    ///
    /// # Errors
    /// It is unreadable.
    pub fn status(&self) -> io::Result<HostStatus> {
        Ok(HostStatus(Status::of_open(&self.descriptor)?))
    }

    /// The status of the entry with this name.
    ///
    /// # Errors
    /// There is no such name.
    pub fn status_of(&self, name: &[u8]) -> io::Result<HostStatus> {
        Ok(HostStatus(Status::of_name(&self.descriptor, name)?))
    }

    /// Reads the attributes of the entry with this name that its status does not show. Opens files
    /// and folders.
    ///
    /// # Errors
    /// They are unreadable, or the kind is unknown.
    pub fn attributes(&self, name: &[u8], status: &HostStatus) -> io::Result<HostAttributes> {
        let mut attributes = HostAttributes::default();
        let kind = status.known_kind()?;
        match kind {
            NodeKind::File | NodeKind::Folder => {
                let opened = match kind {
                    NodeKind::File => open_file(&self.descriptor, name)?,
                    _ => open_folder(&self.descriptor, name)?,
                };
                attributes.flags = flags::read(&opened);
                attributes.xattrs = XattrPlace::open(&opened).read()?;
            }
            _ => {
                if kind == NodeKind::SymbolicLink {
                    let target = rustix::fs::readlinkat(&self.descriptor, name, Vec::new())?;
                    attributes.target = target.into_bytes();
                }
                attributes.xattrs = XattrPlace::named(&self.descriptor, name).read()?;
            }
        }
        Ok(attributes)
    }

    /// Describes the entry with this name, with its extended attributes, its flags, and the target
    /// of a symbolic link.
    ///
    /// # Errors
    /// Its attributes are unreadable, or it is of an unknown kind.
    pub fn entry(&self, name: &[u8]) -> io::Result<HostEntry> {
        let status = self.status_of(name)?;
        let attributes = self.attributes(name, &status)?;
        Ok(HostEntry { node: status.node(name.to_vec(), &attributes)?, file_id: status.file_id() })
    }

    /// Opens the file with this name, and not through a symbolic link.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn file(&self, name: &[u8]) -> io::Result<HostFile> {
        Ok(HostFile(open_file(&self.descriptor, name)?))
    }
}

impl HostStatus {
    /// `None` for a file of an unknown kind.
    #[must_use]
    pub fn kind(&self) -> Option<NodeKind> {
        self.0.kind
    }

    fn known_kind(&self) -> io::Result<NodeKind> {
        self.kind().ok_or_else(|| io::Error::other("it is a file of an unknown kind"))
    }

    /// The number of its device, and its inode.
    #[must_use]
    pub fn file_id(&self) -> (u32, u32, u64) {
        file_id(self.0.id)
    }

    /// The number of its names.
    #[must_use]
    pub fn link_count(&self) -> u32 {
        self.0.link_count
    }

    /// See [`HostState`].
    #[must_use]
    pub fn state(&self) -> HostState {
        let Status { size, mtime, ctime, .. } = self.0;
        HostState { size, mtime, ctime }
    }

    /// The node of an entry: without content, and without its change time, because links that are
    /// made later change it.
    ///
    /// # Errors
    /// It is of an unknown kind.
    pub fn node(&self, name: Vec<u8>, attributes: &HostAttributes) -> io::Result<Node> {
        let mut node = Node::new(name, self.known_kind()?);
        describe(&self.0, &mut node);
        let HostAttributes { target, flags, xattrs } = attributes;
        node.inode_flags = *flags;
        node.target.clone_from(target);
        node.xattrs.clone_from(xattrs);
        Ok(node)
    }
}

impl HostAttributes {
    /// The memory that they occupy beside themselves, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let xattr_bytes = |xattr: &Xattr| size_of::<Xattr>() + xattr.name.len() + xattr.value.len();
        self.target.len() + self.xattrs.iter().map(xattr_bytes).sum::<usize>()
    }
}

impl HostListing {
    /// The names, as the folder lists them. Reads nothing.
    pub fn listed(&self) -> impl Iterator<Item = ListedName<'_>> {
        self.0.listed_names().map(|(name, kind, inode)| ListedName { name, kind, inode })
    }

    /// The next name, the inode that the listing reports for it, and its status. `folder` is the
    /// folder of the names.
    pub fn next_with_status(
        &mut self,
        folder: &HostFolder,
    ) -> Option<(Vec<u8>, u64, io::Result<HostStatus>)> {
        let next = self.0.next_with_status(&folder.descriptor)?;
        let inode = self.0.listed_inode(next.place);
        Some((next.name, inode, next.status.map(HostStatus)))
    }
}

/// An open file of this machine.
#[derive(Debug)]
pub struct HostFile(OwnedFd);

impl HostFile {
    /// Writes the content of the file with its holes.
    ///
    /// # Errors
    /// The file is unreadable, or `into` accepts no more.
    pub fn write_to(&self, into: &mut ContentSink<'_>) -> Result<(), DescriptionError> {
        let status = Status::of_open(&self.0)?;
        let mut buffer = vec![0; READ_BYTES.min(to_usize(status.size))];
        if status.size == 0 {
            return self.write_unsized(into);
        }
        let mut position = 0;
        while position < status.size {
            let data = match status.allocated_bytes < status.size {
                true => next_data(&self.0, position, status.size)?,
                false => position..status.size,
            };
            into.write_zeros(data.start - position)?;
            position = data.start;
            while position < data.end {
                let wanted = buffer.len().min(to_usize(data.end - position));
                let room = buffer.get_mut(..wanted).unwrap_or_default();
                let filled = read_full(&self.0, room, position)?;
                if filled == 0 {
                    return Err("the file became shorter while it was read".into());
                }
                into.write(room.get(..filled).unwrap_or_default())?;
                position += filled as u64;
            }
        }
        Ok(())
    }

    /// Some file systems report the size 0 for files with content.
    fn write_unsized(&self, into: &mut ContentSink<'_>) -> Result<(), DescriptionError> {
        let mut file = File::from(self.0.try_clone()?);
        file.seek(SeekFrom::Start(0))?;
        let mut buffer = vec![0; 4 << 10];
        loop {
            let filled = file.read(&mut buffer)?;
            if filled == 0 {
                return Ok(());
            }
            into.write(buffer.get(..filled).unwrap_or_default())?;
        }
    }
}

fn describe(status: &Status, node: &mut Node) {
    status.describe(node, NodeSettings { began_at: Timestamp(i64::MAX), adjust: |_| {} });
    node.ctime = None;
    node.last_change = None;
}

fn file_id(id: HostFileId) -> (u32, u32, u64) {
    (id.file_system.major, id.file_system.minor, id.inode)
}
