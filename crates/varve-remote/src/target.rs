//! The seam between a store's second home and whatever keeps its objects.

use std::fmt;
use std::io;
use std::ops::{ControlFlow, Range};

use bytes::Bytes;
use varve_world::FileName;

/// What a target can promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Of two callers who create the same object at the same time, exactly one succeeds. Where this is false,
    /// [`PutMode::Create`] looks before it writes, and two callers at the same moment may both succeed.
    pub create_is_exclusive: bool,
    /// A range is read without reading the rest of the object.
    pub ranges: bool,
}

/// What to do about an object that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutMode {
    /// Leave it, and fail with [`TargetError::Exists`].
    Create,
    /// Put the new one in its place.
    Replace,
}

/// An object as a listing tells of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// Its name.
    pub name: FileName,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Something that lies under a name that an object could have, and is none: only a file is an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Other {
    /// Its name.
    pub name: FileName,
    /// What it is.
    pub kind: OtherKind,
}

/// What can lie where an object could.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OtherKind {
    /// A folder; most of them are there for the objects in them.
    Folder,
    /// A symbolic link.
    Link,
    /// A pipe, a device, or the like.
    Special,
}

impl fmt::Display for OtherKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Folder => "a folder",
            Self::Link => "a symbolic link",
            Self::Special => "a special file",
        })
    }
}

/// Everything that lies at a target, as far as a store could use its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// All objects, in order of their names.
    pub objects: Vec<Object>,
    /// What is no object, in order of the names.
    pub others: Vec<Other>,
}

/// Why a target did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// There is no such object.
    #[error("{name}: there is no such object")]
    NotFound {
        /// Which.
        name: FileName,
    },
    /// The object was to be created and is there.
    #[error("{name}: there is one already")]
    Exists {
        /// Which.
        name: FileName,
    },
    /// The object is shorter than the range that was asked for.
    #[error("{name}: it ends before byte {end}")]
    Short {
        /// Which.
        name: FileName,
        /// Where the range ends.
        end: u64,
    },
    /// The target does not let us in, or forbids this: another try will not help.
    #[error("{what}: refused")]
    Refused {
        /// Which object, or the target itself.
        what: String,
        /// What went wrong below.
        source: io::Error,
    },
    /// It failed for a reason that may pass; it was tried several times.
    #[error("{what}: failed")]
    Failed {
        /// Which object, or the target itself.
        what: String,
        /// What went wrong below.
        source: io::Error,
    },
}

/// Whoever takes what comes, piece by piece, and asks for more or breaks off.
pub type TakePiece<'a> = dyn FnMut(Bytes) -> ControlFlow<()> + 'a;

/// Objects under names, whole and immutable once they are there unless replaced.
///
/// Callable from many threads at once. Calls block; each tries again by itself, with growing pauses, what may succeed
/// later. Bytes that come back are not to be trusted.
pub trait Target: Send + Sync + fmt::Display {
    /// What it can promise.
    fn capabilities(&self) -> Capabilities;

    /// Puts an object in place, whole or not at all, as durable as the target makes anything.
    ///
    /// # Errors
    /// [`TargetError::Exists`] with [`PutMode::Create`]; else [`TargetError::Refused`] or [`TargetError::Failed`], after which
    /// the object may or may not be there.
    fn put(&self, name: &FileName, contents: Bytes, mode: PutMode) -> Result<(), TargetError>;

    /// Reads a range of an object, in bytes; exactly as many as asked for.
    ///
    /// # Errors
    /// [`TargetError`].
    fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, TargetError>;

    /// Reads a range as [`get`](Self::get) does, and gives it to `take` from front to back, piece by piece if the target can: what has come is
    /// used while the rest is on its way, and a line that breaks costs no more than a piece. It ends early, and well, when `take` breaks off.
    ///
    /// `place` is where the range begins in the file that it will be written to: a piece's pages in that file are pages in memory, too, and need
    /// not be copied to be written past the system's memory of files.
    ///
    /// # Errors
    /// As [`get`](Self::get). What has been given before is good.
    fn get_in_pieces(
        &self,
        name: &FileName,
        range: Range<u64>,
        _place: u64,
        take: &mut TakePiece<'_>,
    ) -> Result<(), TargetError> {
        let whole = self.get(name, range)?;
        if !whole.is_empty() {
            let _ = take(whole);
        }
        Ok(())
    }

    /// The objects whose names begin with `folder` and a slash, at any depth below it, in order of their names; all
    /// objects for `""`. What has a name that no store uses is left out.
    ///
    /// # Errors
    /// [`TargetError::Refused`] or [`TargetError::Failed`]. A folder that is not there has no objects.
    fn list(&self, folder: &str) -> Result<Vec<Object>, TargetError>;

    /// Everything at the place in one listing: all objects, and what is none and lies under such a name.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    fn survey(&self) -> Result<Survey, TargetError> {
        // What has no folders has nothing but objects.
        Ok(Survey { objects: self.list("")?, others: Vec::new() })
    }

    /// Removes an object.
    ///
    /// # Errors
    /// [`TargetError::NotFound`], or as [`put`](Self::put).
    fn remove(&self, name: &FileName) -> Result<(), TargetError>;

    /// Removes what dead writers have left unfinished, as far as the last listing of everything has shown it, and says how many files
    /// that were. Nothing that anybody could read is touched, and nothing that a writer may still be at; what cannot be removed stays.
    fn remove_leftovers(&self) -> usize {
        0
    }
}

impl<T: Target + ?Sized> Target for Box<T> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn put(&self, name: &FileName, contents: Bytes, mode: PutMode) -> Result<(), TargetError> {
        (**self).put(name, contents, mode)
    }

    fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, TargetError> {
        (**self).get(name, range)
    }

    fn get_in_pieces(
        &self,
        name: &FileName,
        range: Range<u64>,
        place: u64,
        take: &mut TakePiece<'_>,
    ) -> Result<(), TargetError> {
        (**self).get_in_pieces(name, range, place, take)
    }

    fn list(&self, folder: &str) -> Result<Vec<Object>, TargetError> {
        (**self).list(folder)
    }

    fn survey(&self) -> Result<Survey, TargetError> {
        (**self).survey()
    }

    fn remove(&self, name: &FileName) -> Result<(), TargetError> {
        (**self).remove(name)
    }

    fn remove_leftovers(&self) -> usize {
        (**self).remove_leftovers()
    }
}
