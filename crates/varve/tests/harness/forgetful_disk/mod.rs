//! A file system of the test, through FUSE. A power cut makes it forget unsynced data, and it can
//! have unreadable sectors.
#![allow(dead_code, reason = "each test uses its own part of this")]
#![allow(clippy::disallowed_methods, reason = "waits until it is unmounted")]
#![allow(clippy::print_stderr, reason = "says what was skipped")]

pub mod disk;
pub mod machine;

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use parking_lot::{Mutex, MutexGuard};

use disk::{About, Disk, Refused};

/// The lifetime of entries in the kernel's cache. It may be long, because only the kernel changes
/// files.
const BELIEVED: Duration = Duration::from_secs(60);

/// A disk that the test shares with the kernel while it is mounted.
#[derive(Clone)]
pub struct SharedDisk(Arc<Mutex<Disk>>);

impl SharedDisk {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Disk::new())))
    }

    pub fn get(&self) -> MutexGuard<'_, Disk> {
        self.0.lock()
    }

    /// Mounts the disk until the session ends.
    pub fn mount(&self, at: &Path) -> io::Result<BackgroundSession> {
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("forgetful".into()), MountOption::NoAtime];
        fuser::spawn_mount(self.clone(), at, &config)
    }
}

impl From<Refused> for Errno {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Off | Refused::Unreadable => Self::EIO,
            Refused::NotFound => Self::ENOENT,
            Refused::Exists => Self::EEXIST,
            Refused::NotEmpty => Self::ENOTEMPTY,
            Refused::OtherKind => Self::EINVAL,
            Refused::OtherFolder => Self::EXDEV,
        }
    }
}

fn attributes(about: About) -> FileAttr {
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    FileAttr {
        ino: INodeNo(about.node),
        size: about.length,
        blocks: about.length.div_ceil(512),
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if about.is_folder { FileType::Directory } else { FileType::RegularFile },
        perm: u16::try_from(about.mode & 0o7777).unwrap_or(0o700),
        nlink: 1,
        uid: owner.0,
        gid: owner.1,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn answer(done: Result<(), Refused>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(refused) => reply.error(refused.into()),
    }
}

fn answer_entry(found: Result<About, Refused>, reply: ReplyEntry) {
    match found {
        Ok(about) => reply.entry(&BELIEVED, &attributes(about), Generation(0)),
        Err(refused) => reply.error(refused.into()),
    }
}

impl Filesystem for SharedDisk {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer_entry(self.get().look_up(parent.0, name), reply);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.get().about(ino.0) {
            Ok(about) => reply.attr(&BELIEVED, &attributes(about)),
            Err(refused) => reply.error(refused.into()),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut disk = self.get();
        let done = size.map_or(Ok(()), |size| disk.set_length(ino.0, size));
        match done.and_then(|()| disk.about(ino.0)) {
            Ok(about) => reply.attr(&BELIEVED, &attributes(about)),
            Err(refused) => reply.error(refused.into()),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        answer_entry(self.get().make_folder(parent.0, name, mode & !umask), reply);
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        match self.get().create(parent.0, name, mode & !umask) {
            Ok(about) => reply.created(
                &BELIEVED,
                &attributes(about),
                Generation(0),
                FileHandle(0),
                FopenFlags::empty(),
            ),
            Err(refused) => reply.error(refused.into()),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(self.get().remove(parent.0, name), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(self.get().remove(parent.0, name), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        answer(self.get().rename(parent.0, name, newparent.0, newname), reply);
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
        match self.get().read(ino.0, offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(refused) => reply.error(refused.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.get().write(ino.0, offset, data) {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap()),
            Err(refused) => reply.error(refused.into()),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer(self.get().sync_file(ino.0), reply);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer(self.get().sync_folder(ino.0), reply);
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut disk = self.get();
        let entries = match disk.list(ino.0) {
            Ok(entries) => entries,
            Err(refused) => return reply.error(refused.into()),
        };
        let own = [(".".into(), ino.0), ("..".into(), ino.0)];
        let all = (1..).zip(own.into_iter().chain(entries));
        for (next, (name, node)) in all.skip(usize::try_from(offset).unwrap()) {
            let is_folder = disk.about(node).is_ok_and(|about| about.is_folder);
            let kind = if is_folder { FileType::Directory } else { FileType::RegularFile };
            if reply.add(INodeNo(node), next, kind, &name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(1 << 20, 1 << 19, 1 << 19, 1 << 20, 1 << 19, 4096, 255, 4096);
    }
}
