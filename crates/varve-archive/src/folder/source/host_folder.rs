//! A folder of this machine for other programs' trees: each entry described as a node, and opened
//! in the same safe way as the entries of a source.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use varve_world::Timestamp;

use super::flags;
use super::status::{FolderNames, HostFileId, NodeSettings, Status, open_file, open_folder};
use super::xattrs::XattrPlace;
use crate::folder::archiving::described::{ContentSink, DescriptionError};
use crate::folder::archiving::source_file::{next_data, read_full};
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

/// The identity of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostIdentity {
    /// `None` for a file of an unknown kind.
    pub kind: Option<NodeKind>,
    /// The number of its device, and its inode.
    pub file_id: (u32, u32, u64),
    /// The number of its names.
    pub link_count: u32,
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

    /// Identifies the entry with this name, without reading anything of it.
    ///
    /// # Errors
    /// There is no such name.
    pub fn identify(&self, name: &[u8]) -> io::Result<HostIdentity> {
        let Status { kind, id, link_count, .. } = Status::of_name(&self.descriptor, name)?;
        Ok(HostIdentity { kind, file_id: file_id(id), link_count })
    }

    /// Describes the entry with this name, with its extended attributes, its flags, and the target
    /// of a symbolic link.
    ///
    /// # Errors
    /// Its attributes are unreadable, or it is of an unknown kind.
    pub fn entry(&self, name: &[u8]) -> io::Result<HostEntry> {
        let status = Status::of_name(&self.descriptor, name)?;
        let kind = status.kind.ok_or_else(|| io::Error::other("it is a file of an unknown kind"))?;
        let mut node = Node::new(name.to_vec(), kind);
        describe(&status, &mut node);
        match kind {
            NodeKind::File | NodeKind::Folder => {
                let opened = match kind {
                    NodeKind::File => open_file(&self.descriptor, name)?,
                    _ => open_folder(&self.descriptor, name)?,
                };
                node.inode_flags = flags::read(&opened);
                node.xattrs = XattrPlace::open(&opened).read()?;
            }
            _ => {
                if kind == NodeKind::SymbolicLink {
                    let target = rustix::fs::readlinkat(&self.descriptor, name, Vec::new())?;
                    node.target = target.into_bytes();
                }
                node.xattrs = XattrPlace::named(&self.descriptor, name).read()?;
            }
        }
        Ok(HostEntry { node, file_id: file_id(status.id) })
    }

    /// Opens the file with this name, and not through a symbolic link.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn file(&self, name: &[u8]) -> io::Result<HostFile> {
        Ok(HostFile(open_file(&self.descriptor, name)?))
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
        let mut buffer = vec![0; READ_BYTES.min(usize::try_from(status.size).unwrap_or(READ_BYTES))];
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
                let wanted = buffer.len().min(usize::try_from(data.end - position).unwrap_or(usize::MAX));
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
