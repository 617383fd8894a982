//! The destination of a restore: examines what exists there, and moves the result to it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::attributes::Attributes;
use super::decision::{Decision, ExistingEntry, Policy, RestoreAction, RestoreReason, decide};
use super::flag_giver::FlagGiver;
use super::guards::{Guards, Hindrance};
use super::locked::{self, LockedEntry};
use super::move_into_place::{self, MoveIntoPlaceError, ReplacedEntry};
use super::{RestoreFolderError, RestoreOptions};
use crate::folder::source::status::{FolderNames, Status, open_file};
use crate::records::node::{Node, NodeKind};
use crate::restoring::partial::{self, exists, rename_new};
use crate::restoring::unfinished_restore::{
    CompletedPart, PartialKind, UnfinishedRestore, is_unfinished_name,
};

/// The path of a destination, and its open parent folder.
pub(super) struct Destination {
    path: PathBuf,
    parent: OwnedFd,
    name: Vec<u8>,
}

/// The state of a destination.
pub(super) enum DestinationState {
    /// Nothing exists there.
    Free,
    /// An empty folder, or a folder with nothing but the remains of an interrupted restore.
    Empty(OwnedFd),
    /// A folder with contents, if the node is a folder too.
    Folder(OwnedFd),
    /// Any other entry, with the decision about it.
    Entry(Decision),
}

impl Destination {
    /// Opens the parent folder of the destination.
    pub(super) fn open(path: &Path) -> Result<Self, RestoreFolderError> {
        let Some(name) = path.file_name().map(|name| name.as_bytes().to_vec()) else {
            return Err(RestoreFolderError::NoName { path: path.to_path_buf() });
        };
        let parent = match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => Path::new("/"),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::openat(CWD, parent, flags, Mode::empty())
            .map_err(|error| failed(path, error.into()))?;
        Ok(Self { path: path.to_path_buf(), parent, name })
    }

    /// Examines the destination, without changing it.
    pub(super) fn look(
        &self,
        root: &Node,
        options: &RestoreOptions<'_>,
        guards: &Guards,
    ) -> Result<DestinationState, RestoreFolderError> {
        let status = match Status::of_name(&self.parent, &self.name) {
            Ok(status) => status,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(DestinationState::Free),
            Err(error) => return Err(self.failed(error)),
        };
        if root.kind == NodeKind::Folder {
            match self.open_folder(&status) {
                Ok(Some(folder)) => return self.look_into(folder, options, guards),
                Ok(None) => {}
                Err(error) => return Err(self.failed(error.into())),
            }
        }
        let decision = self.decide(root, options, guards, &status);
        Ok(DestinationState::Entry(decision))
    }

    /// Removes what a run that was killed after its last step left beside the destination.
    pub(super) fn forget_completed(&self) {
        UnfinishedRestore::forget_completed(&self.parent, &self.name);
    }

    /// Opens the folder at the destination. A symbolic link is followed, because the user named it.
    fn open_folder(&self, status: &Status) -> Result<Option<OwnedFd>, Errno> {
        if !matches!(status.kind, Some(NodeKind::Folder | NodeKind::SymbolicLink)) {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.parent, self.name.as_slice(), flags, Mode::empty()) {
            Ok(folder) => Ok(Some(folder)),
            Err(Errno::NOTDIR | Errno::NOENT | Errno::LOOP) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn look_into(
        &self,
        folder: OwnedFd,
        options: &RestoreOptions<'_>,
        guards: &Guards,
    ) -> Result<DestinationState, RestoreFolderError> {
        guards.check_folder(&folder, &self.path).map_err(|hindrance| self.hindered(hindrance))?;
        let (mut names, read) = FolderNames::read(&folder);
        read.map_err(|error| self.failed(error))?;
        let mut is_empty = true;
        while let Some((name, _)) = names.next() {
            is_empty &= is_unfinished_name(name, &self.name);
        }
        let is_free = is_empty
            || UnfinishedRestore::is_placing(&folder, &self.name, options.source)
                .map_err(|error| self.failed(error.into()))?;
        Ok(if is_free { DestinationState::Empty(folder) } else { DestinationState::Folder(folder) })
    }

    /// Decides the action if the node or the existing entry is not a folder.
    fn decide(
        &self,
        root: &Node,
        options: &RestoreOptions<'_>,
        guards: &Guards,
        status: &Status,
    ) -> Decision {
        let Some(overwrite) = options.overwrite else { return (RestoreAction::Skip, RestoreReason::Exists) };
        let number = rustix::fs::makedev(status.id.file_system.major, status.id.file_system.minor);
        if let Some(kept) = guards.find((number, status.id.inode)) {
            return (RestoreAction::Skip, RestoreReason::MustStay(kept.to_path_buf()));
        }
        let node = Node { name: self.name.clone(), link_group: None, ..root.clone() };
        let attributes = Attributes::new(options.owners, true);
        let there = ExistingEntry {
            status,
            is_trusted: true,
            has_target: &|| {
                let target = rustix::fs::readlinkat(&self.parent, self.name.as_slice(), Vec::new());
                target.is_ok_and(|target| target.to_bytes() == node.target)
            },
            has_attributes: &|| attributes.are_given(&self.parent, &node.name, &node, status),
        };
        let decision = decide(Policy::Merge(overwrite), options.replace_types, &node, Some(&there));
        match (decision, LockedEntry::entry(status)) {
            ((RestoreAction::Replace | RestoreAction::Attributes, _), Some(locked)) => {
                (RestoreAction::Skip, RestoreReason::Locked(locked))
            }
            (decision @ (RestoreAction::Replace, RestoreReason::OtherKind(NodeKind::Folder)), None) => {
                match guards.look_through(&self.parent, &self.name, &self.path, &|_, _| false) {
                    Ok(()) => decision,
                    Err(hindrance) => (RestoreAction::Skip, hindrance.reason()),
                }
            }
            (decision, _) => decision,
        }
    }

    /// Sets owner, mode, times, attributes and flags of the existing entry. Returns the file whose
    /// flags were set.
    pub(super) fn give_attributes(
        &self,
        root: &Node,
        attributes: Attributes,
        flags: &FlagGiver,
    ) -> io::Result<Option<OwnedFd>> {
        match root.kind {
            NodeKind::File => {
                let file = open_file(&self.parent, &self.name)?;
                attributes.give_existing(&file, root)?;
                flags.give(&file, Path::new(""), root);
                Ok(Some(file))
            }
            _ => attributes.give_named(&self.parent, &self.name, root).map(|()| None),
        }
    }

    /// Begins a new file or folder beside the destination.
    pub(super) fn begin(
        self,
        made: PartialKind,
        source: &[u8],
        over: ReplacedEntry,
    ) -> Result<PartialResult, RestoreFolderError> {
        let folder = rustix::io::dup(&self.parent).map_err(|error| self.failed(error.into()))?;
        let unfinished = UnfinishedRestore::open(folder, &self.name, made, source).map_err(|error| {
            let parent = self.path.parent().unwrap_or(Path::new(""));
            self.failed(locked::explain(error, &self.parent, parent))
        })?;
        Ok(PartialResult { to: FinalPlace::Beside { over }, unfinished, destination: self })
    }

    /// Begins a new folder inside an empty one. That folder may be a whole file system, or the only
    /// place that this user can write to.
    pub(super) fn begin_below(
        self,
        folder: OwnedFd,
        source: &[u8],
    ) -> Result<PartialResult, RestoreFolderError> {
        let below = rustix::io::dup(&folder).map_err(|error| self.failed(error.into()))?;
        let unfinished = UnfinishedRestore::open(below, &self.name, PartialKind::Folder, source)
            .map_err(|error| self.failed(locked::explain(error, &folder, Path::new(""))))?;
        Ok(PartialResult { to: FinalPlace::Into { folder }, unfinished, destination: self })
    }

    /// Creates an entry in one step under a partial name, and moves it to its place.
    pub(super) fn make_at_once(
        &self,
        make: impl FnOnce(OwnedFd, &[u8]) -> bool,
        over: ReplacedEntry,
        guards: &Guards,
    ) -> Result<Option<MoveIntoPlaceError>, RestoreFolderError> {
        let failed = |error: Errno| self.failed(error.into());
        let mut free = None;
        for name in partial::partial_names(&self.name) {
            if !exists(&self.parent, &name).map_err(failed)? {
                free = Some(name);
                break;
            }
        }
        let Some(partial) = free else { return Err(failed(Errno::EXIST)) };
        if !make(rustix::io::dup(&self.parent).map_err(failed)?, &partial) {
            return Err(failed(Errno::NOENT));
        }
        rustix::fs::syncfs(&self.parent).map_err(failed)?;
        match move_into_place::place(&self.parent, &partial, &self.name, over, guards, &self.path) {
            Ok(()) => {}
            Err(error @ MoveIntoPlaceError::NotRemoved(_)) => return Ok(Some(error)),
            Err(error) => {
                let _ = rustix::fs::unlinkat(&self.parent, partial.as_slice(), AtFlags::empty());
                return Err(self.not_placed(error));
            }
        }
        rustix::fs::fsync(&self.parent).map_err(failed)?;
        Ok(None)
    }

    fn not_placed(&self, error: MoveIntoPlaceError) -> RestoreFolderError {
        match error {
            MoveIntoPlaceError::Rename(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                RestoreFolderError::Exists { path: self.path.clone() }
            }
            error => self.failed(io::Error::other(error)),
        }
    }

    pub(super) fn failed(&self, source: io::Error) -> RestoreFolderError {
        failed(&self.path, source)
    }

    /// The error for an existing entry that stays.
    pub(super) fn refused(&self, root: &Node, reason: RestoreReason) -> RestoreFolderError {
        let path = self.path.clone();
        match reason {
            RestoreReason::Exists => RestoreFolderError::Exists { path },
            RestoreReason::MustStay(kept) => RestoreFolderError::Holds { path, kept },
            RestoreReason::Mount => RestoreFolderError::Mounted { at: path.clone(), path },
            RestoreReason::Store => RestoreFolderError::Store { path },
            RestoreReason::OtherKind(there) => RestoreFolderError::OtherKind { path, there, kind: root.kind },
            reason => self.failed(io::Error::other(reason.to_string())),
        }
    }

    fn hindered(&self, hindrance: Hindrance) -> RestoreFolderError {
        let path = self.path.clone();
        match hindrance {
            Hindrance::Kept { kept } => RestoreFolderError::Holds { path, kept },
            Hindrance::Mount { at } => RestoreFolderError::Mounted { path, at },
            Hindrance::Store { at } => RestoreFolderError::Store { path: at },
            hindrance => self.failed(io::Error::other(hindrance)),
        }
    }
}

/// A partial result that moves to the destination once it is complete.
pub(super) struct PartialResult {
    destination: Destination,
    unfinished: UnfinishedRestore,
    to: FinalPlace,
}

enum FinalPlace {
    /// It takes the name of the destination.
    Beside { over: ReplacedEntry },
    /// Its contents move up into the destination.
    Into { folder: OwnedFd },
}

impl PartialResult {
    pub(super) fn unfinished(&self) -> &UnfinishedRestore {
        &self.unfinished
    }

    /// Returns whether an earlier run completed it, and had begun to move it to its place.
    pub(super) fn is_made(&self) -> bool {
        self.unfinished.noted().is_placing
    }

    /// The path of the partial result.
    pub(super) fn partial_path(&self) -> PathBuf {
        match &self.to {
            FinalPlace::Beside { .. } => {
                self.unfinished.path_in(self.destination.path.parent().unwrap_or(Path::new("")))
            }
            FinalPlace::Into { .. } => self.unfinished.path_in(&self.destination.path),
        }
    }

    pub(super) fn failed(&self, source: io::Error) -> RestoreFolderError {
        self.destination.failed(source)
    }

    /// Opens the new folder.
    pub(super) fn open_folder(&self) -> Result<OwnedFd, RestoreFolderError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (folder, name) = (self.unfinished.folder(), self.unfinished.name());
        rustix::fs::chmodat(folder, name, Mode::RWXU, AtFlags::empty())
            .and_then(|()| rustix::fs::openat(folder, name, flags, Mode::empty()))
            .map_err(|error| self.failed(error.into()))
    }

    /// Makes the partial result durable, and moves it to its place. `root` is the node that is
    /// restored. Returns the failure to remove what it replaced, and the folder into which it was
    /// moved, if any.
    pub(super) fn put_in_place(
        self,
        root: &Node,
        attributes: Attributes,
        guards: &Guards,
    ) -> Result<(Option<MoveIntoPlaceError>, Option<OwnedFd>), RestoreFolderError> {
        let failed = |error: Errno| self.failed(error.into());
        rustix::fs::syncfs(self.unfinished.folder()).map_err(failed)?;
        let not_removed = match &self.to {
            FinalPlace::Beside { over } => self.take_name(*over, guards)?,
            FinalPlace::Into { folder } => {
                self.move_up(folder, root, attributes)?;
                None
            }
        };
        rustix::fs::fsync(self.unfinished.folder()).map_err(failed)?;
        self.unfinished.forget();
        let into = match self.to {
            FinalPlace::Beside { .. } => None,
            FinalPlace::Into { folder } => Some(folder),
        };
        Ok((not_removed, into))
    }

    /// Removes the partial result.
    pub(super) fn discard(&self, guards: &Guards) {
        let (folder, name) = (self.unfinished.folder(), self.unfinished.name());
        let _ = guards.remove(folder, name, &self.partial_path());
        self.unfinished.forget();
    }

    fn take_name(
        &self,
        over: ReplacedEntry,
        guards: &Guards,
    ) -> Result<Option<MoveIntoPlaceError>, RestoreFolderError> {
        let (destination, partial) = (&self.destination, self.unfinished.name());
        if over == ReplacedEntry::Tree {
            // The entry may have changed since the work began.
            guards
                .look_through(&destination.parent, &destination.name, &destination.path, &|_, _| false)
                .map_err(|hindrance| self.unplaced(destination.hindered(hindrance)))?;
        }
        let Destination { parent, name, path, .. } = destination;
        match move_into_place::place(parent, partial, name, over, guards, path) {
            Ok(()) => Ok(None),
            Err(error @ MoveIntoPlaceError::NotRemoved(_)) => Ok(Some(error)),
            // Another entry has appeared there meanwhile. The result is kept under its partial
            // name.
            Err(error) => Err(self.unplaced(error)),
        }
    }

    /// Moves the new entries up into the existing folder, and sets the attributes of that folder.
    /// If this is interrupted, the next run continues.
    fn move_up(
        &self,
        folder: &OwnedFd,
        root: &Node,
        attributes: Attributes,
    ) -> Result<(), RestoreFolderError> {
        let failed = |error: Errno| self.failed(error.into());
        let noted = CompletedPart { is_placing: true, ..self.unfinished.noted().clone() };
        self.unfinished.note(&noted).map_err(|error| self.failed(error))?;
        let made = self.open_folder()?;
        let (mut names, read) = FolderNames::read(&made);
        read.map_err(|error| self.failed(error))?;
        while let Some((name, kind)) = names.next() {
            let moved = move_to(&made, folder, name, kind);
            moved.map_err(|error| self.unplaced(io::Error::from(error)))?;
        }
        let name = self.unfinished.name();
        rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR).map_err(failed)?;
        // Remove the state file before the folder gets its time, and a mode that may lock this user
        // out.
        self.unfinished.forget();
        attributes.give_existing(folder, root).map_err(|error| self.failed(error))
    }

    fn unplaced(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> RestoreFolderError {
        RestoreFolderError::Unplaced {
            path: self.destination.path.clone(),
            finished: self.partial_path(),
            source: source.into(),
        }
    }
}

/// Moves an entry to another folder of the same file system, without replacing. A folder that this
/// user may not write to gets write permission for a moment, because a move changes its `..` entry.
fn move_to(from: &OwnedFd, to: &OwnedFd, name: &[u8], kind: Option<NodeKind>) -> Result<(), Errno> {
    let rename = |_: &OwnedFd, _: &[u8], _: &[u8], flags: rustix::fs::RenameFlags| match flags.is_empty() {
        true => rustix::fs::renameat(from, name, to, name),
        false => rustix::fs::renameat_with(from, name, to, name, flags),
    };
    match rename_new(to, name, name, &rename) {
        Err(Errno::ACCESS) if kind != Some(NodeKind::File) => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let pinned = rustix::fs::openat(from, name, flags, Mode::empty())?;
            let mode = Mode::from_raw_mode(rustix::fs::fstat(&pinned)?.st_mode & 0o7777);
            rustix::fs::chmodat(from, name, mode | Mode::RWXU, AtFlags::empty())?;
            let moved = rename_new(to, name, name, &rename);
            let now_in = if moved.is_ok() { to.as_fd() } else { from.as_fd() };
            rustix::fs::chmodat(now_in, name, mode, AtFlags::empty())?;
            moved
        }
        moved => moved,
    }
}

fn failed(path: &Path, source: io::Error) -> RestoreFolderError {
    RestoreFolderError::Destination { path: path.to_path_buf(), source }
}
