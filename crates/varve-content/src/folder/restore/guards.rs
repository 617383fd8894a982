//! Protects paths that a restore must neither write into nor remove: the store and its key files,
//! other stores, and mounted file systems.
//!
//! A tree that is replaced is searched first, and removed afterwards. Both walks stay within one
//! mount and follow no symbolic links.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::decision::RestoreReason;
use super::locked::LockedEntry;
use crate::folder::source::status::FolderNames;
use crate::records::node::NodeKind;

/// Device and inode.
type DeviceInode = (u64, u64);

/// The entries that identify a folder as a Varve store.
const STORE_CONFIG: &[u8] = b"config.toml";
const STORE_ARENAS: &[u8] = b"arenas";

/// Files and folders that must stay. They are identified by device and inode, so that no link or
/// bind mount hides one.
pub(super) struct Guards {
    ids: BTreeMap<DeviceInode, PathBuf>,
    /// True if any of them is not a folder, so that files must be checked too.
    has_files: bool,
}

/// Tells whether a path of a tree must stay for another reason. The second argument tells whether
/// it is a folder.
pub(super) type IsExcluded<'a> = &'a dyn Fn(&Path, bool) -> bool;

/// Why a tree cannot be removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Hindrance {
    #[error("{} must stay", kept.display())]
    Kept { kept: PathBuf },
    #[error("a file system is mounted at {}", at.display())]
    Mount { at: PathBuf },
    #[error("{} is a Varve store", at.display())]
    Store { at: PathBuf },
    #[error("{0}")]
    Locked(#[source] LockedEntry),
    #[error("{} is excluded", at.display())]
    Excluded { at: PathBuf },
    #[error("{} cannot be examined or removed", path.display())]
    System { path: PathBuf, source: io::Error },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RemovalMode {
    Look,
    Remove,
}

/// A folder that the walk is in.
struct FolderToRemove {
    folder: OwnedFd,
    name: Vec<u8>,
    path: PathBuf,
    names: FolderNames,
}

impl Hindrance {
    /// The reason that a decision gives.
    pub(super) fn reason(&self) -> RestoreReason {
        match self {
            Self::Kept { kept } => RestoreReason::MustStay(kept.clone()),
            Self::Mount { .. } => RestoreReason::Mount,
            Self::Store { .. } => RestoreReason::Store,
            Self::Locked(locked) => RestoreReason::Locked(locked.clone()),
            Self::Excluded { .. } => RestoreReason::Excluded,
            Self::System { source, .. } => RestoreReason::Unreadable(source.to_string()),
        }
    }
}

impl Guards {
    /// Guards for those of the paths that exist.
    pub(super) fn new(paths: &[PathBuf]) -> Self {
        let mut kept = Self { ids: BTreeMap::new(), has_files: false };
        for path in paths {
            // Guard the link and its target.
            for metadata in [std::fs::symlink_metadata(path), std::fs::metadata(path)].into_iter().flatten() {
                kept.has_files |= !metadata.is_dir();
                kept.ids.insert((metadata.dev(), metadata.ino()), path.clone());
            }
        }
        kept
    }

    /// Opens an existing folder for writing or removing entries.
    pub(super) fn enter(&self, parent: &OwnedFd, name: &[u8], path: &Path) -> Result<OwnedFd, Hindrance> {
        let failed = |source: Errno| Hindrance::System { path: path.into(), source: source.into() };
        let opened = open_in_mount(parent, name).map_err(|error| match error {
            Errno::XDEV => Hindrance::Mount { at: path.into() },
            error => failed(error),
        })?;
        self.check_folder(&opened, path)?;
        Ok(opened)
    }

    /// Checks that an open folder may be written into.
    pub(super) fn check_folder(&self, folder: &OwnedFd, path: &Path) -> Result<(), Hindrance> {
        let failed = |source: Errno| Hindrance::System { path: path.into(), source: source.into() };
        self.check(&rustix::fs::fstat(folder).map_err(failed)?)?;
        if is_store(folder) { Err(Hindrance::Store { at: path.into() }) } else { Ok(()) }
    }

    /// The guarded path with this device and inode, if any.
    pub(super) fn find(&self, id: DeviceInode) -> Option<&Path> {
        self.ids.get(&id).map(PathBuf::as_path)
    }

    /// Checks that `name`, and everything below it, may be removed, as far as that is known in
    /// advance. `path` is used for messages and for `excluded`.
    pub(super) fn look_through(
        &self,
        parent: &OwnedFd,
        name: &[u8],
        path: &Path,
        excluded: IsExcluded<'_>,
    ) -> Result<(), Hindrance> {
        self.walk(parent, name, path, RemovalMode::Look, excluded)
    }

    /// Removes `name` and everything below it, as far as possible. Returns the first hindrance.
    pub(super) fn remove(&self, parent: &OwnedFd, name: &[u8], path: &Path) -> Result<(), Hindrance> {
        self.walk(parent, name, path, RemovalMode::Remove, &|_, _| false)
    }

    fn walk(
        &self,
        parent: &OwnedFd,
        name: &[u8],
        path: &Path,
        deed: RemovalMode,
        excluded: IsExcluded<'_>,
    ) -> Result<(), Hindrance> {
        let mut stack: Vec<FolderToRemove> = Vec::new();
        let mut first_met = Ok(());
        let mut met =
            self.meet(parent, name, path, None, deed).map(|folder| (folder, name.to_vec(), path.into()));
        loop {
            match met {
                Ok((Some(folder), name, path)) => {
                    let (names, read) = FolderNames::read(&folder);
                    let read =
                        read.map_err(|source| Hindrance::System { path: PathBuf::clone(&path), source });
                    stack.push(FolderToRemove { folder, name, path, names });
                    first_met = first_met.and(read);
                }
                Ok((None, ..)) => {}
                Err(hindrance) => first_met = first_met.and(Err(hindrance)),
            }
            if deed == RemovalMode::Look && first_met.is_err() {
                return first_met;
            }
            // Go up to the next name, and then down again.
            met = loop {
                let Some(frame) = stack.last_mut() else { return first_met };
                if let Some((name, kind)) = frame.names.next() {
                    let (name, path) = (name.to_vec(), frame.path.join(OsStr::from_bytes(name)));
                    let met = self.meet(&frame.folder, &name, &path, kind, deed);
                    break met.and_then(|folder| match excluded(&path, folder.is_some()) {
                        true => Err(Hindrance::Excluded { at: path }),
                        false => Ok((folder, name, path)),
                    });
                }
                let Some(FolderToRemove { folder, name, path, .. }) = stack.pop() else { return first_met };
                drop(folder);
                if deed == RemovalMode::Remove {
                    let above = stack.last().map_or(parent, |frame| &frame.folder);
                    first_met = first_met.and(unlink(above, &name, &path, AtFlags::REMOVEDIR));
                }
            };
        }
    }

    /// Visits a name: opens a folder. Anything else is removed if `deed` is to remove.
    fn meet(
        &self,
        folder: &OwnedFd,
        name: &[u8],
        path: &Path,
        kind: Option<NodeKind>,
        deed: RemovalMode,
    ) -> Result<Option<OwnedFd>, Hindrance> {
        let failed = |source: Errno| Hindrance::System { path: path.into(), source: source.into() };
        let mut is_folder = kind == Some(NodeKind::Folder);
        if deed == RemovalMode::Look
            && let Some(locked) = LockedEntry::named(folder, name, path)
        {
            return Err(Hindrance::Locked(locked));
        }
        if !is_folder && (kind.is_none() || self.has_files) {
            match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => {
                    self.check(&stat)?;
                    is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
                }
                Err(Errno::NOENT) => return Ok(None),
                Err(error) => return Err(failed(error)),
            }
        }
        if !is_folder {
            return match deed {
                RemovalMode::Look => Ok(None),
                RemovalMode::Remove => unlink(folder, name, path, AtFlags::empty()).map(|()| None),
            };
        }
        match open_in_mount(folder, name) {
            Ok(opened) => {
                self.check(&rustix::fs::fstat(&opened).map_err(failed)?)?;
                if deed == RemovalMode::Look && is_store(&opened) {
                    return Err(Hindrance::Store { at: path.into() });
                }
                Ok(Some(opened))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::XDEV) => Err(Hindrance::Mount { at: path.into() }),
            // The folder may be empty.
            Err(Errno::ACCESS) if deed == RemovalMode::Remove => {
                unlink(folder, name, path, AtFlags::REMOVEDIR).map(|()| None)
            }
            Err(error) => Err(failed(error)),
        }
    }

    fn check(&self, stat: &Stat) -> Result<(), Hindrance> {
        match self.ids.get(&id_of(stat)) {
            Some(kept) => Err(Hindrance::Kept { kept: kept.clone() }),
            None => Ok(()),
        }
    }
}

/// Returns whether a folder is a Varve store, or a replica of one.
fn is_store(folder: &OwnedFd) -> bool {
    let is_there = |name: &[u8], kind: FileType| {
        rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == kind)
    };
    is_there(STORE_CONFIG, FileType::RegularFile) && is_there(STORE_ARENAS, FileType::Directory)
}

fn id_of(stat: &Stat) -> DeviceInode {
    (stat.st_dev, stat.st_ino)
}

/// Opens a folder in the same mount as its parent. [`Errno::XDEV`] if it is a mount point.
fn open_in_mount(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(parent, name, flags, Mode::empty(), resolve) {
        // A kernel before 5.6, or a sandbox, does not support the call. Mounts of other devices can
        // still be detected.
        Err(Errno::NOSYS | Errno::PERM) => {
            let opened = rustix::fs::openat(parent, name, flags, Mode::empty())?;
            let device = |folder: &dyn AsFd| rustix::fs::fstat(folder.as_fd()).map(|stat| stat.st_dev);
            if device(&opened)? == device(parent)? { Ok(opened) } else { Err(Errno::XDEV) }
        }
        opened => opened,
    }
}

fn unlink(folder: &OwnedFd, name: &[u8], path: &Path, flags: AtFlags) -> Result<(), Hindrance> {
    match rustix::fs::unlinkat(folder, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(match LockedEntry::named(folder, name, path).filter(|_| error == Errno::PERM) {
            Some(locked) => Hindrance::Locked(locked),
            None => Hindrance::System { path: path.into(), source: error.into() },
        }),
    }
}
