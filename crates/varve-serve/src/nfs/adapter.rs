//! Answers the requests of NFS clients from a file system.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use nfs3_server::nfs3_types::nfs3::{
    FSF3_HOMOGENEOUS, FSF3_SYMLINK, FSINFO3resok, fattr3, filename3, ftype3, nfspath3, nfsstat3, nfstime3,
    post_op_attr, specdata3,
};
use nfs3_server::vfs::{DirEntryPlus, FileHandleU64, NextResult, NfsReadFileSystem, ReadDirPlusIterator};
use tokio::task::block_in_place;
use varve_block::{to_usize, with_causes};
use varve_image::{FileId, FileKind, FileStatus, FileSystemError, FileTime, FolderChild};

use crate::ServedFileSystem;
use crate::collected::is_collected;
use crate::path::find;

/// The largest read, as clients are told. Each pending request may hold this much of an answer in
/// memory.
const READ_BYTES_MAX: u32 = 256 << 10;
/// The children of a folder that are listed at a time.
const BATCH: usize = 256;
/// The number of the file system. There is only one.
const FILE_SYSTEM: u64 = 1;

/// Presents a file system to NFS clients.
pub(super) struct NfsAdapter {
    files: Arc<dyn ServedFileSystem>,
}

impl NfsAdapter {
    pub(super) fn new(files: Arc<dyn ServedFileSystem>) -> Self {
        Self { files }
    }
}

fn file(handle: &FileHandleU64) -> FileId {
    FileId(handle.as_u64())
}

/// Maps an error to an NFS status. Damage is logged.
fn refuse(error: &FileSystemError) -> nfsstat3 {
    match error {
        // An unknown number comes from an earlier run of the server.
        FileSystemError::Absent { .. } => nfsstat3::NFS3ERR_STALE,
        FileSystemError::Unsupported { .. } => nfsstat3::NFS3ERR_NOTSUPP,
        FileSystemError::Read { .. } if is_collected(error) => nfsstat3::NFS3ERR_STALE,
        FileSystemError::Read { .. } | FileSystemError::Damaged { .. } => {
            tracing::error!(error = %with_causes(error), "a file cannot be read");
            nfsstat3::NFS3ERR_IO
        }
    }
}

fn time(time: FileTime) -> nfstime3 {
    // Times in NFS range from 1970 to 2106.
    match u32::try_from(time.seconds()) {
        Ok(seconds) => nfstime3 { seconds, nseconds: time.subsecond_nanoseconds() },
        Err(_) if time.seconds() < 0 => nfstime3 { seconds: 0, nseconds: 0 },
        Err(_) => nfstime3 { seconds: u32::MAX, nseconds: 0 },
    }
}

fn attributes(file: FileId, status: &FileStatus) -> fattr3 {
    fattr3 {
        type_: match status.kind {
            FileKind::File => ftype3::NF3REG,
            FileKind::Folder => ftype3::NF3DIR,
            FileKind::SymbolicLink => ftype3::NF3LNK,
            FileKind::CharacterDevice => ftype3::NF3CHR,
            FileKind::BlockDevice => ftype3::NF3BLK,
            FileKind::Fifo => ftype3::NF3FIFO,
            FileKind::Socket => ftype3::NF3SOCK,
        },
        mode: u32::from(status.mode & 0o7777),
        nlink: status.links,
        uid: status.uid,
        gid: status.gid,
        size: status.size,
        used: status.allocated,
        rdev: status.device.map_or(specdata3 { specdata1: 0, specdata2: 0 }, |device| specdata3 {
            specdata1: device.major,
            specdata2: device.minor,
        }),
        fsid: FILE_SYSTEM,
        fileid: file.0,
        atime: time(status.accessed.unwrap_or(status.modified)),
        mtime: time(status.modified),
        ctime: time(status.changed.unwrap_or(status.modified)),
    }
}

impl NfsReadFileSystem for NfsAdapter {
    type Handle = FileHandleU64;

    fn root_dir(&self) -> FileHandleU64 {
        FileHandleU64::new(self.files.root().0)
    }

    async fn lookup(&self, folder: &FileHandleU64, name: &filename3<'_>) -> Result<FileHandleU64, nfsstat3> {
        if name.0.as_ref() == b"." {
            return Ok(*folder);
        }
        match block_in_place(|| self.files.child(file(folder), name.0.as_ref())) {
            Ok(Some(child)) => Ok(FileHandleU64::new(child.id.0)),
            Ok(None) => Err(nfsstat3::NFS3ERR_NOENT),
            Err(FileSystemError::Absent { .. }) if self.files.status(file(folder)).is_ok() => {
                Err(nfsstat3::NFS3ERR_NOTDIR)
            }
            Err(error) => Err(refuse(&error)),
        }
    }

    /// Resolves symbolic links such as `latest/NAME`, because a client that mounts a folder cannot
    /// follow the links on the way to it.
    async fn lookup_by_path(&self, path: &str) -> Result<FileHandleU64, nfsstat3> {
        match block_in_place(|| find(&*self.files, path.as_bytes())) {
            Ok(Some(found)) => Ok(FileHandleU64::new(found.0)),
            Ok(None) => Err(nfsstat3::NFS3ERR_NOENT),
            Err(error) => Err(refuse(&error)),
        }
    }

    async fn getattr(&self, handle: &FileHandleU64) -> Result<fattr3, nfsstat3> {
        let status = block_in_place(|| self.files.status(file(handle)));
        status.map(|status| attributes(file(handle), &status)).map_err(|error| refuse(&error))
    }

    async fn read(
        &self,
        handle: &FileHandleU64,
        offset: u64,
        count: u32,
    ) -> Result<(Vec<u8>, bool), nfsstat3> {
        let asked = to_usize(count.min(READ_BYTES_MAX));
        block_in_place(|| {
            let status = self.files.status(file(handle)).map_err(|error| refuse(&error))?;
            match status.kind {
                FileKind::File => {}
                FileKind::Folder => return Err(nfsstat3::NFS3ERR_ISDIR),
                _ => return Err(nfsstat3::NFS3ERR_INVAL),
            }
            // Limit the read to the end of the file: no memory is allocated beyond it, and no read
            // there can meet damage.
            let left = match status.size.checked_sub(offset) {
                None | Some(0) => return Ok((Vec::new(), true)),
                Some(left) => to_usize(left),
            };
            let mut bytes = vec![0; asked.min(left)];
            let read =
                self.files.read_at(file(handle), offset, &mut bytes).map_err(|error| refuse(&error))?;
            bytes.truncate(read);
            let is_end = offset.saturating_add(read as u64) >= status.size;
            Ok((bytes, is_end))
        })
    }

    async fn readdirplus(
        &self,
        folder: &FileHandleU64,
        cookie: u64,
    ) -> Result<impl ReadDirPlusIterator<FileHandleU64>, nfsstat3> {
        let mut listing = NfsListing {
            files: Arc::clone(&self.files),
            folder: file(folder),
            next: cookie,
            children: VecDeque::new(),
            is_over: false,
        };
        // Report at once that a folder cannot be listed.
        block_in_place(|| listing.fill())?;
        Ok(listing)
    }

    async fn fsinfo(&self, root: &FileHandleU64) -> Result<FSINFO3resok, nfsstat3> {
        Ok(FSINFO3resok {
            obj_attributes: self.getattr(root).await.map_or(post_op_attr::None, post_op_attr::Some),
            rtmax: READ_BYTES_MAX,
            rtpref: READ_BYTES_MAX,
            rtmult: 4096,
            wtmax: READ_BYTES_MAX,
            wtpref: READ_BYTES_MAX,
            wtmult: 4096,
            dtpref: READ_BYTES_MAX,
            maxfilesize: i64::MAX.unsigned_abs(),
            time_delta: nfstime3 { seconds: 0, nseconds: 1 },
            properties: FSF3_SYMLINK | FSF3_HOMOGENEOUS,
        })
    }

    async fn readlink(&self, handle: &FileHandleU64) -> Result<nfspath3<'_>, nfsstat3> {
        let target = block_in_place(|| self.files.link_target(file(handle)));
        target.map(nfspath3::from).map_err(|error| refuse(&error))
    }
}

/// A listing of a folder, from some child on.
struct NfsListing {
    files: Arc<dyn ServedFileSystem>,
    folder: FileId,
    /// The offset of the next child that has not been returned.
    next: u64,
    children: VecDeque<FolderChild>,
    is_over: bool,
}

impl NfsListing {
    fn fill(&mut self) -> Result<(), nfsstat3> {
        let mut found = VecDeque::new();
        let listed = self.files.children(self.folder, self.next, &mut |child| {
            found.push_back(child);
            if found.len() < BATCH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        self.is_over = found.len() < BATCH;
        self.children = found;
        match listed {
            // Return the entries that were listed before the damage first.
            Err(_) if !self.children.is_empty() => {
                self.is_over = false;
                Ok(())
            }
            Err(error) => Err(refuse(&error)),
            Ok(()) => Ok(()),
        }
    }

    fn next_child(&mut self) -> Result<Option<FolderChild>, nfsstat3> {
        if self.children.is_empty() && !self.is_over {
            self.fill()?;
        }
        let child = self.children.pop_front();
        self.next = self.next.saturating_add(u64::from(child.is_some()));
        Ok(child)
    }
}

impl ReadDirPlusIterator<FileHandleU64> for NfsListing {
    async fn next(&mut self) -> NextResult<DirEntryPlus<FileHandleU64>> {
        block_in_place(|| match self.next_child() {
            Err(error) => NextResult::Err(error),
            Ok(None) => NextResult::Eof,
            Ok(Some(child)) => NextResult::Ok(DirEntryPlus {
                fileid: child.id.0,
                cookie: self.next,
                // A client that needs attributes that cannot be read now asks for them again.
                name_attributes: self.files.status(child.id).ok().map(|status| attributes(child.id, &status)),
                name_handle: Some(FileHandleU64::new(child.id.0)),
                name: child.name.into(),
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use varve_image::{FileSystem, OnChild};

    use super::*;

    const SIZE: u64 = 10;

    /// A folder, a file of ten bytes and a link. Reading something that an object does not have
    /// panics.
    struct Three;

    impl FileSystem for Three {
        fn root(&self) -> FileId {
            FileId(1)
        }

        fn status(&self, file: FileId) -> Result<FileStatus, FileSystemError> {
            let kind = match file.0 {
                1 => FileKind::Folder,
                2 => FileKind::File,
                _ => FileKind::SymbolicLink,
            };
            Ok(FileStatus::new(kind, 0o644, SIZE))
        }

        fn children(&self, _: FileId, _: u64, _: &mut OnChild<'_>) -> Result<(), FileSystemError> {
            Ok(())
        }

        fn read_at(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize, FileSystemError> {
            assert!(file == FileId(2) && offset + into.len() as u64 <= SIZE, "{file:?} {offset}");
            into.fill(7);
            Ok(into.len())
        }

        fn link_target(&self, _: FileId) -> Result<Vec<u8>, FileSystemError> {
            Ok(Vec::new())
        }
    }

    impl ServedFileSystem for Three {
        fn is_settled(&self, _: FileId) -> bool {
            true
        }

        fn root_of(&self, _: FileId) -> Option<FileId> {
            None
        }
    }

    #[test]
    fn behind_the_end_there_is_nothing_and_only_files_are_read() {
        let adapter = NfsAdapter::new(Arc::new(Three));
        let threads = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        threads.block_on(async {
            let (file, asked) = (FileHandleU64::new(2), 4096);
            for (offset, expected) in [(0, 10), (7, 3), (10, 0), (11, 0), (1 << 40, 0), (u64::MAX, 0)] {
                let read = adapter.read(&file, offset, asked).await.unwrap();
                assert_eq!(read, (vec![7; expected], true), "{offset}");
            }
            assert_eq!(adapter.read(&file, 0, 4).await.unwrap(), (vec![7; 4], false));
            let refused = adapter.read(&FileHandleU64::new(1), 0, asked).await.unwrap_err();
            assert!(matches!(refused, nfsstat3::NFS3ERR_ISDIR), "{refused:?}");
            let refused = adapter.read(&FileHandleU64::new(3), 0, asked).await.unwrap_err();
            assert!(matches!(refused, nfsstat3::NFS3ERR_INVAL), "{refused:?}");
        });
    }

    #[test]
    fn times_that_the_protocol_cannot_tell_are_its_first_or_last() {
        let shown = |seconds, nanoseconds| {
            let shown = time(FileTime::new(seconds, nanoseconds));
            (shown.seconds, shown.nseconds)
        };
        assert_eq!(shown(-1, 999_999_999), (0, 0));
        assert_eq!(shown(1, 500_000_000), (1, 500_000_000));
        assert_eq!(shown(i64::MAX, 5), (u32::MAX, 0));
        assert_eq!(shown(i64::MIN, 0), (0, 0));
    }
}
