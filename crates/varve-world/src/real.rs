//! A storage on a disk.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::locked_file::LockedFile;
use crate::storage::{FileLock, FileName, FreeSpace, LockError, NoLock, Storage, is_exhausted};
use crate::support::sync_open_folder;
use crate::uncached::{self, open_uncached};

/// The maximum number of files that are kept open for later reads.
const OPEN_FILES_MAX: usize = 256;

/// The holder of a lock without a note.
const ANOTHER: &str = "another program";

/// A removed file is freed in steps of this size. Some file systems block other calls while they
/// free a gigabyte at once.
const FREE_BYTES: u64 = 2 << 20;

/// The files below one folder of the machine's file system.
///
/// Files and folders are created for their owner alone. Reads and appends use `pread` and `pwrite`;
/// durability is by `fsync`.
pub struct RealStorage {
    root: PathBuf,
    open_files: Mutex<BTreeMap<FileName, Arc<OpenFile>>>,
    behind: OnceLock<Sender<Arc<OpenFile>>>,
    freeing: OnceLock<Sender<Arc<OpenFile>>>,
}

struct OpenFile {
    file: File,
    writable: bool,
    /// The number of writes, and the number of those that are known to be durable.
    write_count: AtomicU64,
    durable_count: AtomicU64,
    /// A failed background sync that has not been reported. Linux reports such a failure only once.
    failed_sync: Mutex<Option<io::Error>>,
}

impl RealStorage {
    /// A storage below `root`. The folder need not exist until the first file is created.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        // Make the path absolute, so that it does not depend on the current directory. If that
        // fails, the first use of the path reports it.
        let root = std::path::absolute(root).unwrap_or_else(|_| root.into());
        Self { root, open_files: Mutex::default(), behind: OnceLock::new(), freeing: OnceLock::new() }
    }

    fn path(&self, file: &FileName) -> PathBuf {
        self.root.join(file.as_str())
    }

    fn open(&self, name: &FileName, writable: bool) -> io::Result<Arc<OpenFile>> {
        let path = self.path(name);
        let known = self.open_files.lock().get(name).map(Arc::clone);
        if let Some(open) = known
            && (open.writable || !writable && open.is_still_at(&path))
        {
            return Ok(open);
        }
        // Without this flag, opening a named pipe blocks until its other end is opened.
        let mut flags = OFlags::NONBLOCK;
        // A user who can write to the store's folder must not redirect writes by a symbolic link.
        flags.set(OFlags::NOFOLLOW, writable);
        let options = OpenOptions::new().read(true).write(writable).custom_flags(bits(flags)).clone();
        let file = self.with_descriptors(|| options.open(&path)).map_err(of_link)?;
        if !file.metadata()?.is_file() {
            return Err(not_a_file());
        }
        Ok(self.remember(name, file, writable, KeepOpenFile::IfNeeded))
    }

    /// Opens a file. If no file descriptors are left, closes the files that are only kept open for
    /// later, and tries once more.
    fn with_descriptors<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match open() {
            Err(error) if is_exhausted(&error) => {
                self.open_files.lock().retain(|_, open| open.has_more_to_tell());
                open()
            }
            other => other,
        }
    }

    /// Opens a file for one direct transfer, if possible. It is not kept open: direct transfers are
    /// long, and keeping these descriptors would double the number of open files.
    fn uncached(&self, name: &FileName, open: &OpenFile) -> Option<File> {
        let options = OpenOptions::new().read(true).write(open.writable).clone();
        let uncached = open_uncached(&self.path(name), &options).ok()??;
        // Another file may have been put in its place meanwhile.
        is_same_file(&open.file, &uncached).unwrap_or(false).then_some(uncached)
    }

    /// Keeps a file open. If another thread has opened the file for writing meanwhile, and `other`
    /// permits it, returns that one: the next failure of a write is reported only through the
    /// descriptor that wrote.
    fn remember(&self, name: &FileName, file: File, writable: bool, other: KeepOpenFile) -> Arc<OpenFile> {
        let open = Arc::new(OpenFile {
            file,
            writable,
            write_count: AtomicU64::new(0),
            durable_count: AtomicU64::new(0),
            failed_sync: Mutex::default(),
        });
        let mut open_files = self.open_files.lock();
        if let (Some(there), KeepOpenFile::IfNeeded) = (open_files.get(name), other)
            && there.writable
        {
            return Arc::clone(there);
        }
        if open_files.len() >= OPEN_FILES_MAX {
            open_files.retain(|_, open| open.has_more_to_tell());
        }
        open_files.insert(name.clone(), Arc::clone(&open));
        open
    }

    /// Creates a folder of this storage with its parents. Folders above the root are made durable
    /// at once, because no `sync_folder` covers them.
    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        let missing: Vec<_> = self.root.ancestors().skip(1).take_while(|above| !above.exists()).collect();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        missing.into_iter().try_for_each(|made| self.sync_name_of(made))
    }

    /// Makes the name of a folder durable, by syncing its parent.
    fn sync_name_of(&self, folder: &Path) -> io::Result<()> {
        match self.with_descriptors(|| File::open(folder.join(".."))) {
            // The parent may belong to another user and be unreadable.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            above => sync_open_folder(&above?),
        }
    }

    fn sync_folder_at(&self, folder: &Path) -> io::Result<()> {
        sync_open_folder(&self.with_descriptors(|| File::open(folder))?)
    }

    fn folder_path(&self, folder: &str) -> PathBuf {
        if folder.is_empty() { self.root.clone() } else { self.root.join(folder) }
    }
}

/// Decides whether an already open file of the same name is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeepOpenFile {
    /// No: it belongs to a removed file.
    No,
    /// Yes, if it is open for writing.
    IfNeeded,
}

impl OpenFile {
    /// Reports whether this file is still at this path. Another process may have replaced it.
    fn is_still_at(&self, path: &Path) -> bool {
        let (there, own) = (fs::metadata(path), self.file.metadata());
        there.is_ok_and(|there| own.is_ok_and(|own| identity(&there) == identity(&own)))
    }

    /// Reports whether the file has writes that are not known to be durable. A failure to write
    /// them is reported only through this descriptor.
    fn has_more_to_tell(&self) -> bool {
        // If the lock is taken, a sync is in progress; do not wait for it.
        self.failed_sync.try_lock().is_none_or(|failed| failed.is_some())
            || self.durable_count.load(Ordering::Acquire) < self.write_count.load(Ordering::Acquire)
    }

    /// Counts a write before it is made, so that a concurrent sync does not take it for durable.
    fn note_write(&self) {
        self.write_count.fetch_add(1, Ordering::AcqRel);
    }

    fn sync_data(&self) -> io::Result<()> {
        let written = self.write_count.load(Ordering::Acquire);
        self.file.sync_data()?;
        self.durable_count.fetch_max(written, Ordering::AcqRel);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut failed = self.failed_sync.lock();
        match failed.take() {
            Some(error) => Err(error),
            None => self.sync_data(),
        }
    }

    fn sync_behind(&self) {
        // The lock is held throughout. Otherwise a concurrent `sync` could return before the
        // failure is recorded.
        let mut failed = self.failed_sync.lock();
        if let Err(error) = self.sync_data() {
            *failed = Some(error);
        }
    }

    /// Frees the space of a removed file. If this fails, the rest is freed when the file is closed.
    fn free(&self) -> io::Result<()> {
        let mut length = self.file.metadata()?.len();
        while length > 0 {
            length = length.saturating_sub(FREE_BYTES);
            self.file.set_len(length)?;
        }
        Ok(())
    }
}

fn is_same_file(one: &File, other: &File) -> io::Result<bool> {
    Ok(identity(&one.metadata()?) == identity(&other.metadata()?))
}

fn bits(flags: OFlags) -> i32 {
    i32::try_from(flags.bits()).unwrap_or(0)
}

/// Replaces the system's error for a link that must not be followed, "too many levels of symbolic
/// links".
fn of_link(error: io::Error) -> io::Error {
    let is_link = rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::LOOP);
    if is_link { io::Error::other("a symbolic link is in its place: move the link away") } else { error }
}

fn not_a_file() -> io::Error {
    io::Error::other("something other than a regular file is in its place: move it away")
}

fn identity(file: &fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Starts the thread that syncs files in the background.
fn start_syncing_behind() -> Sender<Arc<OpenFile>> {
    let (sender, receiver) = channel::<Arc<OpenFile>>();
    start_behind("sync behind", move || receiver.into_iter().for_each(|open| open.sync_behind()));
    sender
}

/// Starts the thread that frees the space of removed files.
fn start_freeing() -> Sender<Arc<OpenFile>> {
    let (sender, receiver) = channel::<Arc<OpenFile>>();
    start_behind("free space", move || {
        for open in receiver {
            let _ = open.free();
        }
    });
    sender
}

/// Starts a background thread. If that fails, its requests are dropped, which is harmless.
fn start_behind(name: &str, work: impl FnOnce() + Send + 'static) {
    drop(std::thread::Builder::new().name(name.into()).spawn(work));
}

impl Storage for RealStorage {
    fn create(&self, file: &FileName) -> io::Result<()> {
        let path = self.path(file);
        if let Some(parent) = path.parent() {
            self.make_folder(parent)?;
        }
        let options = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).clone();
        let opened = self.with_descriptors(|| options.open(&path))?;
        self.remember(file, opened, true, KeepOpenFile::No);
        Ok(())
    }

    fn append(&self, file: &FileName, bytes: &[u8]) -> io::Result<u64> {
        let open = self.open(file, true)?;
        let offset = open.file.metadata()?.len();
        open.note_write();
        open.file.write_all_at(bytes, offset)?;
        Ok(offset)
    }

    fn append_uncached(&self, file: &FileName, bytes: &[u8]) -> io::Result<u64> {
        let open = self.open(file, true)?;
        let Some(uncached) = self.uncached(file, &open) else { return self.append(file, bytes) };
        let offset = open.file.metadata()?.len();
        open.note_write();
        uncached::write_all_at(&open.file, &uncached, bytes, offset)?;
        Ok(offset)
    }

    fn free_space(&self) -> io::Result<Option<FreeSpace>> {
        let space = rustix::fs::statvfs(&self.root)?;
        Ok(FreeSpace::of_blocks(space.f_bavail, space.f_blocks, space.f_frsize))
    }

    fn read_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.open(file, false)?.file.read_exact_at(into, offset)
    }

    fn read_uncached_at(&self, file: &FileName, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let open = self.open(file, false)?;
        match self.uncached(file, &open) {
            Some(uncached) => uncached::read_exact_at(&open.file, &uncached, into, offset),
            None => open.file.read_exact_at(into, offset),
        }
    }

    fn length(&self, file: &FileName) -> io::Result<u64> {
        Ok(fs::metadata(self.path(file))?.len())
    }

    fn truncate(&self, file: &FileName, length: u64) -> io::Result<()> {
        let open = self.open(file, true)?;
        if length > open.file.metadata()?.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        open.note_write();
        open.file.set_len(length)
    }

    fn sync_soon(&self, file: &FileName) {
        if let Ok(open) = self.open(file, true) {
            let behind = self.behind.get_or_init(start_syncing_behind);
            // If the thread has ended, nothing is synced early; `sync` still does it.
            drop(behind.send(open));
        }
    }

    fn sync(&self, file: &FileName) -> io::Result<()> {
        // A descriptor for reading suffices: a reader can make another process's writes durable.
        self.open(file, false)?.sync()
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.sync_folder_at(&self.folder_path(folder))?;
        // The folder may be new. Its own name is in its parent.
        if folder.is_empty() { self.sync_name_of(&self.root) } else { self.sync_folder_at(&self.root) }
    }

    fn rename(&self, from: &FileName, to: &FileName) -> io::Result<()> {
        let mut open_files = self.open_files.lock();
        fs::rename(self.path(from), self.path(to))?;
        open_files.remove(to);
        if let Some(open) = open_files.remove(from) {
            open_files.insert(to.clone(), open);
        }
        Ok(())
    }

    fn remove(&self, file: &FileName) -> io::Result<()> {
        self.open_files.lock().remove(file);
        fs::remove_file(self.path(file))
    }

    fn remove_and_free_soon(&self, file: &FileName) -> io::Result<()> {
        let open = self.open(file, true);
        self.remove(file)?;
        if let Ok(open) = open {
            // If the thread has ended, closing the file frees its space at once.
            drop(self.freeing.get_or_init(start_freeing).send(open));
        }
        Ok(())
    }

    fn list(&self, folder: &str) -> io::Result<Vec<FileName>> {
        let path = self.folder_path(folder);
        let entries = match self.with_descriptors(|| fs::read_dir(&path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                continue;
            }
            let Some(own) = entry.file_name().to_str().map(String::from) else { continue };
            let whole = if folder.is_empty() { own } else { format!("{folder}/{own}") };
            names.extend(FileName::new(&whole));
        }
        names.sort();
        Ok(names)
    }

    fn lock(&self, file: &FileName, holder: &str) -> Result<Box<dyn FileLock>, LockError> {
        let failed = |source| LockError::Storage { file: file.clone(), source };
        let path = self.path(file);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(bits(OFlags::NOFOLLOW | OFlags::NONBLOCK));
        let opened = self.with_descriptors(|| options.open(&path)).map_err(of_link).map_err(failed)?;
        if !opened.metadata().map_err(failed)?.is_file() {
            return Err(failed(not_a_file()));
        }
        let Some(locked) = LockedFile::try_lock(opened).map_err(failed)? else {
            let mut holder = String::new();
            // The note is optional: failing to read it does not matter.
            if let Ok(note) = options.open(&path) {
                drop(note.take(1000).read_to_string(&mut holder));
            }
            if holder.trim().is_empty() {
                // The holder has not written its note yet.
                holder = ANOTHER.into();
            }
            return Err(LockError::Held { holder });
        };
        // Writing the note may fail, too. The lock must be available on a full disk, to a process
        // that frees space.
        drop(locked.set_len(0).and_then(|()| locked.write_all_at(holder.as_bytes(), 0)));
        Ok(Box::new(locked))
    }

    fn lock_folder(&self, folder: &str) -> Result<Box<dyn FileLock>, LockError> {
        let path = self.folder_path(folder);
        let failed = |source| {
            let file = FileName::new(folder).expect("a folder of the store");
            LockError::Storage { file, source }
        };
        self.make_folder(&path).map_err(failed)?;
        let mut options = OpenOptions::new();
        // A link is followed: the folder may be on another disk.
        options.read(true).custom_flags(bits(OFlags::DIRECTORY));
        let opened = self.with_descriptors(|| options.open(&path)).map_err(failed)?;
        match LockedFile::try_lock(opened) {
            Ok(Some(locked)) => Ok(Box::new(locked)),
            Ok(None) => Err(LockError::Held { holder: ANOTHER.into() }),
            Err(error) => match Errno::from_io_error(&error) {
                // NFS and some others lock only files that are open for writing.
                Some(Errno::BADF | Errno::INVAL | Errno::NOTSUP | Errno::NOSYS | Errno::NOLCK) => {
                    Ok(Box::new(NoLock))
                }
                _ => Err(failed(error)),
            },
        }
    }

    fn other_folder(&self, path: &str) -> io::Result<Arc<dyn Storage>> {
        if Path::new(path).is_absolute() {
            Ok(Arc::new(Self::new(Path::new(path))))
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "not an absolute path"))
        }
    }
}

impl FileLock for LockedFile {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PageBuffer;

    struct TemporaryStorage {
        storage: RealStorage,
        _folder: tempfile::TempDir,
    }

    impl std::ops::Deref for TemporaryStorage {
        type Target = RealStorage;
        fn deref(&self) -> &RealStorage {
            &self.storage
        }
    }

    #[test]
    fn keeps_the_contract() {
        let mut folders = Vec::new();
        crate::contract::check(&mut || {
            folders.push(tempfile::tempdir().unwrap());
            RealStorage::new(folders.last().unwrap().path())
        });
    }

    #[test]
    fn what_another_process_puts_in_place_is_what_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let (reader, writer) = (RealStorage::new(folder.path()), RealStorage::new(folder.path()));
        let (file, new) = (FileName::new("file").unwrap(), FileName::new("file.new").unwrap());
        let mut seen = [0; 3];
        for contents in [b"one", b"two"] {
            writer.create(&new).unwrap();
            writer.append(&new, contents).unwrap();
            writer.rename(&new, &file).unwrap();
            reader.read_at(&file, 0, &mut seen).unwrap();
            assert_eq!(&seen, contents);
        }
        writer.remove(&file).unwrap();
        assert_eq!(reader.read_at(&file, 0, &mut seen).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_failed_sync_is_told_though_a_reader_has_opened_the_file_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let temporary = RealStorage::new(folder.path());
        let file = FileName::new("file").unwrap();
        temporary.create(&file).unwrap();
        let written = temporary.open(&file, true).unwrap();
        *written.failed_sync.lock() = Some(io::ErrorKind::StorageFull.into());
        // A reader that opened the file before the writer was registered, and registers itself
        // afterwards.
        let read = File::open(temporary.path(&file)).unwrap();
        temporary.remember(&file, read, false, KeepOpenFile::IfNeeded);
        assert_eq!(temporary.sync(&file).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_locked_folder_excludes_others_until_the_lock_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (RealStorage::new(folder.path()), RealStorage::new(folder.path()));
        let held = one.lock_folder("arenas").unwrap();
        assert!(matches!(other.lock_folder("arenas"), Err(LockError::Held { .. })));
        drop(held);
        drop(other.lock_folder("arenas").unwrap());
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let storage = RealStorage::new(&folder.path().join("store"));
        storage.make_folder(&folder.path().join("store")).unwrap();
        let outside = folder.path().join("outside");
        fs::write(&outside, "precious").unwrap();
        for link in ["file", "lock"] {
            std::os::unix::fs::symlink(&outside, folder.path().join("store").join(link)).unwrap();
        }
        let (file, lock) = (FileName::new("file").unwrap(), FileName::new("lock").unwrap());
        assert!(storage.append(&file, b"x").unwrap_err().to_string().contains("symbolic link"));
        assert!(storage.truncate(&file, 0).is_err());
        assert!(storage.lock(&lock, "me").is_err());
        assert_eq!(fs::read(&outside).unwrap(), b"precious");
    }

    #[test]
    fn files_that_were_written_and_are_durable_are_let_go() {
        let folder = tempfile::tempdir().unwrap();
        let storage = RealStorage::new(folder.path());
        let names: Vec<_> = (0..600).map(|n| FileName::new(&format!("files/{n:04}")).unwrap()).collect();
        for name in &names {
            storage.create(name).unwrap();
            storage.append(name, b"some").unwrap();
            storage.sync(name).unwrap();
        }
        assert!(storage.open_files.lock().len() <= OPEN_FILES_MAX);
        let unsynced = FileName::new("unsynced").unwrap();
        storage.create(&unsynced).unwrap();
        storage.append(&unsynced, b"what nobody has asked to be made durable").unwrap();
        for name in &names {
            storage.append(name, b" more").unwrap();
            storage.sync(name).unwrap();
        }
        assert!(storage.open_files.lock().contains_key(&unsynced), "a failure of it is still to be told");
        let mut contents = [0; 9];
        storage.read_at(&names[7], 0, &mut contents).unwrap();
        assert_eq!(&contents, b"some more");
    }

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let storage = RealStorage::new(folder.path());
        let pipe = FileName::new("pipe").unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, storage.path(&pipe), rustix::fs::Mode::RWXU).unwrap();
        let below = FileName::new("folder").unwrap();
        fs::create_dir(storage.path(&below)).unwrap();
        for name in [pipe, below] {
            assert!(storage.read_at(&name, 0, &mut [0]).is_err());
            assert!(storage.read_uncached_at(&name, 0, &mut [0]).is_err());
            assert!(storage.append(&name, b"some").is_err());
        }
    }

    #[test]
    fn many_files_do_not_exhaust_the_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        let temporary = TemporaryStorage { storage: RealStorage::new(folder.path()), _folder: folder };
        let names: Vec<_> = (0..600).map(|n| FileName::new(&format!("files/{n:04}")).unwrap()).collect();
        for name in &names {
            fs::create_dir_all(temporary.root.join("files")).unwrap();
            fs::write(temporary.path(name), name.as_str()).unwrap();
        }
        let root = fs::canonicalize(&temporary.root).unwrap();
        let is_below =
            |link: &fs::DirEntry| fs::read_link(link.path()).is_ok_and(|file| file.starts_with(&root));
        for name in &names {
            let mut contents = [0; 10];
            temporary.read_at(name, 0, &mut contents).unwrap();
            assert_eq!(contents, name.as_str().as_bytes());
            let mut pages = PageBuffer::zeroed(10);
            temporary.read_uncached_at(name, 0, &mut pages).unwrap();
            assert_eq!(&pages[..], name.as_str().as_bytes());
            let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten().filter(is_below);
            assert!(descriptors.count() <= OPEN_FILES_MAX);
        }
        assert!(temporary.open_files.lock().len() <= OPEN_FILES_MAX);
    }
}
