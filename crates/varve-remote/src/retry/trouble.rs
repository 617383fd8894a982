//! What one try met, and whether another may help.

use std::io;
use std::time::Duration;

use varve_world::FileName;

use crate::TargetError;

/// Why one try of an operation did not succeed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// There is no such object.
    NotFound,
    /// There is one already.
    Exists,
    /// The object ends before the range does.
    Short,
    /// No further try will help.
    Refused(io::Error),
    /// It may pass; the other side may have said how long to wait.
    Passing(io::Error, Option<Duration>),
}

impl Trouble {
    /// Refused, in our words.
    pub fn refused(text: impl Into<String>) -> Self {
        Self::Refused(io::Error::other(text.into()))
    }

    /// It may pass, in our words.
    pub fn passing(text: impl Into<String>) -> Self {
        Self::Passing(io::Error::other(text.into()), None)
    }

    /// What the system says of a connection or a file: what only a person can mend is refused, the rest may pass.
    pub fn of_io(error: io::Error) -> Self {
        use io::ErrorKind::{
            InvalidInput, IsADirectory, NotADirectory, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem,
            StorageFull, Unsupported,
        };
        match error.kind() {
            PermissionDenied | ReadOnlyFilesystem | StorageFull | QuotaExceeded | NotADirectory
            | IsADirectory | InvalidInput | Unsupported => Self::Refused(error),
            _ => Self::Passing(error, None),
        }
    }

    /// As the caller of a target is told of it. `end` is where the range ends that was asked for.
    pub fn of_object(self, name: &FileName, end: u64) -> TargetError {
        match self {
            Self::NotFound => TargetError::NotFound { name: name.clone() },
            Self::Exists => TargetError::Exists { name: name.clone() },
            Self::Short => TargetError::Short { name: name.clone(), end },
            Self::Refused(source) => TargetError::Refused { what: name.to_string(), source },
            Self::Passing(source, _) => TargetError::Failed { what: name.to_string(), source },
        }
    }
}

/// What remains of an error of a library: its text with all its sources, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> io::Error {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    io::Error::other(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_must_mend_is_not_tried_again() {
        let of = |kind: io::ErrorKind| Trouble::of_io(kind.into());
        for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::StorageFull] {
            assert!(matches!(of(kind), Trouble::Refused(_)), "{kind}");
        }
        for kind in [io::ErrorKind::ConnectionReset, io::ErrorKind::TimedOut, io::ErrorKind::UnexpectedEof] {
            assert!(matches!(of(kind), Trouble::Passing(..)), "{kind}");
        }
    }
}
