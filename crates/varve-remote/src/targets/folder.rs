//! Objects as files in a folder, on another disk or a mounted file system.
//!
//! A new object is written under a name that only its writer has and that no store uses (it begins
//! with a dot). It is made durable and then gets its own name: by a rename that never replaces, by
//! a hard link if the file system has no such rename, or by a check and a rename if it has neither.
//! So a dead writer leaves only a file that no listing shows.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::{CWD, OFlags, RenameFlags};
use varve_block::to_usize;
use varve_world::{FileName, sync_open_folder};

use crate::attempt_error::AttemptError;
use crate::edge;
use crate::naming::leftovers;
use crate::naming::object_names::is_folder_of_a_store;
use crate::naming::target_listing::TargetListing;
use crate::target::{
    Capabilities, Erased, NonObjectKind, Object, PutMode, Survey, TakePiece, Target, TargetError,
    WholeObject, longer_than,
};
use crate::transfer::pace::Pace;
use crate::transfer::pieces::PieceCutter;
use crate::transfer::spare_buffers::SpareBuffers;

/// The bytes that are read or written between two checks of the pace.
const PART_BYTES: usize = 256 << 10;

/// A file is absent if it is so at each of these looks, and its folder does not list it.
const LOOKS_MIN: u32 = 3;
/// A file that its folder lists, or that is stale, is looked for so often. With the pauses, these
/// are 2 seconds.
const LOOKS_MAX: u32 = 1000;
/// The pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(2);

/// The files below one folder.
///
/// A missing folder is made with the first object. Its parent must exist, so that an unmounted disk
/// is noticed. Only the owner has access to the files and folders.
pub struct FolderTarget {
    root: PathBuf,
    up: Option<Arc<Pace>>,
    down: Option<Arc<Pace>>,
    spare: Arc<SpareBuffers>,
    creation: OnceLock<ExclusiveCreation>,
    /// The leftovers of dead writers in the last full listing.
    leftovers: Mutex<Vec<String>>,
}

/// The way in which a file gets a name exclusively.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExclusiveCreation {
    /// A rename that fails if the name exists.
    Rename,
    /// A hard link, which fails if the name exists.
    Link,
    /// Neither is available: check, then rename.
    Look,
}

impl FolderTarget {
    /// Makes the target below `root`.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.into(),
            up: None,
            down: None,
            spare: Arc::default(),
            creation: OnceLock::new(),
            leftovers: Mutex::default(),
        }
    }

    /// Adds paces for writes and reads.
    pub(crate) fn at_pace(self, up: Option<Arc<Pace>>, down: Option<Arc<Pace>>) -> Self {
        Self { up, down, ..self }
    }

    fn path(&self, name: &FileName) -> PathBuf {
        self.root.join(name.as_str())
    }

    /// Opens an object for reading. Only a regular file is an object: a pipe or a device would
    /// block, or never end.
    fn open(&self, name: &FileName) -> Result<(File, u64), AttemptError> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let (mut options, path) = (OpenOptions::new(), self.path(name));
        options.read(true).custom_flags(flags.bits().cast_signed());
        let mut look_count = 1;
        let (file, metadata) = loop {
            let found = options.open(&path).and_then(|file| file.metadata().map(|metadata| (file, metadata)));
            match found {
                // While a file is replaced, some file systems of FUSE find neither the old nor the
                // new one: from the rename in the program behind them until the kernel knows of it.
                // An open old file has no attributes there after the rename, or is stale. A listing
                // comes from that program.
                Err(error)
                    if is_absent(&error)
                        && (look_count < LOOKS_MIN || look_count < LOOKS_MAX && is_listed(&path))
                        || is_stale(&error) && look_count < LOOKS_MAX =>
                {
                    look_count += 1;
                    edge::sleep(LOOK_PAUSE);
                }
                Err(error) if is_absent(&error) => return Err(AttemptError::NotFound),
                found => break found.map_err(AttemptError::of_io)?,
            }
        };
        if !metadata.is_file() {
            return Err(AttemptError::refused("it is not a plain file"));
        }
        Ok((file, metadata.len()))
    }

    fn read(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, AttemptError> {
        let file = self.open_range(name, &range)?;
        let byte_count = to_usize(range.end - range.start);
        let mut contents = vec![0; byte_count];
        for (offset, part) in (range.start..).step_by(PART_BYTES).zip(contents.chunks_mut(PART_BYTES)) {
            self.read_part(&file, offset, part)?;
        }
        Ok(contents.into())
    }

    fn read_in_pieces(
        &self,
        name: &FileName,
        range: Range<u64>,
        place: u64,
        take: &mut TakePiece<'_>,
    ) -> Result<(), AttemptError> {
        let file = self.open_range(name, &range)?;
        let mut pieces = PieceCutter::new(Arc::clone(&self.spare), place);
        let mut offset = range.start;
        while offset < range.end {
            let room = pieces.room();
            let wanted = to_usize(range.end - offset).min(PART_BYTES);
            let count = wanted.min(room.len());
            self.read_part(&file, offset, &mut room[..count])?;
            offset += count as u64;
            if let Some(piece) = pieces.advance(count)
                && take(piece).is_break()
            {
                return Ok(());
            }
        }
        if let Some(piece) = pieces.finish() {
            let _ = take(piece);
        }
        Ok(())
    }

    /// Opens an object that contains a whole range.
    fn open_range(&self, name: &FileName, range: &Range<u64>) -> Result<File, AttemptError> {
        let (file, length) = self.open(name)?;
        if range.start > range.end || range.end > length { Err(AttemptError::Short) } else { Ok(file) }
    }

    fn read_part(&self, file: &File, offset: u64, into: &mut [u8]) -> Result<(), AttemptError> {
        if let Some(pace) = &self.down {
            edge::sleep(pace.take(into.len()));
        }
        match file.read_exact_at(into, offset) {
            // The file was truncated since the check of its length.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(AttemptError::Short),
            outcome => outcome.map_err(AttemptError::of_io),
        }
    }

    fn write(&self, name: &FileName, contents: &Bytes, mode: PutMode) -> Result<(), AttemptError> {
        let path = self.path(name);
        self.leads_to(&path).map_err(AttemptError::of_io)?;
        if let Ok(there) = fs::symlink_metadata(&path) {
            match other_kind(there.file_type()) {
                Some(kind) => return Err(AttemptError::refused(format!("{kind} is in place of a file"))),
                None if mode == PutMode::Create => return Err(AttemptError::Exists),
                None => {}
            }
        }
        let folder = path.parent().unwrap_or(&self.root);
        self.make_folders(folder).map_err(AttemptError::of_io)?;
        let unfinished = UnfinishedObject::new(folder).map_err(AttemptError::of_io)?;
        self.fill(&unfinished, contents).map_err(AttemptError::of_io)?;
        match mode {
            PutMode::Create => {
                let way = self.creation_way(folder).map_err(AttemptError::of_io)?;
                unfinished.create(&path, way)?;
            }
            PutMode::Replace => unfinished.replace(&path).map_err(AttemptError::of_io)?,
        }
        sync_folder(folder).map_err(AttemptError::of_io)
    }

    fn fill(&self, unfinished: &UnfinishedObject, contents: &Bytes) -> io::Result<()> {
        let mut file = &unfinished.file;
        for piece in contents.chunks(PART_BYTES) {
            if let Some(pace) = &self.up {
                edge::sleep(pace.take(piece.len()));
            }
            file.write_all(piece)?;
        }
        file.sync_all()
    }

    /// Makes the folders of an object, each durable in its parent. The root may be a symbolic link
    /// of the owner. Below it no link is followed: listings enter no links, so an object behind one
    /// would not be found, and would be at a place that nobody meant.
    fn make_folders(&self, folder: &Path) -> io::Result<()> {
        let parent = folder.parent().unwrap_or(Path::new("/"));
        if self.is_below_root(folder) {
            self.make_folders(parent)?;
        }
        if self.is_there(folder)? {
            return Ok(());
        }
        match DirBuilder::new().mode(0o700).create(folder) {
            // Another writer was faster. Its own sync may still be running.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && self.is_there(folder)? => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let text = format!("{} does not exist: check that the disk is mounted", parent.display());
                return Err(io::Error::new(io::ErrorKind::NotADirectory, text));
            }
            made => made?,
        }
        sync_folder(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
    }

    fn is_below_root(&self, folder: &Path) -> bool {
        folder.starts_with(&self.root) && folder != self.root
    }

    /// Returns true if a folder exists; false if nothing does.
    fn is_there(&self, folder: &Path) -> io::Result<bool> {
        let is_below = self.is_below_root(folder);
        let found = if is_below { fs::symlink_metadata(folder) } else { fs::metadata(folder) };
        let text = match found {
            Ok(found) if found.is_dir() => return Ok(true),
            Ok(found) if is_below => {
                let kind =
                    other_kind(found.file_type()).map_or_else(|| "a file".into(), |kind| kind.to_string());
                format!(
                    "{kind} is in place of the folder {}, and must be removed or renamed by hand",
                    folder.display()
                )
            }
            Ok(_) => format!("{} is not a folder", folder.display()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        Err(io::Error::new(io::ErrorKind::NotADirectory, text))
    }

    /// Returns true if the folders of an object exist, none of them behind a symbolic link.
    fn leads_to(&self, path: &Path) -> io::Result<bool> {
        let mut folders = path.ancestors().skip(1).take_while(|folder| self.is_below_root(folder));
        folders.try_fold(true, |all, folder| Ok(all && self.is_there(folder)?))
    }

    /// Returns the way of exclusive creation in this file system. It is determined once, by trying.
    fn creation_way(&self, folder: &Path) -> io::Result<ExclusiveCreation> {
        match self.creation.get() {
            Some(way) => Ok(*way),
            None => try_creation(folder).map(|way| *self.creation.get_or_init(|| way)),
        }
    }

    /// Lists the objects below a folder. A full listing also records the leftovers of dead writers.
    fn listed(&self, folder: &str) -> Result<TargetListing, TargetError> {
        let mut listing = TargetListing::default();
        match self.walk(folder, &mut listing) {
            Ok(()) => {
                if folder.is_empty() {
                    *self.leftovers.lock() = listing.dead_leftovers();
                }
                Ok(listing)
            }
            Err(AttemptError::Refused(source)) => {
                Err(TargetError::Refused { what: self.to_string(), source })
            }
            Err(AttemptError::Passing(source, _)) => {
                Err(TargetError::Failed { what: self.to_string(), source })
            }
            Err(other) => unreachable!("a walk looks for no single object: {other:?}"),
        }
    }

    fn walk(&self, folder: &str, into: &mut TargetListing) -> Result<(), AttemptError> {
        let mut left = vec![folder.to_owned()];
        while let Some(folder) = left.pop() {
            let path = if folder.is_empty() { self.root.clone() } else { self.root.join(&folder) };
            let is_link = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
            if !folder.is_empty() && is_link(&path) {
                continue;
            }
            let entries = match fs::read_dir(path) {
                Err(error) if folder.is_empty() && error.kind() == io::ErrorKind::NotADirectory => {
                    return Err(AttemptError::refused("it is not a folder"));
                }
                Err(error) if is_absent(&error) => continue,
                entries => entries.map_err(AttemptError::of_io)?,
            };
            for entry in entries {
                let entry = entry.map_err(AttemptError::of_io)?;
                let own = entry.file_name();
                let name = own.to_str().map(|own| join(&folder, own)).unwrap_or_default();
                let Some(kind) = other_kind(entry.file_type().map_err(AttemptError::of_io)?) else {
                    match entry.metadata() {
                        Ok(metadata) => {
                            into.push_changed(&name, metadata.len(), Some(metadata.mtime()))?;
                        }
                        // Removed in the meantime.
                        Err(error) if is_absent(&error) => {}
                        Err(error) => return Err(AttemptError::of_io(error)),
                    }
                    continue;
                };
                into.push_other(&name, kind)?;
                if kind == NonObjectKind::Folder && is_folder_of_a_store(&name) {
                    left.push(name);
                }
            }
        }
        Ok(())
    }
}

fn join(folder: &str, own: &str) -> String {
    if folder.is_empty() { own.into() } else { format!("{folder}/{own}") }
}

/// Returns the kind of an entry; `None` for a regular file, the only kind that is an object.
fn other_kind(found: fs::FileType) -> Option<NonObjectKind> {
    match found {
        found if found.is_file() => None,
        found if found.is_dir() => Some(NonObjectKind::Folder),
        found if found.is_symlink() => Some(NonObjectKind::Link),
        _ => Some(NonObjectKind::Special),
    }
}

/// Returns true if the folder of a file lists it.
fn is_listed(path: &Path) -> bool {
    let Some((folder, name)) = path.parent().zip(path.file_name()) else { return false };
    fs::read_dir(folder)
        .is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(|it| it.file_name() == name)))
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Returns true if the name has led to another file in the meantime.
fn is_stale(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::StaleNetworkFileHandle
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    sync_open_folder(&File::open(folder)?)
}

/// A file without its final name. It is removed if it is dropped before it gets one.
struct UnfinishedObject {
    file: File,
    path: PathBuf,
    is_named: bool,
}

impl UnfinishedObject {
    fn new(folder: &Path) -> io::Result<Self> {
        let path = folder.join(leftovers::unfinished_name(edge::draw()?));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { file, path, is_named: false })
    }

    fn create(mut self, path: &Path, way: ExclusiveCreation) -> Result<(), AttemptError> {
        let outcome = match way {
            ExclusiveCreation::Rename => {
                rustix::fs::renameat_with(CWD, &self.path, CWD, path, RenameFlags::NOREPLACE)
                    .map_err(io::Error::from)
            }
            // The drop removes the other name.
            ExclusiveCreation::Link => fs::hard_link(&self.path, path),
            ExclusiveCreation::Look if fs::symlink_metadata(path).is_ok() => {
                Err(io::ErrorKind::AlreadyExists.into())
            }
            ExclusiveCreation::Look => fs::rename(&self.path, path),
        };
        match outcome {
            Ok(()) => {
                self.is_named = way != ExclusiveCreation::Link;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(AttemptError::Exists),
            Err(error) => Err(AttemptError::of_io(error)),
        }
    }

    fn replace(mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.is_named = true;
        Ok(())
    }
}

impl Drop for UnfinishedObject {
    fn drop(&mut self) {
        if !self.is_named {
            // The file may stay: it is invisible.
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Returns the first way of creation that works in the file system of a folder.
fn try_creation(folder: &Path) -> io::Result<ExclusiveCreation> {
    for way in [ExclusiveCreation::Rename, ExclusiveCreation::Link] {
        if creates(folder, way)? {
            return Ok(way);
        }
    }
    Ok(ExclusiveCreation::Look)
}

/// Tries one way of creation with names that no store uses. The success must come first: that a
/// name exists is said by the kernel, before it asks the file system whether it knows this way at
/// all.
fn creates(folder: &Path, way: ExclusiveCreation) -> io::Result<bool> {
    let (first, second) = (UnfinishedObject::new(folder)?, UnfinishedObject::new(folder)?);
    (&first.file).write_all(b"first")?;
    (&second.file).write_all(b"second")?;
    let name = folder.join(leftovers::unfinished_name(edge::draw()?));
    let is_created = first.create(&name, way).is_ok();
    let is_refused = matches!(second.create(&name, way), Err(AttemptError::Exists));
    // A file system that claims a success that was none is not believed either.
    let is_first = fs::read(&name).is_ok_and(|contents| contents == b"first");
    drop(fs::remove_file(&name));
    Ok(is_created && is_refused && is_first)
}

impl fmt::Display for FolderTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root.display().fmt(f)
    }
}

impl Target for FolderTarget {
    fn capabilities(&self) -> Capabilities {
        // A missing folder will be in the file system of its parent.
        let nearest = self.root.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("."));
        Capabilities {
            create_is_exclusive: self.creation_way(nearest).is_ok_and(|way| way != ExclusiveCreation::Look),
            ranges: true,
        }
    }

    fn put(&self, name: &FileName, contents: Bytes, mode: PutMode) -> Result<(), TargetError> {
        self.write(name, &contents, mode).map_err(|trouble| trouble.of_object(name, contents.len() as u64))
    }

    fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, TargetError> {
        let end = range.end;
        self.read(name, range).map_err(|trouble| trouble.of_object(name, end))
    }

    fn get_in_pieces(
        &self,
        name: &FileName,
        range: Range<u64>,
        place: u64,
        take: &mut TakePiece<'_>,
    ) -> Result<(), TargetError> {
        let end = range.end;
        self.read_in_pieces(name, range, place, take).map_err(|trouble| trouble.of_object(name, end))
    }

    fn get_whole(
        &self,
        name: &FileName,
        bytes_max: u64,
        _known: Option<&str>,
    ) -> Result<Option<WholeObject>, TargetError> {
        let whole = self.open(name).and_then(|(_, length)| match length {
            _ if length > bytes_max => Err(AttemptError::Refused(longer_than(bytes_max))),
            _ => self.read(name, 0..length),
        });
        let bytes = whole.map_err(|error| error.of_object(name, bytes_max))?;
        Ok(Some(WholeObject { bytes, mark: None }))
    }

    fn list(&self, folder: &str) -> Result<Vec<Object>, TargetError> {
        Ok(self.listed(folder)?.finish(folder))
    }

    fn survey(&self) -> Result<Survey, TargetError> {
        Ok(self.listed("")?.survey())
    }

    fn remove(&self, name: &FileName) -> Result<(), TargetError> {
        let path = self.path(name);
        let removed = match self.leads_to(&path).and_then(|_| fs::remove_file(&path)) {
            Err(error) if is_absent(&error) => Err(AttemptError::NotFound),
            outcome => outcome.map_err(AttemptError::of_io),
        };
        let synced = removed.and_then(|()| {
            path.parent().map_or(Ok(()), |folder| sync_folder(folder).map_err(AttemptError::of_io))
        });
        synced.map_err(|trouble| trouble.of_object(name, 0))
    }

    fn erase(&self, name: &FileName) -> Result<Erased, TargetError> {
        self.remove(name)?;
        // The folder of an object whose last object is gone. It is refused while anything is in it.
        if !name.folder().is_empty()
            && self.path(name).parent().is_some_and(|folder| fs::remove_dir(folder).is_ok())
        {
            sync_folder(&self.root).map_err(|error| AttemptError::of_io(error).of_object(name, 0))?;
        }
        Ok(Erased::Gone)
    }

    fn remove_leftovers(&self) -> usize {
        let dead = std::mem::take(&mut *self.leftovers.lock());
        dead.iter().filter(|path| fs::remove_file(self.root.join(path)).is_ok()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> FileName {
        FileName::new(text).unwrap()
    }

    #[test]
    fn keeps_the_contract() {
        let mut folders = Vec::new();
        crate::contract::check(&mut || {
            folders.push(tempfile::tempdir().unwrap());
            Box::new(FolderTarget::new(&folders.last().unwrap().path().join("replica")))
        });
        let folder = tempfile::tempdir().unwrap();
        crate::contract::check_many(&FolderTarget::new(folder.path()));
    }

    #[test]
    fn keeps_the_contract_in_every_way_of_creation() {
        for way in [ExclusiveCreation::Rename, ExclusiveCreation::Link, ExclusiveCreation::Look] {
            let mut folders = Vec::new();
            crate::contract::check(&mut || {
                folders.push(tempfile::tempdir().unwrap());
                let target = FolderTarget::new(folders.last().unwrap().path());
                target.creation.set(way).unwrap();
                Box::new(target)
            });
            for folder in &folders {
                assert_eq!(unfinished(folder.path()), Vec::<PathBuf>::new(), "{way:?}");
            }
        }
    }

    fn unfinished(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
        let inside = folders.iter().flat_map(|folder| unfinished(folder));
        files.into_iter().filter(|path| path.extension().is_some_and(|e| e == "tmp")).chain(inside).collect()
    }

    #[test]
    fn creation_is_exclusive_here() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(try_creation(folder.path()).unwrap(), ExclusiveCreation::Rename);
        let target = FolderTarget::new(&folder.path().join("new"));
        assert_eq!(target.capabilities(), Capabilities { create_is_exclusive: true, ranges: true });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "asking leaves nothing behind");
    }

    #[test]
    fn what_dead_writers_left_is_not_listed() {
        let folder = tempfile::tempdir().unwrap();
        std::mem::forget(UnfinishedObject::new(folder.path()).unwrap());
        assert_eq!(unfinished(folder.path()).len(), 1);
        assert_eq!(FolderTarget::new(folder.path()).list("").unwrap(), []);
    }

    #[test]
    fn a_disk_that_is_not_mounted_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let target = FolderTarget::new(&folder.path().join("not-mounted/replica"));
        let refused = target.put(&name("object"), Bytes::new(), PutMode::Create).unwrap_err();
        let source = std::error::Error::source(&refused).unwrap().to_string();
        assert!(source.contains("check that the disk is mounted"), "{source}");
    }

    #[test]
    fn only_plain_files_are_objects() {
        let folder = tempfile::tempdir().unwrap();
        let target = FolderTarget::new(folder.path());
        fs::create_dir(folder.path().join("folder")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        rustix::fs::mknodat(CWD, folder.path().join("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        for what in ["folder", "link", "fifo"] {
            let outcome = target.get(&name(what), 0..1);
            assert!(
                matches!(outcome, Err(TargetError::Refused { .. } | TargetError::Failed { .. })),
                "{what}: {outcome:?}"
            );
            for mode in [PutMode::Create, PutMode::Replace] {
                let outcome = target.put(&name(what), Bytes::new(), mode);
                assert!(matches!(outcome, Err(TargetError::Refused { .. })), "{what}: {outcome:?}");
            }
        }
        let survey = target.survey().unwrap();
        assert_eq!(survey.objects, []);
        let others: Vec<_> = survey.others.iter().map(|other| (other.name.as_str(), other.kind)).collect();
        let expected = [
            ("fifo", NonObjectKind::Special),
            ("folder", NonObjectKind::Folder),
            ("link", NonObjectKind::Link),
        ];
        assert_eq!(others, expected);
    }

    /// Listings enter no symbolic link, so nothing is put or removed behind one.
    #[test]
    fn no_link_leads_to_objects() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let target = FolderTarget::new(folder.path());
        fs::create_dir(elsewhere.path().join("inside")).unwrap();
        fs::write(elsewhere.path().join("inside/theirs"), "theirs").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join("lost")).unwrap();
        fs::write(folder.path().join("file"), "mine").unwrap();
        for (object, kind) in [
            ("link/new", "a symbolic link"),
            ("link/inside/new", "a symbolic link"),
            ("link/inside/theirs", "a symbolic link"),
            ("lost/new", "a symbolic link"),
            ("file/new", "a file"),
        ] {
            for mode in [PutMode::Create, PutMode::Replace] {
                let outcome = target.put(&name(object), Bytes::from_static(b"ours"), mode);
                let Err(TargetError::Refused { source, .. }) = outcome else {
                    panic!("{object}: {outcome:?}")
                };
                let named = folder.path().join(object.split('/').next().unwrap());
                let expected = format!("{kind} is in place of the folder {}", named.display());
                assert!(source.to_string().starts_with(&expected), "{source}");
            }
        }
        let refused = target.remove(&name("link/inside/theirs"));
        assert!(
            matches!(refused, Err(TargetError::Refused { .. } | TargetError::NotFound { .. })),
            "{refused:?}"
        );
        assert_eq!(target.list("link").unwrap(), []);
        assert_eq!(fs::read(elsewhere.path().join("inside/theirs")).unwrap(), b"theirs");
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
        assert_eq!(fs::read_dir(elsewhere.path().join("inside")).unwrap().count(), 1);
        // The root itself may be a symbolic link: its owner decides.
        let linked = FolderTarget::new(&folder.path().join("link"));
        linked.put(&name("inside/new"), Bytes::from_static(b"ours"), PutMode::Create).unwrap();
        assert_eq!(linked.list("").unwrap().len(), 2);
    }

    #[test]
    fn a_file_is_no_place_for_objects() {
        let folder = tempfile::tempdir().unwrap();
        let target = FolderTarget::new(&folder.path().join("file"));
        fs::write(&target.root, "mine").unwrap();
        let listed = target.list("").unwrap_err();
        let put = target.put(&name("object"), Bytes::new(), PutMode::Create).unwrap_err();
        for refused in [listed, put] {
            let source = std::error::Error::source(&refused).unwrap().to_string();
            assert!(source.contains("not a folder"), "{source}");
        }
    }

    #[test]
    fn a_claimed_length_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let target = FolderTarget::new(folder.path());
        target.put(&name("object"), Bytes::from_static(b"x"), PutMode::Create).unwrap();
        assert!(matches!(target.get(&name("object"), 0..u64::MAX), Err(TargetError::Short { .. })));
    }
}
