//! The trait between a replica and the storage of its objects.

use std::fmt;
use std::io;
use std::ops::{ControlFlow, Range};
use std::time::Duration;

use bytes::Bytes;
use varve_world::FileName;

/// The guarantees of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// True if exactly one of two callers succeeds that create the same object at the same time. If
    /// it is false, [`PutMode::Create`] checks before it writes, and two concurrent callers may
    /// both succeed.
    pub create_is_exclusive: bool,
    /// True if a range is read without the rest of the object.
    pub ranges: bool,
}

/// The treatment of an existing object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutMode {
    /// Keep it, and fail with [`TargetError::Exists`].
    Create,
    /// Replace it.
    Replace,
}

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    pub name: FileName,
    /// The length in bytes.
    pub bytes: u64,
}

/// Something other than a file that has a valid object name. Only files are objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NonObject {
    pub name: FileName,
    pub kind: NonObjectKind,
}

/// The kinds of such entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NonObjectKind {
    /// A folder. Most folders exist for the objects in them.
    Folder,
    /// A symbolic link.
    Link,
    /// A pipe, a device, or the like.
    Special,
}

impl fmt::Display for NonObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Folder => "a folder",
            Self::Link => "a symbolic link",
            Self::Special => "a special file",
        })
    }
}

/// Everything at a target with a valid object name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// All objects, in the order of their names.
    pub objects: Vec<Object>,
    /// The entries that are not objects, in the order of their names.
    pub others: Vec<NonObject>,
}

/// The reason why a call of a target failed.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// There is no such object.
    #[error("{name}: there is no such object")]
    NotFound { name: FileName },
    /// The object should be created, but already exists.
    #[error("{name}: the object already exists")]
    Exists { name: FileName },
    /// The object is shorter than the requested range.
    #[error("{name}: it ends before byte {end}")]
    Short {
        name: FileName,
        /// The end of the range.
        end: u64,
    },
    /// The target denies access or refuses the call. A retry cannot help.
    #[error("{what}: refused")]
    Refused {
        /// The object, or the target itself.
        what: String,
        source: io::Error,
    },
    /// All attempts failed, for a reason that may pass.
    #[error("{what}: failed")]
    Failed {
        /// The object, or the target itself.
        what: String,
        source: io::Error,
    },
}

impl TargetError {
    /// Returns the pause that the server has asked for, if it did.
    #[must_use]
    pub fn asked_pause(&self) -> Option<Duration> {
        let Self::Failed { source, .. } = self else { return None };
        let asked = source.get_ref()?.downcast_ref::<PauseAsked>()?;
        Some(asked.pause)
    }
}

/// A server has refused a request for now, and has told when to ask again.
#[derive(Debug, thiserror::Error)]
#[error("{text}: the server asks to wait for {} s", pause.as_secs())]
pub(crate) struct PauseAsked {
    pub text: String,
    pub pause: Duration,
}

/// The result of removing an object for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Erased {
    /// The object is gone, and so is its space.
    Gone,
    /// The target protects the object. Nothing was changed.
    Locked(ObjectLock),
}

/// The protection of an object by its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectLock {
    /// Until a day, as the target writes it: `2026-12-01`.
    Until(String),
    /// Until somebody ends it.
    LegalHold,
}

impl fmt::Display for ObjectLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until(day) => write!(f, "locked until {day}"),
            Self::LegalHold => f.write_str("under a legal hold"),
        }
    }
}

/// Objects that a target keeps, but no longer lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HiddenObjects {
    pub count: u64,
    /// The time at which the first of them was hidden, as RFC 3339.
    pub since: String,
    /// The URL of the target as it was before.
    pub before: String,
}

impl fmt::Display for HiddenObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, since, before } = self;
        let objects = if *count == 1 { "object is" } else { "objects are" };
        write!(
            f,
            "{count} {objects} hidden there by delete markers since {since}; '{before}' reads what was there before"
        )
    }
}

/// A whole object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeObject {
    pub bytes: Bytes,
    /// The server's mark for this state of the object (an entity tag), if it has one.
    pub mark: Option<String>,
}

/// A consumer of pieces. It returns whether to continue.
pub type TakePiece<'a> = dyn FnMut(Bytes) -> ControlFlow<()> + 'a;

/// Whole objects under names. An object does not change unless it is replaced.
///
/// Many threads may call it at once. Calls block. Each retries failures that may pass, with growing
/// pauses. The caller must not trust received bytes.
pub trait Target: Send + Sync + fmt::Display {
    /// Returns the guarantees.
    fn capabilities(&self) -> Capabilities;

    /// Returns false once the server has answered a request for a range with the whole object.
    /// Never asks the server.
    fn knows_ranges(&self) -> bool {
        true
    }

    /// Returns true if the server answers many requests at once over one connection (HTTP/2), as
    /// far as is known. Never asks the server.
    fn multiplexes(&self) -> bool {
        false
    }

    /// Puts an object, whole or not at all, as durably as the target can.
    ///
    /// # Errors
    /// [`TargetError::Exists`] with [`PutMode::Create`]; else [`TargetError::Refused`] or
    /// [`TargetError::Failed`]. After these two the object may exist or not.
    fn put(&self, name: &FileName, contents: Bytes, mode: PutMode) -> Result<(), TargetError>;

    /// Reads exactly a range of an object, in bytes.
    ///
    /// # Errors
    /// [`TargetError`].
    fn get(&self, name: &FileName, range: Range<u64>) -> Result<Bytes, TargetError>;

    /// Reads a range as [`get`](Self::get) does. Passes it to `take` from front to back, in pieces
    /// if the target can. So the caller uses received data while the rest is on its way, and a
    /// broken connection loses at most a piece. Returns early without an error if `take` breaks
    /// off.
    ///
    /// `place` is the offset of the range in the file to which it will be written. Pieces are
    /// aligned in memory as in that file, so direct I/O can write them without a copy.
    ///
    /// # Errors
    /// As [`get`](Self::get). Pieces that were passed before the error are good.
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

    /// Reads a whole object of at most `bytes_max` bytes, whose length need not be known. Returns
    /// `None` if the server says that the object still has the mark `known`.
    ///
    /// # Errors
    /// [`TargetError`]; [`TargetError::Refused`] if the object is longer.
    fn get_whole(
        &self,
        name: &FileName,
        bytes_max: u64,
        _known: Option<&str>,
    ) -> Result<Option<WholeObject>, TargetError> {
        let listed = self.list(name.folder())?.into_iter().find(|object| object.name == *name);
        let object = listed.ok_or_else(|| TargetError::NotFound { name: name.clone() })?;
        if object.bytes > bytes_max {
            return Err(TargetError::Refused { what: name.to_string(), source: longer_than(bytes_max) });
        }
        Ok(Some(WholeObject { bytes: self.get(name, 0..object.bytes)?, mark: None }))
    }

    /// Lists the objects whose names begin with `folder` and a slash, at any depth, in the order of
    /// their names; all objects for `""`. Objects with names that no store uses are left out.
    ///
    /// # Errors
    /// [`TargetError::Refused`] or [`TargetError::Failed`]. A missing folder has no objects.
    fn list(&self, folder: &str) -> Result<Vec<Object>, TargetError>;

    /// Lists everything at the target: all objects, and all other entries with valid object names.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    fn survey(&self) -> Result<Survey, TargetError> {
        // A target without folders has only objects.
        Ok(Survey { objects: self.list("")?, others: Vec::new() })
    }

    /// Returns the objects that the target keeps as old versions, but no longer lists; `None` if
    /// there are none, or if it does not tell.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    fn hidden(&self) -> Result<Option<HiddenObjects>, TargetError> {
        Ok(None)
    }

    /// Returns the protection of an object, which may have ended.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn lock(&self, _name: &FileName) -> Result<Option<ObjectLock>, TargetError> {
        Ok(None)
    }

    /// Removes an object.
    ///
    /// # Errors
    /// [`TargetError::NotFound`], or as [`put`](Self::put).
    fn remove(&self, name: &FileName) -> Result<(), TargetError>;

    /// Removes an object for good: also from a target that keeps removed objects as old versions.
    ///
    /// # Errors
    /// As [`remove`](Self::remove). A lock that the target tells of is no error.
    fn erase(&self, name: &FileName) -> Result<Erased, TargetError> {
        self.remove(name).map(|()| Erased::Gone)
    }

    /// Removes the leftovers of dead writers that the last full listing has found. Returns the
    /// number of removed files. Never removes an object, or a file that a writer may still use.
    /// Files that cannot be removed stay.
    fn remove_leftovers(&self) -> usize {
        0
    }
}

/// The error of an object that is longer than its reader accepts.
pub(crate) fn longer_than(bytes_max: u64) -> io::Error {
    io::Error::other(format!("it is longer than {bytes_max} bytes"))
}
