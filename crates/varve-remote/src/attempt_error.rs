//! The failure of one attempt, and whether a retry may help.

use std::io;
use std::time::Duration;

use varve_world::FileName;

use crate::target::{PauseAsked, TargetError};

/// The characters of a folder's name that are shown.
const FOLDER_CHARS_MAX: usize = 200;

/// The reason why one attempt of an operation failed.
#[derive(Debug)]
pub(crate) enum AttemptError {
    /// There is no such object.
    NotFound,
    /// The object already exists.
    Exists,
    /// The object ends before the range does.
    Short,
    /// A retry cannot help.
    Refused(io::Error),
    /// A retry may help. A server that is too busy asks for a pause, which is zero if it leaves the
    /// length to the client.
    Passing(io::Error, Option<Duration>),
}

impl AttemptError {
    /// Makes a refusal with a text of this program.
    pub fn refused(text: impl Into<String>) -> Self {
        Self::Refused(io::Error::other(text.into()))
    }

    /// Makes a passing failure with a text of this program.
    pub fn passing(text: impl Into<String>) -> Self {
        Self::Passing(io::Error::other(text.into()), None)
    }

    /// Makes a passing failure of a server that is too busy.
    pub fn busy(text: String) -> Self {
        Self::Passing(io::Error::other(text), Some(Duration::ZERO))
    }

    /// Makes a passing failure of a server that asks for a pause. Its text names the pause.
    pub fn with_asked_pause(text: String, pause: Duration) -> Self {
        Self::Passing(io::Error::other(PauseAsked { text, pause }), Some(pause))
    }

    /// Converts an error of a connection or a file. Errors that need a person are refusals; the
    /// others may pass.
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

    /// Adds the folder whose listing failed.
    pub fn in_folder(self, folder: &str) -> Self {
        let named = |error: io::Error| match folder {
            "" => error,
            folder => {
                let shown: String = folder.chars().take(FOLDER_CHARS_MAX).collect();
                io::Error::new(error.kind(), format!("folder {shown}: {error}"))
            }
        };
        match self {
            Self::Refused(error) => Self::Refused(named(error)),
            Self::Passing(error, asked) => Self::Passing(named(error), asked),
            other => other,
        }
    }

    /// Converts to the error of a [`Target`](crate::Target). `end` is the end of the requested
    /// range.
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

/// Flattens an error of a library: its text with all its sources, in one line.
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
        let of = |kind: io::ErrorKind| AttemptError::of_io(kind.into());
        for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::StorageFull] {
            assert!(matches!(of(kind), AttemptError::Refused(_)), "{kind}");
        }
        for kind in [io::ErrorKind::ConnectionReset, io::ErrorKind::TimedOut, io::ErrorKind::UnexpectedEof] {
            assert!(matches!(of(kind), AttemptError::Passing(..)), "{kind}");
        }
    }
}
