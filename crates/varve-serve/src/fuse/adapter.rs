//! Answers the kernel's FUSE requests from a file system.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    AccessFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};
use varve_block::{to_usize, with_causes};
use varve_image::{DeviceNumber, FileId, FileKind, FileStatus, FileSystemError, FileTime, FolderChild};

use super::lookups::Lookups;
use crate::ServedFileSystem;
use crate::collected::is_collected;

/// The kernel may cache immutable attributes and names for this long.
const SETTLED: Duration = Duration::from_secs(24 * 3600);
/// The kernel may cache attributes and names that can change for this long.
const UNSETTLED: Duration = Duration::from_secs(1);
/// Limit for the kernel's queue of background (read-ahead) requests.
const BACKGROUND_MAX: u16 = 64;
/// The longest name that the kernel accepts.
const NAME_BYTES_MAX: usize = 1024;
/// The extended attribute that holds a file's SELinux label.
const SELINUX_LABEL: &[u8] = b"security.selinux";
/// `.` and `..` precede the entries of a folder.
const DOTS: u64 = 2;
/// The values of `whence` in the C library: `lseek` finds the start of data, or of a hole.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

thread_local! {
    /// Each thread's read buffer, reused from one read to the next.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Presents a file system to the kernel.
pub(super) struct FuseAdapter {
    files: Arc<dyn ServedFileSystem>,
    lookups: Lookups,
    /// The kernel checks permissions. It then caches access control lists, too.
    checks_permissions: bool,
    needs_no_open: bool,
}

impl FuseAdapter {
    pub(super) fn new(files: Arc<dyn ServedFileSystem>, checks_permissions: bool) -> Self {
        Self { files, lookups: Lookups::default(), checks_permissions, needs_no_open: false }
    }

    fn believed(&self, file: FileId) -> Duration {
        if self.files.is_settled(file) { SETTLED } else { UNSETTLED }
    }

    /// The file system's number for the kernel's inode number.
    fn file(&self, ino: INodeNo) -> FileId {
        if ino == INodeNo::ROOT { self.files.root() } else { FileId(ino.0) }
    }

    fn ino(&self, file: FileId) -> INodeNo {
        if file == self.files.root() { INodeNo::ROOT } else { INodeNo(file.0) }
    }

    /// Registers that the kernel is about to learn of this child, and reads its status.
    fn show(&self, folder: FileId, child: &FolderChild) -> Result<FileStatus, FileSystemError> {
        self.lookups.add(child.id);
        match self.files.status(child.id) {
            // Another thread was just told that the kernel had forgotten the file. Now that the
            // file is counted, that cannot happen again.
            Err(FileSystemError::Absent { .. }) => {
                self.files.child(folder, &child.name)?;
                self.files.status(child.id)
            }
            status => status,
        }
    }

    fn forget_one(&self, file: FileId, times: u64) {
        self.lookups.remove(file, times, || self.files.forget(file));
    }

    fn attributes(&self, file: FileId, status: &FileStatus) -> FileAttr {
        let modified = time(status.modified);
        FileAttr {
            ino: self.ino(file),
            size: status.size,
            blocks: status.allocated.div_ceil(512),
            atime: status.accessed.map_or(modified, time),
            mtime: modified,
            ctime: status.changed.map_or(modified, time),
            crtime: status.created.map_or(modified, time),
            kind: kind(status.kind),
            perm: status.mode & 0o7777,
            nlink: status.links,
            uid: status.uid,
            gid: status.gid,
            rdev: status.device.map_or(0, device),
            blksize: 4096,
            flags: 0,
        }
    }

    /// Placeholder attributes for a file whose status cannot be read. They are not cached, so the
    /// kernel asks again on the next access.
    fn unknown(&self, child: &FolderChild) -> FileAttr {
        let status = FileStatus::new(child.kind, 0, 0);
        self.attributes(child.id, &status)
    }

    /// Lists a folder from an offset on, with `.` and `..` first. `add` takes a child and the
    /// offset of the next one, and returns true if the reply is full.
    fn list(
        &self,
        folder: FileId,
        offset: u64,
        add: &mut dyn FnMut(&FolderChild, u64) -> bool,
    ) -> Result<(), FileSystemError> {
        let mut next = offset;
        for name in [b".".as_slice(), b".."].into_iter().skip(to_usize(offset)) {
            next += 1;
            if add(&FolderChild { name: name.to_vec(), id: folder, kind: FileKind::Folder }, next) {
                return Ok(());
            }
        }
        self.files.children(folder, next - DOTS, &mut |child| {
            next += 1;
            if child.name.len() > NAME_BYTES_MAX {
                tracing::warn!(
                    bytes = child.name.len(),
                    "a name that is too long for the kernel is left out"
                );
                return ControlFlow::Continue(());
            }
            if add(&child, next) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }

    fn xattr(&self, file: FileId, name: &OsStr) -> Result<Vec<u8>, Errno> {
        let xattrs = self.files.xattrs(file).map_err(|error| refuse(&error))?;
        match xattrs.into_iter().find(|xattr| xattr.name == name.as_bytes()) {
            Some(found) => Ok(found.value),
            // `ls -l` asks for the label of every file until it gets the answer that labels are not
            // supported. Half of its requests are such queries.
            None if name.as_bytes() == SELINUX_LABEL && self.lacks_labels(file) => Err(Errno::EOPNOTSUPP),
            None => Err(Errno::NO_XATTR),
        }
    }

    /// Reports whether the file system of this file has no SELinux labels. If it has any, its root
    /// has one.
    fn lacks_labels(&self, file: FileId) -> bool {
        let Some(root) = self.files.root_of(file) else { return false };
        let is_label = |xattr: &varve_image::Xattr| xattr.name == SELINUX_LABEL;
        self.files.xattrs(root).is_ok_and(|xattrs| !xattrs.iter().any(is_label))
    }

    fn seek(&self, file: FileId, offset: u64, whence: i32) -> Result<u64, Errno> {
        let failed = |error| refuse(&error);
        let size = self.files.status(file).map_err(failed)?.size;
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        let data = self.files.next_data(file, offset).map_err(failed)?;
        match (whence, data) {
            (SEEK_DATA, data) => data.map(|data| data.start.max(offset)).ok_or(Errno::ENXIO),
            (SEEK_HOLE, Some(data)) if data.start <= offset => self.end_of_data(file, data.end, size),
            (SEEK_HOLE, _) => Ok(offset),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Finds the end of a run of data that may be reported in several ranges.
    fn end_of_data(&self, file: FileId, end: u64, size: u64) -> Result<u64, Errno> {
        let mut end = end;
        while end < size {
            match self.files.next_data(file, end).map_err(|error| refuse(&error))? {
                Some(data) if data.start <= end && data.end > end => end = data.end,
                _ => break,
            }
        }
        Ok(end.min(size))
    }
}

/// Maps an error to the kernel's error code. Damage is logged.
fn refuse(error: &FileSystemError) -> Errno {
    match error {
        FileSystemError::Absent { .. } => Errno::ENOENT,
        FileSystemError::Unsupported { .. } => {
            tracing::warn!(error = %with_causes(error), "a file cannot be shown");
            Errno::EOPNOTSUPP
        }
        FileSystemError::Read { .. } if is_collected(error) => Errno::ESTALE,
        FileSystemError::Read { .. } | FileSystemError::Damaged { .. } => {
            tracing::error!(error = %with_causes(error), "a file cannot be read");
            Errno::EIO
        }
    }
}

fn time(time: FileTime) -> SystemTime {
    let whole = Duration::from_secs(time.seconds().unsigned_abs());
    let moment =
        if time.seconds() < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    let part = Duration::from_nanos(u64::from(time.subsecond_nanoseconds()));
    moment.and_then(|moment| moment.checked_add(part)).unwrap_or(UNIX_EPOCH)
}

fn kind(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Folder => FileType::Directory,
        FileKind::SymbolicLink => FileType::Symlink,
        FileKind::CharacterDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
    }
}

/// Packs a device number in the kernel's format.
fn device(DeviceNumber { major, minor }: DeviceNumber) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xfff00) << 12
}

/// Answers a request for an extended attribute. With a size of 0, the kernel asks for the length
/// only.
fn answer_bytes(found: Result<Vec<u8>, Errno>, size: u32, reply: ReplyXattr) {
    match found {
        Err(error) => reply.error(error),
        Ok(bytes) => match u32::try_from(bytes.len()) {
            Ok(length) if size == 0 => reply.size(length),
            Ok(length) if length <= size => reply.data(&bytes),
            _ => reply.error(Errno::ERANGE),
        },
    }
}

impl Filesystem for FuseAdapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // The targets of links are immutable and may be cached. Without this, every path through
        // `latest` would cost another request.
        let mut wanted =
            InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_PARALLEL_DIROPS | InitFlags::FUSE_CACHE_SYMLINKS;
        if self.checks_permissions {
            wanted |= InitFlags::FUSE_POSIX_ACL;
        }
        for flag in wanted.iter() {
            if config.add_capabilities(flag).is_err() {
                tracing::debug!(?flag, "the kernel does not have it");
            }
        }
        self.needs_no_open = config.add_capabilities(InitFlags::FUSE_NO_OPEN_SUPPORT).is_ok();
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let parent = self.file(parent);
        match self.files.child(parent, name.as_bytes()) {
            Ok(Some(child)) => match self.show(parent, &child) {
                Ok(status) => reply.entry_with_ttls(
                    &self.believed(child.id),
                    &self.believed(parent),
                    &self.attributes(child.id, &status),
                    Generation(0),
                ),
                Err(error) => {
                    self.forget_one(child.id, 1);
                    reply.error(refuse(&error));
                }
            },
            Ok(None) => reply.error(Errno::ENOENT),
            Err(error) => reply.error(refuse(&error)),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        self.forget_one(self.file(ino), nlookup);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let file = self.file(ino);
        match self.files.status(file) {
            Ok(status) => reply.attr(&self.believed(file), &self.attributes(file, &status)),
            Err(error) => reply.error(refuse(&error)),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.files.link_target(self.file(ino)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(refuse(&error)),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Opening a file does nothing. A kernel that can do without these requests stops sending
        // them, and keeps its cached data.
        if self.needs_no_open {
            reply.error(Errno::ENOSYS);
        } else {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let length = to_usize(size);
        let file = self.file(ino);
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < length {
                buffer.resize(length, 0);
            }
            match self.files.read_at(file, offset, &mut buffer[..length]) {
                Ok(read) => reply.data(&buffer[..read]),
                Err(error) => reply.error(refuse(&error)),
            }
        });
        // The kernel has its answer, and another thread receives the next request.
        self.files.read_ahead(file);
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = if self.files.is_settled(self.file(ino)) {
            FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR
        } else {
            FopenFlags::empty()
        };
        reply.opened(FileHandle(0), flags);
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut is_empty = true;
        let listed = self.list(self.file(ino), offset, &mut |child, next| {
            let is_full =
                reply.add(self.ino(child.id), next, kind(child.kind), OsStr::from_bytes(&child.name));
            is_empty &= is_full;
            // The kernel does not keep a reference to a file whose name alone it has read.
            self.lookups.add(child.id);
            self.forget_one(child.id, 1);
            is_full
        });
        match listed {
            // Show the entries that were read before the damage. The kernel's next request meets
            // the error.
            Err(error) if is_empty => reply.error(refuse(&error)),
            _ => reply.ok(),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let folder = self.file(ino);
        let believed = self.believed(folder);
        let mut is_empty = true;
        let listed = self.list(folder, offset, &mut |child, next| {
            let is_dot = matches!(child.name.as_slice(), b"." | b"..");
            let (attributes, believed) =
                match if is_dot { self.files.status(folder) } else { self.show(folder, child) } {
                    Ok(status) => (self.attributes(child.id, &status), believed),
                    Err(error) => {
                        refuse(&error);
                        (self.unknown(child), Duration::ZERO)
                    }
                };
            let name = OsStr::from_bytes(&child.name);
            let is_full = reply.add(attributes.ino, next, name, &believed, &attributes, Generation(0));
            if is_full && !is_dot {
                self.forget_one(child.id, 1);
            }
            is_empty &= is_full;
            is_full
        });
        match listed {
            Err(error) if is_empty => reply.error(refuse(&error)),
            _ => reply.ok(),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Nothing is ever written, so the kernel need not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // Every user who is admitted at all may do everything that this file system can do;
        // otherwise the kernel checks permissions itself.
        reply.error(Errno::ENOSYS);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, 4096, 255, 4096);
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        answer_bytes(self.xattr(self.file(ino), name), size, reply);
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.files.xattrs(self.file(ino)).map_err(|error| refuse(&error)).map(|xattrs| {
            xattrs.iter().fold(Vec::new(), |mut names, xattr| {
                names.extend_from_slice(&xattr.name);
                names.push(0);
                names
            })
        });
        answer_bytes(names, size, reply);
    }

    fn lseek(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let found = u64::try_from(offset).map_err(|_| Errno::EINVAL);
        let found = found.and_then(|offset| self.seek(self.file(ino), offset, whence));
        match found.and_then(|place| i64::try_from(place).map_err(|_| Errno::EINVAL)) {
            Ok(place) => reply.offset(place),
            Err(error) => reply.error(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_devices_are_packed_as_the_kernel_does() {
        assert_eq!(time(FileTime::from_nanoseconds(-1)), UNIX_EPOCH - Duration::from_nanos(1));
        let year_2400 = FileTime::new(13_569_465_600, 5);
        assert_eq!(time(year_2400), UNIX_EPOCH + Duration::new(13_569_465_600, 5));
        assert_eq!(time(FileTime::new(-13_569_465_600, 0)), UNIX_EPOCH - Duration::from_secs(13_569_465_600));
        assert!(time(FileTime::new(i64::MIN, 0)) < UNIX_EPOCH);
        assert!(time(FileTime::new(i64::MAX, 999_999_999)) > UNIX_EPOCH);
        assert_eq!(device(DeviceNumber { major: 8, minor: 1 }), 0x801);
        assert_eq!(device(DeviceNumber { major: 259, minor: 0x12345 }), 0x1231_0345);
    }
}
